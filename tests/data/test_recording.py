"""Recording: what goes in, what is refused, and that files are never copied whole."""

import tracemalloc
from contextlib import suppress
from dataclasses import FrozenInstanceError

import numpy as np
import pandas as pd
import pytest

from xcebra import Recording
from xcebra.data.epochs import Epochs
from xcebra.data.recording import as_labels, chunks, first_non_finite, is_memory_mapped


def activity(n_times=20, n_neurons=3):
    return np.random.default_rng(0).normal(size=(n_times, n_neurons))


def mapped(path, dtype, shape):
    return np.lib.format.open_memmap(path, mode="w+", dtype=dtype, shape=shape)


@pytest.mark.parametrize("dtype", [np.float64, np.float32, np.float16, np.int16, np.uint8, bool])
def test_numbers_of_any_type_become_contiguous_float32_of_the_same_value(dtype):
    given = (np.arange(12).reshape(4, 3).T % 2).astype(dtype)
    rec = Recording(given)
    assert rec.neural.dtype == np.float32
    assert rec.neural.flags.c_contiguous
    assert np.array_equal(rec.neural, given.astype(np.float32))
    assert (rec.n_times, rec.n_neurons) == (3, 4)


def test_lists_are_taken_too():
    assert np.array_equal(Recording([[1, 2], [3, 4]]).neural, [[1, 2], [3, 4]])


def test_a_float32_array_is_not_copied():
    given = activity().astype(np.float32)
    assert np.shares_memory(Recording(given).neural, given)


def test_the_caller_s_float64_array_is_left_as_it_was():
    given = activity()
    before = given.copy()
    Recording(given, {"a": given[:, 0]})
    assert given.dtype == np.float64
    assert np.array_equal(given, before)


def test_a_data_frame_keeps_its_column_names():
    frame = pd.DataFrame(activity(), columns=["CA1_0", "CA1_1", 7])
    rec = Recording(frame, {"speed": pd.Series(np.arange(20.0)), "xy": frame[["CA1_0", "CA1_1"]]})
    assert rec.neuron_names == ("CA1_0", "CA1_1", "7")
    assert np.array_equal(rec.neural, frame.to_numpy(np.float32))
    assert rec.labels["speed"].shape == (20, 1)
    assert np.array_equal(rec.labels["xy"], frame[["CA1_0", "CA1_1"]])


def test_neurons_without_names_are_numbered():
    assert Recording(activity()).neuron_names == ("0", "1", "2")


@pytest.mark.parametrize("kind", [list, tuple, np.array, pd.Index])
def test_given_names_win_over_columns_in_any_sequence(kind):
    frame = pd.DataFrame(activity(), columns=["a", "b", "c"])
    assert Recording(frame, neuron_names=kind(["x", "y", "z"])).neuron_names == ("x", "y", "z")


def test_several_labels_keep_their_order_types_and_two_dimensions():
    labels = {
        "b": np.arange(20),
        "a": np.arange(40.0).reshape(20, 2),
        "c": np.array(["left", "right"] * 10),
        "d": np.arange(20) > 3,
    }
    rec = Recording(activity(), labels)
    assert list(rec.labels) == ["b", "a", "c", "d"]
    assert [v.shape for v in rec.labels.values()] == [(20, 1), (20, 2), (20, 1), (20, 1)]
    assert [v.dtype.kind for v in rec.labels.values()] == ["i", "f", "U", "b"]


def test_nan_in_a_label_is_a_missing_sample_not_a_problem():
    label = np.arange(20.0)
    label[4] = np.nan
    assert np.isnan(Recording(activity(), {"a": label}).labels["a"][4, 0])


@pytest.mark.parametrize(
    "values",
    [
        pd.Series([1, 2, None, 4] * 5, dtype="Int64"),
        pd.Series([1.0, 2.0, None, 4.0] * 5, dtype=object),
        np.array([1.0, 2.0, None, 4.0] * 5, dtype=object),
    ],
)
def test_none_in_a_label_of_numbers_is_a_missing_sample(values):
    found = Recording(activity(), {"a": values}).labels["a"][:, 0]
    assert np.array_equal(found, [1.0, 2.0, np.nan, 4.0] * 5, equal_nan=True)


