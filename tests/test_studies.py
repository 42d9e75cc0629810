"""The studies of ``studies/``, small: each measures, and its answer says what was measured."""

import json
import re

import numpy as np
import pytest

from studies import (
    amount_of_data,
    beside_nemos,
    bins,
    default_map,
    dimensions,
    gate,
    inverse,
    joint_beside_cebra,
    joint_real,
    joint_sessions,
    neighbours,
    penalty,
    pooled_groups,
    quickstart_seeds,
    seeds,
    significance,
    windows,
)
from studies.study import RESULTS
from xcebra.data.recording import Recording
from xcebra.sweep import RowFile

STUDIES = {
    "penalty": penalty,
    "gate": gate,
    "significance": significance,
    "inverse": inverse,
    "windows": windows,
    "default_map": default_map,
    "seeds": seeds,
    "neighbours": neighbours,
    "amount_of_data": amount_of_data,
    "beside_nemos": beside_nemos,
    "pooled_groups": pooled_groups,
    "quickstart_seeds": quickstart_seeds,
    "joint_sessions": joint_sessions,
    "joint_real": joint_real,
    "joint_beside_cebra": joint_beside_cebra,
}


def row(item, found):
    return {"item": vars(item), "found": json.loads(json.dumps(found))}


def test_a_weight_that_is_found_is_told_beside_the_grid():
    items = [penalty.Fit(4, 300, weight, n_steps=1500, steps=40) for weight in ("auto", "0.05")]
    found = [penalty.measure(item) for item in items]
    assert found[0]["weight"] == found[0]["path"][-1] != 0.05 == found[1]["weight"]
    assert all(0.5 < score <= 1 for pair in found[0]["auroc"].values() for score in pair)
    rows = [row(item, each) for item, each in zip(items, found, strict=True)] * 2
    told = penalty.answer(rows)
    mean = found[1]["auroc"]["inverted gradient as in the paper"][0]
    assert f"{mean:.4f} ± 0.0000" in told
    assert f"Weights found: {found[0]['weight']:.3f} to {found[0]['weight']:.3f}." in told


def test_intervals_over_animals_are_counted_where_they_hold_the_truth():
    items = [
        pooled_groups.Simulations(n, "areas missing", effect, 100, number=20)
        for n, effect in ((3, "large"), (6, "few animals carry it"))
    ]
    results = [pooled_groups.measure(item) for item in items]
    assert results[0] == pooled_groups.measure(items[0])
    counts = results[0]["counts"]["0.5 0.75"]
    assert 16 <= counts["share"] <= 20
    assert 16 <= counts["difference"] <= 20
    text = pooled_groups.answer([row(i, r) for i, r in zip(items, results, strict=True)])
    held = sum(pair["share"] for pair in results[0]["counts"].values())
    assert f"| 3 | {100 * held / 120:.1f} (" in text
    assert "| few animals carry it | " in text
    assert "Single cells have 20 simulations." in text


def test_simulated_shares_have_the_mean_and_the_correlation_that_is_asked_for():
    uniform = (np.arange(20_000) + 0.5) / 20_000
    for mean in (0.05, 0.5):
        shares = pooled_groups._beta(mean, 0.2, uniform, same=True)
        assert shares.mean() == pytest.approx(mean, rel=1e-3)
        assert shares.var() / (mean * (1 - mean)) == pytest.approx(0.2, rel=1e-2)
    shares = pooled_groups._beta(0.05, 0.2, uniform, same=False)
    assert shares.std() / (0.05 * 0.95) == pytest.approx(np.sqrt(0.2 / 4) * 4, rel=1e-2)


def test_an_unrelated_label_is_kept_out_and_its_own_let_in(short_decoders):
    items = [gate.Fit(300, related, n_steps=4000, steps=100) for related in (False, True)]
    found = [gate.measure(item) for item in items]
    assert [each["learned"] for each in found] == [False, True]
    assert found[0]["effect"] < 0.2 < found[1]["effect"]
    told = gate.answer([row(item, each) for item, each in zip(items, found, strict=True)])
    assert "| 4,000 | of another | 0 of 1 |" in told
    assert "| 4,000 | its own | 1 of 1 |" in told


def test_speed_cells_are_told_by_how_much_of_the_time_they_fire():
    item = inverse.Fit(300, ("speed",), 0, n_cells=8, n_steps=2500, steps=40)
    found = inverse.measure(item)
    assert found["decoder"]["auroc"] > 0.95
    told = inverse.answer([row(item, found)] * 2)
    ratios = [each / found["decoder"]["others"][0] for each in found["decoder"]["cells"]]
    assert " | ".join(f"{ratio:.1f}" for ratio in ratios) in told
    assert "| rates | speed | inverse |" in told
    counts = inverse.Fit(300, inverse.EVERY, 4, counts=True)
    assert "| counts | position, heading, speed, time | decoder |" in inverse.answer(
        [row(counts, found)]
    )


def test_windows_are_told_side_by_side():
    items = [windows.Fit(300, size, n_cells=4, n_steps=1000, steps=5) for size in (1, 5)]
    found = [windows.measure(item) for item in items]
    assert 0.05 < found[0]["spikes"] == found[1]["spikes"] < 0.15
    told = windows.answer([row(item, each) for item, each in zip(items, found, strict=True)])
    for size, each in zip((1, 5), found, strict=True):
        value = each["auroc"]["speed"]
        assert re.search(
            rf"^\| {size} \|.* {value:.3f} \({value:.3f} to .* \|$", told, re.MULTILINE
        )


