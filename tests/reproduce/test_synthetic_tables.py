"""Tables and figures of made-up rows: the right numbers in the right cells, whatever is missing."""

import base64
import itertools
import re
from dataclasses import asdict, replace

import matplotlib.pyplot as plt
import numpy as np
import pytest
import scipy.stats

from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.catalogue import EXPERIMENTS, HARD, HYBRID, QUICK, grid_cells
from xcebra.reproduce.cells import (
    COMPARED_MAPS,
    LABELS,
    SIMPLER,
    CellTypes,
    Decoding,
    GridPortrait,
    SeveralLabels,
    Simpler,
)
from xcebra.reproduce.measurements import (
    AGGREGATED,
    AGGREGATES,
    MAPS,
    Consistency,
    Encoding,
    Fit,
    Portrait,
    Training,
)
from xcebra.reproduce.row_selection import TITLES, observations, single_fits
from xcebra.reproduce.run import GRID_CELLS, REAL
from xcebra.reproduce.sources import Data, GridCells
from xcebra.reproduce.statistics import anova, interval
from xcebra.reproduce.statistics_tables import FACTORS
from xcebra.reproduce.synthetic_figures import FIGURES, write
from xcebra.reproduce.synthetic_tables import SUMMARIES
from xcebra.reproduce.timing import TIMED_MAPS, FitTiming, Timing
from xcebra.sweep import key

SPARSE = "decoder-gradient, sparse"
# Tables and figures of real recordings are tested with that benchmark, in test_experiment_real.py.
TABLED, DRAWN = ([name for name in made if name != REAL] for made in (SUMMARIES, FIGURES))


def made_up(item, name, score):
    """A number between 0.6 and 0.95 that is known by what it is of."""
    digits = int(key(item), 16) + sum(map(ord, name + score))
    return 0.6 + 0.35 * (digits % 997) / 997


def row(item, scores=made_up, **changes):
    """A finished row of an item; ``scores(item, name, score)`` gives every score."""
    found = {}
    ways = ("entries", "neurons", "accuracy", "accuracy_neurons")
    if isinstance(item, Fit):
        found = {
            "fit_seconds": 12.0,
            "r2": {"z1": 0.9, "z2": 0.8, "label": 0.97},
            "settings": {"steps": 400, "batch_size": item.training.batch_size or 1024},
            "maps": {n: {way: scores(item, n, way) for way in ways} for n in MAPS},
            "map_seconds": dict.fromkeys(MAPS, 2.0),
            "aggregates": {
                n: {
                    a: {way: scores(item, n, a + way) for way in ways[:2]}
                    for a in (*AGGREGATES, "single step")
                }
                for n in AGGREGATED
            },
            "warnings": [],
        }
    elif isinstance(item, Encoding):
        found = {"maps": {"encoding model": {way: scores(item, "e", way) for way in ways}}}
    elif isinstance(item, Consistency):
        n = item.n_seeds * (item.n_seeds - 1)
        has_maps = item.training.kind != "time contrastive"
        found = {
            "consistency": {"all": [scores(item, "consistency", str(i)) for i in range(n)]},
            "maps": [
                {n: {"entries": scores(item, n, str(seed))} for n in AGGREGATED}
                for seed in range(item.n_seeds if has_maps else 0)
            ],
        }
    elif isinstance(item, Portrait):
        rng = np.random.default_rng(0)
        points = rng.uniform(-1, 1, size=(20, 3)).tolist()
        found = {
            "over_training": {"steps": [1, 60], "auroc": [0.6, 0.9], "r2": [0.1, 0.9]},
            **dict.fromkeys(("latents", "activity", "embedding", "aligned"), points),
        }
    elif isinstance(item, Decoding):
        found = {"nearest": 0.95, "linear": 0.4}
    elif isinstance(item, SeveralLabels | Simpler):
        names = COMPARED_MAPS if isinstance(item, SeveralLabels) else SIMPLER
        found = {
            "maps": {
                n: {k: {w: scores(item, n, k + w) for w in ways} for k in LABELS} for n in names
            }
        }
    elif isinstance(item, CellTypes | GridPortrait):
        found = seen(item)
    elif isinstance(item, Timing):
        found = {"ours_s": 0.5, "peer_s": 20.0, "ratio": 40.0}
    elif isinstance(item, FitTiming):
        found = {"fit_s": 50.0 + item.training.seed, "map_s": dict.fromkeys(TIMED_MAPS, 0.75)}
    return {
        "key": key(item),
        "kind": type(item).__name__,
        "item": asdict(item),
        "found": {**found, **changes},
        "machine": {"threads": 1},
    }


