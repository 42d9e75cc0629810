"""Maps by groups of neurons, and maps beside what is known of the neurons."""

import pickle
from dataclasses import replace

import h5netcdf
import numpy as np
import pandas as pd
import pynapple as nap
import pytest
from scipy.stats import norm

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.groups import group_names, wilson_interval
from xcebra.attribution.steps import Steps
from xcebra.common.errors import InputError
from xcebra.statistics.second_opinion import SecondOpinion
from xcebra.statistics.significance import Connections

BLOCKS = {"position": slice(0, 2), "time": slice(2, 3)}
SCORES = np.array([4.0, 3.0, 2.0, 1.0, 0.5, 0.0])
UNITS = {
    "area": np.array(["CA1", "CA1", "V1", "V1", "V1", ""]),
    "shank": np.array([1.0, 2.0, 1.0, 2.0, 1.0, np.nan]),
    "depth": np.array([10.5, 20.0, 30.0, 40.0, 50.0, np.nan]),
    "good": np.array([True, False, True, True, True, False]),
    "id": np.arange(6) + 100,
    "score": np.arange(6.0),
    "version": np.array(["v1.0", "v2.0"] * 3),
}
# Two clear neurons, and four that are not.
P_VALUES = np.array([0.0001, 0.0001, 0.5, 0.6, 0.7, 0.9])


def make(n=6, tested=True, units=UNITS, names=None, **changes):
    values = np.stack([SCORES[:n], np.zeros(n), SCORES[:n][::-1]], axis=1)
    zeros = np.zeros(n)
    tests = {"position": Connections(SCORES[:n] / 10, zeros, zeros + 1, P_VALUES[:n])}
    return AttributionMap(
        values,
        {"position": SCORES[:n], "time": SCORES[:n][::-1]},
        BLOCKS,
        tuple(names or map(str, range(n))),
        ("position0", "position1", "time0"),
        connections=tests if tested else {},
        units=units,
        **changes,
    )


class TestBy:
    def test_means_and_shares(self):
        groups = make().by("area")
        connected = make().significant("position")
        assert connected.tolist() == [True, True, False, False, False, False]
        first, second, third = groups.scores["position"]
        assert (first.group, first.n_neurons, first.mean_score) == ("CA1", 2, 3.5)
        assert (first.n_connected, first.share) == (2, 1.0)
        assert (second.group, second.n_neurons, second.n_connected) == ("V1", 3, 0)
        assert second.mean_score == pytest.approx(3.5 / 3)
        assert third.group == "missing"
        assert (first.low, first.high) == wilson_interval(2, 2)
        assert groups.scores["time"][0].group == "missing"

    def test_a_block_without_a_test_has_no_shares(self):
        score = make().by("area").scores["time"][0]
        assert (score.n_connected, score.share, score.low, score.high) == (None,) * 4
        assert "connected" not in score.in_words()

    def test_the_false_discovery_rate_is_passed_on(self):
        none = make().by("area", alpha=1e-6).scores["position"]
        assert [score.n_connected for score in none] == [0, 0, 0]

    def test_numbers_truth_values_and_text_make_groups(self):
        assert group_names(UNITS, "shank").tolist() == ["1", "2", "1", "2", "1", "missing"]
        assert set(group_names(UNITS, "good").tolist()) == {"True", "False"}
        assert group_names(UNITS, "version").tolist() == ["v1.0", "v2.0"] * 3

    def test_several_columns_make_groups_of_their_combinations(self):
        expected = ["CA1, 1", "CA1, 2", "V1, 1", "V1, 2", "V1, 1", "missing, missing"]
        assert group_names(UNITS, ["area", "shank"]).tolist() == expected
        for asked in (["area", "shank"], "area,shank", "area, shank", "area,shank,area"):
            groups = make().by(asked)
            assert groups.column == "area, shank"
            sizes = {score.group: score.n_neurons for score in groups.scores["position"]}
            assert sizes == {name: expected.count(name) for name in expected}
        assert groups.to_pandas().loc[("position", "CA1, 1"), "connected"] == 1
        assert group_names({"a,b": np.array(["x", "y"])}, "a,b").tolist() == ["x", "y"]

    @pytest.mark.parametrize("asked", [[], "", ",", 3, ["area", 3]])
    def test_no_column_at_all(self, asked):
        with pytest.raises(InputError, match=r"must name one or more columns .* have \['area'"):
            make().by(asked)

    def test_one_of_several_columns_does_not_exist(self):
        with pytest.raises(InputError, match=r"group_by='shnak' is no column .* mean 'shank'"):
            make().by("area,shnak")

    @pytest.mark.parametrize("values", [np.linspace(0, 1, 50), np.arange(50)])
    def test_too_many_numbers_make_none(self, values):
        with pytest.raises(
            InputError, match=r"group_by='depth' has 50 different numbers, too many"
        ):
            group_names({"depth": values}, "depth")

    def test_a_column_that_does_not_exist(self):
        with pytest.raises(
            InputError, match=r"group_by='aera' is no column .* mean 'area'\? the un"
        ):
            make().by("aera")
        with pytest.raises(InputError, match="nothing is known of the units"):
            make(units={}).by("area")

    def test_as_a_table_and_in_words(self):
        groups = make().by("area")
        frame = groups.to_pandas()
        assert frame.loc[("position", "CA1"), "connected"] == 2
        assert frame.loc[("position", "V1"), "mean_score"] == pytest.approx(3.5 / 3)
        assert str(groups).startswith("position: CA1: 2 of 2 connected, mean score 3.5; V1: 0 of 3")


