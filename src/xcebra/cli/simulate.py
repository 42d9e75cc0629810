"""``xcebra simulate``: simulate a recording with known wiring."""

from __future__ import annotations

import json
from dataclasses import replace
from enum import StrEnum
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcebra.cli.console import Json, Quiet, one_line_errors, without_none
from xcebra.common.errors import InputError

if TYPE_CHECKING:
    from xcebra.data.recording import Recording

Simulation = StrEnum("Simulation", {"synthetic": "synthetic", "navigation": "navigation"})
_SYNTHETIC_INTERVAL = 0.05  # seconds


def simulate(
    kind: Annotated[Simulation, typer.Argument(help="What to simulate.")],
    out: Annotated[Path, typer.Option(help="File to write: .nwb or .npz.")],
    seed: Annotated[
        int, typer.Option(help="Random seed; another seed gives another recording.")
    ] = 0,
    steps: Annotated[
        int | None,
        typer.Option(
            help="Number of time steps; by default 100,000 (synthetic) or 20,000 (navigation)."
        ),
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(
            help="Length of a time step (s); by default 0.05 (synthetic) or 0.1 (navigation)."
        ),
    ] = None,
    noise: Annotated[
        float, typer.Option(help="Noise, in units of each neuron's standard deviation.")
    ] = 0.0,
    counts: Annotated[
        bool,
        typer.Option("--counts", help="Draw Poisson counts; an .nwb file then holds spike times."),
    ] = False,
    hidden: Annotated[
        int | None,
        typer.Option(help="synthetic: columns of the factor that is no label; by default 4."),
    ] = None,
    observed: Annotated[
        int | None, typer.Option(help="synthetic: columns of the label z2; by default 2.")
    ] = None,
    correlation: Annotated[
        float | None, typer.Option(help="synthetic: correlation of the two factors; by default 0.")
    ] = None,
    cells: Annotated[
        int | None,
        typer.Option(help="navigation: cells of each of the four kinds; by default 100."),
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Simulate a recording whose wiring is known.

    synthetic: 50 neurons, a label z2 that drives half of them, and a factor that drives all.
    navigation: a rat in a box; position drives place and grid cells, heading drives head-direction
    cells, and speed drives speed cells.
    """
    with one_line_errors(quiet):
        from xcebra.io import write

        if interval is not None and not interval > 0:
            raise InputError(f"--interval must be above 0 seconds, got {interval:g}")
        common = without_none(n_steps=steps, noise=noise, counts=counts, seed=seed)
        sizes = without_none(hidden=hidden, observed=observed, correlation=correlation)
        if kind == Simulation.navigation:
            recording = _navigation(common, sizes, cells, interval)
        else:
            recording = _synthetic(common, sizes, cells, interval)
        write(recording, out, spikes=counts, about=f"simulated by xcebra: {kind}, seed {seed}")
        driven = {name: int(recording.ground_truth[name].sum()) for name in recording.labels}
        if as_json:
            summary = {"file": str(out), "neurons": recording.n_neurons, "steps": recording.n_times}
            typer.echo(json.dumps({**summary, "driven": driven}))
        elif not quiet:
            typer.echo(f"{out}: {recording.n_neurons} neurons, {recording.n_times:,} steps")
            for name, n in driven.items():
                typer.echo(f"label {name} drives {n} of them")


def _navigation(
    common: dict[str, Any], sizes: dict[str, Any], cells: int | None, interval: float | None
) -> Recording:
    from xcebra.datasets import navigation

    if sizes:
        raise InputError(f"--{next(iter(sizes))} is for synthetic, not for navigation")
    return navigation(**common, **without_none(n_cells=cells, interval=interval))


def _synthetic(
    common: dict[str, Any], sizes: dict[str, Any], cells: int | None, interval: float | None
) -> Recording:
    import numpy as np

    from xcebra.datasets import synthetic

    if cells is not None:
        raise InputError("--cells is for navigation; synthetic has 50 neurons")
    names = {"hidden": "n_hidden", "observed": "n_observed"}
    recording = synthetic(**common, **{names.get(k, k): value for k, value in sizes.items()})
    centres = (interval or _SYNTHETIC_INTERVAL) * (np.arange(recording.n_times) + 0.5)
    return replace(recording, time=centres.astype(np.float64))
