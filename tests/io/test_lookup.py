"""Names of entries, of columns and patterns: what is found, and what is said of the rest."""

import numpy as np
import pandas as pd
import pytest

import xcebra
from xcebra.common.errors import InputError, InputTypeError
from xcebra.io import Contents, Intervals, Series, Spikes, opened
from xcebra.io.contents import IntervalValues
from xcebra.io.lookup import has, matching, one_line, part, spell

N = 400
TIMES = np.arange(N) / 20
XY = np.stack([np.sin(TIMES), np.cos(TIMES)], axis=1)


def source():
    trials = Intervals(
        [0.0, 6.0], [5.0, 11.0], {"choice": np.array(["left", "right"]), "reward": np.array([1, 0])}
    )
    return Contents(
        "rec.nwb",
        {
            "position": Series(XY, TIMES, ("x", "y")),
            "paw": Series(XY + 1, TIMES, ("x", "z")),
            "speed": Series(XY[:, 0], TIMES),
            "trials": trials,
            "units": Spikes({"0": TIMES, "1": TIMES}),
        },
        {"video": "is a film"},
    )


@pytest.mark.parametrize(
    ("asked", "names"),
    [
        ("speed", ["speed"]),
        (["speed", "position"], ["speed", "position"]),
        ("position/x", ["position/x"]),
        ("y", ["position/y"]),
        ("choice", ["trials/choice"]),
        ("trials/reward", ["trials/reward"]),
        ("p*", ["position", "paw"]),
        ("position/*", ["position/x", "position/y"]),
        ("?", ["position/x", "position/y", "paw/x", "paw/z"]),
        (["y", "position/y", "y"], ["position/y"]),
    ],
)
def test_names_that_are_found(asked, names):
    assert matching(source(), asked, "labels") == names
    assert all(has(source(), name) for name in names)


def test_parts():
    entry = part(source(), "position/y")
    np.testing.assert_array_equal(entry.values, XY[:, 1:])
    assert entry.columns == ("y",)
    column = part(source(), "trials/reward")
    assert isinstance(column, IntervalValues)
    assert column.values.tolist() == [1, 0]
    assert isinstance(part(source(), "units"), Spikes)


def test_the_unit_table_of_one_column_is_its_row():
    table = {"area": np.array(["a", "b"])}
    contents = Contents("r", {"n": Series(XY, TIMES, ("u", "v"), units=table)})
    assert part(contents, "n/v").units["area"].tolist() == ["b"]


@pytest.mark.parametrize(
    ("asked", "message"),
    [
        ("sped", "rec.nwb: labels='sped' is not in it; did you mean 'speed'? it has 'position', "),
        ("Speed", "did you mean 'speed'?"),
        ("chioce", "did you mean 'choice'?"),
        ("position/yy", "did you mean 'position/y'?"),
        ("zzzzzz", "rec.nwb: labels='zzzzzz' is not in it; it has 'position', 'paw', 'speed', "),
        ("x", "several entries have such a column, 'position/x', 'paw/x'"),
        ("video", "labels='video' cannot be used: is a film"),
        ("v*", "labels='v*' cannot be used: 'video' is a film"),
        ("q*", "labels='q*' is not in it"),
    ],
)
def test_names_that_are_not_found(asked, message):
    with pytest.raises(InputError) as caught:
        matching(source(), asked, "labels")
    assert message in str(caught.value)
    assert caught.value.arguments == ("labels",)
    assert "\n" not in str(caught.value)


@pytest.mark.parametrize("asked", [3, [], [None], [["speed"]]])
def test_what_is_no_name(asked):
    with pytest.raises(InputTypeError, match=r"rec.nwb: labels must be a name or a list of names"):
        matching(source(), asked, "labels")


def test_two_labels_may_not_have_one_name():
    contents = Contents("r", {"neural": Series(XY, TIMES), "x": Series(TIMES, TIMES)})
    with pytest.raises(
        InputError, match=r"r: two labels are called 'a', 'x' and 'speed\(x\)'; nam"
    ):
        xcebra.read(contents, labels=["a=x", "a=speed(x)"])
    assert list(xcebra.read(contents, labels=["x", "x"]).labels) == ["x"]


def test_lists_in_messages():
    assert spell("abc") == "'a', 'b', 'c'"
    assert spell(map(str, range(14))).endswith("'11' and 2 more")
    assert one_line("a\nb") == "'a\\nb'"
    assert len(one_line("x" * 1_000)) == 80


