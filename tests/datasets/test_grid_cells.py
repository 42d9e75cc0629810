"""Public recordings of grid cells: read as they are, and never more than read."""

import hashlib
import io
import os
import pickle
import shlex
import zipfile
from pathlib import Path

import numpy as np
import pytest
from numpy.lib import format as npy
from scipy.ndimage import gaussian_filter1d

from xcebra.datasets import grid_cells

START, STOP = 9939.0, 12363.0
# The rat is tracked for a part of its time in the field: all else then is a pause.
TRACKED = 60.0


def walk(t):
    """A path in a box of 1.5 m that stands still for a while in every 20 s."""
    moved = np.cumsum(np.where((t - t[0]) % 20 < 15, 0.3, 0.0)) * np.median(np.diff(t))
    x, y = 0.7 * np.sin(1.3 * moved), 0.7 * np.cos(0.7 * moved)
    return x, y


def session(start=START, seconds=TRACKED, n_cells=(3, 2), seed=0):
    """What a public file holds, from before the open field to after it."""
    rng = np.random.default_rng(seed)
    t = start - 5 + 0.01 * np.arange(round(100 * (seconds + 10)))
    x, y = walk(t)
    arrays = {"t": t, "x": x, "y": y, "z": np.full(len(t), 0.8)}
    arrays["azimuth"] = (1.1 * (t - start)) % (2 * np.pi)
    for module, n in enumerate(n_cells, 1):
        trains = {}
        for cell in range(n):
            # Never within a microsecond of the border of a bin.
            bins = rng.integers(0, len(t), size=rng.integers(200, 400))
            trains[cell] = np.sort(t[0] + 0.01 * (bins + rng.uniform(0.001, 0.999, bins.size)))
        arrays[f"spikes_mod{module}"] = trains
    return arrays


def write(path, arrays):
    """Write a file as the public ones are; its digest."""
    np.savez(
        path, **{k: np.array(v, object) if isinstance(v, dict) else v for k, v in arrays.items()}
    )
    return digest(path)


def digest(path):
    return hashlib.sha256(Path(path).read_bytes()).hexdigest()


def write_pickle(path, pickled, arrays=None):
    """A file in which the spikes of module 1 are the given bytes of a pickle; its digest."""
    write(path, arrays or session())
    with zipfile.ZipFile(path) as archive:
        members = {name: archive.read(name) for name in archive.namelist()}
    member = io.BytesIO()
    npy.write_array_header_1_0(member, {"descr": "|O", "fortran_order": False, "shape": ()})
    members["spikes_mod1.npy"] = member.getvalue() + pickled
    with zipfile.ZipFile(path, "w") as archive:
        for name, data in members.items():
            archive.writestr(name, data)
    return digest(path)


def load(tmp_path, arrays=None, **given):
    path = tmp_path / "rat.npz"
    found = write(path, arrays if arrays is not None else session())
    return grid_cells(path, **{"rat": "s", "module": 1, "sha256": found, **given})


def naive_counts(train, start, stop, width):
    counts = np.zeros(round((stop - start) / width), dtype=int)
    for spike in train:
        if start <= spike < stop:
            counts[int((spike - start) / width)] += 1
    return counts


# Activity.


def test_without_smoothing_every_spike_is_in_its_bin(tmp_path):
    arrays = session()
    rec = load(tmp_path, arrays, smooth=0)
    assert rec.neural.dtype == np.float32
    assert rec.neural.shape == (242_400, 3)
    for cell, train in arrays["spikes_mod1"].items():
        expected = naive_counts(train, START, STOP, 0.01)
        assert expected.sum() > 100
        assert expected.sum() < len(train)
        np.testing.assert_allclose(rec.neural[:, cell] * 0.01, expected, atol=1e-6)


def test_a_spike_on_a_border_belongs_to_the_bin_after_it(tmp_path):
    arrays = session()
    borders = np.array([0, 7, 29, 57, 113, 4001])
    arrays["spikes_mod1"] = {0: np.append(np.round(START + 0.01 * borders, 2), STOP)}
    rec = load(tmp_path, arrays, smooth=0)
    assert np.flatnonzero(rec.neural[:, 0]).tolist() == borders.tolist()


