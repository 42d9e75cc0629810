"""Maps as files, datasets and tables: what was written comes back, or an error says why not."""

import json
import os
import re
import subprocess
import sys
from dataclasses import replace

import h5netcdf
import h5py
import numpy as np
import pytest
import xarray
from scipy.io import netcdf_file

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.steps import Steps
from xcebra.common.choices import AGGREGATES
from xcebra.statistics.significance import Connections

BLOCKS = {"position": slice(0, 2), "time": slice(2, 3)}
LATENTS = ("position0", "position1", "time0")
NEURONS = tuple("abcde")
TIMES = np.r_[3:20, 40:64]
MADE = {
    "method": "gradient",
    "basis": None,
    "smooth": 3,
    "rank_lost": 0.1 + 0.2,
    "units": "",
    "kept": True,
    "nested": {"names": ["é", "b"], "of": None},
    "worst": float("inf"),
}


def make(*, steps=True, seed=0, aggregate="mean", **changes):
    rng = np.random.default_rng(seed)
    maps = rng.standard_normal((len(TIMES), 5, 3)).astype(np.float32)
    names = {"neuron_names": NEURONS, "latent_names": LATENTS, "blocks": BLOCKS, **changes}
    amap = AttributionMap.from_steps(Steps(maps, TIMES), aggregate=aggregate, made=MADE, **names)
    return amap if steps else without_steps(amap)


def without_steps(amap):
    return AttributionMap(
        amap.values, amap.scores, amap.blocks, amap.neuron_names, amap.latent_names, amap.made
    )


def same_bytes(a, b):
    a, b = np.asarray(a), np.asarray(b)
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


def assert_same(found, expected):
    assert same_bytes(found.values, expected.values)
    assert list(found.blocks.items()) == list(expected.blocks.items())
    assert found.scores.keys() == expected.scores.keys()
    for name in expected.blocks:
        assert same_bytes(found.block(name), expected.block(name))
    assert found.neuron_names == expected.neuron_names
    assert found.latent_names == expected.latent_names
    assert found.made == expected.made
    assert (found.steps is None) == (expected.steps is None)
    if expected.steps is not None:
        assert same_bytes(found.steps.maps, expected.steps.maps)
        assert same_bytes(found.steps.times, expected.steps.times)


@pytest.fixture
def path(tmp_path):
    path = tmp_path / "map.nc"
    make().save(path)
    return path


# There and back


def examined(amap, **blocks):
    """A map with what a test found in some blocks: whether explained and controls are known."""
    rng = np.random.default_rng(7)
    connections = {
        name: Connections(
            *rng.standard_normal((3, 5)),
            rng.random(5),
            rng.random(5) if explained else None,
            rng.random(n_controls) if n_controls else None,
        )
        for name, (explained, n_controls) in blocks.items()
    }
    return replace(amap, connections=connections)


@pytest.mark.parametrize(
    "blocks",
    [
        {"position": (True, 4), "time": (True, 6)},
        {"time": (True, 4)},
        {"position": (True, 0), "time": (True, 3)},
        {"position": (False, 0), "time": (False, 0)},
    ],
)
def test_what_a_test_found_comes_back_bit_for_bit(tmp_path, blocks):
    amap = examined(make(), **blocks)
    amap.save(tmp_path / "map.nc")
    found = AttributionMap.load(tmp_path / "map.nc")
    assert_same(found, amap)
    assert set(found.connections) == set(blocks)
    for name, expected in amap.connections.items():
        for field in ("share", "low", "high", "p_values", "explained", "controls"):
            ours, theirs = (getattr(each, field) for each in (expected, found.connections[name]))
            assert (ours is None) == (theirs is None)
            assert ours is None or same_bytes(ours, theirs)
        np.testing.assert_array_equal(found.significant(name), amap.significant(name))
        assert found.connections[name].controls_called() == expected.controls_called()


def test_a_table_has_what_a_test_found_and_its_part_of_what_is_explained():
    amap = examined(make(), position=(True, 4), time=(False, 0))
    table, found = amap.to_pandas(), amap.connections["position"]
    np.testing.assert_array_equal(table["share", "position"], found.share)
    np.testing.assert_array_equal(table["explained", "position"], found.explained)
    np.testing.assert_array_equal(table["share_of_explained", "position"], found.of_explained)
    assert ("explained", "time") not in table.columns


def test_negative_scores_come_back(tmp_path):
    """Of crossed maps, where two decoders do not agree on anything."""
    amap = make(steps=False)
    scores = {name: -score for name, score in amap.scores.items()}
    amap = replace(amap, scores=scores)
    amap.save(tmp_path / "map.nc")
    assert_same(AttributionMap.load(tmp_path / "map.nc"), amap)


