"""The work items of the benchmark on real recordings, in order of importance."""

from __future__ import annotations

from dataclasses import dataclass
from itertools import product

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
        Maximum number of recordings to use; None uses all recordings in the folder.
    bins : bool
        Use every allowed bin size for known cells, and the finest and the coarsest for foreign
        neurons. If False, use the main bin size only.
    all_labels : bool
        Use every label of a recording. If False, use the main label only.
    n_seeds : int
        Number of fits with different seeds, for known cells and for recordings as they are.
    n_poisson_draws, n_foreign_draws, n_implanted_draws : int
        Number of random draws of Poisson units, foreign neurons and implanted responses.
    n_other_labels : int
        Number of pairs of a recording and a label of another recording.
    time_dims : tuple of int
        Numbers of time latents to try in addition to the default.
    n_time_dims_files : int
        Number of recordings with foreign neurons on which they are tried.
    noise, halves : bool
        Whether to include noise units, and fits to each half of a recording.
    n_cebra : int
        Number of recordings that CEBRA's own model is fitted to, with two seeds each.
    n_independent : int
        Number of seeds of the simulated test.
    steps : int or None
        Training steps; None is the estimator's default.
    coarse : bool
        Use the coarsest bin size instead of the main one, which is faster.
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
    """All work items on the recordings in a folder, the most important first."""
    plan = _Plan(scale, data.path, data.files()[: scale.most_files])
    return list(
        dict.fromkeys(
            [
                *plan.known_cells(),
                *plan.foreign(),
                *plan.independent(both_labels=False),
                *plan.other_labels(),
                *plan.known_cells_with_poisson(),
                *plan.numbers_of_time_latents(),
                *plan.as_recorded(),
                *plan.implanted(),
                *plan.noise(),
                *plan.cebra(),
                *plan.more_foreign(),
                *plan.halves(),
                *plan.independent(both_labels=True),
            ]
        )
    )


