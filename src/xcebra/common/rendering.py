"""HTML representations of maps and fits for notebooks."""

from __future__ import annotations

import base64
import struct
import zlib
from collections.abc import Mapping
from html import escape
from typing import Any

import numpy as np
from numpy.typing import NDArray

# Colours from the lowest value (nearly white) to the highest (dark purple), chosen by eye.
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
# Height of the picture and width of one latent, in pixels.
_HEIGHT, _COLUMN = 300, 26
# Number of top neurons that are listed for each block.
_N_FIRST = 8
_WORDS = {"yes": "yes", "no": "NO, do not read its map", "unclear": "unclear"}


def verdict_words(name: str, fit: Any) -> str:
    """Whether an objective was learned, in words, with the reason."""
    effect = "" if fit.effect is None else f"; effect {fit.effect:.2f}"
    return f"{_WORDS[fit.verdict]}: {fit.explanation(name)}{effect}"


def map_html(amap: Any) -> str:
    """HTML with a picture of the map and, beside it, the top neurons of each block."""
    shares = np.array(amap.values, dtype=float)
    for block in amap.blocks.values():
        shares[:, block] /= shares[:, block].max() or 1.0
    width = _COLUMN * shares.shape[1]
    title = f"{len(shares)} neurons by {shares.shape[1]} latents; dark is most of its block"
    picture = (
        f'<img src="{png(shares)}" alt="{title}" title="{title}" '
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
    """HTML table with the verdict on each objective."""
    lines = "".join(
        f"<tr><td style='text-align:left'>{escape(name)}</td>"
        f"<td style='text-align:left'>{escape(verdict_words(name, fit))}</td></tr>"
        for name, fit in fits.items()
    )
    head = "<th>objective</th><th>verdict</th>"
    return f"<table><thead><tr>{head}</tr></thead><tbody>{lines}</tbody></table>"


def png(shares: NDArray[np.float64]) -> str:
    """Encode an array as a PNG image in a data URL, with one pixel for each value.

    Parameters
    ----------
    shares : ndarray of shape (height, width)
        Values from 0 to 1; others are clipped.
    """
    position = np.clip(shares, 0, 1) * (len(_COLOURS) - 1)
    low = np.minimum(position.astype(int), len(_COLOURS) - 2)
    weight = (position - low)[:, :, None]
    pixels = np.round(_COLOURS[low] * (1 - weight) + _COLOURS[low + 1] * weight).astype(np.uint8)
    height, width = shares.shape
    # Each row starts with the number of its filter; 0 is no filter.
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