@pytest.mark.parametrize("aggregate", AGGREGATES)
@pytest.mark.parametrize("steps", [True, False])
def test_a_map_comes_back_bit_for_bit(tmp_path, steps, aggregate):
    amap = make(steps=steps, aggregate=aggregate)
    amap.save(str(tmp_path / "map"))
    assert_same(AttributionMap.load(str(tmp_path / "map")), amap)
    assert os.listdir(tmp_path) == ["map"]


@pytest.mark.parametrize("entries", [1, 60, 2**22])
def test_a_restricted_map_comes_back_as_what_was_left(tmp_path, entries, monkeypatch):
    part = make().restrict(times=np.arange(64) % 2 == 0)
    monkeypatch.setattr("xcebra.attribution.steps._ENTRIES_AT_ONCE", entries)
    part.save(tmp_path / "map")
    found = AttributionMap.load(tmp_path / "map")
    assert_same(found, part)
    assert found.steps.rows is None
    assert_same(found.restrict(epochs=[(0, 50)]), part.restrict(epochs=[(0, 50)]))


def test_special_values_come_back_bit_for_bit(tmp_path):
    values = np.array([[np.nan, -0.0], [np.inf, 5e-324]])
    maps = np.array([[[np.nan, -0.0], [np.inf, 1e-45]]], dtype=np.float32)
    steps = Steps(maps, np.array([2**40]))
    amap = AttributionMap(
        values, {"c": values[:, 0]}, {"c": slice(0, 2)}, ("a", "b"), ("x", "y"), {}, steps
    )
    amap.save(tmp_path / "map")
    assert_same(AttributionMap.load(tmp_path / "map"), amap)


@pytest.mark.parametrize(
    "changes",
    [
        {"neuron_names": ("", "é", "神経", "a b/c\n", "🐭")},
        {"neuron_names": ("same",) * 5},
        {"latent_names": ("0", "1", "0")},
        {"blocks": {"Größe": slice(0, 1), "": slice(1, 3)}},
        {"blocks": {"all": slice(0, 3)}},
        # In another order than their latents; and latents that are in no block.
        {"blocks": {"later": slice(2, 3), "earlier": slice(0, 2)}},
        {"blocks": {"some": slice(1, 2)}},
    ],
)
@pytest.mark.parametrize("steps", [True, False])
def test_odd_names_and_blocks_come_back(tmp_path, changes, steps):
    amap = make(steps=steps, **changes)
    amap.save(tmp_path / "map")
    assert_same(AttributionMap.load(tmp_path / "map"), amap)


def test_scores_stay_with_their_blocks_whatever_their_order(tmp_path):
    amap = make(steps=False)
    turned = AttributionMap(
        amap.values, dict(reversed(amap.scores.items())), BLOCKS, NEURONS, LATENTS, amap.made
    )
    turned.save(tmp_path / "map")
    assert_same(AttributionMap.load(tmp_path / "map"), amap)
    assert turned.to_xarray().identical(amap.to_xarray())


def test_a_long_account_of_how_it_was_made_comes_back(tmp_path):
    """Longer than the 64 KB that HDF5 has for small attributes."""
    amap = make(steps=False)
    long = AttributionMap(
        amap.values, amap.scores, BLOCKS, NEURONS, LATENTS, {"basis": [0.1] * 50_000}
    )
    long.save(tmp_path / "map")
    assert AttributionMap.load(tmp_path / "map").made == long.made


def test_loaded_steps_stay_in_the_file_until_used(path):
    steps = AttributionMap.load(path).steps
    assert isinstance(steps.stored, np.memmap)
    assert not steps.stored.flags.writeable
    assert isinstance(steps.choose(np.array([1, 3])).stored, np.memmap)


def test_saving_a_restricted_map_reads_a_part_at_a_time(path, tmp_path, monkeypatch):
    part = AttributionMap.load(path).restrict(epochs=[(0, 50)])

    def whole(self):
        raise AssertionError("all steps were read at once")

    monkeypatch.setattr(Steps, "maps", property(whole))
    part.save(tmp_path / "part")
    monkeypatch.undo()
    assert_same(AttributionMap.load(tmp_path / "part"), part)


@pytest.mark.parametrize("restrict", [False, True])
def test_a_loaded_map_can_be_saved_over_the_file_it_is_mapped_from(path, restrict):
    loaded = AttributionMap.load(path)
    amap = loaded.restrict(epochs=[(10, 50)]) if restrict else loaded
    expected = make().restrict(epochs=[(10, 50)]) if restrict else make()
    amap.save(path)
    for each in (amap, AttributionMap.load(path)):
        assert_same(each, expected)
    assert_same(loaded, make())
    assert os.listdir(path.parent) == [path.name]


def test_a_loaded_map_outlives_its_file(path):
    loaded = AttributionMap.load(path)
    make(seed=1).save(path)
    assert_same(loaded, make())
    path.unlink()
    assert_same(loaded, make())


