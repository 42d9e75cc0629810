"""Is there anything to attribute? Held-out losses against what chance would give."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Literal, NamedTuple

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.common.errors import InputError
from xcebra.data.epochs import IntArray
from xcebra.statistics.label_decoding import Decoding
from xcebra.training.batches import Objective, Regression
from xcebra.training.infonce import chance_level, infonce, pair_losses
from xcebra.training.loop import TrainConfig
from xcebra.training.sampling import NONE

N_SHIFTS = 199
# A "yes" needs this level, the usual strict one: one of 199 shifts may do as well.
LEVEL = 0.01
# A "no" begins here: of unrelated labels, 98 in 100 are then plainly refused. At 0.05, one in 20
# would be unclear.
REFUSED_LEVEL = 0.02
# What the loss must reach where the label is decodable, but not clearly, that is, with an R^2 up to
# the second: only then is the embedding asked. In short bins a loss of single samples can miss a
# label that is plainly there, and the default map takes the label itself.
LOSS_LEVEL, CLEARLY_READ = 0.05, 0.1
_MOST_NEGATIVES = 1024
# For the information: pairs and negatives, shifts that say what there is without the label, and
# factors of the similarity.
_MOST_PAIRS, _MOST_OTHERS = 1000, 512
_INFORMATION_SHIFTS = 9
_FACTORS = 2.0 ** np.arange(-8, 2.5)
# In units of the temperature: what the loss cannot see.
_COLLAPSED = 0.01
_LEAST_LEFT = 1e-6


Verdict = Literal["yes", "unclear", "no"]
_VERDICTS: Mapping[bool | None, Verdict] = {True: "yes", None: "unclear", False: "no"}


@dataclass(frozen=True)
class GoodnessOfFit:
    """Whether an objective was learned: held-out loss beside chance, and decoding of the label.

    A label has two tests. `Decoding` asks whether it is in the activity at all: a decoder that is
    fitted anew to shifted labels is the fair comparison in recordings that drift. The held-out loss
    of the embedding, against shifts of the pairs, asks whether this embedding has learned it. The
    verdict is

    - ``"yes"`` if the decoding has p <= 0.01 and, without drift, an R^2 above 0.1; or above zero,
      and the loss beats its shifts with p <= 0.05 (or nothing could be held out for it);
    - ``"no"`` if the decoding has p > 0.02;
    - ``"unclear"`` otherwise: for instance if the label can be decoded a little, but the embedding
      did not learn it; and whenever it could not be judged.

    Time has no decoding: "yes" if its loss has p <= 0.01, else "no".

    ``loss`` and ``chance`` depend on how many negatives there are, and a loss may lie above chance
    for being too sure of itself; ``information`` and ``effect`` depend on neither.

    Parameters
    ----------
    loss : float
        In nats (mean squared error for regression).
    chance : float
        The loss of a constant embedding.
    learned : bool or None
        The verdict: True for yes, False for no, None for unclear. If nothing was held out, ``loss``
        is the training loss.
    p_value : float or None
        What the verdict rests on: that of the decoding, or without one ``loss_p_value``.
    shifted : float or None
        Median loss under shifts.
    nulls : tuple of float
        All losses under shifts.
    information : float or None
        What a sample's place in the embedding tells of its positive's, in nats, beyond what it
        tells under shifts.
    collapsed : int or None
        Directions of the embedding in which samples do not differ.
    decoding : Decoding or None
        How well the label is read from the activity; None for time, and if it cannot be judged.
    loss_p_value : float or None
        Rank of the loss among the shifted ones.
    """

    loss: float
    chance: float
    learned: bool | None
    p_value: float | None = None
    shifted: float | None = None
    nulls: tuple[float, ...] = ()
    information: float | None = None
    collapsed: int | None = None
    decoding: Decoding | None = None
    loss_p_value: float | None = None

    @property
    def verdict(self) -> Verdict:
        """``"yes"``, ``"unclear"`` or ``"no"``: whether the objective was learned."""
        return _VERDICTS[self.learned]

    def explanation(self, name: str) -> str:
        """The verdict in a sentence, with what it rests on and what to try.

        Parameters
        ----------
        name : str
            What the objective is called in the sentence.
        """
        if self.decoding is None:
            return self._explained_by_loss(name)
        read, p_value = self.decoding.in_words, f"p = {self.decoding.p_value:.3f}"
        if self.learned:
            return f"{name} is read from the activity on held-out time ({read}; {p_value})"
        if self.learned is False:
            return (
                f"{name} was not found in the activity: on held-out time it is read no better than "
                f"a shifted label ({read}; {p_value})"
            )
        if self.decoding.p_value > LEVEL or self.decoding.r2_without_drift <= 0:
            return (
                f"it is unclear whether {name} is in the activity: on held-out time it is read "
                f"hardly better than shifted labels ({read}; {p_value}); try larger bins, a wider "
                "window or a longer recording"
            )
        loss = "" if self.loss_p_value is None else f" (p = {self.loss_p_value:.3f})"
        return (
            f"{name} is read from the activity on held-out time ({read}; {p_value}), but it is "
            "unclear whether the embedding has learned it: its held-out loss is no lower than with "
            f"shifted labels{loss}; try more steps, larger bins or a wider window"
        )

    def _explained_by_loss(self, name: str) -> str:
        loss = f"loss {self.loss:.2f}, chance {self.chance:.2f}"
        if self.loss_p_value is None:
            return (
                f"{name} could not be judged: there are too few samples to hold some out (training "
                f"{loss})"
            )
        loss = f"held-out {loss}; p = {self.loss_p_value:.3f}"
        if self.learned is None:
            return (
                f"{name} could not be judged: there are too few samples, or it changes too slowly "
                f"to be compared with shifted labels ({loss})"
            )
        how = "better" if self.learned else "no better"
        return f"{name} was learned {how} than by chance on held-out samples ({loss})"

    @property
    def effect(self) -> float | None:
        """The information as a squared correlation: that of two Gaussians which share as much."""
        return None if self.information is None else 1 - math.exp(-2 * self.information)


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
    moved = rng.integers(shortest, longest + 1, size=_INFORMATION_SHIFTS).tolist()
    by_chance = float(np.median([test.information(shift) for shift in moved]))
    return GoodnessOfFit(
        loss=float(true.mean()),
        chance=test.chance,
        learned=p_value <= LEVEL,
        p_value=p_value,
        shifted=float(np.median(nulls)),
        nulls=tuple(nulls),
        information=max(0.0, test.information(0) - by_chance),
        collapsed=n_collapsed(embedding[:, objective.block], config),
        loss_p_value=p_value,
    )


def with_decoding(fit: GoodnessOfFit, decoding: Decoding | None) -> GoodnessOfFit:
    """The fit of a label, judged by its decoding too; the rule is that of `GoodnessOfFit`."""
    if decoding is None:
        return replace(fit, learned=None)
    # Without held-out samples there is a training loss alone; a loss that is not a number is none.
    embedded = math.isfinite(fit.loss) and (
        fit.loss_p_value is None
        or fit.loss_p_value <= LOSS_LEVEL
        or decoding.r2_without_drift > CLEARLY_READ
    )
    learned: bool | None = None
    if decoding.p_value > REFUSED_LEVEL:
        learned = False
    elif is_readable(decoding) and embedded:
        learned = True
    return replace(fit, learned=learned, p_value=decoding.p_value, decoding=decoding)


def is_readable(decoding: Decoding) -> bool:
    """Whether a label is read well enough that a fit may be said to have learned it."""
    return decoding.p_value <= LEVEL and decoding.r2_without_drift > 0


def n_collapsed(embedding: Tensor, config: TrainConfig) -> int:
    """Directions in which samples differ by less than the loss can see."""
    z = embedding.double()
    z = z - z.mean(dim=0)
    # Half the mean squared distance along each direction; the similarity is that over this scale.
    scale = config.temperature / 2 if config.similarity == "euclidean" else config.temperature
    spread = torch.linalg.svdvals(z).square() / len(z) / scale
    return z.shape[1] - int((spread >= _COLLAPSED).sum())


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
        raise InputError(f"these samples hold no pair for the {objective.name!r} objective")
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
    information: Callable[[int], float]
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
        return _ShiftTest(
            lambda _: np.empty(0), lambda _: np.empty(0, bool), lambda _: 0.0, (1, 0), math.nan
        )
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

    some = np.random.default_rng(config.seed).permutation(len(rows))[:_MOST_PAIRS]
    others = z[torch.from_numpy(negatives[:_MOST_OTHERS])]

    def information(shift: int) -> float:
        x = (rows[some] + shift) % n if by_label else rows[some]
        y = (partners[some] + shift) % n
        return _information(z[torch.from_numpy(x)], z[torch.from_numpy(y)], others, config)

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
    chance = chance_level(len(negatives), config.include_positive)
    return _ShiftTest(losses, comparable, information, shifts, chance)


def _information(
    reference: Tensor, positive: Tensor, negative: Tensor, config: TrainConfig
) -> float:
    """A lower bound of what references and positives have in common, in nats.

    Donsker and Varadhan's, with the similarity times the factor that makes it highest: whether the
    embedding is too sure of itself does not matter, and without any information it is zero.
    """
    if config.similarity == "euclidean":
        matched = -(reference - positive).square().sum(dim=1)
        others = -torch.cdist(reference, negative).square()
    else:
        reference, positive, negative = (
            torch.nn.functional.normalize(each, dim=1) for each in (reference, positive, negative)
        )
        matched, others = (reference * positive).sum(dim=1), reference @ negative.T
    found = []
    for factor in (_FACTORS / config.temperature).tolist():
        partition = torch.logsumexp(factor * others, dim=1) - math.log(len(negative))
        found.append(float((factor * matched - partition).mean()))
    return max(0.0, *found)


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

    def information(shift: int) -> float:
        """Of Gaussians: that of the share of the target's variance which is explained."""
        left = float(losses(shift)[comparable(shift)].mean())
        return max(0.0, -0.5 * math.log(max(left, _LEAST_LEFT)))

    return _ShiftTest(losses, comparable, information, (1, n - 1), 1.0)
