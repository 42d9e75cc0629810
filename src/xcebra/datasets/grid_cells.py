"""Public recordings of grid cells, read without running code from their pickled objects."""

from __future__ import annotations

import hashlib
import io
import math
import os
import re
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import ArrayLike, NDArray
from scipy.ndimage import gaussian_filter1d

from xcebra.common.checks import choice, number, raise_if
from xcebra.common.errors import InputError
from xcebra.data.recording import Recording, overlap_of
from xcebra.datasets.unpickling import kind_of, plain_array, plain_number, unpickled

Array = NDArray[np.float64]
Stretch = tuple[float, float]

# Start and stop, in seconds, of the stretches in which a rat ran in the open field, by rat and day.
_OPEN_FIELD: dict[tuple[str, int | None], tuple[Stretch, ...]] = {
    ("q", None): ((27826.0, 31223.0),),
    ("r", 1): ((7457.0, 14778.0), (14890.0, 16045.0)),
    ("r", 2): ((10617.0, 13004.0),),
    ("s", None): ((9939.0, 12363.0),),
}
_TWO_DAYS = ("r",)
# Largest distance in seconds from a tracked sample at which position is still interpolated. Larger
# values fill longer gaps in tracking with a straight line; not tuned.
_FARTHEST = 0.025
# Times closer than this share of a bin are taken as equal. Larger values allow for more rounding
# error in the times, smaller ones separate times that differ; not tuned. As in `io.clock`.
_ROUNDING = 1e-6


