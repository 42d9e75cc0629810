"""Epochs chosen by a condition on labels and series of the source."""

from pathlib import Path

import numpy as np
import pytest

import xcebra
from xcebra.common.errors import InputError

DATA = Path(__file__).parents[3] / "shared" / "data"
N = 1_000
TIMES = np.arange(N) / 50
RNG = np.random.default_rng(0)
X = 10 * np.sin(TIMES)
RUNS = 10 * np.abs(np.cos(TIMES)) > 5  # the speed of x
UNITS = {str(i): np.sort(RNG.uniform(0, 20, 400)) for i in range(3)}
SOURCE = {
    "units": UNITS,
    "x": (TIMES, X),
    "pair": (TIMES, np.stack([X, TIMES], axis=1)),
    "lit": (TIMES, TIMES > 5),
    "slow": (TIMES[::10], TIMES[::10]),
}


def read(epochs, source=SOURCE, labels=("x",), **options):
    return xcebra.read(source, labels=list(labels), epochs=epochs, **{"bin_size": 0.1, **options})


def test_bins_lie_where_the_condition_holds():
    rec = read("x > 5")
    assert (rec.labels["x"] > 5).all()
    assert len(rec.epochs.starts) == 4  # x is above 5 once in each turn
    # Whole bins of 0.1 s fit into each stretch, and at most one bin of each is lost.
    assert 0.1 * rec.n_times == pytest.approx((X > 5).sum() / 50, abs=0.4)


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("x > 5 and slow < 10", (X > 5) & (TIMES < 10)),
        ("x > 9 or x < -9", np.abs(X) > 9),
        ("not (x > -9 and x < 9)", np.abs(X) >= 9),
        ("-2 < x <= 2", (X > -2) & (X <= 2)),
        ("lit", TIMES > 5),
        ("not lit and x > 0", (TIMES <= 5) & (X > 0)),
        ("speed(x, smooth=0) > 5", RUNS),
        ("speed(x,smooth=0)>5", RUNS),
        ("speed(`x`, smooth=0) > 5 and lit", RUNS & (TIMES > 5)),
        # Each of its samples stands for 0.1 s on either side.
        ("slow in [0.2, 0.4]", np.abs(TIMES - 0.3) < 0.2001),
    ],
)
def test_a_condition_chooses_what_numpy_chooses(condition, expected):
    neural = (TIMES, RNG.random((N, 3)))
    rec = read(condition, {**SOURCE, "units": neural}, bin_size=None, neural="units")
    np.testing.assert_allclose(rec.time, TIMES[expected])
    assert len(rec.epochs.starts) == (np.diff(expected.astype(int), prepend=0) == 1).sum()


def test_a_label_is_found_by_its_own_name():
    rec = read("fast > 5", labels=["fast=speed(x, smooth=0)"])
    assert (rec.labels["fast"] > 5).all()
    renamed = xcebra.read(
        SOURCE, labels={"x": "slow"}, epochs="x > 15", bin_size=0.1
    )  # before the entry of that name
    assert renamed.time.min() > 15


def test_nothing_is_chosen_where_a_series_is_missing():
    values = np.where((TIMES > 5) & (TIMES < 15), TIMES, np.nan)
    source = {**SOURCE, "gone": (TIMES, values), "until": (TIMES[:500], TIMES[:500])}
    for condition in ("gone > 0", "not gone < 0", "gone != 0", "not gone == 0", "gone not in [0]"):
        rec = read(condition, source)
        assert rec.time.min() > 5, condition
        assert rec.time.max() < 15, condition
    assert read("gone > 0 or until < 3", source).time.min() < 3
    assert read("not until > 100", source).time.max() < 10


def test_only_time_in_which_activity_was_recorded():
    late = {"units": {"a": np.arange(5.0, 12.0, 0.01)}, "x": (TIMES, X)}
    rec = read("x > -100", late)
    assert (rec.time.min(), rec.time.max()) == pytest.approx((5.05, 11.85), abs=0.06)
    with pytest.raises(
        InputError, match=r"holds only where there is no activity.* from 5 to 11.99"
    ):
        read("x > 0 and slow < 3", {**late, "slow": SOURCE["slow"]})


def test_samples_without_times():
    x = np.r_[np.zeros(40), np.ones(30), np.zeros(30)]
    rec = xcebra.read({"neural": RNG.random((100, 3)), "x": x}, epochs="x > 0")
    assert rec.epochs.pairs() == [(40, 70)]


