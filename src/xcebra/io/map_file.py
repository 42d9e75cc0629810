"""An attribution map as a netCDF file, a labelled dataset or a table."""

from __future__ import annotations

import json
import os
import re
from pathlib import Path
from typing import TYPE_CHECKING, Any

import h5netcdf
import h5py
import numpy as np
from numpy.typing import NDArray

from xcebra import caveats
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.steps import Steps
from xcebra.caveats import XcebraWarning
from xcebra.common.errors import InputError, MissingExtraError
from xcebra.common.files import atomically
from xcebra.statistics.second_opinion import SecondOpinion
from xcebra.statistics.significance import Connections

if TYPE_CHECKING:
    from pandas import DataFrame
    from xarray import Dataset

_KIND = "xcebra-map"
_FORMAT_VERSION = 1
_ATTRIBUTION = "attribution"
# Attribute that describes the second opinions: for each label the unit of the rate and the name of
# the usual score.
_OPINIONS = "opinions"
# Attribute with the p-values of the controls of each block that was tested.
_CONTROLS = "controls"
_WARNINGS = "warnings"
# Attribute with the names of the columns of the unit table. The columns are variables called
# unit_0, unit_1 and so on, because names of variables may not have all characters.
_UNITS = "unit_columns"
# Variables of the file with the results of the test, and the fields of `Connections` that they
# hold; blocks that were not tested have NaN.
_TESTED = {"share": "share", "share_low": "low", "share_high": "high", "p_value": "p_values"}
# Variable with what is explained of each neuron; files of version 0.3 do not have it.
_EXPLAINED = "explained"


def to_xarray(amap: AttributionMap) -> Dataset:
    """Return a dataset with values, scores and, if they were kept, the maps of single steps.

    All axes are named: ``neuron``, ``latent``, ``block``, ``time`` and ``lag``.
    """
    try:
        import xarray
    except ImportError as error:
        raise MissingExtraError(
            "to_xarray needs xarray; install it with: pip install 'xcebra[xarray]'"
        ) from error
    coordinates, variables = _contents(amap)
    for i, name in enumerate(amap.units):
        title = name if name not in {*coordinates, *variables} else f"unit_{name}"
        coordinates[title] = variables.pop(f"unit_{i}")
    dataset = xarray.Dataset(
        {
            name: (dims, np.asarray(data.maps if isinstance(data, Steps) else data))
            for name, (dims, data) in variables.items()
        },
        {name: (dims, np.asarray(data)) for name, (dims, data) in coordinates.items()},
        _attributes(amap),
    )
    return dataset


def to_pandas(amap: AttributionMap) -> DataFrame:
    """Return a table with one row per neuron.

    The columns are, for each block, ``"score"`` and the results of the test, then ``"value"`` for
    each latent. The second opinion comes last: ``"rate"``, and for each label ``"encoding"`` and
    the usual score.
    """
    try:
        import pandas
    except ImportError as error:
        raise MissingExtraError(
            "to_pandas needs pandas; install it with: pip install 'xcebra[pandas]'"
        ) from error
    columns = [("score", name) for name in amap.blocks]
    data = [amap.scores[name] for name in amap.blocks]
    for variable, field in _TESTED.items():
        columns += [(variable, name) for name in amap.connections]
        data += [getattr(tested, field) for tested in amap.connections.values()]
    for name, tested in amap.connections.items():
        if tested.explained is not None:
            columns += [(_EXPLAINED, name), ("share_of_explained", name)]
            data += [tested.explained, tested.of_explained]
    columns += [("value", name) for name in amap.latent_names]
    data.append(amap.values)
    unknown = np.full(len(amap.neuron_names), np.nan)
    for opinion in list(amap.opinions.values())[:1]:  # the rate is the same for all labels
        columns.append(("rate", ""))
        data.append(opinion.rate)
    for name, opinion in amap.opinions.items():
        columns.append(("encoding", name))
        data.append(unknown if opinion.encoding is None else opinion.encoding)
    for name, opinion in amap.opinions.items():
        if opinion.usual is not None:
            columns.append((str(opinion.usual_name), name))
            data.append(opinion.usual)
    frame = pandas.DataFrame(
        np.column_stack(data),
        index=pandas.Index(amap.neuron_names, name="neuron"),
        columns=pandas.MultiIndex.from_tuples(columns),
    )
    for i, (name, values) in enumerate(amap.units.items()):
        frame.insert(i, ("unit", name), values)
    return frame


