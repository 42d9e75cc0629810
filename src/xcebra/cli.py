"""The command line: parse, call, print."""

from __future__ import annotations

import json
import re
import warnings
from collections.abc import Mapping
from dataclasses import asdict, replace
from enum import StrEnum
from pathlib import Path
from typing import Annotated, Any

import numpy as np
import torch
import typer

from xcebra import __version__
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.engine import CROSSED, METHODS
from xcebra.caveats import XcebraWarning
from xcebra.common.rendering import verdict_words
from xcebra.datasets import navigation, synthetic
from xcebra.io import describe, opened, write
from xcebra.report import report_run
from xcebra.report.run_folder import MAP, REPORT, Run, Settings, Source, make_run
from xcebra.reproduce import EXPERIMENTS, GRID_CELLS, REAL, GridCells, RealFolder
from xcebra.reproduce import reproduce as reproduce_experiment
from xcebra.sweep import SweepError
from xcebra.training.goodness_of_fit import GoodnessOfFit

app = typer.Typer(
    name="xcebra",
    help="Which neurons carry this behaviour? Attribution maps for neural time series.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    context_settings={"help_option_names": ["-h", "--help"]},
)

Experiment = StrEnum(  # type: ignore[misc]
    "Experiment", {name: name for name in (*EXPERIMENTS, GRID_CELLS, REAL)}
)
Method = StrEnum("Method", {name: name for name in (CROSSED, *METHODS)})  # type: ignore[misc]
Simulation = StrEnum("Simulation", {"synthetic": "synthetic", "navigation": "navigation"})

_N_SHOWN = 5
_SYNTHETIC_INTERVAL = 0.05
_FIGURES = (".png", ".svg", ".pdf")
_HEAD = ("name", "could be", "what", "when")

Quiet = Annotated[bool, typer.Option("--quiet", "-q", help="Say nothing but errors.")]
Json = Annotated[bool, typer.Option("--json", help="Print one JSON object, for scripts.")]
RunFolder = Annotated[Path, typer.Argument(help="Folder that xcebra fit has made.")]


def _show_version(asked: bool) -> None:
    if asked:
        typer.echo(__version__)
        raise typer.Exit


@app.callback()
def _main(
    version: Annotated[
        bool,
        typer.Option("--version", callback=_show_version, is_eager=True, help="Say which it is."),
    ] = False,
) -> None:
    """Which neurons carry this behaviour?"""


@app.command()
def inspect(
    file: Annotated[Path, typer.Argument(help="A recording: .nwb, .npz, .csv or .parquet.")],
    as_json: Json = False,
) -> None:
    """List what is in a file, and what could be activity, label or epochs."""
    with _one_line_errors(), opened(file) as contents:
        found = describe(contents)
        if as_json:
            typer.echo(json.dumps([asdict(each) for each in found]))
            return
        lines = [(d.name, " or ".join(d.roles) or "-", d.what, d.when) for d in found]
        widths = [max(len(line[i]) for line in [*lines, _HEAD]) for i in range(3)]
        for line in (_HEAD, *lines):
            cells = [text.ljust(width) for text, width in zip(line, widths, strict=False)]
            typer.echo("  ".join([*cells, line[3]]).rstrip())


