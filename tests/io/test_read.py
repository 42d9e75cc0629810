"""One recording in any form is one recording; and who is activity, label and epochs in a source."""

from datetime import UTC, datetime
from functools import cache

import numpy as np
import pandas as pd
import pynapple as nap
import pytest
import xarray as xr
from pynwb import NWBHDF5IO, NWBFile, TimeSeries
from pynwb.behavior import SpatialSeries
from pynwb.testing.mock.ophys import mock_RoiResponseSeries

import xcebra
from xcebra.caveats import LabelScaleWarning
from xcebra.io import Contents, Intervals, Series, Spikes, describe, opened

N, WIDTH = 600, 0.05
TIMES = (np.arange(N) + 0.5) * WIDTH
ROWS = [(0, 240), (240, N)]
SECONDS = [(0.0, 12.0), (12.0, 30.0)]


@cache
def truth():
    rng = np.random.default_rng(0)
    return xcebra.Recording(
        rng.poisson(0.8, (N, 8)),
        {"position": rng.normal(size=(N, 2)).cumsum(axis=0), "choice": rng.integers(0, 3, N)},
        ROWS,
        time=TIMES,
    )


def spike_times():
    """Each spike somewhere inside its bin."""
    rng = np.random.default_rng(1)
    trains = {}
    for i, counts in enumerate(truth().neural.T.astype(int)):
        bins = np.repeat(np.arange(N), counts)
        trains[i] = np.sort((bins + rng.uniform(0.05, 0.95, len(bins))) * WIDTH)
    return trains


def frame():
    rec = truth()
    columns = {"time": TIMES} | {f"neural/{i}": rec.neural[:, i] for i in range(8)}
    columns |= {f"position/{i}": rec.labels["position"][:, i] for i in range(2)}
    return pd.DataFrame(columns | {"choice": rec.labels["choice"][:, 0]})


def dataset():
    rec = truth()
    return xr.Dataset(
        {
            "neural": (("neuron", "time"), rec.neural.T),
            "position": (("time", "axis"), rec.labels["position"]),
            "choice": ("time", rec.labels["choice"][:, 0]),
        },
        {"time": TIMES},
    )


def behaviour():
    position, choice = truth().labels["position"], truth().labels["choice"][:, 0]
    return {"position": nap.TsdFrame(t=TIMES, d=position), "choice": nap.Tsd(t=TIMES, d=choice)}


def group():
    return nap.TsGroup({i: nap.Ts(train) for i, train in spike_times().items()})


def saved(path, fill):
    nwb = NWBFile("a session", path.stem, datetime(2020, 1, 1, tzinfo=UTC))
    fill(nwb)
    with NWBHDF5IO(str(path), "w") as io:
        io.write(nwb)
    return path


def series(name, data, rate, start=0.0):
    return TimeSeries(name=name, data=data, unit="a.u.", starting_time=start, rate=rate)


def foreign_nwb(path):
    def fill(nwb):
        for i, train in spike_times().items():
            nwb.add_unit(spike_times=train, id=i)
        for start, stop in SECONDS:
            nwb.add_trial(start, stop)
        module = nwb.create_processing_module("behavior", "behaviour")
        position, choice = truth().labels["position"], truth().labels["choice"][:, 0]
        module.add(
            SpatialSeries(name="position", data=position, reference_frame="room", timestamps=TIMES)
        )
        module.add(series("choice", choice, 1 / WIDTH, start=TIMES[0]))

    return saved(path, fill)


def written(path, save):
    save(path)
    return path


