"""Is there anything to attribute, and to whom? Against what chance would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.batches import Objective, Regression
from xcebra.decoder import around, at, lasts, spread
from xcebra.encoder import Encoder
from xcebra.epochs import IntArray
from xcebra.infonce import chance_level, infonce, pair_losses
from xcebra.labels import Label
from xcebra.recording import Recording
from xcebra.sampling import NONE
from xcebra.significance import Connections, find_connections
from xcebra.training import TrainConfig

N_SHIFTS = 199
LEVEL = 0.01
_MOST_NEGATIVES = 1024
_LEAST_TESTED, _MOST_TESTED = 400, 10_000


@dataclass(frozen=True)
class GoodnessOfFit:
    """Held-out loss of one objective, beside chance.

    Parameters
    ----------
    loss : float
        In nats (mean squared error for regression).
    chance : float
        The loss of a constant embedding.
    learned : bool or None
        Whether the loss is lower than under circular shifts of the pairs; None if that could not
        be judged. If nothing was held out, ``loss`` is the training loss.
    p_value : float or None
        Rank of the loss among the shifted ones.
    shifted : float or None
        Median loss under shifts.
    """

    loss: float
    chance: float
    learned: bool | None
    p_value: float | None = None
    shifted: float | None = None


def held_out_fit(
    objective: Objective | Regression,
    embedding: Tensor,
    times: IntArray,
    config: TrainConfig,
    slowness: int,
) -> GoodnessOfFit:
    """Compare an objective's loss with its loss after circular shifts.

    A label that has nothing to do with the neurons is as far from them after a shift as before,
    and shifting keeps the autocorrelation of both. For a label, reference and positive move
    together against the activity; for time, the positive moves away from its reference.

    Parameters
    ----------
    objective : Objective or Regression
        Over the held-out samples only.
    embedding : Tensor of shape (n_held_out, n_latents)
    times : ndarray of shape (n_held_out,)
        Sample indices of its rows, in order.
    config : TrainConfig
    slowness : int
        Autocorrelation time in samples. Shifts of time pairs are at least this long.
    """
    rng = np.random.default_rng(config.seed)
    if isinstance(objective, Regression):
        test = _regression_test(objective, embedding, times)
    else:
        test = _pair_test(objective, embedding, times, config, slowness, rng)
    true = test.losses(0)
    shortest, longest = test.shifts
    if len(true) == 0 or not np.isfinite(true).all() or longest < shortest:
        return GoodnessOfFit(math.nan, test.chance, None)
    beaten, nulls = 0, []
    for shift in rng.integers(shortest, longest + 1, size=N_SHIFTS).tolist():
        whole = test.comparable(shift)
        nulls.append(float(test.losses(shift)[whole].mean()) if whole.any() else math.inf)
        beaten += not (whole.any() and true[whole].mean() < nulls[-1])
    p_value = (1 + beaten) / (1 + N_SHIFTS)
    learned = p_value <= LEVEL
    return GoodnessOfFit(float(true.mean()), test.chance, learned, p_value, float(np.median(nulls)))


def training_fit(name: str, history: Mapping[str, NDArray[np.float64]]) -> GoodnessOfFit:
    """What can be said without held-out samples: the last training losses, and no verdict."""
    loss, chance = (history[f"{kind}/{name}"][-100:] for kind in ("loss", "chance"))
    took_part = ~np.isnan(chance)
    if not took_part.any():
        return GoodnessOfFit(math.nan, math.nan, None)
    return GoodnessOfFit(float(loss[took_part].mean()), float(chance[took_part].mean()), None)


def margin(objective: Objective, embedding: Tensor, times: IntArray, config: TrainConfig) -> float:
    """How far an objective's loss lies below chance, in nats, on a batch of the samples given."""
    rng = np.random.default_rng(config.seed)
    positive = objective.pairs.positives(times, rng)
    rows = np.flatnonzero(positive != NONE)
    if len(rows) == 0:
        raise ValueError(f"these samples hold no pair for the {objective.name!r} objective")
    rows = rng.permutation(rows)[: config.batch_size]
    partners = np.searchsorted(times, positive[rows])
    negatives = rng.integers(len(times), size=min(config.batch_size, len(times)))
    z = embedding[:, objective.block]
    loss = infonce(
        z[torch.from_numpy(rows)],
        z[torch.from_numpy(partners)],
        z[torch.from_numpy(negatives)],
        similarity=config.similarity,
        temperature=config.temperature,
        include_positive=config.include_positive,
    )
    return chance_level(len(negatives), config.include_positive) - float(loss)


