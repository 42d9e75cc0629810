"""The benchmark on real recordings, on small files of the same format."""

from __future__ import annotations

import re
from dataclasses import asdict
from pathlib import Path

import matplotlib.pyplot as plt
import numpy as np
import pytest
from typer.testing import CliRunner

import xcebra
from xcebra.cli import app
from xcebra.reproduce.catalogue import FULL, QUICK, Scale
from xcebra.reproduce.encoding_test import encoding_p_values, encoding_significant
from xcebra.reproduce.measurements import measure
from xcebra.reproduce.real import truth, work
from xcebra.reproduce.real.catalogue import RealScale, real
from xcebra.reproduce.real.data import RECORDINGS, RealFolder, bin_label, label_of, read_recording
from xcebra.reproduce.real.rows import between_halves, between_seeds
from xcebra.reproduce.real.tables import real as real_tables
from xcebra.reproduce.real.truth import (
    STRENGTHS,
    RealCase,
    build,
    foreign_activity,
    halves_of_time,
    implant,
    shifted_units,
    smooth_response,
)
from xcebra.reproduce.real.work import (
    DEFAULT,
    PAPER_METHODS,
    CebraFit,
    IndependentTest,
    RealFit,
    calls,
    decoding_r2,
    independent_recording,
    part_of,
    ranking,
)
from xcebra.reproduce.run import reproduce
from xcebra.reproduce.synthetic_figures import FIGURES
from xcebra.statistics.encoding_strength import encoding_strength
from xcebra.sweep import key

SECONDS = 120
HEAD, PLACE, ENTORHINAL = "head_direction.nwb", "place_cells.npz", "entorhinal_hippocampal.npz"


def _walk(rng, n, columns, step=0.03):
    """Moves between 0 and 1, and is reflected at both ends."""
    steps = rng.normal(scale=step, size=(n, columns)).cumsum(axis=0)
    return np.abs((steps % 2.0) - 1.0)