@pytest.mark.parametrize("missing", [None, np.nan, pd.NA])
def test_none_in_a_label_of_names_does_not_become_a_class(missing):
    """Refused, or left empty: whichever, it is not the class "None" or "nan"."""
    values = pd.Series(["left", "right", missing, "left"] * 5, dtype=object)
    found = np.array(["left", "right"])
    with suppress(ValueError):
        found = Recording(activity(), {"a": values}).labels["a"]
    assert set(np.unique(found.astype(str))) - {""} == {"left", "right"}


@pytest.mark.parametrize("kind", [np.array, pd.Series, lambda v: np.array(v, dtype=object)])
def test_class_names_made_of_digits_stay_names_whatever_holds_them(kind):
    found = Recording(activity(), {"odour": kind(["1", "2"] * 10)}).labels["odour"]
    assert found.dtype.kind == "U"


def test_no_epochs_means_one_epoch_of_everything():
    assert Recording(activity()).epochs.pairs() == [(0, 20)]
    assert Recording(activity(), epochs=[(0, 5), (7, 20)]).epochs.pairs() == [(0, 5), (7, 20)]


def test_a_recording_is_frozen():
    with pytest.raises(FrozenInstanceError):
        Recording(activity()).neural = activity()


NAN_INSIDE = activity()
NAN_INSIDE[7, 2] = np.nan
NAN_INSIDE[9, 0] = np.inf
INF_FIRST = NAN_INSIDE.copy()
INF_FIRST[7, 1] = -np.inf
LABEL_INF = np.where(np.arange(20) == 1, np.inf, np.nan)


@pytest.mark.parametrize(
    ("neural", "others", "message"),
    [
        (activity()[:, 0], {}, r"two dimensions \(time, neuron\).*\(20,\).*x\[:, None\]"),
        (np.zeros((2, 3, 4)), {}, r"two dimensions.*\(2, 3, 4\).*Recording.from_trials"),
        (np.zeros((0, 3)), {}, r"none of them empty; got shape \(0, 3\)"),
        (np.zeros((3, 0)), {}, r"none of them empty; got shape \(3, 0\)"),
        (np.float64(3), {}, r"two dimensions.*\(\)"),
        (np.array([["a", "b"]]), {}, r"neural must hold numbers, got dtype <U1; .*astype"),
        (np.array([["a", 2]], dtype=object), {}, "neural must hold numbers, got dtype object"),
        (activity() * 1j, {}, "neural must hold numbers, got dtype complex128"),
        (NAN_INSIDE, {}, "NaN at time 7, neuron 2 .*fill or cut"),
        (INF_FIRST, {}, "-inf at time 7, neuron 1 "),
        (NAN_INSIDE[8:], {}, " inf at time 1, neuron 0 "),
        (activity(), {"labels": {"a": np.zeros(19)}}, "label 'a' has 19 samples.* 20; resample"),
        (activity(), {"labels": {"a": np.zeros((20, 0))}}, r"label 'a' must have.*\(20, 0\)"),
        (activity(), {"labels": {"a": np.zeros((20, 1, 1))}}, r"label 'a' must.*\(20, 1, 1\)"),
        (activity(), {"labels": {"a": 3.0}}, r"label 'a' must have shape \(time,\)"),
        (activity(), {"labels": {"a": np.zeros(20) * 1j}}, "label 'a'.*dtype complex128"),
        (
            activity(),
            {"labels": {"a": LABEL_INF}},
            "label 'a' has inf at time 1, column 0; use NaN",
        ),
        (activity(), {"labels": {"a": -LABEL_INF}}, "label 'a' has -inf at time 1, column 0"),
        (activity(), {"epochs": [(0, 21)]}, r"epochs\[0\] is \(0, 21\).*stop <= 20"),
        (activity(), {"epochs": [(5, 10), (0, 5)]}, "sort the epochs"),
        (activity(), {"neuron_names": ("a", "b")}, "neuron_names has 2 entries.* 3 neurons"),
    ],
)
def test_bad_input_is_refused(neural, others, message):
    with pytest.raises(ValueError, match=message):
        Recording(neural, **others)


