"""Latents read without a neuron: what the others predict of it, and that it never finds itself."""

from itertools import product

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from sklearn.linear_model import Ridge

from xcebra.data.recording import Recording
from xcebra.networks import leave_out
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, Inputs, embed
from xcebra.networks.leave_out import LeaveOut, Reader

N, SILENT = 1200, 3


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def population(n_neurons=30, *, rank=3, noise=0.0, seed=0):
    """Neurons that follow a few factors, one of them silent, with an offset and other scales."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((N, rank)) @ rng.standard_normal((rank, n_neurons))
    x = (x + noise * rng.standard_normal(x.shape)) * np.geomspace(0.1, 10, n_neurons) + 3
    x[:, SILENT] = 2.0
    return x


def measured(x, *, epochs=None):
    recording = Recording(x, epochs=epochs)
    inputs = Inputs.measure(recording, recording.epochs, project=False)
    return recording, inputs, LeaveOut.measure(recording, recording.epochs, inputs)


def standardised(recording, inputs):
    return (recording.neural.astype(np.float64) - inputs.mean) * inputs.reciprocal


def encoder(inputs, *, window=1, n_latents=4):
    return Encoder(inputs, n_latents, limit=5.0, window=window, generator=generator())


def without(windows, parted, g, times):
    """Windows of standardised activity in which a group is predicted by the others."""
    predicted = np.empty_like(windows)
    quarter = parted.quarter(times)
    for q in np.unique(quarter):
        predicted[quarter == q] = windows[quarter == q] @ parted.weights(g, q)
    return predicted


def writer(inputs, n_latents=4):
    unit = torch.ones(n_latents)
    return Decoder(inputs, 0 * unit, unit, generator=generator(1))


def latents_without(model, recording, times, parted, block, *, around, patterns=None, decoder=None):
    """As read by a reader that has all of this."""
    if patterns is None:
        patterns = torch.zeros(recording.n_neurons, 0)
    reader = Reader(model, decoder, parted, block, patterns, around)
    return reader.latents(recording, times)


@pytest.mark.parametrize(("n_neurons", "n_groups"), [(1, 1), (7, 7), (16, 16), (17, 5), (42, 5)])
def test_every_neuron_is_left_out_once_and_groups_are_of_one_size(n_neurons, n_groups):
    x = np.random.default_rng(0).standard_normal((50, n_neurons))
    _, _, parted = measured(x)
    assert parted.n_groups == n_groups
    sizes = [len(parted.members(g)) for g in range(n_groups)]
    assert max(sizes) - min(sizes) <= 1
    together = np.concatenate([parted.members(g) for g in range(n_groups)])
    assert sorted(together.tolist()) == list(range(n_neurons))


def test_neurons_that_share_most_are_kept_apart():
    """Pairs of neurons with a factor of their own never lie in one group."""
    rng = np.random.default_rng(0)
    factors = rng.standard_normal((N, 20))
    x = np.repeat(factors, 2, axis=1) + 0.3 * rng.standard_normal((N, 40))
    _, _, parted = measured(x)
    assert parted.n_groups == 5
    pairs = parted.group.reshape(20, 2)
    assert (pairs[:, 0] != pairs[:, 1]).all()
    assert np.bincount(parted.group).tolist() == [8] * 5


def test_groups_follow_the_neurons_whatever_their_order():
    x = population(42, noise=0.5)
    order = np.random.default_rng(3).permutation(42)
    one, other = measured(x)[2].group, measured(x[:, order])[2].group
    together = one[order][:, None] == one[order]
    # A silent neuron shares nothing with anyone and may be anywhere.
    moving = order != SILENT
    np.testing.assert_array_equal(
        (other[:, None] == other)[np.ix_(moving, moving)], together[np.ix_(moving, moving)]
    )


def test_correlations_are_those_of_the_other_quarters_in_double_precision():
    x = population(noise=0.5)
    recording, inputs, parted = measured(x, epochs=[(0, 300), (500, 900)])
    times = np.r_[np.arange(300), np.arange(500, 900)]
    assert parted.borders.tolist() == [175, 550, 725]
    assert parted.quarter(np.array([0, 174, 175, 549, 550, 1199])).tolist() == [0, 0, 1, 1, 2, 3]
    u = standardised(recording, inputs)
    for q in range(4):
        others = u[times[parted.quarter(times) != q]]
        expected = others.T @ others / len(others)
        np.testing.assert_allclose(parted.correlations[q], expected, atol=1e-9)
        assert not parted.correlations[q][SILENT].any()
        assert not parted.correlations[q][:, SILENT].any()


def test_the_others_predict_as_a_ridge_regression_does():
    recording, inputs, parted = measured(population(noise=0.7))
    u = standardised(recording, inputs)
    quarter = parted.quarter(np.arange(N))
    for g, q in product(range(parted.n_groups), range(4)):
        left, kept = parted.members(g), np.flatnonzero(parted.group != g)
        seen = u[quarter != q]
        ridge = Ridge(alpha=leave_out._RIDGE * len(seen), fit_intercept=False)
        ridge.fit(seen[:, kept], seen[:, left])
        imputed = u @ parted.weights(g, q)
        np.testing.assert_allclose(imputed[:, left], ridge.predict(u[:, kept]), atol=1e-7)
        np.testing.assert_array_equal(imputed[:, kept], u[:, kept])


@pytest.mark.parametrize("n_neurons", [8, 42])
def test_one_inverse_gives_the_weights_of_every_group(n_neurons):
    """Projections without a group are those of dense weights, solved for each group on its own."""
    _, _, parted = measured(population(n_neurons, noise=0.5))
    projection = np.random.default_rng(1).standard_normal((n_neurons, 3))
    for q in range(4):
        projections = parted.projected(projection, q)
        correlation = parted.correlations[q]
        for g in range(parted.n_groups):
            own, others = parted.members(g), np.flatnonzero(parted.group != g)
            dense = np.eye(n_neurons)
            dense[:, own] = 0.0
            gram = correlation[np.ix_(others, others)] + leave_out._RIDGE * np.eye(len(others))
            dense[np.ix_(others, own)] = np.linalg.solve(gram, correlation[np.ix_(others, own)])
            np.testing.assert_allclose(projections[g], dense @ projection, atol=1e-9)
            assert not projections[g][own].any()


def test_a_population_without_noise_is_reproduced():
    """Rank 3 in 23 or more neurons: each of the others has eigenvalues of about 8 beside 1e-3."""
    recording, inputs, parted = measured(population())
    u = standardised(recording, inputs)
    for g in range(parted.n_groups):
        assert np.abs(u @ parted.weights(g) - u).max() < 1e-3 * np.abs(u).max()


def test_a_neuron_of_which_the_others_know_nothing_is_replaced_by_its_mean():
    """Exactly orthogonal neurons: the correlations are the identity, and the weights zero."""
    # The same in every quarter, so that they are orthogonal in any three of them.
    x = np.linalg.qr(np.random.default_rng(0).standard_normal((N // 4, 12)))[0]
    x = np.tile(x, (4, 1))
    x -= x.mean(axis=0)
    x = np.linalg.qr(x)[0] * np.sqrt(N)
    _, _, parted = measured(x * np.arange(1, 13) + 5)
    for g in range(12):
        expected = np.eye(12)
        expected[g == parted.group] = 0.0
        np.testing.assert_allclose(parted.weights(g), expected, atol=1e-6)


def test_independent_noise_beside_a_population_is_replaced_by_almost_nothing():
    x = population()
    x[:, 7] = np.random.default_rng(1).standard_normal(N)
    recording, inputs, parted = measured(x)
    imputed = standardised(recording, inputs) @ parted.weights(parted.group[7])
    # Three factors, at N samples each: sqrt(3 / N) by chance.
    assert imputed[:, 7].std() < 2.5 * np.sqrt(3 / N)


def test_neurons_alone_in_the_recording_become_their_mean():
    _, _, parted = measured(np.random.default_rng(0).standard_normal((50, 1)))
    assert parted.weights(0).tolist() == [[0.0]]


@pytest.mark.parametrize("window", [1, 5])
@pytest.mark.parametrize("around", [False, True])
@pytest.mark.parametrize("n_patterns", [0, 2])
def test_a_neuron_never_finds_itself(window, around, n_patterns):
    """Whatever a neuron does, the latents that it is explained by stay the same to the bit."""
    x = population(noise=0.5)
    recording, inputs, parted = measured(x, epochs=[(0, 400), (430, N)])
    model = encoder(inputs, window=window)
    times = recording.epochs.indices()[::3]
    told = (parted, slice(1, 4))
    patterns = torch.randn(30, n_patterns, generator=generator(2))
    how = {"around": around, "patterns": patterns, "decoder": writer(inputs)}
    before = latents_without(model, recording, times, *told, **how)
    assert before.shape[2] == 3 + n_patterns
    own = np.flatnonzero(parted.group == parted.group[11])
    changed = x.copy()
    # Another neuron altogether, in all of its group.
    changed[:, own] = np.random.default_rng(5).standard_normal((N, len(own))) * 30
    moved = Recording(changed, epochs=recording.epochs)
    after = latents_without(model, moved, times, *told, **how)
    same = parted.group[11]
    assert torch.equal(before[same], after[same])
    for g in set(range(parted.n_groups)) - {same}:
        assert (before[g] - after[g]).abs().max() > 1e-2


@pytest.mark.parametrize("window", [1, 4])
def test_latents_are_the_embedding_of_imputed_activity(window):
    recording, inputs, parted = measured(population(noise=0.5), epochs=[(0, 500), (500, N)])
    model = encoder(inputs, window=window).double()
    times = np.array([0, 1, 2, 250, 498, 499, 500, 501, N - 1])
    found = latents_without(model, recording, times, parted, slice(0, 4), around=False)
    u = standardised(recording, inputs)
    rows = recording.epochs.windows(times, window, N)
    for g in range(parted.n_groups):
        imputed = torch.from_numpy(without(u[rows], parted, g, times))
        with torch.no_grad():
            expected = model.network((imputed @ model.loadings).flatten(1))
        assert (found[g] - expected).abs().max() < 1e-6


@pytest.mark.parametrize("window", [1, 4])
def test_patterns_are_what_the_decoder_misses_of_imputed_activity(window):
    recording, inputs, parted = measured(population(noise=0.5), epochs=[(0, 500), (500, N)])
    model, decoder = encoder(inputs, window=window).double(), writer(inputs).double()
    times = np.array([0, 1, 2, 250, 498, 499, 500, 501, N - 1])
    patterns = torch.randn(30, 2, generator=generator(2)).double()
    how = {"around": False, "patterns": patterns, "decoder": decoder}
    found = latents_without(model, recording, times, parted, None, **how)
    u = standardised(recording, inputs)
    rows = recording.epochs.windows(times, window, N)
    for g in range(parted.n_groups):
        imputed = torch.from_numpy(without(u[rows], parted, g, times))
        with torch.no_grad():
            embedding = model.network((imputed @ model.loadings).flatten(1))
            missed = imputed[:, window // 2] - decoder.standardised(embedding)
        assert (found[g] - missed @ patterns).abs().max() < 1e-5


def test_with_nothing_to_leave_out_they_are_the_embedding():
    """A neuron that is silent is alone in its group: without it nothing changes."""
    x = population(8, noise=0.5)
    recording, inputs, parted = measured(x)
    model, times = encoder(inputs), np.arange(0, N, 7)
    found = latents_without(model, recording, times, parted, slice(0, 4), around=False)
    whole = torch.from_numpy(embed(model, recording, times))
    assert (found[parted.group[SILENT]] - whole).abs().max() < 1e-5
    assert (found[parted.group[0]] - whole).abs().max() > 1e-2


def test_around_is_the_mean_of_three_in_the_same_epoch():
    recording, inputs, parted = measured(population(noise=0.5), epochs=[(0, 500), (500, N)])
    model = encoder(inputs, window=3)

    def at(times):
        return latents_without(model, recording, np.array(times), parted, slice(0, 4), around=False)

    found = latents_without(
        model, recording, np.array([100, 0, 499, 500]), parted, slice(0, 4), around=True
    )
    # The nearest windows of three that do not hold the sample lie two before and two after.
    neighbours = recording.epochs.neighbours(np.array([100, 0, 499, 500]), 2, 2)
    expected = (at([100, 0, 499, 500]) + at(neighbours[0]) + at(neighbours[1])) / 3
    assert neighbours[0].tolist() == [98, 2, 497, 502]
    assert (found - expected).abs().max() < 1e-6


@pytest.mark.parametrize("window", [1, 3])
def test_the_number_of_rows_at_once_does_not_matter(window, monkeypatch):
    recording, inputs, parted = measured(population(noise=0.5))
    model, times = encoder(inputs, window=window), np.arange(0, N, 11)
    told = (model, recording, times, parted, slice(2, 4))
    whole = latents_without(*told, around=False)
    monkeypatch.setattr(leave_out, "_ROWS_AT_ONCE", 7)
    assert (latents_without(*told, around=False) - whole).abs().max() < 1e-6
    assert whole.shape == (5, len(times), 2)


def test_of_no_samples_or_no_latents_there_is_nothing():
    recording, inputs, parted = measured(population())
    model = encoder(inputs)
    none = np.empty(0, dtype=np.int64)
    found = latents_without(model, recording, none, parted, slice(1, 4), around=False)
    assert found.shape == (5, 0, 3)
    found = latents_without(model, recording, np.arange(9), parted, slice(0, 0), around=False)
    assert found.shape == (5, 9, 0)


@pytest.mark.parametrize("kind", ["slow", "many"])
def test_independent_neurons_are_not_found_in_what_others_predict_of_them(kind):
    """Slow neurons, or as many as samples, predict each other in the samples measured on."""
    rng = np.random.default_rng(0)
    n, d = (10_000, 50) if kind == "slow" else (1000, 400)
    x = rng.standard_normal((n, d))
    if kind == "slow":
        slow = lfilter([1.0], [1.0, -0.998], x, axis=0)
        x = 0.7 * slow / slow.std(axis=0) + rng.standard_normal((n, d))
    recording, inputs, parted = measured(x)
    u, times = standardised(recording, inputs), np.arange(n)
    for g in range(parted.n_groups):
        own = parted.members(g)
        found = without(u[:, None], parted, g, times)[:, 0][:, own]
        r2 = [np.corrcoef(found[:, k], u[:, i])[0, 1] ** 2 for k, i in enumerate(own)]
        # With weights of the same samples it is 0.11 if they are slow, and 0.33 if they are many.
        assert np.mean(r2) < 0.05