def _place_cells(rng, place, n_tuned, n_others, rate):
    centres = rng.uniform(size=(n_tuned, place.shape[1]))
    bump = np.exp(-np.square(place[:, None] - centres).sum(axis=2) / (2 * 0.15**2))
    tuned = rng.poisson(5 * rate * bump)
    return np.concatenate([tuned, rng.poisson(rate, size=(len(place), n_others))], axis=1)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """Three of the recordings, two minutes each."""
    made = tmp_path_factory.mktemp("recordings")
    rng = np.random.default_rng(0)
    n = SECONDS * 50
    place = _walk(rng, n, 2)
    np.savez(
        made / PLACE,
        neural=_place_cells(rng, place, 8, 4, 0.2).astype(np.uint8),
        time=np.arange(n) * 0.02,
        position=(100 * place).astype(np.float32),
        speed=np.abs(rng.normal(size=n)).astype(np.float32),
    )
    n = round(SECONDS / 0.0256)
    place = _walk(rng, n, 1)
    time = np.arange(n) * 0.0256
    time[n // 2 :] += 2.0
    np.savez(
        made / ENTORHINAL,
        neural=_place_cells(rng, place, 6, 4, 0.2).astype(np.uint8),
        time=time,
        position=place[:, 0],
        position_xy=np.concatenate([place, 1 - place], axis=1),
        velocity=np.gradient(place[:, 0]),
        direction=np.sign(np.gradient(place[:, 0])),
        led_angle=(np.pi * 2 * place[:, 0]) % (2 * np.pi) - np.pi,
        unit=np.array([f"u{k}" for k in range(10)]),
    )
    n = SECONDS * 100
    angle = rng.normal(scale=0.1, size=n).cumsum() % (2 * np.pi)
    prefers = np.linspace(0, 2 * np.pi, 7, endpoint=False)
    heads = rng.poisson(0.3 * np.exp(2 * (np.cos(angle[:, None] - prefers) - 1)))
    others = rng.poisson(0.05, size=(n, 3))
    xcebra.io.write(
        xcebra.Recording(
            neural=np.concatenate([heads, others], axis=1),
            labels={"ry": angle, "x": _walk(rng, n, 1), "z": _walk(rng, n, 1)},
            time=np.arange(n) * 0.01,
        ),
        made / HEAD,
        spikes=True,
    )
    return str(made)


def test_counts_are_summed_and_labels_averaged(folder):
    fine, coarse = (read_recording(folder, PLACE, ms) for ms in (20.0, 100.0))
    assert coarse.neural.shape == (fine.n_times // 5, 12)
    np.testing.assert_array_equal(coarse.neural[0], fine.neural[:5].sum(axis=0))
    expected = fine.labels["position"][5:10].mean(axis=0)
    np.testing.assert_allclose(coarse.labels["position"][1], expected)


def test_bins_do_not_cross_a_gap(folder):
    rec = read_recording(folder, ENTORHINAL, 204.8)
    assert len(rec.epochs) == 2
    assert rec.time is not None
    steps = np.diff(rec.time)
    np.testing.assert_allclose(np.delete(steps, rec.epochs.stops[0] - 1), 0.2048, rtol=1e-6)
    assert rec.neuron_names[0] == "u0"


def test_labels_of_a_bin_by_kind():
    angles = np.array([[3.1, -3.1], [0.1, 0.3]])
    found = bin_label(angles, "circular")[:, 0]
    assert abs(abs(found[0]) - np.pi) < 1e-9
    assert found[1] == pytest.approx(0.2)
    np.testing.assert_array_equal(
        bin_label(np.array([[1, 1, 2], [3, 4, 3]]), "discrete"), [[1], [4]]
    )
    np.testing.assert_array_equal(bin_label(np.array([[1.0, 3.0]]), "continuous"), [[2.0]])


def test_a_bin_that_is_not_allowed_is_refused(folder):
    with pytest.raises(ValueError, match="bin_ms=30"):
        read_recording(folder, PLACE, 30.0)


def test_every_recording_of_the_table_can_be_used():
    for about in RECORDINGS.values():
        assert about.main_bin_ms in about.bins_ms
        assert set(about.carriers) <= set(about.labels)
        if not about.spikes:
            factors = np.array(about.bins_ms) / about.bins_ms[0]
            np.testing.assert_allclose(factors, factors.round())


def _shared(file):
    """The real file, where it lies beside the repository."""
    path = Path(__file__).parents[3] / "shared" / "data" / file
    if not path.is_file():
        pytest.skip(f"needs the real recording {file}")
    return str(path.parent)


@pytest.mark.parametrize("file", RECORDINGS)
def test_the_real_files_are_as_the_table_says(file):
    about = RECORDINGS[file]
    rec = read_recording(_shared(file), file, about.bins_ms[-1])
    assert rec.n_neurons == about.n_units
    assert set(rec.labels) == set(about.labels)
    assert rec.time is not None
    assert np.median(np.diff(rec.time)) == pytest.approx(about.bins_ms[-1] / 1000, rel=0.01)
    np.testing.assert_array_equal(rec.neural, np.round(rec.neural))


def test_real_head_direction_cells_are_tuned_and_foreign_neurons_are_not():
    folder = _shared(HEAD)
    _shared(ENTORHINAL)
    made = build(folder, RealCase(HEAD, "heading", 50.0, "known"))
    assert made.strength[:7].min() > 0.3
    assert made.strength[7:].max() < 0.06
    made = build(folder, RealCase(HEAD, "heading", 50.0, "foreign", ENTORHINAL))
    assert (made.truth[:7] == 1).all()
    assert made.strength[made.null].max() < 0.02


def test_known_cells_have_their_truth(folder):
    made = build(folder, RealCase(HEAD, "heading", 50.0, "known"))
    np.testing.assert_array_equal(made.truth, [1] * 7 + [0] * 3)
    np.testing.assert_array_equal(made.null, [False] * 7 + [True] * 3)
    assert made.strength[:7].min() > 0.1
    assert made.own.all()


def test_poisson_units_stand_beside_the_carriers_alone(folder):
    made = build(folder, RealCase(HEAD, "heading", 50.0, "known-poisson"))
    np.testing.assert_array_equal(made.truth, [1] * 7 + [0] * 8)
    np.testing.assert_array_equal(made.own, made.truth == 1)
    others = read_recording(folder, HEAD, 50.0).neural[:, 7:]
    added = made.recording.neural[:, 7:]
    rates = np.resize(others.mean(axis=0), 8)
    np.testing.assert_allclose(added.mean(axis=0), rates, rtol=0.25)
    np.testing.assert_allclose(added.var(axis=0), rates, rtol=0.3)
    another = build(folder, RealCase(HEAD, "heading", 50.0, "known-poisson", draw=1))
    assert not np.array_equal(added, another.recording.neural[:, 7:])


def test_foreign_neurons_are_another_recording_wrapped(folder):
    case = RealCase(PLACE, "position", 40.0, "foreign", ENTORHINAL)
    made = build(folder, case)
    donor = read_recording(folder, ENTORHINAL, 51.2).neural
    added = made.recording.neural[:, 12:]
    assert added.shape[1] == 10
    # All of them start at the same sample of their own recording, and wrap around its end.
    starts = [s for s in range(len(donor)) if np.array_equal(added[:5], np.roll(donor, -s, 0)[:5])]
    assert len(starts) == 1
    rows = (starts[0] + np.arange(len(added))) % len(donor)
    np.testing.assert_array_equal(added, donor[rows])
    np.testing.assert_array_equal(made.null, [False] * 12 + [True] * 10)
    np.testing.assert_array_equal(made.truth[12:], 0)
    assert (made.truth[:8] == 1).all()
    assert np.isnan(made.truth[8:12]).all()
    assert made.strength[12:].max() < 0.05 < made.strength[:8].min()


def test_tuned_neurons_are_chosen_and_judged_on_different_times():
    chosen, judged = halves_of_time(np.arange(1000))
    assert not set(chosen) & set(judged)
    assert len(chosen) == len(judged) == 500
    np.testing.assert_array_equal(chosen[:50], np.arange(50))
    np.testing.assert_array_equal(judged[:50], np.arange(50, 100))


def test_neurons_of_the_same_animal_are_refused(folder):
    with pytest.raises(ValueError, match="another animal"):
        build(folder, RealCase(PLACE, "position", 40.0, "foreign", PLACE))


def test_wrapping_keeps_columns_together():
    values = np.stack([np.arange(7), np.arange(7) * 10], axis=1)
    wrapped = foreign_activity(values, 20, np.random.default_rng(3))
    np.testing.assert_array_equal(wrapped[:, 1], 10 * wrapped[:, 0])
    np.testing.assert_array_equal(np.diff(wrapped[:, 0]) % 7, 1)


def test_shifted_units_keep_their_spikes_and_lose_the_label(folder):
    counts = np.asarray(read_recording(folder, PLACE, 40.0).neural)
    moved = shifted_units(counts, np.random.default_rng(0))
    np.testing.assert_array_equal(np.sort(moved, axis=0), np.sort(counts, axis=0))
    assert all(not np.array_equal(a, b) for a, b in zip(moved.T, counts.T, strict=True))
    for k in range(counts.shape[1]):
        assert any(
            np.array_equal(moved[:, k], np.roll(counts[:, k], s)) for s in range(len(counts))
        )
    made = build(folder, RealCase(PLACE, "position", 40.0, "noise"))
    names = made.recording.neuron_names
    assert sum(name.startswith("Poisson") for name in names) == 12
    assert sum(name.startswith("shifted") for name in names) == 12
    np.testing.assert_array_equal(made.null, np.arange(36) >= 12)
    called = np.arange(36) < 14
    assert calls(called, made)["Poisson unit"] == [2, 12]
    assert calls(called, made)["shifted unit"] == [0, 12]


@pytest.mark.parametrize("kind", ["circular", "continuous", "discrete"])
def test_implanted_responses_have_the_strength_asked_for(kind):
    rng = np.random.default_rng(1)
    n = 20_000
    values = {
        "circular": rng.normal(scale=0.2, size=n).cumsum() % (2 * np.pi),
        "continuous": _walk(rng, n, 2),
        "discrete": np.repeat(rng.integers(3, size=n // 50), 50).astype(float),
    }[kind]
    label = label_of("label", values, kind)
    shares = np.array([0.0, *STRENGTHS])
    counts = rng.poisson(0.3, size=(n, len(shares))).astype(np.float32)
    changed = implant(counts, label, shares, np.random.default_rng(2))
    np.testing.assert_array_equal(changed[:, 0], counts[:, 0])
    assert changed.min() >= 0
    np.testing.assert_array_equal(changed, changed.round())
    strength = encoding_strength(changed, label, np.arange(n))
    np.testing.assert_allclose(strength, shares, rtol=0.25, atol=0.003)


def test_responses_are_functions_of_the_label():
    label = label_of("label", np.tile(np.linspace(0, 1, 50), 4), "continuous")
    response = smooth_response(label, np.random.default_rng(0))
    np.testing.assert_allclose(response[:50], response[50:100])
    assert np.abs(response).max() == pytest.approx(1.0)
    assert response.mean() == pytest.approx(0.0, abs=1e-9)


def test_implanted_case_has_strengths_and_neurons_without_response(folder):
    made = build(folder, RealCase(PLACE, "position", 40.0, "implanted", ENTORHINAL))
    assert np.isnan(made.truth[:12]).all()
    np.testing.assert_array_equal(made.truth[12:], [0, 1] * 5)
    np.testing.assert_array_equal(made.null[12:], made.truth[12:] == 0)
    np.testing.assert_array_equal(made.implanted[13::2], STRENGTHS[:5])
    found = calls(np.ones(22, dtype=bool), made)["by_strength"]
    assert found["0"] == [5, 5]
    assert found["0.1"] == [1, 1]
    assert found["0.2"] == [0, 0]


def test_labels_of_another_recording_are_wrapped(folder):
    made = build(folder, RealCase(PLACE, "led_angle", 40.0, "other-label", ENTORHINAL))
    assert made.label.kind == "circular"
    assert made.recording.labels["led_angle"].shape == (made.recording.n_times, 1)
    assert made.null.all()
    assert set(made.recording.labels) == {"led_angle"}


def test_a_label_that_rarely_changes_is_drawn_where_it_changes(folder, monkeypatch):
    donor = read_recording(folder, ENTORHINAL, 51.2)
    changes_once = (np.arange(donor.n_times) > donor.n_times - 20).astype(float)[:, None]
    rarely = xcebra.Recording(donor.neural, {"direction": changes_once})
    monkeypatch.setattr(truth, "_donor", lambda folder, case: rarely)
    for draw in range(20):
        case = RealCase(PLACE, "direction", 200.0, "other-label", ENTORHINAL, draw)
        drawn = truth._other_label(folder, case, 50, np.random.default_rng(draw))[0]
        assert len(drawn) == 50
        assert len(np.unique(drawn)) == 2


def test_halves_of_a_recording_share_no_sample(folder):
    rec = read_recording(folder, ENTORHINAL, 51.2)
    first, second = (part_of(rec, f"{part} half").epochs.indices() for part in ("first", "second"))
    np.testing.assert_array_equal(np.concatenate([first, second]), rec.epochs.indices())
    assert abs(len(first) - len(second)) <= 1


def test_ranking_and_calls_count_what_they_should(folder):
    made = build(folder, RealCase(PLACE, "position", 40.0, "foreign", ENTORHINAL))
    found = ranking(made.strength, made)
    assert found["auroc"] == 1.0
    assert found["spearman"] == 1.0
    assert ranking(-made.strength, made)["auroc"] == 0.0
    called = np.zeros(22, dtype=bool)
    called[[0, 1, 8, 12]] = True
    counts = calls(called, made)
    assert (counts["called"], counts["called_null"], counts["called_true"]) == (4, 1, 2)
    assert (counts["n_null"], counts["n_true"]) == (10, 8)


def test_decoding_reads_what_is_there_and_nothing_else(folder):
    rec = read_recording(folder, PLACE, 100.0)
    position = label_of("position", rec.labels["position"], "continuous")
    assert decoding_r2(rec, position, 100.0) > 0.5
    elsewhere = label_of("position", np.roll(rec.labels["position"], 300, axis=0), "continuous")
    assert decoding_r2(rec, elsewhere, 100.0) < 0.1


def test_encoding_test_calls_tuned_neurons_and_few_others(folder):
    made = build(folder, RealCase(PLACE, "position", 40.0, "noise"))
    times = made.recording.epochs.indices()
    called = encoding_significant(np.asarray(made.recording.neural), made.label, times)
    assert called[:8].all()
    assert called[made.null].sum() <= 2
    noise = np.random.default_rng(0).poisson(0.5, size=(len(times), 20)).astype(float)
    p_values = encoding_p_values(noise, made.label, times)
    assert 0.3 < p_values.mean() < 0.7


def test_the_simulated_test_has_the_neurons_it_should():
    rec, truth = independent_recording("anchor", 0)
    assert rec.neural.shape == (1200, 12)
    assert truth.sum() == 1
    z1 = rec.labels["z1"][:, 0]
    assert np.corrcoef(z1[1:], z1[:-1])[0, 1] == pytest.approx(0.8, abs=0.05)
    assert np.corrcoef(rec.neural[:, 0], np.tanh(z1))[0, 1] > 0.99
    assert np.abs(np.corrcoef(rec.neural.T)[0, 2:]).max() < 0.12
    rec, truth = independent_recording("redundant", 0)
    assert truth.sum() == 6
    assert np.corrcoef(rec.neural.T)[0, :6].min() > 0.95


def test_work_is_known_by_its_values_and_not_by_the_folder(folder):
    here, there = (real(FULL.real, RealFolder(path)) for path in (folder, folder + "/."))
    assert [key(item) for item in here] == [key(item) for item in there]
    assert len({key(item) for item in here}) == len(here)
    case = RealCase(HEAD, "heading", 50.0, "known")
    assert key(RealFit("a", case)) == "17fb863ded0cc600"
    assert key(RealFit("a", case)) != key(RealFit("a", case, seed=1))


def test_the_benchmark_has_every_part(folder):
    items = real(FULL.real, RealFolder(folder))
    fits = [item for item in items if isinstance(item, RealFit)]
    assert {item.case.truth for item in fits} == {
        *("own", "known", "known-poisson", "foreign", "noise", "implanted", "other-label")
    }
    assert isinstance(items[0], RealFit)
    assert items[0].case.truth == "known"
    known = [item for item in fits if item.case.truth == "known" and item.time_dims is None]
    assert {(i.case.bin_ms, i.seed) for i in known} == {
        (ms, seed) for ms in (20.0, 50.0, 100.0, 200.0) for seed in range(3)
    }
    assert sum(item.case.truth == "known-poisson" for item in fits) == 20
    labels = {(i.case.file, i.case.label) for i in fits if i.case.truth == "foreign"}
    assert labels == {(f, name) for f in (HEAD, PLACE, ENTORHINAL) for name in RECORDINGS[f].labels}
    for item in fits:
        if item.case.other is not None:
            assert RECORDINGS[item.case.other].animal != RECORDINGS[item.case.file].animal
    assert len([i for i in items if isinstance(i, IndependentTest)]) == 2 * 2 * 5
    assert len(real(QUICK.real, RealFolder(folder))) < 20


def test_folders_that_cannot_be_used_are_told_in_one_line(tmp_path):
    runner = CliRunner()
    out = ["--out", str(tmp_path / "out"), "--quiet"]
    for given, words in (
        ([], "needs the folder"),
        ([str(tmp_path / "nowhere")], "there is no folder"),
        ([str(tmp_path)], "holds none of the recordings"),
    ):
        told = runner.invoke(app, ["reproduce", "real", *given, *out])
        assert told.exit_code == 2
        assert words in told.stderr
        assert len(told.stderr.strip().splitlines()) == 1
    assert not (tmp_path / "out").exists()
    with pytest.raises(ValueError, match="a recording is for"):
        reproduce("table1", tmp_path / "out", data=RealFolder(str(tmp_path)))


def test_one_fit_is_measured_by_every_method(folder):
    case = RealCase(HEAD, "heading", 100.0, "known")
    found = measure(RealFit(folder, case, steps=30, methods=True))
    assert set(found["methods"]) == {DEFAULT, *PAPER_METHODS, "encoding model"}
    assert found["learned"] in (True, None, False)
    assert found["methods"]["encoding model"]["auroc"] == 1.0
    for method in (DEFAULT, "encoding model"):
        assert found["methods"][method]["calls"]["n_true"] == 7
    assert set(found["seconds"]) == {"fit", "map", "test"}


def test_a_folder_becomes_tables(folder, tmp_path):
    few = RealScale(
        most_files=1,
        bins=False,
        all_labels=False,
        n_seeds=1,
        n_poisson_draws=0,
        n_other_labels=0,
        time_dims=(),
        noise=False,
        halves=False,
        n_cebra=0,
        n_independent=0,
        steps=3,
        coarse=True,
    )
    data = RealFolder(folder)
    written = reproduce(
        "real", tmp_path, jobs=2, scale=Scale(real=few), data=data, also=("csv", "tex")
    )
    assert {path.name for path in written} >= {"real.md", "real.tex", "real-1.csv"}
    text = (tmp_path / "real.md").read_text()
    for title in ("Real recordings in short", "Known cells", "Own labels", "Seconds"):
        assert f"## {title}" in text
    assert "No rows of place_cells.npz, entorhinal_hippocampal.npz" in text
    # Finished rows are not run again, wherever the recordings are.
    again = reproduce(
        "real",
        tmp_path,
        run=False,
        scale=Scale(real=few),
        data=RealFolder(folder + "/."),
        also=("csv", "tex"),
    )
    assert again == written


CALLED = {
    "Poisson unit": [1, 8],
    "called": 4,
    "called_null": 1,
    "n_null": 10,
    "called_true": 3,
    "n_true": 4,
    "called_strong": 2,
    "n_strong": 2,
    "by_strength": {f"{share:g}": [1, 2] for share in (0.0, *STRENGTHS)},
}


def _row(item, scores=(1.0, 2.0, 3.0, 4.0), learned=True):
    method = {"auroc": 0.9, "spearman": 0.5, "scores": list(scores), "calls": CALLED}
    found = {
        "n_true": 10,
        "n_own": 12,
        "decoding_r2": 0.3,
        "learned": learned,
        "warned": ["MissingFactorWarning"],
        "auroc": 0.9,
        "calls": CALLED,
        "seconds": {"fit": 2.0, "map": 1.0, "test": 3.0},
        "methods": dict.fromkeys((DEFAULT, *PAPER_METHODS, "encoding model", "CEBRA"), method),
    }
    return {"kind": type(item).__name__, "item": asdict(item), "found": found}


def test_every_part_has_its_table(folder):
    items = real(FULL.real, RealFolder(folder))
    case = RealCase(PLACE, "position", 40.0, "own")
    items += [CebraFit("", case, seed) for seed in (7, 8)]
    tables = {table.title.split(":")[0]: table for table in real_tables([_row(i) for i in items])}
    assert list(tables) == [
        "Real recordings in short",
        "Known cells",
        "Noise units",
        "Foreign neurons",
        "Own labels",
        "Labels of other recordings",
        "Agreement of rankings",
        "CEBRA's own model",
        "Number of time latents",
        "Implanted responses",
        "Independent test",
        "Warnings, where it is known which neurons carry the label",
        "Seconds, median over fits",
    ]
    short = dict(tables["Real recordings in short"].rows)
    assert short["auROC, known cells: least, mean"] == "0.900, 0.900"
    # One false call of four, in each of twenty draws.
    assert short["false among called, known cells beside Poisson units"] == "20 of 80 (25.0%)"
    assert "Poisson units 20 of 160 (12.5%)" in tables["Noise units"].rows[0]
    assert short["Spearman between seeds: least, median"] == "1.00, 1.00"
    n = sum(getattr(i, "case", case).truth == "other-label" for i in items)
    assert short["labels of other recordings refused"] == f"0 of {n}"
    implanted = tables["Implanted responses"].rows
    assert [row[0] for row in implanted][:3] == ["0.0%", "0.5%", "1.0%"]
    assert {row[1] for row in implanted} == {"3 of 6 (50%)"}
    warned = tables["Warnings, where it is known which neurons carry the label"].rows
    n = sum(isinstance(i, RealFit) for i in items)
    assert warned == (("MissingFactorWarning", "0 of 0", f"{n} of {n} (100.0%)"),)
    assert "CEBRA" in {row[3] for row in tables["Agreement of rankings"].rows}


def test_any_part_of_the_work_makes_tables(folder):
    rows = [_row(item) for item in real(FULL.real, RealFolder(folder))]
    kinds = {_kind(row) for row in rows}
    parts = [[], rows[:1], rows[-1:], rows[::3]]
    parts += [[row for row in rows if _kind(row) == kind] for kind in kinds]
    parts += [[row for row in rows if _kind(row) != kind] for kind in kinds]
    for part in parts:
        tables = real_tables(part)
        assert tables[0].title == "Real recordings in short"
        text = "".join(table.markdown() + table.latex() + table.csv() for table in tables)
        assert not re.search(r"\b(nan|inf)\b", text)


def _kind(row):
    return row["kind"], row["item"].get("case", {}).get("truth")


def test_power_curves_are_drawn():
    case = RealCase(PLACE, "position", 40.0, "implanted", ENTORHINAL)
    figure = FIGURES["real"]([_row(RealFit("", case)), _row(IndependentTest("anchor"))])["real"]
    curves = [line for line in figure.axes[0].lines if len(line.get_xdata()) == len(STRENGTHS)]
    assert len(curves) == 2
    np.testing.assert_allclose(curves[0].get_xdata(), 100 * np.array(STRENGTHS))
    np.testing.assert_allclose(curves[0].get_ydata(), 0.5)
    figure.draw_without_rendering()
    assert figure.axes[0].get_xlabel()
    assert figure.axes[0].get_ylabel()
    plt.close(figure)
    assert FIGURES["real"]([]) == {}


def test_rankings_are_compared_between_fits_of_the_same_data():
    case = RealCase(PLACE, "position", 40.0, "own")
    rows = [
        _row(RealFit("", case, seed=0), [1, 2, 3, 4]),
        _row(RealFit("", case, seed=1), [4, 3, 2, 1]),
        _row(RealFit("", case, part="first half"), [1, 2, 3, 4]),
        _row(RealFit("", case, part="second half"), [1, 2, 4, 3]),
    ]
    known = (PLACE, "position", 40.0)
    assert between_seeds(rows, DEFAULT) == {known: [pytest.approx(-1.0)]}
    assert between_halves(rows) == {known: pytest.approx(0.8)}


def test_cebra_is_measured_where_it_is_installed(folder):
    pytest.importorskip("cebra")
    found = measure(CebraFit(folder, RealCase(HEAD, "heading", 200.0, "own"), steps=5))
    assert len(found["methods"]["CEBRA"]["scores"]) == 10


def test_rows_of_cebra_stay_in_the_tables_where_it_is_not_installed(folder, monkeypatch):
    items = real(RealScale(), RealFolder(folder))
    of_cebra = [item for item in items if isinstance(item, CebraFit)]
    assert of_cebra
    monkeypatch.setattr(work, "has_cebra", lambda: False)
    assert not any(work.can_run(item) for item in of_cebra)
    assert all(work.can_run(item) for item in items if not isinstance(item, CebraFit))
    monkeypatch.setattr(work, "has_cebra", lambda: True)
    assert all(work.can_run(item) for item in items)