def seen(item):
    """What is kept of a fit for a figure: eight neurons, twenty moments."""
    rng = np.random.default_rng(0)
    pixels = {"shape": [8, 30], "bytes": base64.b64encode(bytes(range(240))).decode()}
    found = {
        "z_scores": dict.fromkeys((SPARSE, "inverted-gradient"), rng.standard_normal(8).tolist()),
        "over_time": pixels,
        "embedding": dict.fromkeys(("label", "time"), rng.uniform(size=(20, 3)).tolist()),
        "behaviour": {
            "position": rng.uniform(size=(20, 2)).tolist(),
            "heading": rng.uniform(-1, 1, size=(20, 2)).tolist(),
            "speed": rng.uniform(size=(20, 1)).tolist(),
        },
    }
    if isinstance(item, GridPortrait):
        maps = {f"module 1 cell {i}": {**pixels, "grid_score": 1.2} for i in range(6)}
        score = [1.2, 0.8, 1.0, -0.2, 0.1, -9.0, 0.0, 0.2]
        return {**found, "real": [True] * 4 + [False] * 4, "grid_score": score, "rate_maps": maps}
    names = ("spatial information", "grid score", "mean vector length", "speed score")
    return {
        **found,
        "kinds": [k for k in ("place", "grid", "head-direction", "speed") for _ in range(2)],
        "over_training": {"steps": [1, 60], "auroc": [0.6, 0.9]},
        "classical": dict.fromkeys(names, rng.uniform(size=8).tolist()),
    }


def all_rows(name, scale=QUICK):
    if name == GRID_CELLS:
        return [row(item) for item in grid_cells(scale, GridCells("file", "0" * 64, "s", (1,)))]
    return [row(item) for item in EXPERIMENTS[name](scale)]


def cells(table):
    """By line and column, the text of a table."""
    return {
        (line[0], column): cell
        for line in table.rows
        for column, cell in zip(table.columns[1:], line[1:], strict=True)
    }


def first_number(text):
    return float(re.match(r"\**(-?[\d.]+)", text)[1])


def kind_of(each):
    training = each["item"].get("training", {"kind": "none", "penalty": False})
    return training["kind"], training["penalty"]


def parts_of(rows):
    """What an interrupted sweep may leave: nothing, one row, some, one kind, all but one kind."""
    found = {"none": [], "first": rows[:1], "last": rows[-1:], "every third": rows[::3]}
    for label in sorted({(each["kind"], *kind_of(each)) for each in rows}):
        found[f"only {label}"] = [r for r in rows if (r["kind"], *kind_of(r)) == label]
        found[f"not {label}"] = [r for r in rows if (r["kind"], *kind_of(r)) != label]
    return found


@pytest.fixture(autouse=True)
def _close():
    yield
    plt.close("all")


def table_1_rows(scores, datasets=(0, 1), dims=(4, 5)):
    return [
        row(Fit(Data(d - 2, seed=seed), Training(kind, penalty)), scores)
        for kind in paper.TRAININGS
        for penalty in (False, True)
        for seed in datasets
        for d in dims
    ]


