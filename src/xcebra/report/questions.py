"""Which blocks a reader asks about, and which of their scores must not be read."""

from __future__ import annotations

from collections.abc import Mapping

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.training.goodness_of_fit import GoodnessOfFit

TIME = "time"


def asked_blocks(amap: AttributionMap) -> list[str]:
    """Return the blocks that are asked about: the labels, without those that are controlled for.

    If the map has no such label, these are all blocks that are not controlled for.
    """
    others = [name for name in amap.blocks if name not in amap.controls]
    return [name for name in others if name != TIME] or others


def ordered_blocks(amap: AttributionMap) -> list[str]:
    """Return all blocks in the order in which they are shown.

    Labels that are asked about come first, then time, then labels that are controlled for.
    """
    asked = asked_blocks(amap)
    rest = [name for name in amap.blocks if name not in asked]
    return asked + sorted(rest, key=lambda name: name in amap.controls)


def is_yes(fits: Mapping[str, GoodnessOfFit], name: str) -> bool:
    """Whether the verdict on a block is yes."""
    return name in fits and fits[name].verdict == "yes"


def doubt(fits: Mapping[str, GoodnessOfFit], name: str) -> str | None:
    """Return the reason why the scores of a block must not be read; None if they may be.

    Parameters
    ----------
    fits : mapping of str to GoodnessOfFit
        ``model.goodness_of_fit_``.
    name : str
        A block. Blocks without a verdict may be read.
    """
    verdict = fits[name].verdict if name in fits else "yes"
    if verdict == "no":
        return f"{name} was not found in the activity, so its scores must not be read"
    if verdict == "unclear" and name != TIME:
        return f"it is unclear whether {name} is in the activity, so its scores must not be read"
    return None


def beyond(amap: AttributionMap, name: str) -> str:
    """Return what a block was tested beyond, in words: the other blocks and the controls.

    The text is empty if there is no other block.
    """
    parts = [
        "activity that lasts in time" if other == TIME else other
        for other in ordered_blocks(amap)
        if other != name and other not in amap.controls
    ]
    controls = [other for other in amap.controls if other != name and other in amap.blocks]
    if controls:
        were = "was" if len(controls) == 1 else "were"
        parts.append(f"{' and '.join(controls)}, which {were} controlled for")
    words = [f"beyond {part}" for part in parts]
    if not words:
        return ""
    return words[0] if len(words) == 1 else f"{', '.join(words[:-1])} and {words[-1]}"