FORMS = {
    "arrays": lambda p: (
        {"neural": truth().neural, **truth().labels},
        {"epochs": ROWS},
    ),
    "arrays with times": lambda p: (
        {"neural": (TIMES, truth().neural), **{n: (TIMES, v) for n, v in truth().labels.items()}},
        {"epochs": SECONDS},
    ),
    "array and labels": lambda p: (truth().neural, {"labels": truth().labels, "epochs": ROWS}),
    "float64 in Fortran order": lambda p: (
        np.asfortranarray(truth().neural, dtype=np.float64),
        {"labels": truth().labels, "epochs": ROWS},
    ),
    "spike times": lambda p: (
        {"units": spike_times(), **{n: (TIMES, v) for n, v in truth().labels.items()}},
        {"epochs": SECONDS, "bin_size": WIDTH},
    ),
    "DataFrame": lambda p: (frame(), {"epochs": SECONDS}),
    "DataFrame with times as index": lambda p: (frame().set_index("time"), {"epochs": SECONDS}),
    "DataFrames": lambda p: (
        {
            "neural": frame().set_index("time").filter(like="neural"),
            "position": frame()[["time", "position/0", "position/1"]],
            "choice": frame().set_index("time")["choice"],
        },
        {"epochs": SECONDS},
    ),
    "Dataset": lambda p: (dataset(), {"epochs": SECONDS}),
    "DataArray": lambda p: (
        dataset()["neural"],
        {"labels": {n: dataset()[n] for n in ("position", "choice")}, "epochs": SECONDS},
    ),
    "TsGroup": lambda p: (
        group(),
        {"labels": behaviour(), "epochs": SECONDS, "bin_size": WIDTH},
    ),
    "TsGroup counted": lambda p: (
        {"neural": group().count(WIDTH, nap.IntervalSet(0, 30)), **behaviour()},
        {"epochs": SECONDS},
    ),
    "TsdFrame": lambda p: (
        nap.TsdFrame(t=TIMES, d=truth().neural),
        {"labels": behaviour(), "epochs": SECONDS},
    ),
    "npz": lambda p: (written(p / "r.npz", lambda f: xcebra.write(truth(), f)), {}),
    "npz of arrays": lambda p: (
        written(
            p / "r.npz",
            lambda f: np.savez_compressed(f, neural=truth().neural, time=TIMES, **truth().labels),
        ),
        {"epochs": SECONDS},
    ),
    "csv": lambda p: (
        written(p / "r.csv", lambda f: frame().to_csv(f, index=False)),
        {"epochs": SECONDS},
    ),
    "csv with times as index": lambda p: (
        written(p / "r.csv", lambda f: frame().set_index("time").rename_axis(None).to_csv(f)),
        {"epochs": SECONDS},
    ),
    "parquet": lambda p: (
        written(p / "r.parquet", lambda f: frame().to_parquet(f)),
        {"epochs": SECONDS},
    ),
    "nwb of spike times": lambda p: (
        written(p / "r.nwb", lambda f: xcebra.write(truth(), f, spikes=True)),
        {"epochs": "epochs", "bin_size": WIDTH},
    ),
    "nwb of a series": lambda p: (
        written(p / "r.nwb", lambda f: xcebra.write(truth(), f)),
        {"epochs": "epochs"},
    ),
    "nwb from elsewhere": lambda p: (
        foreign_nwb(p / "r.nwb"),
        {"epochs": "trials", "bin_size": WIDTH},
    ),
}


@pytest.mark.parametrize("form", FORMS)
def test_one_recording_in_any_form_is_the_same_bit_for_bit(form, tmp_path):
    source, said = FORMS[form](tmp_path)
    rec = xcebra.read(source, **said)
    assert rec.neural.dtype == np.float32
    assert rec.neural.tobytes() == truth().neural.tobytes()
    assert sorted(rec.labels) == ["choice", "position"]
    for name, values in truth().labels.items():
        assert rec.labels[name].dtype == values.dtype
        assert rec.labels[name].tobytes() == values.tobytes()
    assert rec.epochs.pairs() == ROWS
    if rec.time is not None:
        np.testing.assert_allclose(rec.time, TIMES, rtol=1e-12)


def test_one_recording_in_any_form_has_the_same_embedding_bit_for_bit(tmp_path):
    def embedding(rec):
        model = xcebra.XCEBRA(time_dims=2, steps=3, batch_size=128, random_state=0, progress=False)
        return model.fit(rec, label="position").transform(rec).tobytes()

    expected = embedding(truth())
    for form in ("array and labels", "Dataset", "TsGroup", "csv", "nwb of spike times", "npz"):
        source, said = FORMS[form](tmp_path)
        assert embedding(xcebra.read(source, **said)) == expected, form


# Who is the activity


def wide(n_columns=3, n=50):
    return np.random.default_rng(0).normal(size=(n, n_columns))


