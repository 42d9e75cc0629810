"""The work items of each table and figure, at full size and in a quick version."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Any

from xcebra.reproduce.cells import CellTypes, Decoding, GridPortrait, SeveralLabels, Simpler
from xcebra.reproduce.measurements import Consistency, Encoding, Fit, Portrait, Training
from xcebra.reproduce.paper_numbers import TRAININGS
from xcebra.reproduce.real.catalogue import QUICK_REAL, RealScale
from xcebra.reproduce.sources import Cells, Data, GridCells
from xcebra.reproduce.timing import COMPARED, FitTiming, Timing

Item = (
    Fit
    | Encoding
    | Consistency
    | Portrait
    | Decoding
    | SeveralLabels
    | Simpler
    | CellTypes
    | GridPortrait
    | Timing
    | FitTiming
)

HYBRID = Training("hybrid contrastive")
# Number of samples for the maps of 400 simulated cells. More samples are slower: feature ablation
# on all of them would take about an hour.
CELL_SAMPLES = 2_000


@dataclass(frozen=True)
class Scale:
    """How much of an experiment to run.

    Parameters
    ----------
    dims : tuple of int
        Numbers of latents of the synthetic recordings.
    datasets : tuple of int
        Seeds of the recordings.
    few : tuple of int
        Seeds of the recordings in the parts that use fewer recordings.
    n_steps : int
        Time steps of the synthetic recordings.
    training_steps : int or None
        Training steps of each fit; None is the default of the recipe.
    lengths : tuple of int
        Numbers of time steps to compare.
    batches : tuple of int
        Batch sizes to compare.
    embedding_dims : tuple of int
        Numbers of latents of models with one block.
    grid : tuple of int
        Numbers of latents of each block of the hybrid models.
    n_seeds : int
        Fits of the same data with different seeds.
    n_cells : int
        Simulated cells of each kind.
    cell_steps : int
        Time steps of the recordings of simulated cells.
    noises : tuple of float
        Noise levels to compare, in standard deviations of each cell.
    widths : tuple of int
        Numbers of network outputs at which maps are timed.
    real : RealScale
        How much of the benchmark on real recordings to run.
    """

    dims: tuple[int, ...] = (4, 5, 6, 7, 8, 9)
    datasets: tuple[int, ...] = tuple(range(10))
    few: tuple[int, ...] = (0, 1, 2)
    n_steps: int = 100_000
    training_steps: int | None = None
    lengths: tuple[int, ...] = (1_000, 10_000, 100_000, 1_000_000)
    batches: tuple[int, ...] = (128, 256, 512, 1024, 2048, 4096)
    embedding_dims: tuple[int, ...] = tuple(range(2, 11))
    grid: tuple[int, ...] = (2, 3, 4)
    n_seeds: int = 3
    n_cells: int = 100
    cell_steps: int = 20_000
    noises: tuple[float, ...] = (0.0, 0.1, 0.25, 0.5, 1.0, 2.0)
    widths: tuple[int, ...] = (2, 4, 14)
    real: RealScale = field(default_factory=RealScale)

    def shorten(self, item: Item) -> Item:
        """Return the item with the recording length and training steps of this scale."""
        if isinstance(item, Timing):
            return item
        data: Any = item.data
        if isinstance(data, Cells):
            data = replace(data, n_cells=self.n_cells, n_steps=self.cell_steps)
        elif isinstance(data, Data) and data.n_steps == Data.n_steps:
            data = replace(data, n_steps=self.n_steps)
        item = replace(item, data=data)
        if self.training_steps is not None and not isinstance(item, Encoding | Simpler):
            item = replace(item, training=replace(item.training, steps=self.training_steps))
        return item


FULL = Scale()
QUICK = Scale(
    dims=(4, 6),
    datasets=(0, 1),
    few=(0, 1),
    lengths=(1_000, 10_000, 100_000),
    batches=(256, 1024),
    embedding_dims=(2, 3, 4, 6, 8),
    grid=(2, 3),
    n_seeds=2,
    n_cells=25,
    cell_steps=6_000,
    noises=(0.0, 0.5, 2.0),
    widths=(2, 14),
    real=QUICK_REAL,
)


def table1(scale: Scale) -> list[Item]:
    """Three trainings, with and without penalty; the attributed factor is observed."""
    main = [("hybrid contrastive", True), ("supervised", True), ("supervised", False)]
    others = [(kind, penalty) for kind in TRAININGS for penalty in (True, False)]
    order = main + [pair for pair in others if pair not in main]
    items = []
    for kind, penalty in order:
        seeds = scale.datasets if (kind, penalty) in main else scale.few
        items += [
            Fit(Data(d - 2, seed=seed), Training(kind, penalty))
            for seed in seeds
            for d in scale.dims
        ]
    return _all(items, scale)


def table2(scale: Scale) -> list[Item]:
    """Hybrid training with and without penalty; the attributed factor is not observed."""
    return _all(
        [
            Fit(Data(2, d - 2, "z1", seed=seed), Training("hybrid contrastive", penalty))
            for penalty in (True, False)
            for seed in scale.datasets
            for d in scale.dims
        ],
        scale,
    )


def latents(scale: Scale) -> list[Item]:
    """auROC by number of latents, time steps, negatives and training steps; the embedding."""
    items: list[Item] = [*table1(replace(scale, few=()))]
    items += _all([Fit(Data(12, seed=seed), HYBRID) for seed in scale.few], scale)
    items += _all(
        [Fit(Data(4, n_steps=n, seed=seed), HYBRID) for seed in scale.few for n in scale.lengths],
        scale,
    )
    items += _all(
        [
            Fit(Data(4, seed=seed), replace(HYBRID, batch_size=n))
            for seed in scale.few
            for n in scale.batches
        ],
        scale,
    )
    items += _all(
        [
            Portrait(Data(4, seed=seed), Training("hybrid contrastive", penalty), 20)
            for seed in scale.few
            for penalty in (True, False)
        ],
        scale,
    )
    return list(dict.fromkeys(items))


def dimensions(scale: Scale) -> list[Item]:
    """Consistency between seeds, and auROC, by number of latents; the data has 3 + 3 factors."""
    data = Data(3, 3)
    items: list[Item] = []
    for n in scale.embedding_dims:
        items.append(Consistency(data, Training("time contrastive", time_dims=n), scale.n_seeds))
        label = Training("supervised contrastive", label_dims=n)
        items.append(Consistency(data, label, scale.n_seeds))
    items += [
        Consistency(data, replace(HYBRID, label_dims=a, time_dims=b), scale.n_seeds)
        for a in scale.grid
        for b in scale.grid
    ]
    return _all(items, scale)


@dataclass(frozen=True)
class Case:
    """One recording of the harder table.

    Parameters
    ----------
    name : str
        Name in the table.
    changes : mapping
        Arguments of `Data` that differ from the first recording of the table.
    d : int
        Total number of latents in the data; two of them are z2.
    extra : int
        Number of time latents of the model minus the width of the factor that is not observed.
    """

    name: str
    changes: Mapping[str, Any] = field(default_factory=dict)
    d: int = 6
    extra: int = 0

    def data(self, observed: str, seed: int = 0) -> Data:
        """Return the recording with z2 observed, or with z1 observed and z2 latent."""
        n_hidden, n_observed = (self.d - 2, 2) if observed == "z2" else (2, self.d - 2)
        return Data(n_hidden, n_observed, observed, seed=seed, **self.changes)

    def fit(self, observed: str, seed: int = 0) -> Fit:
        """Return the fit with z2 observed, or with z1 observed and z2 latent."""
        data = self.data(observed, seed)
        time_dims = data.n_hidden + self.extra if self.extra else None
        return Fit(data, replace(HYBRID, time_dims=time_dims), HARD_SAMPLES)

    def items(self, observed: str, seed: int = 0) -> list[Item]:
        """Return the fit and, if z2 is observed, the encoding model, which needs the label z2."""
        fit = self.fit(observed, seed)
        return [fit, Encoding(self.data(observed, seed))] if observed == "z2" else [fit]


# Number of samples for the maps of the harder recordings. It is smaller than for the other tables,
# so that the table takes less time to run; not tuned.
HARD_SAMPLES = 2_000

HARD: tuple[Case, ...] = (
    Case("d = 6, independent, no noise"),
    *(Case(f"correlated {c:g}", {"correlation": c}) for c in (0.5, 0.7, 0.9)),
    *(Case(f"noise {n:g} s.d.", {"noise": n}) for n in (0.5, 1.0, 2.0)),
    Case("Poisson counts", {"counts": True}),
    *(Case(f"{n:,} time steps", {"n_steps": n}) for n in (1_000, 10_000)),
    *(Case(f"d = {d}", d=d) for d in (9, 14, 20)),
    *(Case(f"{c:.0%} connected", {"connected": c}) for c in (0.1, 0.9)),
    Case("correlated 0.7, noise 0.5 s.d.", {"correlation": 0.7, "noise": 0.5}),
    Case("correlated 0.7, Poisson counts", {"correlation": 0.7, "counts": True}),
    *(
        Case(f"correlated 0.7, {c:.0%} connected", {"correlation": 0.7, "connected": c})
        for c in (0.8, 0.9, 0.95)
    ),
    Case("correlated 0.7, a latent too few", {"correlation": 0.7}, extra=-1),
    Case("correlated 0.7, a latent too many", {"correlation": 0.7}, extra=1),
)


def hard(scale: Scale) -> list[Item]:
    """All harder recordings, with z2 observed and with z2 latent."""
    items: list[Item] = []
    for seed in scale.few:
        for case in HARD:
            items += [*case.items("z2", seed), *case.items("z1", seed)]
    return _all(items, scale)


def table3(scale: Scale) -> list[Item]:
    """Three trainings on simulated cells, with and without penalty; decoding; several labels."""
    inits = range(scale.n_seeds)
    items: list[Item] = [_cell_fit(kind, p, seed=s) for s in inits for kind, p in _CELL_TRAININGS]
    items += [
        Decoding(Cells(), replace(HYBRID, seed=seed), share) for seed in inits for share in _SHARES
    ]
    items += [SeveralLabels(Cells(seed=seed), Training("several labels")) for seed in scale.few]
    items += [Simpler(Cells(seed=seed)) for seed in scale.few]
    return _all(items, scale)


# Shares of the recording that the model is fitted to; the fifth of the recording that follows is
# decoded.
_SHARES = (0.4, 0.6, 0.8)


def noise(scale: Scale) -> list[Item]:
    """Table 3 with Gaussian noise of several sizes, in standard deviations of each cell."""
    return _all(
        [
            _cell_fit(kind, penalty, level, seed)
            for seed in range(scale.n_seeds)
            for level in scale.noises
            for kind, penalty in _CELL_TRAININGS
        ],
        scale,
    )


def cell_types(scale: Scale) -> list[Item]:
    """One fit to simulated cells, with everything that its figure and table show."""
    return _all([CellTypes(Cells(), HYBRID, 20)], scale)


def timing(scale: Scale) -> list[Item]:
    """Fits to simulated cells, and maps compared with other packages, run one at a time."""
    items: list[Item] = [Timing(method, width) for width in scale.widths for method in COMPARED]
    items += [
        FitTiming(Cells(), Training(kind, penalty, seed=seed))
        for seed in range(scale.n_seeds)
        for kind, penalty in _CELL_TRAININGS
    ]
    return _all(items, scale)


def grid_cells(scale: Scale, data: GridCells) -> list[Item]:
    """Three trainings on real grid cells and their surrogates, the figure, and decoding."""
    items: list[Item] = [GridPortrait(data, HYBRID), Decoding(data, HYBRID)]
    items += [Fit(data, Training(kind), CELL_SAMPLES) for kind in reversed(TRAININGS)]
    return _all(items, scale)


# Trainings with penalty come first, and the hybrid training before the others.
_CELL_TRAININGS = sorted(
    ((kind, penalty) for kind in TRAININGS for penalty in (False, True)),
    key=lambda pair: (not pair[1], -TRAININGS.index(pair[0])),
)


def _cell_fit(kind: str, penalty: bool, level: float = 0.0, seed: int = 0) -> Fit:
    return Fit(Cells(level), Training(kind, penalty, seed=seed), CELL_SAMPLES)


def record(scale: Scale) -> list[Item]:
    """One fit with the paper's own recipe at its full size."""
    return _all([Fit(Data(4), Training("hybrid contrastive", recipe="paper"))], scale)


EXPERIMENTS: dict[str, Callable[[Scale], list[Item]]] = {
    "table1": table1,
    "table2": table2,
    "latents": latents,
    "dimensions": dimensions,
    "statistics": table1,
    "hard": hard,
    "paper-recipe": record,
    "table3": table3,
    "noise": noise,
    "cell-types": cell_types,
    "timing": timing,
}
# These experiments measure time, so their items run one at a time unless ``jobs`` says otherwise.
ALONE = ("timing",)


def _all(items: Sequence[Item], scale: Scale) -> list[Item]:
    """Apply the lengths of the scale to the items, and remove duplicates."""
    return list(dict.fromkeys(scale.shorten(item) for item in items))