@pytest.mark.parametrize("bin_size", [0.01, 0.05])
def test_smoothing_is_gaussian_and_ends_at_the_borders_of_a_stretch(tmp_path, bin_size):
    """In the hole of rat r's first day there are spikes, and none of them is used."""
    hole = (14778.0, 14890.0)
    arrays = session(start=hole[0] - 40, seconds=200)
    near = np.array(
        [*(hole[0] + np.array([-0.023, 0.013])), *(hole[1] + np.array([-0.013, 0.023]))]
    )
    arrays["spikes_mod1"][0] = np.sort(np.concatenate([arrays["spikes_mod1"][0], near]))
    rec = load(tmp_path, arrays, rat="r", day=1, bin_size=bin_size)
    stretches = [(7457.0, hole[0]), (hole[1], 16045.0)]
    first = round((hole[0] - 7457.0) / bin_size)
    for cell, train in arrays["spikes_mod1"].items():
        counts = [naive_counts(train, *each, bin_size) for each in stretches]
        expected = [gaussian_filter1d(each.astype(float), 0.05 / bin_size) for each in counts]
        found = rec.neural[:, cell].astype(float) * bin_size
        np.testing.assert_allclose(found, np.concatenate(expected), atol=1e-5)
        for part, each in zip((found[:first], found[first:]), counts, strict=True):
            assert part.sum() == pytest.approx(each.sum(), rel=1e-4)
            assert each.sum() > 0


