"""Attribution maps of encoders: closed forms for linear ones, by brute force for others."""

import numpy as np
import pytest
import torch
from torch import nn

from xcebra.attribution.engine import make_map, view_of_model
from xcebra.attribution.request import MapRequest, Names
from xcebra.data.recording import Recording
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, Inputs, UnitBlocks
from xcebra.networks.jacobian import RELATIVE_CUTOFF

BLOCKS = {"position": slice(0, 2), "time": slice(2, 3)}
NAMES = ("position0", "position1", "time0")
SILENT = 4


def recording(n_times=60, n_neurons=8, seed=0):
    """Activity with a silent neuron, and standard deviations from 0.1 to 10."""
    rng = np.random.default_rng(seed)
    x = rng.standard_normal((n_times, n_neurons)) * np.geomspace(0.1, 10, n_neurons) + 1
    x[:, SILENT] = 2.0
    return Recording(x)


def encoder(data, network=None, *, project=True, seed=0):
    """An encoder of three latents, with a network of its own if none is given."""
    inputs = Inputs.measure(data, data.epochs, project=project)
    generator = torch.Generator().manual_seed(seed)
    model = Encoder(inputs, 3, limit=2.0, generator=generator)
    if network is not None:
        model.network = network
    return model


def linear(n_inputs=7, seed=0):
    torch.manual_seed(seed)
    return nn.Sequential(nn.Linear(n_inputs, 3))


def bent(seed=0, bias=0.0, size=2.0):
    """A network whose Jacobian changes from sample to sample."""
    torch.manual_seed(seed)
    network = nn.Sequential(nn.Linear(7, 12), nn.Tanh(), nn.Linear(12, 3))
    with torch.no_grad():
        network[0].weight.mul_(2)
        network[2].weight.mul_(size)
        network[2].bias.add_(bias)
    return network


def make(model, data, times=None, *, units="standardised", basis=None, **options):
    times = np.arange(data.n_times) if times is None else times
    options = MapRequest(**{"method": "inverted-gradient", "axes": basis, **options})
    return make_map(
        view_of_model(model, decoder(data), options.method, units),
        lambda t: torch.from_numpy(data.rows(t)),
        times,
        Names(data.neuron_names, NAMES, BLOCKS),
        options,
    )


def decoder(data, seed=0):
    """A decoder with weights as drawn."""
    inputs = Inputs.measure(data, data.epochs, project=True)
    generator = torch.Generator().manual_seed(seed)
    return Decoder(inputs, torch.zeros(3), torch.ones(3), generator=generator)


def by_brute_force(
    model,
    data,
    times,
    *,
    method="inverted-gradient",
    smooth=1,
    basis=None,
    units="standardised",
    aggregate="mean",
):
    """The same map, one sample at a time in float64, over neurons instead of components."""
    loadings, scale = model.loadings.double().numpy(), model.scale.double().numpy()
    with torch.no_grad():
        u = model.components(torch.from_numpy(data.rows(times)))
        z = model.network(u).double().numpy()
    network = model.network.double()
    jacobians = [
        torch.func.jacrev(lambda row: network(row[None])[0])(row).detach().numpy() @ loadings.T
        for row in u.double()
    ]
    network.float()
    maps = []
    for i in range(len(times)):
        near = np.argsort(np.square(z - z[i]).sum(axis=1), kind="stable")[:smooth]
        rows = np.mean([jacobians[j] for j in near], axis=0)
        rows = rows if basis is None else basis @ rows
        if method == "gradient":
            found = rows.T
            factor = np.divide(1, scale, out=np.zeros_like(scale), where=scale > 0)
        else:
            found = np.linalg.pinv(rows, rcond=RELATIVE_CUTOFF)
            factor = scale
        maps.append(found * factor[:, None] if units == "raw" else found)
    combine = {"mean": np.mean, "max": np.max, "sum": np.sum}[aggregate]
    values = combine(np.abs(maps), axis=0)
    scores = {
        name: combine([np.linalg.norm(each[:, b], axis=1) for each in maps], axis=0)
        for name, b in BLOCKS.items()
    }
    return values, scores


