"""Maps of several sessions and animals: groups, differences, followed neurons, files."""

import json
import pickle
import re
import warnings

import numpy as np
import pytest
from scipy.stats import ttest_1samp, ttest_rel

import xcebra
from xcebra import AttributionMap, PooledMaps
from xcebra.attribution.groups import wilson_interval
from xcebra.caveats import PoolingWarning
from xcebra.common.errors import InputError
from xcebra.statistics.significance import Connections

BLOCKS = {"heading": slice(0, 1), "time": slice(1, 2)}
ANIMALS = {"a1": "ann", "a2": "ann", "b1": "bob", "c1": "cat"}


def make(areas, connected, scores=None, units=None, blocks=BLOCKS, controls=None, made=None):
    """A map whose neurons are called connected as said; only heading was tested."""
    n = len(areas)
    scores = np.asarray(connected if scores is None else scores, float)
    p_values = np.where(connected, 1e-6, 0.9)
    share = np.where(connected, 0.2, 0.0)
    return AttributionMap(
        np.stack([scores, scores[::-1]], axis=1)[:, : len(blocks)],
        {name: (scores, scores[::-1])[i] for i, name in enumerate(blocks)},
        blocks,
        tuple(f"n{i}" for i in range(n)),
        tuple(f"{name}0" for name in blocks),
        connections={"heading": Connections(share, share - 0.05, share + 0.1, p_values,
                                            controls=controls)},
        units={"area": np.array(areas), **(units or {})},
        made=made or {},
    )  # fmt: skip


def session(seed, n_adn=6, n_ca1=8, likely=(0.8, 0.2), **changes):
    rng = np.random.default_rng(seed)
    areas = ["adn"] * n_adn + ["ca1"] * n_ca1
    connected = rng.random(len(areas)) < np.repeat(likely, [n_adn, n_ca1])
    return make(areas, connected, connected + 0.1 * rng.normal(size=len(areas)), **changes)


@pytest.fixture
def maps():
    return {name: session(seed) for seed, name in enumerate(ANIMALS)}


@pytest.fixture
def pooled(maps):
    return xcebra.pool(maps, ANIMALS, {"a1": 1, "a2": 2, "b1": 1, "c1": 5})


class TestMapping:
    def test_it_is_a_read_only_mapping_of_sessions(self, maps, pooled):
        assert list(pooled) == list(maps)
        assert len(pooled) == 4
        assert pooled["b1"] is maps["b1"]
        assert dict(pooled) == maps
        maps.clear()
        assert len(pooled) == 4
        with pytest.raises(TypeError):
            pooled.maps["d1"] = None
        with pytest.raises(AttributeError):
            pooled.maps = {}
        with pytest.raises(KeyError, match=r"no session 'd1'; there are \['a1', 'a2'"):
            pooled["d1"]

    def test_blocks_of_any_session(self, maps):
        maps["b1"] = session(2, blocks={"heading": slice(0, 1), "speed": slice(1, 2)})
        assert xcebra.pool(maps).blocks == ("heading", "time", "speed")

    def test_words(self, pooled):
        assert repr(pooled) == (
            "PooledMaps(4 sessions of 3 animals, 56 neurons, blocks ['heading', 'time'])"
        )
        assert "  a2: animal ann; day 2; 14 neurons; blocks heading, time" in str(pooled)

    def test_table(self, pooled):
        frame = pooled.to_pandas()
        assert len(frame) == 4 * 14 * 2
        assert list(frame.columns) == [
            *("session", "animal", "day", "neuron", "block", "score", "connected"),
            *("share", "share_low", "share_high", "p_value", "area"),
        ]
        heading = frame[frame.block == "heading"]
        assert heading.connected.sum() == sum(
            m.significant("heading").sum() for m in pooled.values()
        )
        assert frame[frame.block == "time"].connected.isna().all()
        assert set(frame[frame.session == "c1"].animal) == {"cat"}
        plain = xcebra.pool(dict(pooled)).to_pandas()
        assert not {"animal", "day"} & set(plain.columns)

    def test_a_unit_column_with_a_taken_name(self, maps):
        maps = {name: session(0, units={"score": np.arange(14)}) for name in maps}
        frame = xcebra.pool(maps).to_pandas()
        assert frame.unit_score[:14].tolist() == list(range(14))