def test_every_so_many_bins_are_kept_after_smoothing(tmp_path):
    arrays = session()
    arrays["x"][2001:2010] = np.nan
    whole, some = load(tmp_path, arrays), load(tmp_path, arrays, step=7)
    np.testing.assert_array_equal(some.neural, whole.neural[::7])
    np.testing.assert_array_equal(some.time, whole.time[::7])
    for name, values in whole.labels.items():
        np.testing.assert_array_equal(some.labels[name], values[::7])
    # An epoch has the bins that are left of it, even if the break after it lies between two.
    fine = [set(range(-(-a // 7), -(-b // 7))) for a, b in whole.epochs.pairs()]
    assert [set(range(a, b)) for a, b in some.epochs.pairs()] == [each for each in fine if each]


def test_modules_are_joined_and_neurons_named(tmp_path):
    arrays = session()
    arrays["spikes_mod2"] = {
        np.int64(11): [START + 1.5, np.float64(START + 2)],
        4: np.arange(9940, 9950),
    }
    rec = load(tmp_path, arrays, module=[2, 1], smooth=0)
    assert rec.neuron_names == (
        "module 2 cell 4",
        "module 2 cell 11",
        *(f"module 1 cell {cell}" for cell in range(3)),
    )
    assert (rec.neural[:, :2] > 0).sum(axis=0).tolist() == [10, 2]
    one = load(tmp_path, arrays, module=1, smooth=0)
    np.testing.assert_array_equal(rec.neural[:, 2:], one.neural)


@pytest.mark.parametrize("dtype", ["<f4", ">f8", "<i4", "<u8"])
@pytest.mark.parametrize("shape", [(-1,), (-1, 1), (1, -1)])
def test_spike_times_of_any_type_of_number(tmp_path, dtype, shape):
    arrays = session()
    times = np.array([9940, 9941, 9999, 50], dtype=dtype).reshape(shape)
    arrays["spikes_mod1"] = {0: times, 1: times[:0]}
    rec = load(tmp_path, arrays, smooth=0)
    assert np.flatnonzero(rec.neural[:, 0]).tolist() == [100, 200, 6000]
    assert not rec.neural[:, 1].any()


@pytest.mark.parametrize(
    "conjunctive",
    [[False, True, False], np.array([1]), (1,), {1: [1]}, {1: np.array([False, True, False])}],
)
def test_conjunctive_cells_are_left_out(tmp_path, conjunctive):
    rec = load(tmp_path, bin_size=0.1, conjunctive=conjunctive)
    assert rec.neuron_names == ("module 1 cell 0", "module 1 cell 2")
    np.testing.assert_array_equal(rec.neural, load(tmp_path, bin_size=0.1).neural[:, [0, 2]])


def test_conjunctive_cells_of_several_modules(tmp_path):
    rec = load(tmp_path, module=[1, 2], conjunctive={2: [True, False]})
    assert [name[-8:] for name in rec.neuron_names] == [
        "1 cell 0",
        "1 cell 1",
        "1 cell 2",
        "2 cell 1",
    ]
    assert len(load(tmp_path, conjunctive=[]).neuron_names) == 3


# Behaviour.


def test_labels_are_those_of_the_path_at_the_centres_of_the_bins(tmp_path):
    arrays = session()
    rec = load(tmp_path, arrays)
    np.testing.assert_allclose(rec.time, START + 0.01 * (np.arange(242_400) + 0.5), atol=1e-9)
    tracked = rec.time < START + TRACKED + 4.9
    at = rec.time[tracked]
    expected = np.column_stack([np.interp(at, arrays["t"], arrays[name]) for name in "xy"])
    np.testing.assert_allclose(rec.labels["position"][tracked], expected, atol=1e-9)
    angle = 1.1 * (at - START)
    expected = np.column_stack([np.cos(angle), np.sin(angle)])
    np.testing.assert_allclose(rec.labels["heading"][tracked], expected, atol=1e-6)
    for name in ("position", "heading", "speed"):
        assert np.isnan(rec.labels[name][rec.time > START + TRACKED + 5.1]).all()
    assert rec.labels["speed"].shape == (242_400, 1)


def test_speed_is_that_of_the_smoothed_path(tmp_path):
    rec = load(tmp_path)
    position, speed = rec.labels["position"], rec.labels["speed"][:, 0]
    n = int(np.isfinite(speed).sum())
    assert n == pytest.approx(100 * (TRACKED + 5), abs=5)
    moved = np.diff(gaussian_filter1d(position[:n], 100, axis=0), axis=0)
    expected = np.linalg.norm(moved, axis=1) / 0.01
    middle = slice(500, n - 500)
    np.testing.assert_allclose(speed[middle], expected[middle], atol=0.005)
    # At an end a smoothed path stands still; the animal does not.
    assert expected[0] < 0.01
    assert speed[0] > 0.1
    sharp = load(tmp_path, speed_smooth=0).labels["speed"][:, 0]
    rough = np.linalg.norm(np.diff(position[:n], axis=0), axis=1) / 0.01
    np.testing.assert_allclose(sharp[1 : n - 1], (rough[1:] + rough[:-1]) / 2, atol=0.01)


def test_epochs_are_the_fast_parts_of_the_open_field(tmp_path):
    rec = load(tmp_path)
    inside = rec.epochs.indices()
    speed = rec.labels["speed"][:, 0]
    assert rec.time[inside].min() >= START
    assert rec.time[inside].max() < START + TRACKED + 5.025
    np.testing.assert_array_equal(inside, np.flatnonzero(speed >= 0.025))
    np.testing.assert_allclose(
        [np.ptp(rec.time[a:b]) for a, b in rec.epochs.pairs()][1:-1], 15, atol=4
    )
    assert 3 <= len(rec.epochs) <= 5
    every = load(tmp_path, least_speed=0)
    assert every.epochs.pairs() == [(0, int(np.isfinite(speed).sum()))]


def test_no_epoch_crosses_the_hole_of_the_first_day_of_rat_r(tmp_path):
    hole = (14778.0, 14890.0)
    arrays = session(start=hole[0] - 40, seconds=200)
    rec = load(tmp_path, arrays, rat="R", day=1, least_speed=0)
    assert rec.n_times == 100 * (14778 - 7457 + 16045 - 14890)
    assert not ((rec.time > hole[0]) & (rec.time < hole[1])).any()
    assert len(rec.epochs) == 2
    for start, stop in rec.epochs.pairs():
        np.testing.assert_allclose(np.diff(rec.time[start:stop]), 0.01, atol=1e-6)
    ends = rec.time[[rec.epochs.stops[0] - 1, rec.epochs.starts[1]]]
    np.testing.assert_allclose(ends, [hole[0] - 0.005, hole[1] + 0.005])


@pytest.mark.parametrize("how", ["NaN", "left out", "time is NaN"])
@pytest.mark.parametrize(("seconds", "missing"), [(0.04, 0), (0.5, 0.45)])
def test_a_gap_in_tracking_ends_an_epoch_unless_it_is_short(tmp_path, how, seconds, missing):
    arrays = session()
    t = arrays["t"]
    lost = (t > START + 5.001) & (t < START + 4.999 + seconds)
    expected = load(tmp_path, arrays, least_speed=0)
    if how == "left out":
        arrays |= {name: arrays[name][~lost] for name in ("t", "x", "y", "z", "azimuth")}
    else:
        name = "y" if how == "NaN" else "t"
        arrays[name] = np.where(lost, np.nan, arrays[name])
    rec = load(tmp_path, arrays, least_speed=0)
    assert len(rec.epochs) == (2 if missing else 1)
    gone = np.isnan(rec.labels["position"][:1000, 0])
    assert gone.sum() * 0.01 == pytest.approx(missing, abs=0.011)
    assert not np.isin(np.flatnonzero(gone), rec.epochs.indices()).any()
    there = np.flatnonzero(~gone)
    np.testing.assert_allclose(
        rec.labels["position"][there], expected.labels["position"][there], atol=0.005
    )
    np.testing.assert_array_equal(rec.neural, expected.neural)


def test_a_missing_azimuth_is_a_missing_heading_only(tmp_path):
    arrays = session()
    arrays["azimuth"][1500:1600] = [np.nan, np.inf] * 50
    rec = load(tmp_path, arrays, least_speed=0)
    assert np.isnan(rec.labels["heading"][1020:1080]).all()
    assert np.isfinite(rec.labels["position"][:2000]).all()
    assert len(rec.epochs) == 1


# Safety.


def test_without_a_digest_nothing_is_opened(tmp_path, monkeypatch):
    path = tmp_path / "rat.npz"
    found = write(path, session())
    monkeypatch.setattr(zipfile, "ZipFile", None)
    with pytest.raises(ValueError, match=rf"rat\.npz.*pickle can run code.*{found}.*sha256="):
        grid_cells(path, rat="s", module=1)
    with pytest.raises(ValueError, match=f"not opened.*{found}.*{'0' * 64} was given"):
        grid_cells(path, rat="s", module=1, sha256="0" * 64)
    for wrong in ("", "abc", found[:-1] + "g", 7):
        with pytest.raises(ValueError, match="sha256 must be 64 hexadecimal digits"):
            grid_cells(path, rat="s", module=1, sha256=wrong)


def test_what_is_hashed_is_what_is_read(tmp_path, monkeypatch):
    """The file is read once; when it is replaced afterwards, the old one is what counts."""
    path = tmp_path / "rat.npz"
    found = write(path, session())
    read = Path.read_bytes

    def replaced_after(self):
        data = read(self)
        self.write_bytes(b"replaced")
        return data

    monkeypatch.setattr(Path, "read_bytes", replaced_after)
    assert grid_cells(path, rat="S", module=1, sha256=found.upper()).n_neurons == 3


class Evil:
    def __init__(self, path):
        self.path = path

    def __reduce__(self):
        return Path.touch, (self.path,)


class Shell(Evil):
    def __reduce__(self):
        return os.system, (f"touch {shlex.quote(str(self.path))}",)


class Python(Evil):
    def __reduce__(self):
        return eval, (f"open({str(self.path)!r}, 'w').close()",)


class Loads(Evil):
    """A pickle in what NumPy itself would load."""

    def __reduce__(self):
        return pickle.loads, (pickle.dumps(Evil(self.path)),)


@pytest.mark.parametrize("evil", [Evil, Shell, Python, Loads])
@pytest.mark.parametrize("where", ["value", "key", "array", "whole"])
def test_a_pickle_that_would_run_code_is_refused(tmp_path, evil, where):
    victim, arrays = tmp_path / "made_by_the_pickle", session()
    spikes = arrays["spikes_mod1"]
    if where == "value":
        spikes[1] = evil(victim)
    elif where == "key":
        spikes[evil(victim)] = spikes[0]
    elif where == "array":
        spikes[1] = np.array([evil(victim)], dtype=object)
    if where == "whole":
        whole = np.empty((), dtype=object)
        whole[()] = evil(victim)
        arrays["spikes_mod1"] = whole
    path = tmp_path / "rat.npz"
    found = write(path, arrays)
    with pytest.raises(ValueError, match=r"was refused: it asks for .*could run code"):
        grid_cells(path, rat="s", module=1, sha256=found)
    assert not victim.exists()
    # And so it would have been made.
    with np.load(path, allow_pickle=True) as file:
        file["spikes_mod1"]
    assert victim.exists()


@pytest.mark.parametrize(
    "pickled",
    [
        b"cnumpy\nload\n.",
        b"cnumpy.core.multiarray\nfromfile\n.",
        b"cbuiltins\ngetattr\n.",
        b"cxcebra.datasets.unpickling\npickle\n.",
        # Changing what takes the place of an array, its class or its functions.
        b"cnumpy\nndarray\n(N}(Vstate\nVchanged\nutb.",
        b"cnumpy\nndarray\n}(Vstate\nVchanged\nub.",
        b"c_codecs\nencode\n(N}(Vsays\nVchanged\nutb.",
        # Bytes by other ways than old pickles have.
        b"c_codecs\nencode\n(Vx\nVrot13\ntR.",
        b"cbuiltins\nbytes\n(I99\ntR.",
        b"",
        b"\x80\x04.",
        b"no pickle",
    ],
)
def test_other_ways_into_a_pickle_are_closed(tmp_path, pickled):
    path = tmp_path / "rat.npz"
    found = write_pickle(path, pickled)
    with pytest.raises(ValueError, match="'spikes_mod1' was refused"):
        grid_cells(path, rat="s", module=1, sha256=found)
    assert load(tmp_path).n_neurons == 3


def test_bytes_are_never_taken_for_objects(tmp_path):
    """NumPy lets the state of a dtype say that objects are plain bytes, that is, addresses."""
    kind = b"cnumpy\ndtype\n(VO8\nI00\nI01\ntR(I3\nV|\nNNNI-1\nI-1\nI0\ntb"
    array = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntVb\ntR"
    array += b"(I1\n(I1\nt" + kind + b"I00\nC\x0812345678tb"
    whole = b"cnumpy.core.multiarray\n_reconstruct\n(cnumpy\nndarray\n(I0\ntVb\ntR"
    whole += b"(I1\n(t" + kind + b"I00\n((I0\n" + array + b"dltb."
    path = tmp_path / "rat.npz"
    found = write_pickle(path, whole)
    with pytest.raises(ValueError, match=r"cell 0 must have a list.*values of type 'O8'"):
        grid_cells(path, rat="s", module=1, sha256=found)


@pytest.mark.parametrize("protocol", [2, 3, 4])
@pytest.mark.parametrize("core", ["core", "_core"])
def test_pickles_of_any_numpy_are_read(tmp_path, protocol, core):
    arrays = session()
    spikes = {**arrays["spikes_mod1"], 7: np.array([]), np.int32(9): [START + 1, np.float32(9950)]}
    pickled = pickle.dumps(np.array(spikes, dtype=object), protocol=protocol)
    if protocol < 4:  # names are text, and may become longer
        for name in (b"numpy._core.", b"numpy.core."):
            pickled = pickled.replace(name, f"numpy.{core}.".encode())
    path = tmp_path / "rat.npz"
    found = write_pickle(path, pickled)
    rec = grid_cells(path, rat="s", module=1, sha256=found)
    assert rec.neuron_names[-2:] == ("module 1 cell 7", "module 1 cell 9")
    np.testing.assert_array_equal(rec.neural[:, :3], load(tmp_path, arrays).neural)


# Errors.


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"rat": "x"}, r"rat must be one of \['q', 'r', 's'\], got 'x'"),
        ({"rat": 3}, "rat must be one of.*got 3"),
        ({"rat": "r"}, "day must be 1 or 2: rat r was recorded on two days; got None"),
        ({"rat": "R", "day": 3}, "day must be 1 or 2.*got 3"),
        ({"rat": "q", "day": 1}, "rat q was recorded on one day; leave day out, got day=1"),
        ({"module": 3}, r"rat\.npz: has no module 3; it has \[1, 2\]"),
        ({"module": "1"}, "module must be a whole number.*got '1'.*module=1"),
        ({"module": True}, "module must be.*True"),
        ({"module": [1, 1]}, r"several different ones, got \[1, 1\]"),
        ({"module": []}, "module must be"),
        ({"bin_size": 0}, "bin_size must be a number above 0, got 0"),
        ({"bin_size": None}, "bin_size is None; leave it out"),
        ({"bin_size": 2000.0}, "bin_size=2000 s is too long.*9939 to 12363 s.*1212 or less"),
        ({"smooth": -0.1}, "smooth must be a number of 0 or more, got -0.1"),
        ({"step": 0}, "step must be a whole number of 1 or more, got 0"),
        ({"step": 1.5}, "step must be a whole number.*1.5"),
        ({"least_speed": -1}, "least_speed must be.*-1"),
        ({"least_speed": 9.0}, "least_speed=9 m/s leaves no sample: the fastest has 0.* m/s"),
        ({"speed_smooth": np.nan}, "speed_smooth must be.*nan"),
        ({"rat": "q"}, "no position in the open field from 27826 to 31223 s.*9934 to 10004 s"),
        ({"conjunctive": [True]}, r"conjunctive has shape \(1,\) for module 1, which has 3 cells"),
        ({"conjunctive": [3]}, "conjunctive names cell 3, but module 1 has 3 cells from 0 to 2"),
        ({"conjunctive": ["a"]}, "conjunctive must hold truth values or numbers of cells"),
        ({"conjunctive": [0, 1, 2]}, "conjunctive leaves out every cell"),
        ({"conjunctive": {2: [0]}}, r"conjunctive names module 2, but module is \[1\]"),
        ({"conjunctive": [0], "module": [1, 2]}, "conjunctive must tell the module.*mapping"),
    ],
)
def test_what_does_not_fit_is_refused(tmp_path, given, words):
    with pytest.raises(ValueError, match=words):
        load(tmp_path, **given)


