"""``xcebra fetch``: a public recording to try things with."""

from __future__ import annotations

import json
from collections.abc import Callable
from enum import StrEnum
from pathlib import Path
from typing import Annotated

import typer

from xcebra.cli.console import Json, Quiet, one_line_errors
from xcebra.common.errors import InputError

_Tell = Callable[[str], None] | None

PublicRecording = StrEnum(
    "PublicRecording", {"head_direction": "head-direction", "grid_cells": "grid-cells"}
)


def fetch(
    name: Annotated[PublicRecording, typer.Argument(help="Which recording.")],
    out: Annotated[
        Path,
        typer.Option(help="File to write: .nwb for head-direction, .npz or .nwb for grid-cells."),
    ],
    archive: Annotated[
        Path | None,
        typer.Option(
            help="The package archive that contains the recording, if there is no network; the "
            "message of a failed download says how to get it elsewhere."
        ),
    ] = None,
    cache: Annotated[
        Path | None,
        typer.Option(
            help="Folder in which downloads are kept; by default the one that XCEBRA_CACHE names, "
            "or else the operating system's folder for caches."
        ),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fetch a public recording, from PyPI at first and then from the cache.

    head-direction: 15 units of a mouse in an open field, 7 head-direction cells in the thalamus and
    8 cells in CA1 (90 MB to download). grid-cells: 10 units of a mouse in a round open field for 40
    minutes, two or three of them grid cells (44 MB to download).
    """
    with one_line_errors():
        tell = None if quiet or as_json else _print
        if name == PublicRecording.head_direction:
            _check_ending(out, (".nwb",))
            _head_direction(out, archive, cache, tell)
        else:
            _check_ending(out, (".npz", ".nwb"))
            _grid_cells(out, archive, cache, tell)
        if as_json:
            typer.echo(json.dumps({"file": str(out), "recording": str(name)}))
        elif not quiet:
            typer.echo(out)


def _print(line: str) -> None:
    typer.echo(line, err=True)


def _check_ending(out: Path, endings: tuple[str, ...]) -> None:
    """Raise an error before anything is downloaded."""
    if out.suffix.lower() not in endings:
        raise InputError(f"--out must end in {' or '.join(endings)}, got {str(out)!r}")
    if not out.parent.is_dir():
        raise InputError(f"--out {str(out)!r}: there is no folder {str(out.parent)!r}")


def _head_direction(out: Path, archive: Path | None, cache: Path | None, tell: _Tell) -> None:
    import shutil

    from xcebra.common.files import atomically
    from xcebra.datasets import head_direction_file

    path = head_direction_file(archive=archive, cache=cache, on_download=tell)
    with atomically(out) as temporary:
        shutil.copyfile(path, temporary)


def _grid_cells(out: Path, archive: Path | None, cache: Path | None, tell: _Tell) -> None:
    from xcebra.datasets import mouse_grid_cells
    from xcebra.io import write

    recording = mouse_grid_cells(archive=archive, cache=cache, on_download=tell)
    about = "trial M851_140908t2rh of the example data of ephysiopy 2.0.81 (MIT licence)"
    write(recording, out, spikes=out.suffix.lower() == ".nwb", about=about)