def test_every_problem_is_named_in_one_error():
    with pytest.raises(ValueError) as caught:
        Recording(
            NAN_INSIDE,
            {"a": np.zeros(3), "b": np.full(20, np.inf), "fine": np.zeros(20)},
            epochs=[(0, 99)],
            neuron_names=("x",),
        )
    told = str(caught.value)
    for part in (
        "NaN at time 7, neuron 2",
        "label 'a' has 3 samples",
        "label 'b' has inf at time 0, column 0",
        "epochs[0] is (0, 99)",
        "neuron_names has 1 entries",
    ):
        assert part in told
    assert "fine" not in told
    assert told.count("; ") >= 4


def test_float64_beyond_float32_is_refused_not_turned_into_inf_silently():
    with pytest.raises(ValueError, match="time 3, neuron 1"):
        Recording(np.where(np.arange(60).reshape(20, 3) == 10, 1e300, 0.0))


def test_a_float64_file_beyond_float32_is_refused_too(tmp_path):
    """Rows are given out as float32, where this value is infinite."""
    file = mapped(tmp_path / "x.npy", np.float64, (20, 3))
    file[3, 1] = 1e300
    with pytest.raises(ValueError, match="time 3, neuron 1"):
        Recording(file)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16, np.float16, ">f4"])
def test_a_memory_mapped_file_is_used_in_place(tmp_path, dtype):
    file = mapped(tmp_path / "x.npy", dtype, (50, 4))
    file[:] = np.arange(200).reshape(50, 4)
    rec = Recording(file)
    assert np.shares_memory(rec.neural, file)
    assert is_memory_mapped(rec.neural)
    assert rec.neural.dtype == dtype
    times = np.array([40, 3, 3, 49])
    for wanted in (times, slice(10, 13)):
        rows = rec.rows(wanted)
        assert rows.dtype == np.float32
        assert rows.dtype.isnative
        assert rows.flags.c_contiguous
        assert np.array_equal(rows, np.arange(200).reshape(50, 4)[wanted])


@pytest.mark.parametrize("dtype", [np.float32, np.int16])
def test_rows_of_a_read_only_file_can_be_written_to_without_touching_it(tmp_path, dtype):
    """As torch wants them."""
    mapped(tmp_path / "x.npy", dtype, (50, 4)).flush()
    file = np.load(tmp_path / "x.npy", mmap_mode="r")
    for wanted in (np.array([1, 2]), slice(3, 9)):
        Recording(file).rows(wanted)[:] = 1
    assert not file.any()


def test_views_of_a_file_are_known_as_such_and_copies_are_not(tmp_path):
    file = mapped(tmp_path / "x.npy", np.float32, (50, 4))
    assert is_memory_mapped(np.asarray(file)[5:][:, ::2].T)
    assert is_memory_mapped(Recording(file[10:20]).neural)
    assert not is_memory_mapped(np.array(file))
    assert not is_memory_mapped(np.asarray(file) + 1)
    assert not is_memory_mapped([1, 2])


def test_nan_in_a_file_is_found_where_it_is(tmp_path):
    file = mapped(tmp_path / "x.npy", np.float32, (50, 4))
    file[33, 2] = np.nan
    with pytest.raises(ValueError, match="NaN at time 33, neuron 2"):
        Recording(file)


@pytest.mark.parametrize("dtype", [np.float32, np.float64, np.int16])
def test_a_file_of_200_megabytes_takes_a_small_part_of_that_to_check_and_read(tmp_path, dtype):
    """The file is sparse; numpy tells tracemalloc of every byte that it allocates."""
    n_neurons = 500
    n_times = 200 * 2**20 // (n_neurons * np.dtype(dtype).itemsize)
    file = mapped(tmp_path / "x.npy", dtype, (n_times, n_neurons))
    file[-1, -1] = 1
    tracemalloc.start()
    try:
        rec = Recording(file)
        rows = rec.rows(np.array([0, n_times - 1]))
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    assert rows.shape == (2, n_neurons)
    assert rows[1, -1] == 1
    assert rec.neural.nbytes > 199 * 2**20
    assert peak < 10 * 2**20


def test_chunks_cover_every_row_once_in_order():
    wide = np.broadcast_to(np.arange(10_001)[:, None], (10_001, 2_000))
    parts = list(chunks(wide))
    assert len(parts) > 3
    assert np.array_equal(np.concatenate([part[:, 0] for part in parts]), np.arange(10_001))
    assert max(part.size * 8 for part in parts) <= 32 * 2**20


