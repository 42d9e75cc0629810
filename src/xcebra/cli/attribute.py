"""``xcebra attribute``: make the attribution map of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcebra.cli.console import Json, Quiet, RunFolder, one_line_errors, without_none
from xcebra.common.choices import Aggregate, Basis, Method
from xcebra.common.errors import InputError

if TYPE_CHECKING:
    from xcebra.attribution.attribution_map import AttributionMap
    from xcebra.training.goodness_of_fit import GoodnessOfFit

_N_SHOWN = 5  # neurons printed for each block; the map has all of them
_FIGURES = (".png", ".svg", ".pdf")


def attribute(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="File for the map; by default map.nc in the folder.")
    ] = None,
    method: Annotated[
        Method | None, typer.Option(help="How the map is made; by default the recipe's best.")
    ] = None,
    basis: Annotated[Basis | None, typer.Option(help="Axes of the embedding.")] = None,
    smooth: Annotated[
        int | None, typer.Option(help="Number of neighbours over which Jacobians are averaged.")
    ] = None,
    aggregate: Annotated[Aggregate, typer.Option(help="How to combine time steps.")] = "mean",
    block: Annotated[
        str | None, typer.Option(help="Attribute one block alone: a label's name, or time.")
    ] = None,
    keep_time: Annotated[
        bool, typer.Option("--keep-time", help="Keep the map of every time step.")
    ] = False,
    test: Annotated[
        bool, typer.Option(help="Test each neuron's connection, given everything else.")
    ] = True,
    refits: Annotated[
        int, typer.Option(help="Further fits, with other seeds, that must agree with the test.")
    ] = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the map: .png, .svg or .pdf.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the attribution map of a run: which neurons carry which label."""
    with one_line_errors():
        from xcebra.report.run_folder import MAP, Run

        path = out or run / MAP
        if path.suffix != ".nc":
            raise InputError(f"--out {path} must end in .nc, the map's file format (netCDF)")
        if figure is not None and figure.suffix not in _FIGURES:
            raise InputError(f"--figure {figure} must end in {', '.join(_FIGURES)}")
        opened_run = Run.open(run)
        amap = opened_run.model.attribute(
            opened_run.recording,
            method=method,
            basis=basis,
            smooth=smooth,
            aggregate=aggregate,
            block=block,
            keep_time=keep_time,
            test=test,
            refits=refits,
        )
        path.parent.mkdir(parents=True, exist_ok=True)
        amap.save(path)
        if figure is not None:
            truth = opened_run.recording.ground_truth
            drawing: Any = amap.plot(truth=truth or None).figure
            figure.parent.mkdir(parents=True, exist_ok=True)
            drawing.savefig(figure, dpi=200, bbox_inches="tight")
        if as_json:
            typer.echo(json.dumps({"map": str(path), "neurons": _ranked(amap)}))
        elif not quiet:
            for name in amap.blocks:
                typer.echo(_top_neurons(amap, name, opened_run.model.goodness_of_fit_.get(name)))
            typer.echo(path)
            if figure is not None:
                typer.echo(figure)


def _ranked(amap: AttributionMap) -> dict[str, list[dict[str, Any]]]:
    """Return every neuron of each block, highest score first, as plain values."""
    ranked: dict[str, list[dict[str, Any]]] = {}
    for name in amap.blocks:
        scores, tested = amap.block(name), amap.connections.get(name)
        opinion = amap.opinions.get(name)
        encoding = None if opinion is None else opinion.encoding
        ranked[name] = [
            {
                "neuron": amap.neuron_names[i],
                "score": float(scores[i]),
                **without_none(
                    p_value=None if tested is None else float(tested.p_values[i]),
                    share=None if tested is None else float(tested.share[i]),
                    encoding=None if encoding is None else float(encoding[i]),
                    rate=None if opinion is None else float(opinion.rate[i]),
                ),
            }
            for i in (-scores).argsort(kind="stable")
        ]
    return ranked


def _top_neurons(amap: AttributionMap, name: str, fit: GoodnessOfFit | None) -> str:
    """Return one line about a block: its neurons with the highest scores.

    If neurons were tested, only significant ones are named. None are named for a label that was
    not found in the activity.
    """
    if fit is not None and fit.verdict == "no":
        return f"{name}: not found in the activity, so no neuron is called connected to it"
    if fit is not None and fit.verdict == "unclear" and name != "time":
        return f"{name}: unclear whether it is in the activity, so no neuron is called connected"
    scores = amap.block(name)
    order = (-scores).argsort(kind="stable")
    line = f"{name}: top neurons: "
    if name in amap.connections:
        order = order[amap.significant(name)[order]]
        line = f"{name}: {amap.connections[name].in_words()}"
        if len(order) == 0:
            return line
        line += "; top neurons: "
    neurons = [f"{amap.neuron_names[i]} (score {scores[i]:.3g})" for i in order[:_N_SHOWN]]
    return line + ", ".join(neurons)
