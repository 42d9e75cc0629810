"""``xcebra attribute``: make the attribution map of a run."""

from __future__ import annotations

import json
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcebra.cli.console import GroupBy, Json, Quiet, RunFolder, one_line_errors, without_none
from xcebra.cli.sessions import attribute_sessions, refuse_for_sessions
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
    group_by: GroupBy = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the attribution map of a run: which neurons carry which label."""
    with one_line_errors(quiet):
        from xcebra.attribution.groups import group_names
        from xcebra.report.questions import ordered_blocks
        from xcebra.report.run_folder import MAP, Run
        from xcebra.report.run_log import logged
        from xcebra.report.session_runs import SessionRun, is_session_run

        if is_session_run(run):
            refuse_for_sessions(run, out=out, keep_time=keep_time or None, figure=figure)
            several = SessionRun.open(run)
            maps = {
                "method": method,
                "basis": basis,
                "smooth": smooth,
                "aggregate": aggregate,
                "block": block,
                "test": test,
                "refits": refits,
            }
            attribute_sessions(several, maps, group_by, quiet=quiet, as_json=as_json)
            return
        path = out or run / MAP
        if path.suffix != ".nc":
            raise InputError(f"--out {path} must end in .nc, the map's file format (netCDF)")
        if figure is not None and figure.suffix not in _FIGURES:
            raise InputError(f"--figure {figure} must end in {', '.join(_FIGURES)}")
        opened_run = Run.open(run)
        if group_by is not None:
            # Raises an error before the map is made, which takes longer.
            group_names(opened_run.recording.units or opened_run.model.units_, group_by)
        with logged(run, "attribute"):
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
            result: dict[str, Any] = {"map": str(path), "neurons": _ranked(amap)}
            if group_by is not None:
                result["groups"] = _grouped(amap, group_by)
            typer.echo(json.dumps(result))
        elif not quiet:
            fits = opened_run.model.goodness_of_fit_
            for name in ordered_blocks(amap):
                typer.echo(_top_neurons(amap, name, fits.get(name)))
                if line := _disagreement(amap, name, fits.get(name)):
                    typer.echo(line)
                if group_by is not None and name not in amap.controls:
                    for line in _group_lines(amap, group_by, name, fits.get(name)):
                        typer.echo(line)
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


def _grouped(amap: AttributionMap, group_by: str) -> dict[str, list[dict[str, Any]]]:
    """Return every group of each block, highest mean score first, as plain values."""
    groups = amap.by(group_by)
    return {
        name: [
            {
                groups.column: score.group,
                "neurons": score.n_neurons,
                "mean_score": score.mean_score,
                **without_none(
                    connected=score.n_connected, share_low=score.low, share_high=score.high
                ),
            }
            for score in scores
        ]
        for name, scores in groups.scores.items()
    }


def _group_lines(
    amap: AttributionMap, group_by: str, name: str, fit: GoodnessOfFit | None
) -> list[str]:
    """Return one line for each group of neurons; none for a label that was not found."""
    from xcebra.report.questions import doubt

    if doubt({} if fit is None else {name: fit}, name) is not None:
        return []
    groups = amap.by(group_by)
    return [f"  {groups.column} {score.in_words()}" for score in groups.scores[name]]


def _disagreement(amap: AttributionMap, name: str, fit: GoodnessOfFit | None) -> str:
    """Return one line if map and encoding model of a label disagree, as the page says it."""
    from xcebra.report.agreement import agreement_words, disagree
    from xcebra.report.questions import doubt

    asked = name not in amap.controls and doubt({} if fit is None else {name: fit}, name) is None
    if not asked or not disagree(amap, name):
        return ""
    neurons = [item.neuron for item in amap.disagreements(name)]
    names = f": {', '.join(neurons[:_N_SHOWN])}" if neurons else ""
    more = f" and {len(neurons) - _N_SHOWN} more" if len(neurons) > _N_SHOWN else ""
    return f"  second opinion: {agreement_words(amap, name)}{names}{more}; xcebra report says more"


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
    title = f"{name} (controlled for)" if name in amap.controls else name
    line = f"{title}: top neurons: "
    if name in amap.connections:
        order = order[amap.significant(name)[order]]
        line = f"{title}: {amap.connections[name].in_words()}"
        if len(order) == 0:
            return line
        line += "; top neurons: "
    neurons = [f"{amap.neuron_names[i]} (score {scores[i]:.3g})" for i in order[:_N_SHOWN]]
    return line + ", ".join(neurons)
