"""The recordings of the work items, each specified by a few plain values."""

from __future__ import annotations

from dataclasses import asdict, dataclass, field, replace
from typing import ClassVar

import numpy as np

from xcebra.common.errors import InputError
from xcebra.data.recording import Recording
from xcebra.datasets import grid_cells, navigation, synthetic

FACTOR = "z2"


@dataclass(frozen=True)
class Data:
    """A synthetic recording. The attributed factor is always ``z2``.

    ``n_observed`` is the width of the factor that is passed as label, and ``n_hidden`` the width of
    the other factor, as in `xcebra.datasets.synthetic`.
    """

    n_hidden: int
    n_observed: int = 2
    observed: str = "z2"
    n_steps: int = 100_000
    connected: float = 0.5
    correlation: float = 0.0
    noise: float = 0.0
    counts: bool = False
    seed: int = 0

    def make(self) -> Recording:
        """Simulate the recording."""
        return synthetic(**asdict(self))

    @property
    def n_latents(self) -> int:
        """Total width of the two factors."""
        return self.n_hidden + self.n_observed

    @property
    def factor(self) -> str:
        """The attributed factor."""
        return FACTOR


@dataclass(frozen=True)
class Cells:
    """A simulated rat in a box with four kinds of cells. The attributed factor is position.

    ``n_cells`` is the number of cells of each kind.
    """

    noise: float = 0.0
    n_cells: int = 100
    n_steps: int = 20_000
    seed: int = 0

    def make(self) -> Recording:
        """Simulate the recording."""
        return navigation(**asdict(self))

    # The label that is passed to the model, and the attributed factor.
    observed: ClassVar[str] = "position"
    factor: ClassVar[str] = "position"
    # Numbers of latents if a training does not set them. They are those of the paper.
    n_observed: ClassVar[int] = 4
    n_hidden: ClassVar[int] = 10
    n_latents: ClassVar[int] = 14


@dataclass(frozen=True)
class GridCells:
    """A public recording of grid cells, with a surrogate for each cell.

    A surrogate is a copy of its cell, circularly shifted in time. It keeps the spikes and their
    rhythm but is unrelated to the position of the rat. Samples are far enough apart (``step``) that
    smoothing does not mix the spikes of neighbouring samples. The recording is identified by the
    digest of the file, not by its path.
    """

    path: str = field(compare=False)
    sha256: str | None
    rat: str
    module: tuple[int, ...]
    day: int | None = None
    conjunctive: tuple[int, ...] = ()
    step: int = 20
    seed: int = 0

    def __post_init__(self) -> None:
        object.__setattr__(self, "rat", self.rat.lower())
        if self.sha256 is not None:
            object.__setattr__(self, "sha256", self.sha256.lower())

    def make(self) -> Recording:
        """Read the recording and add the surrogates."""
        rec = grid_cells(
            self.path,
            rat=self.rat,
            module=self.module,
            day=self.day,
            sha256=self.sha256,
            conjunctive=self.conjunctive or None,
            step=self.step,
        )
        if 2 * rec.n_neurons < self.n_latents:
            raise InputError(
                f"{self.path}: {rec.n_neurons} cells and as many surrogates are too few for "
                f"{self.n_latents} latents; give more modules"
            )
        rng = np.random.default_rng(self.seed)
        margin = rec.n_times // 10
        shifts = rng.integers(margin, rec.n_times - margin, size=rec.n_neurons)
        moved = [np.roll(x, shift) for x, shift in zip(rec.neural.T, shifts, strict=True)]
        real = np.arange(2 * rec.n_neurons) < rec.n_neurons
        return replace(
            rec,
            neural=np.column_stack([rec.neural, *moved]),
            neuron_names=(*rec.neuron_names, *(f"{name} moved" for name in rec.neuron_names)),
            ground_truth={"position": real},
        )

    # The same values as for simulated cells.
    observed: ClassVar[str] = "position"
    factor: ClassVar[str] = "position"
    n_observed: ClassVar[int] = 4
    n_hidden: ClassVar[int] = 10
    n_latents: ClassVar[int] = 14


Source = Data | Cells | GridCells
