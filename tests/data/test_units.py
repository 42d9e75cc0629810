"""The unit table: which values it holds, which conditions choose units, and whose row is whose."""

import pickle
import subprocess
import sys

import numpy as np
import pandas as pd
import pytest

import xcebra
from xcebra.common.errors import InputError
from xcebra.data.units import as_cell, as_column, column_values, matched_units, select_units
from xcebra.data.units import unit_names as names_of

N = 60
RNG = np.random.default_rng(0)
UNITS = {
    "area": RNG.choice(["CA1", "CA3", "adn", ""], N),
    "shank": RNG.integers(0, 4, N),
    "depth": np.where(RNG.random(N) < 0.2, np.nan, RNG.normal(0, 100, N).round(1)),
    "good": RNG.random(N) < 0.5,
    "group": RNG.choice(["CA1", "CA3"], N),
    "spike width (ms)": RNG.random(N),
}
AREA, SHANK, DEPTH, GOOD = (UNITS[name] for name in ("area", "shank", "depth", "good"))
WIDTH = UNITS["spike width (ms)"]


@pytest.mark.parametrize(
    ("condition", "expected"),
    [
        ("area == 'CA1'", AREA == "CA1"),
        ("area != 'CA1'", AREA != "CA1"),
        ("area < 'CA3'", AREA < "CA3"),
        ("'CA3' > area", AREA < "CA3"),
        ("area == ''", AREA == ""),
        ("shank == 2", SHANK == 2),
        ("shank != 2", SHANK != 2),
        ("shank < 2", SHANK < 2),
        ("shank <= 2", SHANK <= 2),
        ("shank > 2", SHANK > 2),
        ("shank >= 2", SHANK >= 2),
        ("2 <= shank", SHANK >= 2),
        ("1 <= shank < 3", (SHANK >= 1) & (SHANK < 3)),
        ("depth > -50.5", DEPTH > -50.5),
        ("depth < 1e1", DEPTH < 10),
        ("not depth > 0", ~(DEPTH > 0)),
        ("depth == depth", ~np.isnan(DEPTH)),
        ("shank in [1, 3]", np.isin(SHANK, [1, 3])),
        ("shank in (1, 3)", np.isin(SHANK, [1, 3])),
        ("shank in {1}", SHANK == 1),
        ("shank not in [1, 3]", ~np.isin(SHANK, [1, 3])),
        ("area in ['CA1', 'CA3']", np.isin(AREA, ["CA1", "CA3"])),
        ("area not in ['CA1']", AREA != "CA1"),
        ("good", GOOD),
        ("not good", ~GOOD),
        ("good == True", GOOD),
        ("good == 0", ~GOOD),
        ("area == group", UNITS["group"] == AREA),
        ("area == 'CA1' and depth > 0", (AREA == "CA1") & (DEPTH > 0)),
        ("area == 'CA1' or depth > 0", (AREA == "CA1") | (DEPTH > 0)),
        ("not (area == 'CA1' or good)", ~((AREA == "CA1") | GOOD)),
        ("good and shank == 1 or shank == 2", (GOOD & (SHANK == 1)) | (SHANK == 2)),
        ("`spike width (ms)` > 0.5", WIDTH > 0.5),
        ("`spike width (ms)` > 0.5 and `area` == 'CA1'", (WIDTH > 0.5) & (AREA == "CA1")),
        ("  good ", GOOD),
        ("shank > 1 \n", SHANK > 1),
        (f"shank < {10**30}", np.ones(N, dtype=bool)),
    ],
)
def test_a_condition_chooses_what_numpy_chooses(condition, expected):
    chosen = select_units(condition, UNITS)
    assert chosen.dtype == bool
    np.testing.assert_array_equal(chosen, expected)


