"""Which pieces of work each table and figure is made of, in full and in little."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from typing import Any

from xcebra.experiments.paper import TRAININGS
from xcebra.experiments.work import Consistency, Data, Encoding, Fit, Portrait, Training

Item = Fit | Encoding | Consistency | Portrait

HYBRID = Training("hybrid contrastive")


@dataclass(frozen=True)
class Scale:
    """How much of an experiment to run.

    ``datasets`` are seeds of recordings; ``few`` those of the parts that are told with fewer.
    ``n_steps`` and ``training_steps`` make recordings and fits shorter, for a look or for tests.
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

    def shorten(self, item: Item) -> Item:
        """The same work with this scale's lengths."""
        if item.data.n_steps == Data.n_steps:
            item = replace(item, data=replace(item.data, n_steps=self.n_steps))
        if self.training_steps is not None and not isinstance(item, Encoding):
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
)


def table1(scale: Scale) -> list[Item]:
    """Three trainings, with and without penalty; the factor attributed is observed."""
    main = [("hybrid contrastive", True), ("supervised", True), ("supervised", False)]
    others = [(kind, penalty) for kind in TRAININGS for penalty in (True, False)]
    order = main + [each for each in others if each not in main]
    found = []
    for kind, penalty in order:
        seeds = scale.datasets if (kind, penalty) in main else scale.few
        found += [
            Fit(Data(d - 2, seed=seed), Training(kind, penalty))
            for seed in seeds
            for d in scale.dims
        ]
    return _all(found, scale)


def table2(scale: Scale) -> list[Item]:
    """The factor attributed is the one that is not observed."""
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
    """auROC against latents, time steps, negatives and steps of training; the embedding itself."""
    found: list[Item] = [*table1(replace(scale, few=()))]
    found += _all([Fit(Data(12, seed=seed), HYBRID) for seed in scale.few], scale)
    found += _all(
        [Fit(Data(4, n_steps=n, seed=seed), HYBRID) for seed in scale.few for n in scale.lengths],
        scale,
    )
    found += _all(
        [
            Fit(Data(4, seed=seed), replace(HYBRID, batch_size=n))
            for seed in scale.few
            for n in scale.batches
        ],
        scale,
    )
    found += _all(
        [
            Portrait(Data(4, seed=seed), Training("hybrid contrastive", penalty), 20)
            for seed in scale.few
            for penalty in (True, False)
        ],
        scale,
    )
    return list(dict.fromkeys(found))


def dimensions(scale: Scale) -> list[Item]:
    """Consistency between seeds, and auROC, against the latents given: the data has 3 + 3."""
    data = Data(3, 3)
    found: list[Item] = []
    for n in scale.embedding_dims:
        found.append(Consistency(data, Training("time contrastive", time_dims=n), scale.n_seeds))
        label = Training("supervised contrastive", label_dims=n)
        found.append(Consistency(data, label, scale.n_seeds))
    found += [
        Consistency(data, replace(HYBRID, label_dims=a, time_dims=b), scale.n_seeds)
        for a in scale.grid
        for b in scale.grid
    ]
    return _all(found, scale)


# What makes the harder recordings: by subject, levels and what they change. The first is the base.
HARD: dict[str, dict[str, dict[str, Any]]] = {
    "base": {"d = 6, independent, no noise": {}},
    "correlation": {f"{c:g}": {"correlation": c} for c in (0.5, 0.7, 0.9)},
    "noise": {f"{n:g} s.d.": {"noise": n} for n in (0.5, 1.0, 2.0)},
    "counts": {"Poisson": {"counts": True}},
    "correlation and noise": {"0.7, 0.5 s.d.": {"correlation": 0.7, "noise": 0.5}},
    "correlation and counts": {"0.7, Poisson": {"correlation": 0.7, "counts": True}},
    "time steps": {f"{n:,}": {"n_steps": n} for n in (1_000, 10_000)},
    "latents": {f"d = {d}": {"d": d} for d in (9, 14, 20)},
    "connected": {"10 %": {"connected": 0.1}, "90 %": {"connected": 0.9}},
}


# Maps of the harder recordings are made on fewer samples, to keep the table cheap to run.
HARD_SAMPLES = 2_000


def hard(scale: Scale) -> list[Item]:
    """Correlated, noisy, counted, short, wide and sparse recordings; z2 observed or not."""
    found: list[Item] = []
    for seed in scale.few:
        for levels in HARD.values():
            for changes in levels.values():
                found += [
                    Fit(hard_data(changes, name, seed), HYBRID, HARD_SAMPLES)
                    for name in ("z2", "z1")
                ]
                found.append(Encoding(hard_data(changes, "z2", seed)))
    return _all(found, scale)


def hard_data(changes: dict[str, Any], observed: str, seed: int) -> Data:
    """One of the harder recordings: z2 has 2 dimensions, the rest belong to z1."""
    rest = changes.get("d", 6) - 2
    others = {name: value for name, value in changes.items() if name != "d"}
    widths = (rest, 2) if observed == "z2" else (2, rest)
    return Data(widths[0], widths[1], observed, seed=seed, **others)


def record(scale: Scale) -> list[Item]:
    """The paper's own recipe at its full size, once."""
    return _all([Fit(Data(4), Training("hybrid contrastive", recipe="paper"))], scale)


EXPERIMENTS: dict[str, Callable[[Scale], list[Item]]] = {
    "table1": table1,
    "table2": table2,
    "latents": latents,
    "dimensions": dimensions,
    "statistics": table1,
    "hard": hard,
    "paper-recipe": record,
}


def _all(items: Sequence[Item], scale: Scale) -> list[Item]:
    """Items with the scale's lengths; those that become the same are done once."""
    return list(dict.fromkeys(scale.shorten(item) for item in items))