def test_table_1_has_means_and_the_papers_values_beside_them():
    rows = all_rows("table1")
    entries, neurons, by_latents, cost = SUMMARIES["table1"](rows)
    assert len(entries.rows) == len(MAPS)
    for name, kind, penalty in itertools.product(MAPS, paper.TRAININGS, (False, True)):
        group = [r for r in rows if kind_of(r) == (kind, penalty)]
        column = f"{kind}, {'penalty' if penalty else 'none'}"
        for table, score in ((entries, "entries"), (neurons, "neurons")):
            expected = interval([r["found"]["maps"][name][score] for r in group])
            text = cells(table)[TITLES[name], column]
            low, high = 100 * expected.low, 100 * expected.high
            assert first_number(text) == pytest.approx(100 * expected.mean, abs=0.051)
            assert f" [{low:.1f}, {high:.1f}] n=2" in text
            theirs = paper.TABLE_1.get((name, kind, penalty))
            if theirs is None or table is neurons:
                assert "paper" not in text
            else:
                assert text.endswith(f" (paper {theirs.mean} [{theirs.low}, {theirs.high}])")
    assert "d = 4, 6 and n recordings" in entries.notes[0]
    assert [line[0] for line in by_latents.rows] == ["4", "6"]
    assert len(cost.rows) == 6
    assert cost.rows[0] == ("supervised, none", "12 (12 to 12)", "18", "1", "4")


def test_bold_marks_the_best_cell_alone():
    def scores(item, name, score):
        best = name == "gradient" and item.training == Training("supervised contrastive")
        return 0.9 if best and score == "entries" else 0.8

    entries, neurons, *_ = SUMMARIES["table1"](table_1_rows(scores))
    bold = [place for place, text in cells(entries).items() if "**" in text]
    assert bold == [("Neuron gradient", "supervised contrastive, penalty")]
    assert cells(entries)[bold[0]].startswith("**90.0** [90.0, 90.0] n=2 (paper")
    # All are equal, all are best.
    assert all(text.startswith("**80.0**") for text in cells(neurons).values())


def test_cells_without_fits_hold_the_papers_value_alone():
    rows = [r for r in all_rows("table1") if kind_of(r) == ("hybrid contrastive", True)]
    entries, neurons, *_ = SUMMARIES["table1"](rows)
    for (title, column), text in cells(entries).items():
        name = next(n for n, t in TITLES.items() if t == title)
        if column == "hybrid contrastive, penalty":
            assert "n=2" in text
        elif name in paper.METHODS:
            assert re.fullmatch(r"\(paper [\d.]+ \[[\d.]+, [\d.]+\]\)", text)
        else:
            assert text == ""
    empty = [text for (_, c), text in cells(neurons).items() if c != "hybrid contrastive, penalty"]
    assert set(empty) == {""}


def test_table_2_has_its_own_values_of_the_paper():
    rows = all_rows("table2")
    entries, *_ = SUMMARIES["table2"](rows)
    assert entries.columns == ("attribution", "no penalty", "penalty")
    for name, penalty in itertools.product(paper.METHODS, (False, True)):
        group = [r for r in rows if r["item"]["training"]["penalty"] == penalty]
        text = cells(entries)[TITLES[name], "penalty" if penalty else "no penalty"]
        mean = 100 * np.mean([r["found"]["maps"][name]["entries"] for r in group])
        assert first_number(text) == pytest.approx(mean, abs=0.051)
        theirs = paper.TABLE_2[name, penalty]
        assert text.endswith(f"(paper {theirs.mean} [{theirs.low}, {theirs.high}])")