@app.command()
def simulate(
    kind: Annotated[Simulation, typer.Argument(help="What to simulate.")],
    out: Annotated[Path, typer.Option(help="File to write: .nwb or .npz.")],
    seed: Annotated[int, typer.Option(help="Another number is another recording.")] = 0,
    steps: Annotated[
        int | None, typer.Option(help="Time steps; 100,000 of synthetic, 20,000 of navigation.")
    ] = None,
    interval: Annotated[
        float | None,
        typer.Option(help="Seconds of a time step; 0.05 of synthetic, 0.1 of navigation."),
    ] = None,
    noise: Annotated[float, typer.Option(help="In standard deviations of each neuron.")] = 0.0,
    counts: Annotated[
        bool, typer.Option("--counts", help="Poisson counts; spike times in an .nwb file.")
    ] = False,
    hidden: Annotated[
        int | None, typer.Option(help="synthetic: columns of the factor that is no label; 4.")
    ] = None,
    observed: Annotated[
        int | None, typer.Option(help="synthetic: columns of the label, z2; 2.")
    ] = None,
    correlation: Annotated[
        float | None, typer.Option(help="synthetic: of the two factors; 0.")
    ] = None,
    cells: Annotated[
        int | None, typer.Option(help="navigation: cells of each of the four kinds; 100.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make a recording whose wiring is known.

    synthetic: 50 neurons, a label z2 that drives half of them, and a factor that drives all.
    navigation: a rat in a box; position drives place and grid cells, heading the head-direction
    cells, speed the speed cells.
    """
    with _one_line_errors():
        if interval is not None and not interval > 0:
            raise ValueError(f"--interval must be above 0 seconds, got {interval:g}")
        common = _given(n_steps=steps, noise=noise, counts=counts, seed=seed)
        own = _given(hidden=hidden, observed=observed, correlation=correlation)
        if kind == Simulation.navigation:
            if own:
                raise ValueError(f"--{next(iter(own))} is for synthetic, not for navigation")
            recording = navigation(**common, **_given(n_cells=cells, interval=interval))
        else:
            if cells is not None:
                raise ValueError("--cells is for navigation; synthetic has 50 neurons")
            sizes = {"hidden": "n_hidden", "observed": "n_observed"}
            recording = synthetic(
                **common, **{sizes.get(name, name): value for name, value in own.items()}
            )
            centres = (interval or _SYNTHETIC_INTERVAL) * (np.arange(recording.n_times) + 0.5)
            recording = replace(recording, time=centres.astype(np.float64))
        write(recording, out, spikes=counts, about=f"simulated by xcebra: {kind}, seed {seed}")
        driven = {name: int(recording.ground_truth[name].sum()) for name in recording.labels}
        if as_json:
            told = {"file": str(out), "neurons": recording.n_neurons, "steps": recording.n_times}
            typer.echo(json.dumps({**told, "driven": driven}))
        elif not quiet:
            typer.echo(f"{out}: {recording.n_neurons} neurons, {recording.n_times:,} steps")
            for name, n in driven.items():
                typer.echo(f"label {name} drives {n} of them")


@app.command()
def fit(
    file: Annotated[
        Path | None, typer.Argument(help="A recording; not needed with --config.")
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for the run.")] = Path("run"),
    label: Annotated[
        list[str] | None, typer.Option(help="Label to learn from; may be given again.")
    ] = None,
    label_dims: Annotated[
        list[str] | None, typer.Option(help="Latents of the label; NAME=N if there are several.")
    ] = None,
    time_dims: Annotated[
        int | None, typer.Option(help="Latents for what no label explains.")
    ] = None,
    neural: Annotated[
        list[str] | None, typer.Option(help="Which entry is the activity, if it cannot be told.")
    ] = None,
    epochs: Annotated[str | None, typer.Option(help="Intervals in the file to use.")] = None,
    bin_size: Annotated[float | None, typer.Option(help="Seconds; spike times need it.")] = None,
    smooth: Annotated[
        float | None, typer.Option(help="Seconds, standard deviation of a Gaussian.")
    ] = None,
    circular: Annotated[
        list[str] | None, typer.Option(help="Label that is an angle in radians.")
    ] = None,
    discrete: Annotated[
        list[str] | None, typer.Option(help="Label whose values are classes.")
    ] = None,
    steps: Annotated[int | None, typer.Option(help="Steps of training.")] = None,
    batch_size: Annotated[int | None, typer.Option(help="Samples in a step.")] = None,
    learning_rate: Annotated[float | None, typer.Option(help="Of the optimiser.")] = None,
    jacobian_weight: Annotated[
        str | None, typer.Option(help="Of the penalty: a number, or auto to look for it.")
    ] = None,
    temperature: Annotated[float | None, typer.Option(help="Of the contrast.")] = None,
    time_offset: Annotated[int | None, typer.Option(help="Samples between pairs.")] = None,
    window: Annotated[
        int | None,
        typer.Option(
            help="Samples that each point is read from; chosen from the data if not given."
        ),
    ] = None,
    objective: Annotated[
        str | None, typer.Option(help="contrastive, or regression: the supervised baseline.")
    ] = None,
    recipe: Annotated[str | None, typer.Option(help="xcebra or paper.")] = None,
    seed: Annotated[int | None, typer.Option(help="Another number is another fit.")] = None,
    device: Annotated[str | None, typer.Option(help="cpu, cuda, mps ...")] = None,
    threads: Annotated[int | None, typer.Option(min=1, help="For the computation.")] = None,
    config: Annotated[
        Path | None, typer.Option(help="Settings in TOML, such as run.toml of another run.")
    ] = None,
    overwrite: Annotated[
        bool, typer.Option("--overwrite", help="Replace another run in the folder.")
    ] = False,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Fit a model to a recording, in a folder that holds everything.

    Ctrl-C keeps what was done; the same command goes on. What is given here wins over --config.
    """
    with _one_line_errors():
        before = Settings.load(config) if config else Settings(Source(""), {"random_state": 0})
        source = replace(
            before.recording,
            **_given(
                file=None if file is None else str(file),
                labels=tuple(label) if label else None,
                neural=tuple(neural) if neural else None,
                epochs=epochs,
                bin_size=bin_size,
                smooth=smooth,
            ),
        )
        if file is not None:
            source = replace(source, sha256=None)
        given = _given(
            label_dims=_by_name("--label-dims", label_dims, source.labels),
            time_dims=time_dims,
            label_kind=_kinds(circular, discrete),
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
        )
        if threads is not None:
            torch.set_num_threads(threads)
        run = make_run(
            Settings(source, {**before.model, **given}),
            out,
            progress=not quiet and not as_json,
            overwrite=overwrite,
        )
        told = _told(run)
        if as_json:
            typer.echo(json.dumps(told))
        elif not quiet:
            _say_fit(run, told)


@app.command()
def attribute(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="File for the map; map.nc in the folder if not given.")
    ] = None,
    method: Annotated[Method | None, typer.Option(help="The recipe's best if not given.")] = None,
    basis: Annotated[str | None, typer.Option(help="raw, label or sparse.")] = None,
    smooth: Annotated[int | None, typer.Option(help="Neighbours to average over.")] = None,
    aggregate: Annotated[str, typer.Option(help="mean, max, sum or median, over time.")] = "mean",
    block: Annotated[str | None, typer.Option(help="A label's name, or time.")] = None,
    keep_time: Annotated[
        bool, typer.Option("--keep-time", help="Keep the map of every time step.")
    ] = False,
    test: Annotated[
        bool, typer.Option(help="Test each neuron's connection, given all else.")
    ] = True,
    refits: Annotated[
        int, typer.Option(help="Fits more, with other seeds, in which a connection must stand too.")
    ] = 0,
    figure: Annotated[
        Path | None, typer.Option(help="Also draw the map: .png, .svg or .pdf.")
    ] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Make the attribution map of a run: which neurons carry what."""
    with _one_line_errors():
        path = out or run / MAP
        if path.suffix != ".nc":
            raise ValueError(f"--out {path} must end in .nc, the map's file format (netCDF)")
        if figure is not None and figure.suffix not in _FIGURES:
            raise ValueError(f"--figure {figure} must end in {', '.join(_FIGURES)}")
        opened_run = Run.open(run)
        amap = opened_run.model.attribute(
            opened_run.recording,
            method=None if method is None else str(method),
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
            drawn: Any = amap.plot(truth=truth or None).figure
            figure.parent.mkdir(parents=True, exist_ok=True)
            drawn.savefig(figure, dpi=200, bbox_inches="tight")
        if as_json:
            typer.echo(json.dumps({"map": str(path), "neurons": _ranked(amap)}))
        elif not quiet:
            for name in amap.blocks:
                typer.echo(_first_neurons(amap, name, opened_run.model.goodness_of_fit_.get(name)))
            typer.echo(path)
            if figure is not None:
                typer.echo(figure)


@app.command()
def report(
    run: RunFolder,
    out: Annotated[
        Path | None, typer.Option(help="File; report.html in the folder if not given.")
    ] = None,
    title: Annotated[str | None, typer.Option(help="Heading of the page.")] = None,
    quiet: Quiet = False,
    as_json: Json = False,
) -> None:
    """Write one page to look at: verdict, map, embedding, training, settings.

    It shows the map that xcebra attribute has made, or makes the default one.
    """
    with _one_line_errors():
        opened_run = Run.open(run)
        saved = run / MAP
        amap = AttributionMap.load(saved) if saved.is_file() else None
        path = report_run(out or run / REPORT, opened_run, amap, title=title)
        if as_json:
            typer.echo(json.dumps({"report": str(path)}))
        elif not quiet:
            typer.echo(path)


@app.command()
def reproduce(
    name: Annotated[Experiment, typer.Argument(help="Table or figure to make.")],
    path: Annotated[
        Path | None,
        typer.Argument(help="The public recording, for grid-cells; a folder of them, for real."),
    ] = None,
    out: Annotated[Path, typer.Option(help="Folder for finished rows, tables and figures.")] = Path(
        "results"
    ),
    quick: Annotated[
        bool, typer.Option("--quick", help="Fewer sizes and recordings: minutes, not hours.")
    ] = False,
    jobs: Annotated[
        int | None, typer.Option(help="Processes side by side; one per core if not given.")
    ] = None,
    dask: Annotated[
        str | None, typer.Option(help="Address of a Dask scheduler to run on instead.")
    ] = None,
    run: Annotated[
        bool, typer.Option(help="Run what is missing, or only show what is finished.")
    ] = True,
    rat: Annotated[str | None, typer.Option(help="q, r or s, for grid-cells.")] = None,
    day: Annotated[int | None, typer.Option(help="1 or 2, for rat r.")] = None,
    module: Annotated[
        list[int] | None, typer.Option(help="Of grid cells; may be repeated.")
    ] = None,
    conjunctive: Annotated[
        list[int] | None, typer.Option(help="Cell of the module to leave out; may be repeated.")
    ] = None,
    sha256: Annotated[str | None, typer.Option(help="Digest of the recording.")] = None,
    quiet: Annotated[bool, typer.Option("--quiet", help="No progress bar.")] = False,
) -> None:
    """Re-create a table or figure of the paper, or a harder one, on data with known wiring.

    Finished pieces of work are kept in the folder: the same command goes on after an interruption.
    """
    with _one_line_errors():
        written = reproduce_experiment(
            str(name),
            out,
            quick=quick,
            run=run,
            jobs=jobs,
            dask=dask,
            progress=not quiet,
            data=(
                RealFolder(str(path))
                if str(name) == REAL and path is not None
                else _grid_cells(path, rat, day, module, conjunctive, sha256)
            ),
        )
        for each in written:
            typer.echo(each)


def _grid_cells(
    path: Path | None,
    rat: str | None,
    day: int | None,
    module: list[int] | None,
    conjunctive: list[int] | None,
    sha256: str | None,
) -> GridCells | None:
    """The public recording asked for; None if nothing was said of one."""
    if path is None and not any((rat, day, module, conjunctive, sha256)):
        return None
    if path is None or rat is None or not module:
        raise ValueError("grid-cells needs PATH, --rat and --module, and --sha256 of the file")
    left_out = tuple(conjunctive or ())
    return GridCells(str(path.resolve()), sha256, rat, tuple(module), day, left_out)


def _given(**options: Any) -> dict[str, Any]:
    """What was given of some options; the others keep the defaults of what they are for."""
    return {name: value for name, value in options.items() if value is not None}


def _by_name(option: str, given: list[str] | None, labels: tuple[str, ...]) -> Any:
    """``4``, or ``position=4`` for each of several labels."""
    if not given:
        return None
    found: dict[str, int] = {}
    for each in given:
        name, _, number = each.rpartition("=")
        if not number.isdigit() or (not name and len(given) > 1):
            raise ValueError(
                f"{option} {each!r} must be a whole number, or NAME=N; as in {option} "
                f"{labels[0] if labels else 'position'}=4"
            )
        if not name:
            return int(number)
        found[name] = int(number)
    return found


def _number_or_word(given: str | None) -> float | str | None:
    try:
        return None if given is None else float(given)
    except ValueError:
        return given


def _kinds(circular: list[str] | None, discrete: list[str] | None) -> dict[str, str] | None:
    kinds = dict.fromkeys(circular or (), "circular")
    return {**kinds, **dict.fromkeys(discrete or (), "discrete")} or None


def _told(run: Run) -> dict[str, Any]:
    """What a fit found, as plain values."""
    return {
        "run": str(run.folder),
        "blocks": {name: [b.start, b.stop] for name, b in run.model.blocks_.items()},
        "goodness_of_fit": {
            name: _plain_fit(fit) for name, fit in run.model.goodness_of_fit_.items()
        },
        "variance_explained": float(run.model.variance_explained_["all"].mean()),
        "time_dims": run.model.config_["time_dims"],
        "window": run.model.config_["window"],
    }


def _plain_fit(fit: GoodnessOfFit) -> dict[str, Any]:
    """A goodness of fit as plain values, without the many values under shifts."""
    told = {k: v for k, v in asdict(fit).items() if k != "nulls"}
    if fit.decoding is not None:
        told["decoding"] = {k: v for k, v in told["decoding"].items() if k != "nulls"}
    return {"verdict": fit.verdict, **told, "effect": fit.effect}


def _say_fit(run: Run, told: Mapping[str, Any]) -> None:
    typer.echo(f"used {run.recording.extent}")
    for name, each in run.model.goodness_of_fit_.items():
        typer.echo(f"{name}: {verdict_words(name, each)}")
        if each.learned is False and name != "time":
            typer.echo(f"  if {name} should be there, try a larger --bin-size, or --smooth")
    window = f"{told['window']} sample{'s' * (told['window'] != 1)}"
    typer.echo(f"{told['time_dims']} time latents, each point read from {window}")
    share = f"{told['variance_explained']:.0%} of the neurons' variance"
    typer.echo(f"labels and other neurons explain {share} on held-out time")
    typer.echo(run.folder)


def _ranked(amap: AttributionMap) -> dict[str, list[dict[str, Any]]]:
    found: dict[str, list[dict[str, Any]]] = {}
    for name in amap.blocks:
        score, tested = amap.block(name), amap.connections.get(name)
        opinion = amap.opinions.get(name)
        encoding = None if opinion is None else opinion.encoding
        found[name] = [
            {
                "neuron": amap.neuron_names[i],
                "score": float(score[i]),
                **_given(
                    p_value=None if tested is None else float(tested.p_values[i]),
                    share=None if tested is None else float(tested.share[i]),
                    encoding=None if encoding is None else float(encoding[i]),
                    rate=None if opinion is None else float(opinion.rate[i]),
                ),
            }
            for i in (-score).argsort(kind="stable")
        ]
    return found


def _first_neurons(amap: AttributionMap, name: str, fit: GoodnessOfFit | None) -> str:
    """The neurons with the highest scores; if they were tested, of those that are connected.

    None are named for a label that was not found.
    """
    if fit is not None and fit.verdict == "no":
        return f"{name}: not found in the activity, so no neuron is called connected to it"
    if fit is not None and fit.verdict == "unclear" and name != "time":
        return f"{name}: unclear whether it is in the activity, so no neuron is called connected"
    score = amap.block(name)
    order = (-score).argsort(kind="stable")
    told = f"{name}: first neurons "
    if name in amap.connections:
        connected = amap.significant(name)
        order = order[connected[order]]
        told = f"{name}: {amap.connections[name].in_words()}"
        if len(order) == 0:
            return told
        told += ", first "
    return told + ", ".join(f"{amap.neuron_names[i]} ({score[i]:.3g})" for i in order[:_N_SHOWN])


class _one_line_errors:
    """What goes wrong, told in one line, with exit code 2; after Ctrl-C how to go on."""

    def __enter__(self) -> None:
        self._caught = warnings.catch_warnings()
        self._caught.__enter__()
        warnings.simplefilter("always", XcebraWarning)
        warnings.showwarning = _say_warning  # type: ignore[assignment]

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self._caught.__exit__(None, None, None)
        if isinstance(error, KeyboardInterrupt):
            typer.echo("stopped; what is finished is kept, the same command goes on", err=True)
            raise typer.Exit(130)
        if isinstance(error, OSError) and error.strerror and error.filename:
            error = OSError(f"{error.filename}: {error.strerror.lower()}")
        if isinstance(error, (ValueError, TypeError, OSError, ImportError, SweepError)):
            typer.echo(f"xcebra: {_as_options(str(error))}", err=True)
            raise typer.Exit(2)


def _say_warning(message: Any, category: type[Warning], *where: Any) -> None:
    if issubclass(category, XcebraWarning):
        typer.echo(f"xcebra: note: {_as_options(str(message))}", err=True)


def _as_options(told: str) -> str:
    """The library speaks of its arguments; here they are options."""
    told = re.sub(
        r"label_kind=\{'([^']*)': 'continuous'\} or 'discrete'", r"--discrete \1 if they are", told
    )
    told = re.sub(r"label_kind=\{'([^']*)': '(circular|discrete)'\}", r"--\2 \1", told)
    told = re.sub(r"\blabels=('[^']*'|\S+)", r"--label \1", told)
    told = re.sub(r"\bbasis=('\w+')", r"--basis \1", told)
    names = "bin_size|time_offset|time_dims|label_dims|batch_size|learning_rate|jacobian_weight"
    names += "|keep_time|neural|epochs|circular|smooth|out|steps|refits|window"
    told = told.replace("say bin_size in seconds", "say --bin-size in seconds")
    return re.sub(rf"\b({names})=", lambda m: f"--{m[1].replace('_', '-')} ", told)


def main() -> None:
    """Run the command line."""
    app(prog_name="xcebra")


if __name__ == "__main__":
    main()
