"""What is wrong with a source is said in one line: where, what, and what to do."""

import zipfile
from datetime import UTC, datetime

import h5py
import numpy as np
import pandas as pd
import pytest
import xarray as xr
from pynwb import NWBHDF5IO, NWBFile, TimeSeries

import xcebra
from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs

N = 40
TIMES = np.arange(N) / 10
WIDE = np.random.default_rng(0).normal(size=(N, 3))
ENDINGS = (".nwb", ".npz", ".csv", ".parquet")


def told(source, **said):
    """The one line in which reading fails."""
    with pytest.raises((InputError, FileNotFoundError)) as caught:
        xcebra.read(source, **said)
    text = str(caught.value)
    assert text == text.strip()
    assert "\n" not in text
    assert len(text) < 600
    return text


def table(times=TIMES, **others):
    columns = {"time": times} | {f"neural/{i}": WIDE[:, i] for i in range(3)}
    return pd.DataFrame(columns | {"speed": np.arange(float(N))} | others)


def write_nwb(path, times=TIMES):
    nwb = NWBFile("a session", "1", datetime(2020, 1, 1, tzinfo=UTC))
    for name, data in (("neural", WIDE), ("speed", np.arange(float(N)))):
        nwb.add_acquisition(TimeSeries(name=name, data=data, unit="a.u.", timestamps=times))
    with NWBHDF5IO(str(path), "w") as io:
        io.write(nwb)


