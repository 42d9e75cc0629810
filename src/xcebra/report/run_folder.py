"""A run: one fit from the command line, in a folder that is complete in itself.

The folder holds ``run.toml`` (what was asked for, enough to do it again), ``recording.npz``
(activity and labels as they were used), ``model.safetensors``, and while it trains
``checkpoint.safetensors``. A map, ``map.nc``, and a page, ``report.html``, join them.
"""

from __future__ import annotations

import hashlib
import inspect
import platform
import tomllib
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, fields
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tomli_w

from xcebra.caveats import InterruptedFitWarning
from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.common.provenance import made_with, now
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.io import read, write

SETTINGS, RECORDING, MODEL, CHECKPOINT, MAP, REPORT = FILES = (
    "run.toml",
    "recording.npz",
    "model.safetensors",
    "checkpoint.safetensors",
    "map.nc",
    "report.html",
)
_REPLACED = ".replaced"
_FEWEST_SAMPLES = 100
_MODEL = tuple(n for n in inspect.signature(XCEBRA).parameters if n != "progress")


@dataclass(frozen=True)
class Source:
    """Which recording, and which parts of it: the arguments of `xcebra.read`."""

    file: str
    labels: tuple[str, ...] = ()
    neural: tuple[str, ...] = ()
    epochs: str | None = None
    bin_size: float | None = None
    smooth: float | None = None
    sha256: str | None = None

    def read(self, circular: tuple[str, ...]) -> Recording:
        """The recording, on one clock."""
        return read(
            self.file,
            neural=self.neural or None,
            labels=list(self.labels),
            epochs=self.epochs,
            bin_size=self.bin_size,
            smooth=self.smooth,
            circular=circular,
        )


@dataclass(frozen=True)
class Settings:
    """Everything that decides what a run finds.

    ``model`` are arguments of `XCEBRA`; what is not there takes its default.
    """

    recording: Source
    model: Mapping[str, Any] = field(default_factory=dict)

    @classmethod
    def load(cls, path: Path) -> Settings:
        """Read settings, checked for names that do not exist.

        Raises
        ------
        FileNotFoundError, ValueError
        """
        if path.is_dir():
            path = path / SETTINGS
        if not path.is_file():
            raise FileNotFoundError(f"there is no file {str(path)!r} with settings")
        try:
            told = tomllib.loads(path.read_text(encoding="utf-8"))
        except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
            raise InputError(f"{path}: is no TOML that can be read ({error})") from None
        source, model = told.get("recording", {}), told.get("model", {})
        known = [each.name for each in fields(Source)]
        _known(path, "recording", source, known)
        _known(path, "model", model, _MODEL)
        lists = {n: tuple(source[n]) for n in ("labels", "neural") if n in source}
        return cls(Source(**{"file": "", **source, **lists}), model)

    def estimator(self, progress: bool) -> XCEBRA:
        """The estimator, not yet fitted."""
        return XCEBRA(**self.model, progress=progress)

    @property
    def circular(self) -> tuple[str, ...]:
        """Labels that are angles."""
        kinds = self.model.get("label_kind")
        kinds = kinds if isinstance(kinds, Mapping) else dict.fromkeys(self.recording.labels, kinds)
        return tuple(name for name, kind in kinds.items() if kind == "circular")

    def as_table(self) -> dict[str, Any]:
        """Plain values, without what was not said."""
        return {"recording": _said(asdict(self.recording)), "model": _said(dict(self.model))}


@dataclass(frozen=True, eq=False)
class Run:
    """A finished run."""

    folder: Path
    settings: Settings
    model: XCEBRA
    recording: Recording

    @classmethod
    def open(cls, folder: Path, device: str | None = None) -> Run:
        """Read a run's folder; the file it was made from is not needed.

        Raises
        ------
        FileNotFoundError
            If it is no run, or one that is not finished.
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
    """Whether a folder holds this run, complete.

    Raises
    ------
    ValueError
        If the folder holds another run, or something else.
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
    """Fit as the settings say, or go on with a run that was stopped.

    Raises
    ------
    KeyboardInterrupt
        If it was asked to stop; what is done is kept, and the same call goes on.
    """
    settings = _with_digest(settings)
    replacing = overwrite and _holds_run(folder)
    if not replacing and is_finished(folder, settings):
        return Run.open(folder)
    model = settings.estimator(progress)
    recording = settings.recording.read(settings.circular)
    if recording.n_times < _FEWEST_SAMPLES:
        width = settings.recording.bin_size
        bins = "" if width is None else f"; bin_size={width:g} is in seconds, for instance 0.05"
        raise InputError(
            f"{settings.recording.file}: has only {recording.n_times} samples, too few to learn "
            f"from{bins}",
            ("bin_size",) if bins else (),
        )
    there, begun = folder.is_dir(), not replacing and (folder / SETTINGS).is_file()
    folder.mkdir(parents=True, exist_ok=True)
    if replacing:
        # Away, and back again if there is no run to take its place.
        _move(folder, folder / _REPLACED)
    try:
        _write_settings(folder, settings)
        write(recording, folder / RECORDING)
        with _stopping():
            model.fit(
                recording, label=list(settings.recording.labels), checkpoint=folder / CHECKPOINT
            )
    except (ValueError, TypeError):
        # Settings that do not fit the recording: nothing half-made stays.
        if not begun:
            _clear(folder)
        if replacing:
            _move(folder / _REPLACED, folder)
        if not there:
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
        If what looks like one is somebody else's.
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
def _stopping() -> Iterator[None]:
    """Ctrl-C ends a fit here, with its checkpoint written, and not with half a model."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            yield
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None


def _with_digest(settings: Settings) -> Settings:
    """Settings that know the recording's bytes.

    Raises
    ------
    ValueError
        If they were made with other bytes.
    """
    source = settings.recording
    if not source.file:
        raise InputError("there is no recording to fit: name a file")
    path = Path(source.file)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    with path.open("rb") as file:
        found = hashlib.file_digest(file, "sha256").hexdigest()
    if source.sha256 not in (None, found):
        raise InputError(
            f"{path}: has changed since these settings were written; name it on the command line "
            "to fit it as it is now"
        )
    known = Source(**{**asdict(source), "file": str(path.resolve()), "sha256": found})
    return Settings(known, settings.model)


def _write_settings(folder: Path, settings: Settings, model: XCEBRA | None = None) -> None:
    table = settings.as_table()
    if model is not None:
        table["resolved"] = _said(model.config_)
        table["made_with"] = {
            **made_with(),
            "python": platform.python_version(),
            "finished": now(),
        }
    with atomically(folder / SETTINGS) as partial:
        partial.write_text(tomli_w.dumps(table), encoding="utf-8")


def _said(values: Mapping[str, Any]) -> dict[str, Any]:
    """Without None, which TOML does not know, and without empty lists."""
    found = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = _said(value)
        elif isinstance(value, tuple):
            value = list(value)
        if value is not None and value not in ([], {}):
            found[str(name)] = value
    return found


def _known(path: Path, section: str, given: Mapping[str, Any], names: Any) -> None:
    for name in given:
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