def to_flat_pandas(amap: AttributionMap) -> DataFrame:
    """Return a table with one row per neuron and simple names of columns."""
    frame = to_pandas(amap)
    kept = [pair for pair in frame.columns if pair[0] not in ("unit", "value")]
    frame = frame[kept]
    names = ["_".join(_word(text) for text in pair if text) for pair in kept]
    # A TsGroup has a column "rate" of its own and allows no other.
    frame.columns = ["mean_rate" if name == "rate" else name for name in names]
    for name in amap.connections:
        frame[f"connected_{_word(name)}"] = amap.significant(name)
    if all(name.isdecimal() for name in amap.neuron_names):
        frame.index = frame.index.astype(int)
    return frame


def _word(text: str) -> str:
    """Return a text with everything but letters, digits and underscores replaced."""
    return re.sub(r"\W", "_", text)


def write_map(path: str | os.PathLike[str], amap: AttributionMap) -> None:
    """Write a map to a netCDF file with named axes."""
    coordinates, variables = _contents(amap)
    text_type = h5py.string_dtype()
    with atomically(path) as temporary, h5netcdf.File(temporary, "w") as file:
        file.dimensions = {
            "neuron": len(amap.neuron_names),
            "latent": len(amap.latent_names),
            "block": len(amap.blocks),
        }
        if amap.steps is not None:
            file.dimensions["time"] = len(amap.steps)
        if amap.lags:
            file.dimensions["lag"] = len(amap.lags)
        for name, (dims, data) in {**coordinates, **variables}.items():
            if isinstance(data, Steps):
                # Stored without chunks, so that it can be mapped into memory when it is read.
                variable = file.create_variable(name, dims, np.float32)
                start = 0
                for part in data.parts():
                    variable[start : start + len(part)] = part
                    start += len(part)
            elif data.dtype.kind in "UO":
                file.create_variable(name, dims, text_type, data=data.astype(object))
            else:
                file.create_variable(name, dims, data.dtype, data=data)
        for name, (dims, _) in variables.items():
            if "latent" in dims:
                file[name].attrs["coordinates"] = "latent_block"
        for name, value in _attributes(amap).items():
            file.attrs[name] = value