def test_the_analysis_of_variance_uses_the_balanced_part_alone():
    whole = table_1_rows(made_up, datasets=(0, 1, 2))
    lacking = row(Fit(Data(2, seed=7), HYBRID), lambda *_: 0.0)
    table, *others = SUMMARIES["statistics"]([*whole, lacking])
    expected = anova(observations(single_fits(whole)), FACTORS)
    assert f"F = {expected.f:.1f}," in table.notes[0]
    assert f" {6 * 2 * 3 * 2 * 3} observations" in table.notes[0]
    assert "its own table gives 8.0" in table.notes[0]
    assert len(table.rows) == 16
    for line, effect in zip(table.rows, expected.effects, strict=False):
        assert line[0] == " x ".join(effect.factors)
        assert line[1:4] == (f"{effect.sum_of_squares:.1f}", str(effect.degrees), f"{effect.f:.2f}")
        assert line[5] == f"{paper.ANOVA[effect.factors][2]:.2f}"
    assert table.rows[-1][:3] == ("residual", f"{expected.residual[0]:.1f}", "144")
    order = others[2]
    assert "; 3 recordings, those with every combination" in order.notes[0]


def test_tukeys_table_tells_what_others_lack():
    """Inverted gradients of hybrid fits stand 10 points above all others, with little noise."""

    def scores(item, name, score):
        best = name == "inverted-gradient" and item.training.kind == "hybrid contrastive"
        return (0.9 if best else 0.8) + 1e-3 * (made_up(item, name, score) - 0.775)

    _, by_training, by_penalty, *_ = SUMMARIES["statistics"](table_1_rows(scores))
    assert by_training.title.endswith("against inverted-gradient: hybrid contrastive")
    assert len(by_training.rows) == 6 * 3 - 1
    assert "inverted-gradient: hybrid contrastive" not in [line[0] for line in by_training.rows]
    for _, difference, ends, p, differs in by_training.rows:
        low, high = map(float, ends.strip("[]").split(", "))
        assert float(difference) == pytest.approx(-10, abs=0.1)
        assert low < float(difference) < high < 0
        assert float(p) < 0.05
        assert differs == "yes"
    assert by_training.notes[0].startswith("Difference: the group's mean auROC less that of")
    assert "Of all 153 pairs of groups, 17 differ" in by_training.notes[0]
    assert by_penalty.title.endswith("against inverted-gradient: penalty")
    assert len(by_penalty.rows) == 6 * 2 - 1


def test_the_order_of_combinations_and_its_rank_correlation():
    def scores(item, name, score):
        """The paper's own numbers in steps of 5, but its best comes last."""
        theirs = paper.TABLE_1.get((name, item.training.kind, item.training.penalty))
        if theirs is None or theirs.mean == 98.2:
            return 0.5
        return 5 * round(theirs.mean / 5) / 100

    order = SUMMARIES["statistics"](table_1_rows(scores))[3]
    assert order.title.startswith("The order of trainings and methods")
    assert [line[0] for line in order.rows] == [str(at) for at in range(1, 37)]
    assert order.rows[-1][1:] == (
        "Inverted gradient, our axes, hybrid contrastive, penalty",
        *("50.0", "1", "98.2"),
    )
    assert ("Neuron gradient, supervised, penalty", "95.0", "2", "93.0") in [
        line[1:] for line in order.rows[:2]
    ]
    theirs = [value.mean for value in paper.TABLE_1.values()]
    ours = [50.0 if mean == 98.2 else 5 * round(mean / 5) for mean in theirs]
    # Equal scores share their rank.
    expected = scipy.stats.spearmanr(ours, theirs).statistic
    assert f"Rank correlation {expected:.2f};" in order.notes[0]


def test_one_dataset_or_one_training_makes_no_analysis_of_variance():
    whole = table_1_rows(made_up)
    titles = [t.title for t in SUMMARIES["statistics"](whole)]
    assert len(titles) == 6
    for part in (
        [r for r in whole if r["item"]["data"]["seed"] == 0],
        [r for r in whole if kind_of(r) == ("supervised", True)],
        [r for r in whole if kind_of(r)[0] != "supervised contrastive"],
    ):
        assert [t.title for t in SUMMARIES["statistics"](part)] == titles[4:]
    # One number of latents leaves three factors.
    some = [r for r in whole if r["item"]["data"]["n_hidden"] == 2]
    assert len(SUMMARIES["statistics"](some)[0].rows) == 8