def assert_map(found, expected, rtol=1e-4):
    values, scores = expected
    np.testing.assert_allclose(found.values, values, rtol=rtol, atol=rtol * values.max())
    assert list(found.scores) == list(scores)
    for name, score in scores.items():
        np.testing.assert_allclose(found.block(name), score, rtol=rtol, atol=rtol * score.max())


def linear_jacobian(model):
    """``W P^T``: the Jacobian of a linear encoder by standardised neurons."""
    weight = model.network[0].weight.detach().double().numpy()
    return weight @ model.loadings.double().numpy().T


@pytest.mark.parametrize("project", [True, False])
def test_a_linear_encoder_has_the_pseudo_inverse_of_its_weights_as_map(project):
    data = recording()
    model = encoder(data, linear(), project=project)
    found = make(model, data)
    expected = np.linalg.pinv(linear_jacobian(model))
    np.testing.assert_allclose(found.values, np.abs(expected), atol=1e-5)
    for name, block in BLOCKS.items():
        norms = np.linalg.norm(expected[:, block], axis=1)
        np.testing.assert_allclose(found.block(name), norms, atol=1e-5)
    assert found.made["rank_lost"] == 0
    condition = np.linalg.cond(linear_jacobian(model))
    assert found.made["condition_median"] == pytest.approx(condition, rel=1e-4)
    assert found.made["condition_worst"] == pytest.approx(condition, rel=1e-4)


def test_a_linear_encoder_has_its_weights_as_gradient_map():
    data = recording()
    model = encoder(data, linear())
    found = make(model, data, method="gradient")
    np.testing.assert_allclose(found.values, np.abs(linear_jacobian(model)).T, atol=1e-6)
    assert "condition_median" not in found.made


def test_raw_units_multiply_the_inverse_and_divide_the_gradient_by_the_scale():
    data = recording()
    model = encoder(data, linear())
    scale = model.scale.double().numpy()
    jacobian = linear_jacobian(model)
    inverse = make(model, data, units="raw")
    expected = scale[:, None] * np.abs(np.linalg.pinv(jacobian))
    np.testing.assert_allclose(inverse.values, expected, rtol=1e-4, atol=1e-6)
    gradient = make(model, data, units="raw", method="gradient")
    active = scale > 0
    expected = np.abs(jacobian.T[active]) / scale[active, None]
    np.testing.assert_allclose(gradient.values[active], expected, rtol=1e-4, atol=1e-6)


def test_new_axes_are_applied_before_inverting():
    data = recording()
    model = encoder(data, linear())
    basis = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 0.0], [0.0, 0.3, 2.0]])
    found = make(model, data, basis=basis)
    expected = np.linalg.pinv(basis @ linear_jacobian(model))
    np.testing.assert_allclose(found.values, np.abs(expected), atol=1e-5)


@pytest.mark.parametrize("method", ["inverted-gradient", "gradient"])
def test_block_scores_do_not_depend_on_a_rotation_inside_the_block(method):
    data = recording()
    model = encoder(data, bent())
    turn = np.eye(3)
    turn[:2, :2] = [[np.cos(1), -np.sin(1)], [np.sin(1), np.cos(1)]]
    plain, turned = (make(model, data, method=method, basis=b) for b in (None, turn))
    assert np.abs(plain.values - turned.values).max() > 0.01
    for name in BLOCKS:
        np.testing.assert_allclose(turned.block(name), plain.block(name), rtol=1e-3)


@pytest.mark.parametrize("aggregate", ["mean", "max", "sum"])
@pytest.mark.parametrize("method", ["inverted-gradient", "gradient"])
@pytest.mark.parametrize("units", ["standardised", "raw"])
def test_a_nonlinear_map_equals_a_loop_over_samples(units, method, aggregate):
    data = recording()
    model = encoder(data, bent())
    times = np.arange(60)[::2]
    options = {"method": method, "aggregate": aggregate, "units": units}
    assert_map(make(model, data, times, **options), by_brute_force(model, data, times, **options))


def test_the_encoders_own_network_is_mapped_as_by_a_loop():
    data = recording()
    model = encoder(data)
    assert_map(make(model, data), by_brute_force(model, data, np.arange(60)), rtol=1e-3)


