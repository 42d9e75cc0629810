"""The folder of a run over several sessions, which are trained together or fitted one by one.

The folder contains ``run.toml`` (the settings), ``log.txt``, and in ``sessions`` a folder for each
session with its ``recording.npz``. If the sessions were trained together, ``model.safetensors`` is
the model of all of them. If they were fitted one by one, the folder of each session is a complete
run. Maps, in ``maps``, and pages can be added.
"""

from __future__ import annotations

import json
import warnings
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from xcebra import caveats
from xcebra.caveats import MissingLabelWarning, XcebraWarning, warn
from xcebra.common.errors import InputError
from xcebra.common.progress import logger
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.io import named_labels, opened, read, write
from xcebra.io.derived import derive
from xcebra.io.model_file import remove_checkpoint
from xcebra.report.run_folder import (
    CHECKPOINT,
    MODEL,
    RECORDING,
    SESSIONS,
    Run,
    check_enough,
    check_is_run,
    forget_replaced,
    holds_run,
    is_begun,
    make_run,
    run_folder,
)
from xcebra.report.run_log import logged, remembered, stopping
from xcebra.report.run_settings import SETTINGS, Settings, settings_tables, write_settings
from xcebra.report.session_settings import Session, SessionSettings
from xcebra.sweep import RowFile, sweep
from xcebra.training.joint_plan import check_sessions
from xcebra.training.settings import check_parameters

# What the workers have finished during one call; the folders of sessions say what is finished.
_ROWS = "rows.jsonl"


@dataclass(frozen=True, eq=False)
class SessionRun:
    """A finished run over several sessions.

    Parameters
    ----------
    folder : Path
    settings : SessionSettings
    models : mapping of str to XCEBRA
        The model of each session.
    recordings : mapping of str to Recording
    joint : XCEBRA or None
        The model of all sessions, if they were trained together.
    """

    folder: Path
    settings: SessionSettings
    models: Mapping[str, XCEBRA]
    recordings: Mapping[str, Recording]
    joint: XCEBRA | None = None

    @classmethod
    def open(cls, folder: Path, device: str | None = None) -> SessionRun:
        """Read the folder of a run; the original files are not needed.

        Raises
        ------
        FileNotFoundError
            If the folder holds no run, or one that is not finished.
        """
        check_is_run(folder, finished=True)
        settings = SessionSettings.from_tables(folder / SETTINGS, settings_tables(folder))
        check_is_run(folder, finished=_is_complete(folder, settings))
        folders = session_folders(folder, settings)
        recordings = {n: read(path / RECORDING, neural="neural") for n, path in folders.items()}
        if settings.mode == "joint":
            joint = XCEBRA.load(folder / MODEL, device)
            return cls(folder, settings, joint.sessions_, recordings, joint)
        models = {name: XCEBRA.load(path / MODEL, device) for name, path in folders.items()}
        return cls(folder, settings, models, recordings)

    @property
    def folders(self) -> dict[str, Path]:
        """Folder of each session."""
        return session_folders(self.folder, self.settings)

    def single(self, name: str) -> Run:
        """Return one session as a run over one recording."""
        session = next(s for s in self.settings.sessions if s.name == name)
        return Run(
            self.folders[name],
            self.settings.of_session(session),
            self.models[name],
            self.recordings[name],
        )


@dataclass(frozen=True, eq=False)
class _Inputs:
    """What was read for a run: recordings, and the labels of each session as they were written."""

    recordings: dict[str, Recording] = field(default_factory=dict)
    written: dict[str, tuple[str, ...]] = field(default_factory=dict)
    labels: dict[str, None] = field(default_factory=dict)
    controls: dict[str, None] = field(default_factory=dict)


def is_session_run(folder: Path) -> bool:
    """Whether a folder holds a run over several sessions."""
    return (folder / SETTINGS).is_file() and "sessions" in settings_tables(folder)


