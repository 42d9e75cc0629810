"""Settings of a run: the recording, what is used of it, and the arguments of the estimator."""

from __future__ import annotations

import hashlib
import inspect
import platform
import tomllib
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, fields, replace
from difflib import get_close_matches
from pathlib import Path
from typing import Any

import tomli_w

from xcebra.common.errors import InputError
from xcebra.common.files import atomically
from xcebra.common.provenance import made_with, now
from xcebra.data.recording import Recording
from xcebra.estimator import XCEBRA
from xcebra.io import named_labels, opened, read

SETTINGS = "run.toml"
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
        return cls.from_tables(path, settings_tables(path))

    @classmethod
    def from_tables(cls, path: Path, tables: Mapping[str, Any]) -> Settings:
        """Make settings from the tables of a TOML file, and check their names.

        Parameters
        ----------
        path : Path
            The file, for messages.
        tables : mapping
        """
        source, model = tables.get("recording", {}), tables.get("model", {})
        check_names(path, "recording", source, [setting.name for setting in fields(Source)])
        check_names(path, "model", model, _MODEL)
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
            "recording": set_values(asdict(self.recording)),
            "model": set_values(dict(self.model)),
        }


def with_digest(settings: Settings) -> Settings:
    """Return settings that include the digests of the recording and of its unit table.

    Raises
    ------
    ValueError
        If the settings already have another digest.
    """
    source = settings.recording
    if not source.file:
        raise InputError("there is no recording to fit: name a file")
    return Settings(files_with_digests(source), settings.model)


def files_with_digests(files: Source) -> Source:
    """Return a source with the digests of its recording and of its unit table.

    Raises
    ------
    ValueError
        If it already has another digest.
    """
    changes: dict[str, Any] = {}
    if files.file:
        changes["file"], changes["sha256"] = digest_of(files.file, files.sha256)
    if files.unit_table is not None:
        changes["unit_table"], changes["unit_table_sha256"] = digest_of(
            files.unit_table, files.unit_table_sha256, "unit_table"
        )
    return replace(files, **changes)


def digest_of(file: str, expected: str | None, *arguments: str) -> tuple[str, str]:
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


def write_settings(
    folder: Path, table: dict[str, Any], resolved: Mapping[str, Any] | None = None
) -> None:
    """Write the settings of a run.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    table : dict
        The settings as plain values.
    resolved : mapping, optional
        Of a finished run, the value that was used for every argument of the estimator.
    """
    if resolved is not None:
        table["resolved"] = set_values(resolved)
        table["made_with"] = {
            **made_with(),
            "python": platform.python_version(),
            "finished": now(),
        }
    with atomically(folder / SETTINGS) as partial:
        partial.write_text(tomli_w.dumps(table), encoding="utf-8")


def set_values(values: Mapping[str, Any]) -> dict[str, Any]:
    """Return values without None, which TOML does not have, and without empty lists."""
    present = {}
    for name, value in values.items():
        if isinstance(value, Mapping):
            value = set_values(value)
        elif isinstance(value, tuple):
            value = list(value)
        if value is not None and value not in ([], {}):
            present[str(name)] = value
    return present


def check_names(path: Path, section: str, settings: Mapping[str, Any], names: Any) -> None:
    """Raise an error if a setting does not exist."""
    for name in settings:
        if name not in names:
            near = get_close_matches(name, names, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else f"; known are {', '.join(names)}"
            raise InputError(f"{path}: [{section}] has {name!r}, which is no setting{hint}")


def settings_tables(path: Path) -> dict[str, Any]:
    """Read the tables of a TOML file, or of the settings in the folder of a run.

    Raises
    ------
    FileNotFoundError
        If there is no such file.
    ValueError
        If it is not TOML.
    """
    if path.is_dir():
        path = path / SETTINGS
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r} with settings")
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InputError(f"{path}: is no TOML that can be read ({error})") from None
