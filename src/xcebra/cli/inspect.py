"""``xcebra inspect``: list the entries of a file."""

from __future__ import annotations

import json
from dataclasses import asdict
from pathlib import Path
from typing import Annotated

import typer

from xcebra.cli.console import Json, one_line_errors

_HEAD = ("name", "could be", "what", "when")


def inspect(
    file: Annotated[Path, typer.Argument(help="A recording: .nwb, .npz, .csv or .parquet.")],
    as_json: Json = False,
) -> None:
    """List the entries of a file, and which could be activity, labels or epochs."""
    from xcebra.io import advise, describe, opened

    with one_line_errors(), opened(file) as contents:
        entries = describe(contents)
        if as_json:
            typer.echo(json.dumps([asdict(entry) for entry in entries]))
            return
        advice = advise(contents, str(file))
        lines = [(e.name, " or ".join(e.roles) or "-", e.what, e.when) for e in entries]
        widths = [max(len(line[i]) for line in [*lines, _HEAD]) for i in range(3)]
        for line in (_HEAD, *lines):
            cells = [text.ljust(width) for text, width in zip(line, widths, strict=False)]
            typer.echo("  ".join([*cells, line[3]]).rstrip())
        details = [(entry.name, detail) for entry in entries for detail in entry.details]
        if details:
            typer.echo()
        for name, detail in details:
            typer.echo(f"{name}: {detail}")
        typer.echo()
        if advice.command:
            typer.echo("To begin with:")
            typer.echo(f"  {advice.command}")
        for reason in advice.reasons:
            typer.echo(f"  ({reason})")