def grid_cells(
    path: str | os.PathLike[str],
    *,
    rat: str,
    module: int | Sequence[int],
    day: int | None = None,
    sha256: str | None = None,
    bin_size: float = 0.01,
    smooth: float = 0.05,
    step: int = 1,
    least_speed: float = 0.025,
    speed_smooth: float = 1.0,
    conjunctive: ArrayLike | Mapping[int, ArrayLike] | None = None,
) -> Recording:
    """Grid cells of a rat that runs in an open field of 1.5 m (Gardner et al. 2022).

    Parameters
    ----------
    path : path
        One of the public ``.npz`` files, for instance ``rat_r_day1_grid_modules_1_2_3.npz``.
    rat : {"q", "r", "s"}
        Name of the rat, in lower or upper case.
    module : int or sequence of int
        Grid modules, whose cells become neurons in this order.
    day : {1, 2}, optional
        Only for rat r, which was recorded on two days.
    sha256 : str
        SHA-256 digest of the file in 64 hexadecimal digits. Without it the file is not opened, and
        the error message contains its digest.
    bin_size : float
        Width in seconds of the bins in which spikes are counted.
    smooth : float
        Standard deviation, in seconds, of the Gaussian that smooths the counts; 0 for no
        smoothing.
    step : int
        Use every n-th bin, after smoothing.
    least_speed : float
        Speed in metres per second below which a sample belongs to no epoch; 0 keeps all samples
        that are tracked.
    speed_smooth : float
        Standard deviation, in seconds, of the Gaussian that smooths position for the speed.
    conjunctive : array-like of bool (n_cells,) or of int, or mapping of int to these, optional
        Cells to leave out, for instance those that depend on heading as well: a truth value for
        each cell of the module, or the numbers of the cells. The files do not say which cells
        these are. To keep only these cells, name all others. With several modules, a mapping from
        module to cells.

    Returns
    -------
    Recording
        ``neural`` (time, cell) in spikes per second; the labels ``position`` (time, 2) in metres,
        ``heading`` (time, 2), cosine and sine of the azimuth, and ``speed`` (time, 1) in metres
        per second, NaN where tracking is missing; ``time`` (time,), the centres of the bins in
        seconds. Neurons are named ``"module 1 cell 17"``.

    Raises
    ------
    ValueError
        If an argument does not fit, the digest is not the file's, or the file is not of this kind.

    Notes
    -----
    The data are at https://doi.org/10.6084/m9.figshare.16764508. Spike times are stored as pickled
    objects, and a pickle can run code. Therefore the digest is compared first, for the same bytes
    that are read afterwards. Even then no name in a pickle is imported: placeholder classes collect
    the parts of an array, and anything but dicts, lists, numbers and arrays of numbers is refused.

    Smoothing distributes each spike over about four standard deviations of the Gaussian. Samples
    that are closer share spikes. The recording stores this distance (``overlap``), and pairs in
    time are chosen further apart. With ``step=20`` and the
    other defaults, samples share no spikes.

    The recording contains only the time in the open field, and smoothing ends at its borders.
    Samples that are slow or not tracked stay in the recording, so that time steps are even and
    other limits can be tried, but they belong to no epoch, and samples outside of epochs are not
    used in a fit. Pass the recording itself to ``fit``, or its epochs together with its arrays.

    Position is interpolated, and is missing further than 0.025 s from a tracked sample. Speed is
    the length of the velocity, smoothed as a vector. Away from gaps in tracking this is the speed
    of the smoothed position; next to gaps, that speed would fall to zero, and this one does not.

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.grid_cells(
    ...     "rat_s_grid_modules_1.npz", rat="s", module=1, sha256="..."
    ... )  # doctest: +SKIP
    """
    problems: list[str] = []
    number(problems, "bin_size", bin_size, least=0, above=True)
    number(problems, "step", step, least=1, whole=True)
    number(problems, "smooth", smooth, least=0)
    number(problems, "least_speed", least_speed, least=0)
    number(problems, "speed_smooth", speed_smooth, least=0)
    arguments = {"bin_size": bin_size, "smooth": smooth, "step": step}
    arguments |= {"least_speed": least_speed, "speed_smooth": speed_smooth}
    problems += [
        f"{name} is None; leave it out for its usual value"
        for name, value in arguments.items()
        if value is None
    ]
    modules = _modules(problems, module)
    stretches = _stretches(problems, rat, day)
    raise_if(problems)
    left_out = _by_module(conjunctive, modules)
    origin = str(path)
    with _opened(_checked_bytes(path, sha256), origin) as archive:
        cells = {}
        for grid_module in modules:
            trains = _spikes(archive, grid_module, origin)
            for cell in _without(list(trains), left_out.get(grid_module), grid_module):
                cells[f"module {grid_module} cell {cell}"] = trains[cell]
        track = {name: _numbers(archive, name, origin) for name in ("t", "x", "y", "azimuth")}
    if not cells:
        raise InputError("conjunctive leaves out every cell; leave fewer out")
    _check_track(track, stretches, origin)
    clocks = _clocks(stretches, bin_size)
    rates = _rates(list(cells.values()), clocks, bin_size, smooth, step)
    if not rates.any():
        raise InputError(
            f"{origin}: no spike lies in the open field, {_spell(stretches)}; is it the file of "
            f"rat={rat!r}, day={day!r}?"
        )
    labels, epochs = _behaviour(track, clocks, bin_size, speed_smooth, least_speed, step)
    if not np.isfinite(labels["speed"]).any():
        raise InputError(f"{origin}: 'x' or 'y' is missing in the whole open field; it is damaged")
    if not epochs:
        raise InputError(
            f"least_speed={least_speed:g} m/s leaves no sample: the fastest has "
            f"{np.nanmax(labels['speed']):g} m/s; lower it"
        )
    return Recording(
        rates,
        labels,
        epochs,  # type: ignore[arg-type]
        tuple(cells),
        time=np.concatenate([centres[::step] for centres in clocks]),
        overlap=overlap_of(smooth / (bin_size * step)),
    )


# Checks of the arguments.


def _modules(problems: list[str], module: Any) -> list[int]:
    modules = list(module) if np.iterable(module) and not isinstance(module, str) else [module]
    whole = [isinstance(m, (int, np.integer)) and not isinstance(m, bool) for m in modules]
    if not modules or not all(whole) or len(set(modules)) < len(modules):
        problems.append(
            f"module must be a whole number, or several different ones, got {module!r}; for "
            "instance module=1 or module=[1, 2]"
        )
    return modules


