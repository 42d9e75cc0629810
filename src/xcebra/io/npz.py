"""NumPy archives: anyone's arrays, and our own recordings with all they know."""

from __future__ import annotations

import math
import os
import zipfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any, Literal

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.data.recording import Recording
from xcebra.io.contents import Contents, Series, check_times
from xcebra.io.objects import TIME_NAMES

# What a recording has beside activity and labels; the names of its parts follow a slash.
_PARTS = ("labels", "latents", "ground_truth")
# Bytes from which an array is left in the file.
_LARGE = 2**20


def read_npz(path: Path) -> Contents:
    """Arrays with as many rows as there are samples; one called time is their clock.

    Raises
    ------
    ValueError
        If the file is damaged or holds objects.
    """
    arrays, unread = _load(path)
    own = {part: _under(arrays, f"{part}/") for part in _PARTS}
    known = {f"{part}/{name}" for part in _PARTS for name in own[part]}
    known |= {"neuron_names", "epochs"} if "neural" in arrays else set()
    clocks = [n for n, a in arrays.items() if n.lower() in TIME_NAMES and a.ndim == 1]
    times = None
    if clocks:
        try:
            times = check_times(arrays[clocks[0]], len(arrays[clocks[0]]))
        except ValueError as error:
            raise InputError(f"{path}: {clocks[0]!r} {error}") from None
    entries: dict[str, Series] = {}
    free = {name: a for name, a in arrays.items() if name not in known and name not in clocks[:1]}
    for name, array in {**free, **own["labels"]}.items():
        mine = times if times is not None and array.ndim and len(array) == len(times) else None
        try:
            entries[name] = Series(array, mine, label=name in own["labels"])
        except ValueError as error:
            unread[name] = str(error)
    if not entries:
        reasons = "; ".join(f"{name!r} {why}" for name, why in unread.items())
        raise InputError(f"{path}: holds no array over time{': ' if reasons else ''}{reasons}")
    if times is not None and all(entry.times is None for entry in entries.values()):
        raise InputError(
            f"{path}: {clocks[0]!r} has {len(times)} times, and no array has as many rows; save "
            "one time for each row"
        )
    extra: dict[str, Any] = {part: own[part] for part in ("latents", "ground_truth")}
    if "neuron_names" in known & set(arrays):
        extra["neuron_names"] = tuple(arrays["neuron_names"].astype(str).ravel().tolist())
    if "epochs" in known & set(arrays):
        extra["epochs"] = arrays["epochs"].tolist()
    return Contents(str(path), entries, unread, {"of": "neural", **extra})


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


def _load(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """All arrays, large ones left in the file if they are stored as they are; and what is none."""
    arrays: dict[str, NDArray[Any]] = {}
    unread: dict[str, str] = {}
    try:
        with zipfile.ZipFile(path) as archive:
            for member in archive.infolist():
                if member.filename.endswith(".npy"):
                    array = _member(path, archive, member)
                    name = member.filename.removesuffix(".npy")
                    if array is None:
                        unread[name] = (
                            "holds objects, which could run code when they are read; save it "
                            "again as numbers or text"
                        )
                    else:
                        arrays[name] = array
    # zipfile and zlib have many ways to say that bytes are wrong.
    except Exception as error:
        told = " ".join(str(error).split())
        raise InputError(
            f"{path}: is damaged or no .npz file ({told}); write it again with np.savez"
        ) from None
    if not arrays and not unread:
        raise InputError(f"{path}: is empty: it holds no arrays; write it again with np.savez")
    return arrays, unread


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any] | None:
    """An array, or None if it holds objects."""
    with archive.open(member) as file:
        read = npy.read_array_header_1_0
        read = read if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, fortran, dtype = read(file)
        header = file.tell()
    if dtype.hasobject:
        return None
    if member.compress_type != zipfile.ZIP_STORED or member.file_size < _LARGE:
        with archive.open(member) as file:
            return np.asarray(npy.read_array(file, allow_pickle=False))
    if header + math.prod(shape) * dtype.itemsize != member.file_size:
        raise InputError(f"{member.filename} does not have the size that it says")
    # A member starts after a local header of 30 bytes, its name and its extra field.
    with path.open("rb") as file:
        file.seek(member.header_offset + 26)
        lengths = np.frombuffer(file.read(4), "<u2")
    start = member.header_offset + 30 + int(lengths.sum()) + header
    order: Literal["F", "C"] = "F" if fortran else "C"
    return np.memmap(path, dtype, "r", offset=start, shape=shape, order=order)


def _under(arrays: Mapping[str, NDArray[Any]], prefix: str) -> dict[str, NDArray[Any]]:
    return {n.removeprefix(prefix): a for n, a in arrays.items() if n.startswith(prefix)}