class TestEpochs:
    def contents(self):
        tags = np.array(["wake", "sws,rest", "wake,run"])
        other = np.array(["left", "right", "wake"])
        entries = {
            "neural": Series(XY, TIMES),
            "epochs": Intervals([0.0, 5.0, 10.0], [5.0, 9.0, 15.0], {"tags": tags}),
            "trials": Intervals([0.0, 1.0, 2.0], [1.0, 2.0, 3.0], {"choice": other}),
            "broken": Series(XY, TIMES),
        }
        return Contents("rec.nwb", entries, {"gone": "is empty"})

    @pytest.mark.parametrize(
        ("name", "seconds"),
        [
            ("epochs", [(0, 5), (5, 9), (10, 15)]),
            ("sws", [(5, 9)]),
            ("rest", [(5, 9)]),
            ("run", [(10, 15)]),
            ("right", [(1, 2)]),
        ],
    )
    def test_by_name_or_tag(self, name, seconds):
        rec = xcebra.read(self.contents(), neural="neural", labels=[], epochs=name)
        inside = np.any([(start <= TIMES) & (stop >= TIMES) for start, stop in seconds], axis=0)
        np.testing.assert_array_equal(rec.time, TIMES[inside])
        assert len(rec.epochs) == len(seconds)

    @pytest.mark.parametrize(
        ("name", "message"),
        [
            (
                "wak",
                "epochs='wak' is not in it; did you mean 'wake'? it has 'epochs', 'trials' with",
            ),
            ("epoch", "did you mean 'epochs'?"),
            ("wake", "epochs='wake' is a tag in 'epochs', 'trials'; name the intervals, or give"),
            ("neural", "epochs='neural' is not a list of intervals; it has 'epochs', 'trials'"),
            ("gone", "epochs='gone' cannot be used: is empty"),
            ("zzz", "with the tags 'left', 'rest', 'right', 'run', 'sws', 'wake'"),
        ],
    )
    def test_names_that_are_not_found(self, name, message):
        with pytest.raises(InputError) as caught:
            xcebra.read(self.contents(), neural="neural", labels=[], epochs=name)
        assert message in str(caught.value)
        assert caught.value.arguments == ("epochs",)


@pytest.mark.filterwarnings("ignore::xcebra.caveats.LabelKindWarning")
class TestTrials:
    """Columns of trials are labels: the value of the trial that a bin's centre lies in."""

    STARTS = np.array([1.0, 4.0, 4.5, 9.0])
    STOPS = np.array([3.0, 4.5, 7.3, 12.0])
    COLUMNS = {  # noqa: RUF012
        "choice": np.array(["left", "right", "left", "none"]),
        "contrast": np.array([0.1, 0.5, 0.25, 1.0]),
        "correct": np.array([True, False, True, True]),
        "block": np.array([1, 2, 2, 1]),
    }

    def contents(self):
        rng = np.random.default_rng(0)
        trains = {str(i): np.sort(rng.uniform(0, 15, 300)) for i in range(3)}
        trials = Intervals(self.STARTS, self.STOPS, self.COLUMNS)
        return Contents("rec.nwb", {"units": Spikes(trains), "trials": trials})

    def expected(self, times, column):
        values = []
        for time in times:
            inside = (time >= self.STARTS) & (time < self.STOPS)
            values.append(self.COLUMNS[column][inside][0] if inside.any() else None)
        return values

    @pytest.mark.parametrize("column", COLUMNS)
    def test_against_a_loop(self, column):
        rec = xcebra.read(
            self.contents(), labels=[column], bin_size=0.1, epochs=[(0.0, 6.0), (6.0, 14.0)]
        )
        (values,) = rec.labels.values()
        expected = self.expected(rec.time, column)
        assert any(value is None for value in expected)
        for value, truth in zip(values[:, 0], expected, strict=True):
            if truth is None:
                assert value == "" if values.dtype.kind == "U" else np.isnan(value)
            else:
                assert value == truth

    def test_by_default_the_recording_is_from_the_first_to_the_last_trial(self):
        rec = xcebra.read(self.contents(), labels="c=trials/choice", bin_size=0.1)
        assert rec.time[0] == pytest.approx(1.05)
        assert rec.time[-1] == pytest.approx(11.95)

    def test_truth_values_and_few_whole_numbers_stay_classes_beside_missing_samples(self):
        asked = {name: f"trials/{name}" for name in self.COLUMNS}
        rec = xcebra.read(self.contents(), labels=asked, bin_size=0.1)
        kinds = {name: info.kind for name, info in rec.label_info.items()}
        assert kinds == {
            "choice": None,
            "contrast": None,
            "correct": "discrete",
            "block": "discrete",
        }
        said = xcebra.read(
            self.contents(), labels=asked, bin_size=0.1, label_kind={"block": "continuous"}
        )
        assert said.label_info["block"].kind == "continuous"

    def test_another_clock_is_an_error_with_both(self):
        contents = self.contents()
        early = Spikes({"0": np.linspace(0, 0.5, 20)})
        with pytest.raises(InputError, match=r"from 0 s to 0\.\d+ s, but label 'choice' from 1 s"):
            xcebra.read(
                Contents("r", {**contents.entries, "units": early}),
                labels={"choice": "choice"},
                bin_size=0.1,
            )
        with pytest.raises(InputError, match=r"label 'choice' has intervals from 1 s to 12 s, but"):
            xcebra.read(
                Contents("r", {**contents.entries, "units": Spikes({"0": 100 + TIMES})}),
                labels={"choice": "choice"},
                bin_size=0.1,
                epochs=[(100.0, 110.0)],
            )

    def test_activity_without_times_cannot_have_them(self):
        contents = self.contents()
        entries = {"neural": Series(XY), "trials": contents.entries["trials"]}
        with pytest.raises(InputError, match="one value per interval, and the neural activity has"):
            xcebra.read(Contents("r", entries), labels="trials/choice")


