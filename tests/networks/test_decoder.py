"""The decoder: exact Jacobians, what it learns, when it stops, and shares of variance."""

from unittest import mock

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from torch import nn
from torch.nn import functional as F

from xcebra.data.epochs import Epochs
from xcebra.data.recording import Recording
from xcebra.networks import decoder as decoder_module
from xcebra.networks.decoder import (
    Decoder,
    DecoderConfig,
    Rescale,
    fit_decoder,
    outlasts_samples,
    variance_explained,
)
from xcebra.networks.encoder import Bound, Encoder, Inputs, UnitBlocks
from xcebra.networks.jacobian import jacobian, linearise

UNIT = [slice(0, 2), slice(2, 5)]


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def normal(*shape, seed=0):
    return torch.randn(shape, generator=generator(seed), dtype=torch.float64)


def inputs(n_neurons=9, n_components=6, seed=0):
    rng = np.random.default_rng(seed)
    loadings = np.linalg.qr(rng.standard_normal((n_neurons, n_components)))[0]
    return Inputs(rng.standard_normal(n_neurons), np.geomspace(0.1, 10, n_neurons), loadings)


def decoder(unit_blocks=None):
    centre, spread = normal(5, seed=1).float(), torch.tensor([0.5, 2.0, 1.0, 0.0, 3.0])
    made = Decoder(inputs(), centre, spread, unit_blocks=unit_blocks, generator=generator())
    return made.double()


def by_torch_func(network, z):
    return torch.func.vmap(torch.func.jacrev(lambda row: network(row[None])[0]))(z).detach()


def test_rescaling_is_centring_and_dividing_and_its_slope_is_one_over_the_spread():
    centre, spread = torch.tensor([1.0, -2.0, 5.0]), torch.tensor([0.5, 4.0, 0.0])
    layer, z = Rescale(centre, spread), torch.tensor([[2.0, 2.0, 7.0], [1.0, -2.0, 5.0]])
    # What never varies is centred and left at its scale.
    assert layer(z).tolist() == [[2.0, 1.0, 2.0], [0.0, 0.0, 0.0]]
    assert torch.equal(
        jacobian(layer, z), torch.diag(torch.tensor([2.0, 0.25, 1.0])).expand(2, 3, 3)
    )


@pytest.mark.parametrize("unit_blocks", [None, UNIT, [slice(0, 5)]])
def test_the_jacobian_is_that_of_torch_func(unit_blocks):
    model, z = decoder(unit_blocks), normal(7, 5)
    with torch.no_grad():
        whole, network = jacobian(model, z), jacobian(model.network, z)
    assert (network - by_torch_func(model.network, z)).abs().max() < 1e-12
    assert (whole - by_torch_func(model, z)).abs().max() < 1e-11
    neurons = model.scale[:, None] * (model.loadings @ network)
    assert (whole - neurons).abs().max() < 1e-11


@pytest.mark.parametrize("blocks", [UNIT, [slice(0, 5)]])
def test_on_the_sphere_a_change_of_length_changes_nothing(blocks):
    model, z = decoder(blocks), normal(7, 5)
    stretched = z.clone()
    stretched[:, blocks[0]] *= 3
    assert (model(stretched) - model(z)).abs().max() < 1e-12
    with torch.no_grad():
        rows = jacobian(model.network, z)
    for block in blocks:
        radial = (rows[:, :, block] @ z[:, block, None])[:, :, 0]
        assert radial.abs().max() < 1e-14
    assert rows.abs().max() > 1e-3


def test_as_recorded_is_as_standardised_in_each_neurons_unit():
    model, z = decoder(), normal(7, 5)
    expected = model.standardised(z) * model.scale + model.mean
    assert torch.equal(model(z), expected)
    assert (model.standardised(z) - model.network(z) @ model.loadings.T).abs().max() < 1e-14


NETWORKS = {
    "linear": lambda: (nn.Linear(5, 8),),
    "two linear": lambda: (nn.Linear(5, 8), nn.Linear(8, 3)),
    "gelu": lambda: (nn.Linear(5, 8), nn.GELU(), nn.Linear(8, 9)),
    "approximate gelu": lambda: (nn.GELU(approximate="tanh"), nn.Linear(5, 2)),
    "relu, tanh": lambda: (nn.Linear(5, 8), nn.ReLU(), nn.Linear(8, 9), nn.Tanh()),
    "slopes only": lambda: (nn.Tanh(), nn.Identity(), Bound(0.5)),
    "a slope, then linear": lambda: (nn.Tanh(), nn.Linear(5, 2)),
    "unit blocks": lambda: (UnitBlocks(UNIT), nn.Linear(5, 7), nn.GELU()),
    "unit blocks last": lambda: (nn.Linear(5, 5), UnitBlocks(UNIT)),
    "unit blocks alone": lambda: (UnitBlocks(UNIT),),
    "nested": lambda: (nn.Sequential(nn.Linear(5, 4), nn.Sequential(nn.GELU())), nn.Linear(4, 9)),
    "rescaled": lambda: (Rescale(torch.ones(5), torch.arange(5.0)), nn.Linear(5, 6)),
}


