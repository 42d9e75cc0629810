"""Warning categories: every warning the package gives can be silenced by its class."""

from __future__ import annotations

import warnings


class XcebraWarning(UserWarning):
    """Parent of every warning given by this package.

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
    """Some neurons never change; they are kept and score exactly zero."""


class ShortRecordingWarning(XcebraWarning):
    """Epochs were dropped, nothing could be held out, or batches hold most of the recording."""


class MissingLabelWarning(XcebraWarning):
    """Some label samples are NaN and take no part in that label's pairs."""


class LabelKindWarning(XcebraWarning):
    """The kind of a label with whole numbers was assumed."""


class InterruptedFitWarning(XcebraWarning):
    """Training was stopped by the user; what was learned is kept."""


class UnlearnedLabelWarning(XcebraWarning):
    """A map is asked for a block whose objective was not learned better than chance."""


class SparseBasisWarning(XcebraWarning):
    """Too few neurons are unconnected to tell how correlated factors were mixed."""


class MissingFactorWarning(XcebraWarning):
    """The neurons share activity that the embedding does not hold."""


class DuplicateNeuronWarning(XcebraWarning):
    """Some neurons are nearly the same: what they carry is shared out among them at will."""


class RedundantLabelWarning(XcebraWarning):
    """One label can be told from another: their maps cannot be told apart."""


class OversampledWarning(XcebraWarning):
    """Most samples are the same as the one before."""


class CollapsedEmbeddingWarning(XcebraWarning):
    """Some directions of a block hold nothing."""


class SaturatedOutputWarning(XcebraWarning):
    """Latents lie at the bound of the encoder's outputs, where it no longer follows the neurons."""


class IllConditionedWarning(XcebraWarning):
    """Inverses of the encoder's Jacobian magnify its errors."""


class DisagreementWarning(XcebraWarning):
    """A map and an encoding model of the label alone rank the neurons in opposite ways."""


def warn(message: str, category: type[XcebraWarning], *arguments: str) -> None:
    """Give a warning of one of the categories above; ``arguments`` are those it is about."""
    warnings.warn(category(message, arguments), stacklevel=3)
