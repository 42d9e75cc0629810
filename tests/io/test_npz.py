"""Files of our own: all comes back, large arrays stay in the file, nothing is left half-made."""

import os
import zipfile

import numpy as np
import pytest

import xcebra
from xcebra import Recording
from xcebra.data.recording import is_memory_mapped
from xcebra.io import opened


def recording(**others):
    rng = np.random.default_rng(0)
    said = {
        "labels": {
            "position": rng.normal(size=(60, 2)),
            "choice": rng.integers(0, 3, 60),
            "rewarded": rng.random(60) < 0.5,
            "side": np.array(["left", "right", "café"])[rng.integers(0, 3, 60)],
            "holes": np.where(rng.random(60) < 0.3, np.nan, 1.5),
            "many": rng.normal(size=(60, 12)),
        },
        "epochs": [(0, 20), (25, 60)],
        "neuron_names": ("CA1_0", "CA1_1", "é"),
        "latents": {"z1": rng.normal(size=(60, 2)), "z2": rng.normal(size=(60, 1))},
        "ground_truth": {"z1": np.array([True, False, True]), "z2": np.array([False, True, True])},
        "time": 3 + np.arange(60) / 30,
    }
    return Recording(rng.normal(size=(60, 3)), **{**said, **others})


def same(found, expected):
    np.testing.assert_array_equal(found.neural, expected.neural)
    assert found.neuron_names == expected.neuron_names
    assert found.epochs.pairs() == expected.epochs.pairs()
    assert (found.time is None) == (expected.time is None)
    if expected.time is not None:
        np.testing.assert_array_equal(found.time, expected.time)
    for part in ("labels", "latents", "ground_truth"):
        ours, theirs = getattr(found, part), getattr(expected, part)
        assert list(ours) == list(theirs)
        for name in theirs:
            assert ours[name].dtype == theirs[name].dtype
            np.testing.assert_array_equal(ours[name], theirs[name])


@pytest.mark.parametrize(
    "others",
    [
        {},
        {"time": None},
        {"labels": {}, "latents": {}, "ground_truth": {}, "epochs": None, "neuron_names": ()},
        {"labels": {"a/b": np.arange(60.0), "time": np.arange(60), "epochs": np.ones(60)}},
    ],
    ids=["all", "no time", "bare", "strange names"],
)
def test_a_recording_comes_back_from_npz_with_all_it_knows(tmp_path, others):
    rec = recording(**others)
    xcebra.write(rec, tmp_path / "r.npz")
    same(xcebra.read(tmp_path / "r.npz"), rec)
    same(xcebra.read(str(tmp_path / "r.npz"), neural="neural"), rec)


def test_arrays_are_those_that_numpy_loads(tmp_path):
    xcebra.write(recording(), tmp_path / "r.npz")
    with np.load(tmp_path / "r.npz") as plain:
        assert set(plain) >= {"neural", "time", "epochs", "neuron_names", "labels/side"}
        np.testing.assert_array_equal(plain["labels/position"], recording().labels["position"])


def test_what_only_some_samples_have_is_left_out_when_only_some_are_read(tmp_path):
    xcebra.write(recording(), tmp_path / "r.npz")
    rec = xcebra.read(tmp_path / "r.npz", epochs=[(3.2, 4.1)], labels="position")
    assert rec.latents == {}
    assert list(rec.ground_truth) == ["z1", "z2"]
    assert rec.neuron_names == ("CA1_0", "CA1_1", "é")
    np.testing.assert_array_equal(rec.labels["position"], recording().labels["position"][6:34])


