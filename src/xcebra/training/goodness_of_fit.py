"""Tests whether each objective was learned: held-out losses compared with chance."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, Literal

import numpy as np
import torch
from numpy.typing import NDArray
from scipy.stats import combine_pvalues
from torch import Tensor

from xcebra.common.errors import InputError
from xcebra.data.epochs import IntArray
from xcebra.statistics.label_decoding import Decoding
from xcebra.training.batches import Objective, Regression
from xcebra.training.infonce import chance_level, infonce
from xcebra.training.loop import TrainConfig
from xcebra.training.sampling import NONE
from xcebra.training.shift_tests import PairTest, RegressionTest, ShiftTest

# Number of circular shifts. The smallest possible p-value is 1 / (N_SHIFTS + 1) = 0.005. More
# shifts give more precise p-values and take longer.
N_SHIFTS = 199
# Largest p-value for the verdict "yes", a common strict level: at most one of 199 shifts may have a
# loss as low as the true one.
LEVEL = 0.01
# Larger p-values give the verdict "no". Of unrelated labels, 98 in 100 then get a "no". With 0.05,
# one in 20 would be "unclear" or "yes".
REFUSED_LEVEL = 0.02
# If a label can be decoded, but with a small R^2 (without drift) of at most CLEARLY_READ, the
# p-value of the loss must also be at most LOSS_LEVEL. With a larger R^2, the loss is not used: with
# short bins, the loss of single samples can miss a label that is clearly in the activity, and the
# default map uses the label itself. Larger values of CLEARLY_READ make "yes" rarer; how the two
# values were chosen is not recorded.
LOSS_LEVEL, CLEARLY_READ = 0.05, 0.1
# Number of shifts that measure the information by chance. More shifts give a less noisy value and
# take longer; not tuned.
_INFORMATION_SHIFTS = 9
# Differences smaller than this, in units of the temperature, have hardly any effect on the loss: a
# hundredth (docs/method.md, "Information and effect"). Larger values report a collapse more often;
# not tuned.
_COLLAPSED = 0.01


# Numbers of a decoding that are averaged over sessions.
_DECODING_NUMBERS = (
    *("r2", "r2_without_drift", "error", "chance_error", "accuracy", "chance_accuracy"),
)

Verdict = Literal["yes", "unclear", "no"]
_VERDICTS: Mapping[bool | None, Verdict] = {True: "yes", None: "unclear", False: "no"}


@dataclass(frozen=True)
class GoodnessOfFit:
    """Whether an objective was learned: its held-out loss and the decoding of its label.

    There are two tests for a label. The first one, `Decoding`, tests whether the label can be
    decoded from the activity at all. It compares with decoders that are fitted to shifted labels,
    which is a fair comparison even if the recording drifts. The second one tests whether this
    embedding has learned the label. It compares the held-out loss with losses of shifted pairs. The
    verdict is

    - ``"yes"`` if the decoding has p <= 0.01 and its R^2 without drift is above 0.1; or if this R^2
      is above zero and the loss has p <= 0.05 (or no samples could be held out for the loss);
    - ``"no"`` if the decoding has p > 0.02;
    - ``"unclear"`` otherwise, for instance if the label can be decoded a little, but the embedding
      has not learned it; and whenever there is no test.

    Time has no decoding: the verdict is "yes" if its loss has p <= 0.01, otherwise "no".

    ``loss`` and ``chance`` depend on the number of negatives. The held-out loss of an overconfident
    embedding can be above chance although something was learned. ``information`` and ``effect`` do
    not depend on the number of negatives or on the confidence.

    Parameters
    ----------
    loss : float
        Held-out loss in nats (mean squared error for regression). If nothing was held out, it is
        the training loss.
    chance : float
        The loss of a constant embedding.
    learned : bool or None
        The verdict: True for yes, False for no, None for unclear.
    p_value : float or None
        The p-value that the verdict depends on: that of the decoding, or ``loss_p_value`` if there
        is no decoding.
    shifted : float or None
        Median loss over all shifts.
    nulls : tuple of float
        The losses for all shifts.
    information : float or None
        Information, in nats, that the embedding of a sample has about the embedding of its
        positive. The same information after shifts is subtracted.
    collapsed : int or None
        Number of directions of the embedding in which samples do not differ.
    decoding : Decoding or None
        How well the label is decoded from the activity. None for time, and if it cannot be tested.
    loss_p_value : float or None
        The p-value of the loss: its rank among the losses for all shifts.
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
        """Explain the verdict in a sentence, with the numbers behind it.

        Parameters
        ----------
        name : str
            The name of the objective in the sentence.
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
                f"hardly better than shifted labels ({read}; {p_value})"
            )
        loss = "" if self.loss_p_value is None else f" (p = {self.loss_p_value:.3f})"
        return (
            f"{name} is read from the activity on held-out time ({read}; {p_value}), but it is "
            "unclear whether the embedding has learned it: its held-out loss is no lower than with "
            f"shifted labels{loss}"
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
        """The squared correlation of two Gaussian variables that share this information."""
        return None if self.information is None else 1 - math.exp(-2 * self.information)


def held_out_fit(
    objective: Objective | Regression,
    embedding: Tensor,
    times: IntArray,
    config: TrainConfig,
    slowness: int,
) -> GoodnessOfFit:
    """Compare the loss of an objective with its losses after circular shifts.

    If a label is unrelated to the neurons, a shift does not change their relation, and it preserves
    the autocorrelation of both. For a label, references and positives are shifted together relative
    to the activity. For time, the positives are shifted relative to their references.

    Parameters
    ----------
    objective : Objective or Regression
        An objective over the held-out samples only.
    embedding : Tensor of shape (n_held_out, n_latents)
        Embedding of the held-out samples.
    times : ndarray of shape (n_held_out,)
        Indices of these samples, in increasing order.
    config : TrainConfig
    slowness : int
        Autocorrelation time in samples. Shifts of time pairs are at least this long.
    """
    rng = np.random.default_rng(config.seed)
    test: ShiftTest
    if isinstance(objective, Regression):
        test = RegressionTest(objective, embedding, times)
    else:
        test = PairTest.draw(objective, embedding, times, config, slowness, rng)
    true = test.losses(0)
    shortest, longest = test.shifts
    if len(true) == 0 or not np.isfinite(true).all() or longest < shortest:
        return GoodnessOfFit(math.nan, test.chance, None)
    n_as_low, nulls = 0, []
    for shift in rng.integers(shortest, longest + 1, size=N_SHIFTS).tolist():
        intact = test.comparable(shift)
        nulls.append(float(test.losses(shift)[intact].mean()) if intact.any() else math.inf)
        n_as_low += not (intact.any() and true[intact].mean() < nulls[-1])
    p_value = (1 + n_as_low) / (1 + N_SHIFTS)
    shifts = rng.integers(shortest, longest + 1, size=_INFORMATION_SHIFTS).tolist()
    by_chance = float(np.median([test.information(shift) for shift in shifts]))
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
    """Add the decoding of a label and update the verdict by the rule of `GoodnessOfFit`."""
    if decoding is None:
        return replace(fit, learned=None)
    # Without held-out samples there is no p-value of the loss, and the loss need not be low. A loss
    # that is not finite never counts as learned.
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
    """Whether a label is decoded well enough for the verdict "yes"."""
    return decoding.p_value <= LEVEL and decoding.r2_without_drift > 0


def over_sessions(fits: Sequence[GoodnessOfFit]) -> GoodnessOfFit:
    """Combine the goodness of fit of one objective over several sessions.

    Sessions are independent of each other, so that their p-values are combined by Fisher's method.
    Losses, information and the numbers of the decoding are means over sessions. The verdict follows
    the same rule as for one session.

    Parameters
    ----------
    fits : sequence of GoodnessOfFit
        One for each session.
    """
    if len(fits) == 1:
        return fits[0]
    loss_p_value = _combined([fit.loss_p_value for fit in fits])
    joint = GoodnessOfFit(
        loss=_mean([fit.loss for fit in fits]),
        chance=_mean([fit.chance for fit in fits]),
        # Without a verdict in any session, as for labels that cannot be decoded, there is none.
        learned=None
        if loss_p_value is None or all(fit.learned is None for fit in fits)
        else loss_p_value <= LEVEL,
        p_value=loss_p_value,
        shifted=_mean_known([fit.shifted for fit in fits]),
        information=_mean_known([fit.information for fit in fits]),
        collapsed=max((fit.collapsed for fit in fits if fit.collapsed is not None), default=None),
        loss_p_value=loss_p_value,
    )
    decodings = [fit.decoding for fit in fits if fit.decoding is not None]
    if not decodings:
        return joint
    p_value = _combined([decoding.p_value for decoding in decodings])
    decoding = replace(
        decodings[0],
        **{
            name: _mean_known([getattr(decoding, name) for decoding in decodings])
            for name in _DECODING_NUMBERS
        },
        p_value=1.0 if p_value is None else p_value,
        nulls=(),
    )
    return with_decoding(joint, decoding)


def _combined(p_values: Sequence[float | None]) -> float | None:
    """Combine p-values of independent sessions by Fisher's method; None if there are none."""
    known = [p_value for p_value in p_values if p_value is not None]
    return float(combine_pvalues(known).pvalue) if known else None