def told(source, **said):
    with pytest.raises(ValueError) as caught:
        xcebra.read(source, **said)
    return str(caught.value)


@pytest.mark.parametrize(
    ("source", "name"),
    [
        ({"units": {"a": [0.1, 4.0]}, "lfp": (np.arange(50) / 10, wide())}, "units"),
        ({"neural": wide(), "other": wide(9)}, "neural"),
        ({"units": {"a": [0.1]}, "neural": wide(), "more": {"b": [0.1]}}, "neural"),
        ({"calcium": wide()}, "calcium"),
        ({"a": Series(wide(9), activity=True), "b": wide(9), "c": wide()}, "a"),
    ],
    ids=["one of spike times", "called neural", "called neural first", "alone", "said to be"],
)
def test_activity_is_found_where_it_can_be_told(source, name):
    said = {"bin_size": 0.1, "epochs": [(0, 4.9)]} if name == "units" else {}
    found = xcebra.read(source, labels=[], **said)
    expected = xcebra.read(source, neural=name, labels=[], **said)
    np.testing.assert_array_equal(found.neural, expected.neural)
    with opened(source) as contents:
        assert [d.name for d in describe(contents) if "neural" in d.roles] == [name]


def test_where_it_cannot_be_told_the_candidates_are_listed():
    source = {"a": wide(), "b": wide(9), "one": np.arange(50), "text": ["x"] * 50}
    assert "the data: cannot tell which" in told(source)
    assert told(source).endswith("say neural=NAME; it could be 'a', 'b'")
    source = {"a": {"u": [1.0]}, "b": {"u": [1.0]}, "c": wide()}
    assert told(source).endswith("it could be 'a', 'b', 'c'")
    assert told({"speed": np.arange(50.0)}).endswith(
        "nothing in it looks like activity, it has 'speed'"
    )


def test_labels_with_their_own_data_do_not_hide_the_activity():
    label = np.arange(50.0)
    rec = xcebra.read({"calcium": wide()}, labels={"neural": label, "wide": wide()})
    np.testing.assert_array_equal(rec.neural, wide().astype(np.float32))
    np.testing.assert_array_equal(rec.labels["neural"][:, 0], label)


def test_columns_of_the_activity_are_named_by_a_pattern_or_one_by_one():
    table = pd.DataFrame(wide(4), columns=["unit_0", "unit_1", "speed", "unit_2"])
    rec = xcebra.read(table, neural="unit_*")
    assert rec.neuron_names == ("unit_0", "unit_1", "unit_2")
    np.testing.assert_array_equal(rec.neural, wide(4)[:, [0, 1, 3]].astype(np.float32))
    assert list(rec.labels) == ["speed"]
    rec = xcebra.read(table, neural=["unit_2", "unit_*"], labels=[])
    assert rec.neuron_names == ("unit_2", "unit_0", "unit_1")
    rec = xcebra.read(
        {"left": wide(), "right": wide(2), "x": np.arange(50)}, neural=["right", "left"]
    )
    assert rec.neuron_names == ("right/0", "right/1", "left/0", "left/1", "left/2")
    assert list(rec.labels) == ["x"]


def test_a_pattern_that_takes_in_something_unusable_is_refused():
    table = pd.DataFrame({"unit_0": [1.0, 2.0], "unit_1": ["3.0", "oops"], "unit_2": [5.0, 6.0]})
    assert "neural='unit_*' cannot be used: 'unit_1' column 'unit_1' has 'oops'" in told(
        table, neural="unit_*"
    )


def test_parts_of_the_activity_must_be_on_one_clock():
    source = {"a": (np.arange(50.0), wide()), "b": (np.arange(50.0) + 1, wide())}
    assert "'a' and 'b' have different times" in told(source, neural=["a", "b"])
    source = {"a": {"u": [1.0]}, "b": wide()}
    assert "spike times beside others, 'a', 'b'; name one" in told(source, neural="*", labels=[])


def test_a_column_called_time_is_the_clock_wherever_it_is_and_whole_numbers_count():
    table = pd.DataFrame({"unit/0": [1.0, 2.0, 3.0], "Time": [5, 6, 7], "unit/1": [0.0, 1.0, 0.0]})
    assert xcebra.read(table, neural="unit").time.tolist() == [5, 6, 7]
    assert xcebra.read({"neural": table}).neural.shape == (3, 2)
    durations = table.assign(Time=pd.to_timedelta([5, 6, 7], unit="ms"))
    np.testing.assert_allclose(xcebra.read(durations, neural="unit").time, [0.005, 0.006, 0.007])
    assert xcebra.read(table.drop(columns="Time"), neural="unit").time is None