@dataclass(frozen=True)
class _Plan:
    """Makes the work items of each part of the benchmark."""

    scale: RealScale
    folder: str
    files: tuple[str, ...]

    def known_cells(self) -> list[RealItem]:
        """Cells known by their area, for every bin size and seed; all methods for seed 0."""
        return [
            self._fit(case, seed=seed, methods=seed == 0)
            for seed in range(self.scale.n_seeds)
            for case in self._known_cases("known")
        ]

    def known_cells_with_poisson(self) -> list[RealItem]:
        """Only the units known to carry the label, together with units of Poisson noise."""
        return [
            self._fit(RealCase(file, label, self._bin(file), "known-poisson", draw=draw))
            for draw in range(self.scale.n_poisson_draws)
            for file in self.files
            for label in RECORDINGS[file].carriers
        ]

    def foreign(self) -> list[RealItem]:
        """Neurons of other animals, for every label, with all methods."""
        cases = [
            case
            for file in self.files
            for label in self._labels(file)
            for case in self._with_other("foreign", file, label, self._bin(file))
        ]
        return [self._fit(case, methods=True) for case in cases]

    def more_foreign(self) -> list[RealItem]:
        """More draws, and the finest and coarsest bin sizes, for the main labels."""
        items: list[RealItem] = []
        for draw in range(1, self.scale.n_foreign_draws):
            for file in self.files:
                cases = self._with_other("foreign", file, self._main(file), self._bin(file), draw)
                items += [self._fit(case) for case in cases]
        if self.scale.bins:
            for file in self.files:
                bins = RECORDINGS[file].bins_ms
                for bin_ms in dict.fromkeys((bins[-1], bins[0])):
                    cases = self._with_other("foreign", file, self._main(file), bin_ms)
                    items += [self._fit(case) for case in cases]
        return items

    def as_recorded(self) -> list[RealItem]:
        """Recordings as they are, with every label; several seeds for the main labels."""
        items: list[RealItem] = []
        for seed in range(self.scale.n_seeds):
            for file in self.files:
                labels = self._labels(file) if seed == 0 else (self._main(file),)
                for label in labels:
                    main = label == self._main(file)
                    case = RealCase(file, label, self._bin(file), "own")
                    items.append(self._fit(case, seed=seed, methods=main and seed == 0, test=False))
        return items

    def other_labels(self) -> list[RealItem]:
        """Labels of other animals, which should not count as learned."""
        pairs = [
            (file, other, label)
            for file, other in product(self.files, self.files)
            if RECORDINGS[file].animal != RECORDINGS[other].animal
            for label in RECORDINGS[other].labels
        ]
        items: list[RealItem] = []
        n = min(self.scale.n_other_labels, len(pairs))
        for k in range(n):
            # Pairs are evenly spaced in the list, so that even a few cover different recordings.
            file, other, label = pairs[k * len(pairs) // n]
            case = RealCase(file, label, self._bin(file), "other-label", other)
            items.append(self._fit(case, test=False, map=False))
        return items

    def implanted(self) -> list[RealItem]:
        """Foreign neurons with implanted responses of known strength."""
        return [
            self._fit(case, methods=True)
            for draw in range(self.scale.n_implanted_draws)
            for file in self.files
            for case in self._with_other("implanted", file, self._main(file), self._bin(file), draw)
        ]

    def numbers_of_time_latents(self) -> list[RealItem]:
        """Known cells and foreign neurons, with numbers of time latents other than the default."""
        items: list[RealItem] = []
        for seed in range(self.scale.n_seeds):
            for case, n in product(self._known_cases("known"), self.scale.time_dims):
                main = case.bin_ms == self._bin(case.file)
                if main or seed == 0:
                    items.append(self._fit(case, seed=seed, time_dims=n, test=main))
        hosts = [file for file in self.files if not RECORDINGS[file].carriers]
        for file in hosts[: self.scale.n_time_dims_files]:
            cases = self._with_other("foreign", file, self._main(file), self._bin(file))
            pairs = product(cases, self.scale.time_dims)
            items += [self._fit(case, time_dims=n, test=False) for case, n in pairs]
        return items

    def noise(self) -> list[RealItem]:
        """The recording's own units together with Poisson units and shifted copies."""
        if not self.scale.noise:
            return []
        cases = [RealCase(f, self._main(f), self._bin(f), "noise") for f in self.files]
        return [self._fit(case) for case in cases]

    def halves(self) -> list[RealItem]:
        """Fits to the first half and to the second half of the recordings as they are."""
        if not self.scale.halves:
            return []
        cases = [RealCase(f, self._main(f), self._bin(f), "own") for f in self.files]
        parts = ("first half", "second half")
        return [self._fit(case, part=part, test=False) for case, part in product(cases, parts)]

    def cebra(self) -> list[RealItem]:
        """CEBRA's own model, with two seeds. It runs only where CEBRA is installed."""
        items: list[RealItem] = []
        for file in self.files[: self.scale.n_cebra]:
            case = RealCase(file, self._main(file), self._bin(file), "own")
            steps = self.scale.steps or CebraFit.steps
            items += [CebraFit(self.folder, case, seed, steps) for seed in (0, 1)]
            for foreign in self._with_other("foreign", file, case.label, case.bin_ms):
                items.append(CebraFit(self.folder, foreign, 0, steps))
        return items

    def independent(self, *, both_labels: bool) -> list[RealItem]:
        """The simulated test, with both latents or only the first one as labels."""
        seeds = range(self.scale.n_independent)
        return [
            IndependentTest(g, s, both_labels, self.scale.steps) for s, g in product(seeds, GRAPHS)
        ]

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
        """The case with neurons of another animal; each draw uses another recording."""
        animal = RECORDINGS[file].animal
        others = [name for name in self.files if RECORDINGS[name].animal != animal]
        if not others:
            return []
        # Recordings with many neurons come first, because a few units are of little use here.
        order = sorted(others, key=_DONORS.index)
        return [RealCase(file, label, bin_ms, truth, order[draw % len(order)], draw)]

    def _labels(self, file: str) -> tuple[str, ...]:
        return tuple(RECORDINGS[file].labels) if self.scale.all_labels else (self._main(file),)

    def _bin(self, file: str) -> float:
        info = RECORDINGS[file]
        return info.bins_ms[-1] if self.scale.coarse else info.main_bin_ms

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


# Recordings that foreign neurons are taken from, sorted by decreasing number of neurons.
_DONORS = sorted(RECORDINGS, key=lambda name: -RECORDINGS[name].n_units)