# Other readers and writers


@pytest.mark.parametrize("restrict", [False, True])
@pytest.mark.parametrize("steps", [True, False])
def test_xarray_opens_the_file_as_the_same_dataset(tmp_path, steps, restrict):
    amap = make().restrict(epochs=[(10, 50)]) if restrict else make()
    amap = amap if steps else without_steps(amap)
    amap.save(tmp_path / "map.nc")
    with xarray.open_dataset(tmp_path / "map.nc", engine="h5netcdf") as found:
        xarray.testing.assert_identical(found.load(), amap.to_xarray())


def test_a_dataset_has_named_axes():
    amap = make()
    dataset = amap.to_xarray()
    assert dataset["value"].dims == ("neuron", "latent")
    assert dataset["score"].dims == ("neuron", "block")
    assert dataset["attribution"].dims == ("time", "neuron", "latent")
    assert set(dataset.coords) == {"neuron", "latent", "block", "latent_block", "time"}
    assert list(dataset["latent_block"].values) == ["position", "position", "time"]
    assert float(dataset["value"].sel(neuron="c", latent="time0")) == amap.values[2, 2]
    for name in BLOCKS:
        assert np.array_equal(dataset["score"].sel(block=name), amap.block(name))
    assert np.array_equal(dataset["attribution"].sel(time=45), amap.steps.maps[22])
    assert json.loads(dataset.attrs["made"]) == amap.made
    assert "attribution" not in make(steps=False).to_xarray()


def test_a_dataset_cannot_change_the_map_it_came_from():
    amap = make()
    dataset = amap.to_xarray()
    for name in ("value", "attribution"):
        with pytest.raises(ValueError, match="read-only"):
            dataset[name].values[...] = 0
    dataset["score"].values[...] = 0
    assert_same(amap, make())


@pytest.mark.parametrize(
    "encoding",
    [{}, {"zlib": True, "chunksizes": (5, 5, 3)}, {"dtype": "float64"}],
    ids=["plain", "compressed", "double"],
)
def test_a_file_that_xarray_wrote_again_can_be_read(path, tmp_path, encoding):
    with xarray.open_dataset(path, engine="h5netcdf") as dataset:
        dataset.to_netcdf(
            tmp_path / "again.nc", engine="h5netcdf", encoding={"attribution": encoding}
        )
    assert_same(AttributionMap.load(tmp_path / "again.nc"), make())


@pytest.mark.parametrize("steps", [True, False])
def test_a_table_has_a_row_per_neuron(steps):
    amap = make(steps=steps)
    table = amap.to_pandas()
    assert table.columns.tolist() == [
        ("score", "position"),
        ("score", "time"),
        ("value", "position0"),
        ("value", "position1"),
        ("value", "time0"),
    ]
    assert table.index.tolist() == list(NEURONS)
    assert table.index.name == "neuron"
    for name in BLOCKS:
        assert np.array_equal(table["score"][name], amap.block(name))
    assert np.array_equal(table["value"], amap.values)


def test_a_table_of_duplicate_names_keeps_every_column_and_row():
    amap = make(latent_names=("0", "1", "0"), neuron_names=("same",) * 5)
    assert np.array_equal(amap.to_pandas()["value"], amap.values)


@pytest.mark.parametrize("name", ["xarray", "pandas"])
def test_a_missing_package_is_answered_with_what_to_install(monkeypatch, name):
    monkeypatch.setitem(sys.modules, name, None)
    message = re.escape(f"to_{name} needs {name}; install it with: pip install 'xcebra[{name}]'")
    with pytest.raises(ImportError, match=message):
        getattr(make(), f"to_{name}")()


def test_files_need_neither_xarray_nor_pandas(monkeypatch, tmp_path):
    for name in ("xarray", "pandas"):
        monkeypatch.setitem(sys.modules, name, None)
    make().save(tmp_path / "map")
    assert_same(AttributionMap.load(tmp_path / "map"), make())


# Damage


def test_a_file_cut_short_anywhere_is_refused_by_name(path):
    whole = path.read_bytes()
    for length in (*range(0, len(whole), 197), len(whole) - 1):
        path.write_bytes(whole[:length])
        with pytest.raises(ValueError, match=rf"{re.escape(str(path))}.*damaged or not.*again"):
            AttributionMap.load(path)


@pytest.mark.parametrize("content", [b"", b"not a map", b"\x89HDF\r\n\x1a\n", b"\0" * 4096])
def test_something_else_is_refused_by_name(tmp_path, content):
    (tmp_path / "x").write_bytes(content)
    with pytest.raises(ValueError, match=rf"{re.escape(str(tmp_path / 'x'))}.*damaged or not"):
        AttributionMap.load(tmp_path / "x")