# Who is a label


def labelled():
    times = np.arange(50) / 10
    return {
        "neural": (times, wide(9)),
        "x": (times, np.arange(50.0)),
        "y": (times, np.arange(50.0) ** 2),
        "both": (times, wide(2)),
        "side": (times, np.array(["left", "right"] * 25)),
        "lfp": (times, wide(9)),
        "later": (times + 100, np.arange(50.0)),
        "trials": Intervals(np.array([0.0]), np.array([5.0])),
    }


def test_all_that_can_be_labels_are_taken_if_none_is_named():
    assert list(xcebra.read(labelled()).labels) == ["x", "y", "both", "side"]
    assert xcebra.read(labelled(), labels=[]).labels == {}
    assert xcebra.read(labelled(), labels=()).labels == {}


@pytest.mark.parametrize(
    ("labels", "expected"),
    [
        ("x", {"x": 1}),
        (["side", "x"], {"side": 1, "x": 1}),
        ("[xy]", {"x": 1, "y": 1}),
        ("lfp", {"lfp": 9}),
        ({"place": ["x", "y"], "hand": "side"}, {"place": 2, "hand": 1}),
        ({"place": ("x", "both")}, {"place": 3}),
        ({"x": np.zeros(50), 3: "y"}, {"x": 1, "3": 1}),
        ({"a": pd.Series(np.zeros(50)), "b": (np.arange(60) / 10, wide(2, 60))}, {"a": 1, "b": 2}),
    ],
)
@pytest.mark.filterwarnings("ignore::xcebra.caveats.LabelScaleWarning")
def test_labels_are_named_in_any_form(labels, expected):
    rec = xcebra.read(labelled(), labels=labels)
    assert {name: values.shape[1] for name, values in rec.labels.items()} == expected


def test_several_entries_are_columns_of_one_label_in_their_order():
    with pytest.warns(LabelScaleWarning, match="'y' varies more than ten times as much as 'x'"):
        place = xcebra.read(labelled(), labels={"place": ["y", "x"]}).labels["place"]
    np.testing.assert_array_equal(place, np.column_stack([np.arange(50) ** 2, np.arange(50)]))


def test_a_label_s_own_data_wins_over_an_entry_of_its_name():
    rec = xcebra.read(labelled(), labels={"x": np.full(50, 7.0)})
    assert (rec.labels["x"] == 7).all()


@pytest.mark.parametrize("circular", ["y", ["x", "y"], "neural"])
def test_circular_must_name_labels(circular):
    assert "circular names " in told(labelled(), labels=["x"], circular=circular)
    assert "but the labels are ['x']" in told(labelled(), labels=["x"], circular=circular)


def test_numbers_with_missing_values_in_a_table_are_numbers():
    table = pd.DataFrame(
        {
            "neural/0": [1.0, 2.0, 3.0],
            "neural/1": [0, 1, 0],
            "int": pd.array([1, None, 3], dtype="Int64"),
            "bool": pd.array([True, None, False], dtype="boolean"),
            "float": [0.5, None, 1.5],
            "name": ["a", "b", "c"],
            "kind": pd.Categorical(["u", "v", "u"]),
        }
    )
    rec = xcebra.read(table)
    kinds = {name: values.dtype.kind for name, values in rec.labels.items()}
    assert kinds == {"int": "f", "bool": "f", "float": "f", "name": "U", "kind": "U"}
    assert [np.isnan(rec.labels[n]).sum() for n in ("int", "bool", "float")] == [1, 1, 1]
    at = xcebra.read(
        {"neural": (np.arange(5.0) / 2, wide(2, 5))},
        labels={"i": table["int"].set_axis([0.0, 1, 2])},
    )
    np.testing.assert_array_equal(at.labels["i"][:, 0], [1, np.nan, np.nan, np.nan, 3])