def block_connections(
    encoder: Encoder,
    recording: Recording,
    labels: Mapping[str, Label],
    blocks: Mapping[str, slice],
    axes: NDArray[np.float64],
    seed: int,
) -> dict[str, Connections]:
    """For every block, which neurons are connected to it given all others.

    A label stands for its block, as it is known without noise; the time block is that of the
    embedding, in the given axes and, where it lasts, of the samples around: a neuron's own noise
    has then no part in it.

    Parameters
    ----------
    encoder : Encoder
    recording : Recording
    labels : mapping of str to Label
        Of every block but time's.
    blocks : mapping of str to slice
    axes : ndarray of shape (n_latents, n_latents)
    seed : int
    """
    epochs = recording.epochs
    times = spread(epochs, _MOST_TESTED)
    times = times[np.all([label.valid[times] for label in labels.values()], axis=0)]
    if len(times) < _LEAST_TESTED:
        raise ValueError(
            f"test=True needs {_LEAST_TESTED} samples or more at which all labels are known, got "
            f"{len(times)}; give more, or make the map without the test"
        )
    follow = around if lasts(encoder, recording, epochs) else at
    embedding = follow(encoder, recording)(times, epochs).double().cpu().numpy() @ axes.T
    columns = {name: label.points[times] for name, label in labels.items()}
    if "time" in blocks:
        columns["time"] = embedding[:, blocks["time"]]
    found = {}
    for name in blocks:
        others = [each for other, each in columns.items() if other != name]
        found[name] = find_connections(
            recording.rows(times).astype(np.float64),
            columns[name],
            np.concatenate(others, axis=1) if others else np.empty((len(times), 0)),
            seed=seed,
        )
    return found


def autocorrelation_time(series: NDArray[np.float64]) -> int:
    """First lag at which the correlation of a series with itself falls below 1/e, in samples.

    Parameters
    ----------
    series : ndarray of shape (n_times, n_columns)
        The slowest column counts.
    """
    x = series - series.mean(axis=0)
    n = len(x)
    spectrum = np.abs(np.fft.rfft(x, n=2 * n, axis=0)) ** 2
    correlation = np.fft.irfft(spectrum, axis=0)[:n]
    varies = correlation[0] > 0
    if not varies.any():
        return 1
    below = correlation[:, varies] < correlation[0, varies] / np.e
    firsts = np.where(below.any(axis=0), below.argmax(axis=0), n)
    return int(max(1, firsts.max()))


class _ShiftTest(NamedTuple):
    """Losses under a shift, and which of them may be compared with those without one.

    A circular shift tears what lies across the end of the recording or the border of an epoch. Torn
    pairs fit worse whether or not anything was learned, so they count on neither side.
    """

    losses: Callable[[int], NDArray[np.float64]]
    comparable: Callable[[int], NDArray[np.bool_]]
    shifts: tuple[int, int]
    chance: float


def _pair_test(
    objective: Objective,
    embedding: Tensor,
    times: IntArray,
    config: TrainConfig,
    slowness: int,
    rng: np.random.Generator,
) -> _ShiftTest:
    n = len(times)
    z = embedding[:, objective.block]
    positive = objective.pairs.positives(times, rng)
    rows = np.flatnonzero(positive != NONE)
    partners = np.searchsorted(times, positive[rows])
    candidates = np.flatnonzero(objective.pairs.takes_part(times))
    if len(rows) == 0 or len(candidates) == 0:
        return _ShiftTest(lambda _: np.empty(0), lambda _: np.empty(0, bool), (1, 0), math.nan)
    negatives = rng.permutation(candidates)[:_MOST_NEGATIVES]
    prepared = pair_losses(
        z,
        z[torch.from_numpy(negatives)],
        similarity=config.similarity,
        temperature=config.temperature,
        include_positive=config.include_positive,
    )
    by_label = objective.name != "time"

    def losses(shift: int) -> NDArray[np.float64]:
        x = (rows + shift) % n if by_label else rows
        y = (partners + shift) % n
        return prepared(torch.from_numpy(x), z[torch.from_numpy(y)]).double().numpy()

    stretch = np.concatenate([[0], np.cumsum(np.diff(times) > 1)])

    def together(shift: int) -> NDArray[np.bool_]:
        """Whether both members of a pair lie in one unbroken stretch."""
        x, y = rows + shift, partners + shift
        return (stretch[x % n] == stretch[y % n]) & (x // n == y // n)

    beside = together(0)
    apart = beside & (np.abs(partners - rows) > 3 * slowness)

    def comparable(shift: int) -> NDArray[np.bool_]:
        if not by_label:
            return np.ones(len(rows), dtype=bool)
        return (together(shift) == beside) | apart

    shifts = (1, n - 1)
    if not by_label:
        # Shorter ones, from either end, bring positives nearer to their references than they were.
        shortest = int(np.clip(slowness, 1, n // 4))
        shifts = (shortest, n - shortest - 2 * int(np.abs(partners - rows).max()))
    return _ShiftTest(
        losses, comparable, shifts, chance_level(len(negatives), config.include_positive)
    )


def _regression_test(objective: Regression, embedding: Tensor, times: IntArray) -> _ShiftTest:
    z = embedding[:, objective.block].double().numpy()
    n = len(z)
    known = np.flatnonzero(objective.valid[times])
    target = objective.target[times[known]]

    def losses(shift: int) -> NDArray[np.float64]:
        return np.square(z[(known + shift) % n] - target).mean(axis=1)

    def comparable(shift: int) -> NDArray[np.bool_]:
        """The longer of the two pieces that a shift leaves unbroken."""
        return known + shift < n if shift <= n // 2 else known + shift >= n

    return _ShiftTest(losses, comparable, (1, n - 1), 1.0)