def test_ways_to_sum_up_and_thresholds_are_of_hybrid_fits_with_penalty():
    rows = table_1_rows(made_up)
    aggregates, threshold = SUMMARIES["statistics"](rows)[-2:]
    hybrid = [r["found"] for r in rows if kind_of(r) == ("hybrid contrastive", True)]
    assert len(aggregates.rows) == len(AGGREGATED) * 4
    lines = iter(aggregates.rows)
    for name, way in itertools.product(AGGREGATED, (*AGGREGATES, "single step")):
        title, told, *found = next(lines)
        assert (title, told) == (TITLES[name], way)
        for text, score in zip(found, ("entries", "neurons"), strict=True):
            mean = 100 * np.mean([f["aggregates"][name][way][score] for f in hybrid])
            assert first_number(text) == pytest.approx(mean, abs=0.051)
            assert text.endswith("n=2")
    for name in MAPS:
        for column, score in (("entries", "accuracy"), ("neurons", "accuracy_neurons")):
            mean = 100 * np.mean([f["maps"][name][score] for f in hybrid])
            text = cells(threshold)[TITLES[name], column]
            assert first_number(text) == pytest.approx(mean, abs=0.051)


def test_curves_count_each_recording_once():
    rows = all_rows("latents")
    by_latents, by_length, by_negatives = SUMMARIES["latents"](rows)
    assert [line[0] for line in by_latents.rows] == ["4", "6", "14"]
    assert [line[0] for line in by_length.rows] == ["1,000", "10,000", "100,000"]
    assert [line[0] for line in by_negatives.rows] == ["256", "1,024"]
    # Fits without a batch size of their own have 1,024 too, and are not counted again.
    for n in (256, 1024):
        items = [Fit(Data(4, seed=seed), replace(HYBRID, batch_size=n)) for seed in QUICK.few]
        mean = 100 * np.mean([made_up(item, SPARSE, "entries") for item in items])
        text = cells(by_negatives)[f"{n:,}", TITLES[SPARSE]]
        assert first_number(text) == pytest.approx(mean, abs=0.051)
    group = [made_up(Fit(Data(2, seed=s), HYBRID), SPARSE, "entries") for s in (0, 1)]
    others = [made_up(Fit(Data(2, seed=s), HYBRID), SPARSE, "neurons") for s in (0, 1)]
    text = cells(by_latents)["4", TITLES[SPARSE]]
    assert first_number(text) == pytest.approx(100 * np.mean(group), abs=0.051)
    assert text.endswith(f" n=2 / {100 * np.mean(others):.1f}")
    assert by_latents.rows[0][-1] == "0.970 (0.970)"


def test_dimensions_are_told_in_order():
    rows = all_rows("dimensions")
    time, label, hybrid = SUMMARIES["dimensions"](rows[::-1])
    assert [line[0] for line in time.rows] == [str(n) for n in QUICK.embedding_dims]
    assert [line[0] for line in hybrid.rows] == ["2 + 2", "2 + 3", "3 + 2", "3 + 3"]
    assert all(line[2:] == ("", "", "2") for line in time.rows)
    item = Consistency(Data(3, 3), Training("supervised contrastive", label_dims=6), 2)
    agree = np.mean([made_up(item, "consistency", str(i)) for i in range(2)])
    line = next(line for line in label.rows if line[0] == "6")
    assert first_number(line[1]) == pytest.approx(100 * agree, abs=0.051)
    for text, name in zip(line[2:4], AGGREGATED, strict=True):
        mean = np.mean([made_up(item, name, str(seed)) for seed in range(2)])
        assert text == f"{100 * mean:.1f}"
    assert "peak: 5 to 6" in time.notes[0]
    assert "peak: 2 to 3 each" in hybrid.notes[0]


