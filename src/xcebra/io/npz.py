"""NumPy archives: any arrays, and recordings that this package has written."""

from __future__ import annotations

import json
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
from xcebra.data.label_info import NOTHING_KNOWN, infos_from_plain, plain_infos
from xcebra.data.recording import Recording
from xcebra.data.units import as_column
from xcebra.io.contents import Contents, Series, check_times
from xcebra.io.objects import TIME_NAMES

# Fields of a recording that are mappings; an array of one is called, for instance, "labels/speed".
_PARTS = ("labels", "latents", "ground_truth", "units")
# Array with what is known of the labels, as text in JSON.
_LABEL_INFO = "label_info"
# Arrays of at least this many bytes are mapped into memory and not read at once, if they are not
# compressed. Larger values use more memory; smaller ones open more maps. Not tuned.
_LARGE = 2**20


def read_npz(path: Path) -> Contents:
    """Read the arrays of an archive that have one row per sample.

    An array called ``time`` or similar holds the times of the samples in seconds.

    Raises
    ------
    ValueError
        If the file is damaged or holds objects.
    """
    arrays, unread = _load(path)
    own = {part: _under(arrays, f"{part}/") for part in _PARTS}
    known = {f"{part}/{name}" for part in _PARTS for name in own[part]}
    known |= {"neuron_names", "epochs", _LABEL_INFO} if "neural" in arrays else set()
    clocks = [n for n, a in arrays.items() if n.lower() in TIME_NAMES and a.ndim == 1]
    times = None
    if clocks:
        try:
            times = check_times(arrays[clocks[0]], len(arrays[clocks[0]]))
        except ValueError as error:
            raise InputError(f"{path}: {clocks[0]!r} {error}") from None
    entries: dict[str, Series] = {}
    free = {name: a for name, a in arrays.items() if name not in known and name not in clocks[:1]}
    units = {**_unit_columns(free), **own["units"]}
    infos = infos_from_plain(_label_info(path, arrays)) if _LABEL_INFO in known else {}
    for name, array in {**free, **own["labels"]}.items():
        if name in units:
            continue
        has_times = times is not None and array.ndim and len(array) == len(times)
        info = infos.get(name, NOTHING_KNOWN)
        try:
            entries[name] = Series(
                array,
                times if has_times else None,
                info.columns,
                label=name in own["labels"],
                info=info,
                units=units if name == "neural" else {},
            )
        except ValueError as error:
            unread[name] = str(error)
    if not entries:
        reasons = "; ".join(f"{name!r} {reason}" for name, reason in unread.items())
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
    """Write a recording with all its fields; `read_npz` reads them."""
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
    if described := plain_infos(recording.label_info):
        arrays[_LABEL_INFO] = np.array(json.dumps(described))
    with atomically(path) as partial, partial.open("wb") as file:
        np.savez(file, **arrays)


def _unit_columns(arrays: Mapping[str, NDArray[Any]]) -> dict[str, NDArray[Any]]:
    """Return the arrays that hold one value for each neuron, and not for each sample."""
    neural = arrays.get("neural")
    if neural is None or neural.ndim != 2 or len(set(neural.shape)) == 1:
        return {}
    columns = {
        name: as_column(array)
        for name, array in arrays.items()
        if array.ndim == 1 and len(array) == neural.shape[1]
    }
    return {name: column for name, column in columns.items() if column is not None}


def _label_info(path: Path, arrays: Mapping[str, NDArray[Any]]) -> Any:
    if _LABEL_INFO not in arrays:
        return None
    try:
        return json.loads(str(arrays[_LABEL_INFO]))
    except ValueError:
        raise InputError(f"{path}: {_LABEL_INFO!r} is damaged; write the file again") from None


def _load(path: Path) -> tuple[dict[str, NDArray[Any]], dict[str, str]]:
    """Return all arrays, and the names of members that cannot be read, with the reason.

    Large arrays that are not compressed are left in the file.
    """
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
    # zipfile and zlib raise many kinds of errors for damaged files.
    except Exception as error:
        reason = " ".join(str(error).split())
        raise InputError(
            f"{path}: is damaged or no .npz file ({reason}); write it again with np.savez"
        ) from None
    if not arrays and not unread:
        raise InputError(f"{path}: is empty: it holds no arrays; write it again with np.savez")
    return arrays, unread


def _member(path: Path, archive: zipfile.ZipFile, member: zipfile.ZipInfo) -> NDArray[Any] | None:
    """Return an array, or None if it holds objects."""
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