def test_a_number_equals_the_text_that_spells_it():
    names = {"name": np.array(["3", "10", "x"])}
    np.testing.assert_array_equal(select_units("name == 10", names), [False, True, False])
    np.testing.assert_array_equal(select_units("name in [3, 10.0]", names), [True, True, False])
    np.testing.assert_array_equal(select_units("3 != name", names), [False, True, True])


def refused(condition, units=UNITS):
    with pytest.raises(InputError) as caught:
        select_units(condition, units)
    assert caught.value.arguments == ("units",)
    message = str(caught.value)
    assert "\n" not in message
    return message


def test_text_and_numbers_have_no_order():
    names = {"name": np.array(["3", "10", "x"])}
    for condition in ("name < 10", "10 > name", "name >= 3"):
        assert "compares text with a number" in refused(condition, names)
    assert "compares text with a number" in refused("shank == 'CA1'")
    assert "compares text with a number" in refused("shank in ['CA1']")


@pytest.mark.parametrize(
    "condition",
    [
        "__import__('os').system('touch hacked')",
        "__import__('os').system('touch hacked') == 0",
        "open('hacked', 'w') == 1",
        "(lambda: open('hacked', 'w'))() == 1",
        "lambda: 1",
        "[open('hacked', 'w') for _ in [1]] == 1",
        "shank == [x for x in [1]]",
        "shank.__class__ == 1",
        "area.__class__.__mro__",
        "shank.max() > 1",
        "shank[0] == 1",
        "(shank := 3) == 3",
        "shank if good else shank",
        "shank + 1 == 2",
        "-shank == 2",
        "shank ** 9 ** 9 ** 9 > 1",
        "9 ** 9 ** 9 ** 9 > shank",
        "area == 'a' * 10 ** 12",
        'area == f\'{open("hacked", "w")}\'',
        "area == b'CA1'",
        "shank == None",
        "shank == 1j",
        "shank == ...",
        "shank in shank",
        "shank in 3",
        "shank in [[1]]",
        "shank is 1",
        "shank is not 1",
        "shank & good",
        "shank == 1; import os",
        "import os",
        "shank = 1",
        "shank == ",
        "good and",
        "",
        "   ",
        "1",
        "'CA1'",
        "*shank",
        "yield",
        "await shank",
        "shank == 1\x00",
        "shank == 1" + "0" * 10_000,
        "(" * 300 + "good" + ")" * 300,
        "(" * 5_000 + "good" + ")" * 5_000,
        "not " * 5_000 + "good",
        "not " * 100_000 + "good",
        "shank == " + "-" * 5_000 + "1",
        "shank == " + "[" * 150 + "]" * 150,
    ],
)
def test_a_hostile_condition_is_one_error_and_executes_nothing(condition, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    message = refused(condition)
    assert message.startswith("units=")
    assert len(message) < 500
    assert list(tmp_path.iterdir()) == []


def test_a_condition_of_many_parts_is_read():
    condition = " or ".join(f"depth == {value}" for value in range(400)) + " or good"
    np.testing.assert_array_equal(
        select_units(condition, UNITS), GOOD | np.isin(DEPTH, np.arange(400))
    )


def test_a_wrong_column_is_named_with_the_nearest_and_with_what_there_is():
    message = refused("aera == 'CA1'")
    assert "names 'aera', which no unit has; did you mean 'area'?" in message
    assert "shank (" in message
    assert "names 'no such'" in refused("`no such` > 1")
    assert "nothing is known of the units" in refused("area == 'CA1'", {})
    assert "needs a comparison with 'shank', such as == or >" in refused("shank")
    assert "needs a list after 'in'" in refused("shank in 3")


def test_a_condition_that_holds_for_none_says_which_values_there_are():
    message = refused("area == 'V1'")
    assert "holds for none of 60 units" in message
    assert "CA1: " in message


@pytest.mark.parametrize(
    ("values", "expected"),
    [
        ([1, 2, 3], np.array([1, 2, 3])),
        (np.array([1, 2], dtype=object), np.array([1, 2])),
        (np.array([1, 2], dtype=np.int8), np.array([1, 2])),
        (np.array([1, 2], dtype=np.float16), np.array([1.0, 2.0])),
        ([1, None, 3.5], np.array([1.0, np.nan, 3.5])),
        (pd.array([1, None], dtype="Int64"), np.array([1.0, np.nan])),
        ([True, False], np.array([True, False])),
        (np.array([True, None], dtype=object), np.array([1.0, np.nan])),
        (["a", None, float("nan")], np.array(["a", "", ""])),
        (pd.Series(["a", None], dtype="string"), np.array(["a", ""])),
        (pd.Categorical(["b", "a"]), np.array(["b", "a"])),
        ([b"a", "é"], np.array(["a", "é"])),
        (np.array([b"a", b"\xff"]), np.array(["a", "\ufffd"])),
    ],
)
def test_a_column_holds_numbers_truth_values_or_text(values, expected):
    column = as_column(np.asarray(values, dtype=object if isinstance(values, list) else None))
    assert column is not None
    assert column.dtype.kind == expected.dtype.kind
    if column.dtype.kind in "fi":
        assert column.dtype.itemsize == 8
    np.testing.assert_array_equal(column, expected)


@pytest.mark.parametrize(
    "values",
    [
        np.zeros((3, 2)),
        np.array(["a", 1], dtype=object),
        np.array([object()], dtype=object),
        np.array(["2020-01-01"], dtype="datetime64[D]"),
        np.array([1j]),
        np.array([b"\xff", 1], dtype=object),
    ],
)
def test_anything_else_is_no_column(values):
    assert as_column(values) is None


def test_cells_of_tables():
    assert as_cell(np.array(3.5)) == 3.5
    assert as_cell(np.int64(3)) == 3
    assert as_cell(b"a") == "a"
    assert as_cell(["wake", b"run"]) == "wake,run"
    assert as_cell([]) == ""
    for cell in ([1, 2], np.zeros((2, 2)), {"a": 1}, object()):
        column = np.empty(1, dtype=object)
        column[0] = as_cell(cell)
        assert as_column(column) is None


def test_names_come_from_the_first_column_of_different_names():
    assert names_of({"depth": np.arange(2), "Unit": np.array(["a", "b"])}) == ("a", "b")
    assert names_of({"unit": np.array(["a", "a"]), "id": np.array([4.0, 7.0])}) == ("4", "7")
    assert names_of({"unit": np.array(["a", ""])}) == ()
    assert names_of({"area": np.array(["a", "b"])}) == ()


def test_values_in_words():
    assert column_values(np.array(["a", "b", "a", ""])) == "a: 2, missing: 1, b: 1"
    assert column_values(np.arange(10)) == "0 to 9"
    assert column_values(np.array([1.0, 1.0, np.nan])) == "1: 2, missing: 1"
    assert column_values(np.full(3, np.nan)) == "missing"
    assert column_values(np.array(list("abcdefgh"))) == "a, b ..., all different"
    assert column_values(np.array([True, False, True])) == "True: 2, False: 1"
    assert column_values(np.array(list("aabbccddeeff"))).endswith(" and 2 more")


class TestMatching:
    TABLE = {"unit": np.array(["c", "a", "b"]), "depth": np.array([3.0, 1.0, 2.0])}  # noqa: RUF012

    def test_rows_are_found_by_name_in_any_order(self):
        matched = matched_units(self.TABLE, ["a", "b", "c"], numbered=False)
        assert matched["depth"].tolist() == [1.0, 2.0, 3.0]
        assert matched["unit"].tolist() == ["a", "b", "c"]

    def test_rows_of_other_units_are_left_out(self):
        assert matched_units(self.TABLE, ["b", "c"], numbered=False)["depth"].tolist() == [2, 3]

    def test_numbers_are_names_too(self):
        table = {"id": np.array([7.0, 3.0]), "depth": np.array([70, 30])}
        assert matched_units(table, ["3", "7"], numbered=False)["depth"].tolist() == [30, 70]

    def test_numbers_in_another_order_are_found_although_units_are_only_numbered(self):
        """Units of NWB and pynapple are mostly called 0, 1, 2, ..."""
        table = {"unit": np.array([2, 0, 1]), "depth": np.array([20, 0, 10])}
        assert matched_units(table, ["0", "1", "2"], numbered=True)["depth"].tolist() == [0, 10, 20]

    def test_without_names_rows_are_in_order(self):
        table = {"depth": np.array([3.0, 1.0, 2.0])}
        for names, numbered in ((["a", "b", "c"], False), (["0", "1", "2"], True)):
            assert matched_units(table, names, numbered)["depth"].tolist() == [3.0, 1.0, 2.0]
        assert matched_units(self.TABLE, ["0", "1", "2"], True)["unit"].tolist() == ["c", "a", "b"]

    def test_what_does_not_belong_together_is_refused(self):
        with pytest.raises(
            InputError, match=r"unit_table has 3 rows, but there are 2 neurons; .*'0"
        ):
            matched_units({"depth": np.arange(3)}, ["0", "1"], numbered=True)
        with pytest.raises(InputError, match=r"no row for neuron 'd': its column 'unit' holds .*;"):
            matched_units(self.TABLE, ["a", "b", "d"], numbered=False)


class TestRecording:
    def make(self, **changes):
        return xcebra.Recording(np.zeros((5, 3)), **changes)

    def test_it_keeps_its_own_read_only_table(self):
        depth = np.array([1.0, 2.0, 3.0])
        rec = self.make(units={"depth": depth, "area": ["a", None, "b"]})
        depth[0] = 9.0
        assert rec.units["depth"].tolist() == [1.0, 2.0, 3.0]
        assert rec.units["area"].tolist() == ["a", "", "b"]
        with pytest.raises(ValueError, match="read-only"):
            rec.units["depth"][0] = 0.0

    def test_a_table_of_pandas_is_as_good(self):
        frame = pd.DataFrame({"area": ["a", "b", "c"], "n": [1, 2, 3]}, index=[5, 6, 7])
        rec = self.make(units=frame)
        assert rec.units["area"].tolist() == ["a", "b", "c"]
        assert rec.units["n"].dtype == np.int64

    def test_neurons_are_called_as_in_their_table(self):
        names = {"unit": ["x", "y", "z"]}
        assert self.make(units=names).neuron_names == ("x", "y", "z")
        assert self.make(units=names, neuron_names="abc").neuron_names == ("a", "b", "c")

    def test_all_problems_are_listed_at_once(self):
        with pytest.raises(InputError) as caught:
            self.make(
                units={"short": [1, 2], "mixed": np.array([1, "a", 2], dtype=object)}, overlap=-1
            )
        message = str(caught.value)
        assert "units['short'] must hold one number or text for each of 3 neurons" in message
        assert "got shape (2,)" in message
        assert "units['mixed']" in message
        assert "overlap" in message

    @pytest.mark.parametrize("units", [["area"], "area", 3, np.zeros(3)])
    def test_what_is_no_table_is_refused(self, units):
        with pytest.raises(InputError, match=r"units must be a mapping .* or a DataFrame, got"):
            self.make(units=units)

    def test_it_survives_pickle(self):
        rec = pickle.loads(pickle.dumps(self.make(units={"area": ["a", "b", "c"]})))
        assert rec.units["area"].tolist() == ["a", "b", "c"]


def test_no_unit_table_needs_pandas():
    """The check of a table imports nothing that is not always there."""
    code = (
        "import sys; sys.modules['pandas'] = None; import xcebra, numpy as np;"
        "print(xcebra.Recording(np.zeros((3, 2)), units={'a': ['x', None]}).units['a'].tolist())"
    )
    result = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True
    )
    assert result.stdout == "['x', '']\n"
