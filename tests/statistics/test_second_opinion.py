"""Second opinions: known scores of known cells, agreement with a map, and their place on a page."""

import html
import pickle
import re
from dataclasses import replace

import numpy as np
import pytest
from scipy.special import i0, i1
from scipy.stats import spearmanr

import xcebra
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.steps import Steps
from xcebra.caveats import DisagreementWarning
from xcebra.data.labels import LabelSpec, make_label
from xcebra.data.recording import Recording
from xcebra.report import write_report
from xcebra.report.numbers import map_numbers
from xcebra.report.opinions import second_opinion as section
from xcebra.statistics import second_opinion
from xcebra.statistics.second_opinion import SecondOpinion, opposed, second_opinions
from xcebra.statistics.significance import Connections


def opinions_of(neural, values, kind="continuous", *, times=None, **others):
    recording = Recording(neural, {"a": values}, **others)
    label = make_label("a", recording.labels["a"], LabelSpec(kind))
    times = np.arange(recording.n_times) if times is None else times
    return second_opinions(recording, {"a": label}, times)["a"]


def opinion(encoding, **others):
    encoding = np.asarray(encoding, dtype=float)
    return SecondOpinion(np.arange(len(encoding)) + 1.0, encoding=encoding, **others)


def make(scores, encoding, *, p_values=None, names=None, **others):
    """A map of the blocks "a", with a second opinion, and "time"."""
    scores = np.asarray(scores, dtype=float)
    n = len(scores)
    connections = {}
    if p_values is not None:
        connections["a"] = Connections(scores, scores, scores, np.asarray(p_values, dtype=float))
    return AttributionMap(
        np.column_stack([scores, scores[::-1]]),
        {"a": scores, "time": scores[::-1]},
        {"a": slice(0, 1), "time": slice(1, 2)},
        names or tuple(f"n{i}" for i in range(n)),
        ("a0", "time0"),
        connections=connections,
        opinions={"a": opinion(encoding, **others)},
    )


USUAL = {"usual": [0.1, 0.2, 0.3], "usual_name": "mean_vector_length", "rate_unit": "per second"}


# Known cells


def test_vector_length_of_a_head_direction_cell():
    """The ratio of Bessel functions, for a tuning of exp(k cos)."""
    angle = np.linspace(0, 40 * np.pi, 24_000)
    x = np.column_stack([np.exp(2 * np.cos(angle - 1)), np.ones_like(angle)])
    found = opinions_of(x, angle % (2 * np.pi), "circular")
    assert found.usual_name == "mean_vector_length"
    assert found.usual == pytest.approx([i1(2) / i0(2), 0], abs=2e-3)
    assert found.encoding[0] > 0.99
    assert found.encoding[1] == 0


