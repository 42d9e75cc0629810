"""The folder of a run: one fit from the command line, with everything that it needs.

The folder contains ``run.toml`` (the settings, from which the run can be repeated),
``recording.npz`` (activity and labels as they were used), ``model.safetensors``, and during
training ``checkpoint.safetensors``. A map, ``map.nc``, and a page, ``report.html``, can be added.
``log.txt`` says how long each phase took, and which notes were given.
"""

from __future__ import annotations

import hashlib
import inspect
import logging
import platform
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import closing, contextmanager
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from logging.handlers import MemoryHandler
from pathlib import Path
from typing import Any

import tomli_w

from xcebra.caveats import InterruptedFitWarning
from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.common.progress import logger
from xcebra.common.provenance import made_with, now
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.io import named_labels, opened, read, write

SETTINGS, RECORDING, MODEL, CHECKPOINT, MAP, REPORT, LOG = FILES = (
    "run.toml",
    "recording.npz",
    "model.safetensors",
    "checkpoint.safetensors",
    "map.nc",
    "report.html",
    "log.txt",
)
# Folder, inside the folder of a run, for the files of a run that is being replaced.
_REPLACED = ".replaced"
# Recordings with fewer samples are refused. Larger values refuse more short recordings; not tuned.
_FEWEST_SAMPLES = 100
# Lines of the log that are kept until there is a folder for them; reading a file gives a few.
_MOST_REMEMBERED = 1000
# Arguments of the estimator that can be settings of a run.
_MODEL = tuple(n for n in inspect.signature(XCEBRA).parameters if n != "progress")


@dataclass(frozen=True)
class Source:
    """The recording of a run and the parts that are used: the arguments of `xcebra.read`.

    ``labels`` and ``controls``, the labels that are controlled for, may be written as
    ``"speed=speed(x, z)"``. The digests are of the files as they were used.
    """

    file: str
    labels: tuple[str, ...] = ()
    controls: tuple[str, ...] = ()
    neural: tuple[str, ...] = ()
    epochs: str | None = None
    bin_size: float | None = None
    smooth: float | None = None
    units: str | None = None
    unit_table: str | None = None
    sha256: str | None = None
    unit_table_sha256: str | None = None
    label_unit: Mapping[str, str] = field(default_factory=dict)

    def read(
        self, label_kind: str | Mapping[str, str] | None
    ) -> tuple[Recording, list[str], list[str]]:
        """Read the recording, with activity and labels on one clock.

        Parameters
        ----------
        label_kind : str, mapping of str to str, or None
            Kind of all labels, or of each label by name, as far as the user says it.

        Returns
        -------
        recording : Recording
        labels, controls : list of str
            Names of the labels that are asked about, and of those that are controlled for.
        """
        with opened(self.file) as contents:
            # A pattern such as "pos*" may stand for several labels.
            controls = named_labels(contents, self.controls)
            labels = {
                name: what
                for name, what in named_labels(contents, self.labels).items()
                if name not in controls
            }
            if not isinstance(label_kind, Mapping):
                kinds = dict.fromkeys([*labels, *controls], label_kind) if label_kind else {}
            else:
                kinds = {name: kind for name, kind in label_kind.items() if kind is not None}
            recording = read(
                contents,
                neural=self.neural or None,
                labels={**labels, **controls},
                epochs=self.epochs,
                bin_size=self.bin_size,
                smooth=self.smooth,
                label_kind=kinds,
                label_unit=self.label_unit,
                units=self.units,
                unit_table=self.unit_table,
            )
        return recording, list(labels), list(controls)