def test_the_harder_table_has_a_line_for_each_recording():
    rows = all_rows("hard")
    _, *tables = SUMMARIES["hard"](rows)
    assert len(tables) == 4
    for table, (score, observed) in zip(
        tables, itertools.product(("entries", "neurons"), ("z2", "z1")), strict=True
    ):
        assert len(table.rows) == len(HARD)
        assert (TITLES["encoding model"] in table.columns) == (observed == "z2")
        for case in HARD:
            items = [case.fit(observed, seed) for seed in QUICK.few]
            means = {n: np.mean([made_up(i, n, score) for i in items]) for n in MAPS}
            if observed == "z2":
                made = [made_up(Encoding(i.data), "e", score) for i in items]
                means["encoding model"] = np.mean(made)
            for name, mean in means.items():
                text = cells(table)[case.name, TITLES[name]]
                assert first_number(text) == pytest.approx(100 * mean, abs=0.051)
                assert ("**" in text) == (mean >= max(means.values()) - 5e-4)
            assert cells(table)[case.name, "R^2 of label"] == "0.97"
            assert cells(table)[case.name, "warned"] == "0 of 2"
            assert cells(table)[case.name, "n"] == "2"


def test_the_harder_table_in_short_names_every_cell_in_which_the_encoding_model_is_ahead():
    def scores(item, name, score):
        ahead = item.data.noise == 1.0 and score == "entries" and isinstance(item, Encoding)
        return 0.9 if ahead else 0.8 if name == SPARSE else 0.7

    table = SUMMARIES["hard"]([row(item, scores) for item in EXPERIMENTS["hard"](QUICK)])[0]
    assert [line[0] for line in table.rows] == [case.name for case in HARD]
    assert cells(table)["noise 2 s.d.", "z2 observed: ours"] == "80.0 / 80.0"
    assert cells(table)["noise 1 s.d.", "z2 observed: encoding model"] == "90.0 / 70.0"
    assert cells(table)["noise 1 s.d.", "z2 latent: the paper's"] == "70.0 / 70.0"
    assert table.notes[-1].endswith("0.05 or more: noise 1 s.d., entries (90.0 against 80.0).")
    nothing = SUMMARIES["hard"]([])[0]
    assert nothing.rows == ()
    assert nothing.notes[-1].endswith("nowhere.")


def test_the_harder_table_counts_warnings_and_stands_without_fits():
    (case,) = (case for case in HARD if case.changes == {"noise": 1.0})
    _, *only = SUMMARIES["hard"]([row(Encoding(case.fit("z2").data))])
    ((title, *texts),) = only[0].rows
    assert title == case.name == "noise 1 s.d."
    assert texts.count("") == len(MAPS) + 2
    assert texts[len(MAPS)].startswith("**")
    assert texts[-1] == "1"
    assert only[1].rows == ()
    fits = [
        row(case.fit("z2", seed), warnings=["SparseBasisWarning"] * (seed == 1))
        for seed in (0, 1, 2)
    ]
    table = SUMMARIES["hard"](fits)[1]
    assert cells(table)[case.name, "warned"] == "1 of 3"
    assert cells(table)[case.name, TITLES["encoding model"]] == ""


def test_the_papers_recipe_is_told_with_what_it_took():
    item = Fit(Data(4), Training("hybrid contrastive", recipe="paper"))
    (table,) = SUMMARIES["paper-recipe"]([row(item)])
    assert [line[0] for line in table.rows] == [TITLES[name] for name in MAPS]
    for name, line in zip(MAPS, table.rows, strict=True):
        for text, score in zip(line[1:], ("entries", "neurons"), strict=True):
            assert text == f"{100 * made_up(item, name, score):.1f}"
    assert len(table.notes) == 1
    assert "Dataset 0, d = 6: 400 steps, batch 1024, 12 s with 1 threads" in table.notes[0]
    (empty,) = SUMMARIES["paper-recipe"]([])
    assert (empty.rows, empty.notes) == ((), ())