def read_map(path: str | os.PathLike[str]) -> AttributionMap:
    """Read a map written by `write_map`.

    Raises
    ------
    FileNotFoundError
    ValueError
        If the file is damaged, is not a map, or comes from a newer version of the package.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    # The file is opened once, so that all parts come from the same file even if it is replaced.
    with path.open("rb") as opened:
        try:
            with h5py.File(opened, "r") as file:
                problem = _problem(file)
                if not problem:
                    return _read(opened, file)
        except (OSError, LookupError, RuntimeError, TypeError, ValueError) as error:
            problem = f"is damaged or not an attribution map ({error}); write it again"
    raise InputError(f"{str(path)!r} {problem}")


def _problem(file: Any) -> str:
    """Return why a file cannot be read as a map; empty if it can."""
    if _attribute(file, "kind") != _KIND:
        return "is a netCDF file, but not an attribution map"
    number = int(_attribute(file, "format_version"))
    if number > _FORMAT_VERSION:
        return (
            f"has format version {number}, but this version of xcebra knows {_FORMAT_VERSION} at "
            "most; upgrade xcebra"
        )
    return ""


def _attribute(file: Any, name: str) -> Any:
    """Return an attribute; some libraries write it as an array or as bytes."""
    value = file.attrs.get(name)
    value = value.flat[0] if isinstance(value, np.ndarray) else value
    return value.decode() if isinstance(value, bytes) else value


def _read(opened: Any, file: Any) -> AttributionMap:
    def words(name: str) -> list[str]:
        return [str(word) for word in file[name].asstr()[...]]

    names, owners = words("block"), np.array(words("latent_block"), dtype=object)
    blocks = {}
    for name in names:
        latents = np.flatnonzero(owners == name)
        blocks[name] = slice(int(latents[0]), int(latents[-1]) + 1)
    steps = None
    if _ATTRIBUTION in file:
        variable = file[_ATTRIBUTION]
        offset = variable.id.get_offset()
        if offset is None or variable.dtype != np.float32:
            # Another program has written the file again, compressed or with another type.
            maps = variable[...].astype(np.float32)
        else:
            # The array is stored as it is in the file, in one piece.
            maps = np.memmap(opened, np.float32, "r", offset=offset, shape=variable.shape)
        steps = Steps(maps, file["time"][...].astype(np.int64))
    scores = file["score"][...]
    tested: dict[str, Connections] = {}
    if set(_TESTED) <= set(file):
        tables = [file[variable][...] for variable in _TESTED]
        for i, name in enumerate(names):
            if not np.isnan(tables[0][:, i]).all():
                tested[name] = Connections(
                    **{field: t[:, i] for field, t in zip(_TESTED.values(), tables, strict=True)},
                    explained=file[_EXPLAINED][:, i] if _EXPLAINED in file else None,
                    controls=_read_controls(file, name),
                )
    opinions = _read_opinions(file, names)
    how_made = json.loads(_attribute(file, "made"))
    neuron_names, latent_names = tuple(words("neuron")), tuple(words("latent"))

    def make_map(values: Any, scores: Any, **more: Any) -> AttributionMap:
        by_block = {name: scores[:, i] for i, name in enumerate(names)}
        return AttributionMap(
            values, by_block, blocks, neuron_names, latent_names, how_made, **more
        )

    lags = {}
    if "lag" in file:
        lag_arrays = zip(file["lag_value"][...], file["lag_score"][...], strict=True)
        lag_maps = (make_map(values, lag_scores) for values, lag_scores in lag_arrays)
        lags = dict(zip(file["lag"][...].tolist(), lag_maps, strict=True))
    return make_map(
        file["value"][...],
        scores,
        steps=steps,
        connections=tested,
        lags=lags,
        opinions=opinions,
        warnings=_read_warnings(file),
        units=_read_units(file),
    )


def _read_warnings(file: Any) -> tuple[XcebraWarning, ...]:
    """Return the warnings given when the map was made; files of earlier versions have none."""
    described = json.loads(_attribute(file, _WARNINGS) or "[]")
    # A category that this version does not know becomes the general one.
    return tuple(getattr(caveats, name, XcebraWarning)(text) for name, text in described)


def _read_opinions(file: Any, blocks: list[str]) -> dict[str, SecondOpinion]:
    """Return the second opinions; files of version 0.3.0 and earlier have none."""
    described = json.loads(_attribute(file, _OPINIONS) or "{}")

    def known(variable: str, name: str) -> Any:
        values = file[variable][:, blocks.index(name)]
        return None if np.isnan(values).all() else values

    return {
        name: SecondOpinion(
            rate=file["rate"][...],
            encoding=known("encoding", name),
            usual=known("usual", name),
            **names,
        )
        for name, names in described.items()
    }


def _contents(amap: AttributionMap) -> tuple[dict[str, Any], dict[str, Any]]:
    """Return coordinates and variables by name, each with the names of its axes and its array."""
    owners = np.full(len(amap.latent_names), "", dtype=object)
    for name, block in amap.blocks.items():
        owners[block] = name
    coordinates: dict[str, Any] = {
        "neuron": (("neuron",), np.array(amap.neuron_names, dtype=object)),
        "latent": (("latent",), np.array(amap.latent_names, dtype=object)),
        "block": (("block",), np.array(list(amap.blocks), dtype=object)),
        "latent_block": (("latent",), owners),
    }
    variables: dict[str, Any] = {
        "value": (("neuron", "latent"), amap.values),
        "score": (("neuron", "block"), np.column_stack([amap.scores[b] for b in amap.blocks])),
    }
    if amap.connections:
        untested = np.full(len(amap.neuron_names), np.nan)
        for variable, field in _TESTED.items():
            columns = [getattr(amap.connections.get(b), field, untested) for b in amap.blocks]
            variables[variable] = (("neuron", "block"), np.column_stack(columns))
        known = {b: c.explained for b, c in amap.connections.items() if c.explained is not None}
        if known:
            columns = [known.get(b, untested) for b in amap.blocks]
            variables[_EXPLAINED] = (("neuron", "block"), np.column_stack(columns))
    if amap.opinions:
        unknown = np.full(len(amap.neuron_names), np.nan)
        opinions = [amap.opinions.get(b) for b in amap.blocks]
        # The rate does not depend on the label.
        variables["rate"] = (("neuron",), next(iter(amap.opinions.values())).rate)
        for field in ("encoding", "usual"):
            columns = [getattr(opinion, field, None) for opinion in opinions]
            table = np.column_stack([unknown if c is None else c for c in columns])
            variables[field] = (("neuron", "block"), table)
    for i, column in enumerate(amap.units.values()):
        variables[f"unit_{i}"] = (("neuron",), _stored(column))
    if amap.lags:
        maps = amap.lags.values()
        scores = [[lag_map.scores[b] for b in amap.blocks] for lag_map in maps]
        coordinates["lag"] = (("lag",), np.array(list(amap.lags)))
        variables["lag_value"] = (("lag", "neuron", "latent"), np.stack([m.values for m in maps]))
        variables["lag_score"] = (("lag", "neuron", "block"), np.array(scores).swapaxes(1, 2))
    if amap.steps is not None:
        coordinates["time"] = (("time",), amap.steps.times)
        variables[_ATTRIBUTION] = (("time", "neuron", "latent"), amap.steps)
    return coordinates, variables


def _stored(column: NDArray[Any]) -> NDArray[Any]:
    """Return a column in a type that netCDF knows: truth values become small integers."""
    return column.astype(np.int8) if column.dtype.kind == "b" else column


def _read_units(file: Any) -> dict[str, NDArray[Any]]:
    """Return the unit table; files of version 0.4.0 and earlier have none."""
    described = json.loads(_attribute(file, _UNITS) or "[]")
    units = {}
    for i, (name, kind) in enumerate(described):
        variable = file[f"unit_{i}"]
        values = variable.asstr()[...] if kind == "U" else variable[...]
        units[name] = values.astype({"U": str, "b": bool}.get(kind, values.dtype))
    return units


def _attributes(amap: AttributionMap) -> dict[str, Any]:
    attributes = {
        "kind": _KIND,
        "format_version": _FORMAT_VERSION,
        "made": json.dumps(dict(amap.made)),
    }
    if amap.opinions:
        described = {
            name: {"rate_unit": opinion.rate_unit, "usual_name": opinion.usual_name}
            for name, opinion in amap.opinions.items()
        }
        attributes[_OPINIONS] = json.dumps(described)
    if amap.units:
        described_units = [[name, column.dtype.kind] for name, column in amap.units.items()]
        attributes[_UNITS] = json.dumps(described_units)
    if amap.warnings:
        warnings = [[type(warning).__name__, str(warning)] for warning in amap.warnings]
        attributes[_WARNINGS] = json.dumps(warnings)
    controls = {
        name: tested.controls.tolist()
        for name, tested in amap.connections.items()
        if tested.controls is not None
    }
    if controls:
        attributes[_CONTROLS] = json.dumps(controls)
    return attributes


def _read_controls(file: Any, name: str) -> NDArray[np.float64] | None:
    controls = json.loads(_attribute(file, _CONTROLS) or "{}")
    return np.array(controls[name], dtype=np.float64) if name in controls else None