@dataclass(frozen=True)
class Settings:
    """All settings that decide the result of a run.

    ``model`` holds arguments of `XCEBRA`; the others have their defaults.
    """

    recording: Source
    model: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read settings from a TOML file or from the folder of a run, and check their names.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If it is not TOML, or names a setting that does not exist.
        """
        if path.is_dir():
            path = path / SETTINGS
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {str(path)!r} with settings")
        try:
            tables = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: is no TOML that can be read ({error})") from None
        source, model = tables.get("recording", {}), tables.get("model", {})
        source_names = [setting.name for setting in fields(Source)]
        _check_names(path, "recording", source, source_names)
        _check_names(path, "model", model, _MODEL)
        lists = {n: tuple(source[n]) for n in ("labels", "controls", "neural") if n in source}
        return cls(Source(**{"file": "", **source, **lists}), model)

    def estimator(self, progress: bool) -> XCEBRA:
        """Return the estimator, not yet fitted."""
        return XCEBRA(**self.model, progress=progress)

    def read(self) -> tuple[Recording, list[str], list[str]]:
        """Read the recording; see `Source.read`."""
        return self.recording.read(self.model.get("label_kind"))

    def as_table(self) -> dict[str, Any]:
        """Return plain values, without settings that are not set."""
        return {
            "recording": _set_values(asdict(self.recording)),
            "model": _set_values(dict(self.model)),
        }


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    folder: Path
    settings: Settings
    model: XCEBRA
    recording: Recording

    @classmethod
    def open(cls, folder: Path, device: str | None = None) -> Run:
        """Read the folder of a run; the original file of the recording is not needed.

        Raises
        ------
        FileNotFoundError
            If the folder holds no run, or one that is not finished.
        """
        if not (folder / SETTINGS).is_file():
            raise FileNotFoundError(
                f"{str(folder)!r} is no run: it has no {SETTINGS}; make one with: xcebra fit"
            )
        if not (folder / MODEL).is_file():
            raise FileNotFoundError(
                f"the run in {str(folder)!r} is not finished; go on with: "
                f"xcebra fit --config {folder / SETTINGS} --out {folder}"
            )
        return cls(
            folder,
            Settings.load(folder),
            XCEBRA.load(folder / MODEL, device),
            read(folder / RECORDING, neural="neural"),
        )


def is_finished(folder: Path, settings: Settings) -> bool:
    """Whether a folder holds a finished run with these settings.

    Raises
    ------
    ValueError
        If the folder holds a run with other settings, or other files.
    """
    if not folder.exists():
        return False
    if not folder.is_dir():
        raise InputError(f"out={str(folder)!r} is a file; name a folder for the run", ("out",))
    if not (folder / SETTINGS).is_file():
        if any(folder.iterdir()):
            raise InputError(
                f"out={str(folder)!r} is a folder with other things in it; name one that is empty "
                "or does not exist",
                ("out",),
            )
        return False
    before = Settings.load(folder).as_table()
    if before != settings.as_table():
        changed = ", ".join(_differences(before, settings.as_table()))
        raise InputError(
            f"out={str(folder)!r} holds a run with other settings ({changed}); name another "
            "folder, or say --overwrite",
            ("out",),
        )
    return (folder / MODEL).is_file()


def make_run(
    settings: Settings, folder: Path, *, progress: bool = False, overwrite: bool = False
) -> Run:
    """Fit with these settings, or continue a run that was interrupted.

    Parameters
    ----------
    settings : Settings
    folder : Path
        Folder for the run.
    progress : bool
        Whether to show a progress bar.
    overwrite : bool
        Whether to replace another run in the folder.

    Returns
    -------
    Run

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C. The training so far is kept, and the same call continues it.
    """
    settings = _with_digest(settings)
    replacing = overwrite and _holds_run(folder)
    if not replacing and is_finished(folder, settings):
        return Run.open(folder)
    model = settings.estimator(progress)
    with remembered() as before:
        recording, labels, controls = settings.read()
    if recording.n_times < _FEWEST_SAMPLES:
        width = settings.recording.bin_size
        bins = "" if width is None else f"; bin_size={width:g} is in seconds, for instance 0.05"
        raise InputError(
            f"{settings.recording.file}: has only {recording.n_times} samples, too few to learn "
            f"from{bins}",
            ("bin_size",) if bins else (),
        )
    existed, begun = folder.is_dir(), not replacing and (folder / SETTINGS).is_file()
    folder.mkdir(parents=True, exist_ok=True)
    if replacing:
        # The old run is moved away, and moved back if the new one fails.
        _move(folder, folder / _REPLACED)
    try:
        _write_settings(folder, settings)
        write(recording, folder / RECORDING)
        with logged(folder, "fit", before), _stopping():
            logger.info("used %s", recording.extent)
            model.fit(
                recording,
                label=labels,
                control=controls or None,
                checkpoint=folder / CHECKPOINT,
            )
    except (ValueError, TypeError):
        # The settings do not fit the recording: remove the files of the new run.
        if not begun:
            _clear(folder)
        if replacing:
            _move(folder / _REPLACED, folder)
        if not existed:
            folder.rmdir()
        raise
    model.save(folder / MODEL)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    _write_settings(folder, settings, model)
    if (folder / _REPLACED).is_dir():
        _clear(folder / _REPLACED)
        (folder / _REPLACED).rmdir()
    return Run(folder, settings, model, recording)


def _holds_run(folder: Path) -> bool:
    """Whether there is a run to replace.

    Raises
    ------
    ValueError
        If the folder holds a ``run.toml`` that was not written by this package.
    """
    if not (folder / SETTINGS).is_file():
        return False
    if not Settings.load(folder).recording.file:
        raise InputError(
            f"{folder / SETTINGS}: is not of an xcebra run, and is not overwritten; name another "
            "folder"
        )
    return True


def _move(old: Path, new: Path) -> None:
    new.mkdir(exist_ok=True)
    for name in FILES:
        if (old / name).exists():
            (old / name).replace(new / name)
    if old.name == _REPLACED:
        old.rmdir()


def _clear(folder: Path) -> None:
    for name in FILES:
        (folder / name).unlink(missing_ok=True)


@contextmanager
def remembered() -> Iterator[MemoryHandler]:
    """Keep what is logged before there is a folder for it; a context manager."""
    handler = MemoryHandler(_MOST_REMEMBERED, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
    with _heard_by(handler):
        yield handler


@contextmanager
def _heard_by(handler: logging.Handler) -> Iterator[None]:
    """Send what the package logs to a handler too; a context manager."""
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@contextmanager
def logged(folder: Path, command: str, before: MemoryHandler | None = None) -> Iterator[None]:
    """Append what happens to the log of a run: versions, phases and their durations, notes.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    command : str
        Name of the command, for the first line.
    before : MemoryHandler, optional
        From `remembered`: what was logged before.
    """
    handler = logging.FileHandler(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    with closing(handler), _heard_by(handler):
        try:
            versions = ", ".join(f"{name} {number}" for name, number in made_with().items())
            logger.info("xcebra %s, with %s", command, versions)
            if before is not None:
                before.setTarget(handler)
                before.flush()
            yield
        except KeyboardInterrupt:
            logger.info("stopped by the user")
            raise
        except Exception:
            logger.info("ended by an error", exc_info=True)
            raise


@contextmanager
def _stopping() -> Iterator[None]:
    """Raise KeyboardInterrupt if a fit was interrupted, after its checkpoint was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            yield
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None


