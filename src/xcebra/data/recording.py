"""A recording: neural activity, labels and epochs, which are checked once, when it is created."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs
from xcebra.data.label_info import NOTHING_KNOWN, LabelInfo
from xcebra.data.units import UnitTable, check_units, unit_names

# Size of the parts in which large arrays are read: larger values need more memory. Not tuned.
_CHUNK_BYTES = 32 * 2**20
# Number of values that are processed at once, 64 MB in double precision. With up to 512 columns,
# 16,384 rows have no more.
_VALUES_AT_ONCE = 1 << 23
# In standard deviations of the Gaussian: white noise that was smoothed by it has a correlation of
# exp(-4), 2 %, at this distance.
_SHARED_WITHIN = 4.0


def overlap_of(width: float) -> int:
    """Number of samples on either side that share noise after smoothing by a Gaussian.

    Parameters
    ----------
    width : float
        Standard deviation of the Gaussian, in samples.
    """
    return max(0, math.ceil(_SHARED_WITHIN * width - 1e-6) - 1)


@runtime_checkable
class Activity(Protocol):
    """Interface of the activity that networks read.

    It is implemented by `Recording` and by `WithControls`, in which some neurons are replaced.
    """

    @property
    def epochs(self) -> Epochs: ...  # noqa: D102

    @property
    def overlap(self) -> int: ...  # noqa: D102

    @property
    def n_times(self) -> int: ...  # noqa: D102

    @property
    def n_neurons(self) -> int: ...  # noqa: D102

    def rows(self, times: NDArray[np.int64]) -> NDArray[np.float32]: ...  # noqa: D102

    def windows(self, times: NDArray[np.int64], size: int) -> NDArray[np.float32]: ...  # noqa: D102


@dataclass(frozen=True, eq=False)
class Recording:
    """Neural activity over time, with the behaviour that was measured at the same time.

    Parameters
    ----------
    neural : array-like or DataFrame of shape (n_times, n_neurons)
        Activity. It is converted to float32; a memory-mapped array is not copied and keeps the
        type of its file.
    labels : mapping of str to array-like of shape (n_times,) or (n_times, n_columns), optional
        Behaviour. Missing samples are NaN, or empty text for class names.
    epochs : list of (start, stop), optional
        Uninterrupted stretches of time, as sample indices. If not given, the whole recording is
        one epoch.
    neuron_names : sequence of str, optional
        If not given, the columns of a DataFrame, otherwise ``"0"``, ``"1"``, ...
    latents : mapping of str to ndarray of shape (n_times, n_columns), optional
        Factors over time, which are known only in simulations.
    ground_truth : mapping of str to ndarray of bool of shape (n_neurons,), optional
        For each factor, whether each neuron is connected to it; known only in simulations.
    time : array-like of shape (n_times,), optional
        Time of each sample in seconds, increasing.
    overlap : int
        Number of samples before and after each sample that share activity with it because the
        activity was smoothed; `overlap_of` computes it. Pairs in time are chosen further apart.
    units : mapping of str to array-like of shape (n_neurons,), or DataFrame, optional
        What is known of each neuron: area, cell type, depth, quality and the like.
    label_info : mapping of str to LabelInfo, optional
        Kind, names of columns and unit of labels, as far as they are known.

    Raises
    ------
    ValueError
        If anything cannot be used. The message lists all problems, not only the first.
    """

    neural: NDArray[Any]
    labels: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    epochs: Epochs = None  # type: ignore[assignment]
    neuron_names: tuple[str, ...] = ()
    latents: Mapping[str, NDArray[Any]] = field(default_factory=dict)
    ground_truth: Mapping[str, NDArray[np.bool_]] = field(default_factory=dict)
    time: NDArray[np.float64] | None = None
    overlap: int = 0
    units: UnitTable = field(default_factory=dict)
    label_info: Mapping[str, LabelInfo] = field(default_factory=dict)

    def __post_init__(self) -> None:
        problems: list[str] = []
        names = tuple(self.neuron_names) or _column_names(self.neural)
        neural = _check_neural(self.neural, problems)
        n_times, n_neurons = neural.shape if neural.ndim == 2 else (None, None)
        labels = {
            str(name): _check_label(str(name), values, n_times, problems)
            for name, values in self.labels.items()
        }
        epochs: Epochs | None = None
        if n_times is not None:
            try:
                epochs = Epochs.check(self.epochs, n_times)
            except ValueError as error:
                problems.append(str(error))
        if names and n_neurons is not None and len(names) != n_neurons:
            problems.append(
                f"neuron_names has {len(names)} entries, but there are {n_neurons} neurons"
            )
        time = None if self.time is None else _check_time(self.time, n_times, problems)
        if not isinstance(self.overlap, int | np.integer) or self.overlap < 0:
            problems.append(
                f"overlap must be a whole number of samples, 0 or more, got {self.overlap!r}"
            )
        units = check_units(self.units, n_neurons, problems)
        for name, info in self.label_info.items():
            _check_info(str(name), info, labels, problems)
        if problems:
            raise InputError("; ".join(problems))
        names = names or unit_names(units)
        set_ = object.__setattr__
        set_(self, "units", units)
        infos = {name: self.label_info.get(name, NOTHING_KNOWN) for name in labels}
        set_(self, "label_info", infos)
        set_(self, "time", time)
        set_(self, "neural", neural)
        set_(self, "labels", labels)
        set_(self, "epochs", epochs)
        set_(self, "neuron_names", tuple(map(str, names or range(n_neurons or 0))))

    @classmethod
    def from_trials(
        cls, neural: Any, labels: Mapping[str, Any] | None = None, **others: Any
    ) -> Recording:
        """Concatenate trials. Each trial becomes an epoch, whose border no pair in time crosses.

        Parameters
        ----------
        neural : array-like of shape (n_trials, n_times, n_neurons), or list of (n_times, n_neurons)
            Trials in a list may differ in length.
        labels : mapping of str to array-like or list, optional
            For each label one array per trial with as many samples as the trial, or one value per
            trial.
        **others
            ``neuron_names`` and ``ground_truth``, as in the constructor.

        Examples
        --------
        >>> import numpy as np, xcebra
        >>> trials = [np.zeros((5, 3)), np.ones((7, 3))]
        >>> rec = xcebra.Recording.from_trials(trials, {"reward": [0.0, 1.0]})
        >>> rec.neural.shape, rec.epochs.pairs(), int(rec.labels["reward"].sum())
        ((12, 3), [(0, 5), (5, 12)], 7)
        """
        trials = list(neural) if np.iterable(neural) else []
        if not trials:
            raise InputError("neural has no trials; give an array (trial, time, neuron) or a list")
        parts = [np.asarray(trial) for trial in trials]
        shapes = sorted({part.shape[1:] for part in parts})
        if parts[0].ndim != 2 or len(shapes) > 1:
            raise InputError(
                "neural must be trials of shape (time, neuron) with the same neurons, got trials "
                f"of shapes {sorted({part.shape for part in parts})[:3]}"
            )
        lengths = np.array([len(part) for part in parts])
        joined = {}
        for name, values_by_trial in (labels or {}).items():
            arrays = [np.asarray(values) for values in values_by_trial]
            if len(arrays) != len(parts):
                raise InputError(
                    f"label {name!r} has {len(arrays)} trials, but neural has {len(parts)}"
                )
            if all(values.ndim == 0 for values in arrays):
                joined[name] = np.repeat(np.array(arrays), lengths)
                continue
            for i, (values, n) in enumerate(zip(arrays, lengths, strict=True)):
                if values.shape != (n, *arrays[0].shape[1:]):
                    raise InputError(
                        f"label {name!r} has shape {values.shape} in trial {i}, where neural has "
                        f"{n} samples; give one row for each, or one value for each trial"
                    )
            joined[name] = np.concatenate(arrays)
        ends = np.cumsum(lengths)
        epochs = list(zip((ends - lengths).tolist(), ends.tolist(), strict=True))
        others.setdefault("neuron_names", _column_names(trials[0]))
        return cls(np.concatenate(parts), joined, epochs, **others)  # type: ignore[arg-type]

    def __repr__(self) -> str:
        labels = ", ".join(
            name if values[:1].size == 1 else f"{name} ({values.shape[1]} columns)"
            for name, values in self.labels.items()
        )
        return f"Recording: {self.extent}; labels: {labels or 'none'}"

    @property
    def extent(self) -> str:
        """Number of neurons, samples and epochs, in words."""
        seconds = ""
        if self.time is not None:
            # Rounded to nanoseconds: the centre of the first bin may be 1e-16 in place of zero.
            start, stop = (round(float(time), 9) + 0.0 for time in self.time[[0, -1]])
            seconds = f" from {start:g} s to {stop:g} s"
        return (
            f"{self.n_neurons} neurons, {self.n_times:,} samples{seconds} in "
            f"{len(self.epochs)} epoch{'s' * (len(self.epochs) != 1)}"
        )

    @property
    def n_times(self) -> int:
        """Number of samples."""
        return int(self.neural.shape[0])

    @property
    def n_neurons(self) -> int:
        """Number of neurons."""
        return int(self.neural.shape[1])

    def rows(self, times: NDArray[np.int64] | slice) -> NDArray[np.float32]:
        """Activity at ``times``, of shape (n, n_neurons).

        The result is a contiguous and writeable array of float32. Of a memory-mapped array, only
        these rows are read.
        """
        return np.require(self.neural[times], np.float32, ["C", "W"])

    def windows(self, times: NDArray[np.int64], size: int) -> NDArray[np.float32]:
        """Activity in the windows around ``times``, of shape (n, size, n_neurons).

        No window crosses the border of an epoch. Windows are not stored: they are gathered from the
        recording in each call.
        """
        indices = self.epochs.windows(times, size, self.n_times)
        return self.rows(indices.ravel()).reshape(*indices.shape, self.n_neurons)


def chunks(array: NDArray[Any], epochs: Epochs | None = None) -> Iterator[NDArray[Any]]:
    """Iterate over the rows of an array in views of about 32 MB, so that it is never copied whole.

    Parameters
    ----------
    array : ndarray of shape (n_times, ...)
    epochs : Epochs, optional
        If given, only samples in these epochs are visited, and no view crosses their borders.
    """
    row_bytes = max(1, int(np.prod(array.shape[1:])) * 8)
    step = max(1, _CHUNK_BYTES // row_bytes)
    for start, stop in epochs.pairs() if epochs is not None else [(0, len(array))]:
        for first in range(start, stop, step):
            yield array[first : min(first + step, stop)]


def rows_at_once(n_columns: int, most: int, length: int = 1) -> int:
    """Number of samples that are processed at once, so that wide arrays do not need much memory.

    Parameters
    ----------
    n_columns : int
        Number of values of each sample.
    most : int
        Largest number of rows.
    length : int
        Number of rows that belong to each sample, such as those of a window.
    """
    return max(1, min(most // length, _VALUES_AT_ONCE // n_columns))


def is_memory_mapped(array: Any) -> bool:
    """Whether an array is memory-mapped, or a view of one that is."""
    while array is not None:
        if isinstance(array, np.memmap):
            return True
        array = getattr(array, "base", None)
    return False


def _column_names(table: Any) -> tuple[str, ...]:
    columns = getattr(table, "columns", None)
    return () if columns is None else tuple(str(name) for name in columns)


def _check_neural(neural: Any, problems: list[str]) -> NDArray[Any]:
    array = np.asarray(neural)
    if array.ndim != 2 or 0 in array.shape:
        problems.append(
            f"neural must have two dimensions (time, neuron), none of them empty; got shape "
            f"{array.shape}; one neuron is given as x[:, None], trials by Recording.from_trials"
        )
        return array
    if array.dtype.kind not in "fiub":
        problems.append(
            f"neural must hold numbers, got dtype {array.dtype}; convert it with astype(float)"
        )
        return array
    if not is_memory_mapped(array):
        with np.errstate(over="ignore"):
            array = np.ascontiguousarray(array, dtype=np.float32)
    bad = first_non_finite(array)
    if bad is not None:
        time, neuron = bad
        problems.append(
            f"neural has {_spell(array[time, neuron])} at time {time}, neuron {neuron} (the first "
            "NaN or inf); fill or cut such samples, for instance with epochs around them"
        )
    return array


def _check_time(values: Any, n_times: int | None, problems: list[str]) -> NDArray[np.float64]:
    time = np.asarray(values)
    if time.dtype.kind not in "fiu":
        problems.append(f"time must hold seconds as numbers, got dtype {time.dtype}")
        return time
    time = time.astype(np.float64)
    if n_times is not None and time.shape != (n_times,):
        problems.append(f"time has shape {time.shape}, but there are {n_times} samples")
    elif time.ndim == 1 and not (np.isfinite(time).all() and (np.diff(time) > 0).all()):
        problems.append("time must be finite and increase from sample to sample; else leave it out")
    return time


def first_non_finite(array: NDArray[Any]) -> tuple[int, int] | None:
    """Row and column of the first value that is not finite as a float32; None if there is none.

    Parameters
    ----------
    array : ndarray of shape (n_times, n_neurons)
    """
    if array.dtype.kind != "f":
        return None
    largest = np.finfo(np.float32).max
    start = 0
    for chunk in chunks(array):
        # The maximum and the minimum are NaN if any value is NaN, and then the comparisons are
        # False. Unlike np.isfinite, this needs no array of the size of the chunk.
        if not (chunk.max() <= largest and chunk.min() >= -largest):
            bad = ~(np.abs(chunk) <= largest)
            time, neuron = np.argwhere(bad)[0]
            return start + int(time), int(neuron)
        start += len(chunk)
    return None


def _spell(value: Any) -> str:
    """Name of a value that is not finite as a float32, for an error message."""
    if np.isfinite(value):
        return f"{value:g}, beyond float32,"
    return "NaN" if np.isnan(value) else "inf" if value > 0 else "-inf"


def _check_label(name: str, values: Any, n_times: int | None, problems: list[str]) -> NDArray[Any]:
    array = np.asarray(values)
    if array.dtype == object:
        array = from_objects(array)
    if array.ndim == 1:
        array = array[:, None]
    where = f"label {name!r}"
    if array.dtype == object:
        problems.append(f"{where} holds text among numbers; give it one kind of values")
        return array
    if array.ndim != 2 or array.shape[1] == 0:
        problems.append(
            f"{where} must have shape (time,) or (time, column), got {np.shape(values)}"
        )
    elif n_times is not None and len(array) != n_times:
        problems.append(
            f"{where} has {len(array)} samples, but the neural data has {n_times}; "
            "resample one of them so that each row is the same moment"
        )
    elif array.dtype.kind == "f" and np.isinf(array).any():
        time, column = np.argwhere(np.isinf(array))[0]
        problems.append(
            f"{where} has {_spell(array[time, column])} at time {time}, column {column}; "
            "use NaN where the label is missing"
        )
    elif array.dtype.kind not in "fiubUS":
        problems.append(f"{where} must hold numbers or class names, got dtype {array.dtype}")
    return array


def _check_info(
    name: str, info: Any, labels: Mapping[str, NDArray[Any]], problems: list[str]
) -> None:
    if name not in labels:
        problems.append(f"label_info describes {name!r}, but the labels are {list(labels)}")
    elif not isinstance(info, LabelInfo):
        problems.append(f"label_info[{name!r}] must be a LabelInfo, got {info!r}")
    elif info.columns and labels[name].shape[1:] != (len(info.columns),):
        problems.append(
            f"label_info[{name!r}] names {len(info.columns)} columns, but label {name!r} has "
            f"{labels[name].shape[-1]}; name each column, or none"
        )


def from_objects(array: NDArray[Any]) -> NDArray[Any]:
    """Convert an array of objects to numbers or to text.

    Parameters
    ----------
    array : ndarray of object of any shape

    Returns
    -------
    ndarray of the same shape
        Text if all values are text or missing, where missing values (None, NaN or pandas.NA) are
        empty; floats if all are numbers or missing, where missing values are NaN; otherwise the
        array itself.
    """
    known = np.array([value == value and value is not None for value in map(_or_none, array.flat)])
    if all(isinstance(value, str) for value in array.flat[known]):
        return np.where(known.reshape(array.shape), array, "").astype(str)
    try:
        return np.where(known.reshape(array.shape), array, np.nan).astype(float)
    except (TypeError, ValueError):
        return array


def _or_none(value: Any) -> Any:
    """The value, or None for pandas.NA, whose comparison with itself is neither True nor False."""
    return None if type(value).__name__ == "NAType" else value


def as_labels(y: Any) -> dict[str, Any]:
    """Convert ``y`` (array, DataFrame, mapping or None) to a dict of labels by name."""
    if y is None:
        return {}
    if isinstance(y, Mapping):
        if not y:
            raise InputError("y is an empty mapping; pass None to learn from time alone")
        return {str(name): values for name, values in y.items()}
    return {"label": y}