class TestBadInput:
    @pytest.mark.parametrize(
        ("arguments", "message"),
        [
            (({},), "maps is empty"),
            (([1],), "maps must be a mapping .* got list"),
            (({"a": 1},), r"maps\['a'\] must be an AttributionMap, got int"),
            (({1: session(0)},), "maps has the key 1; name sessions by text"),
            (({"a": session(0)}, {"b": "x"}), r"animals names \['b'\].*no entry for \['a'\]"),
            (({"a": session(0)}, ["x"]), "animals must be a mapping .* got list"),
            (({"a": session(0)}, {"a": None}), r"animals\['a'\] must be the name .* got None"),
            (({"a": session(0)}, {"a": ""}), r"animals\['a'\] must be the name of an animal"),
            (({"a": session(0)}, None, {"a": np.nan}), r"days\['a'\] must be a number or text"),
            (({"a": session(0)}, None, {}), r"days has no entry for \['a'\]; give all sessions"),
        ],
    )
    def test_is_named(self, arguments, message):
        with pytest.raises(InputError, match=message):
            xcebra.pool(*arguments)

    def test_dates_are_written_as_text(self):
        import datetime

        with pytest.raises(InputError, match=r"write it as text, '2024-05-01'"):
            xcebra.pool({"a": session(0)}, None, {"a": datetime.date(2024, 5, 1)})

    def test_maps_of_different_methods_have_different_units(self):
        maps = {"a": session(0, made={"method": "x"}), "b": session(1, made={"method": "y"})}
        with pytest.raises(InputError, match="method is 'x' for session 'a' and 'y' for 'b'"):
            xcebra.pool(maps)

    def test_a_session_without_the_column(self, maps):
        maps["b1"] = make(["adn"] * 3, [True] * 3, units={})
        maps["b2"] = AttributionMap(
            np.ones((1, 1)), {"heading": np.ones(1)}, {"heading": slice(0, 1)}, ("n",), ("h",)
        )
        with pytest.raises(InputError, match="session 'b2': group_by='area' is no column"):
            xcebra.pool(maps).by("area")

    @pytest.mark.parametrize("name", ["alpha", "level"])
    def test_levels(self, pooled, name):
        for method in (pooled.by, pooled.followed):
            with pytest.raises(InputError, match=f"{name} must lie between 0 and 1, got 1"):
                method("area", **{name: 1})


def animal_shares(pooled, area):
    frame = pooled.to_pandas()
    frame = frame[(frame.block == "heading") & (frame.area == area)]
    return frame.groupby("animal").connected.mean().to_numpy(float)


