"""Settings of a run over several sessions, and the table that lists the sessions."""

from __future__ import annotations

import csv
import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any, Literal, get_args

from xcebra.common.errors import InputError
from xcebra.common.files import safe_name
from xcebra.data.conditions import as_text
from xcebra.estimator import XCEBRA
from xcebra.io.tables import read_unit_table
from xcebra.report.run_settings import (
    SETTINGS,
    Settings,
    Source,
    check_names,
    files_with_digests,
    set_values,
    settings_tables,
)

# Whether sessions are trained together, or fitted one by one.
Mode = Literal["joint", "separate"]
# Columns of a table of sessions. The first ones replace what all sessions share.
_OVERRIDES = ("units", "epochs", "unit_table")
_COLUMNS = ("file", "session", "animal", "day", *_OVERRIDES)


@dataclass(frozen=True)
class Session:
    """One session of a run.

    ``units``, ``epochs`` and ``unit_table`` replace what all sessions of the run share.
    """

    name: str
    file: str
    animal: str | None = None
    day: float | str | None = None
    units: str | None = None
    epochs: str | None = None
    unit_table: str | None = None
    sha256: str | None = None
    unit_table_sha256: str | None = None


@dataclass(frozen=True)
class SessionSettings:
    """All settings that decide the result of a run over several sessions.

    Parameters
    ----------
    recording : Source
        What all sessions share; it has no file.
    sessions : tuple of Session
    model : mapping
        Arguments of `XCEBRA`; the others have their defaults.
    mode : {"joint", "separate"}
    """

    recording: Source
    sessions: tuple[Session, ...]
    model: Mapping[str, Any] = field(default_factory=dict)
    mode: Mode = "joint"

    def __post_init__(self) -> None:
        _check_sessions(self.sessions)

    @classmethod
    def from_tables(cls, path: Path, tables: Mapping[str, Any]) -> SessionSettings:
        """Make settings from the tables of a TOML file, and check their names.

        Parameters
        ----------
        path : Path
            The file, for messages.
        tables : mapping
        """
        shared = Settings.from_tables(path, tables)
        entries = tables.get("sessions")
        if not isinstance(entries, list) or not all(isinstance(e, dict) for e in entries):
            raise InputError(f"{path}: 'sessions' must be tables, each under [[sessions]]")
        names = [one.name for one in fields(Session)]
        for entry in entries:
            check_names(path, "[sessions]", entry, names)
            for name in ("name", "file"):
                if not isinstance(entry.get(name), str):
                    raise InputError(f"{path}: an entry of [[sessions]] has no {name!r}; give it")
        mode = tables.get("mode", "joint")
        if mode not in get_args(Mode):
            raise InputError(f"{path}: mode must be 'joint' or 'separate', got {mode!r}")
        source = replace(shared.recording, file="", sha256=None)
        return cls(source, tuple(Session(**_plain(entry)) for entry in entries), shared.model, mode)

    @property
    def animals(self) -> dict[str, str] | None:
        """The animal of each session; None if they were not given."""
        known = {s.name: s.animal for s in self.sessions if s.animal is not None}
        return known or None

    @property
    def days(self) -> dict[str, float | str] | None:
        """The day of each session; None if they were not given."""
        known = {s.name: s.day for s in self.sessions if s.day is not None}
        return known or None

    @property
    def folders(self) -> dict[str, str]:
        """Name of each session's folder: safe on every system, and no two are the same."""
        names: dict[str, str] = {}
        for session in self.sessions:
            names[session.name] = safe_name(session.name, names.values())
        return names

    def estimator(self, progress: bool) -> XCEBRA:
        """Return the estimator, not yet fitted."""
        return XCEBRA(**self.model, progress=progress)

    def of_session(self, session: Session, labels: tuple[str, ...] | None = None) -> Settings:
        """Return the settings of one session, as if it were a run of its own.

        Parameters
        ----------
        session : Session
        labels : tuple of str, optional
            Those of the labels that the session has; by default all.
        """
        own = {name: getattr(session, name) for name in ("file", "sha256", *_OVERRIDES)}
        own = {name: value for name, value in own.items() if value is not None}
        if session.unit_table is not None:
            own["unit_table_sha256"] = session.unit_table_sha256
        if labels is None:
            return Settings(replace(self.recording, **own), self.model)
        lacking = {text.partition("=")[0].strip() for text in {*self.recording.labels} - {*labels}}
        own |= {"labels": labels, "label_unit": _without(self.recording.label_unit, lacking)}
        model = {name: _without(value, lacking) for name, value in self.model.items()}
        return Settings(replace(self.recording, **own), model)

    def with_digests(self) -> SessionSettings:
        """Return settings that include the digests of all files.

        Raises
        ------
        ValueError
            If a file has changed since the settings were written.
        """
        sessions = []
        for session in self.sessions:
            names = ("file", "sha256", "unit_table", "unit_table_sha256")
            known = files_with_digests(Source(**{name: getattr(session, name) for name in names}))
            sessions.append(replace(session, **{name: getattr(known, name) for name in names}))
        twice = [digest for digest, n in Counter(s.sha256 for s in sessions).items() if n > 1]
        if twice:
            first, second = [s for s in sessions if s.sha256 == twice[0]][:2]
            if (first.units, first.epochs) == (second.units, second.epochs):
                raise InputError(
                    f"sessions {first.name!r} and {second.name!r} are the same recording; leave "
                    "one of them out, or give them different units or epochs"
                )
        return replace(self, recording=files_with_digests(self.recording), sessions=tuple(sessions))

    def as_table(self) -> dict[str, Any]:
        """Return plain values, without settings that are not set."""
        return {
            "mode": self.mode,
            "recording": set_values({k: v for k, v in asdict(self.recording).items() if v != ""}),
            "model": set_values(dict(self.model)),
            "sessions": [set_values(asdict(session)) for session in self.sessions],
        }


