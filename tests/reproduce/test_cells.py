"""Work on simulated and real cells, small but done: from spike times to scores of every cell."""

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from examples.grid_cells import write_recording
from xcebra.cli import app
from xcebra.reproduce.cells import (
    SIMPLER,
    CellTypes,
    Decoding,
    GridPortrait,
    SeveralLabels,
    Simpler,
)
from xcebra.reproduce.measurements import Fit, Training, measure
from xcebra.reproduce.sources import Cells
from xcebra.reproduce.synthetic_figures import FIGURES
from xcebra.reproduce.timing import FitTiming, compare
from xcebra.sweep import key

HYBRID = Training("hybrid contrastive", steps=4)
FEW = Cells(n_cells=8, n_steps=2500, seed=300)
N_GRID, N_OTHER = 14, 6
FULL = ["PATH", "--rat", "s", "--module", "1", "--sha256", "DIGEST"]


@pytest.fixture(scope="module")
def public(tmp_path_factory):
    """A file as the public ones are: grid cells, cells that fire at random, and a rat that runs."""
    path = tmp_path_factory.mktemp("public") / "rat_s_grid_modules_1.npz"
    return write_recording(path, seconds=1800, n_grid=N_GRID, n_other=N_OTHER)


def test_a_control_is_its_cell_moved_in_time(public):
    rec = public.make()
    n = N_GRID + N_OTHER
    assert rec.n_neurons == 2 * n
    assert rec.ground_truth["position"].tolist() == [True] * n + [False] * n
    for cell in range(0, n, 7):
        own, moved = rec.neural[:, cell], rec.neural[:, n + cell]
        assert not np.array_equal(own, moved)
        assert np.array_equal(np.sort(own), np.sort(moved))
        spectra = [np.abs(np.fft.rfft(each.astype(float))) for each in (own, moved)]
        np.testing.assert_allclose(spectra[0], spectra[1], atol=1e-2)
    assert rec.neuron_names[n] == "module 1 cell 0 moved"
    assert len(rec.epochs) > 5


def test_a_recording_is_known_by_what_it_holds_not_by_where_it_lies(public):
    elsewhere = replace(public, path="/elsewhere.npz", rat="S", sha256=public.sha256.upper())
    assert key(Decoding(public, HYBRID)) == key(Decoding(elsewhere, HYBRID))
    assert key(Decoding(public, HYBRID)) != key(Decoding(replace(public, day=1), HYBRID))
    assert public.make().overlap == 0
    fewer = replace(public, conjunctive=(0, 3)).make()
    assert fewer.n_neurons == 2 * (N_GRID + N_OTHER - 2)
    assert "module 1 cell 3" not in fewer.neuron_names


def test_from_spike_times_to_grid_scores_and_a_scatter_plot(public):
    found = json.loads(json.dumps(measure(GridPortrait(public, HYBRID))))
    grid, real = np.array(found["grid_score"]), np.array(found["real"])
    is_grid = np.arange(len(real)) < N_GRID
    assert grid[is_grid].min() > 1.0
    assert np.median(grid[~is_grid]) < 0.4
    assert all(name.startswith("module 1 cell") for name in found["rate_maps"])
    figure = FIGURES["grid-cells"]([{"kind": "GridPortrait", "found": found}])["grid-cells"]
    drawn = figure.axes[-1].lines[0].get_ydata()
    assert sorted(drawn) == sorted(np.array(found["z_scores"]["inverted-gradient"])[real])