def _stretches(problems: list[str], rat: Any, day: Any) -> tuple[Stretch, ...]:
    rats = sorted({known_rat for known_rat, _ in _OPEN_FIELD})
    name = rat.lower() if isinstance(rat, str) else rat
    choice(problems, "rat", name, rats)
    if name not in rats:
        return ()
    stretches = _OPEN_FIELD.get((name, None if day is None else int(day) if day in (1, 2) else -1))
    if stretches is None and name in _TWO_DAYS:
        problems.append(f"day must be 1 or 2: rat {name} was recorded on two days; got {day!r}")
    elif stretches is None:
        problems.append(f"rat {name} was recorded on one day; leave day out, got day={day!r}")
    return stretches or ()


def _by_module(conjunctive: Any, modules: list[int]) -> dict[int, NDArray[Any]]:
    """Return the cells to leave out, for each module."""
    if conjunctive is None:
        return {}
    if isinstance(conjunctive, Mapping):
        unknown = [module for module in conjunctive if module not in modules]
        if unknown:
            raise InputError(f"conjunctive names module {unknown[0]!r}, but module is {modules}")
        return {module: np.asarray(cells) for module, cells in conjunctive.items()}
    if len(modules) > 1:
        raise InputError(
            f"conjunctive must tell the module of its cells, as there are {len(modules)}; give "
            f"a mapping, for instance {{{modules[0]}: [0, 3]}}"
        )
    return {modules[0]: np.asarray(conjunctive)}


def _without(cells: list[int], left_out: NDArray[Any] | None, module: int) -> list[int]:
    """Return the cells of a module without those to leave out."""
    if left_out is None or left_out.size == 0:
        return cells
    if left_out.dtype == bool:
        if left_out.shape != (len(cells),):
            raise InputError(
                f"conjunctive has shape {left_out.shape} for module {module}, which has "
                f"{len(cells)} cells; give one truth value for each"
            )
        return [cell for cell, out in zip(cells, left_out, strict=True) if not out]
    if left_out.dtype.kind not in "iu":
        raise InputError(
            f"conjunctive must hold truth values or numbers of cells, got dtype {left_out.dtype}"
        )
    unknown = np.setdiff1d(left_out, cells)
    if len(unknown):
        raise InputError(
            f"conjunctive names cell {unknown[0]}, but module {module} has {len(cells)} cells "
            f"from {cells[0]} to {cells[-1]}"
        )
    return [cell for cell in cells if cell not in left_out]


# Contents of the file.


def _checked_bytes(path: str | os.PathLike[str], sha256: str | None) -> bytes:
    """Read the file once, and return its bytes if their digest is the expected one."""
    if sha256 is not None and not (
        isinstance(sha256, str) and re.fullmatch("[0-9a-fA-F]{64}", sha256)
    ):
        raise InputError(f"sha256 must be 64 hexadecimal digits, got {sha256!r}")
    data = Path(path).read_bytes()
    digest = hashlib.sha256(data).hexdigest()
    if sha256 is None:
        raise InputError(
            f"{path}: was not opened, as sha256 is missing. Its spike times are pickled objects, "
            f"and a pickle can run code. Its digest is {digest}; compare it with a source that you "
            f"trust, then pass sha256={digest!r} (--sha256 on the command line)"
        )
    if sha256.lower() != digest:
        raise InputError(
            f"{path}: was not opened, as its sha256 is {digest}, but {sha256} was given; it is "
            "damaged or another file: download it again"
        )
    return data


def _opened(data: bytes, origin: str) -> zipfile.ZipFile:
    try:
        return zipfile.ZipFile(io.BytesIO(data))
    except zipfile.BadZipFile as error:
        raise InputError(f"{origin}: is damaged or no .npz file ({error})") from None


def _member(archive: zipfile.ZipFile, name: str, origin: str) -> io.BytesIO:
    try:
        return io.BytesIO(archive.read(f"{name}.npy"))
    except KeyError:
        names = ", ".join(sorted(file.removesuffix(".npy") for file in archive.namelist()))
        raise InputError(
            f"{origin}: has no {name!r}, only {names or 'nothing'}; is it one of the public files?"
        ) from None
    # zipfile and zlib raise many kinds of errors for damaged files.
    except Exception as error:
        raise InputError(f"{origin}: {name!r} is damaged ({error})") from None