def foreign(path, library):
    if library == "xarray":
        xarray.Dataset({"value": ("x", [1.0])}).to_netcdf(path, engine="h5netcdf")
    elif library == "h5py":
        with h5py.File(path, "w") as file:
            file["value"] = [1.0]
    else:
        with netcdf_file(path, "w") as file:
            file.createDimension("x", 1)


@pytest.mark.parametrize(
    ("library", "message"),
    [
        ("xarray", "is a netCDF file, but not an attribution map"),
        ("h5py", "is a netCDF file, but not an attribution map"),
        ("scipy", "is damaged or not an attribution map"),
    ],
)
def test_a_file_of_another_program_is_refused(tmp_path, library, message):
    foreign(tmp_path / "x.nc", library)
    with pytest.raises(ValueError, match=f"x.nc' {message}"):
        AttributionMap.load(tmp_path / "x.nc")


@pytest.mark.parametrize("missing", ["value", "score", "neuron", "latent_block", "block", "time"])
def test_a_file_without_one_of_its_variables_is_refused(path, missing):
    with h5py.File(path, "r+") as file:
        del file[missing]
    with pytest.raises(ValueError, match=rf"damaged or not an attribution map.*{missing}"):
        AttributionMap.load(path)


@pytest.mark.parametrize(
    ("changes", "message"),
    [
        ({"format_version": 2}, "has format version 2, but .* knows 1 at most; upgrade xcebra"),
        ({"kind": "another"}, "is a netCDF file, but not an attribution map"),
        ({"kind": None}, "is a netCDF file, but not an attribution map"),
        ({"format_version": None}, "damaged or not an attribution map"),
        ({"format_version": "x"}, "damaged or not an attribution map"),
        ({"made": None}, "damaged or not an attribution map"),
        ({"made": "{half"}, "damaged or not an attribution map"),
    ],
)
def test_other_attributes_are_refused_by_name(path, changes, message):
    with h5netcdf.File(path, "r+") as file:
        for name, value in changes.items():
            del file.attrs[name]
            if value is not None:
                file.attrs[name] = value
    with pytest.raises(ValueError, match=f"{re.escape(str(path))}.*{message}"):
        AttributionMap.load(path)


def test_a_missing_file_and_a_folder_are_not_files(tmp_path):
    for path in (tmp_path / "nowhere", tmp_path):
        with pytest.raises(FileNotFoundError, match=f"no file {str(path)!r}"):
            AttributionMap.load(path)


# Writing that fails


def test_a_missing_folder_is_named(tmp_path):
    path = tmp_path / "no" / "map.nc"
    with pytest.raises(FileNotFoundError, match=f"cannot write {str(path)!r}.*no folder"):
        make().save(path)
    assert os.listdir(tmp_path) == []


@pytest.mark.parametrize("older", [True, False])
@pytest.mark.parametrize("fails", ["replace", "fsync"])
@pytest.mark.parametrize("error", [OSError("no space left"), KeyboardInterrupt("no space left")])
def test_nothing_is_left_when_writing_fails_and_the_older_file_stays(
    path, monkeypatch, fails, older, error
):
    def fail(*arguments):
        raise error

    if not older:
        path.unlink()
    monkeypatch.setattr(os, fails, fail)
    with pytest.raises(type(error), match="no space left"):
        make(seed=1).save(path)
    monkeypatch.undo()
    assert os.listdir(path.parent) == [path.name] * older
    if older:
        assert_same(AttributionMap.load(path), make())


def test_nothing_is_left_when_the_content_cannot_be_written(path):
    amap = make()
    odd = AttributionMap(
        amap.values, amap.scores, BLOCKS, NEURONS, LATENTS, {"bad": np.arange(3)}, amap.steps
    )
    with pytest.raises(TypeError):
        odd.save(path)
    assert os.listdir(path.parent) == [path.name]
    assert_same(AttributionMap.load(path), make())


# Replaces a file by one of two others in turn, until it is told to end.
REPLACE = """
import os, sys
path, *others = sys.argv[1:]
while True:
    for other in others:
        os.link(other, path + ".new")
        os.replace(path + ".new", path)
"""


def test_a_file_replaced_while_it_is_read_comes_back_whole_old_or_new(path):
    """The steps that are mapped must be of the file that the rest was read from."""
    others = [path.with_name(name) for name in "ab"]
    # Names of other lengths: steps do not start at the same place in both files.
    one, two = make(), make(seed=1, neuron_names=tuple("n" * 300 + str(i) for i in range(5)))
    one.save(others[0])
    two.save(others[1])
    path.unlink()
    with subprocess.Popen([sys.executable, "-c", REPLACE, path, *others]) as writer:
        try:
            while not path.exists():
                assert writer.poll() is None
            for _ in range(100):
                found = AttributionMap.load(path)
                assert_same(found, one if found.neuron_names == NEURONS else two)
        finally:
            writer.kill()