def test_bins_and_smoothing_stay_inside_the_epochs_of_the_file(tmp_path):
    neural = np.zeros((60, 3))
    neural[17:20] = 9.0
    rec = recording(neuron_names=(), latents={}, epochs=[(0, 20), (20, 59)])
    rec = Recording(neural, {}, rec.epochs, time=rec.time)
    xcebra.write(rec, tmp_path / "r.npz")
    binned = xcebra.read(tmp_path / "r.npz", bin_size=3 / 30)
    assert binned.epochs.pairs() == [(0, 6), (6, 19)]
    np.testing.assert_allclose(binned.time[[0, 6]], rec.time[[1, 21]])
    smooth = xcebra.read(tmp_path / "r.npz", smooth=0.1)
    assert smooth.epochs.pairs() == [(0, 20), (20, 59)]
    assert smooth.neural[:20].any()
    assert not smooth.neural[20:].any()


def test_another_array_as_activity_has_nothing_of_the_first(tmp_path):
    xcebra.write(recording(), tmp_path / "r.npz")
    rec = xcebra.read(tmp_path / "r.npz", neural="position", labels="neural")
    assert rec.neuron_names == ("0", "1")
    assert rec.ground_truth == {}
    assert rec.latents == {}
    np.testing.assert_array_equal(rec.labels["neural"], recording().neural)


LARGE = np.random.default_rng(0).normal(size=(40_000, 8)).astype(np.float32)


@pytest.mark.parametrize(
    ("save", "array", "in_place"),
    [
        (np.savez, LARGE, True),
        (np.savez, np.asfortranarray(LARGE), True),
        (np.savez, LARGE.astype(">f8"), True),
        (np.savez, (100 * LARGE).astype(np.int16).repeat(2, axis=0), True),
        (np.savez, LARGE[:1000], False),
        (np.savez_compressed, LARGE, False),
        (np.savez_compressed, np.asfortranarray(LARGE), False),
    ],
    ids=["plain", "Fortran", "big-endian", "int16", "small", "compressed", "compressed Fortran"],
)
def test_a_large_array_stays_in_the_file_and_is_what_numpy_loads(tmp_path, save, array, in_place):
    path = tmp_path / "large.npz"
    save(path, before=np.arange(7), neural=array, **{"after/é": np.arange(3)})
    rec = xcebra.read(path, labels=[])
    assert is_memory_mapped(rec.neural) == in_place
    with np.load(path) as plain:
        np.testing.assert_array_equal(rec.neural, plain["neural"])
    np.testing.assert_array_equal(rec.rows(np.array([3, 1])), array[[3, 1]].astype(np.float32))


def test_a_large_recording_of_our_own_stays_in_the_file_and_can_be_written_over_it(tmp_path):
    path = tmp_path / "r.npz"
    xcebra.write(Recording(LARGE, {"label": np.arange(40_000.0)}), path)
    rec = xcebra.read(path)
    assert is_memory_mapped(rec.neural)
    xcebra.write(rec, path)
    np.testing.assert_array_equal(xcebra.read(path).neural, LARGE)


def test_a_file_written_by_a_plain_zip_program_is_read(tmp_path):
    np.save(tmp_path / "neural.npy", LARGE)
    np.save(tmp_path / "time.npy", np.arange(40_000) / 20)
    (tmp_path / "notes.txt").write_text("hello")
    with zipfile.ZipFile(tmp_path / "r.npz", "w") as archive:
        for name in ("notes.txt", "neural.npy", "time.npy"):
            archive.write(tmp_path / name, name)
    rec = xcebra.read(tmp_path / "r.npz")
    np.testing.assert_array_equal(rec.neural, LARGE)
    np.testing.assert_array_equal(rec.time, np.arange(40_000) / 20)


def test_objects_beside_the_activity_are_not_loaded_and_not_in_the_way(tmp_path):
    marker = tmp_path / "ran"

    class Evil:
        def __reduce__(self):
            return os.mkdir, (str(marker),)

    np.savez(tmp_path / "r.npz", neural=LARGE[:50], info=np.array([Evil()], dtype=object))
    assert xcebra.read(tmp_path / "r.npz").n_times == 50
    with opened(tmp_path / "r.npz") as contents:
        assert "could run code" in contents.unread["info"]
    assert not marker.exists()