class TestGroups:
    def test_every_animal_counts_the_same(self, pooled):
        groups = pooled.by("area")
        adn, ca1 = groups.groups["heading"]
        assert (adn.group, ca1.group) == ("adn", "ca1")
        assert (adn.n_neurons, adn.n_sessions, adn.n_animals, adn.n_tested) == (24, 4, 3, 24)
        for row in (adn, ca1):
            assert row.connected.value == pytest.approx(animal_shares(pooled, row.group).mean())
            assert row.connected.over == "animals"
            assert row.connected.low < row.connected.value < row.connected.high
        frame = pooled.to_pandas()
        frame = frame[(frame.block == "heading") & (frame.area == "adn")]
        scores = frame.groupby("animal").score.mean()
        assert adn.score.value == pytest.approx(scores.mean())
        assert adn.variance.value == pytest.approx(frame.groupby("animal").share.mean().mean())

    def test_a_difference_is_paired_within_animals(self, pooled):
        (pair,) = pooled.by("area").comparisons["heading"]
        assert (pair.first, pair.second) == ("adn", "ca1")
        shares = animal_shares(pooled, "adn"), animal_shares(pooled, "ca1")
        assert pair.connected.value == pytest.approx((shares[0] - shares[1]).mean())
        # The p-value is that of the t-test or of independent neurons, whichever is larger.
        assert pair.connected.p_value >= ttest_rel(*shares).pvalue - 1e-12
        assert pair.connected.q_value == pair.connected.p_value
        assert pair.connected.differs == (pair.connected.q_value <= 0.05)

    def test_several_columns(self, maps):
        layers = np.tile(["deep", "upper"], 7)
        maps = {name: session(k, units={"layer": layers}) for k, name in enumerate(maps)}
        groups = xcebra.pool(maps, ANIMALS).by(["area", "layer"])
        assert groups.column == "area, layer"
        names = {row.group for row in groups.groups["heading"]}
        assert names == {"adn, deep", "adn, upper", "ca1, deep", "ca1, upper"}
        assert len(groups.comparisons["heading"]) == 6

    def test_without_noise_it_is_the_interval_of_student(self):
        means = {"a": 1.0, "b": 2.0, "c": 4.0}
        maps = {
            name: make(["adn"] * 4, [True] * 4, np.full(4, mean)) for name, mean in means.items()
        }
        row = xcebra.pool(maps, {name: name for name in maps}).by("area").groups["heading"][0]
        expected = ttest_1samp(list(means.values()), 0).confidence_interval()
        assert (row.score.low, row.score.high) == pytest.approx((expected.low, expected.high))

    def test_the_order_and_the_names_of_sessions_do_not_matter(self, maps, pooled):
        renamed = {f"x{name}": maps[name] for name in reversed(maps)}
        animals = {f"x{name}": ANIMALS[name].upper() for name in maps}
        ours, theirs = pooled.by("area"), xcebra.pool(renamed, animals).by("area")
        for block in pooled.blocks:
            for row, other in zip(ours.groups[block], theirs.groups[block], strict=True):
                assert row.group == other.group
                assert row.score.low == pytest.approx(other.score.low)
                if row.connected is not None:
                    assert row.connected.high == pytest.approx(other.connected.high)
            for pair, other in zip(ours.comparisons[block], theirs.comparisons[block], strict=True):
                assert pair.score.p_value == pytest.approx(other.score.p_value)

    def test_false_discovery_rates_over_all_pairs(self):
        rng = np.random.default_rng(0)
        areas = np.repeat(["a", "b", "c", ""], 10)
        maps = {
            str(k): make(areas, rng.random(40) < np.repeat([0.9, 0.5, 0.1, 0.5], 10))
            for k in range(6)
        }
        groups = xcebra.pool(maps, {name: name for name in maps}).by("area")
        assert [row.group for row in groups.groups["heading"]] == ["a", "b", "c", "missing"]
        pairs = groups.comparisons["heading"]
        assert [(pair.first, pair.second) for pair in pairs] == [("a", "b"), ("a", "c"), ("b", "c")]
        p_values = np.array([pair.connected.p_value for pair in pairs])
        q_values = [pair.connected.q_value for pair in pairs]
        order = np.argsort(p_values)
        expected = np.minimum.accumulate((p_values[order] * 3 / np.arange(1, 4))[::-1])[::-1]
        np.testing.assert_allclose(np.array(q_values)[order], expected)

    def test_blocks_and_tests_that_some_sessions_lack(self, maps):
        maps["b1"] = session(2, blocks={"heading": slice(0, 1), "speed": slice(1, 2)})
        with pytest.warns(
            PoolingWarning, match="speed: there are too few animals with 'ca1', 'adn'"
        ):
            groups = xcebra.pool(maps, ANIMALS).by("area")
        assert groups.groups["time"][0].n_sessions == 3
        assert groups.groups["time"][0].connected is None
        assert groups.groups["time"][0].n_connected is None
        (speed, _) = groups.groups["speed"]
        assert (speed.n_sessions, speed.n_animals, speed.score.over) == (1, 1, "neurons")
        assert groups.comparisons["time"][0].connected is None
        assert groups.comparisons["time"][0].score.over == "animals"

    def test_an_area_of_one_animal_alone(self, maps):
        maps = {name: session(seed, n_adn=6 if name[0] == "a" else 0) for seed, name in
                enumerate(maps)}  # fmt: skip
        with pytest.warns(PoolingWarning, match="too few animals with 'adn' for intervals over"):
            groups = xcebra.pool(maps, ANIMALS).by("area")
        adn, ca1 = groups.groups["heading"]
        assert (adn.connected.over, ca1.connected.over) == ("sessions", "animals")
        assert groups.comparisons["heading"][0].connected.over == "sessions"

    def test_a_session_whose_test_does_not_hold_is_left_out(self, maps):
        called = np.full(10, 1e-6)
        maps["a2"] = session(1, controls=called)
        assert not maps["a2"].significant("heading").any()
        pooled = xcebra.pool(maps, ANIMALS)
        with pytest.warns(PoolingWarning, match="heading: the shares .* leave out 'a2', where too"):
            adn = pooled.by("area").groups["heading"][0]
        assert (adn.n_neurons, adn.n_tested) == (24, 18)
        frame = pooled.to_pandas()
        assert frame[(frame.session == "a2")].connected.isna().all()