@pytest.mark.parametrize(("k", "n"), [(0, 5), (5, 5), (3, 10), (50, 100)])
def test_wilson_interval_holds_the_shares_that_a_score_test_does_not_reject(k, n):
    z = norm.ppf(0.975)
    for share in wilson_interval(k, n):
        if 1e-9 < share < 1 - 1e-9:
            assert abs(k / n - share) == pytest.approx(
                z * np.sqrt(share * (1 - share) / n), rel=1e-5
            )


def same_units(found, expected):
    assert list(found) == list(expected)
    for name, values in expected.items():
        assert found[name].dtype.kind == values.dtype.kind
        np.testing.assert_array_equal(found[name], values)


class TestKept:
    def test_in_a_file(self, tmp_path):
        units = {**UNITS, "spikes/s (é)": np.arange(6.0), "none": np.array([""] * 6)}
        amap = make(units=units, made={"controls": ["speed"]})
        amap.save(tmp_path / "map.nc")
        again = AttributionMap.load(tmp_path / "map.nc")
        same_units(again.units, amap.units)
        assert again.controls == ("speed",)

    def test_an_old_file_has_none(self, tmp_path):
        make().save(tmp_path / "map.nc")
        with h5netcdf.File(tmp_path / "map.nc", "a") as file:
            del file.attrs["unit_columns"]
        again = AttributionMap.load(tmp_path / "map.nc")
        assert dict(again.units) == {}
        assert again.controls == ()

    def test_in_a_pickle(self):
        same_units(pickle.loads(pickle.dumps(make())).units, make().units)

    def test_in_other_maps_of_the_same_neurons(self):
        steps = Steps(np.ones((4, 6, 3), dtype=np.float32), np.arange(4))
        amap = AttributionMap.from_steps(
            steps, BLOCKS, tuple("abcdef"), ("position0", "position1", "time0")
        )
        amap = replace(amap, units=UNITS)
        for other in (amap.at(2), amap.restrict(times=[0, 1]), amap.aggregated("max")):
            same_units(other.units, amap.units)

    def test_a_table_of_other_neurons_is_refused(self):
        with pytest.raises(InputError, match=r"units\['area'\] must hold one .* each of 6 neurons"):
            make(units={"area": ["a"]})


class TestTables:
    def test_pandas_has_the_units_first(self):
        frame = make().to_pandas()
        assert [pair[1] for pair in frame.columns[: len(UNITS)]] == list(UNITS)
        assert frame["unit", "area"].tolist() == UNITS["area"].tolist()
        assert frame["unit", "good"].dtype == bool
        assert frame["score", "position"].tolist() == SCORES.tolist()

    def test_xarray_has_them_as_coordinates(self):
        dataset = make().to_xarray()
        assert dataset.coords["area"].dims == ("neuron",)
        assert (
            dataset["score"].sel(block="position").where(dataset.area == "CA1", drop=True).size == 2
        )
        assert dataset.coords["unit_score"].to_numpy().tolist() == list(range(6))

    def test_the_flat_table_has_one_word_per_column(self):
        frame = make().to_pandas(flat=True)
        assert {"score_position", "score_time", "p_value_position", "connected_position"} <= set(
            frame.columns
        )
        assert all(name.isidentifier() for name in frame.columns)
        assert frame["connected_position"].tolist() == [True] * 2 + [False] * 4
        assert frame.index.tolist() == list(range(6))
        assert make(names="abcdef").to_pandas(flat=True).index.tolist() == list("abcdef")

    def test_it_is_metadata_of_a_group_of_spikes(self):
        group = nap.TsGroup({i: nap.Ts(np.arange(5.0)) for i in range(6)})
        rate = np.array(group.rates)
        opinion = SecondOpinion(rate=10 * rate, encoding=SCORES / 10, rate_unit="per sample")
        frame = make(opinions={"position": opinion}).to_pandas(flat=True)
        group.set_info(frame)
        np.testing.assert_array_equal(group.get_info("encoding_position"), SCORES / 10)
        np.testing.assert_array_equal(group.rates, rate)
        np.testing.assert_array_equal(group.get_info("score_position"), SCORES)
        assert len(group[np.asarray(group.get_info("connected_position"), dtype=bool)]) == 2
        assert isinstance(frame, pd.DataFrame)