def _with_digest(settings: Settings) -> Settings:
    """Return settings that include the digests of the recording and of its unit table.

    Raises
    ------
    ValueError
        If the settings already have another digest.
    """
    source = settings.recording
    if not source.file:
        raise InputError("there is no recording to fit: name a file")
    path, digest = _digest(source.file, source.sha256)
    source = replace(source, file=path, sha256=digest)
    if source.unit_table is not None:
        path, digest = _digest(source.unit_table, source.unit_table_sha256, "unit_table")
        source = replace(source, unit_table=path, unit_table_sha256=digest)
    return Settings(source, settings.model)


def _digest(file: str, expected: str | None, *arguments: str) -> tuple[str, str]:
    """Return the whole path of a file and its digest, which must be the expected one.

    ``arguments`` are those that name the file, for the error.
    """
    path = Path(file)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    with path.open("rb") as opened_file:
        digest = hashlib.file_digest(opened_file, "sha256").hexdigest()
    if expected not in (None, digest):
        raise InputError(
            f"{path}: has changed since these settings were written; name it on the command line "
            "to fit it as it is now",
            arguments,
        )
    return str(path.resolve()), digest


def _write_settings(folder: Path, settings: Settings, model: XCEBRA | None = None) -> None:
    table = settings.as_table()
    if model is not None:
        table["resolved"] = _set_values(model.config_)
        table["made_with"] = {
            **made_with(),
            "python": platform.python_version(),
            "finished": now(),
        }
    with atomically(folder / SETTINGS) as partial:
        partial.write_text(tomli_w.dumps(table), encoding="utf-8")


def _set_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without None, which TOML does not have, and without empty lists."""
    present = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = _set_values(value)
        elif isinstance(value, tuple):
            value = list(value)
        if value is not None and value not in ([], {}):
            present[str(name)] = value
    return present


def _check_names(path: Path, section: str, settings: Mapping[str, Any], names: Any) -> None:
    """Raise an error if a setting does not exist."""
    for name in settings:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names)}"
            raise InputError(f"{path}: [{section}] has {name!r}, which is no setting{hint}")


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    return [
        name
        for section in ("recording", "model")
        for name in sorted({**before[section], **after[section]})
        if before[section].get(name) != after[section].get(name)
    ]