T = session()["t"]


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"t": None}, "rat.npz: has no 't', only azimuth, spikes_mod1, spikes_mod2, x, y, z"),
        ({"azimuth": None}, "has no 'azimuth'"),
        ({"spikes_mod1": None, "spikes_mod2": None}, "has no module 1; it has none"),
        ({"x": T[:-1]}, "'x' has 6999 samples, but 't' has 7000"),
        ({"y": np.stack([T, T], 1)}, r"'y' must hold one number for each moment.*\(7000, 2\)"),
        ({"y": T.astype(str)}, "'y' must hold one number for each moment.*dtype <U"),
        ({"x": T.astype(object)}, "'x' is no array of numbers"),
        ({"x": T * np.nan}, "'x' or 'y' is missing in the whole open field"),
        ({"t": T[::-1].copy()}, "'t' goes back at"),
        ({"t": T * np.nan}, "no position in the open field.*'t' runs over no time"),
        ({"t": T - 5000}, "no position in the open field.*'t' runs from 4934 to 5003.99 s"),
        ({"spikes_mod1": {}}, "'spikes_mod1' must hold a dict of spike times.*got an empty one"),
        ({"spikes_mod1": T}, r"'spikes_mod1' must be an object array.*\(7000,\).*float64"),
        ({"spikes_mod1": np.array([{0: T}], object)}, r"without dimensions.*shape \(1,\)"),
        ({"spikes_mod1": np.array(None)}, "'spikes_mod1' must hold a dict.*NoneType"),
        ({"spikes_mod1": {"a": T}}, "'spikes_mod1' must have whole numbers as its cells, got 'a'"),
        ({"spikes_mod1": {1.5: T}}, "whole numbers as its cells, got 1.5"),
        ({"spikes_mod1": {True: T}}, "whole numbers as its cells, got True"),
        ({"spikes_mod1": {5: "now"}}, "'spikes_mod1': cell 5 must have a list.*got 'now'"),
        ({"spikes_mod1": {5: 9940.0}}, "cell 5 must have a list of spike times.*got 9940.0"),
        ({"spikes_mod1": {5: {}}}, "cell 5 must have a list of spike times.*got dict"),
        ({"spikes_mod1": {5: [1.0, "a"]}}, "cell 5 must have a list.*got 'a' among them"),
        ({"spikes_mod1": {5: [1.0, True]}}, "cell 5 must have a list.*got True among them"),
        ({"spikes_mod1": {5: [[1.0]]}}, "cell 5 must have a list.*got list among them"),
        ({"spikes_mod1": {5: np.array(["a"])}}, "cell 5 must have a list.*values of type 'U1'"),
        ({"spikes_mod1": {5: np.array([1 + 2j])}}, "cell 5 must have a list.*'c16'"),
        ({"spikes_mod1": {5: np.ones((2, 2))}}, r"cell 5 must have a list.*shape \(2, 2\)"),
        ({"spikes_mod1": {5: np.array([T], object)}}, "cell 5 must have a list"),
        ({"spikes_mod1": {5: np.array([1, np.nan])}}, "cell 5 has nan as spike time 1; remove it"),
        ({"spikes_mod1": {5: T - 5000}}, "no spike lies in the open field, 9939-12363 s.*rat='s'"),
    ],
)
def test_files_of_another_kind_are_told(tmp_path, changed, words):
    arrays = {name: value for name, value in (session() | changed).items() if value is not None}
    with pytest.raises(ValueError, match=words):
        load(tmp_path, arrays)


