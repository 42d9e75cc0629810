"""Recordings from files and from what is in memory."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from xcebra.common.errors import InputError
from xcebra.data.recording import Recording
from xcebra.io.assemble import NEURAL, Names, assemble, neural_names
from xcebra.io.contents import Contents, Entry, Intervals, Series, Spikes
from xcebra.io.describe import Description, describe
from xcebra.io.npz import read_npz, write_npz
from xcebra.io.nwb import open_nwb, write_nwb
from xcebra.io.objects import entry_of, from_object
from xcebra.io.tables import read_csv, read_parquet

__all__ = [
    "Contents",
    "Description",
    "Intervals",
    "Series",
    "Spikes",
    "describe",
    "opened",
    "read",
    "write",
]

# How files begin, and what they are then called.
_MAGIC = {b"\x89HDF": ".nwb", b"PK\x03\x04": ".npz", b"PAR1": ".parquet"}
_READERS = {
    ".npz": read_npz,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


@contextmanager
def opened(source: Any) -> Iterator[Contents]:
    """What a source holds: a file by its name, or anything that `read` takes.

    Raises
    ------
    FileNotFoundError, ValueError, TypeError
    """
    if not isinstance(source, (str, os.PathLike)):
        yield from_object(source)
        return
    path = Path(source)
    kind = path.suffix.lower()
    if kind != ".nwb" and kind not in _READERS:
        raise InputError(
            f"{path}: cannot tell what it is from its ending {kind!r}; known are "
            f"{', '.join(['.nwb', *_READERS])}"
        )
    if path.is_dir():
        raise InputError(f"{path}: is a folder; name a file in it")
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}; check its name and folder")
    if path.stat().st_size == 0:
        raise InputError(f"{path}: is empty: it has no bytes; write or download it again")
    with path.open("rb") as file:
        start = file.read(8)
    for magic, ending in _MAGIC.items():
        if start.startswith(magic) and kind != ending:
            raise InputError(f"{path}: is not what its ending says; rename it to end in {ending}")
    if kind == ".nwb":
        with open_nwb(path) as contents:
            yield contents
    else:
        yield _READERS[kind](path)


def read(
    source: Any,
    *,
    neural: Names | None = None,
    labels: Names | Mapping[str, Any] | None = None,
    epochs: Any = None,
    bin_size: float | None = None,
    smooth: float | None = None,
    circular: Names = (),
) -> Recording:
    """A recording from a file, or from what is in memory.

    Activity decides the clock: spike times are counted in bins, and every label is interpolated
    at the times of the activity.

    Parameters
    ----------
    source : path, mapping or object
        A file (``.nwb``, ``.npz``, ``.csv``, ``.parquet``), or an array, DataFrame, xarray's
        DataArray or Dataset, pynapple's TsGroup or TsdFrame, or several of them by name. In a
        mapping, ``(times, values)`` is a series with its times in seconds, and a mapping of unit
        to times is spike times.
    neural : str or list of str, optional
        Which entry is the activity; several, or ``"unit_*"``, are columns of one array. Needed only
        where it cannot be told.
    labels : str, list of str, or mapping, optional
        Which entries are labels; a mapping gives a label its own name, several entries as its
        columns, or its own data. All that can be a label if not given.
    epochs : str, list of (start, stop), or IntervalSet, optional
        Stretches of time to use, in seconds; a name is that of intervals in the source. Without
        times in the source they are in samples.
    bin_size : float, optional
        Seconds; spike times need it, samples are averaged.
    smooth : float, optional
        Standard deviation in seconds of a Gaussian that the activity is smoothed with.
    circular : str or list of str, optional
        Labels that are angles in radians, or cosine and sine.

    Raises
    ------
    ValueError, TypeError, FileNotFoundError
        In one line: the source, what is wrong, and what to do.

    Examples
    --------
    >>> import numpy as np, xcebra
    >>> spikes = {"a": [0.01, 0.02, 0.12], "b": [0.05, 0.19]}
    >>> position = (np.array([0.0, 0.1, 0.2]), np.array([0.0, 1.0, 2.0]))
    >>> rec = xcebra.read({"units": spikes, "position": position}, epochs=[(0, 0.2)], bin_size=0.1)
    >>> rec.neural.tolist(), rec.labels["position"].ravel().tolist()
    ([[2.0, 1.0], [1.0, 1.0]], [0.5, 1.5])
    """
    with opened(source) as contents:
        # Before labels with their own data come to what there is to choose from.
        activity = neural_names(contents, neural)
        if isinstance(labels, Mapping):
            own = {n: f"labels[{str(n)!r}]" for n, value in labels.items() if not _is_name(value)}
            data = {key: _entry(key, labels[n]) for n, key in own.items()}
            labels = {str(n): own.get(n, value) for n, value in labels.items()}
            contents = replace(contents, entries={**contents.entries, **data})
        if type(epochs).__module__.startswith("pynapple"):
            epochs = _entry("epochs", epochs)
        return assemble(
            contents,
            neural=activity,
            labels=labels,
            epochs=epochs,
            bin_size=bin_size,
            smooth=smooth,
            circular=circular,
        )


def write(
    recording: Recording, path: str | os.PathLike[str], *, spikes: bool = False, about: str = ""
) -> None:
    """Write a recording to a ``.npz`` or ``.nwb`` file.

    Parameters
    ----------
    recording : Recording
    path : path
    spikes : bool
        To NWB, write whole numbers of spikes as spike times.
    about : str
        To NWB, a description of the session.
    """
    kind = Path(path).suffix.lower()
    if kind not in (".npz", ".nwb"):
        raise InputError(f"path={str(path)!r} must end in .npz or .nwb, got {kind!r}")
    if NEURAL in recording.labels:
        raise InputError(f"{path}: a label called {NEURAL!r} cannot be told from the activity")
    if kind == ".npz":
        write_npz(path, recording)
    else:
        write_nwb(path, recording, spikes=spikes, description=about or "a recording")


def _is_name(value: Any) -> bool:
    return isinstance(value, str) or (
        isinstance(value, (list, tuple)) and all(isinstance(each, str) for each in value)
    )


def _entry(name: str, value: Any) -> Entry:
    try:
        return entry_of(value)
    except (ValueError, TypeError) as error:
        raise type(error)(f"{name} {error}") from None