@pytest.mark.parametrize("smooth", [1, 2, 5, 60, 1000])
def test_smoothing_averages_over_the_nearest_in_the_embedding(smooth):
    data = recording()
    model = encoder(data, bent())
    basis = np.diag([1.0, 2.0, 0.5])
    times = np.arange(60)
    found = make(model, data, smooth=smooth, basis=basis)
    assert_map(found, by_brute_force(model, data, times, smooth=smooth, basis=basis))
    assert found.made["smooth"] == smooth


def test_smoothing_finds_the_nearest_wherever_the_embedding_sits():
    data = recording(n_times=200)
    model = encoder(data, bent(bias=30.0, size=0.05))
    times = np.arange(200)
    assert_map(make(model, data, smooth=4), by_brute_force(model, data, times, smooth=4))


@pytest.mark.parametrize("smooth", [1, 5])
@pytest.mark.parametrize("aggregate", ["mean", "max", "sum"])
def test_the_size_of_a_batch_changes_nothing(aggregate, smooth):
    data = recording()
    model = encoder(data, bent())
    whole = make(model, data, smooth=smooth, aggregate=aggregate)
    parts = make(model, data, smooth=smooth, aggregate=aggregate, batch_size=7)
    assert_map(parts, (whole.values, whole.scores), rtol=1e-5)
    assert parts.made["condition_worst"] == pytest.approx(whole.made["condition_worst"], rel=1e-4)


def test_neighbours_are_sought_in_interleaved_parts_of_a_long_recording(monkeypatch):
    data = recording()
    model = encoder(data, bent())
    alone = make(model, data)
    monkeypatch.setattr("xcebra.attribution.engine._CHUNK", 25)
    assert_map(make(model, data), (alone.values, alone.scores), rtol=1e-5)
    # 60 samples in parts of at most 25: three, each a third of the samples from end to end.
    parts = [by_brute_force(model, data, np.arange(60)[i::3], smooth=4) for i in range(3)]
    expected = np.mean([values for values, _ in parts], axis=0)
    np.testing.assert_allclose(make(model, data, smooth=4).values, expected, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize("method", ["inverted-gradient", "gradient"])
@pytest.mark.parametrize("units", ["standardised", "raw"])
@pytest.mark.parametrize("smooth", [1, 5])
@pytest.mark.parametrize("project", [True, False])
def test_a_silent_neuron_scores_exactly_zero(project, smooth, units, method):
    data = recording()
    model = encoder(data, project=project)
    found = make(model, data, method=method, units=units, smooth=smooth)
    assert not found.values[SILENT].any()
    assert np.isfinite(found.values).all()
    for name in BLOCKS:
        assert found.block(name)[SILENT] == 0
        assert (np.delete(found.block(name), SILENT) > 0).all()


def test_lost_ranks_are_counted_and_the_map_does_not_explode():
    data = recording()
    network = nn.Sequential(*bent(), UnitBlocks(list(BLOCKS.values())))
    found = make(encoder(data, network), data)
    assert found.made["rank_lost"] == 1
    assert found.made["condition_worst"] < 1 / RELATIVE_CUTOFF
    assert_map(found, by_brute_force(encoder(data, network), data, np.arange(60)), rtol=1e-3)


def test_a_map_says_how_it_was_made():
    data = recording()
    found = make(encoder(data), data, np.arange(40), aggregate="max")
    told = {name: found.made[name] for name in ("method", "smooth", "aggregate", "n_samples")}
    assert told == {
        "method": "inverted-gradient",
        "smooth": 1,
        "aggregate": "max",
        "n_samples": 40,
    }
    assert found.neuron_names == data.neuron_names
    assert found.latent_names == NAMES
    assert "8 neurons x 3 latents, blocks {position: 2, time: 1}" in repr(found)


def test_making_a_map_leaves_no_trace_on_the_encoder():
    data = recording()
    model = encoder(data)
    model.train()
    before = {name: value.clone() for name, value in model.state_dict().items()}
    make(model, data, smooth=3)
    assert model.training
    assert all(p.requires_grad and p.grad is None for p in model.parameters())
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
