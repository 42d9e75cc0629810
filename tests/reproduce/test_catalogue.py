"""Which work each table and figure is made of: nothing missing, nothing twice, no wrong width."""

import sys
from collections import Counter
from dataclasses import replace

import pytest

from xcebra.reproduce.catalogue import (
    EXPERIMENTS,
    FULL,
    HARD,
    HARD_SAMPLES,
    HYBRID,
    QUICK,
    Scale,
    grid_cells,
)
from xcebra.reproduce.cells import Decoding, GridPortrait, SeveralLabels, Simpler
from xcebra.reproduce.measurements import Consistency, Encoding, Fit, Portrait, Training
from xcebra.reproduce.paper_numbers import TRAININGS
from xcebra.reproduce.run import reproduce
from xcebra.reproduce.sources import Cells, Data, GridCells
from xcebra.reproduce.timing import Timing
from xcebra.sweep import key
from xcebra.training.settings import RECIPES

SHORT = Scale(dims=(4,), datasets=(0,), few=(0,), n_steps=1000, training_steps=5, n_seeds=2)
SCALES = {"full": FULL, "quick": QUICK, "short": SHORT, "10,000": replace(FULL, n_steps=10_000)}


# Those on synthetic factors; the others are on simulated cells.
FACTORS = [name for name in EXPERIMENTS if name not in ("table3", "noise", "cell-types", "timing")]


def made(name, scale=FULL):
    return EXPERIMENTS[name](scale)


def on_data(items):
    return [item for item in items if not isinstance(item, Timing)]


@pytest.mark.parametrize("scale", SCALES.values(), ids=SCALES)
@pytest.mark.parametrize("name", EXPERIMENTS)
def test_no_work_is_done_twice(name, scale):
    items = made(name, scale)
    assert items
    assert max(Counter(map(key, items)).values()) == 1


@pytest.mark.parametrize("name", EXPERIMENTS)
def test_seeds_of_100_and_above_are_kept_for_choosing(name):
    for item in on_data(made(name)):
        assert 0 <= item.data.seed < 100
        if not isinstance(item, Encoding | Simpler):
            assert item.training.seed + getattr(item, "n_seeds", 1) <= 100


@pytest.mark.parametrize("name", FACTORS)
def test_the_factor_attributed_has_the_width_it_should(name):
    for item in made(name):
        data = item.data
        widths = {"z1": data.n_hidden, "z2": data.n_observed}
        if data.observed == "z1":
            widths = {"z1": data.n_observed, "z2": data.n_hidden}
        assert widths["z2"] == (3 if name == "dimensions" else 2)
        assert widths["z1"] == data.n_latents - widths["z2"]
        assert widths["z1"] >= widths["z2"]


def test_what_a_recording_has_is_what_was_asked_for():
    for observed, widths in (("z2", (3, 2)), ("z1", (2, 3))):
        made_of = Data(*widths, observed, n_steps=50).make()
        assert made_of.latents["z1"].shape == (50, 3)
        assert made_of.latents["z2"].shape == (50, 2)
        assert made_of.labels[observed].shape == (50, widths[1])


def test_table_1_has_every_cell_and_three_of_them_in_full():
    items = made("table1")
    cells = {}
    for item in items:
        assert isinstance(item, Fit)
        assert item == Fit(
            Data(item.data.n_hidden, seed=item.data.seed),
            Training(item.training.kind, item.training.penalty),
        )
        cell = cells.setdefault((item.training.kind, item.training.penalty), set())
        cell.add((item.data.n_latents, item.data.seed))
    full = {("hybrid contrastive", True), ("supervised", True), ("supervised", False)}
    assert set(cells) == {(kind, penalty) for kind in TRAININGS for penalty in (True, False)}
    for cell, found in cells.items():
        n = 10 if cell in full else 3
        assert found == {(d, seed) for d in range(4, 10) for seed in range(n)}
    # What matters most comes first.
    assert {(i.training.kind, i.training.penalty) for i in items[:180]} == full
    assert made("statistics") == items


def test_table_2_observes_the_other_factor():
    found = {(i.data.n_latents, i.data.seed, i.training.penalty) for i in made("table2")}
    assert found == {(d, s, p) for d in range(4, 10) for s in range(10) for p in (True, False)}
    for item in made("table2"):
        assert item.data.observed == "z1"
        assert item.training == Training("hybrid contrastive", item.training.penalty)


def test_latents_shares_the_fits_of_table_1():
    rows = {key(item) for item in made("table1")}
    items = made("latents")
    shared = [item for item in items if key(item) in rows]
    assert {(i.training.kind, i.training.penalty) for i in shared} == {
        ("hybrid contrastive", True),
        ("supervised", True),
        ("supervised", False),
    }
    assert len(shared) == 3 * 6 * 10
    rest = [item for item in items if key(item) not in rows]
    single = [item for item in rest if isinstance(item, Fit)]
    assert {i.data.n_latents for i in single} == {6, 14}
    lengths = {i.data.n_steps for i in single}
    assert lengths == {1_000, 10_000, 100_000, 1_000_000}
    assert {i.training.batch_size for i in single} == {None, *FULL.batches}
    portraits = [item for item in rest if isinstance(item, Portrait)]
    assert {(i.data.seed, i.training.penalty) for i in portraits} == {
        (seed, penalty) for seed in FULL.few for penalty in (True, False)
    }
    # The last look is at the model as it ends.
    assert all(RECIPES["xcebra"].steps % i.every == 0 for i in portraits)
    assert len(single) + len(portraits) == len(rest)