def load_settings(path: Path) -> Settings | SessionSettings:
    """Read the settings of a run over one recording, or over several sessions.

    Parameters
    ----------
    path : Path
        A TOML file, or the folder of a run.
    """
    tables = settings_tables(path)
    path = path / SETTINGS if path.is_dir() else path
    if "sessions" in tables:
        return SessionSettings.from_tables(path, tables)
    return Settings.from_tables(path, tables)


def sessions_of_files(files: Sequence[Path]) -> tuple[Session, ...]:
    """Return one session for each file, named after the file.

    Files of the same name are named after their folders too.

    Raises
    ------
    ValueError
        If a file is named twice, or if the names are not different.
    """
    return _named([Session("", str(file)) for file in files])


def read_sessions(path: Path) -> tuple[Session, ...]:
    """Read a table of sessions, with one row for each.

    Parameters
    ----------
    path : Path
        CSV or Parquet file with the columns ``file`` and, if they are known, ``session``,
        ``animal``, ``day``, ``units``, ``epochs`` and ``unit_table``. Names of files are relative
        to the folder of the table.

    Raises
    ------
    FileNotFoundError, ValueError
        If there is no such file, or if the table is wrong.
    """
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r} with sessions")
    columns, rows = _read_rows(path)
    for column in columns:
        if column not in _COLUMNS:
            near = get_close_matches(column, _COLUMNS, n=1)
            hint = f"did you mean {near[0]!r}" if near else f"known are {', '.join(_COLUMNS)}"
            raise InputError(f"{path}: has a column {column!r}, which has no meaning; {hint}")
    if "file" not in columns:
        raise InputError(
            f"{path}: has no column 'file', only {columns}; it names the recording of each session"
        )
    if not rows:
        raise InputError(f"{path}: lists no session; give one row for each", ("sessions",))
    days = _days([row.get("day", "") for row in rows])
    sessions = []
    for number, (row, day) in enumerate(zip(rows, days, strict=True), 1):
        known = {name: text for name, text in row.items() if text}
        if "file" not in known:
            raise InputError(f"{path}: row {number} names no file; give one, or remove the row")
        for name in ("file", "unit_table"):
            if name in known:
                known[name] = str(path.parent / known[name])
        known.pop("day", None)
        sessions.append(Session(known.pop("session", ""), **known, day=day))
    try:
        return _named(sessions)
    except InputError as error:
        raise error.about(f"{path}:") from None


