"""NumPy archives: anyone's arrays, and our own recordings with all they know."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from xcebra.formats.contents import Contents, Entry, Series
from xcebra.formats.objects import TIME_NAMES
from xcebra.recording import Recording
from xcebra.storage import atomically

# What a recording has beside activity and labels; the names of its parts follow a slash.
_PARTS = ("labels", "latents", "ground_truth")


def read_npz(path: Path) -> Contents:
    """Arrays with as many rows as there are samples; one called time is their clock.

    Raises
    ------
    ValueError
        If the file is damaged or holds objects.
    """
    arrays = _load(path)
    own = {part: _under(arrays, f"{part}/") for part in _PARTS}
    known = {f"{part}/{name}" for part in _PARTS for name in own[part]}
    known |= {"neuron_names", "epochs"} if "neural" in arrays else set()
    clocks = [n for n, a in arrays.items() if n.lower() in TIME_NAMES and a.ndim == 1]
    times = arrays[clocks[0]] if clocks else None
    entries: dict[str, Entry] = {}
    unread: dict[str, str] = {}
    free = {name: a for name, a in arrays.items() if name not in known and name not in clocks[:1]}
    for name, array in {**free, **own["labels"]}.items():
        mine = times if times is not None and array.ndim and len(array) == len(times) else None
        try:
            entries[name] = Series(array, mine)
        except (ValueError, IndexError) as error:
            unread[name] = str(error)
    if not entries:
        reasons = "; ".join(f"{name!r} {why}" for name, why in unread.items())
        raise ValueError(f"{path}: holds no array over time{': ' if reasons else ''}{reasons}")
    extra: dict[str, Any] = {part: own[part] for part in ("latents", "ground_truth")}
    if "neuron_names" in known & set(arrays):
        extra["neuron_names"] = tuple(str(name) for name in arrays["neuron_names"])
    if "epochs" in known & set(arrays):
        extra["epochs"] = arrays["epochs"]
    return Contents(str(path), entries, unread, extra)


def write_npz(path: str | os.PathLike[str], recording: Recording) -> None:
    """Write a recording with everything it knows; `read_npz` gives it back."""
    arrays: dict[str, Any] = {
        "neural": recording.neural,
        "neuron_names": np.array(recording.neuron_names),
        "epochs": np.array(recording.epochs.pairs()),
    }
    if recording.time is not None:
        arrays["time"] = recording.time
    for part in _PARTS:
        values: Mapping[str, NDArray[Any]] = getattr(recording, part)
        arrays |= {f"{part}/{name}": value for name, value in values.items()}
    with atomically(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)


def _load(path: Path) -> dict[str, NDArray[Any]]:
    """All arrays; those that are stored as they are stay in the file until they are used."""
    try:
        with zipfile.ZipFile(path) as archive:
            members = [m for m in archive.infolist() if m.filename.endswith(".npy")]
            arrays = {m.filename.removesuffix(".npy"): _member(path, archive, m) for m in members}
    except (zipfile.BadZipFile, EOFError, OSError, ValueError) as error:
        if isinstance(error, FileNotFoundError):
            raise
        if "allow_pickle" in str(error) or "Object arrays" in str(error):
            raise ValueError(
                f"{path}: holds an array of objects, which could run code when it is read; save "
                "it again as numbers or text"
            ) from None
        raise ValueError(
            f"{path}: is damaged or no .npz file ({error}); write it again with np.savez"
        ) from None
    if not arrays:
        raise ValueError(f"{path}: is empty: it holds no arrays")
    return arrays


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any]:
    with archive.open(member) as file:
        if member.compress_type != zipfile.ZIP_STORED:
            return np.asarray(npy.read_array(file, allow_pickle=False))
        version = npy.read_magic(file)
        shape, fortran, dtype = (
            npy.read_array_header_1_0(file)
            if version == (1, 0)
            else (npy.read_array_header_2_0(file))
        )
        header = file.tell()
    n_bytes = int(np.prod(shape, dtype=np.int64)) * dtype.itemsize
    if dtype.hasobject or n_bytes < 2**20 or not shape:
        with archive.open(member) as file:
            return np.asarray(npy.read_array(file, allow_pickle=False))
    # A member starts after a local header of 30 bytes, its name and its extra field.
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        lengths = np.frombuffer(file.read(4), "<u2")
    start = member.header_offset + 30 + int(lengths.sum()) + header
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.memmap(path, dtype, "r", offset=start, shape=shape, order=order)


def _under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