@pytest.mark.slow
def test_grid_cells_are_parted_from_their_controls_and_from_other_cells(public):
    """Grid cells have a score for position; controls and cells that fire at random have none."""
    found = measure(GridPortrait(public, Training("hybrid contrastive")))
    real = np.array(found["real"])
    score = np.array(found["z_scores"]["decoder-gradient, sparse"])
    grid, others = score[:N_GRID], np.concatenate([score[N_GRID : len(real) // 2], score[~real]])
    assert np.median(grid) > 1
    assert (grid[:, None] > others).mean() > 0.98


def test_each_label_finds_its_cells_in_one_model():
    found = measure(SeveralLabels(FEW, Training("several labels", steps=60)))
    for label in ("position", "heading", "speed"):
        assert found["maps"]["decoder-gradient, sparse"][label]["neurons"] > 0.95
    assert set(found["maps"]) == {
        "decoder-gradient, sparse",
        "inverted-gradient",
        "inverted-gradient, plain",
    }


def test_simpler_ways_are_scored_for_every_label():
    found = measure(Simpler(FEW))["maps"]
    assert list(found) == list(SIMPLER)
    for label in ("position", "heading", "speed"):
        assert found["encoding model, variance explained"][label]["neurons"] > 0.85
    blind = found["principal components, no label"]
    assert blind["position"]["neurons"] > 0.9 > 0.3 > blind["speed"]["neurons"]


def test_position_is_decoded_on_time_that_was_not_fitted():
    found = measure(Decoding(FEW, HYBRID))
    assert 0 < found["nearest"] <= 1
    assert found["linear"] <= 1


def test_a_portrait_knows_every_cell_by_its_kind():
    found = json.loads(json.dumps(measure(CellTypes(FEW, HYBRID, 2))))
    assert found["kinds"] == [
        k for k in ("place", "grid", "head-direction", "speed") for _ in range(8)
    ]
    classical = {name: np.array(each).reshape(4, 8) for name, each in found["classical"].items()}
    most = {name: int(np.nanmedian(each, axis=1).argmax()) for name, each in classical.items()}
    assert most == {
        "spatial information": 0,
        "grid score": 1,
        "mean vector length": 2,
        "speed score": 3,
    }
    assert found["over_training"]["steps"] == [1, 2, 4]
    assert found["over_time"]["shape"] == [32, 150]


def test_a_fit_to_cells_has_every_map_of_position():
    found = measure(Fit(FEW, Training("supervised contrastive", steps=60), 300))
    assert found["maps"]["gradient"]["neurons"] > 0.9
    assert found["r2"]["label"] < 1


@pytest.mark.filterwarnings("ignore::DeprecationWarning")  # of the peers, when imported
def test_our_time_is_told_beside_the_peers():
    found = compare("gradient", 2)
    assert found["ours_s"] > 0
    if "ratio" in found:
        low, high = found["ratio_range"]
        assert low <= found["ratio"] <= high or low == pytest.approx(high, rel=1)


def test_a_fit_is_timed_with_the_maps_of_all_its_samples():
    found = measure(FitTiming(FEW, HYBRID))
    assert found["fit_s"] > 0
    assert min(found["map_s"].values()) > 0
    assert list(found["map_s"]) == ["decoder-gradient, sparse", "inverted-gradient, plain"]


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ([], "'grid-cells' needs a public recording"),
        (["PATH"], "grid-cells needs PATH, --rat and --module"),
        (["PATH", "--rat", "s", "--module", "1"], "sha256"),
        (["PATH", "--rat", "s", "--module", "9", "--sha256", "DIGEST"], "module"),
        (["PATH", "--rat", "x", "--module", "1", "--sha256", "DIGEST"], "rat must be"),
        ([*FULL, "--quick"], "leave quick out"),
        ([*FULL, *(w for i in range(14) for w in ("--conjunctive", str(i)))], "are too few"),
    ],
)
def test_a_recording_that_cannot_be_used_is_told_before_any_fit(public, tmp_path, given, words):
    known = {"PATH": public.path, "DIGEST": public.sha256}
    asked = ["reproduce", "grid-cells", *(known.get(each, each) for each in given)]
    told = CliRunner().invoke(app, [*asked, "--out", str(tmp_path / "out"), "--quiet"])
    assert told.exit_code == 2
    assert words in told.stderr
    assert not (tmp_path / "out").exists()
    assert not list(Path(tmp_path).iterdir())
