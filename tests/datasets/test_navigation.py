"""A simulated rat: cells do what their kind does, and nothing else."""

import sys

import numpy as np
import pytest
from scipy.stats import spearmanr

from xcebra.datasets import navigation

SMALL = {"n_steps": 1200, "n_cells": 10}
PLACE, GRID, HEAD, SPEED = (slice(10 * i, 10 * (i + 1)) for i in range(4))


@pytest.fixture(autouse=True, scope="module")
def cache(tmp_path_factory):
    """Paths are simulated once for the module, away from the user's own."""
    with pytest.MonkeyPatch.context() as patch:
        folder = tmp_path_factory.mktemp("cache") / "not there yet"
        patch.setenv("XCEBRA_CACHE", str(folder))
        yield folder


def test_the_rat_stays_in_its_box_and_its_labels_belong_together():
    rec = navigation(**SMALL)
    position, heading, speed = (rec.labels[name] for name in ("position", "heading", "speed"))
    assert position.shape == heading.shape == (1200, 2)
    assert speed.shape == (1200, 1)
    assert position.min() >= 0
    assert position.max() <= 1
    np.testing.assert_allclose(np.linalg.norm(heading, axis=1), 1)
    steps = np.diff(position, axis=0)
    length = np.linalg.norm(steps, axis=1)
    np.testing.assert_allclose(length / 0.1, speed[1:, 0], rtol=1e-6, atol=1e-9)
    moving = length > 0.005
    towards = (steps / length[:, None] * heading[1:]).sum(axis=1)[moving]
    assert np.median(towards) > 0.8
    np.testing.assert_allclose(np.diff(rec.time), 0.1)


def test_known_wiring_is_that_of_the_kinds():
    rec = navigation(**SMALL)
    assert rec.neural.shape == (1200, 40)
    assert rec.neuron_names[::10] == ("place 0", "grid 0", "head-direction 0", "speed 0")
    found = {name: np.flatnonzero(truth).tolist() for name, truth in rec.ground_truth.items()}
    assert found == {
        "position": list(range(20)),
        "heading": list(range(20, 30)),
        "speed": list(range(30, 40)),
    }


def test_place_cells_are_differences_of_gaussians_around_a_centre():
    rec = navigation(n_steps=6000, n_cells=4)
    position, rates = rec.labels["position"], rec.neural[:, :4].astype(float)

    def field(centre):
        square = ((position - centre) ** 2).sum(axis=1)
        wide = np.exp(-square / (2 * 0.3**2)) / 2.25
        return (np.exp(-square / (2 * 0.2**2)) - wide) * 2.25 / 1.25

    for cell in range(4):
        grid = np.stack(np.meshgrid(*2 * [np.linspace(0, 1, 21)]), axis=-1).reshape(-1, 2)
        errors = [np.abs(field(centre) - rates[:, cell]).max() for centre in grid]
        # A centre lies within 3.6 cm of the grid, where a field 20 cm wide differs by 0.3 at most.
        assert min(errors) < 0.3
        assert np.median(errors) > 0.6


def test_grid_cells_repeat_every_lattice_vector():
    """Where the rat comes back one lattice vector further, a cell of that module fires alike."""
    rec = navigation(n_steps=6000, n_cells=2)
    position, rates = rec.labels["position"], rec.neural[:, 2:4].astype(float)
    for cell, (scale, turn) in enumerate([(0.3, 0.0), (0.4, 0.1)]):
        # Waves with the given spacing run along the axes; the lattice's vectors are longer.
        angle = turn + np.pi / 6
        vector = 2 * scale / np.sqrt(3) * np.array([np.cos(angle), np.sin(angle)])
        away = np.linalg.norm(position[::7, None] + vector - position[None, ::5], axis=2)
        first, second = np.nonzero(away < 0.008)
        assert len(first) > 50
        apart = np.abs(rates[::7, cell][first] - rates[::5, cell][second])
        assert apart.max() < 0.2
        shuffled = np.random.default_rng(0).permutation(second)
        assert np.abs(rates[::7, cell][first] - rates[::5, cell][shuffled]).max() > 0.5


def test_head_direction_cells_fire_most_along_their_direction():
    rec = navigation(**SMALL)
    angle = np.arctan2(*rec.labels["heading"].T[::-1])
    for cell, rates in enumerate(rec.neural[:, HEAD].T):
        preferred = 2 * np.pi * cell / 10
        away = np.abs((angle - preferred + np.pi) % (2 * np.pi) - np.pi)
        assert spearmanr(away, rates)[0] < -0.999


