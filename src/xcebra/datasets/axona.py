"""Reader of recordings of Axona systems: spikes, their clusters, and the position of one light."""

from __future__ import annotations

import re
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from scipy.ndimage import uniform_filter1d

from xcebra.common.errors import InputError

Array = NDArray[np.float64]

# Value of a coordinate where the tracker saw no light.
_NOT_SEEN = 1023
# Seconds over which position is averaged. It is the usual value of the makers' own software.
_AVERAGED = 0.4


def read_axona_spikes(path: Path) -> Array:
    """Return the times in seconds of all spikes of a tetrode, in the order of the file.

    Each spike is stored as four records, one for each channel, with the same time.
    """
    header, data = _parts(path)
    n_spikes, n_samples = (
        _number(header, name, path) for name in ("num_spikes", "samples_per_spike")
    )
    record = np.dtype([("time", ">u4"), ("waveform", "i1", (int(n_samples),))])
    n_bytes = 4 * int(n_spikes) * record.itemsize
    if len(data) < n_bytes:
        raise InputError(
            f"{path}: has {len(data):,} bytes of spikes, but {n_bytes:,} are announced"
        )
    records = np.frombuffer(data[:n_bytes], record)
    return records["time"][::4] / _number(header, "timebase", path)


def read_axona_clusters(path: Path) -> NDArray[np.int64]:
    """Return the cluster of each spike, from a ``.cut`` file."""
    text = path.read_text(encoding="latin-1")
    match = re.search(r"Exact_cut_for:.*spikes:\s*(\d+)[^\n]*\n([\d\s]*)", text)
    clusters = np.array(match[2].split() if match else [], dtype=np.int64)
    if match is None or len(clusters) != int(match[1]):
        raise InputError(f"{path}: is not a complete .cut file")
    return clusters


def read_axona_position(path: Path) -> tuple[Array, Array]:
    """Return times in seconds and positions in metres, from a ``.pos`` file.

    Where the light was not seen, position is interpolated. The first frame after such a gap is not
    used, because the light may be partly hidden. Then position is averaged over 0.4 s.

    Returns
    -------
    times : ndarray of shape (n_frames,)
        Middles of the frames.
    position : ndarray of shape (n_frames, 2)
    """
    header, data = _parts(path)
    n_frames = int(_number(header, "num_pos_samples", path))
    record = np.dtype([("time", ">u4"), ("coordinates", ">u2", (8,))])
    if len(data) < n_frames * record.itemsize:
        raise InputError(f"{path}: has fewer than the {n_frames:,} frames that are announced")
    frames = np.frombuffer(data[: n_frames * record.itemsize], record)
    pixels = frames["coordinates"][:, :2].astype(np.float64)
    seen = (pixels != _NOT_SEEN).all(axis=1)
    seen[1:] &= seen[:-1]
    if not seen.any():
        raise InputError(f"{path}: the light was never seen")
    index = np.arange(n_frames)
    filled = np.stack([np.interp(index, index[seen], column[seen]) for column in pixels.T], axis=1)
    rate = _number(header, "sample_rate", path)
    averaged = uniform_filter1d(filled, max(1, round(_AVERAGED * rate)), axis=0, mode="nearest")
    return np.asarray((index + 0.5) / rate, np.float64), averaged / _number(
        header, "pixels_per_metre", path
    )


def _parts(path: Path) -> tuple[dict[str, str], bytes]:
    """Split a file into its header and its binary data."""
    head, start, data = path.read_bytes().partition(b"data_start")
    if not start:
        raise InputError(f"{path}: is not a file of an Axona system: it has no 'data_start'")
    lines = [line.partition(" ") for line in head.decode("latin-1").splitlines()]
    return {name: value.strip() for name, _, value in lines}, data


def _number(header: dict[str, str], name: str, path: Path) -> float:
    """Return a number of the header; its unit, as in ``96000 hz``, is left out."""
    match = re.match(r"\d+(\.\d+)?", header.get(name, ""))
    if match is None or float(match[0]) <= 0:
        raise InputError(f"{path}: its header has no number {name!r}")
    return float(match[0])