@pytest.mark.parametrize("name", NETWORKS)
def test_pushing_forward_is_the_transpose_of_pulling_back(name):
    torch.manual_seed(0)
    network, z = nn.Sequential(*NETWORKS[name]()).double(), normal(6, 5)
    with torch.no_grad():
        at = linearise(network, z)
        expected = by_torch_func(network, z)
        assert (at.pullback() - expected).abs().max() < 1e-12
        assert (at.pushforward() - expected.mT).abs().max() < 1e-12
        assert (at.jacobian() - expected).abs().max() < 1e-12
        rows, tangents = normal(6, 3, at.output.shape[1], seed=2), normal(6, 4, 5, seed=3)
        assert (at.pullback(rows) - rows @ expected).abs().max() < 1e-12
        assert (at.pushforward(tangents) - tangents @ expected.mT).abs().max() < 1e-12


def test_what_has_no_forward_derivative_says_so_and_is_pulled_back_instead():
    network, z = nn.Sequential(nn.Linear(3, 5), nn.SiLU()).double(), normal(6, 3)
    at = linearise(network, z)
    with pytest.raises(NotImplementedError, match="no forward derivative is known for SiLU"):
        at.pushforward()
    assert (at.jacobian().detach() - by_torch_func(network, z)).abs().max() < 1e-12