def good(folder, ending, times=TIMES):
    """A good file of a kind, but for its times."""
    path = folder / f"recording{ending}"
    if ending == ".nwb":
        write_nwb(path, times)
    elif ending == ".npz":
        np.savez(path, neural=WIDE, speed=np.arange(float(N)), time=times)
    elif ending == ".csv":
        table(times).to_csv(path, index=False)
    else:
        table(times).to_parquet(path)
    return path


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The bytes of a good file of every kind."""
    folder = tmp_path_factory.mktemp("good")
    return {ending: good(folder, ending).read_bytes() for ending in ENDINGS}


def holding(folder, ending, content):
    path = folder / f"bad{ending}"
    path.write_bytes(content)
    return path


# Files


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_good_file_is_read(tmp_path, whole, ending):
    rec = xcebra.read(holding(tmp_path, ending, whole[ending]))
    np.testing.assert_array_equal(rec.neural, WIDE.astype(np.float32))
    assert rec.labels["speed"][:, 0].tolist() == list(range(N))


@pytest.mark.parametrize("share", [0.001, 0.1, 0.5, 0.9, 0.99, 1.0])
@pytest.mark.parametrize("ending", [".nwb", ".npz", ".parquet"])
def test_a_file_that_is_cut_short_is_said_to_be_damaged(tmp_path, whole, ending, share):
    content = whole[ending]
    n_bytes = max(1, min(int(share * len(content)), len(content) - 1))
    path = holding(tmp_path, ending, content[:n_bytes])
    text = told(path)
    assert text.startswith(f"{path}: is ")
    assert "damaged or no" in text or "no table that can be read" in text
    assert "again" in text.rsplit(";", 1)[1]


@pytest.mark.parametrize("fields", [1, 2, 4])
@pytest.mark.parametrize("row", [1, 17, N])
def test_a_csv_that_is_cut_inside_a_row_is_said_to_be_cut(tmp_path, whole, row, fields):
    lines = whole[".csv"].decode().splitlines()
    last = ",".join(lines[row].split(",")[:fields])
    path = holding(tmp_path, ".csv", "\n".join([*lines[:row], last]).encode())
    assert told(path) == (
        f"{path}: is cut short: its last row has fewer than 5 fields; write or download it again"
    )


def test_a_csv_without_a_newline_at_its_end_or_with_several_is_whole(tmp_path, whole):
    for end in (b"", b"\n\n\n", b"\r\n"):
        path = holding(tmp_path, ".csv", whole[".csv"].rstrip() + end)
        assert xcebra.read(path).n_times == N


def test_a_csv_that_is_cut_inside_its_header_has_no_rows(tmp_path, whole):
    path = holding(tmp_path, ".csv", whole[".csv"][:12])
    assert told(path) == f"{path}: is empty: it has 0 rows; write it again"


@pytest.mark.parametrize("ending", ENDINGS)
def test_an_empty_file_is_said_to_be_empty(tmp_path, ending):
    path = holding(tmp_path, ending, b"")
    assert told(path) == f"{path}: is empty: it has no bytes; write or download it again"


@pytest.mark.parametrize(
    "content",
    [bytes(range(256)) * 8, b"\x89HDF\r\n\x1a\n" + b"\0" * 100, b"PAR1\0\0\0\0PAR1", b"PK\x05\x06"],
    ids=["bytes", "HDF5 in name", "Parquet in name", "zip in name"],
)
@pytest.mark.parametrize("ending", ENDINGS)
def test_what_is_no_such_file_is_said_to_be_none(tmp_path, ending, content):
    path = holding(tmp_path, ending, content)
    assert told(path).startswith(f"{path}: is ")


@pytest.mark.parametrize("ending", [".nwb", ".npz", ".parquet"])
def test_another_kind_of_file_under_this_name_is_said_to_be_none(tmp_path, whole, ending):
    for other in ENDINGS:
        if other != ending:
            path = holding(tmp_path, ending, whole[other])
            assert told(path).startswith(f"{path}: is ")


def test_hdf5_that_is_no_nwb_is_said_to_be_none(tmp_path):
    path = tmp_path / "matlab.nwb"
    with h5py.File(path, "w") as file:
        file["x"] = WIDE
    assert told(path).startswith(f"{path}: is damaged or no NWB file (")


def test_nwb_without_anything_over_time_is_said_to_have_nothing(tmp_path):
    path = tmp_path / "bare.nwb"
    with NWBHDF5IO(str(path), "w") as io:
        io.write(NWBFile("a session", "1", datetime(2020, 1, 1, tzinfo=UTC)))
    assert told(path) == f"{path}: has nothing over time in it"


def test_a_zip_without_arrays_is_said_to_be_empty(tmp_path):
    with zipfile.ZipFile(tmp_path / "a.npz", "w") as archive:
        archive.writestr("word/document.xml", "<text/>")
    assert "a.npz: is empty: it holds no arrays; write it again" in told(tmp_path / "a.npz")


def test_bytes_that_changed_in_an_array_are_found(tmp_path):
    for save in (np.savez, np.savez_compressed):
        save(tmp_path / "a.npz", neural=np.zeros((2000, 3)), time=np.arange(2000.0))
        content = bytearray((tmp_path / "a.npz").read_bytes())
        middle = 150 if save is np.savez_compressed else 20_000
        content[middle : middle + 20] = bytes(range(200, 220))
        path = holding(tmp_path, ".npz", bytes(content))
        assert told(path).startswith(f"{path}: is damaged or no .npz file (")


@pytest.mark.parametrize("name", ["a.mat", "a", "a.npz.gz", ".npz"])
def test_an_unknown_ending_is_answered_with_those_that_are_known(tmp_path, name):
    (tmp_path / name).write_bytes(b"x")
    text = told(tmp_path / name)
    assert text.startswith(f"{tmp_path / name}: cannot tell what it is from its ending")
    assert text.endswith("known are .nwb, .npz, .csv, .parquet")


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_file_that_is_not_there_and_a_folder_are_told_apart(tmp_path, ending):
    path = tmp_path / f"a{ending}"
    assert told(path) == f"there is no file {str(path)!r}; check its name and folder"
    path.mkdir()
    assert told(path) == f"{path}: is a folder; name a file in it"


# Times


KINDS = {ending: lambda p, t, e=ending: good(p, e, t) for ending in ENDINGS} | {
    "tuple": lambda p, t: {"neural": (t, WIDE)},
    "DataFrame": lambda p, t: table(t),
    "index": lambda p, t: table(t).set_index("time"),
    "DataArray": lambda p, t: xr.DataArray(WIDE, {"time": t}, ("time", "neuron")),
    "Dataset": lambda p, t: xr.Dataset({"neural": (("time", "neuron"), WIDE)}, {"time": t}),
}


def with_time(at, value):
    times = TIMES.copy()
    times[at] = value
    return times


@pytest.mark.parametrize(
    ("times", "wrong"),
    [
        (with_time(7, 0.6), "has the time 0.6 s again at sample 7; times must increase: sort"),
        (with_time(7, 0.25), "has the time 0.25 s after 0.6 s at sample 7; times must increase"),
        (TIMES[::-1].copy(), "has the time 3.8 s after 3.9 s at sample 1 (39 such samples); times"),
        (with_time(7, np.nan), "has nan as time of sample 7; cut that sample"),
        (with_time(N - 1, np.inf), "has inf as time of sample 39; cut that sample"),
    ],
    ids=["again", "back", "reversed", "NaN", "inf"],
)
@pytest.mark.parametrize("kind", KINDS)
def test_times_that_do_not_increase_are_refused(tmp_path, kind, times, wrong):
    source = KINDS[kind](tmp_path, times)
    text = told(source)
    assert text.startswith(f"{source}: " if kind in ENDINGS else "the data: ")
    assert wrong in text


@pytest.mark.parametrize("kind", [k for k in KINDS if k != ".nwb"])
def test_times_that_are_no_numbers_are_refused_or_no_clock(tmp_path, kind):
    source = KINDS[kind](tmp_path, np.array([f"t{i}" for i in range(N)]))
    if kind in ("index", "DataArray", "Dataset"):
        assert xcebra.read(source).time is None
    else:
        assert "has times of type " in told(source)
        assert "they must be seconds as numbers" in told(source)


def test_another_number_of_times_than_rows_is_refused(tmp_path):
    np.savez(tmp_path / "a.npz", neural=WIDE, time=TIMES[:-1])
    assert told(tmp_path / "a.npz") == (
        f"{tmp_path / 'a.npz'}: 'time' has 39 times, and no array has as many rows; save one time "
        "for each row"
    )
    assert "'neural' has 40 samples, but 39 times" in told({"neural": (TIMES[:-1], WIDE)})


@pytest.mark.parametrize("ending", ENDINGS)
def test_a_series_that_is_not_there_is_answered_with_those_that_are(tmp_path, ending):
    path = good(tmp_path, ending)
    for argument in ("neural", "labels", "epochs"):
        text = told(path, **{argument: "nothing"})
        assert text.startswith(f"{path}: {argument}='nothing' is not in it; it has '")
        assert "'neural'" in text
        assert "'speed'" in text
    assert "labels['where']='x*' is not in it" in told(path, labels={"where": ["speed", "x*"]})
    assert "epochs='speed' is not a list of intervals; it has none" in told(path, epochs="speed")


SPIKES = {"units": {"a": np.linspace(0.05, 3.95, 50)}}
LATER = (TIMES + 1000, np.arange(float(N)))


@pytest.mark.parametrize(
    ("source", "said", "wrong"),
    [
        (
            {"neural": (TIMES, WIDE), "speed": LATER},
            {"labels": "speed"},
            "label 'speed' runs from 1000 s to 1003.9 s, but the neural activity from 0 s to 3.9 "
            "s: they are not on one clock",
        ),
        (
            {"neural": (TIMES, WIDE), "speed": LATER},
            {"labels": "speed", "bin_size": 0.2},
            "label 'speed' from 1000 s to 1003.9 s: they are not on one clock",
        ),
        (
            {**SPIKES, "speed": LATER},
            {"labels": "speed", "bin_size": 0.1},
            "'units' runs from 0.05 s to 3.95 s, but label 'speed' from 1000 s",
        ),
        (
            {**SPIKES, "speed": LATER},
            {"labels": "speed", "bin_size": 0.1, "epochs": [(0, 4)]},
            "label 'speed' runs from 1000 s",
        ),
        (
            {"neural": (TIMES, WIDE)},
            {"epochs": [(100, 200)]},
            "'neural' has no sample inside the epochs: it runs from 0 to 3.9 s, they from 100 to "
            "200 s; are they on one clock?",
        ),
        (
            SPIKES,
            {"epochs": [(100, 200)], "bin_size": 0.1},
            "'units' has no spike inside the epochs: it runs from 0.05 to 3.95 s, they from 100",
        ),
        (
            {"neural": (TIMES, WIDE)},
            {"epochs": [(0, 200)], "bin_size": 0.5},
            "has no sample between 4 s and 4.5 s: bin_size=0.5 s is too small",
        ),
        (
            {"neural": (TIMES, WIDE)},
            {"bin_size": 0.03},
            "is too small for samples about 0.1 s apart",
        ),
        (SPIKES, {"bin_size": 10.0}, "bin_size=10 s is longer than the longest stretch"),
        (
            {"neural": (TIMES, WIDE), "speed": np.arange(30.0)},
            {"labels": "speed"},
            "label 'speed' has 30 samples without times, but the neural activity has 40; give both",
        ),
        (
            {**SPIKES, "speed": np.arange(39.0)},
            {"labels": "speed", "bin_size": 0.1},
            "label 'speed' has 39 samples without times, but the neural activity has 39; give both",
        ),
    ],
)
def test_clocks_that_do_not_meet_are_refused(source, said, wrong):
    text = told(source, **said)
    assert text.startswith("the data: ")
    assert wrong in text


# Values


@pytest.mark.parametrize("ending", [".csv", ".parquet"])
def test_text_among_numbers_is_shown_with_its_row(tmp_path, ending):
    words = [str(value) for value in WIDE[:, 1]]
    words[17] = "n/a?"
    frame = table().assign(**{"neural/1": words})
    path = tmp_path / f"a{ending}"
    frame.to_csv(path, index=False) if ending == ".csv" else frame.to_parquet(path)
    assert told(path) == (
        f"{path}: neural='neural' cannot be used: column 'neural/1' has 'n/a?' among numbers, "
        "first in row 17; correct it"
    )
    assert told(path, neural="speed", labels="neural").startswith(
        f"{path}: labels='neural' cannot be used: column 'neural/1' has 'n/a?'"
    )


def test_an_array_of_objects_is_not_opened(tmp_path):
    objects = np.array([{"a": 1}] * N, dtype=object)
    np.savez(tmp_path / "a.npz", neural=objects, time=TIMES, speed=TIMES)
    text = told(tmp_path / "a.npz")
    assert "a.npz: neural='neural' cannot be used: holds objects, which could run code" in text
    assert text.endswith("save it again as numbers or text")
    np.savez(tmp_path / "b.npz", data=objects)
    assert "b.npz: holds no array over time: 'data' holds objects" in told(tmp_path / "b.npz")
    np.savez(tmp_path / "c.npz", data=objects, speed=TIMES)
    assert "looks like activity, it has 'speed'; 'data' cannot be used: holds" in told(
        tmp_path / "c.npz"
    )


HOLED = np.where(np.arange(3 * N).reshape(N, 3) == 31, np.nan, WIDE)
TWICE = pd.DataFrame(WIDE, columns=["neural/0", "neural/0", "speed"])


@pytest.mark.parametrize(
    ("source", "said", "wrong"),
    [
        (5, {}, "'neural' is int, which is no series, spike times or intervals"),
        (None, {}, "'neural' is NoneType, which is no series"),
        (object(), {}, "'neural' is object, which is no series"),
        ({"neural": {1, 2}}, {}, "'neural' is set, which is no series"),
        ([], {}, "'neural' is empty: it has no samples"),
        ({}, {}, "cannot tell which of its entries is the neural activity"),
        (np.zeros((0, 3)), {}, "'neural' is empty: it has no samples"),
        (np.zeros((3, 0)), {}, "'neural' has shape (3, 0); a series has rows over time"),
        (np.zeros((2, 3, 4)), {}, "'neural' has shape (2, 3, 4); a series has rows over time"),
        ([WIDE, WIDE[:5]], {}, "has rows of different lengths; trials are for Recording.from_tr"),
        (np.array([WIDE, WIDE[:5]], dtype=object), {}, "has lists in its rows; trials are for"),
        (WIDE * 1j, {}, "neural must hold numbers, got dtype complex128"),
        (WIDE.astype(str), {}, "neural must hold numbers, got dtype <U"),
        (HOLED, {}, "neural has NaN at time 10, neuron 1 (the first NaN or inf); fill or cut"),
        (TWICE, {}, "has two columns called 'neural/0'; rename one of them"),
        ({"neural": TWICE}, {}, "'neural' has two columns called 'neural/0'"),
        ({"neural": table(speed=["a", *"1" * 39])}, {}, "'neural' column 'speed' has 'a' among"),
        (xr.DataArray(np.zeros((2, 3, 4))), {}, "a series has time and, maybe, columns"),
        ({"units": {}}, {}, "'units' is empty: it has no units"),
        ({"units": {"a": []}}, {}, "'units' is empty: no unit has a spike"),
        ({"units": {"a": [0.1, np.nan]}}, {}, "'units' unit 'a' has nan as spike time 1; remove"),
        ({"units": {"a": ["x"]}}, {}, "unit 'a' must have a list of times in seconds"),
        ({"units": {"a": [[0.1]]}}, {}, "unit 'a' must have a list of times in seconds"),
        (SPIKES, {}, "'units' holds spike times; say bin_size in seconds, for instance 0.05"),
        ({"units": {"a": [0.1]}}, {"bin_size": 0.1}, "has spikes at 0.1 s only; say epochs"),
        (SPIKES, {"bin_size": 1, "epochs": Epochs.check(None, 3)}, "in seconds, not in samples"),
        (WIDE, {"bin_size": 0.1}, "'neural' has no times: bin_size is in seconds and needs them"),
        (WIDE, {"smooth": 0.1}, "'neural' has no times: smooth is in seconds and needs them"),
        (WIDE, {"epochs": [(0, 2.5)]}, "epochs must hold whole sample indices"),
        (WIDE, {"epochs": np.array([[0, 99.0]])}, "epochs[0] is (0, 99), but an epoch needs"),
        (WIDE, {"neural": 5}, "neural must be a name or a list of names, got 5"),
        (WIDE, {"neural": []}, "neural must be a name or a list of names, got []"),
        (WIDE, {"labels": WIDE}, "labels must be a name or a list of names, got array("),
        (WIDE, {"labels": 3.5}, "labels must be a name or a list of names, got 3.5"),
        (WIDE, {"labels": {"a": []}}, "labels['a'] must be a name or a list of names, got []"),
        (SPIKES, {"neural": "units", "labels": "units"}, "'units' holds spike times, not a label"),
    ],
)
def test_what_cannot_be_a_recording_is_refused(source, said, wrong):
    text = told(source, **said)
    assert text.startswith("the data: ")
    assert wrong in text


@pytest.mark.parametrize(
    ("said", "wrong"),
    [
        ({"bin_size": 0}, "bin_size must be a number above 0, got 0"),
        ({"bin_size": -0.1, "smooth": -1}, "smooth must be a number of 0 or more, got -1"),
        ({"bin_size": "0.1"}, "bin_size must be a number above 0, got '0.1'"),
        ({"smooth": np.nan}, "smooth must be a number of 0 or more, got nan"),
        ({"epochs": []}, "epochs must be a name, or a list of (start, stop) in seconds; got []"),
        ({"epochs": [(0, 1, 2)]}, "list of (start, stop) in seconds; got [(0, 1, 2)]"),
        ({"epochs": 7}, "list of (start, stop) in seconds; got 7"),
        ({"epochs": np.ones((50, 3))}, "list of (start, stop) in seconds; got array([["),
        ({"epochs": [(2, 1)]}, "epochs: interval 0 goes from 2 s to 1 s; correct it"),
        ({"epochs": [(0, np.nan)]}, "epochs: interval 0 goes from 0 s to nan s; correct it"),
        ({"epochs": [(0, 2), (1, 3)]}, "epochs: interval 1 starts at 1 s, before interval 0 stops"),
        ({"epochs": [(2, 3), (0, 1)]}, "sort them and merge those that overlap"),
        ({"labels": {"a": 5}}, "labels['a'] is int, which is no series"),
        ({"labels": {"a": (TIMES[::-1], TIMES)}}, "labels['a'] has the time 3.8 s after 3.9 s"),
        ({"circular": "a"}, "circular names 'a', but the labels are []"),
    ],
)
def test_an_argument_that_is_wrong_is_named(said, wrong):
    assert wrong in told({"neural": (TIMES, WIDE)}, **said)


@pytest.mark.parametrize(("wrong", "right"), [("r.csv", ".nwb"), ("r.npz", ".nwb")])
def test_a_file_with_another_kinds_ending_is_told_what_it_is(wrong, right, tmp_path):
    rec = xcebra.Recording(np.zeros((5, 2)), time=np.arange(5.0))
    xcebra.write(rec, tmp_path / "r.nwb")
    (tmp_path / "r.nwb").rename(tmp_path / wrong)
    with pytest.raises(ValueError, match=f"{wrong}: is not what its ending says.*{right}"):
        xcebra.read(tmp_path / wrong)