def test_what_is_no_archive_is_told(tmp_path):
    path = tmp_path / "rat.npz"
    path.write_bytes(b"not a zip")
    with pytest.raises(ValueError, match=r"rat\.npz: is damaged or no \.npz file"):
        grid_cells(path, rat="s", module=1, sha256=digest(path))
    write(path, session())
    data = bytearray(path.read_bytes())
    data[data.index(b"spikes_mod1.npy") + 200] ^= 1
    path.write_bytes(data)
    with pytest.raises(ValueError, match="'spikes_mod1' is damaged"):
        grid_cells(path, rat="s", module=1, sha256=digest(path))
    with pytest.raises(FileNotFoundError):
        grid_cells(tmp_path / "none.npz", rat="s", module=1, sha256="0" * 64)


# From spikes to fields.


def waves(position, spacing, phase):
    """Activity of a grid cell, from 0 to 1: three waves at 60 degrees to each other."""
    total = 0.0
    for angle in np.pi / 3 * np.arange(3):
        along = np.array([np.cos(angle), np.sin(angle)])
        total = total + np.cos(4 * np.pi / (np.sqrt(3) * spacing) * (position - phase) @ along)
    return (total / 1.5 + 1) / 3


def test_grid_cells_fire_in_their_fields_and_others_do_not(tmp_path):
    """A rat runs, its cells fire, the file is written, and what is loaded shows their fields."""
    rng = np.random.default_rng(301)
    t = START + 1 + 0.01 * np.arange(60_000)
    turning = gaussian_filter1d(rng.standard_normal(len(t)), 30)
    azimuth = np.cumsum(turning / turning.std() * 2.0 * 0.01)
    steps = 0.2 * 0.01 * np.column_stack([np.cos(azimuth), np.sin(azimuth)])
    # It is reflected by the walls.
    position = np.abs((np.cumsum(steps, axis=0) + 0.75) % 3 - 1.5) - 0.75
    phases = rng.uniform(0, 0.4, size=(6, 2))
    rates = [20 * waves(position, 0.4, phase) for phase in phases] + [np.full(len(t), 7.0)] * 6
    spikes = {}
    for cell, rate in enumerate(rates):
        counts = rng.poisson(0.01 * rate)
        at = np.repeat(t, counts)
        spikes[cell] = np.sort(at + rng.uniform(-0.005, 0.005, at.size))
    arrays = {"t": t, "x": position[:, 0], "y": position[:, 1], "z": t * 0}
    rec = load(tmp_path, arrays | {"azimuth": azimuth % (2 * np.pi), "spikes_mod1": spikes}, step=5)
    assert rec.neuron_names[7] == "module 1 cell 7"
    used = rec.epochs.indices()
    assert len(used) > 9_000
    where, activity = rec.labels["position"][used], rec.neural[used].astype(float)
    ratios = []
    for cell in range(12):
        drive = waves(where, 0.4, phases[cell % 6])
        near, far = drive > 0.8, drive < 0.2
        assert min(near.sum(), far.sum()) > 200
        ratios.append(activity[near, cell].mean() / activity[far, cell].mean())
    assert min(ratios[:6]) > 3
    np.testing.assert_allclose(ratios[6:], 1, atol=0.25)
    np.testing.assert_allclose(activity[:, 6:].mean(axis=0), 7, rtol=0.1)