def _numbers(archive: zipfile.ZipFile, name: str, origin: str) -> Array:
    """Read an array with one number per sample of the tracking."""
    file = _member(archive, name, origin)
    try:
        array = np.asarray(npy.read_array(file, allow_pickle=False))
    except ValueError as error:
        raise InputError(f"{origin}: {name!r} is no array of numbers ({error})") from None
    if array.ndim != 1 or array.dtype.kind not in "fiu":
        raise InputError(
            f"{origin}: {name!r} must hold one number for each moment, got shape {array.shape} "
            f"and dtype {array.dtype}"
        )
    return array.astype(np.float64)


def _spikes(archive: zipfile.ZipFile, module: int, origin: str) -> dict[int, Array]:
    """Return the spike times of each cell of a module, in the order of the cells' numbers."""
    name = f"spikes_mod{module}"
    matches = [re.fullmatch(r"spikes_mod(\d+)\.npy", file) for file in archive.namelist()]
    modules = sorted(int(match[1]) for match in matches if match)
    if module not in modules:
        raise InputError(
            f"{origin}: has no module {module}; it has {modules if modules else 'none'}: choose "
            "among these, or take the file of another rat"
        )
    where = f"{origin}: {name!r}"
    times_by_cell = unpickled(_member(archive, name, origin), where)
    if not isinstance(times_by_cell, dict) or not times_by_cell:
        raise InputError(
            f"{where} must hold a dict of spike times by cell, got "
            f"{'an empty one' if times_by_cell == {} else kind_of(times_by_cell)}"
        )
    trains = {}
    for key, times in times_by_cell.items():
        cell = plain_number(key)
        if not isinstance(cell, int):
            raise InputError(f"{where} must have whole numbers as its cells, got {kind_of(key)}")
        trains[cell] = _train(times, f"{where}: cell {cell}")
    return dict(sorted(trains.items()))


def _train(value: Any, where: str) -> Array:
    """Return the spike times of a cell, from an object of a pickle."""
    try:
        times = plain_array(value)
        if times.size and sum(n != 1 for n in times.shape) > 1:
            raise InputError(f"got an array of shape {times.shape}")
    except ValueError as error:
        raise InputError(f"{where} must have a list of spike times in seconds: {error}") from None
    bad = np.flatnonzero(~np.isfinite(times))
    if len(bad):
        raise InputError(f"{where} has {times.flat[bad[0]]} as spike time {bad[0]}; remove it")
    return times.ravel()


# Activity and behaviour in bins.


def _check_track(track: Mapping[str, Array], stretches: tuple[Stretch, ...], origin: str) -> None:
    """Raise an error if arrays have different lengths, or no sample is in the open field."""
    t = track["t"]
    for name, values in track.items():
        if values.shape != t.shape:
            raise InputError(
                f"{origin}: {name!r} has {len(values)} samples, but 't' has {len(t)}; it is damaged"
            )
    for start, stop in stretches:
        inside = t[(t >= start - _FARTHEST) & (t <= stop + _FARTHEST)]
        if len(inside) == 0:
            known = t[np.isfinite(t)]
            runs = f"from {known.min():g} to {known.max():g} s" if len(known) else "over no time"
            raise InputError(
                f"{origin}: no position in the open field from {start:g} to {stop:g} s: 't' runs "
                f"{runs}; is it the file of this rat and day?"
            )
        back = np.flatnonzero(np.diff(inside) < 0)
        if len(back):
            raise InputError(
                f"{origin}: 't' goes back at {inside[back[0] + 1]:g} s; its times must increase"
            )


def _clocks(stretches: tuple[Stretch, ...], width: float) -> list[Array]:
    """Return the centres of the whole bins in each stretch."""
    clocks: list[Array] = []
    for start, stop in stretches:
        n = math.floor((stop - start) / width + _ROUNDING)
        if n < 2:
            raise InputError(
                f"bin_size={width:g} s is too long for the open field from {start:g} to {stop:g} "
                f"s; it must be {(stop - start) / 2:g} or less"
            )
        clocks.append(start + width * (np.arange(n, dtype=np.float64) + 0.5))
    return clocks