def test_a_table_of_many_rows_with_a_word_far_down_is_read_without_a_warning(tmp_path):
    # pandas reads tables in parts, and warns where their types differ.
    lines = ["0.5,1.5,2"] * 300_000
    lines[299_990] = "0.5,1.5,oops"
    path = tmp_path / "long.csv"
    path.write_text("neural/0,neural/1,label\n" + "\n".join(lines) + "\n")
    rec = xcebra.read(path)
    assert rec.neural.shape == (300_000, 2)
    with opened(path) as contents:
        assert contents.unread == {
            "label": "column 'label' has 'oops' among numbers, first in row 299990; correct it"
        }


# What a source says of itself


def test_a_description_tells_roles_sizes_and_ranges():
    source = labelled() | {
        "units": {"a": [0.5, 1.0], "b": [2.0]},
        "flag": (np.arange(3), [True] * 3),
    }
    source["broken"] = (np.array([0.0, 0.1, 0.2, 2.0, 2.1]), np.arange(5))
    with opened(source) as contents:
        found = {d.name: (d.what, d.when, d.roles) for d in describe(contents)}
    assert found == {
        "neural": ("50 samples of 9 columns, numbers", "0 s to 4.9 s, 10 Hz", ("neural",)),
        "x": ("50 samples of 1 column, numbers", "0 s to 4.9 s, 10 Hz", ("label",)),
        "y": ("50 samples of 1 column, numbers", "0 s to 4.9 s, 10 Hz", ("label",)),
        "both": ("50 samples of 2 columns, numbers", "0 s to 4.9 s, 10 Hz", ("label",)),
        "side": ("50 samples of 1 column, names", "0 s to 4.9 s, 10 Hz", ("label",)),
        "lfp": ("50 samples of 9 columns, numbers", "0 s to 4.9 s, 10 Hz", ()),
        "later": ("50 samples of 1 column, numbers", "100 s to 104.9 s, 10 Hz", ()),
        "trials": ("1 interval, 5 s in all", "0 s to 5 s", ("epochs",)),
        "units": ("spike times of 2 units, 3 spikes", "0.5 s to 2 s", ()),
        "flag": ("3 samples of 1 column, truth values", "0 s to 2 s, 1 Hz", ("label",)),
        "broken": (
            "5 samples of 1 column, whole numbers",
            "0 s to 2.1 s, 10 Hz, 1 gap",
            ("label",),
        ),
    }


def test_a_description_of_what_cannot_be_told_names_all_candidates():
    with opened({"a": wide(), "b": wide(9), "c": np.arange(50)}) as contents:
        assert [(d.name, d.when, d.roles) for d in describe(contents)] == [
            ("a", "no times", ("neural", "label")),
            ("b", "no times", ("neural",)),
            ("c", "no times", ("label",)),
        ]


def test_what_cannot_be_used_is_described_with_its_reason(tmp_path):
    np.savez(
        tmp_path / "o.npz", neural=wide(), info=np.array({"a": 1}), n=3, cube=np.ones((2, 2, 2))
    )
    table = pd.DataFrame(
        {"neural/0": [1.0, 2], "neural/1": [1.0, 2], "day": pd.to_datetime([0, 1])}
    )
    table["part"] = [[1, 2], [3]]
    for source, reasons in (
        (
            tmp_path / "o.npz",
            {"info": "holds objects", "n": "has shape ()", "cube": "has shape (2, 2, 2)"},
        ),
        (table, {"day": "holds dates", "part": "holds list, neither numbers nor names"}),
        (dataset().assign(cube=(("time", "u", "v"), np.ones((N, 2, 2)))), {"cube": "dimensions"}),
    ):
        with opened(source) as contents:
            what = {
                d.name: d.what for d in describe(contents) if d.what.startswith("cannot be used")
            }
            assert {d.roles for d in describe(contents) if d.name in what} == {()}
        assert list(what) == list(reasons)
        for name, reason in reasons.items():
            assert reason in what[name]
        assert xcebra.read(source).n_times > 1
        assert "cannot be used: " in told(source, labels=list(reasons)[:1])


def test_contents_are_a_source_themselves():
    contents = Contents("somewhere", {"units": Spikes({"a": np.array([0.5, 1.5])})})
    assert xcebra.read(contents, bin_size=0.5).neural.ravel().tolist() == [1, 0]
    with pytest.raises(ValueError, match=r"^somewhere: 'units' holds spike times; say bin_size"):
        xcebra.read(contents)


