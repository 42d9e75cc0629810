"""Categories of warnings, so that each kind of warning can be filtered by its class."""

from __future__ import annotations

import warnings


class XcebraWarning(UserWarning):
    """Base class of all warnings of this package.

    Parameters
    ----------
    message : str
    arguments : tuple of str
        Names of the arguments that the message advises to change.
    """

    def __init__(self, message: str, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.arguments = arguments


class SilentNeuronWarning(XcebraWarning):
    """The activity of some neurons is constant; they stay in the map with a score of zero."""


class ShortRecordingWarning(XcebraWarning):
    """Epochs were left out, nothing could be held out, or a batch holds most of the recording."""


class MissingLabelWarning(XcebraWarning):
    """Samples of a label are NaN and are not used for it, or one of several sessions lacks it."""


class LabelKindWarning(XcebraWarning):
    """The kind of a label was guessed from its values."""


class LabelScaleWarning(XcebraWarning):
    """The columns of one label have very different scales, so that one of them hardly counts."""


class InterruptedFitWarning(XcebraWarning):
    """Training was stopped by the user; the model keeps what it has learned."""


class UnlearnedLabelWarning(XcebraWarning):
    """A map was requested for a block whose objective was not learned better than chance."""


class SparseBasisWarning(XcebraWarning):
    """Too few neurons are unconnected to determine the mixture of correlated factors."""


class MissingFactorWarning(XcebraWarning):
    """The neurons share activity that the embedding does not hold: a factor may be missing."""


class DuplicateNeuronWarning(XcebraWarning):
    """Some neurons are nearly identical, so that the map divides their score arbitrarily."""


class RedundantLabelWarning(XcebraWarning):
    """One label can be predicted from another, so that their maps cannot be distinguished."""


class OversampledWarning(XcebraWarning):
    """Most samples are identical to the sample before them."""


class CollapsedEmbeddingWarning(XcebraWarning):
    """A block does not vary in some of its directions."""


class SaturatedOutputWarning(XcebraWarning):
    """Latents are at the limit of the encoder's output, where they no longer follow the neurons."""


class IllConditionedWarning(XcebraWarning):
    """The encoder's Jacobian is ill-conditioned, so that its inverse amplifies errors."""


class DisagreementWarning(XcebraWarning):
    """A map and an encoding model of the label alone rank the neurons in opposite order."""


class PoolingWarning(XcebraWarning):
    """Pooled intervals do not hold for other animals, or sessions were left out of them."""


def warn(message: str, category: type[XcebraWarning], *arguments: str) -> None:
    """Issue a warning of a category; ``arguments`` are those that the message advises to change."""
    warnings.warn(category(message, arguments), stacklevel=3)