def test_chunks_stay_inside_epochs():
    wide = np.broadcast_to(np.arange(10_001)[:, None], (10_001, 2_000))
    epochs = Epochs.check([(5, 6), (10, 5_000), (5_000, 5_010), (9_990, 10_001)], 10_001)
    parts = [part[:, 0] for part in chunks(wide, epochs)]
    assert np.array_equal(np.concatenate(parts), epochs.indices())
    assert all(part[-1] < epochs.stop_of(part[:1])[0] for part in parts)
    assert all(np.array_equal(np.diff(part), np.ones(len(part) - 1)) for part in parts)


def test_one_row_larger_than_a_chunk_still_comes():
    wide = np.broadcast_to(np.zeros(1), (3, 5 * 2**20))
    assert [part.shape for part in chunks(wide)] == [(1, 5 * 2**20)] * 3


def test_huge_finite_values_whose_sum_overflows_are_finite():
    assert first_non_finite(np.full((10, 3), 3e38)) is None
    assert first_non_finite(np.full((10, 3), np.finfo(np.float32).max, dtype=np.float32)) is None


def test_the_first_non_finite_is_found_in_a_later_chunk_and_behind_huge_values():
    array = np.zeros((3_000, 2_500))  # two chunks
    array[0] = 3e38
    array[2_900, 7] = np.inf
    array[2_900, 2_400] = -np.inf
    assert first_non_finite(array) == (2_900, 7)


@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf])
@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64])
def test_first_non_finite_names_row_and_column(bad, dtype):
    array = np.ones((9, 4), dtype=dtype)
    array[6, 3] = bad
    array[7, 0] = -bad
    assert first_non_finite(array) == (6, 3)


def test_integers_are_always_finite():
    assert first_non_finite(np.full((4, 2), np.iinfo(np.int64).max)) is None


def test_y_is_one_label_or_several_by_name():
    y = np.zeros(3)
    assert as_labels(None) == {}
    assert as_labels(y)["label"] is y
    assert list(as_labels({"b": y, 3: y})) == ["b", "3"]
    with pytest.raises(ValueError, match="empty mapping; pass None"):
        as_labels({})


def test_time_is_kept_as_float64_seconds():
    assert Recording(activity()).time is None
    rec = Recording(activity(), time=list(range(20)))
    assert rec.time.dtype == np.float64
    assert rec.time.tolist() == list(range(20))


@pytest.mark.parametrize(
    ("time", "message"),
    [
        (np.arange(19), r"time has shape \(19,\), but there are 20 samples"),
        (np.zeros((20, 1)), r"time has shape \(20, 1\)"),
        (3.0, r"time has shape \(\)"),
        (np.zeros(20), "time must be finite and increase from sample to sample"),
        (np.arange(20)[::-1], "time must be finite and increase"),
        (np.where(np.arange(20) == 3, np.nan, np.arange(20)), "time must be finite and increase"),
        (["a"] * 20, "time must hold seconds as numbers, got dtype <U1"),
        (np.zeros(20, dtype="M8[s]"), "time must hold seconds as numbers, got dtype datetime64"),
    ],
)
def test_a_time_that_is_no_clock_is_refused(time, message):
    with pytest.raises(ValueError, match=message):
        Recording(activity(), time=time)
    with pytest.raises(ValueError, match="two dimensions"):
        Recording(activity()[:, 0], time=time)


def trials(*lengths, n_neurons=3):
    rows = activity(sum(lengths), n_neurons)
    return np.split(rows, np.cumsum(lengths)[:-1])


@pytest.mark.parametrize(
    ("neural", "epochs"),
    [
        (np.stack(trials(5, 5, 5)), [(0, 5), (5, 10), (10, 15)]),
        (trials(4, 9, 2), [(0, 4), (4, 13), (13, 15)]),
        (tuple(trials(14, 1)), [(0, 14), (14, 15)]),
        ((trial.tolist() for trial in trials(7, 8)), [(0, 7), (7, 15)]),
    ],
    ids=["array", "list", "tuple", "generator of lists"],
)
def test_trials_follow_one_another_each_an_epoch(neural, epochs):
    rec = Recording.from_trials(neural)
    assert rec.epochs.pairs() == epochs
    np.testing.assert_array_equal(rec.neural, activity(15).astype(np.float32))