# NWB from elsewhere


def test_a_file_of_calcium_imaging_is_read_without_naming_its_activity(tmp_path):
    def fill(nwb):
        mock_RoiResponseSeries(name="dff", data=wide(12), rate=10.0, nwbfile=nwb)
        nwb.add_acquisition(series("lfp", wide(20, 500), 100.0))
        nwb.add_acquisition(series("speed", np.arange(100.0), 20.0))
        nwb.add_acquisition(series("video", np.ones((5, 4, 3)), 1.0))
        nwb.add_acquisition(series("state", list("ab" * 25), 10.0))

    path = saved(tmp_path / "imaging.nwb", fill)
    rec = xcebra.read(path)
    np.testing.assert_array_equal(rec.neural, wide(12).astype(np.float32))
    np.testing.assert_allclose(rec.time, np.arange(50) / 10)
    assert set(rec.labels) == {"speed", "state"}
    np.testing.assert_array_equal(rec.labels["speed"][:, 0], 2.0 * np.arange(50))
    assert rec.labels["state"][:, 0].tolist() == list("ab" * 25)
    with opened(path) as contents:
        found = {d.name: d for d in describe(contents)}
    assert {n: d.roles for n, d in found.items() if d.roles} == {
        "dff": ("neural",),
        "speed": ("label",),
        "state": ("label",),
    }
    assert found["lfp"].what == "500 samples of 20 columns, numbers"
    assert found["lfp"].when == "0 s to 4.99 s, 100 Hz"
    assert "cannot be used: has shape (5, 4, 3)" in found["video"].what
    assert "labels='video' cannot be used" in told(path, labels="video")


def test_two_series_of_calcium_imaging_must_be_told_apart(tmp_path):
    def fill(nwb):
        first = mock_RoiResponseSeries(name="dff", data=wide(4), rate=10.0, nwbfile=nwb)
        mock_RoiResponseSeries(
            name="raw",
            data=wide(4),
            rate=10.0,
            plane_segmentation=first.rois.table,
            nwbfile=nwb,
        )

    path = saved(tmp_path / "two.nwb", fill)
    assert f"{path}: cannot tell" in told(path)
    assert told(path).endswith("it could be 'dff', 'raw'")
    assert xcebra.read(path, neural="raw", labels=[]).n_neurons == 4


def test_units_and_trials_are_taken_as_the_file_has_them(tmp_path):
    def fill(nwb):
        nwb.add_unit(spike_times=[0.35, 0.05], id=7)
        nwb.add_unit(spike_times=[0.15], id=3)
        nwb.add_unit(spike_times=np.array([]), id=5)
        for start, stop in ((0.0, 0.2), (0.2, 0.4)):
            nwb.add_trial(start, stop)
        nwb.add_epoch(0.2, 0.4)
        nwb.add_epoch(0.0, 0.3)

    path = saved(tmp_path / "units.nwb", fill)
    rec = xcebra.read(path, epochs="trials", bin_size=0.1)
    assert rec.neuron_names == ("7", "3", "5")
    assert rec.neural.tolist() == [[1, 0, 0], [0, 1, 0], [0, 0, 0], [1, 0, 0]]
    assert rec.epochs.pairs() == [(0, 2), (2, 4)]
    text = told(path, epochs="epochs", bin_size=0.1)
    assert "epochs='epochs' cannot be used: interval 1 starts at 0 s, before interval 0" in text


def test_what_pynapple_opened_is_a_source_too(tmp_path):
    path = foreign_nwb(tmp_path / "r.nwb")
    data = nap.load_file(str(path))
    rec = xcebra.read(data, epochs=SECONDS, bin_size=WIDTH)
    data.close()
    np.testing.assert_array_equal(rec.neural, truth().neural)
    np.testing.assert_array_equal(rec.labels["position"], truth().labels["position"])


