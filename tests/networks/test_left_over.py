"""Patterns of activity that the embedding does not hold."""

import numpy as np
import pytest
import torch
from torch import nn

import xcebra
from xcebra.data.recording import Recording
from xcebra.metrics import auroc
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, Inputs
from xcebra.networks.left_over import find_left_over


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def sees(projection):
    """An encoder that shows neurons as they are; a decoder that expects a projection of them."""
    d = len(projection)
    plain = Inputs(np.zeros(d), np.ones(d), np.eye(d))
    reader = Encoder(plain, d, limit=1.0, generator=generator())
    reader.network = nn.Sequential(nn.Identity())
    writer = Decoder(plain, torch.zeros(d), torch.ones(d), generator=generator())
    writer.network = nn.Sequential(nn.Linear(d, d, bias=False))
    with torch.no_grad():
        writer.network[0].weight.copy_(torch.tensor(projection))
    return reader, writer


def ar1(rng, n, memory):
    series = np.zeros(n)
    for t in range(1, n):
        series[t] = memory * series[t - 1] + rng.standard_normal()
    return series / series.std()


def test_what_is_left_over_is_the_share_of_a_shared_and_lasting_pattern():
    rng = np.random.default_rng(0)
    n, d, memory = 20_000, 10, 0.9
    held, missed = ar1(rng, n, memory), ar1(rng, n, memory)
    one, other = np.ones(d), np.r_[np.ones(d // 2), -np.ones(d // 2)]
    x = 2 * held[:, None] * one + missed[:, None] * other
    recording = Recording(x)
    found = find_left_over(*sees(np.outer(one, one) / d), recording, recording.epochs)
    # Of a variance of 4 + 1 in each neuron, one part; its diagonal, a tenth, does not count.
    assert found.share == pytest.approx(memory * (1 - 1 / d) / 5, rel=0.05)
    along = found.directions.numpy()
    assert along.shape == (d, 1)
    np.testing.assert_allclose(np.abs(along[:, 0] @ other) / np.sqrt(d), 1.0, atol=1e-3)
    whole = find_left_over(*sees(np.eye(d)), recording, recording.epochs)
    assert whole.share < 1e-10
    assert whole.directions.shape == (d, 0)


@pytest.mark.parametrize("kind", ["of single samples", "of single neurons"])
def test_noise_is_not_left_over(kind):
    rng = np.random.default_rng(1)
    n, d = 20_000, 10
    if kind == "of single samples":
        x = rng.standard_normal((n, 1)) * np.ones(d) + rng.standard_normal((n, d))
    else:
        x = np.column_stack([ar1(rng, n, 0.5) for _ in range(d)])
    recording = Recording(x)
    found = find_left_over(*sees(np.zeros((d, d))), recording, recording.epochs)
    assert found.share < 0.01
    assert found.directions.shape == (d, 0)


def test_several_patterns_come_largest_first():
    rng = np.random.default_rng(2)
    n, d = 20_000, 30
    axes = np.linalg.qr(rng.standard_normal((d, 3)))[0]
    factors = np.column_stack([ar1(rng, n, 0.9) for _ in range(3)]) * (1.0, 2.0, 1.5)
    recording = Recording(factors @ axes.T * np.sqrt(d))
    found = find_left_over(*sees(np.zeros((d, d))), recording, recording.epochs)
    assert found.directions.shape == (d, 3)
    np.testing.assert_allclose(found.directions.T @ found.directions, np.eye(3), atol=1e-5)
    # Each of them lies mostly along the factor that is next in size.
    overlap = np.abs(found.directions.numpy().T @ axes)
    assert overlap.argmax(axis=1).tolist() == [1, 2, 0]


def test_two_samples_or_fewer_leave_nothing():
    recording = Recording(np.random.default_rng(0).standard_normal((2, 4)))
    found = find_left_over(*sees(np.zeros((4, 4))), recording, recording.epochs)
    assert found.share == 0.0
    assert found.directions.shape == (4, 0)


def test_a_factor_without_a_latent_does_not_make_its_neurons_seem_connected(tmp_path):
    """Two hidden factors, one correlated with the label, and no latent for either."""
    rec = xcebra.datasets.synthetic(
        n_hidden=2, n_observed=2, n_steps=6_000, correlation=0.7, seed=100
    )
    model = xcebra.XCEBRA(time_dims=0, steps=100, batch_size=256, random_state=0, progress=False)
    model.fit(rec, label="z2")
    n_patterns = model.crossed_decoder_.patterns.shape[1]
    assert n_patterns >= 2
    assert model.crossed_decoder_.n_time_latents == 0
    with pytest.warns(xcebra.caveats.MissingFactorWarning):
        amap = model.attribute(rec)
    healed = auroc(amap, rec.ground_truth, block="z2", factor="z2", score="block")
    assert healed > 0.97
    alone = auroc(
        model.attribute(rec, basis="label"),
        rec.ground_truth,
        block="z2",
        factor="z2",
        score="block",
    )
    assert alone < healed
    model.save(tmp_path / "model.safetensors")
    again = xcebra.XCEBRA.load(tmp_path / "model.safetensors").attribute(rec)
    np.testing.assert_array_equal(again.values, amap.values)