def session_folders(folder: Path, settings: SessionSettings) -> dict[str, Path]:
    """Return the folder of each session inside the folder of a run."""
    return {name: folder / SESSIONS / own for name, own in settings.folders.items()}


def make_session_run(
    settings: SessionSettings,
    folder: Path,
    *,
    progress: bool = False,
    overwrite: bool = False,
    jobs: int | None = None,
    dask: str | None = None,
) -> SessionRun:
    """Fit several sessions, or continue a run that was interrupted.

    Parameters
    ----------
    settings : SessionSettings
    folder : Path
        Folder for the run.
    progress : bool
        Whether to show a progress bar.
    overwrite : bool
        Whether to replace another run in the folder.
    jobs : int, optional
        Processes that fit sessions one by one; by default, the number of cores.
    dask : str, optional
        Address of a Dask scheduler, whose workers fit sessions one by one.

    Raises
    ------
    KeyboardInterrupt
        After Ctrl-C. What is finished is kept, and the same call continues.
    """
    settings = settings.with_digests()
    replacing = overwrite and holds_run(folder)
    if not replacing and is_begun(folder, settings.as_table()) and _is_complete(folder, settings):
        remove_checkpoint(folder / CHECKPOINT)
        return SessionRun.open(folder)
    model = settings.estimator(progress)
    check_parameters(model.get_params(deep=False))
    with remembered() as before:
        inputs = _read_all(settings)
    if settings.mode == "separate":
        check_sessions(inputs.recordings, model.get_params(deep=False), tuple(inputs.controls))
    failure: InputError | None = None
    with run_folder(folder, replacing=replacing):
        write_settings(folder, settings.as_table())
        for path in session_folders(folder, settings).values():
            path.mkdir(parents=True, exist_ok=True)
        with logged(folder, "fit", before):
            for name, recording in inputs.recordings.items():
                logger.info("session %s: used %s", name, recording.extent)
            if settings.mode == "joint":
                resolved = _fit_jointly(model, settings, folder, inputs)
            else:
                failure = _fit_separately(settings, folder, inputs, jobs, dask, progress)
                resolved = {}
    if failure is not None:
        raise failure  # here, so that finished sessions are kept
    write_settings(folder, settings.as_table(), resolved)
    remove_checkpoint(folder / CHECKPOINT)
    forget_replaced(folder)
    return SessionRun.open(folder)


def _fit_jointly(
    model: XCEBRA, settings: SessionSettings, folder: Path, inputs: _Inputs
) -> dict[str, Any]:
    """Train all sessions together, and return the settings of the model as they were used."""
    for name, path in session_folders(folder, settings).items():
        write(inputs.recordings[name], path / RECORDING)
    with stopping():
        model.fit(
            inputs.recordings,
            label=list(inputs.labels),
            control=list(inputs.controls) or None,
            checkpoint=folder / CHECKPOINT,
        )
    model.save(folder / MODEL)
    return dict(model.config_)


@dataclass(frozen=True)
class SessionFit:
    """One session to fit on its own, for `sweep`: its settings as JSON, and its folder."""

    name: str
    settings: str
    folder: str = field(compare=False)


def fit_session(item: SessionFit) -> dict[str, Any]:
    """Fit one session in its own folder, or continue its fit.

    Returns
    -------
    dict
        ``"notes"``, the warnings as (category, text, arguments), and ``"error"``, None or the text
        and the arguments of an error of the user.
    """
    folder = Path(item.folder)
    settings = Settings.from_tables(folder / SETTINGS, json.loads(item.settings))
    error = None
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", XcebraWarning)
        try:
            make_run(settings, folder)
        except InputError as problem:
            error = [str(problem), list(problem.arguments)]
    notes = [
        [type(entry.message).__name__, str(entry.message), list(entry.message.arguments)]
        for entry in caught
        if isinstance(entry.message, XcebraWarning)
    ]
    return {"notes": notes, "error": error}