def test_dimensions_has_each_width_for_each_training():
    items = made("dimensions")
    assert all(isinstance(i, Consistency) and i.data == Data(3, 3) for i in items)
    assert all(i.n_seeds == 3 for i in items)
    found = {}
    for item in items:
        dims = (item.training.label_dims, item.training.time_dims)
        found.setdefault(item.training.kind, []).append(dims)
    assert set(found["time contrastive"]) == {(None, n) for n in range(2, 11)}
    assert set(found["supervised contrastive"]) == {(n, None) for n in range(2, 11)}
    assert set(found["hybrid contrastive"]) == {(a, b) for a in (2, 3, 4) for b in (2, 3, 4)}
    assert len(items) == 9 + 9 + 9


def test_the_harder_recordings_cover_what_they_should():
    items = made("hard")
    base = Data(4)
    for seed in FULL.few:
        mine = [item for item in items if item.data.seed == seed]
        for observed in ("z2", "z1"):
            fits = [i for i in mine if isinstance(i, Fit) and i.data.observed == observed]
            assert all(i.n_samples == HARD_SAMPLES for i in fits)
            given = [i for i in fits if i.training != HYBRID]
            hidden = given[0].data.n_hidden
            assert [i.training for i in given] == [
                replace(HYBRID, time_dims=hidden + extra) for extra in (-1, 1)
            ]
            assert {i.data.correlation for i in given} == {0.7}
            seen = [i.data for i in fits if i.training == HYBRID]
            for name, levels in (
                ("correlation", {0.0, 0.5, 0.7, 0.9}),
                ("noise", {0.0, 0.5, 1.0, 2.0}),
                ("counts", {False, True}),
                ("n_steps", {1_000, 10_000, 100_000}),
                ("connected", {0.1, 0.5, 0.9}),
                ("n_latents", {6, 9, 14, 20}),
            ):
                # Alone: everything else is as in the base.
                fields = ("correlation", "noise", "counts", "n_steps", "connected", "n_latents")
                alone = {
                    getattr(data, name)
                    for data in seen
                    if all(getattr(data, f) == getattr(base, f) for f in fields if f != name)
                }
                assert alone == levels, name
            both = {(d.correlation, d.noise, d.counts) for d in seen}
            assert {(0.7, 0.5, False), (0.7, 0.0, True)} <= both
            assert {d.connected for d in seen if d.correlation} == {0.5, 0.8, 0.9, 0.95}
        observed_fits = {i.data for i in mine if isinstance(i, Fit) and i.data.observed == "z2"}
        assert {i.data for i in mine if isinstance(i, Encoding)} == observed_fits
    # The two cases with other latents share their recording with a third: one regression for all.
    assert len(items) == 3 * (3 * len(HARD) - 2)


def test_the_papers_recipe_is_run_once_at_full_size():
    assert made("paper-recipe") == [Fit(Data(4), Training("hybrid contrastive", recipe="paper"))]


def test_a_shorter_scale_shortens_everything_but_chosen_lengths():
    for name in FACTORS:
        for item in made(name, SHORT):
            if name not in ("hard", "latents"):
                assert item.data.n_steps == 1000
            assert item.data.n_steps < Data.n_steps or name == "latents"
            assert isinstance(item, Encoding) or item.training.steps == 5
    assert {i.data.n_steps for i in made("hard", SHORT)} == {1_000, 10_000}


def test_table_3_has_every_training_with_inits_and_the_paper_s_widths():
    items = made("table3")
    fits = [item for item in items if isinstance(item, Fit)]
    trained = Counter((i.training.kind, i.training.penalty) for i in fits)
    assert trained == {(kind, p): 3 for kind in TRAININGS for p in (True, False)}
    assert {i.data for i in fits} == {Cells()}
    hybrid = HYBRID.model(Cells())
    assert (hybrid.label_dims, hybrid.time_dims) == (4, 10)
    decoded = [(i.training.seed, i.share) for i in items if isinstance(i, Decoding)]
    assert decoded == [(seed, share) for seed in range(3) for share in (0.4, 0.6, 0.8)]
    several = [i.data.seed for i in items if isinstance(i, SeveralLabels)]
    assert several == [0, 1, 2]


def test_noise_shares_its_first_column_with_table_3():
    levels = Counter(item.data.noise for item in made("noise"))
    assert levels == dict.fromkeys((0.0, 0.1, 0.25, 0.5, 1.0, 2.0), 18)
    fits = {key(item) for item in made("table3") if isinstance(item, Fit)}
    assert fits <= {key(item) for item in made("noise")}


def test_a_shorter_scale_has_fewer_cells_and_less_time():
    small = Scale(n_cells=4, cell_steps=900, training_steps=5, n_seeds=1, few=(0,))
    for name in ("table3", "noise", "cell-types"):
        for item in made(name, small):
            assert (item.data.n_cells, item.data.n_steps) == (4, 900)
            assert isinstance(item, Simpler) or item.training.steps == 5


def test_real_grid_cells_are_fitted_by_every_training_and_shown_once():
    data = GridCells("file", "0" * 64, "s", (1,))
    items = grid_cells(FULL, data)
    assert {item.data for item in items} == {data}
    kinds = [item.training.kind for item in items if isinstance(item, Fit)]
    assert kinds == list(reversed(TRAININGS))
    assert sum(isinstance(item, GridPortrait) for item in items) == 1


def test_timing_runs_alone(monkeypatch, tmp_path):
    asked = {}

    def look(work, items, rows, *, jobs, **options):
        asked[len(items)] = jobs
        raise InterruptedError

    monkeypatch.setattr(sys.modules[reproduce.__module__], "sweep", look)
    for name, given in (("timing", None), ("timing", 2), ("noise", None)):
        with pytest.raises(InterruptedError):
            reproduce(name, tmp_path, jobs=given)
        expected = given or (1 if name == "timing" else None)
        assert asked[len(made(name))] == expected
