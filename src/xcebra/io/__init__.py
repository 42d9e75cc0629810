"""Read recordings from files and from objects in memory, and write them to files."""

from __future__ import annotations

import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from typing import Any

from xcebra.common.errors import InputError
from xcebra.data.recording import Recording
from xcebra.io.advice import Advice, advise
from xcebra.io.assemble import NEURAL, assemble, neural_names
from xcebra.io.contents import Contents, Entry, Intervals, Series, Spikes
from xcebra.io.describe import Description, describe
from xcebra.io.label_choice import named_labels
from xcebra.io.lookup import Names
from xcebra.io.npz import read_npz, write_npz
from xcebra.io.nwb import open_nwb, write_nwb
from xcebra.io.objects import entry_of, from_object
from xcebra.io.tables import read_csv, read_parquet, read_unit_table

__all__ = [
    "Advice",
    "Contents",
    "Description",
    "Intervals",
    "Series",
    "Spikes",
    "advise",
    "describe",
    "named_labels",
    "opened",
    "read",
    "write",
]

# First bytes of a file, and the ending that a file with these bytes must have.
_MAGIC = {b"\x89HDF": ".nwb", b"PK\x03\x04": ".npz", b"PAR1": ".parquet"}
_READERS = {
    ".npz": read_npz,
    ".csv": read_csv,
    ".parquet": read_parquet,
}


@contextmanager
def opened(source: Any) -> Iterator[Contents]:
    """Open a source and give its contents; a context manager.

    Parameters
    ----------
    source : path, mapping or object
        A file, or any object that `read` takes.

    Yields
    ------
    Contents

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError, TypeError
        If the source cannot be read.
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
    label_kind: Mapping[str, str] | None = None,
    label_unit: Mapping[str, str] | None = None,
    units: str | Sequence[str] | None = None,
    unit_table: Any = None,
) -> Recording:
    """Read a recording from a file, or from objects in memory.

    The activity decides the clock: spike times are counted in bins, and every label is
    interpolated at the times of the activity.

    Parameters
    ----------
    source : path, mapping or object
        A file (``.nwb``, ``.npz``, ``.csv``, ``.parquet``); or an array of shape (n_times,
        n_neurons), a DataFrame, xarray's DataArray or Dataset, pynapple's TsGroup or TsdFrame;
        or a mapping from names to several of these. In a mapping, ``(times, values)`` is a series
        with its times in seconds, and a mapping from units to times holds spike times.
    neural : str or list of str, optional
        The entry that is the activity. Several entries, or a pattern such as ``"unit_*"``, become
        the columns of one array. Needed only if the source does not make it clear.
    labels : str, list of str, or mapping, optional
        The entries that are labels: names of entries, of columns (``"trials/choice"``), or
        ``"NAME=WHAT"``. WHAT is one entry, several separated by commas as the label's columns
        (``"position=x,z"``), or a function of them: ``speed(x, z)``, ``velocity(x)``,
        ``direction(x, z)`` of movement, ``angle(x1, y1, x2, y2)`` of the line between two points,
        ``radians(heading)``, ``log(speed)``. Derivatives are smoothed by a Gaussian with a
        standard deviation of 0.1 s, or of another one: ``speed(x, z, smooth=0.3)``.
        A mapping from names to such texts, to lists of names, or to data is possible too. By
        default, every entry that can be a label.
    epochs : str, list of (start, stop), or IntervalSet, optional
        Stretches of time to use, in seconds, or the name of intervals in the source, or a text in
        one of their columns, such as the tag ``"wake"``. If the source has no times, they are in
        samples. Or a condition on labels and series, such as ``"speed > 5"`` or
        ``"wake and speed(x, z) > 5"``: each stretch in which it holds is an epoch.
    bin_size : float, optional
        Width of a bin in seconds. It is required for spike times, which are counted. Counts are
        added, and other samples are averaged.
    smooth : float, optional
        Standard deviation, in seconds, of the Gaussian that smooths the activity.
    circular : str or list of str, optional
        Labels that are angles: one column in radians or degrees, or two columns, cosine and sine.
        Angles whose unit is in the file, or that jump by a whole turn, are recognised.
    label_kind : mapping of str to {"continuous", "discrete", "circular"}, optional
        The same for any kind. The kinds stay with the recording, and `XCEBRA.fit` uses them.
    label_unit : mapping of str to str, optional
        Units of labels that the source does not know, for axes and pages: ``{"position": "cm"}``.
        An angle in ``"degrees"`` is converted.
    units : str or list of str, optional
        Units to use: their names, or a condition on what is known of them, such as
        ``"location == 'adn' and rate > 0.5"``. ``rate``, in spikes per second, and ``name`` are
        always known for spikes.
    unit_table : path, DataFrame or mapping, optional
        Table with one row for each unit and columns such as area or cell type, which is kept in
        ``Recording.units``. Rows are found by the units' names, in a column ``unit``, ``name`` or
        the like, or in the index of a DataFrame, or else are in the order of the units. An index
        that does more than number the rows must hold the units' names.

    Returns
    -------
    Recording

    Raises
    ------
    ValueError, TypeError, FileNotFoundError
        If the source or an argument is wrong. The message is one line with the source, the
        problem and the remedy.

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
        # Find the activity before labels with their own data are added to the entries.
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
            circular=[circular] if isinstance(circular, str) else list(circular),
            label_kind=label_kind,
            label_unit=label_unit,
            units=units,
            unit_table=None if unit_table is None else read_unit_table(unit_table),
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
        Write whole numbers of spikes as spike times. Only for NWB.
    about : str
        Description of the session. Only for NWB.

    Raises
    ------
    ValueError
        If the path has another ending, or the format cannot hold the recording.
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
        isinstance(value, (list, tuple)) and all(isinstance(name, str) for name in value)
    )


def _entry(name: str, value: Any) -> Entry:
    try:
        return entry_of(value)
    except InputError as error:
        raise error.about(name) from None