def _fit_separately(
    settings: SessionSettings,
    folder: Path,
    inputs: _Inputs,
    jobs: int | None,
    dask: str | None,
    progress: bool,
) -> InputError | None:
    """Fit sessions one by one; the folder of each says how far it has come.

    Returns
    -------
    InputError or None
        The first error of the user, if other sessions are finished; otherwise it is raised.
    """
    folders = session_folders(folder, settings)
    items = []
    for session in settings.sessions:
        own = settings.of_session(session, inputs.written[session.name])
        if not (folders[session.name] / MODEL).is_file():
            path = str(folders[session.name].resolve())
            items.append(SessionFit(session.name, json.dumps(own.as_table()), path))
    rows = RowFile(folder / SESSIONS / _ROWS)
    # Rows of a call that was killed may be of sessions whose folders are gone.
    rows.path.unlink(missing_ok=True)
    results = sweep(fit_session, items, rows, jobs=jobs, dask=dask, progress=progress)
    rows.path.unlink(missing_ok=True)
    for item, row in zip(items, results, strict=True):
        for category, text, arguments in row["found"]["notes"]:
            warn(f"session {item.name!r}: {text}", getattr(caveats, category), *arguments)
    failures = [
        InputError(
            f"session {item.name!r}: {row['found']['error'][0]}", tuple(row["found"]["error"][1])
        )
        for item, row in zip(items, results, strict=True)
        if row["found"]["error"] is not None
    ]
    if len(failures) == len(settings.sessions):
        raise failures[0]
    return failures[0] if failures else None


def _is_complete(folder: Path, settings: SessionSettings) -> bool:
    """Whether everything of a run was fitted."""
    if settings.mode == "joint":
        return (folder / MODEL).is_file()
    return all((path / MODEL).is_file() for path in session_folders(folder, settings).values())


def _read_all(settings: SessionSettings) -> _Inputs:
    """Read the recordings of all sessions.

    A session may lack labels that others have, but not all of them.
    """
    inputs, lacking = _Inputs(), {}
    for session in settings.sessions:
        with about_session(session.name):
            own = settings.of_session(session)
            written = own.recording.labels
            try:
                recording, labels, controls = own.read()
            except InputError as error:
                if not any(name.startswith("labels") for name in error.arguments):
                    raise
                written = _present(session, written)
                if not written:
                    raise
                own = settings.of_session(session, written)
                recording, labels, controls = own.read()
                lacking[session.name] = error
            check_enough(recording, own.recording)
        inputs.recordings[session.name] = recording
        inputs.written[session.name] = written
        inputs.labels.update(dict.fromkeys(labels))
        inputs.controls.update(dict.fromkeys(controls))
    if not inputs.labels:
        raise InputError(
            "no label is asked about, and sessions are joined by their labels; name one",
            ("labels",),
        )
    present = {label for written in inputs.written.values() for label in written}
    for name, first_error in lacking.items():
        missing = [text for text in settings.recording.labels if text not in inputs.written[name]]
        if not set(missing) <= present:
            raise first_error.about(f"session {name!r}:") from None
        warn(
            f"session {name!r} has no {' and no '.join(missing)}; its other labels are used",
            MissingLabelWarning,
        )
    return inputs


def _present(session: Session, written: tuple[str, ...]) -> tuple[str, ...]:
    """Return those of the labels, as they were written, that the file of a session has."""
    present = []
    with opened(session.file) as contents:
        for text in written:
            try:
                for what in named_labels(contents, [text]).values():
                    derive(contents, what)
            except InputError:
                continue
            present.append(text)
    return tuple(present)


@contextmanager
def about_session(name: str) -> Iterator[None]:
    """Name the session in errors of the user, and in warnings; a context manager."""
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", XcebraWarning)
        try:
            yield
        except InputError as error:
            raise error.about(f"session {name!r}:") from None
    for entry in caught:
        if isinstance(entry.message, XcebraWarning):
            message, kind = entry.message, type(entry.message)
            warn(f"session {name!r}: {message}", kind, *message.arguments)
        else:
            warnings.warn_explicit(entry.message, entry.category, entry.filename, entry.lineno)