def simulated(n_times=1500, *, noise=0.0, unit=False, seed=0):
    """Twelve neurons, one of them silent, that follow three factors; a linear encoder."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_times, 3)) @ rng.standard_normal((3, 12)) + 5
    x += noise * rng.standard_normal(x.shape)
    x[:, 4] = 1.0
    data = Recording(x)
    found = Inputs.measure(data, data.epochs, project=True)
    blocks = [slice(0, 2), slice(2, 3)] if unit else None
    model = Encoder(found, 3, limit=1.0, unit_blocks=blocks, generator=generator())
    n_components = found.loadings.shape[1]
    torch.manual_seed(seed)
    last = [UnitBlocks(blocks)] if unit else []
    model.network = nn.Sequential(nn.Linear(n_components, 3), *last)
    return data, found, model


def fit(data, found, model, *, steps=400, batch_size=256, learning_rate=5e-3, seed=0, cut=0.8):
    at = round(cut * data.n_times)
    training, held_out = (Epochs.check([e], data.n_times) for e in [(0, at), (at, data.n_times)])
    config = DecoderConfig(steps, batch_size, learning_rate, seed)
    return fit_decoder(model, found, data, training, held_out, config), held_out


def test_the_inverse_of_a_linear_encoder_is_learned_with_its_jacobian():
    data, found, model = simulated()
    made, held_out = fit(data, found, model)
    x = torch.from_numpy(data.rows(held_out.indices()))
    with torch.no_grad():
        z = model(x)
        error = (model.standardised(x) - made.standardised(z)).square().mean(dim=0)
        slopes = made.loadings @ jacobian(made.network, z).mean(dim=0)
    active = np.arange(12) != 4
    assert (1 - error.numpy())[active].min() > 0.99
    expected = model.loadings @ torch.linalg.inv(model.network[0].weight.detach())
    assert (slopes - expected).norm() < 0.03 * expected.norm()
    assert not slopes[4].any()
    recorded = made(z)[:, 4].detach()
    assert torch.equal(recorded, torch.ones(len(x)))


def test_unit_blocks_of_the_encoder_are_those_of_its_decoder():
    data, found, model = simulated(300, unit=True)
    made, _ = fit(data, found, model, steps=5)
    assert isinstance(made.network[0], UnitBlocks)
    assert made.network[0].blocks == model.network[-1].blocks


def test_components_that_are_computed_in_every_step_give_the_same_decoder(monkeypatch):
    """Of large recordings, the components of the training samples are not held in memory."""
    case = simulated()
    kept, _ = fit(*case, steps=50)
    monkeypatch.setattr(decoder_module, "_MOST_KEPT", 0)
    computed, _ = fit(*case, steps=50)
    for name, value in computed.state_dict().items():
        torch.testing.assert_close(value, kept.state_dict()[name], rtol=1e-4, atol=1e-5)


def held_out_errors(**options):
    """A decoder that overfits thirty samples, the held-out errors it saw, and that of the end."""
    data, found, model = simulated(330, noise=2.0)
    seen = []

    def spied(*args):
        loss = F.mse_loss(*args)
        seen.append(float(loss))
        return loss

    with mock.patch("xcebra.networks.decoder.F", mock.Mock(mse_loss=spied)):
        made, held_out = fit(data, found, model, cut=30 / 330, batch_size=30, **options)
    with torch.no_grad():
        u = model.components(torch.from_numpy(data.rows(held_out.indices())))
        last = float(F.mse_loss(made.network(model.network(u)), u))
    return seen, last


def test_the_weights_kept_are_the_best_on_held_out_samples_and_the_rest_is_not_waited_for():
    seen, kept = held_out_errors(steps=3000, learning_rate=3e-3)
    assert kept == pytest.approx(min(seen), rel=1e-6)
    assert seen[-1] > 1.1 * kept
    assert len(seen) == int(np.argmin(seen)) + 1 + 5 < 30


def test_the_last_step_is_looked_at_too():
    seen, kept = held_out_errors(steps=130, learning_rate=1e-4)
    assert len(seen) == 2
    assert kept == pytest.approx(min(seen), rel=1e-6)


def test_the_same_seed_gives_the_same_bits_whatever_torch_drew_before():
    data, found, model = simulated(300)
    first, _ = fit(data, found, model, steps=30)
    torch.manual_seed(123)
    again, _ = fit(data, found, model, steps=30)
    other, _ = fit(data, found, model, steps=30, seed=1)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert not torch.equal(first.network[1].weight, other.network[1].weight)


@pytest.mark.parametrize("training", [True, False])
def test_the_encoder_and_torchs_random_state_are_left_alone(training):
    data, found, model = simulated(300)
    model.train(training)
    model.network[0].weight.grad = torch.full_like(model.network[0].weight, 7.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    state = torch.get_rng_state()
    made, held_out = fit(data, found, model, steps=30)
    variance_explained(model, made, data, held_out, {"all of it": slice(0, 3)}, 0)
    assert torch.equal(torch.get_rng_state(), state)
    assert all(part.training == training for part in model.modules())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.network[0].weight.grad.eq(7).all()
    assert model.network[0].bias.grad is None
    assert all(p.requires_grad for p in model.parameters())


# Standardised neurons as sums of three independent factors, the first three each by itself.
WEIGHTS = np.array(
    [[1, 0, 0], [0, 1, 0], [0, 0, 1], [0.6, 0.8, 0], [0.48, 0.64, 0.6], [0, 0, 0], [0, 0.6, 0.8]]
)
BLOCKS = {"first": slice(0, 1), "both": slice(0, 2), "last": slice(2, 3)}


def shared(n_times=4000):
    """A linear decoder that is right but for the last neuron, where it takes half of the truth."""
    rng = np.random.default_rng(0)
    z = np.linalg.qr(rng.standard_normal((n_times, 4)) * [0, 1, 1, 1] + [1, 0, 0, 0])[0][:, 1:]
    x = z * np.sqrt(n_times) @ WEIGHTS.T * 3 + 2
    data = Recording(x)
    found = Inputs.measure(data, data.epochs, project=False)
    model = Encoder(found, 3, limit=1.0, generator=generator())
    model.network = nn.Sequential(nn.Linear(6, 3, bias=False))
    made = Decoder(found, torch.zeros(3), torch.ones(3), generator=generator())
    made.network = nn.Sequential(nn.Linear(3, 6, bias=False))
    weights = np.delete(WEIGHTS, 5, axis=0)
    weights[-1] /= 2
    with torch.no_grad():
        model.network[0].weight.copy_(torch.eye(6)[:3])
        made.network[0].weight.copy_(torch.from_numpy(weights))
    return data, model, made


def test_a_linear_decoders_shares_are_squared_weights_times_variance():
    data, model, made = shared()
    found = variance_explained(model, made, data, data.epochs, BLOCKS, seed=3)
    assert list(found) == ["all", "first", "both", "last"]
    whole = np.ones(7)
    whole[5], whole[6] = 0, 1 - 0.5**2
    np.testing.assert_allclose(found["all"], whole, atol=1e-5)
    weights = WEIGHTS.copy()
    weights[6] /= 2
    other = np.random.default_rng(3).permutation(4000)
    z = np.asarray(model(torch.from_numpy(data.rows(np.arange(4000)))).detach(), dtype=np.float64)
    for name, block in BLOCKS.items():
        # Exactly, for the partners drawn; and in expectation.
        part = z[:, block] @ weights[:, block].T
        np.testing.assert_allclose(
            found[name], np.square(part - part[other]).mean(axis=0) / 2, atol=1e-5
        )
        expected = np.square(weights[:, block]).sum(axis=1)
        np.testing.assert_allclose(found[name], expected, atol=0.06)


def test_a_silent_neuron_has_exactly_nothing_explained():
    data, model, made = shared()
    found = variance_explained(model, made, data, data.epochs, BLOCKS, seed=0)
    assert all(share[5] == 0 for share in found.values())


def test_a_neuron_silent_only_where_it_is_judged_has_exactly_nothing_explained():
    data, model, made = shared()
    x = data.neural.copy()
    x[3000:, 3] = 0.1
    late = Epochs.check([(3000, 4000)], 4000)
    found = variance_explained(model, made, Recording(x), late, BLOCKS, seed=0)
    assert all(share[3] == 0 for share in found.values())
    assert found["all"][0] == pytest.approx(1, abs=1e-5)


def test_blocks_that_work_together_add_up_to_more_than_the_whole():
    data, model, made = shared()

    class Product(nn.Module):
        def forward(self, z):
            return torch.cat([z[:, :1] * z[:, 1:2], torch.zeros(len(z), 5)], dim=1)

    made.network = nn.Sequential(Product())
    blocks = {"a": slice(0, 1), "b": slice(1, 2), "c": slice(2, 3)}
    found = variance_explained(model, made, data, data.epochs, blocks, seed=0)
    # The product of independent standard normals has variance one: all of it is due to each.
    assert found["a"][0] == pytest.approx(1, abs=0.15)
    assert found["b"][0] == pytest.approx(1, abs=0.15)
    assert found["c"][0] == 0


def slow_reading(memory, n_times=20_000, seed=0):
    """A factor drives neuron 0, noise drives both, and the encoder reads their sum."""
    rng = np.random.default_rng(seed)
    z = lfilter([np.sqrt(1 - memory**2)], [1.0, -memory], rng.standard_normal(n_times))
    x = np.column_stack([z, np.zeros(n_times)]) + 0.5 * rng.standard_normal((n_times, 2))
    data = Recording(x)
    found = Inputs.measure(data, data.epochs, project=False)
    model = Encoder(found, 1, limit=1.0, generator=generator())
    model.network = nn.Sequential(nn.Linear(2, 1))
    with torch.no_grad():
        # By raw neurons: their sum, so that its slopes are easy to work out.
        model.network[0].weight.copy_(torch.tensor(found.scale[None]))
    return data, found, model


def slopes(data, found, model):
    made, held_out = fit(data, found, model)
    with torch.no_grad():
        z = model(torch.from_numpy(data.rows(held_out.indices())))
        z = z[(z - z.mean()).abs()[:, 0] < z.std()]
        return (made.loadings @ jacobian(made.network, z).mean(dim=0))[:, 0] * made.scale


def test_a_neurons_own_noise_has_no_part_in_what_it_is_predicted_from():
    # Own sample: the reading z + e0 + e1 has variance 1.5, of which the noise neuron's own is 0.25.
    data, found, model = slow_reading(0.99)
    assert outlasts_samples(model, data, data.epochs)
    assert slopes(data, found, model)[1].abs() < 0.02
    with mock.patch("xcebra.networks.decoder.outlasts_samples", return_value=False):
        own = slopes(data, found, model)
    assert own[1] == pytest.approx(0.25 / 1.5, abs=0.02)
    assert own[0] == pytest.approx(1.25 / 1.5, abs=0.03)


def test_the_slope_from_both_neighbours_is_that_of_the_regression_on_their_mean():
    data, found, model = slow_reading(0.99)
    # The mean of two readings around: covariance 0.99 with z, variance (1 + 0.99^2) / 2 + 0.5 / 2.
    expected = 0.99 / ((1 + 0.99**2) / 2 + 0.25)
    assert slopes(data, found, model)[0] == pytest.approx(expected, abs=0.03)


@pytest.mark.parametrize(("memory", "expected"), [(0.99, True), (0.95, True), (0.6, False)])
def test_noise_does_not_decide_whether_an_embedding_lasts(memory, expected):
    data, _, model = slow_reading(memory)
    assert outlasts_samples(model, data, data.epochs) is expected


def test_what_is_new_at_every_sample_or_too_short_to_tell_does_not_last():
    data, _, model = slow_reading(0.0)
    assert not outlasts_samples(model, data, data.epochs)
    data, _, model = slow_reading(0.99)
    pairs = Epochs.check([(a, a + 2) for a in range(0, 1000, 2)], data.n_times)
    assert not outlasts_samples(model, data, pairs)
    assert not outlasts_samples(model, data, Epochs.check([(0, 30)], data.n_times))
