"""Maps and fits as HTML that a notebook shows in place of their text."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

# From paper to ink, by eye.
_COLOURS = np.array(
    [
        [253, 253, 252],
        [254, 216, 160],
        [252, 160, 108],
        [235, 96, 96],
        [178, 54, 122],
        [58, 15, 110],
    ]
)
_HEIGHT, _COLUMN = 300, 26
_N_FIRST = 8
_WORDS = {"yes": "yes", "no": "NO, do not read its map", "unclear": "unclear"}


def verdict_words(name: str, fit: Any) -> str:
    """Whether an objective was learned, in words, and what that rests on."""
    effect = "" if fit.effect is None else f"; effect {fit.effect:.2f}"
    return f"{_WORDS[fit.verdict]}: {fit.explanation(name)}{effect}"


def map_html(amap: Any) -> str:
    """The map as a picture beside the first neurons of each block."""
    shown = np.array(amap.values, dtype=float)
    for block in amap.blocks.values():
        shown[:, block] /= shown[:, block].max() or 1.0
    width = _COLUMN * shown.shape[1]
    title = f"{len(shown)} neurons by {shown.shape[1]} latents; dark is most of its block"
    picture = (
        f'<img src="{png(shown)}" alt="{title}" title="{title}" '
        f'style="width:{width}px;height:{_HEIGHT}px;image-rendering:pixelated;'
        'border:1px solid #8884"/>'
    )
    names = "".join(
        f'<td style="width:{_COLUMN * (b.stop - b.start)}px;padding:0;text-align:center">'
        f"{escape(name)}</td>"
        for name, b in amap.blocks.items()
    )
    columns = [
        f"<td style='vertical-align:top;text-align:left'><b>{escape(name)}</b><br>"
        + "<br>".join(f"{escape(n)}: {score:.3g}" for n, score in amap.ranking(name)[:_N_FIRST])
        + "</td>"
        for name in amap.blocks
    ]
    return (
        f"<div>{escape(repr(amap))}</div><table><tr><td style='vertical-align:top'>"
        f"<table style='margin:0'><tr>{names}</tr></table>{picture}</td>{''.join(columns)}"
        "</tr></table>"
    )


def fit_html(fits: Mapping[str, Any]) -> str:
    """What was learned, and how sure that is."""
    lines = "".join(
        f"<tr><td style='text-align:left'>{escape(name)}</td>"
        f"<td style='text-align:left'>{escape(verdict_words(name, fit))}</td></tr>"
        for name, fit in fits.items()
    )
    head = "<th>objective</th><th>verdict</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def png(shares: NDArray[np.float64]) -> str:
    """Numbers from 0 to 1 as the pixels of a picture, one each, in a link that holds it."""
    at = np.clip(shares, 0, 1) * (len(_COLOURS) - 1)
    low = np.minimum(at.astype(int), len(_COLOURS) - 2)
    part = (at - low)[:, :, None]
    pixels = np.round(_COLOURS[low] * (1 - part) + _COLOURS[low + 1] * part).astype(np.uint8)
    height, width = shares.shape
    # Each row starts with the number of its filter: none.
    rows = np.zeros((height, 1 + 3 * width), np.uint8)
    rows[:, 1:] = pixels.reshape(height, -1)
    parts = {
        b"IHDR": struct.pack(">IIBBBBB", width, height, 8, 2, 0, 0, 0),
        b"IDAT": zlib.compress(rows.tobytes(), 9),
        b"IEND": b"",
    }
    file = b"\x89PNG\r\n\x1a\n" + b"".join(
        struct.pack(">I", len(data)) + kind + data + struct.pack(">I", zlib.crc32(kind + data))
        for kind, data in parts.items()
    )
    return f"data:image/png;base64,{base64.b64encode(file).decode()}"