class TestWideTables:
    def frame(self):
        rng = np.random.default_rng(0)
        columns = {f"unit_{i}": rng.poisson(1.0, N) for i in range(50)}
        return pd.DataFrame({**columns, "x": XY[:, 0], "y": XY[:, 1], "time": TIMES})

    def test_a_wide_csv_needs_no_argument_but_labels(self, tmp_path):
        self.frame().to_csv(tmp_path / "wide.csv", index=False)
        for options in ({"labels": ["x", "y"]}, {}):
            rec = xcebra.read(tmp_path / "wide.csv", **options)
            assert rec.neuron_names == tuple(f"unit_{i}" for i in range(50))
            np.testing.assert_array_equal(rec.neural, self.frame().to_numpy()[:, :50])
            assert list(rec.labels) == ["x", "y"]
            np.testing.assert_allclose(rec.time, TIMES)
        rec = xcebra.read(tmp_path / "wide.csv", labels="position=x,y")
        np.testing.assert_allclose(rec.labels["position"], XY)
        assert rec.label_info["position"].columns == ("x", "y")

    def test_single_units_and_patterns_of_it(self):
        rec = xcebra.read(self.frame(), neural=["unit_3", "unit_7"], labels="x")
        assert rec.neuron_names == ("unit_3", "unit_7")
        rec = xcebra.read(self.frame(), neural="unit_1*", labels="x")
        assert rec.neuron_names == ("unit_1", *(f"unit_1{i}" for i in range(10)))

    def test_units_of_it_by_name_and_by_rate(self):
        frame = self.frame()
        rec = xcebra.read(frame, labels="x", units=["unit_9", "unit_2"])
        assert rec.neuron_names == ("unit_9", "unit_2")
        np.testing.assert_array_equal(rec.neural, frame[["unit_9", "unit_2"]])
        rate = frame.to_numpy()[:, :50].mean(axis=0) * 20  # 20 samples per second
        rec = xcebra.read(frame, labels="x", units="rate > 20")
        assert rec.neuron_names == tuple(f"unit_{i}" for i in np.flatnonzero(rate > 20))
        with pytest.raises(InputError, match=r"units has 'unit_50', .*did you mean 'unit_5'\?"):
            xcebra.read(frame, labels="x", units=["unit_50"])

    @pytest.mark.parametrize(
        ("columns", "entries"),
        [
            (["x1", "y1", "x2", "y2", "a"], {"x1", "y1", "x2", "y2", "a"}),
            (["n1", "n2", "n3", "x"], {"n", "x"}),
            (["cell 1", "cell 2", "cell 3", "x"], {"cell", "x"}),
            (["unit", "unit_1", "unit_2", "unit_3"], {"unit", "unit_1", "unit_2", "unit_3"}),
            (["0", "1", "2"], {"0", "1", "2"}),
            (["u-1", "u.2", "u3"], {"u"}),
        ],
    )
    def test_columns_are_joined_by_three_or_more_numbers(self, columns, entries):
        frame = pd.DataFrame(np.random.default_rng(0).random((5, len(columns))), columns=columns)
        with opened(frame) as contents:
            assert set(contents.entries) == entries

    def test_coordinates_of_many_points_are_no_activity(self):
        """Six points of a pose beside 50 neurons; and a pose alone."""
        rng = np.random.default_rng(0)
        pose = {f"{axis}{i}": rng.random(N) for axis in "xy" for i in range(6)}
        rec = xcebra.read(pd.DataFrame({**self.frame().to_dict("list"), **pose}), labels="x0")
        assert rec.n_neurons == 50
        with pytest.raises(InputError, match="cannot tell which of its entries is the neural"):
            xcebra.read(pd.DataFrame(pose), labels=[])