class TestFewAnimals:
    def test_one_animal_generalises_to_its_sessions(self, maps):
        with pytest.warns(PoolingWarning, match="of one animal, 'ann': .* of this animal only"):
            groups = xcebra.pool(maps, dict.fromkeys(maps, "ann")).by("area")
        assert groups.groups["heading"][0].connected.over == "sessions"
        assert "say nothing about other animals" in str(groups)
        assert "mean over sessions" in str(groups)

    def test_one_session_has_the_interval_of_wilson(self, maps):
        alone = {"a1": maps["a1"]}
        with pytest.warns(PoolingWarning, match="one session: .* as if neurons were independent"):
            groups = xcebra.pool(alone).by("area")
        for row, single in zip(
            groups.groups["heading"], alone["a1"].by("area").scores["heading"], strict=True
        ):
            assert row.connected.over == "neurons"
            assert (row.connected.low, row.connected.high) == pytest.approx(
                (single.low, single.high), abs=1e-6
            )

    def test_without_animals_sessions_are_independent(self, maps):
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            groups = xcebra.pool(maps).by("area")
        assert groups.groups["heading"][0].connected.over == "sessions"
        assert groups.groups["heading"][0].n_animals is None

    @pytest.mark.parametrize("connected", [True, False])
    def test_animals_without_variation_have_an_interval(self, connected):
        maps = {name: make(["adn"] * 5, [connected] * 5) for name in ANIMALS}
        row = xcebra.pool(maps, {name: name for name in maps}).by("area").groups["heading"][0]
        low, high = wilson_interval(20 * connected, 20)
        assert (row.connected.low, row.connected.high) == pytest.approx((low, high))
        assert row.connected.high - row.connected.low > 0.15


class TestWords:
    def test_groups_and_differences(self):
        maps = {
            name: make(["adn"] * 10 + ["ca1"] * 10, [True] * 9 + [False] * 10 + [True] * (k % 2)
                       + [False] * (1 - k % 2))
            for k, name in enumerate(ANIMALS)
        }  # fmt: skip
        text = str(xcebra.pool(maps, ANIMALS).by("area"))
        assert "heading, by area (intervals of 95 %)" in text
        assert re_in(r"adn: 36 of 40 neurons in 4 sessions of 3 animals are connected, mean over "
                     r"animals 90 % \(\d+ to \d+\)", text)  # fmt: skip
        assert re_in(r"adn more than ca1: difference 8\d points \(\d+ to \d+\), q = 0\.0", text)
        assert re_in(
            r"adn and ca1, no difference shown: .*",
            str(xcebra.pool(maps, ANIMALS).by("area", alpha=1e-9)),
        )

    def test_blocks_that_were_not_tested(self, pooled):
        assert re_in(r"ca1: mean score [\d.]+ \(.* to .*\) of 32 neurons in 4 sessions of 3",
                     str(pooled.by("area")))  # fmt: skip

    def test_tables(self, pooled):
        groups = pooled.by("area")
        frame = groups.to_pandas()
        row = groups.groups["heading"][0]
        assert frame.loc[("heading", "adn"), "share_connected"] == row.connected.value
        assert frame.loc[("heading", "adn"), "share_low"] == row.connected.low
        assert frame.loc[("heading", "adn"), "animals"] == 3
        assert np.isnan(frame.loc[("time", "adn"), "share_connected"])
        differences = groups.differences_to_pandas()
        assert differences.measure.tolist() == ["connected", "score", "variance", "score"]
        assert differences.difference[0] == groups.comparisons["heading"][0].connected.value


def re_in(pattern, text):
    assert re.search(pattern, text), text
    return True