# NWB


@pytest.mark.parametrize("spikes", [False, True])
@pytest.mark.parametrize("rate", [20, 30, 59.94])
def test_a_recording_comes_back_from_nwb(tmp_path, spikes, rate):
    rng = np.random.default_rng(0)
    rec = recording(time=3 + np.arange(60) / rate, epochs=[(0, 20), (20, 37), (40, 60)])
    rec = Recording(
        rng.poisson(2.0, (60, 3)),
        rec.labels,
        rec.epochs,
        rec.neuron_names,
        ground_truth=rec.ground_truth,
        time=rec.time,
    )
    path = tmp_path / "r.nwb"
    xcebra.write(rec, path, spikes=spikes, about="a test")
    said = {"bin_size": 1 / rate} if spikes else {}
    found = xcebra.read(path, epochs="epochs", labels=list(rec.labels), **said)
    rows = rec.epochs.indices()
    np.testing.assert_array_equal(found.neural, rec.neural[rows])
    np.testing.assert_allclose(found.time, rec.time[rows], rtol=1e-9)
    assert found.epochs.lengths.tolist() == [20, 17, 20]
    assert found.neuron_names == rec.neuron_names
    for name, values in rec.labels.items():
        np.testing.assert_array_equal(found.labels[name], values[rows])
        assert found.labels[name].dtype.kind == values.dtype.kind
    assert list(found.ground_truth) == ["z1", "z2"]
    for name, connected in rec.ground_truth.items():
        assert found.ground_truth[name].dtype == bool
        np.testing.assert_array_equal(found.ground_truth[name], connected)


# What is refused


@pytest.mark.parametrize(
    ("name", "others", "said", "message"),
    [
        ("r.mat", {}, {}, r"path='.*r\.mat' must end in \.npz or \.nwb, got '\.mat'"),
        ("r", {}, {}, "must end in .npz or .nwb"),
        ("r.npz", {"labels": {"neural": np.ones(60)}}, {}, "label called 'neural' cannot be told"),
        ("r.nwb", {"labels": {"neural": np.ones(60)}}, {}, "label called 'neural' cannot be told"),
        ("r.nwb", {"time": None}, {}, "NWB has the time of each sample; give the Recording"),
        ("r.nwb", {"labels": {"a/b": np.ones(60)}}, {}, "no names with / or :, such as 'a/b'"),
        ("r.nwb", {}, {"spikes": True}, "spikes=True needs whole numbers .* neuron 'CA1_0' has"),
    ],
)
def test_what_cannot_be_written_is_refused_in_one_line(tmp_path, name, others, said, message):
    with pytest.raises(ValueError, match=message) as caught:
        xcebra.write(recording(**others), tmp_path / name, **said)
    assert "\n" not in str(caught.value)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_is_not_there_is_named(tmp_path):
    with pytest.raises(FileNotFoundError, match="there is no folder"):
        xcebra.write(recording(), tmp_path / "nowhere" / "r.npz")


@pytest.mark.parametrize(
    ("name", "others"),
    [
        ("r.npz", {"latents": {"z1": np.array([lambda: 0], dtype=object)}}),
        ("r.nwb", {"ground_truth": {"z1": np.array([1j, 2j, 3j])}}),
    ],
)
def test_nothing_half_written_is_left_and_what_was_there_stays(tmp_path, name, others):
    path = tmp_path / name
    with pytest.raises(Exception):  # noqa: B017 - whatever pickle and HDF5 say
        xcebra.write(recording(**others), path)
    assert list(tmp_path.iterdir()) == []
    xcebra.write(recording(), path)
    before = path.read_bytes()
    with pytest.raises(Exception):  # noqa: B017
        xcebra.write(recording(**others), path)
    assert [p.name for p in tmp_path.iterdir()] == [name]
    assert path.read_bytes() == before