def _mean(values: Sequence[float]) -> float:
    finite = [value for value in values if math.isfinite(value)]
    return float(np.mean(finite)) if finite else math.nan


def _mean_known(values: Sequence[float | None]) -> Any:
    known = [value for value in values if value is not None]
    return float(np.mean(known)) if known else None


def n_collapsed(embedding: Tensor, config: TrainConfig) -> int:
    """Number of directions in which samples differ too little to affect the loss.

    Parameters
    ----------
    embedding : Tensor of shape (n_samples, n_latents)
    config : TrainConfig
    """
    z = embedding.double()
    z = z - z.mean(dim=0)
    # The variance along a direction is half the mean squared distance between samples. Divided by
    # the temperature, the similarity depends on the squared distance (euclidean) or on half of it
    # (cosine).
    scale = config.temperature / 2 if config.similarity == "euclidean" else config.temperature
    variances = torch.linalg.svdvals(z).square() / len(z) / scale
    return z.shape[1] - int((variances >= _COLLAPSED).sum())


def training_fit(name: str, history: Mapping[str, NDArray[np.float64]]) -> GoodnessOfFit:
    """Goodness of fit without held-out samples: mean of the last training losses, no verdict."""
    loss, chance = (history[f"{kind}/{name}"][-100:] for kind in ("loss", "chance"))
    is_known = ~np.isnan(chance)
    if not is_known.any():
        return GoodnessOfFit(math.nan, math.nan, None)
    return GoodnessOfFit(float(loss[is_known].mean()), float(chance[is_known].mean()), None)


def margin(objective: Objective, embedding: Tensor, times: IntArray, config: TrainConfig) -> float:
    """Chance level minus the loss of an objective, in nats, on a random batch of the samples.

    Parameters
    ----------
    objective : Objective
    embedding : Tensor of shape (n_samples, n_latents)
    times : ndarray of shape (n_samples,)
        Indices of the samples, in increasing order.
    config : TrainConfig
    """
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
    """First lag, in samples, at which the autocorrelation of a series is below 1/e.

    Parameters
    ----------
    series : ndarray of shape (n_times, n_columns)
        The result is that of the slowest column.
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
