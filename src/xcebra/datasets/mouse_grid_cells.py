"""A public recording of grid cells in a mouse."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from xcebra.data.recording import Recording
from xcebra.datasets.axona import (
    read_axona_clusters,
    read_axona_position,
    read_axona_spikes,
)
from xcebra.datasets.package_archives import Member, PackageArchive, fetch
from xcebra.io import Intervals, read

_TRIAL = "M851_140908t2rh"
_FILES = {
    ".pos": ("3925bb4b2c749bd9f810443c0fbc93773bb79ae15a4b87ccc4bbd2a08dfdfa07", 2_401_622),
    ".3": ("cbe2c82b00557c76e8cb38bff6a4c5fcdc4a7d02d43868bc70107806327248a6", 11_421_831),
    ".4": ("7b2520f165af2660b38502d701866211650c1442b00434f70461d7cca2e540af", 11_619_903),
    "_3.cut": ("2cb014c60a1c85000214b418ce13e7b398716f79e5d8832766ac418d33a84439", 112_820),
    "_4.cut": ("f7a3c60f98bf9eb8f44b56ae86496bf669380da1d1ba19eaaee14d6aba659f47", 171_509),
}
ARCHIVE = PackageArchive(
    project="ephysiopy",
    file="ephysiopy-2.0.81-py3-none-any.whl",
    sha256="800b61c7cfdba90b77bebb4f3a22fd3e23ca5e6909d88ef49f3b0b5d3f19352c",
    size=43_662_106,
    members=tuple(
        Member(f"ephysiopy/tests/data/{_TRIAL}{ending}", *known) for ending, known in _FILES.items()
    ),
    command="pip download --no-deps --ignore-requires-python ephysiopy==2.0.81",
)

# Clusters of a tetrode that are one cell: it was cut into two.
_SAME_CELL = {(3, 9): 5}
# Cluster of spikes that belong to no cell.
_NOISE = 0
# Seconds between which light pulses were given, from the trial's settings.
_LIGHT = (600.0, 1800.0)

LABELS = ("position", "speed", "movement_direction", "light")


def mouse_grid_cells(
    *,
    bin_size: float = 0.02,
    labels: Sequence[str] = LABELS,
    epochs: Any = None,
    archive: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    on_download: Callable[[str], None] | None = None,
) -> Recording:
    """Grid cells and other cells of a mouse in a round open field of 1 m.

    10 units and 40 minutes, trial M851_140908t2rh of the example data of ephysiopy. Units ``3-5``
    and ``3-2`` are grid cells, and ``4-1`` is likely one. Light pulses were given in the middle 20
    minutes, and some units are there for a part of the time only: the recording is not stationary.

    Parameters
    ----------
    bin_size : float
        Width in seconds of the bins in which spikes are counted. The video has 50 frames per
        second.
    labels : sequence of str
        Labels, as in `xcebra.read`, among ``position``, ``speed``, ``movement_direction`` and
        ``light``, or made from them.
    epochs : str, list of (start, stop), or IntervalSet, optional
        Stretches of time, as in `xcebra.read`; ``"before"``, ``"stimulation"`` and ``"after"`` are
        those of the light pulses. By default, the whole trial.
    archive : path, optional
        The wheel of ephysiopy 2.0.81, if there is no network. It comes with
        ``pip download --no-deps --ignore-requires-python ephysiopy==2.0.81``.
    cache : path, optional
        Folder in which the files are kept. By default the one that the environment variable
        ``XCEBRA_CACHE`` names, or else the operating system's folder for caches.
    on_download : callable, optional
        Called with one line of text before a download starts.

    Returns
    -------
    Recording
        ``neural`` (time, unit) counts; the labels ``position`` (time, 2) in metres, ``speed``
        (time, 1) in metres per second, ``movement_direction`` (time, 1) in radians and ``light``
        (time, 1), 1 while light pulses are given; ``units`` with the tetrode and the cluster of
        each unit.

    Raises
    ------
    ConnectionError
        If the files are not kept yet and cannot be downloaded.
    ValueError
        If an argument does not fit, or ``archive`` is another file.

    Notes
    -----
    On first use, the wheel of ephysiopy 2.0.81 (44 MB, MIT licence) is downloaded from PyPI, or
    from the index that the environment variable ``PIP_INDEX_URL`` names. Its digest is checked,
    five files of it (26 MB) are kept, and no network is needed from then on.

    Position is interpolated where the light on the head was not seen (15 % of the frames), and
    averaged over 0.4 s. Speed and direction of movement are those of the averaged position. They
    say where the animal goes, not where its head points, which one light cannot tell. Clusters 5
    and 9 of tetrode 3 are taken as one cell.

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.mouse_grid_cells(bin_size=0.1)  # doctest: +SKIP
    """
    files = fetch(ARCHIVE, archive=archive, cache=cache, on_download=on_download)
    times, position = read_axona_position(files[f"{_TRIAL}.pos"])
    velocity = np.gradient(position, times, axis=0)
    trains: dict[str, Any] = {}
    for tetrode in (3, 4):
        spikes = read_axona_spikes(files[f"{_TRIAL}.{tetrode}"])
        clusters = read_axona_clusters(files[f"{_TRIAL}_{tetrode}.cut"])
        for (cut_tetrode, part), whole in _SAME_CELL.items():
            if cut_tetrode == tetrode:
                clusters[clusters == part] = whole
        for cluster in np.unique(clusters[clusters != _NOISE]):
            trains[f"{tetrode}-{cluster}"] = spikes[clusters == cluster]
    stop = times[-1] + times[0]  # the end of the last frame
    intervals = Intervals(
        np.array([0.0, *_LIGHT]),
        np.array([*_LIGHT, stop]),
        {"tag": np.array(["before", "stimulation", "after"])},
    )
    source = {
        "units": trains,
        "position": (times, position),
        "speed": (times, np.linalg.norm(velocity, axis=1)),
        "movement_direction": (times, np.arctan2(velocity[:, 1], velocity[:, 0])),
        "light": (times, ((times > _LIGHT[0]) & (times < _LIGHT[1])).astype(np.int64)),
        "epochs": intervals,
    }
    names = [name.split("-") for name in trains]
    kinds = {"movement_direction": "circular", "light": "discrete"}
    return read(
        source,
        labels=list(labels),
        epochs=[(0.0, stop)] if epochs is None else epochs,
        bin_size=bin_size,
        label_kind={name: kind for name, kind in kinds.items() if name in labels},
        unit_table={
            "unit": list(trains),
            "tetrode": [int(tetrode) for tetrode, _ in names],
            "cluster": [int(cluster) for _, cluster in names],
        },
    )