@pytest.mark.parametrize("n_columns", [1, 2])
def test_a_spike_in_one_half_of_space_tells_one_bit(n_columns):
    # Two places, further apart than the smoothing reaches, visited in turn.
    where = np.random.default_rng(0).uniform(0, 0.2, size=(20_000, n_columns))
    fires = (np.arange(len(where)) // 100 % 2).astype(float)
    where += 0.8 * fires[:, None]
    found = opinions_of(np.column_stack([fires, np.ones(len(where))]), where)
    assert found.usual_name == ("information" if n_columns == 1 else "spatial_information")
    assert found.usual == pytest.approx([1, 0], abs=1e-9)
    assert found.encoding[0] > 0.95


def test_rates_are_per_second_where_times_are_known():
    counts = np.tile([[1.0, 0.0], [3.0, 1.0]], (500, 1))
    values = np.arange(1000.0)
    found = opinions_of(counts, values)
    assert (found.rate_unit, found.rate.tolist()) == ("per sample", [2.0, 0.5])
    # A gap between two samples does not change the length of the others.
    time = np.arange(1000) * 0.05 + 100 * (np.arange(1000) > 500)
    found = opinions_of(counts, values, time=time)
    assert found.rate_unit == "per second"
    assert found.rate == pytest.approx([40, 10])
    some = opinions_of(counts, values, time=time, times=np.arange(0, 1000, 2))
    assert some.rate == pytest.approx([20, 0])


def test_negative_activity_has_neither_information_nor_a_rate_per_second():
    rng = np.random.default_rng(0)
    values = rng.standard_normal((1000, 2))
    found = opinions_of(values @ rng.standard_normal((2, 3)), values, time=np.arange(1000) / 50)
    assert found.usual is None
    assert found.usual_name is None
    assert found.rate_unit == "per sample"
    assert (found.encoding > 0.9).all()


@pytest.mark.parametrize(
    ("n", "kind", "values"),
    [
        (1, "continuous", np.zeros(1)),
        (9, "continuous", np.arange(9.0)),
        (400, "continuous", np.full(400, np.nan)),
        (400, "continuous", np.ones(400)),
        (400, "continuous", np.ones((400, 2))),
        (400, "circular", np.linspace(0, 1, 400)),
        (400, "circular", np.r_[0.5, np.full(399, np.nan)]),
        (400, "discrete", np.arange(400) % 3),
        (400, "discrete", np.zeros(400, dtype=int)),
        (400, "continuous", np.random.default_rng(0).standard_normal((400, 5))),
    ],
)
@pytest.mark.parametrize("activity", ["counts", "constant", "silent"])
def test_odd_data_raises_nothing(n, kind, values, activity):
    rng = np.random.default_rng(1)
    neural = rng.poisson(2.0, size=(n, 4)) * (activity == "counts") + 1.0 * (activity == "constant")
    found = opinions_of(neural, values, kind)
    for each in (found.rate, found.encoding, found.usual):
        assert each is None or (each.shape == (4,) and np.isfinite(each).all())
    assert (found.usual is None) == (found.usual_name is None)
    if n < 10 or np.isnan(values.astype(float)).sum() > n - 10:
        assert found.encoding is None
    scores = np.arange(4.0)
    assert second_opinion.agreement(scores, found) is None or activity == "counts"
    assert opposed({"a": scores}, {"a": found}) == []


def test_neurons_are_scored_in_parts(monkeypatch):
    rng = np.random.default_rng(0)
    position = rng.uniform(size=(600, 2))
    spikes = rng.poisson(1 + 3 * position[:, :1], size=(600, 7))
    whole = opinions_of(spikes, position)
    monkeypatch.setattr(second_opinion, "_VALUES_AT_ONCE", 3 * 600)
    parts = opinions_of(spikes, position)
    assert parts.usual_name == whole.usual_name == "spatial_information"
    for name in ("rate", "usual", "encoding"):
        np.testing.assert_allclose(getattr(parts, name), getattr(whole, name), rtol=1e-9)


def test_no_labels_or_no_samples_give_no_opinions():
    recording = Recording(np.zeros((10, 2)), {"a": np.arange(10.0)})
    label = make_label("a", recording.labels["a"], LabelSpec("continuous"))
    assert second_opinions(recording, {}, np.arange(10)) == {}
    assert second_opinions(recording, {"a": label}, np.arange(0)) == {}


def test_an_opinion_does_not_change_once_made():
    rate = np.ones(3)
    found = SecondOpinion(rate)
    rate[0] = 5
    assert found.rate.tolist() == [1, 1, 1]
    with pytest.raises(ValueError, match="read-only"):
        found.rate[0] = 2


# Agreement with a map


@pytest.mark.parametrize("sign", [1, -1])
def test_agreement_is_one_in_the_same_order_and_minus_one_in_the_opposite(sign):
    encoding = np.array([0.1, 0.5, 0.2, 0.9])
    assert make(sign * encoding**3, encoding).agreement("a") == pytest.approx(sign)


def test_agreement_is_spearmans_and_takes_a_negative_r_squared_as_none():
    rng = np.random.default_rng(0)
    scores, encoding = rng.uniform(size=(2, 30))
    encoding -= 0.4
    expected = spearmanr(scores, np.maximum(encoding, 0)).statistic
    assert make(scores, encoding).agreement("a") == pytest.approx(expected)


def test_agreement_that_cannot_be_computed_is_none():
    amap = make([1, 2, 3], [0.1, 0.2, 0.3])
    assert amap.agreement("time") is None
    assert make([1, 2], [0.1, 0.2]).agreement("a") is None
    assert make([1, 1, 1], [0.1, 0.2, 0.3]).agreement("a") is None
    assert make([1, 2, 3], [-0.1, -0.2, 0.0]).agreement("a") is None
    without = AttributionMap(amap.values, amap.scores, amap.blocks, amap.neuron_names, ("x", "y"))
    assert without.agreement("a") is None
    assert without.disagreements("a") == []
    for method in (amap.agreement, amap.disagreements):
        with pytest.raises(ValueError, match="block must be one of"):
            method("b")


# Neurons 0 and 1 are at the top of the map, 8 and 9 at the top of the encoding model.
SCORES = np.arange(10.0)[::-1]
ENCODING = np.array([0.0, 0.3, -0.1, 0.05, 0.06, 0.07, 0.1, 0.2, 0.5, 0.4])


def test_without_a_test_disagreements_are_by_rank():
    found = make(SCORES, ENCODING).disagreements("a")
    # Neuron 2 is in the top quarter too, and neuron 1 of the encoding model's.
    assert {each.neuron: each.higher for each in found} == {
        "n0": "map",
        "n2": "map",
        "n8": "encoding",
        "n9": "encoding",
    }
    first = {each.neuron: each for each in found}["n9"]
    assert (first.score, first.encoding) == (0.0, 0.4)
    assert str(first) == (
        "neuron n9: a alone explains 40% of its variance on held-out time, but it has a score in "
        "the lower half of the map. Either a factor that is correlated with a explains its "
        "activity, or the map has missed it."
    )
    assert "highest scores of the map" in str({each.neuron: each for each in found}["n0"])


def test_with_a_test_disagreements_are_with_what_it_found():
    # Connected: 0 to 4, and 8.
    p_values = np.where(np.isin(np.arange(10), [0, 1, 2, 3, 4, 8]), 1e-4, 0.9)
    amap = make(SCORES, ENCODING, p_values=p_values)
    found = {each.neuron: each for each in amap.disagreements("a")}
    assert {name: each.higher for name, each in found.items()} == {
        "n0": "map",
        "n2": "map",
        "n8": "encoding",
        "n9": "encoding",
    }
    assert "is called connected, but a alone explains none" in found["n0"].meaning
    assert "score in the lower half" in found["n8"].meaning
    assert "is not called connected" in found["n9"].meaning
    none = make(SCORES, ENCODING, p_values=np.ones(10)).disagreements("a")
    assert {each.neuron for each in none} == {"n1", "n8", "n9"}


def test_a_connected_neuron_without_encoding_is_listed_wherever_it_ranks():
    p_values = np.where(np.arange(10) == 9, 1e-4, 0.9)
    found = make(SCORES, [0.1] * 9 + [-0.01], p_values=p_values).disagreements("a")
    assert [(each.neuron, each.higher) for each in found] == [("n9", "map")]


def test_those_whose_ranks_differ_most_come_first():
    found = make(SCORES, ENCODING).disagreements("a")
    map_rank, encoding_rank = SCORES.argsort().argsort(), ENCODING.argsort().argsort()
    apart = [abs(map_rank - encoding_rank)[int(each.neuron[1:])] for each in found]
    assert apart == sorted(apart, reverse=True)


def test_maps_that_agree_have_no_disagreements():
    encoding = np.linspace(-0.1, 0.6, 20)
    p_values = np.where(encoding > 0, 1e-4, 0.9)
    assert make(encoding + 1, encoding).disagreements("a") == []
    assert make(encoding + 1, encoding, p_values=p_values).disagreements("a") == []


# The warning


def test_opposite_rankings_are_described_with_both_numbers_and_what_to_do():
    encoding = np.linspace(0, 0.5, 10)
    (warning,) = opposed({"a": -encoding}, {"a": opinion(encoding)})
    assert isinstance(warning, DisagreementWarning)
    message = str(warning)
    assert "map of 'a' and an encoding model" in message
    assert "rank correlation is -1.00" in message
    assert "of 9 neurons" in message
    assert "amap.to_pandas()" in message
    assert "basis='label'" in message


@pytest.mark.parametrize(
    ("scores", "encoding"),
    [
        (np.arange(10.0), np.linspace(0, 0.5, 10)),
        # A little below zero, as happens by chance.
        ([5, 1, 4, 2, 3, 9, 6, 8, 7, 0], np.linspace(0, 0.5, 10)),
        # Too few neurons; too few that the label explains.
        (-np.arange(7.0), np.linspace(0, 0.5, 7)),
        (-np.arange(10.0), np.r_[np.zeros(8), 0.1, 0.2]),
        (-np.arange(10.0), np.linspace(0, 0.02, 10)),
    ],
)
def test_other_rankings_are_not(scores, encoding):
    assert opposed({"a": np.asarray(scores, dtype=float)}, {"a": opinion(encoding)}) == []


# Files and tables


def test_a_map_comes_back_with_its_opinions(tmp_path):
    amap = make([1, 2, 3], [0.1, -0.2, 0.3], **USUAL)
    amap.save(tmp_path / "map.nc")
    found = AttributionMap.load(tmp_path / "map.nc").opinions
    assert list(found) == ["a"]
    for field in ("rate", "encoding", "usual"):
        assert np.array_equal(getattr(found["a"], field), getattr(amap.opinions["a"], field))
    assert (found["a"].usual_name, found["a"].rate_unit) == ("mean_vector_length", "per second")


def test_a_copied_map_keeps_its_opinions():
    copy = pickle.loads(pickle.dumps(make([1, 2, 3], [0.1, -0.2, 0.3], **USUAL)))
    assert copy.opinions["a"].encoding.tolist() == [0.1, -0.2, 0.3]
    assert copy.agreement("a") == make([1, 2, 3], [0.1, -0.2, 0.3]).agreement("a")


def test_what_an_opinion_does_not_have_comes_back_as_none(tmp_path):
    amap = make([1, 2, 3], [0.1, 0.2, 0.3])
    bare = AttributionMap(
        amap.values,
        amap.scores,
        amap.blocks,
        amap.neuron_names,
        amap.latent_names,
        opinions={"a": SecondOpinion(np.ones(3))},
    )
    bare.save(tmp_path / "map.nc")
    found = AttributionMap.load(tmp_path / "map.nc").opinions["a"]
    assert (found.encoding, found.usual, found.usual_name) == (None, None, None)
    assert found.rate.tolist() == [1, 1, 1]
    assert bare.to_pandas()["encoding"].isna().all(axis=None)


def test_a_file_without_opinions_loads(tmp_path):
    amap = make([1, 2, 3], [0.1, 0.2, 0.3])
    old = AttributionMap(
        amap.values, amap.scores, amap.blocks, amap.neuron_names, amap.latent_names
    )
    old.save(tmp_path / "map.nc")
    assert AttributionMap.load(tmp_path / "map.nc").opinions == {}


def test_datasets_and_tables_have_the_opinions_last():
    amap = make([1, 2, 3], [0.1, -0.2, 0.3], p_values=[0.1, 0.2, 0.3], **USUAL)
    dataset = amap.to_xarray()
    assert dataset["encoding"].sel(block="a").values.tolist() == [0.1, -0.2, 0.3]
    assert np.isnan(dataset["encoding"].sel(block="time")).all()
    assert dataset["rate"].dims == ("neuron",)
    table = amap.to_pandas()
    assert table.columns.tolist()[-4:] == [
        ("value", "time0"),
        ("rate", ""),
        ("encoding", "a"),
        ("mean_vector_length", "a"),
    ]
    assert table["encoding"]["a"].tolist() == [0.1, -0.2, 0.3]
    assert table[("rate", "")].tolist() == [1, 2, 3]


def test_opinions_stay_with_another_aggregate_and_not_with_a_part():
    steps = Steps(np.ones((6, 3, 1), dtype=np.float32), np.arange(6))
    amap = AttributionMap.from_steps(steps, {"a": slice(0, 1)}, ("x", "y", "z"), ("a0",))
    given = {"a": opinion([0.1, 0.2, 0.3])}
    amap = AttributionMap(
        amap.values,
        amap.scores,
        amap.blocks,
        amap.neuron_names,
        amap.latent_names,
        steps=steps,
        opinions=given,
    )
    assert amap.aggregated("max").opinions["a"] is given["a"]
    assert amap.restrict(times=[1, 2]).opinions == {}


# The page


def test_the_page_has_a_table_a_sentence_and_the_disagreements():
    amap = make(SCORES, ENCODING, p_values=np.ones(10), rate_unit="per second")
    text = section(amap)
    heads = re.findall(r'<th scope="col"[^>]*>([^<]*)</th>', text)
    assert heads == ["neuron", "score", "called connected", "rate per second", "encoding R²"]
    assert text.count("<tr>") == 11
    assert "disagree about 3 neurons" in text
    assert f"{amap.agreement('a'):.2f}" in text
    assert section(make([1, 2, 3], [0.1, 0.2, 0.3])).count("<li>") == 0


@pytest.mark.parametrize(
    ("scores", "words"),
    [
        ([1, 2, 3, 4], "encoding model agree.</strong>"),
        ([2, 4, 1, 3], "disagree.</strong>"),
        ([2, 3, 1, 4], "agree in part.</strong>"),
        ([1, 1, 1, 1], "cannot be compared"),
    ],
)
def test_agreement_is_said_in_words(scores, words):
    assert words in section(make(scores, [0.1, 0.2, 0.3, 0.4]))


def test_the_page_lists_eight_at_most_and_says_how_many_more():
    n = 60
    text = section(make(np.arange(n), np.linspace(0.5, 0, n)))
    assert text.count("<li><strong>") == 8
    assert re.search(r"and \d+ more, which the table shows", text)


def test_names_are_escaped():
    names = ("<b>", '"&', "c")
    amap = make([1, 2, 3], [0.9, 0.1, -0.1], names=names, usual=[1, 2, 3], usual_name="<i>")
    text = section(amap)
    assert "<b>" not in text
    assert "<i>" not in text
    assert "&lt;b&gt;" in text
    assert "&quot;&amp;" in text


def test_a_map_without_opinions_has_no_section():
    amap = make([1, 2, 3], [0.1, 0.2, 0.3])
    bare = AttributionMap(amap.values, amap.scores, amap.blocks, amap.neuron_names, ("x", "y"))
    assert section(bare) == ""
    assert "opinion" not in map_numbers(bare, {}, None)["blocks"][0]
    told = map_numbers(amap, {}, None)["blocks"][0]["opinion"]
    assert told == {"rate per sample": [1, 2, 3], "encoding": [0.1, 0.2, 0.3]}


# From a fit


@pytest.fixture(scope="module")
def fitted():
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2000)
    model = xcebra.XCEBRA(time_dims=2, steps=100, batch_size=256, random_state=0, progress=False)
    return rec, model.fit(rec, label="z2")


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_attribute_gives_opinions_wherever_labels_are_at_hand(fitted):
    rec, model = fitted
    whole = model.attribute(rec)
    assert list(whole.opinions) == ["z2"]
    assert whole.agreement("z2") > 0
    by_y = model.attribute(rec.neural, {"z2": rec.labels["z2"]})
    assert np.array_equal(by_y.opinions["z2"].encoding, whole.opinions["z2"].encoding)
    assert model.attribute(rec.neural).opinions == {}
    assert model.attribute(Recording(rec.neural)).opinions == {}
    assert model.attribute(rec, block="time").opinions == {}
    some = model.attribute(rec, epochs=[(0, 800)])
    assert not np.array_equal(some.opinions["z2"].rate, whole.opinions["z2"].rate)


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_attribute_leaves_out_labels_that_do_not_fit_the_model(fitted):
    rec, model = fitted
    text = Recording(rec.neural, {"z2": np.array(["left", "right"] * (rec.n_times // 2))})
    assert model.attribute(text).opinions == {}
    with pytest.raises(ValueError, match="holds text"):
        model.attribute(text, test=True)


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_the_whole_page_warns_of_the_map_that_it_shows(fitted, tmp_path):
    rec, model = fitted
    amap = model.attribute(rec)
    text = write_report(tmp_path / "page.html", model, amap, recording=rec).read_text("utf-8")
    assert '<section id="opinion"' in text
    assert "disagree: over the" not in text
    upside_down = replace(amap, scores={name: -each for name, each in amap.scores.items()})
    (warning,) = opposed(upside_down.scores, upside_down.opinions)
    upside_down, message = replace(upside_down, warnings=(warning,)), str(warning)
    page = write_report(tmp_path / "page.html", model, upside_down, recording=rec)
    assert page.read_text("utf-8").count(html.escape(message)) == 1
