"""A public recording of head-direction cells and hippocampal cells in a mouse."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from xcebra.data.recording import Recording
from xcebra.datasets.package_archives import Member, PackageArchive, fetch
from xcebra.io import read

ARCHIVE = PackageArchive(
    project="pynapple",
    file="pynapple-0.11.4.tar.gz",
    sha256="c46a7f98585417a60df59b023823aeb4f18a1672bb33a9c21cd380578f94d79f",
    size=89_506_875,
    members=(
        Member(
            "pynapple-0.11.4/tests/nwbfilestest/neurosuite/pynapplenwb/A2929-200711.nwb",
            "a329216d2108dac0fff3fd3326c99f52f1bec6c354c2cdb330978e558caeb1f2",
            7_200_244,
        ),
    ),
    command="pip download --no-deps --no-binary pynapple pynapple==0.11.4",
)

LABELS = ("heading=ry", "position=x,z", "speed=speed(x,z)")


def head_direction(
    *,
    bin_size: float = 0.05,
    labels: Sequence[str] = LABELS,
    epochs: Any = None,
    archive: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
) -> Recording:
    """Head-direction cells and hippocampal cells of a mouse that explores an open field.

    15 units and 529 s of tracking, session A2929-200711 of the example data of pynapple. Units 0 to
    6 lie in the anterodorsal nucleus of the thalamus (``adn``) and are head-direction cells; units
    7 to 14 lie in CA1 and carry no heading to speak of. The areas are in the file, so that it is
    known which units a map of heading should find.

    Parameters
    ----------
    bin_size : float
        Width in seconds of the bins in which spikes are counted.
    labels : sequence of str
        Labels, as in `xcebra.read`. The file has the angles ``rx``, ``ry`` and ``rz`` of the head
        in radians, of which ``ry`` is the heading, and the position ``x``, ``y`` and ``z``, of
        which ``y`` is the height.
    epochs : str, list of (start, stop), or IntervalSet, optional
        Stretches of time, as in `xcebra.read`. By default the time in which all labels are known:
        the mouse was tracked for most of the epoch ``"wake"``, and not in the epoch ``"sleep"``.
    archive : path, optional
        The source archive of pynapple 0.11.4, if there is no network. It comes with
        ``pip download --no-deps --no-binary pynapple pynapple==0.11.4``.
    cache : path, optional
        Folder in which the file is kept. By default the one that the environment variable
        ``XCEBRA_CACHE`` names, or else the operating system's folder for caches.

    Returns
    -------
    Recording
        ``neural`` (time, unit) counts; the labels ``heading`` (time, 1) in radians, ``position``
        (time, 2) and ``speed`` (time, 1) in the units of the tracking; ``units`` with the area of
        each unit as ``location``.

    Raises
    ------
    ConnectionError
        If the file is not kept yet and cannot be downloaded.
    ValueError
        If an argument does not fit, or ``archive`` is another file.

    See Also
    --------
    head_direction_file : the NWB file itself.

    Notes
    -----
    On first use, the source archive of pynapple 0.11.4 (90 MB, MIT licence) is downloaded from
    PyPI, or from the index that the environment variable ``PIP_INDEX_URL`` names. Its digest is
    checked, the recording (7 MB) is kept, and no network is needed from then on. It needs the
    extra ``nwb``.

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.head_direction()  # doctest: +SKIP
    >>> rec.units["location"].tolist().count("adn")  # doctest: +SKIP
    7
    """
    path = head_direction_file(archive=archive, cache=cache)
    return read(
        path,
        labels=list(labels),
        epochs=epochs,
        bin_size=bin_size,
        label_kind={"heading": "circular"} if "heading=ry" in labels else None,
    )


def head_direction_file(
    *,
    archive: str | os.PathLike[str] | None = None,
    cache: str | os.PathLike[str] | None = None,
    on_download: Callable[[str], None] | None = None,
) -> Path:
    """Path of the NWB file of `head_direction`, which is downloaded on first use.

    Parameters
    ----------
    archive : path, optional
        As in `head_direction`.
    cache : path, optional
        As in `head_direction`.
    on_download : callable, optional
        Called with one line of text before a download starts.

    Returns
    -------
    Path
        The file in the cache. Copy it to change it: a changed file is replaced.
    """
    (path,) = fetch(ARCHIVE, archive=archive, cache=cache, on_download=on_download).values()
    return path
