"""``xcebra fit``: fit a model to one or several recordings, in the folder of a run."""

from __future__ import annotations

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any

import typer

from xcebra.cli.console import Json, Quiet, one_line_errors, without_none
from xcebra.common.choices import ObjectiveName, RecipeName, SessionWeight, TimeBlock
from xcebra.common.errors import InputError
from xcebra.common.progress import watched

if TYPE_CHECKING:
    from xcebra.report.run_folder import Run
    from xcebra.report.run_settings import Settings
    from xcebra.report.session_runs import SessionRun
    from xcebra.report.session_settings import Mode, Session, SessionSettings
    from xcebra.training.goodness_of_fit import GoodnessOfFit


def fit(
    files: Annotated[
        list[Path] | None,
        typer.Argument(
            help="A recording, or several, which are then sessions of one fit; not needed with "
            "--config or --sessions."
        ),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("run"),
    label: Annotated[
        list[str] | None,
        typer.Option(
            help="Label to learn from; may be repeated. NAME, or NAME=WHAT: position=x,z, "
            "speed=speed(x,z), heading=angle(x1,y1,x2,y2), log(speed), trials/choice."
        ),
    ] = None,
    control: Annotated[
        list[str] | None,
        typer.Option(
            help="Label to control for: regressed along, and not asked about; may be repeated."
        ),
    ] = None,
    label_dims: Annotated[
        list[str] | None,
        typer.Option(help="Number of latents of the label; NAME=N if there are several labels."),
    ] = None,
    time_dims: Annotated[
        int | None,
        typer.Option(
            help="Number of latents for what no label explains; by default chosen from the data."
        ),
    ] = None,
    neural: Annotated[
        list[str] | None,
        typer.Option(help="Entry that holds the activity, if several entries could be it."),
    ] = None,
    epochs: Annotated[
        str | None,
        typer.Option(
            help="Intervals of the file to use, by their name or tag: wake. Or a condition: "
            '"speed > 5", "wake and speed(x,z) > 5".'
        ),
    ] = None,
    units: Annotated[
        str | None,
        typer.Option(help="Units to use, as in \"location == 'adn' and rate > 0.5\"."),
    ] = None,
    unit_table: Annotated[
        Path | None,
        typer.Option(help="CSV or Parquet file with one row per unit: area, cell type, ..."),
    ] = None,
    bin_size: Annotated[
        float | None, typer.Option(help="Length of a bin in seconds; required for spike times.")
    ] = None,
    smooth: Annotated[
        float | None,
        typer.Option(help="Smooth the activity by a Gaussian of this standard deviation (s)."),
    ] = None,
    circular: Annotated[
        list[str] | None, typer.Option(help="Label that is an angle; may be repeated.")
    ] = None,
    discrete: Annotated[
        list[str] | None, typer.Option(help="Label whose values are classes; may be repeated.")
    ] = None,
    continuous: Annotated[
        list[str] | None,
        typer.Option(help="Label that is a quantity, neither angle nor classes; may be repeated."),
    ] = None,
    label_unit: Annotated[
        list[str] | None,
        typer.Option(
            help="Unit of a label, for figures and the page: position=cm; may be repeated."
        ),
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Number of training steps.")] = None,
    batch_size: Annotated[
        int | None, typer.Option(help="Number of samples in a training step.")
    ] = None,
    learning_rate: Annotated[
        float | None, typer.Option(help="Learning rate of the optimiser.")
    ] = None,
    jacobian_weight: Annotated[
        str | None,
        typer.Option(help="Weight of the Jacobian penalty: a number, or auto to search for it."),
    ] = None,
    temperature: Annotated[
        float | None, typer.Option(help="Temperature of the contrastive loss.")
    ] = None,
    time_offset: Annotated[
        int | None, typer.Option(help="Samples between the two members of a pair in time.")
    ] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Samples that each point is computed from; by default chosen from the data."
        ),
    ] = None,
    objective: Annotated[
        ObjectiveName | None,
        typer.Option(help="contrastive, or regression: the supervised baseline."),
    ] = None,
    sessions: Annotated[
        Path | None,
        typer.Option(
            help="Table of sessions (CSV or Parquet) with the columns file and, if known, session, "
            "animal, day, units, epochs and unit_table."
        ),
    ] = None,
    separate: Annotated[
        bool,
        typer.Option("--separate", help="Fit several sessions one by one, not together."),
    ] = False,
    jobs: Annotated[
        int | None,
        typer.Option(help="With --separate: number of processes; by default, one per core."),
    ] = None,
    dask: Annotated[
        str | None,
        typer.Option(help="With --separate: address of a Dask scheduler that sees the same files."),
    ] = None,
    time_block: Annotated[
        TimeBlock | None,
        typer.Option(help="Whether sessions that are fitted together share their time latents."),
    ] = None,
    session_weight: Annotated[
        SessionWeight | None,
        typer.Option(
            help="What sessions that are fitted together count: equal, or by their samples."
        ),
    ] = None,
    recipe: Annotated[RecipeName | None, typer.Option(help="Set of default values.")] = None,
    seed: Annotated[
        int | None, typer.Option(help="Random seed; another seed gives another fit.")
    ] = None,
    device: Annotated[str | None, typer.Option(help="Torch device: cpu, cuda, mps ...")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="Number of CPU threads.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML, such as run.toml of another run.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another run in the folder.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fit a model to a recording, or to several sessions, and write everything to one folder.

    After Ctrl-C, the same command continues the fit. Options win over settings in --config.
    """
    with one_line_errors(quiet):
        from xcebra.report import run_folder
        from xcebra.report.run_settings import Settings, Source
        from xcebra.report.session_runs import make_session_run
        from xcebra.report.session_settings import SessionSettings, load_settings

        before = load_settings(config) if config else Settings(Source(""), {"random_state": 0})
        chosen = _sessions(files, sessions, before)
        file = files[0] if files and chosen is None else None
        one_by_one = separate or (isinstance(before, SessionSettings) and before.mode == "separate")
        mode: Mode = "separate" if one_by_one else "joint"
        _check_several(
            chosen is not None,
            one_by_one,
            without_none(
                separate=separate or None,
                jobs=jobs,
                dask=dask,
                time_block=time_block,
                session_weight=session_weight,
            ),
        )
        source = replace(
            before.recording,
            **without_none(
                file=None if file is None else str(file),
                labels=tuple(label) if label else None,
                controls=tuple(control) if control else None,
                neural=tuple(neural) if neural else None,
                epochs=epochs,
                bin_size=bin_size,
                smooth=smooth,
                units=units,
                label_unit=_label_units(label_unit),
                unit_table=None if unit_table is None else str(unit_table.resolve()),
            ),
        )
        if file is not None:
            source = replace(source, sha256=None)
        if unit_table is not None:
            source = replace(source, unit_table_sha256=None)
        parameters = without_none(
            label_dims=_dims_by_label(label_dims, source.labels),
            time_dims=time_dims,
            label_kind=_label_kinds(circular, discrete, continuous),
            steps=steps,
            batch_size=batch_size,
            learning_rate=learning_rate,
            jacobian_weight=_number_or_word(jacobian_weight),
            temperature=temperature,
            time_offset=time_offset,
            window=window,
            objective=objective,
            recipe=recipe,
            random_state=seed,
            device=device,
            time_block=time_block,
            session_weight=session_weight,
        )
        model = {**before.model, **parameters}
        if threads is not None:
            import torch

            torch.set_num_threads(threads)
        how: dict[str, Any] = {
            "progress": watched() and not quiet and not as_json,
            "overwrite": overwrite,
        }
        if chosen is None:
            run = run_folder.make_run(Settings(source, model), out, **how)
            summary = _summary(run)
            if as_json:
                typer.echo(json.dumps(summary))
            elif not quiet:
                _print_fit(run, summary)
            return
        several = make_session_run(
            SessionSettings(replace(source, file="", sha256=None), chosen, model, mode),
            out,
            jobs=jobs,
            dask=dask,
            **how,
        )
        if as_json:
            typer.echo(json.dumps(_session_summary(several)))
        elif not quiet:
            _print_sessions(several)


def _sessions(
    files: list[Path] | None, table: Path | None, before: Settings | SessionSettings
) -> tuple[Session, ...] | None:
    """Return the sessions to fit; None for a run over one recording."""
    from xcebra.report.session_settings import SessionSettings, read_sessions, sessions_of_files

    if table is not None:
        if files:
            raise InputError(
                f"--sessions {table} and {files[0]} exclude each other: add the file to the table"
            )
        return read_sessions(table)
    if files and len(files) > 1:
        return sessions_of_files(files)
    if not files and isinstance(before, SessionSettings):
        return before.sessions
    return None


def _check_several(several: bool, separate: bool, options: Mapping[str, Any]) -> None:
    """Raise an error about options for several sessions that have no effect here."""
    for name in options:
        option = f"--{name.replace('_', '-')}"
        if not several:
            raise InputError(f"{option} is for several sessions; name several files, or --sessions")
        if separate and name in ("time_block", "session_weight"):
            raise InputError(
                f"{option} is for sessions that are fitted together; leave it out, or --separate"
            )
        if not separate and name in ("jobs", "dask"):
            raise InputError(f"{option} is for sessions that are fitted one by one; add --separate")


def _dims_by_label(options: list[str] | None, labels: tuple[str, ...]) -> Any:
    """Return the number of latents from ``4``, or for each label from ``position=4``."""
    if not options:
        return None
    dims: dict[str, int] = {}
    for option in options:
        name, _, number = option.rpartition("=")
        if not number.isdigit() or (not name and len(options) > 1):
            raise InputError(
                f"--label-dims {option!r} must be a whole number, or NAME=N; as in --label-dims "
                f"{labels[0] if labels else 'position'}=4"
            )
        if not name:
            return int(number)
        dims[name] = int(number)
    return dims


def _label_units(options: list[str] | None) -> dict[str, str] | None:
    """Return the unit of each label from ``position=cm``."""
    if not options:
        return None
    units: dict[str, str] = {}
    for option in options:
        name, _, unit = option.rpartition("=")
        if not name.strip() or not unit.strip():
            raise InputError(f"--label-unit {option!r} must be NAME=UNIT, as in position=cm")
        units[name.strip()] = unit.strip()
    return units


def _number_or_word(option: str | None) -> float | str | None:
    try:
        return None if option is None else float(option)
    except ValueError:
        return option


def _label_kinds(
    circular: list[str] | None, discrete: list[str] | None, continuous: list[str] | None
) -> dict[str, str] | None:
    options = {"circular": circular, "discrete": discrete, "continuous": continuous}
    return {name: kind for kind, names in options.items() for name in names or ()} or None


def _summary(run: Run) -> dict[str, Any]:
    """Return the results of the fit as plain values."""
    model = run.model
    return {
        "run": str(run.folder),
        "blocks": {name: [b.start, b.stop] for name, b in model.blocks_.items()},
        "goodness_of_fit": {name: _plain_fit(fit) for name, fit in model.goodness_of_fit_.items()},
        "variance_explained": float(model.variance_explained_["all"].mean()),
        "time_dims": model.config_["time_dims"],
        "window": model.config_["window"],
    }


def _plain_fit(fit: GoodnessOfFit) -> dict[str, Any]:
    """Return a goodness of fit as plain values, without the long lists of its null values."""
    values = {k: v for k, v in asdict(fit).items() if k != "nulls"}
    if fit.decoding is not None:
        values["decoding"] = {k: v for k, v in values["decoding"].items() if k != "nulls"}
    return {"verdict": fit.verdict, **values, "effect": fit.effect}


def _session_summary(run: SessionRun) -> dict[str, Any]:
    """Return the results of the fits to all sessions as plain values."""
    summary: dict[str, Any] = {
        "run": str(run.folder),
        "mode": run.settings.mode,
        "sessions": {name: _summary(run.single(name)) for name in run.models},
    }
    if run.joint is not None:
        fits = run.joint.goodness_of_fit_
        summary["goodness_of_fit"] = {name: _plain_fit(fit) for name, fit in fits.items()}
    return summary


def _print_sessions(run: SessionRun) -> None:
    from xcebra.common.rendering import verdict_words

    for name, model in run.models.items():
        typer.echo(f"{name}: {run.recordings[name].extent}")
        for block, goodness in model.goodness_of_fit_.items():
            if block != "time":
                typer.echo(f"  {block}: {verdict_words(block, goodness)}")
    if run.joint is not None:
        verdicts = [
            f"{block} {goodness.verdict}"
            for block, goodness in run.joint.goodness_of_fit_.items()
            if block != "time"
        ]
        typer.echo(f"all {len(run.models)} sessions together: {', '.join(verdicts)}")
    typer.echo(run.folder)


def _print_fit(run: Run, summary: Mapping[str, Any]) -> None:
    from xcebra.common.rendering import verdict_words
    from xcebra.report.next_step import next_step

    typer.echo(f"used {run.recording.extent}")
    for name, goodness in run.model.goodness_of_fit_.items():
        typer.echo(f"{name}: {verdict_words(name, goodness)}")
        if advice := next_step(name, goodness, run.settings.recording, run.recording):
            typer.echo(f"  {advice}")
    window = f"{summary['window']} sample{'s' * (summary['window'] != 1)}"
    n_time = summary["time_dims"]
    latents = f"{n_time} time latent{'s' * (n_time != 1)}"
    typer.echo(f"{latents}, each point read from {window}")
    share = f"{summary['variance_explained']:.0%} of the neurons' variance"
    typer.echo(f"labels and other neurons explain {share} on held-out time")
    typer.echo(run.folder)