@pytest.mark.parametrize("name", TABLED)
def test_every_part_of_the_work_makes_tables(name):
    for part, rows in parts_of(all_rows(name)).items():
        tables = SUMMARIES[name](rows)
        text = "".join(table.markdown() + table.latex() + table.csv() for table in tables)
        assert not re.search(r"\b(nan|inf)\b", text), part


@pytest.mark.parametrize("name", DRAWN)
def test_every_part_of_the_work_is_drawn(name):
    """Warnings are errors here; layout and text are made as for a file."""
    for part, rows in parts_of(all_rows(name)).items():
        if part.startswith("not "):
            continue
        for figure in FIGURES[name](rows).values():
            if not part.startswith("only "):
                figure.draw_without_rendering()
            texts = [text.get_text() for ax in figure.axes for text in ax.texts]
            assert "nan" not in texts, part
        plt.close("all")


@pytest.mark.parametrize("name", DRAWN)
def test_axes_say_what_they_show(name):
    for title, figure in FIGURES[name](all_rows(name)).items():
        for ax in figure.axes:
            if title == "embedding" or ax.name in ("3d", "polar") or not ax.axison:
                assert ax.get_title()
                continue
            below = ax.get_subplotspec() is None or ax.get_subplotspec().is_last_row()
            words = [t.get_text() for t in ax.get_xticklabels()]
            assert ax.get_xlabel() or not below or any(w.isalpha() for w in words)
            if ax.get_subplotspec() is None:
                continue
            first = ax.get_subplotspec().is_first_col()
            named = any(not t.get_text().isdigit() for t in ax.get_yticklabels() if t.get_text())
            assert ax.get_ylabel() or named or not first


def test_figures_are_written_whole_and_closed(tmp_path):
    figure, ax = plt.subplots()
    ax.plot([1, 2])
    paths = write({"one": figure}, tmp_path, also=("svg",))
    assert [path.name for path in paths] == ["one.png", "one.svg"]
    assert sorted(tmp_path.iterdir()) == sorted(paths)
    assert paths[0].read_bytes().startswith(b"\x89PNG")
    assert "</svg>" in paths[1].read_text(encoding="utf-8")
    assert plt.get_fignums() == []


def test_table_1_is_drawn_where_its_numbers_are():
    rows = table_1_rows(lambda item, name, score: 0.9 if item.training.penalty else 0.7)
    figure = FIGURES["table1"](rows)["table1"]
    for ax, kind in zip(figure.axes, paper.TRAININGS, strict=True):
        assert ax.get_title() == kind
        points = {
            (line.get_marker(), round(line.get_xdata()[0], 6), line.get_ydata()[0])
            for line in ax.lines
            if len(line.get_xdata()) and line.get_marker() in ("o", "x")
        }
        for at, name in enumerate([*paper.METHODS, SPARSE]):
            assert ("o", 90.0, at - 0.16) in points
            assert ("o", 70.0, at + 0.16) in points
            for penalty, shift in ((True, -0.16), (False, 0.16)):
                theirs = paper.TABLE_1.get((name, kind, penalty))
                assert theirs is None or ("x", theirs.mean, at + shift) in points
        assert sum(mark == "x" for mark, *_ in points) == 12


def test_the_grid_of_dimensions_leaves_out_what_is_not_finished():
    rows = all_rows("dimensions")
    grid = [r for r in rows if kind_of(r)[0] == "hybrid contrastive"]
    figure = FIGURES["dimensions"](grid[1:])["dimensions"]
    ax = figure.axes[2]
    shown = {text.get_position(): text.get_text() for text in ax.texts}
    # Time across, label down; (2, 2) is not there.
    assert set(shown) == {(1, 0), (0, 1), (1, 1)}
    item = Consistency(Data(3, 3), replace(HYBRID, label_dims=2, time_dims=3), 2)
    mean = np.mean([made_up(item, "consistency", str(i)) for i in range(2)])
    assert shown[1, 0] == f"{100 * mean:.1f}"
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("time latents", "label latents")