def test_a_series_is_read_in_its_unit(tmp_path):
    """NWB keeps whole numbers with what makes metres of them: conversion, then offset."""
    pixels = np.arange(200).reshape(100, 2)

    def fill(nwb):
        nwb.add_unit(spike_times=np.arange(0, 10, 0.05), id=0)
        module = nwb.create_processing_module("behavior", "behaviour")
        module.add(
            SpatialSeries(
                name="position",
                data=pixels,
                reference_frame="room",
                conversion=0.01,
                offset=-0.5,
                starting_time=0.05,
                rate=10.0,
            )
        )

    rec = xcebra.read(saved(tmp_path / "pixels.nwb", fill), bin_size=0.1, epochs=[(0.0, 10.0)])
    np.testing.assert_allclose(rec.labels["position"], pixels * 0.01 - 0.5, rtol=1e-12)


def test_epochs_are_when_all_units_were_observed(tmp_path):
    observed = [[(0.0, 1.0), (2.0, 5.0)], [(0.2, 3.0), (4.0, 6.0)]]

    def fill(nwb):
        for i, intervals in enumerate(observed):
            nwb.add_unit(spike_times=np.arange(0.05, 6, 0.1), obs_intervals=intervals, id=i)

    path = saved(tmp_path / "observed.nwb", fill)
    rec = xcebra.read(path, bin_size=0.1)
    assert rec.epochs.pairs() == [(0, 8), (8, 18), (18, 28)]
    borders = rec.time[[0, 7, 8, 17, 18, 27]]
    np.testing.assert_allclose(borders, [0.25, 0.95, 2.05, 2.95, 4.05, 4.95])
    assert (rec.neural == 1).all()


def test_units_never_observed_together_are_refused(tmp_path):
    def fill(nwb):
        for i in range(2):
            nwb.add_unit(spike_times=[i + 0.5], obs_intervals=[(float(i), i + 1.0)], id=i)
        nwb.add_acquisition(series("speed", np.arange(10.0), 10.0))

    text = told(saved(tmp_path / "apart.nwb", fill), neural="units", bin_size=0.1)
    assert "'units' cannot be used: has no moment at which all units were observed" in text


def test_dates_are_a_clock_that_starts_with_the_first():
    index = pd.date_range("2024-05-01 12:00", periods=6, freq="100ms")
    rec = xcebra.read(pd.DataFrame({"a": range(6), "b": range(6)}, index=index), neural=["a", "b"])
    np.testing.assert_allclose(rec.time, np.arange(6) / 10)


def test_an_open_nwb_file_asks_for_its_path():
    nwb = NWBFile("a session", "x", datetime(2020, 1, 1, tzinfo=UTC))
    with pytest.raises(TypeError, match="give the path of the file"):
        xcebra.read(nwb)


class TestLabelUnit:
    SOURCE = pd.DataFrame(
        {"unit_0": [1.0] * 5, "unit_1": [2.0] * 5, "x": np.arange(5.0), "h": [0, 90, 180, 270, 360]}
    )

    def test_it_is_known_of_the_label(self):
        rec = xcebra.read(
            self.SOURCE, neural="unit_*", labels=["place=x"], label_unit={"place": " cm "}
        )
        assert rec.label_info["place"].unit == "cm"

    @pytest.mark.filterwarnings("ignore::xcebra.caveats.LabelKindWarning")
    def test_an_angle_in_degrees_is_converted(self):
        rec = xcebra.read(self.SOURCE, neural="unit_*", labels=["h"], label_unit={"h": "degrees"})
        assert (rec.label_info["h"].kind, rec.label_info["h"].unit) == ("circular", "rad")
        assert rec.labels["h"].max() == pytest.approx(2 * np.pi)

    @pytest.mark.parametrize(
        ("unit", "message"),
        [
            ("cm", "label_unit must be a mapping from labels to units, got 'cm'; as in {"),
            ({"y": "cm"}, r"label_unit names 'y', but the labels are \['x'\]"),
            ({"x": ""}, "label_unit of 'x' must be a text such as 'cm', got ''"),
            ({"x": 3}, "label_unit of 'x' must be a text such as 'cm', got 3"),
        ],
    )
    def test_what_is_no_unit_is_refused(self, unit, message):
        with pytest.raises(ValueError, match=message) as error:
            xcebra.read(self.SOURCE, neural="unit_*", labels=["x"], label_unit=unit)
        assert error.value.arguments == ("label_unit",)