def _rates(
    trains: list[Array], clocks: list[Array], width: float, smooth: float, step: int
) -> NDArray[np.float32]:
    """Return spikes per second, smoothed separately in each stretch; shape (time, cell)."""
    sizes = [len(centres[::step]) for centres in clocks]
    rates = np.empty((sum(sizes), len(trains)), dtype=np.float32)
    row = 0
    for centres, size in zip(clocks, sizes, strict=True):
        for column, train in enumerate(trains):
            rate = _counts(train, centres[0] - width / 2, width, len(centres)) / width
            if smooth:
                rate = gaussian_filter1d(rate, smooth / width)
            rates[row : row + size, column] = rate[::step]
        row += size
    return rates


def _counts(train: Array, start: float, width: float, n: int) -> NDArray[np.int64]:
    """Count the spikes in each bin.

    A spike that lies on an edge, except for rounding, belongs to the bin after the edge.
    """
    place = (train - start) / width + _ROUNDING
    return np.bincount(place[(place >= 0) & (place < n)].astype(np.int64), minlength=n)


def _behaviour(
    track: Mapping[str, Array],
    clocks: list[Array],
    width: float,
    speed_smooth: float,
    least_speed: float,
    step: int,
) -> tuple[dict[str, Array], list[tuple[int, int]]]:
    """Return labels at the centres of the bins, and the epochs in which the rat is fast enough."""
    path = np.column_stack([track["x"], track["y"]])
    azimuth = np.where(np.isfinite(track["azimuth"]), track["azimuth"], np.nan)
    directions = np.column_stack([np.cos(azimuth), np.sin(azimuth)])
    parts: dict[str, list[Array]] = {"position": [], "heading": [], "speed": []}
    epochs: list[tuple[int, int]] = []
    row = 0
    for centres in clocks:
        position = _interpolated(track["t"], path, centres)
        heading = _interpolated(track["t"], directions, centres)
        with np.errstate(invalid="ignore"):
            heading /= np.linalg.norm(heading, axis=1, keepdims=True)
        speed = _speed(position, width, speed_smooth)
        for label, values in zip(parts, (position, heading, speed[:, None]), strict=True):
            parts[label].append(values[::step])
        for run in _runs(np.greater_equal(speed, least_speed)):
            # A border becomes the first of the bins in use that is at or after it.
            start, stop = (row - (-border // step) for border in run)
            if start < stop:
                epochs.append((start, stop))
        row += len(position[::step])
    return {label: np.concatenate(values) for label, values in parts.items()}, epochs


def _interpolated(t: Array, values: Array, centres: Array) -> Array:
    """Interpolate columns at the centres of bins; NaN where no known sample is near."""
    known = np.isfinite(t) & np.isfinite(values).all(axis=1)
    known &= (t >= centres[0] - _FARTHEST) & (t <= centres[-1] + _FARTHEST)
    t, values = t[known], values[known]
    if len(t) == 0:
        return np.full((len(centres), values.shape[1]), np.nan)
    columns = np.column_stack([np.interp(centres, t, column) for column in values.T])
    after = np.searchsorted(t, centres)
    distance = np.minimum(
        np.abs(t[np.minimum(after, len(t) - 1)] - centres),
        np.abs(t[np.maximum(after - 1, 0)] - centres),
    )
    columns[distance > _FARTHEST] = np.nan
    return columns


def _speed(position: Array, width: float, smooth: float) -> Array:
    """Return the length of the smoothed velocity where the rat is tracked; NaN elsewhere."""
    speed = np.full(len(position), np.nan)
    for start, stop in _runs(np.isfinite(position[:, 0])):
        if stop - start > 1:
            velocity = np.gradient(position[start:stop], width, axis=0)
            if smooth:
                velocity = gaussian_filter1d(velocity, smooth / width, axis=0)
            speed[start:stop] = np.linalg.norm(velocity, axis=1)
    return speed


def _runs(mask: NDArray[np.bool_]) -> list[tuple[int, int]]:
    """Return start and stop of each stretch in which a mask is true."""
    borders = np.flatnonzero(np.diff(np.concatenate([[False], mask, [False]])))
    return list(zip(borders[::2].tolist(), borders[1::2].tolist(), strict=True))


def _spell(stretches: tuple[Stretch, ...]) -> str:
    return " and ".join(f"{start:g}-{stop:g} s" for start, stop in stretches)