class TestFiles:
    def test_round_trip(self, pooled, tmp_path):
        pooled.save(tmp_path / "pooled")
        again = PooledMaps.load(tmp_path / "pooled")
        assert list(again) == list(pooled)
        assert dict(again.animals) == ANIMALS
        assert dict(again.days) == dict(pooled.days)
        assert str(again.by("area")) == str(pooled.by("area"))
        assert again.to_pandas().equals(pooled.to_pandas())
        names = sorted(path.name for path in (tmp_path / "pooled").iterdir())
        assert names == ["a1.nc", "a2.nc", "b1.nc", "c1.nc", "pooled.json"]

    def test_names_that_no_file_can_have(self, tmp_path):
        names = [
            "a/b:c",
            "a b c",
            "../../etc",
            "Ünïcode",
            "...",
            "A B C",
            "pooled",
            "NUL",
            "x" * 300,
        ]
        maps = {name: session(seed) for seed, name in enumerate(names)}
        xcebra.pool(maps).save(tmp_path / "p")
        again = PooledMaps.load(tmp_path / "p")
        assert list(again) == names
        for name in names:
            np.testing.assert_array_equal(again[name].values, maps[name].values)
        assert [path.name for path in tmp_path.iterdir()] == ["p"]
        files = [path.name for path in (tmp_path / "p").iterdir()]
        assert len({name.lower() for name in files}) == len(names) + 1

    def test_a_second_time_replaces_the_first(self, maps, pooled, tmp_path):
        pooled.save(tmp_path / "p")
        del maps["a1"]
        fewer = xcebra.pool(maps)
        fewer.save(tmp_path / "p")
        assert list(PooledMaps.load(tmp_path / "p")) == ["a2", "b1", "c1"]
        assert len(list((tmp_path / "p").iterdir())) == 4
        PooledMaps.load(tmp_path / "p").save(tmp_path / "p")
        assert len(PooledMaps.load(tmp_path / "p")) == 3

    def test_a_failure_leaves_what_was_there(self, pooled, maps, tmp_path, monkeypatch):
        pooled.save(tmp_path / "p")
        before = pooled.to_pandas()
        other = xcebra.pool({name: session(9 + seed) for seed, name in enumerate(maps)})
        saved = AttributionMap.save
        calls = []

        def fails(amap, path):
            calls.append(path)
            if len(calls) == 3:
                raise OSError("disk full")
            saved(amap, path)

        monkeypatch.setattr(AttributionMap, "save", fails)
        with pytest.raises(OSError, match="disk full"):
            other.save(tmp_path / "p")
        assert PooledMaps.load(tmp_path / "p").to_pandas().equals(before)
        assert len(list((tmp_path / "p").iterdir())) == 5

    def test_folders_that_hold_something_else(self, pooled, tmp_path):
        with pytest.raises(FileNotFoundError, match="holds no pooled maps"):
            PooledMaps.load(tmp_path)
        (tmp_path / "file").write_text("")
        with pytest.raises(InputError, match="is a file; give a folder"):
            pooled.save(tmp_path / "file")
        pooled.save(tmp_path / "p")
        index = tmp_path / "p" / "pooled.json"
        described = json.loads(index.read_text())
        index.write_text(json.dumps({**described, "format_version": 2}))
        with pytest.raises(InputError, match=r"format version 2, .* upgrade xcebra"):
            PooledMaps.load(tmp_path / "p")
        index.write_text("{")
        with pytest.raises(InputError, match="is damaged or not an index"):
            PooledMaps.load(tmp_path / "p")

    def test_pickle(self, pooled):
        again = pickle.loads(pickle.dumps(pooled))
        assert again.to_pandas().equals(pooled.to_pandas())
        assert dict(again.days) == dict(pooled.days)


def registered(ids, scores, shares=None, **changes):
    """A session in which a column says which neuron is which."""
    n = len(ids)
    amap = make(["adn"] * n, [True] * n, scores, units={"cell": np.array(ids)}, **changes)
    if shares is not None:
        shares = np.asarray(shares, float)
        tested = Connections(shares, shares - 0.03, shares + 0.04, np.full(n, 1e-6))
        object.__setattr__(amap, "connections", {"heading": tested})
    return amap


FOLLOWED = {
    "a_late": registered(["c1", "c2", ""], [3.0, 5.0, 9.0], [0.5, 0.1, 0.9]),
    "a_first": registered(["c2", "c3", "c1"], [4.0, 1.0, 1.0], [0.2, 0.3, 0.1]),
    "a_mid": registered(["c1"], [2.0], [0.3]),
    "b_first": registered(["c1", "c9"], [1.0, 1.0], [0.1, 0.1]),
    "b_late": registered(["c1", "c8"], [1.5, 1.0], [0.2, 0.1]),
}
OWNERS = {name: name[0] for name in FOLLOWED}
DAYS = {"a_late": 10, "a_first": 2, "a_mid": 3, "b_first": 1, "b_late": 4}