def test_the_default_map_is_told_beside_the_former_one(monkeypatch):
    monkeypatch.setattr("xcebra.statistics.block_gains.N_SHIFTS", 19)
    items = [
        default_map.Fit("correlated 0.7", 300, correlation=0.7, n_steps=2000, steps=60),
        default_map.Fit("Table 2, d = 4", 300, 2, 2, "z1", n_steps=2000, steps=60),
    ]
    found = [default_map.measure(item) for item in items]
    for each in found:
        assert each["called"][1] == each["false"][1] == 25
        assert each["crossed"]["neurons"] > 0.8
    assert found[0]["crossed"]["entries"] != found[0]["decoder"]["entries"]
    told = default_map.answer([row(item, each) for item, each in zip(items, found, strict=True)])
    for item, each in zip(items, found, strict=True):
        cells = " | ".join(
            f"{100 * each[kind]['entries']:.1f} / {100 * each[kind]['neurons']:.1f}"
            for kind in default_map.MAPS
        )
        assert f"| {item.name} | {cells} | {each['called'][0]} of 25 | " in told


def test_connections_are_counted_by_both_routes(monkeypatch):
    monkeypatch.setattr("xcebra.statistics.block_gains.N_SHIFTS", 19)
    item = significance.Fit(300, 0.0, refits=1, n_steps=4000, steps=100)
    found = significance.measure(item)
    for route in significance.ROUTES:
        label = found[route]["label"]
        hits = sum(a and b for a, b in zip(label["significant"], label["true"], strict=True))
        assert hits >= 20
        told = significance.answer([row(item, found)])
        assert re.search(rf"\| {route} \| label \| free \| .* \| {hits} of 25", told)


def test_rates_of_false_and_missed_connections():
    def found(significant, true):
        each = {"significant": significant, "true": true}
        return {route: dict.fromkeys(("label", "time"), each) for route in ("cheap", "thorough")}

    one = found([True, True, False, False], [True, False, False, True])
    other = found([True, False, False, False], [True, False, False, False])
    rows = [{"item": {"correlation": c}, "found": f} for c, f in ((0.0, one), (0.5, other))]
    told = significance.answer(rows)
    assert "| cheap | label | all | 1 of 3 | 25.0 % | 2 of 3 (66.7 %) |" in told
    assert "| cheap | label | correlated 0.5 | 0 of 1 | 0.0 % | 1 of 1 (100.0 %) |" in told


def test_a_search_for_dimensions_is_told_with_its_agreement(tmp_path):
    small = {"n_steps": 1000, "candidates": (3,), "seeds": 2, "steps": 5, "jobs": 2}
    choice = dimensions.search(300, tmp_path, **small)
    assert choice.candidates == ((3, 3),)
    written = (tmp_path / "rows.jsonl").read_bytes()
    again = dimensions.search(300, tmp_path, **small)
    assert (tmp_path / "rows.jsonl").read_bytes() == written
    assert dimensions.answer({300: again}) == dimensions.answer({300: choice})
    assert f"| 300 | {choice.label_dims} | {choice.time_dims} |" in dimensions.answer({300: choice})
    assert dimensions.table(choice).splitlines()[-1] == f"| 3 | {choice.mean[0]:.3f} |"


def test_parts_of_a_recording_are_cut_out_with_their_epochs():
    rng = np.random.default_rng(0)
    whole = Recording(
        rng.normal(size=(3000, 4)),
        {"heading": np.arange(3000.0)},
        [(0, 1000), (1200, 3000)],
        time=np.arange(3000) * 0.05,
    )
    item = amount_of_data.Part(amount_of_data.HEADING, 1.0, None, 0)
    part = amount_of_data._part(whole, item, np.array([1, 3]), 50.0)
    assert part.n_times == 1200
    assert part.labels["heading"][0, 0] == 600
    assert part.epochs.pairs() == [(0, 400), (600, 1200)]
    np.testing.assert_array_equal(part.neural, whole.neural[600:1800, [1, 3]])


def test_bins_are_told_from_the_committed_rows_of_the_benchmark():
    told = bins.answer(bins.read_rows())
    assert told + "\n" == (RESULTS / "bins.md").read_text()
    assert "| head direction, heading | 50 | 3 yes |" in told


@pytest.mark.parametrize("name", STUDIES)
def test_committed_rows_are_all_there_and_give_the_answer(name, monkeypatch):
    """All of one version, the last that was run; a later one may not have been run yet."""
    study = STUDIES[name]
    *_, last = (RESULTS / f"{name}.jsonl").read_text().splitlines()
    made_by = json.loads(last)
    version = made_by.get("results_version") or made_by["made_with"]["xcebra"]
    monkeypatch.setattr("xcebra.sweep.RESULTS_VERSION", version)
    rows = RowFile(RESULTS / f"{name}.jsonl").finished(study.ITEMS)
    assert len(rows) == len(study.ITEMS)
    assert study.answer(list(rows.values())).startswith("| ")
