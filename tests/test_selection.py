"""Agreement of several fits: closed forms, with stand-ins for fitted models."""

from types import SimpleNamespace

import matplotlib.pyplot as plt
import numpy as np
import pytest

import xcebra
from xcebra.selection import _fewest_as_good, affine, consistency, select_dimensions

N = 20_000
BLOCKS = {"label": slice(0, 2), "time": slice(2, 5)}


def model(embedding, blocks=BLOCKS):
    """What looks like a fitted model with a known embedding."""
    return SimpleNamespace(blocks_=blocks, transform=lambda X: embedding[X])


def draws(seed, width=5):
    return np.random.default_rng(seed).standard_normal((N, width))


def test_an_affine_image_agrees_fully():
    rng = np.random.default_rng(0)
    z = draws(1)
    mixed = np.zeros((5, 5))
    for block in BLOCKS.values():
        mixed[block, block] = rng.standard_normal(mixed[block, block].shape)
    found = consistency([model(z), model(z @ mixed + rng.standard_normal(5))], slice(None))
    assert list(found) == ["label", "time", "all"]
    for table in found.values():
        np.testing.assert_allclose(table, np.ones((2, 2)), atol=1e-10)


def test_a_mixture_across_blocks_agrees_in_all_latents_alone():
    """Column 0 takes half of its variance from the other block."""
    z = draws(2)
    other = z.copy()
    other[:, 0] = (z[:, 0] + z[:, 3]) / np.sqrt(2)
    found = consistency([model(z), model(other)], slice(None))
    np.testing.assert_allclose(found["all"], 1, atol=1e-10)
    np.testing.assert_allclose(found["label"], [[1, 0.75], [0.75, 1]], atol=0.02)
    np.testing.assert_allclose(found["time"], 1, atol=1e-10)


def test_independent_embeddings_do_not_agree():
    found = consistency([model(draws(seed)) for seed in (3, 4, 5)], slice(None))
    for table in found.values():
        assert table.shape == (3, 3)
        np.testing.assert_allclose(np.diag(table), 1, atol=1e-10)
        assert np.abs(table[~np.eye(3, dtype=bool)]).max() < 0.002


def test_noise_takes_its_known_share():
    """Of s + a e and s + b f either explains 1 / ((1 + a^2)(1 + b^2)) of the other."""
    signal = draws(6)
    levels = (0.0, 0.5, 1.0)
    fits = [model(signal + a * draws(10 + i)) for i, a in enumerate(levels)]
    squares = 1 / (1 + np.square(levels))
    expected = np.outer(squares, squares)
    np.fill_diagonal(expected, 1)
    for table in consistency(fits, slice(None)).values():
        np.testing.assert_allclose(table, expected, atol=0.015)


def test_rows_explain_columns():
    """All of one latent is in the other model's, but not the other way round."""
    z = draws(7, 2)
    whole, half = z, np.column_stack([z[:, 0], z[:, 0] ** 2])
    found = consistency([model(m, {"time": slice(0, 2)}) for m in (whole, half)], slice(None))
    # From z: z0 is explained, its square is not. From z0 and its square: z0 is, z1 is not.
    np.testing.assert_allclose(found["time"], [[1, 0.5], [0.5, 1]], atol=0.01)
    lone = np.column_stack([z[:, 0], 2 * z[:, 0] + 1])
    found = consistency([model(m, {"time": slice(0, 2)}) for m in (whole, lone)], slice(None))
    np.testing.assert_allclose(found["time"], [[1, 1], [0.5, 1]], atol=0.01)


def test_only_the_activity_given_is_compared():
    z = draws(8)
    other = z.copy()
    other[: N // 2] = draws(9)[: N // 2]
    fits = [model(z), model(other)]
    np.testing.assert_allclose(consistency(fits, slice(N // 2, None))["all"], 1, atol=1e-10)
    assert consistency(fits, slice(0, N // 2))["all"][0, 1] < 0.01


def test_affine_is_least_squares_with_an_intercept():
    rng = np.random.default_rng(0)
    source, target = rng.standard_normal((50, 3)), rng.standard_normal((50, 2)) + 4
    found = affine(source.astype(np.float32), target)
    assert found.dtype == np.float64
    rest = target - found
    np.testing.assert_allclose(rest.mean(axis=0), 0, atol=1e-10)
    np.testing.assert_allclose(source.astype(np.float32).T @ rest, 0, atol=1e-5)
    exact = source @ rng.standard_normal((3, 2)) - 7
    np.testing.assert_allclose(affine(source, exact), exact, atol=1e-12)


def test_one_model_is_not_enough():
    for fits in ([], [model(draws(0))]):
        with pytest.raises(ValueError, match=rf"2 or more fitted models.*got {len(fits)}"):
            consistency(fits, slice(None))


def test_models_with_other_blocks_are_refused():
    z = draws(0)
    others = [{"time": slice(0, 5)}, {"label": slice(0, 3), "time": slice(3, 5)}]
    for blocks in others:
        with pytest.raises(ValueError, match=r"models\[2\] has blocks.*only models with the same"):
            consistency([model(z), model(z), model(z, blocks)], slice(None))


def test_models_are_left_as_they_were():
    blocks = dict(BLOCKS)
    consistency([model(draws(0), blocks), model(draws(1), blocks)], slice(None))
    assert blocks == BLOCKS


# Numbers of latents


@pytest.mark.parametrize(
    ("found", "sizes", "expected"),
    [
        ([[0.6, 0.7], [0.99, 0.99], [0.98, 0.98]], [2, 3, 4], 1),  # the peak
        ([[0.6, 0.7], [0.985, 0.985], [0.98, 1.0]], [2, 3, 4], 1),  # within one error of the best
        ([[0.6, 0.7], [0.97, 0.97], [0.98, 1.0]], [2, 3, 4], 2),  # not within it
        ([[0.99, 0.99], [0.9901, 0.9903]], [5, 4], 1),  # fewer and better
        ([[0.98, 0.98], [0.985, 0.985], [0.9, 1.1]], [4, 4, 5], 1),  # of equals, the better
    ],
)
def test_the_fewest_latents_within_one_standard_error_of_the_best(found, sizes, expected):
    assert _fewest_as_good(np.array(found), sizes) == expected


def test_a_search_finds_the_width_of_what_no_label_explains(tmp_path):
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2000, seed=120)
    given = {"label": "z2", "time_dims": (1, 2), "seeds": 2, "jobs": 2, "folder": tmp_path}
    choice = select_dimensions(rec, **given, steps=60, batch_size=256)
    assert choice.time_dims == 2
    assert choice.label_dims is None
    assert choice.mean.argmax() == 1
    assert choice.mean[0] < 0.9
    ax = choice.plot()
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["1", "2"]
    plt.close(ax.figure)
    rows = (tmp_path / "rows.jsonl").read_text()
    again = select_dimensions(rec, **given, steps=60, batch_size=256)
    np.testing.assert_array_equal(again.consistency, choice.consistency)
    assert (tmp_path / "rows.jsonl").read_text() == rows


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"seeds": 1}, "seeds must be a whole number of 2 or more"),
        ({"time_dims": 3}, "time_dims must be a list of candidates, got 3"),
        ({"label_dims": ()}, "label_dims must be a list of candidates"),
        ({"random_state": 3}, "random_state is not for each fit"),
    ],
)
def test_a_search_that_cannot_be_is_refused_before_any_fit(given, words):
    with pytest.raises(ValueError, match=words):
        select_dimensions(np.zeros((50, 3)), **given)
    with pytest.raises(TypeError, match="no_such"):
        select_dimensions(np.zeros((50, 3)), no_such=1)