def _read_rows(path: Path) -> tuple[list[str], list[dict[str, str]]]:
    """Return the names of the columns, and all rows as text."""
    kind = path.suffix.lower()
    if kind == ".parquet":
        table = read_unit_table(path).columns
        texts = {name: [_cell(value) for value in values] for name, values in table.items()}
        return list(texts), [
            dict(zip(texts, row, strict=True)) for row in zip(*texts.values(), strict=True)
        ]
    if kind != ".csv":
        raise InputError(f"sessions={str(path)!r} must end in .csv or .parquet", ("sessions",))
    try:
        # Excel marks its files by three bytes at the start.
        lines = list(csv.reader(path.read_text(encoding="utf-8-sig").splitlines()))
    except (UnicodeDecodeError, csv.Error) as error:
        raise InputError(f"{path}: is no table that can be read ({error})") from None
    lines = [[text.strip() for text in line] for line in lines if any(map(str.strip, line))]
    if not lines:
        raise InputError(f"{path}: is empty; write a line with the names of columns, then sessions")
    columns = lines[0]
    if len(set(columns)) < len(columns):
        raise InputError(f"{path}: two columns have the same name: {columns}")
    for number, line in enumerate(lines[1:], 1):
        if len(line) > len(columns):
            raise InputError(
                f"{path}: row {number} has {len(line)} fields, but there are {len(columns)} "
                "columns; put texts with commas between quotation marks"
            )
    return columns, [
        dict(zip(columns, [*line, *[""] * (len(columns) - len(line))], strict=True))
        for line in lines[1:]
    ]


def _cell(value: Any) -> str:
    return "" if value != value else as_text(value)


def _days(texts: Sequence[str]) -> list[float | str | None]:
    """Return days as numbers if all of them are, else as text; a missing one is None."""
    try:
        numbers = [float(text) if text else None for text in texts]
    except ValueError:
        return [text or None for text in texts]
    if not all(number is None or math.isfinite(number) for number in numbers):
        return [text or None for text in texts]
    return [n if n is None or not n.is_integer() else int(n) for n in numbers]


def _named(sessions: list[Session]) -> tuple[Session, ...]:
    """Name sessions that have no name after their files."""
    paths = {index: Path(s.file) for index, s in enumerate(sessions) if not s.name}
    stems = Counter(path.stem for path in paths.values())
    stems.update(s.name for s in sessions if s.name)
    twice = [file for file, n in Counter(p.resolve() for p in paths.values()).items() if n > 1]
    if twice:
        raise InputError(f"the file {str(twice[0])!r} is named twice; name it once")
    for index, path in paths.items():
        name = path.stem
        if stems[name] > 1:
            name = f"{path.resolve().parent.name}_{path.stem}"
        sessions[index] = replace(sessions[index], name=name)
    _check_sessions(sessions)
    return tuple(sessions)


def _check_sessions(sessions: Sequence[Session]) -> None:
    """Raise an error if sessions cannot be told apart, or if something is known of some only."""
    if not sessions:
        raise InputError("there is no session to fit: name files, or a table with --sessions")
    for name, n in Counter(session.name for session in sessions).items():
        if not name.strip():
            raise InputError("a session has an empty name; give it a name")
        if n > 1:
            files = [session.file for session in sessions if session.name == name]
            raise InputError(
                f"{n} sessions are called {name!r} ({', '.join(files)}); give them different "
                "names, in the column 'session' of a table for --sessions"
            )
    for what in ("animal", "day"):
        lacking = [s.name for s in sessions if getattr(s, what) is None]
        if lacking and len(lacking) < len(sessions):
            raise InputError(
                f"the {what} of session {lacking[0]!r} is missing, but others have one; give it "
                "for all sessions, or for none"
            )
    kinds = {isinstance(session.day, str) for session in sessions if session.day is not None}
    if len(kinds) > 1:
        raise InputError(
            "some days are numbers and others are text, so that they have no order; give either "
            "numbers or text, such as 2024-05-01"
        )


def _without(value: Any, names: set[str]) -> Any:
    """Return a mapping by labels without some of them, and anything else as it is."""
    if not isinstance(value, Mapping):
        return value
    return {name: one for name, one in value.items() if name not in names}


def _plain(entry: Mapping[str, Any]) -> dict[str, Any]:
    """Return an entry of a TOML file with its animal as text, and its day as a number or text."""
    plain = dict(entry)
    if "animal" in plain:
        plain["animal"] = str(plain["animal"])
    if "day" in plain and not isinstance(plain["day"], (int, float)):
        plain["day"] = str(plain["day"])
    return plain
