"""The folder of a run: one fit from the command line, with everything that it needs.

The folder contains ``run.toml`` (the settings, from which the run can be repeated),
``recording.npz`` (activity and labels as they were used), ``model.safetensors``, and during
training ``checkpoint.safetensors``. A map, ``map.nc``, and a page, ``report.html``, can be added.
``log.txt`` says how long each phase took, and which notes were given. A run over several sessions
(`session_runs`) has its recordings in ``sessions`` and its maps in ``maps``.
"""

from __future__ import annotations

import shutil
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from xcebra.common.errors import InputError
from xcebra.common.progress import logger
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.io import read, write
from xcebra.report.run_log import LOG, logged, remembered, stopping
from xcebra.report.run_settings import (
    SETTINGS,
    Settings,
    Source,
    settings_tables,
    with_digest,
    write_settings,
)
from xcebra.report.session_settings import load_settings

RECORDING, MODEL, CHECKPOINT, MAP, REPORT = (
    "recording.npz",
    "model.safetensors",
    "checkpoint.safetensors",
    "map.nc",
    "report.html",
)
# Folders of a run over several sessions. The last one holds finished maps while others are made.
SESSIONS, MAPS, UNFINISHED_MAPS = "sessions", "maps", ".maps"
# Everything that commands write to the folder of a run by default, as patterns.
_CONTENTS = (
    *(SETTINGS, RECORDING, MODEL, CHECKPOINT, MAP, REPORT, LOG),
    *("checkpoint*-session*.safetensors", SESSIONS, MAPS, UNFINISHED_MAPS),
)
# Folder, inside the folder of a run, for the files of a run that is being replaced.
_REPLACED = ".replaced"
# Recordings with fewer samples are refused. Larger values refuse more short recordings; not tuned.
_FEWEST_SAMPLES = 100


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
        check_is_run(folder, finished=(folder / MODEL).is_file())
        return cls(
            folder,
            Settings.load(folder),
            XCEBRA.load(folder / MODEL, device),
            read(folder / RECORDING, neural="neural"),
        )


def check_is_run(folder: Path, *, finished: bool) -> None:
    """Raise an error if a folder holds no run, or one that is not finished.

    Parameters
    ----------
    folder : Path
    finished : bool
        Whether it has everything that a finished run has.
    """
    if not (folder / SETTINGS).is_file():
        raise FileNotFoundError(
            f"{str(folder)!r} is no run: it has no {SETTINGS}; make one with: xcebra fit"
        )
    if not finished:
        raise FileNotFoundError(
            f"the run in {str(folder)!r} is not finished; go on with: "
            f"xcebra fit --config {folder / SETTINGS} --out {folder}"
        )


def is_begun(folder: Path, table: Mapping[str, Any]) -> bool:
    """Whether a folder holds a run with these settings, finished or not.

    Parameters
    ----------
    folder : Path
    table : mapping
        The settings as plain values.

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
    changed = _differences(load_settings(folder).as_table(), table)
    if changed:
        raise InputError(
            f"out={str(folder)!r} holds a run with other settings ({', '.join(changed)}); name "
            "another folder, or say --overwrite",
            ("out",),
        )
    return True


def is_finished(folder: Path, settings: Settings) -> bool:
    """Whether a folder holds a finished run with these settings; see `is_begun` for errors."""
    return is_begun(folder, settings.as_table()) and (folder / MODEL).is_file()


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
    settings = with_digest(settings)
    replacing = overwrite and holds_run(folder)
    if not replacing and is_finished(folder, settings):
        return Run.open(folder)
    model = settings.estimator(progress)
    with remembered() as before:
        recording, labels, controls = settings.read()
    check_enough(recording, settings.recording)
    with run_folder(folder, replacing=replacing):
        write_settings(folder, settings.as_table())
        write(recording, folder / RECORDING)
        with logged(folder, "fit", before), stopping():
            logger.info("used %s", recording.extent)
            model.fit(
                recording,
                label=labels,
                control=controls or None,
                checkpoint=folder / CHECKPOINT,
            )
    model.save(folder / MODEL)
    (folder / CHECKPOINT).unlink(missing_ok=True)
    write_settings(folder, settings.as_table(), model.config_)
    forget_replaced(folder)
    return Run(folder, settings, model, recording)


def check_enough(recording: Recording, source: Source) -> None:
    """Raise an error if a recording has too few samples to learn from."""
    if recording.n_times < _FEWEST_SAMPLES:
        width = source.bin_size
        bins = "" if width is None else f"; bin_size={width:g} is in seconds, for instance 0.05"
        raise InputError(
            f"{source.file}: has only {recording.n_times} samples, too few to learn from{bins}",
            ("bin_size",) if bins else (),
        )


def holds_run(folder: Path) -> bool:
    """Whether there is a run to replace.

    Raises
    ------
    ValueError
        If the folder holds a ``run.toml`` that was not written by this package.
    """
    if not (folder / SETTINGS).is_file():
        return False
    tables = settings_tables(folder)
    if not tables.get("recording", {}).get("file") and not tables.get("sessions"):
        raise InputError(
            f"{folder / SETTINGS}: is not of an xcebra run, and is not overwritten; name another "
            "folder"
        )
    return True


@contextmanager
def run_folder(folder: Path, *, replacing: bool) -> Iterator[None]:
    """Provide the folder of a run, and restore it if the settings do not suit the recording.

    Parameters
    ----------
    folder : Path
        It is made if it does not exist.
    replacing : bool
        Whether another run in the folder is replaced. Its files are moved away, and are moved back
        after an error; `forget_replaced` removes them.
    """
    existed, begun = folder.is_dir(), not replacing and (folder / SETTINGS).is_file()
    folder.mkdir(parents=True, exist_ok=True)
    if replacing:
        _move(folder, folder / _REPLACED)
    try:
        yield
    except (ValueError, TypeError):
        # The settings do not suit the recording: remove the files of the new run.
        if not begun:
            _clear(folder)
        if replacing:
            _move(folder / _REPLACED, folder)
        if not existed:
            folder.rmdir()
        raise


def forget_replaced(folder: Path) -> None:
    """Remove the files of a run that was replaced, after the new one is finished."""
    if (folder / _REPLACED).is_dir():
        _clear(folder / _REPLACED)
        (folder / _REPLACED).rmdir()


def _contents(folder: Path) -> list[Path]:
    return [path for pattern in _CONTENTS for path in folder.glob(pattern)]


def _move(old: Path, new: Path) -> None:
    new.mkdir(exist_ok=True)
    for path in _contents(old):
        _remove(new / path.name)
        path.replace(new / path.name)
    if old.name == _REPLACED:
        old.rmdir()


def _clear(folder: Path) -> None:
    for path in _contents(folder):
        _remove(path)


def _remove(path: Path) -> None:
    if path.is_dir() and not path.is_symlink():
        shutil.rmtree(path)
    else:
        path.unlink(missing_ok=True)


def _differences(before: Mapping[str, Any], after: Mapping[str, Any]) -> list[str]:
    """Names of settings that differ between two tables of settings."""
    changed = []
    for section in ("recording", "model"):
        old, new = before.get(section, {}), after.get(section, {})
        changed += [name for name in sorted({**old, **new}) if old.get(name) != new.get(name)]
    return changed + [n for n in ("mode", "sessions") if before.get(n) != after.get(n)]