def test_labels_of_trials_are_over_time_or_one_value_for_each():
    rec = Recording.from_trials(
        trials(4, 9, 2),
        {
            "speed": [np.arange(4.0), np.arange(9.0), np.arange(2.0)],
            "place": [np.full((n, 2), n) for n in (4, 9, 2)],
            "reward": [0.5, np.nan, 1.5],
            "side": ["left", "right", "left"],
            "correct": np.array([True, False, True]),
        },
        neuron_names=("a", "b", "c"),
        ground_truth={"z": np.array([True, False, True])},
    )
    n = [4, 9, 2]
    assert rec.labels["speed"][:, 0].tolist() == [*range(4), *range(9), *range(2)]
    np.testing.assert_array_equal(rec.labels["place"], np.repeat([[4, 4], [9, 9], [2, 2]], n, 0))
    np.testing.assert_array_equal(rec.labels["reward"][:, 0], np.repeat([0.5, np.nan, 1.5], n))
    assert rec.labels["side"][:, 0].tolist() == ["left"] * 4 + ["right"] * 9 + ["left"] * 2
    assert rec.labels["correct"].dtype == bool
    assert rec.neuron_names == ("a", "b", "c")
    assert list(rec.ground_truth) == ["z"]


def test_labels_of_trials_of_one_length_may_be_one_array():
    rec = Recording.from_trials(
        np.stack(trials(5, 5, 5)), {"a": np.arange(15).reshape(3, 5), "b": np.zeros((3, 5, 2))}
    )
    assert rec.labels["a"][:, 0].tolist() == list(range(15))
    assert rec.labels["b"].shape == (15, 2)


def test_trials_in_tables_keep_the_names_of_their_columns():
    tables = [pd.DataFrame(trial, columns=["x", "y", "z"]) for trial in trials(4, 5)]
    assert Recording.from_trials(tables).neuron_names == ("x", "y", "z")
    assert Recording.from_trials(tables, neuron_names="abc").neuron_names == ("a", "b", "c")


@pytest.mark.parametrize(
    ("neural", "labels", "message"),
    [
        ([], {}, "neural has no trials; give an array"),
        (np.zeros((0, 5, 3)), {}, "neural has no trials"),
        (3.0, {}, "neural has no trials"),
        (activity(), {}, r"trials of shape \(time, neuron\).*got trials of shapes \[\(3,\)\]"),
        (np.zeros((2, 3, 4, 5)), {}, r"shapes \[\(3, 4, 5\)\]"),
        ([np.zeros((5, 3)), np.zeros((5, 4))], {}, r"same neurons.*\[\(5, 3\), \(5, 4\)\]"),
        ([np.zeros((5, 3)), np.zeros(5)], {}, r"same neurons.*\[\(5,\), \(5, 3\)\]"),
        ([np.zeros((5, 3)), np.zeros((0, 3))], {}, r"epochs\[1\] is \(5, 5\)"),
        (trials(4, 5), {"a": [1.0]}, "label 'a' has 1 trials, but neural has 2"),
        (trials(4, 5), {"a": [np.zeros(4), np.zeros(4)]}, r"'a' has shape \(4,\) in trial 1.* 5 "),
        (trials(4, 5), {"a": [np.zeros(4), 3.0]}, r"'a' has shape \(\) in trial 1"),
        (trials(4, 5), {"a": [3.0, np.zeros(5)]}, r"'a' has shape \(\) in trial 0"),
        (
            trials(4, 5),
            {"a": [np.zeros((4, 1)), np.zeros((5, 2))]},
            r"'a' has shape \(5, 2\) in trial 1, where neural has 5 samples; give one row for each",
        ),
        ([np.zeros((5, 3)), np.full((5, 3), np.nan)], {}, "NaN at time 5, neuron 0"),
    ],
)
def test_trials_that_do_not_fit_together_are_refused(neural, labels, message):
    with pytest.raises(ValueError, match=message):
        Recording.from_trials(neural, labels)
