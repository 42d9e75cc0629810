"""Which pieces of work the benchmark on real recordings is made of, in order of importance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

from xcebra.reproduce.real.cebra import has_cebra
from xcebra.reproduce.real.data import RECORDINGS, RealFolder
from xcebra.reproduce.real.truth import RealCase
from xcebra.reproduce.real.work import GRAPHS, CebraFit, IndependentTest, RealFit

RealItem = RealFit | CebraFit | IndependentTest


@dataclass(frozen=True)
class RealScale:
    """How much of the benchmark to run.

    Parameters
    ----------
    most_files : int or None
        Recordings to use, of those that are there.
    bins : bool
        Every allowed bin size of known cells, and the finest and the coarsest of foreign neurons;
        otherwise the main one alone.
    all_labels : bool
        Every label of a recording, not the main one alone.
    n_seeds : int
        Fits of the same data with different seeds, of known cells and of recordings as they are.
    n_poisson_draws, n_foreign_draws, n_implanted_draws : int
    n_other_labels : int
        Pairs of a recording and a label of another one.
    time_dims : tuple of int
        Numbers of time latents to try beside the default.
    n_time_dims_files : int
        Recordings with foreign neurons on which these are tried.
    noise, halves : bool
        Noise units; fits to each half of a recording.
    n_cebra : int
        Recordings that CEBRA's own model is fitted to, twice each.
    n_independent : int
        Seeds of the simulated test.
    steps : int or None
        Training steps; None is the estimator's default.
    coarse : bool
        The coarsest bins in place of the main ones, which is quicker.
    """

    most_files: int | None = None
    bins: bool = True
    all_labels: bool = True
    n_seeds: int = 3
    n_poisson_draws: int = 20
    n_foreign_draws: int = 2
    n_implanted_draws: int = 1
    n_other_labels: int = 40
    time_dims: tuple[int, ...] = (0, 2, 4, 8)
    n_time_dims_files: int = 3
    noise: bool = True
    halves: bool = True
    n_cebra: int = 3
    n_independent: int = 5
    steps: int | None = None
    coarse: bool = False


QUICK_REAL = RealScale(
    most_files=3,
    bins=False,
    all_labels=False,
    n_seeds=1,
    n_poisson_draws=2,
    n_foreign_draws=1,
    n_implanted_draws=0,
    n_other_labels=3,
    time_dims=(),
    noise=False,
    halves=False,
    n_cebra=0,
    n_independent=1,
)


def real(scale: RealScale, data: RealFolder) -> list[RealItem]:
    """All work on the recordings that are in a folder, what matters most first."""
    plan = _Plan(scale, data.path, data.files()[: scale.most_files])
    return list(
        dict.fromkeys(
            [
                *plan.known_cells(),
                *plan.foreign(),
                *plan.independent(both=False),
                *plan.other_labels(),
                *plan.known_cells_with_poisson(),
                *plan.numbers_of_time_latents(),
                *plan.as_recorded(),
                *plan.implanted(),
                *plan.noise(),
                *plan.cebra(),
                *plan.more_foreign(),
                *plan.halves(),
                *plan.independent(both=True),
            ]
        )
    )


@dataclass(frozen=True)
class _Plan:
    """The parts of the benchmark."""

    scale: RealScale
    folder: str
    files: tuple[str, ...]

    def known_cells(self) -> list[RealItem]:
        """Cells known by their area, for every bin and seed; all methods with the first seed."""
        return [
            self._fit(case, seed=seed, methods=seed == 0)
            for seed in range(self.scale.n_seeds)
            for case in self._known_cases("known")
        ]

    def known_cells_with_poisson(self) -> list[RealItem]:
        """The known carriers alone, with units of Poisson noise."""
        return [
            self._fit(RealCase(file, label, self._bin(file), "known-poisson", draw=draw))
            for draw in range(self.scale.n_poisson_draws)
            for file in self.files
            for label in RECORDINGS[file].carriers
        ]

    def foreign(self) -> list[RealItem]:
        """Neurons of other animals, for every label; all methods."""
        cases = [
            case
            for file in self.files
            for label in self._labels(file)
            for case in self._with_other("foreign", file, label, self._bin(file))
        ]
        return [self._fit(case, methods=True) for case in cases]

    def more_foreign(self) -> list[RealItem]:
        """Other draws, and the finest and coarsest bins, for the main labels."""
        found: list[RealItem] = []
        for draw in range(1, self.scale.n_foreign_draws):
            for file in self.files:
                cases = self._with_other("foreign", file, self._main(file), self._bin(file), draw)
                found += [self._fit(case) for case in cases]
        if self.scale.bins:
            for file in self.files:
                bins = RECORDINGS[file].bins_ms
                for bin_ms in dict.fromkeys((bins[-1], bins[0])):
                    cases = self._with_other("foreign", file, self._main(file), bin_ms)
                    found += [self._fit(case) for case in cases]
        return found

    def as_recorded(self) -> list[RealItem]:
        """Every label of the recordings as they are; several seeds of the main ones."""
        found: list[RealItem] = []
        for seed in range(self.scale.n_seeds):
            for file in self.files:
                labels = self._labels(file) if seed == 0 else (self._main(file),)
                for label in labels:
                    main = label == self._main(file)
                    case = RealCase(file, label, self._bin(file), "own")
                    found.append(self._fit(case, seed=seed, methods=main and seed == 0, test=False))
        return found

    def other_labels(self) -> list[RealItem]:
        """Labels of other animals: the gate must refuse them."""
        pairs = [
            (file, other, label)
            for file, other in product(self.files, self.files)
            if RECORDINGS[file].animal != RECORDINGS[other].animal
            for label in RECORDINGS[other].labels
        ]
        found: list[RealItem] = []
        n = min(self.scale.n_other_labels, len(pairs))
        for k in range(n):
            # Evenly spaced, so that few pairs are of different recordings.
            file, other, label = pairs[k * len(pairs) // n]
            case = RealCase(file, label, self._bin(file), "other-label", other)
            found.append(self._fit(case, test=False, map=False))
        return found

    def implanted(self) -> list[RealItem]:
        """Responses of known strength that were put into foreign neurons."""
        return [
            self._fit(case, methods=True)
            for draw in range(self.scale.n_implanted_draws)
            for file in self.files
            for case in self._with_other("implanted", file, self._main(file), self._bin(file), draw)
        ]

    def numbers_of_time_latents(self) -> list[RealItem]:
        """Known cells and foreign neurons with other numbers of time latents than the default."""
        found: list[RealItem] = []
        for seed in range(self.scale.n_seeds):
            for case, n in product(self._known_cases("known"), self.scale.time_dims):
                main = case.bin_ms == self._bin(case.file)
                if main or seed == 0:
                    found.append(self._fit(case, seed=seed, time_dims=n, test=main))
        hosts = [file for file in self.files if not RECORDINGS[file].carriers]
        for file in hosts[: self.scale.n_time_dims_files]:
            cases = self._with_other("foreign", file, self._main(file), self._bin(file))
            pairs = product(cases, self.scale.time_dims)
            found += [self._fit(case, time_dims=n, test=False) for case, n in pairs]
        return found

    def noise(self) -> list[RealItem]:
        """Poisson units and shifted copies beside the recording's own units."""
        if not self.scale.noise:
            return []
        cases = [RealCase(f, self._main(f), self._bin(f), "noise") for f in self.files]
        return [self._fit(case) for case in cases]

    def halves(self) -> list[RealItem]:
        """Fits to the first and to the second half of the recordings as they are."""
        if not self.scale.halves:
            return []
        cases = [RealCase(f, self._main(f), self._bin(f), "own") for f in self.files]
        parts = ("first half", "second half")
        return [self._fit(case, part=part, test=False) for case, part in product(cases, parts)]

    def cebra(self) -> list[RealItem]:
        """CEBRA's own model, with two seeds, where it is installed."""
        if not has_cebra():
            return []
        found: list[RealItem] = []
        for file in self.files[: self.scale.n_cebra]:
            case = RealCase(file, self._main(file), self._bin(file), "own")
            steps = self.scale.steps or CebraFit.steps
            found += [CebraFit(self.folder, case, seed, steps) for seed in (0, 1)]
            for foreign in self._with_other("foreign", file, case.label, case.bin_ms):
                found.append(CebraFit(self.folder, foreign, 0, steps))
        return found

    def independent(self, *, both: bool) -> list[RealItem]:
        """The simulated test."""
        seeds = range(self.scale.n_independent)
        return [IndependentTest(g, s, both, self.scale.steps) for s, g in product(seeds, GRAPHS)]

    def _known_cases(self, truth: str) -> list[RealCase]:
        return [
            RealCase(file, label, bin_ms, truth)
            for file in self.files
            for label in RECORDINGS[file].carriers
            for bin_ms in (RECORDINGS[file].bins_ms if self.scale.bins else (self._bin(file),))
        ]

    def _with_other(
        self, truth: str, file: str, label: str, bin_ms: float, draw: int = 0
    ) -> list[RealCase]:
        """The case with neurons of another animal, another recording for each draw."""
        animal = RECORDINGS[file].animal
        others = [name for name in self.files if RECORDINGS[name].animal != animal]
        if not others:
            return []
        # Recordings with many neurons come first; the few units of the last are of little use.
        order = sorted(others, key=_DONORS.index)
        return [RealCase(file, label, bin_ms, truth, order[draw % len(order)], draw)]

    def _labels(self, file: str) -> tuple[str, ...]:
        return tuple(RECORDINGS[file].labels) if self.scale.all_labels else (self._main(file),)

    def _bin(self, file: str) -> float:
        about = RECORDINGS[file]
        return about.bins_ms[-1] if self.scale.coarse else about.main_bin_ms

    @staticmethod
    def _main(file: str) -> str:
        return RECORDINGS[file].main_label

    def _fit(
        self,
        case: RealCase,
        *,
        seed: int = 0,
        time_dims: int | None = None,
        part: str = "whole",
        test: bool = True,
        methods: bool = False,
        map: bool = True,
    ) -> RealFit:
        return RealFit(
            self.folder,
            case,
            seed=seed,
            time_dims=time_dims,
            part=part,
            test=test,
            methods=methods,
            map=map,
            steps=self.scale.steps,
        )


# Recordings that foreign neurons are taken from, first those with most neurons.
_DONORS = sorted(RECORDINGS, key=lambda name: -RECORDINGS[name].n_units)