class TestFollowed:
    def followed(self, days=None, **changes):
        return xcebra.pool(FOLLOWED, OWNERS, days or DAYS).followed("cell", **changes)

    def test_sessions_are_in_the_order_of_days(self):
        neurons = self.followed().neurons["heading"]
        assert [(n.animal, n.name) for n in neurons] == [("a", "c1"), ("a", "c2"), ("b", "c1")]
        first = neurons[0]
        assert first.sessions == ("a_first", "a_mid", "a_late")
        assert first.days == (2, 3, 10)
        assert first.neuron_names == ("n2", "n0", "n0")
        assert first.scores.tolist() == [1.0, 2.0, 3.0]
        assert first.shares.tolist() == [0.1, 0.3, 0.5]
        assert first.score_change == 2.0

    @pytest.mark.parametrize(
        "days",
        [
            {"a_late": "day10", "a_first": "day2", "a_mid": "day3", "b_first": "1", "b_late": "2"},
            {"a_late": "2024-05-10", "a_first": "2024-05-02", "a_mid": "2024-05-03",
             "b_first": "2023-01-01", "b_late": "2024-01-01"},
        ],
    )  # fmt: skip
    def test_days_as_text(self, days):
        first = self.followed(days).neurons["heading"][0]
        assert first.sessions == ("a_first", "a_mid", "a_late")

    def test_half_widths_are_combined_in_quadrature(self):
        change = self.followed().neurons["heading"][0].share_change
        assert change.value == pytest.approx(0.4)
        assert change.low == pytest.approx(0.4 - np.hypot(0.03, 0.04))
        assert change.high == pytest.approx(0.4 + np.hypot(0.04, 0.03))

    def test_the_mean_change_is_over_animals(self):
        change = self.followed().changes["heading"]
        assert (change.n_neurons, change.n_animals) == (3, 2)
        assert change.score.over == "animals"
        # Means of the animals are (2 + 1) / 2 and 0.5.
        expected = ttest_1samp([1.5, 0.5], 0).confidence_interval()
        assert change.score.value == 1.0
        assert change.score.low == pytest.approx(expected.low)
        assert change.share.value == pytest.approx(((0.4 - 0.1) / 2 + 0.1) / 2)

    def test_one_animal_says_so(self):
        maps = {name: amap for name, amap in FOLLOWED.items() if name[0] == "a"}
        days = {name: DAYS[name] for name in maps}
        pooled = xcebra.pool(maps, dict.fromkeys(maps, "a"), days)
        with pytest.warns(PoolingWarning, match="Neurons of one animal were followed"):
            followed = pooled.followed("cell")
        assert followed.changes["heading"].score.over == "neurons"
        assert "says nothing about other animals" in str(followed)

    def test_tables_and_words(self):
        followed = self.followed()
        frame = followed.to_pandas()
        assert len(frame[frame.block == "heading"]) == 3 + 2 + 2
        assert frame[frame.block == "heading"].connected.all()
        assert frame[frame.block == "time"].share.isna().all()
        changes = followed.changes_to_pandas()
        row = changes[(changes.block == "heading") & (changes.animal == "b")].iloc[0]
        assert (row.first_session, row.last_session) == ("b_first", "b_late")
        assert row.score_change == 0.5
        assert str(followed).startswith(
            "heading: 3 neurons of 2 animals followed, mean change of the score +1 ("
        )

    def test_numbers_identify_neurons_too(self):
        maps = {
            "x": registered([1.0, np.nan, 3.0], [1.0, 2.0, 3.0]),
            "y": registered([3.0, 1.0], [1.0, 2.0]),
        }
        pooled = xcebra.pool(maps, dict.fromkeys(maps, "a"), {"x": 1, "y": 2})
        with pytest.warns(PoolingWarning):
            names = [neuron.name for neuron in pooled.followed("cell").neurons["heading"]]
        assert names == ["1", "3"]

    def test_what_cannot_be_followed(self):
        pool = xcebra.pool
        maps, animals, days = FOLLOWED, OWNERS, DAYS
        with pytest.raises(InputError, match="followed needs the animal of each session"):
            pool(maps, None, days).followed("cell")
        with pytest.raises(InputError, match="followed needs the day of each session"):
            pool(maps, animals).followed("cell")
        with pytest.raises(InputError, match=r"cannot be sorted: 'x' is text and 2 is a number"):
            pool(maps, animals, {**days, "a_late": "x"}).followed("cell")
        with pytest.raises(InputError, match="'a_first' and 'a_mid' of animal 'a', so that they"):
            pool(maps, animals, {**days, "a_mid": 2}).followed("cell")
        with pytest.raises(InputError, match=r"column='id' is no column .* \['area', 'cell'\]"):
            pool(maps, animals, days).followed("id")
        twice = {**maps, "a_mid": registered(["c1", "c1"], [1.0, 2.0])}
        with pytest.raises(InputError, match="has 'c1' for neurons 'n0' and 'n1' of session 'a_mi"):
            pool(twice, animals, days).followed("cell")
        with pytest.raises(InputError, match="registers no neuron in two or more sessions"):
            pool(maps, {name: name for name in maps}, days).followed("cell")