def test_epochs_of_a_file_stay_apart(tmp_path):
    before = xcebra.Recording(
        RNG.random((200, 3)), {"x": np.arange(200.0)}, [(0, 50), (50, 120), (120, 200)]
    )
    for time in (None, np.arange(200) / 10):
        rec = xcebra.Recording(before.neural, before.labels, before.epochs, time=time)
        xcebra.write(rec, tmp_path / "day.npz")
        again = xcebra.read(tmp_path / "day.npz", epochs="x >= 30 and x < 100")
        lengths = [stop - start for start, stop in again.epochs.pairs() if stop > start]
        assert lengths[:2] == [20, 50]


class TestIntervals:
    @pytest.fixture
    def file(self, tmp_path):
        nwb = pytest.importorskip("pynwb")
        from datetime import UTC, datetime

        made = nwb.NWBFile(
            session_description="day",
            identifier="id",
            session_start_time=datetime(2024, 1, 1, tzinfo=UTC),
        )
        made.add_trial_column(name="choice", description="side")
        for start, choice in ((0, "left"), (4, "right"), (8, "left"), (12, "left")):
            made.add_trial(start_time=float(start), stop_time=float(start + 4), choice=choice)
        made.add_epoch(start_time=0.0, stop_time=10.0, tags=["wake"])
        made.add_epoch(start_time=10.0, stop_time=20.0, tags=["sleep"])
        made.add_acquisition(nwb.TimeSeries(name="x", data=X, unit="cm", timestamps=TIMES))
        for train in UNITS.values():
            made.add_unit(spike_times=np.r_[0.0, train, 20.0])
        path = tmp_path / "day.nwb"
        with nwb.NWBHDF5IO(path, "w") as file:
            file.write(made)
        return path

    @pytest.mark.parametrize(
        ("condition", "chosen"),
        [
            ("trials/choice == 'left'", [(0, 4), (8, 12), (12, 16)]),
            ("`trials/choice` != 'left'", [(4, 8)]),
            ("trials/choice == 'left' and wake", [(0, 4), (8, 10)]),
            ("trials and not wake", [(10, 12), (12, 16)]),
            ("sleep and x > 5", None),
        ],
    )
    def test_columns_names_and_tags(self, file, condition, chosen):
        rec = read(condition, file)
        starts, stops = rec.epochs.starts, rec.epochs.stops - 1
        found = [(rec.time[a], rec.time[b]) for a, b in zip(starts, stops, strict=True)]
        if chosen is None:
            assert (rec.labels["x"] > 5).all()
            assert rec.time.min() > 10
        else:
            expected = [(start + 0.05, stop - 0.05) for start, stop in chosen]
            np.testing.assert_allclose(found, expected, atol=1e-6)

    def test_a_name_alone_is_still_that_of_intervals(self, file):
        assert read("wake", file).time.max() < 10


@pytest.mark.parametrize(
    ("condition", "message"),
    [
        ("x > 500", r"epochs='x > 500' holds at no time; 'x' has -10 to 10"),
        ("y > 5", r"epochs='y' is not in it; .*it has 'units', 'x'"),
        ("runs(x) > 5", r"epochs='runs\(x\)' uses 'runs', which is no function"),
        ("pair > 5", r"epochs='pair > 5' names 'pair', which has 2 columns"),
        ("units > 5", r"'units' holds spike times"),
        ("x >", r"epochs='x >' cannot be read; write a condition such as \"speed > 5"),
        ("x > 'fast'", r"epochs=.* compares text with a number"),
        ("3 > 2", r"epochs='3 > 2' names no label or series"),
        ("x and lit", r"epochs='x and lit' needs a comparison with 'x'"),
        ("x", r"epochs='x' is not a list of intervals; .*condition, such as 'x > 0'"),
        ("x > slow(", r"cannot be read"),
        ("x > __import__('os').system('echo')", r"epochs="),
    ],
)
def test_what_cannot_be_used_is_said_in_one_line(condition, message):
    with pytest.raises(InputError, match=message) as error:
        read(condition)
    assert "epochs" in error.value.arguments
    assert "\n" not in str(error.value)


@pytest.mark.skipif(not DATA.is_dir(), reason=f"there are no recordings in {DATA}")
@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_running_in_a_real_recording():
    rec = xcebra.read(
        DATA / "head_direction.nwb",
        labels=["heading=ry", "speed=speed(x,z)"],
        epochs="wake and speed(x,z) > 0.05",
        bin_size=0.05,
    )
    whole = xcebra.read(DATA / "head_direction.nwb", labels=["speed=speed(x,z)"], bin_size=0.05)
    share = (whole.labels["speed"] > 0.05).mean()
    assert rec.n_times == pytest.approx(share * whole.n_times, rel=0.1)
    # A bin's centre may lie between two samples, of which one is slower.
    assert (rec.labels["speed"] > 0.045).mean() > 0.99