def test_speed_cells_rise_with_speed_each_in_its_own_way():
    rec = navigation(**SMALL)
    speed, rates = rec.labels["speed"][:, 0], rec.neural[:, SPEED].astype(float)
    silent = (rates == 0).mean(axis=0)
    assert np.ptp(silent) > 0.3
    for rate in rates.T:
        firing = rate > 0
        assert speed[firing].min() >= speed[~firing].max(initial=0)
        line = np.polyfit(speed[firing], rate[firing], 1)
        np.testing.assert_allclose(np.polyval(line, speed[firing]), rate[firing], atol=1e-5)
    assert np.unique(np.round(rates.max(axis=0), 4)).size == 10


def test_noise_is_in_units_of_each_neuron():
    clean, noisy = navigation(**SMALL), navigation(**SMALL, noise=0.5)
    added = (noisy.neural - clean.neural).std(axis=0) / clean.neural.std(axis=0)
    np.testing.assert_allclose(added, 0.5, rtol=0.1)


def test_counts_are_poisson_with_the_rates():
    rates = np.maximum(navigation(**SMALL).neural, 0)
    counts = navigation(**SMALL, counts=True, peak_rate=100).neural
    assert (counts == np.round(counts)).all()
    expected = 100 * 0.1 * rates
    excess = (counts - expected) / np.sqrt(np.maximum(expected, 1e-3))
    fired = expected > 0.5
    assert abs(excess[fired].mean()) < 0.05
    assert excess[fired].var() == pytest.approx(1, abs=0.05)
    assert (counts[expected == 0] == 0).all()


def test_a_seed_is_a_recording_and_nobody_elses_numbers_change(cache):
    np.random.seed(3)
    expected = np.random.random()
    np.random.seed(3)
    first = navigation(1, n_steps=50, n_cells=2)
    assert np.random.random() == expected
    kept = list(cache.glob("*-1-50-0.1.npz"))
    assert len(kept) == 1
    again = navigation(1, n_steps=50, n_cells=2)
    kept[0].unlink()
    anew = navigation(1, n_steps=50, n_cells=2)
    other = navigation(2, n_steps=50, n_cells=2)
    for rec in (again, anew):
        np.testing.assert_array_equal(rec.neural, first.neural)
        for name, label in first.labels.items():
            np.testing.assert_array_equal(rec.labels[name], label)
    assert (other.neural != first.neural).any()


def test_a_damaged_file_of_the_cache_is_simulated_again(cache):
    first = navigation(1, n_steps=50, n_cells=2)
    (kept,) = cache.glob("*-1-50-0.1.npz")
    kept.write_bytes(b"no archive")
    np.testing.assert_array_equal(navigation(1, n_steps=50, n_cells=2).neural, first.neural)
    kept.write_bytes(kept.read_bytes()[:-40])
    np.testing.assert_array_equal(navigation(1, n_steps=50, n_cells=2).neural, first.neural)


def test_a_cache_that_cannot_be_written_is_told_before_any_work(tmp_path, monkeypatch):
    (tmp_path / "file").touch()
    monkeypatch.setenv("XCEBRA_CACHE", str(tmp_path / "file" / "cache"))
    monkeypatch.setattr(sys.modules[navigation.__module__], "_agent", None)
    with pytest.raises(ValueError, match=r"cache' cannot be written.*XCEBRA_CACHE"):
        navigation(1, n_steps=50, n_cells=2)


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seed": -1}, "seed.*-1"),
        ({"seed": 2**33}, "seed must be below"),
        ({"n_steps": 1}, "n_steps.*2 or more.*1"),
        ({"n_cells": 2.5}, "n_cells.*whole.*2.5"),
        ({"interval": 0}, "interval.*above 0.*0"),
        ({"noise": -0.1}, "noise.*-0.1"),
        ({"peak_rate": 0}, "peak_rate.*above 0"),
        ({"counts": True, "noise": 1.0}, "either counts=True or noise"),
    ],
)
def test_what_cannot_be_simulated_is_refused_before_work_starts(given, words, monkeypatch):
    monkeypatch.setitem(sys.modules, "ratinabox", None)
    with pytest.raises(ValueError, match=words):
        navigation(**given)


def test_without_the_toolbox_it_says_what_to_install(monkeypatch):
    monkeypatch.setitem(sys.modules, "ratinabox", None)
    with pytest.raises(ImportError, match=r"xcebra\[navigation\]"):
        navigation(n_steps=10)
