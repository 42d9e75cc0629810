"""What two decoders explain on held-out time, against the same by hand."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from crossed_case import NEURONS, N, case, plain, rows_of

from xcebra.attribution.crossed_explained import variance_explained
from xcebra.data.recording import Recording
from xcebra.networks.crossed_decoder import halves


def explained_case(n=N):
    """Neurons that are what the first decoder expects, for one; of others nothing is true."""
    source = case("position", n=n)
    weights = np.random.default_rng(2).standard_normal((2, NEURONS, 4)) * 0.4
    for k in range(2):
        source.decoder.members[k] = plain(weights[k])
    return source


def test_each_decoder_explains_the_stretches_of_the_other():
    source = explained_case()
    found = variance_explained(source, np.arange(N), {"position": slice(0, 2)}, 0)["all"]
    x = source.recording.neural.astype(np.float64)
    u = (x - x.mean(axis=0)) / x.std(axis=0)
    half = halves(N)
    for neuron in range(NEURONS):
        rows = rows_of(source, neuron, np.arange(N))
        with torch.no_grad():
            both = [m.double()(rows)[:, neuron].numpy() for m in source.decoder.members]
        held_out = np.where(half == 0, both[1], both[0])
        missed = np.square(u[:, neuron] - held_out).mean() / u[:, neuron].var()
        assert found[neuron] == pytest.approx(1 - missed, abs=1e-4)


def test_shares_of_blocks_are_half_the_mean_product_of_exchanges():
    source = explained_case()
    blocks = {"position": slice(0, 2), "time": slice(2, 4)}
    found = variance_explained(source, np.arange(N), blocks, seed=3)
    other = np.random.default_rng(3).permutation(N)
    weights = [m[0].weight.detach().double().numpy() for m in source.decoder.members]
    for name, columns in blocks.items():
        for neuron in range(NEURONS):
            rows = rows_of(source, neuron, np.arange(N)).numpy()[:, columns]
            changes = [(rows[other] - rows) @ w[neuron, columns] for w in weights]
            expected = (changes[0] * changes[1]).mean() / 2
            assert found[name][neuron] == pytest.approx(expected, abs=1e-4)
    # Decoders that have nothing in common explain nothing, on either side of zero.
    both = np.concatenate([found["position"], found["time"]])
    assert (both < 0).any()
    assert (both > 0).any()


def test_a_silent_neuron_has_exactly_nothing_explained():
    source = explained_case()
    x = source.recording.neural.copy()
    x[:, 1] = 3.0
    silent = replace(source, recording=Recording(x))
    source.encoder.reciprocal[1] = 0.0
    found = variance_explained(silent, np.arange(N), {"position": slice(0, 2)}, 0)
    assert all(share[1] == 0 for share in found.values())