def test_lines_are_drawn_through_the_means():
    rows = all_rows("latents")
    figure = FIGURES["latents"](rows)["latents"]
    levels = ([4, 6, 14], [1_000, 10_000, 100_000], [256, 1024])
    tables = SUMMARIES["latents"](rows)
    for ax, table, expected in zip(figure.axes, tables, levels, strict=False):
        line = ax.lines[0]
        assert list(line.get_xdata()) == expected
        for level, mean in zip(*line.get_data(), strict=True):
            found = first_number(cells(table)[f"{int(level):,}", TITLES[SPARSE]])
            assert mean == pytest.approx(found, abs=0.051)


def test_the_harder_figure_has_a_line_for_each_recording():
    figure = FIGURES["hard"](all_rows("hard"))["hard"]
    names = [text.get_text() for text in figure.axes[0].get_yticklabels()]
    table = SUMMARIES["hard"](all_rows("hard"))[1]
    assert names == [line[0] for line in table.rows]
    for ax, n_maps in zip(figure.axes, (6, 5), strict=True):
        marks = [line for line in ax.lines if line.get_marker() == "o" and len(line.get_xdata())]
        assert len(marks) == n_maps * len(names)
        ticks = [line for line in ax.lines if line.get_marker() == "|"]
        assert all(len(line.get_xdata()) == 2 for line in ticks)


def test_table_3_has_means_over_inits_and_the_papers_values_beside_them():
    rows = [row(item) for item in EXPERIMENTS["table3"](QUICK)]
    table, by_neuron, labels, decoding = SUMMARIES["table3"](rows)
    found = cells(table)["Neuron gradient", "hybrid contrastive, penalty"]
    inits = [
        r["found"]["maps"]["gradient"]["entries"]
        for r in rows
        if r["kind"] == "Fit" and kind_of(r) == ("hybrid contrastive", True)
    ]
    assert len(inits) == QUICK.n_seeds
    assert first_number(found) == pytest.approx(100 * np.mean(inits), abs=0.05)
    assert found.endswith("n=2 (paper 99.0 [97.1, 100.0])")
    plain = cells(table)["Inverted gradient, as in the paper", "supervised, none"]
    assert plain.endswith("(paper 68.4 [66.6, 70.0])")
    assert "paper" not in "".join(by_neuron.rows[0])
    assert labels.columns == ("attribution", "position", "heading", "speed")
    simpler = [
        r["found"]["maps"]["principal components, no label"]["speed"]["neurons"]
        for r in rows
        if r["kind"] == "Simpler"
    ]
    told = cells(labels)["Principal components, no label", "speed"]
    assert first_number(told) == pytest.approx(100 * np.mean(simpler), abs=0.05)
    assert cells(decoding)["linear", "R^2, mean (range)"] == "0.400 (0.400 to 0.400)"


def test_times_stand_beside_the_papers_and_the_peers():
    fits, maps = SUMMARIES["timing"](all_rows("timing"))
    found = dict(zip(fits.columns, fits.rows[-1], strict=True))
    assert found["training"] == "hybrid contrastive, penalty"
    assert (found["fit, paper"], found["map, inverted gradient, paper"]) == ("996", "32.5")
    assert found["fit"] == "50 (50 to 51)"
    assert found["map, Inverted gradient, as in the paper"] == "0.8 (0.8 to 0.8)"
    shown = dict(zip(maps.columns, maps.rows[0], strict=True))
    assert shown["attribution"] == "Inverted gradient, as in the paper"
    assert shown["14 outputs"] == "0.50 / 20.0 (40x)"
    assert shown["paper, 2, 4, 14 outputs"] == "3.7, 9.6, 32.5"


def test_noise_has_a_column_for_each_level():
    tables = SUMMARIES["noise"](all_rows("noise"))
    assert len(tables) == 6
    assert tables[0].columns == ("attribution", "0 s.d.", "0.5 s.d.", "2 s.d.")
