"""The measured input map against numpy, and the encoder behind it."""

import numpy as np
import pytest
import torch
from torch import nn

from xcebra.data.epochs import Epochs
from xcebra.data.recording import Recording
from xcebra.networks import encoder as encoder_module
from xcebra.networks.encoder import Bound, Encoder, Inputs, NetworkInputs, UnitBlocks, embed


def activity(n_times=400, n_neurons=6, seed=0):
    """Correlated activity with different means and scales; float32, as recordings keep it."""
    rng = np.random.default_rng(seed)
    mixing = rng.standard_normal((n_neurons, n_neurons)) + 2 * np.eye(n_neurons)
    scale = np.geomspace(0.01, 100, n_neurons)
    x = rng.standard_normal((n_times, n_neurons)) @ mixing * scale + 3 * scale
    return x.astype(np.float32)


def measure(x, epochs=None, project=True):
    recording = Recording(x, epochs=epochs)
    return Inputs.measure(recording, recording.epochs, project=project)


def encoder(x, n_latents=3, limit=2.0, seed=0, **options):
    generator = torch.Generator().manual_seed(seed)
    return Encoder(measure(x), n_latents, limit=limit, generator=generator, **options)


def assert_measured(inputs, x):
    """Mean, scale and components are numpy's, of these samples."""
    x = np.asarray(x, dtype=np.float64)
    np.testing.assert_allclose(inputs.mean, x.mean(axis=0), rtol=1e-12)
    np.testing.assert_allclose(inputs.scale, x.std(axis=0), rtol=1e-9)
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    values = np.linalg.svd(z / np.sqrt(len(z)), compute_uv=False) ** 2
    n = inputs.loadings.shape[1]
    components = z @ inputs.loadings
    covariance = components.T @ components / len(z)
    # Uncorrelated, of the greatest variances there are, in falling order: principal components.
    np.testing.assert_allclose(covariance, np.diag(values[:n]), atol=1e-9 * values[0])
    np.testing.assert_allclose(inputs.loadings.T @ inputs.loadings, np.eye(n), atol=1e-12)


def test_mean_scale_and_components_equal_numpy():
    x = activity()
    inputs = measure(x)
    assert inputs.loadings.shape == (6, 6)
    assert_measured(inputs, x)


def test_without_projection_the_components_are_the_neurons():
    inputs = measure(activity(), project=False)
    assert np.array_equal(inputs.loadings, np.eye(6))
    expected = activity().astype(np.float64).std(axis=0)
    np.testing.assert_allclose(inputs.scale, expected, rtol=1e-9)


def test_samples_outside_the_epochs_are_not_measured():
    x = activity()
    epochs = [(10, 120), (121, 122), (300, 390)]
    inside = np.concatenate([x[a:b] for a, b in epochs])
    outside = np.ones(len(x), dtype=bool)
    for a, b in epochs:
        outside[a:b] = False
    x[outside] = 1e9
    assert_measured(measure(x, epochs), inside)


@pytest.mark.parametrize("rows", [1, 7, 64])
def test_measuring_in_chunks_changes_nothing(rows, monkeypatch):
    monkeypatch.setattr("xcebra.data.recording._CHUNK_BYTES", rows * 6 * 8)
    x = activity()
    assert_measured(measure(x, [(0, 100), (150, 400)]), np.concatenate([x[:100], x[150:]]))


def test_a_file_of_integers_is_measured_as_it_is(tmp_path):
    x = np.random.default_rng(0).poisson(3.0, size=(500, 4)).astype(np.int16)
    stored = np.memmap(tmp_path / "x.dat", dtype=np.int16, mode="w+", shape=x.shape)
    stored[:] = x
    assert_measured(measure(stored), x)


@pytest.mark.parametrize("spread", [20.0, 0.5])
def test_a_large_offset_costs_no_digits(spread):
    x = (1e6 + spread * np.random.default_rng(0).standard_normal((2000, 5))).astype(np.float32)
    assert len(np.unique(x[:, 0])) > 20
    inputs = measure(x)
    assert len(inputs.silent) == 0
    assert_measured(inputs, x)


def test_a_first_sample_far_from_all_others_costs_no_digits():
    x = activity()
    x[0] += 1000 * x.std(axis=0)
    assert_measured(measure(x), x)


@pytest.mark.parametrize("constant", [0.0, 0.1, -1e6])
@pytest.mark.parametrize("project", [True, False])
def test_silent_neurons_have_scale_and_loadings_of_exactly_zero(project, constant):
    x = activity()
    x[:, [1, 4]] = constant
    inputs = measure(x, project=project)
    assert inputs.silent.tolist() == [1, 4]
    assert np.array_equal(inputs.scale == 0, [False, True, False, False, True, False])
    assert not inputs.loadings[[1, 4]].any()
    assert inputs.loadings.shape == (6, 4)
    np.testing.assert_allclose(inputs.loadings.T @ inputs.loadings, np.eye(4), atol=1e-12)
    np.testing.assert_allclose(inputs.mean[[1, 4]], constant, rtol=1e-7)


def test_a_neuron_that_changes_only_outside_the_epochs_is_silent():
    x = activity()
    x[:200, 2] = 5.0
    assert measure(x, [(0, 200)]).silent.tolist() == [2]


def test_a_neuron_that_changes_once_is_not_silent():
    x = np.ones((10_000, 2), dtype=np.float32)
    x[5000, 0] = 2.0
    inputs = measure(x)
    assert inputs.silent.tolist() == [1]
    np.testing.assert_allclose(inputs.scale[0], x[:, 0].astype(np.float64).std(), rtol=1e-9)


@pytest.mark.parametrize("rank", [1, 3, 5])
def test_there_are_as_many_components_as_the_data_has_dimensions(rank):
    rng = np.random.default_rng(rank)
    x = rng.standard_normal((500, rank)) @ rng.standard_normal((rank, 20)) + 5
    inputs = measure(x)
    assert inputs.loadings.shape == (20, rank)
    # Float32 data leaves the subspace by rounding only.
    z = (x - x.mean(axis=0)) / x.std(axis=0)
    np.testing.assert_allclose(z @ inputs.loadings @ inputs.loadings.T, z, atol=1e-5)


def test_fewer_samples_than_neurons_leave_one_component_less_than_samples():
    x = np.random.default_rng(0).standard_normal((8, 20))
    assert measure(x).loadings.shape == (20, 7)


def test_the_network_sees_standardised_components():
    x = activity()
    model = encoder(x)
    inputs = measure(x)
    found = model.components(torch.from_numpy(x)).numpy()
    expected = (x - inputs.mean) / inputs.scale @ inputs.loadings
    np.testing.assert_allclose(found, expected, atol=1e-4)


def test_forward_is_the_network_of_the_components():
    x = torch.from_numpy(activity())
    model = encoder(x.numpy())
    assert torch.equal(model(x), model.network(model.components(x)))


def test_what_a_silent_neuron_does_later_changes_nothing():
    x = activity()
    x[:, 3] = 1.0
    model = encoder(x)
    before = model(torch.from_numpy(x))
    x[:, 3] = 1e4
    assert torch.equal(model(torch.from_numpy(x)), before)


@pytest.mark.parametrize("limit", [0.5, 2.0])
def test_outputs_never_pass_the_bound_and_reach_it_far_out(limit):
    model = encoder(activity(), limit=limit)
    for size in (1.0, 1e3, 1e8):
        with torch.no_grad():
            z = model(torch.randn(200, 6, generator=torch.Generator().manual_seed(1)) * size)
        assert torch.isfinite(z).all()
        assert z.abs().max() <= limit
    assert z.abs().max() == pytest.approx(limit)


def test_the_bound_is_the_identity_near_zero():
    z = torch.linspace(-1e-3, 1e-3, 11, dtype=torch.float64)
    assert (Bound(2.0)(z) - z).abs().max() < 1e-9


def test_unit_blocks_have_length_one_each():
    blocks = [slice(0, 2), slice(2, 3)]
    model = encoder(activity(), unit_blocks=blocks)
    assert isinstance(model.network[-1], UnitBlocks)
    with torch.no_grad():
        z = model(torch.from_numpy(activity()))
    for block in blocks:
        np.testing.assert_allclose(z[:, block].norm(dim=1), 1.0, rtol=1e-6)


@pytest.mark.parametrize("times", [None, np.arange(400)[::-3].copy(), np.array([5, 5, 17])])
def test_embedding_in_parts_equals_embedding_at_once(times, monkeypatch):
    x = activity()
    recording, model = Recording(x), encoder(x)
    whole = embed(model, recording, times)
    with torch.no_grad():
        expected = model(torch.from_numpy(x if times is None else x[times])).numpy()
    assert np.array_equal(whole, expected)
    monkeypatch.setattr("xcebra.networks.encoder._EMBED_ROWS", 7)
    parts = embed(model, recording, times)
    assert parts.dtype == np.float32
    np.testing.assert_allclose(parts, whole, atol=1e-6)


def test_embedding_leaves_the_model_as_it_was():
    x = activity()
    model = encoder(x)
    model.eval()
    model.network[0].weight.grad = torch.ones_like(model.network[0].weight)
    embed(model, Recording(x))
    assert not model.training
    assert all(p.requires_grad for p in model.parameters())
    assert torch.equal(model.network[0].weight.grad, torch.ones_like(model.network[0].weight))


def test_initial_weights_come_from_the_generator_alone():
    x = activity()
    torch.manual_seed(1)
    first = encoder(x, seed=7).state_dict()
    torch.manual_seed(2)
    again = encoder(x, seed=7).state_dict()
    other = encoder(x, seed=8).state_dict()
    assert all(torch.equal(first[name], again[name]) for name in first)
    assert not torch.equal(first["network.0.weight"], other["network.0.weight"])


def test_building_an_encoder_draws_nothing_from_the_global_generator():
    x = activity()
    before = torch.get_rng_state()
    encoder(x)
    assert torch.equal(torch.get_rng_state(), before)


def test_initial_weights_are_torchs_usual_ones():
    """Uniform up to one over the root of the inputs, weights and biases alike."""
    model = encoder(activity(), n_latents=4)
    layers = [layer for layer in model.network if isinstance(layer, nn.Linear)]
    assert [(each.in_features, each.out_features) for each in layers] == [
        (6, 120),
        (120, 120),
        (120, 40),
        (40, 4),
    ]
    for layer in layers:
        reach = layer.in_features**-0.5
        for parameter in (layer.weight.detach(), layer.bias.detach()):
            assert parameter.abs().max() <= reach
        # Variance of a uniform: reach^2 / 3; the widest layers hold it to a few per cent.
        if layer.weight.numel() > 500:
            assert float(layer.weight.detach().var()) == pytest.approx(reach**2 / 3, rel=0.15)


def test_only_the_network_is_trained():
    model = encoder(activity())
    assert {name.split(".")[0] for name, _ in model.named_parameters()} == {"network"}
    assert {name for name, _ in model.named_buffers()} == {
        "mean",
        "scale",
        "reciprocal",
        "loadings",
    }


def test_measuring_takes_the_epochs_given_not_the_recordings_own():
    x = activity()
    recording = Recording(x, epochs=[(0, 400)])
    inputs = Inputs.measure(recording, Epochs.check([(50, 150)], 400), project=True)
    assert_measured(inputs, x[50:150])


# What the network reads in training


@pytest.fixture(params=["kept in memory", "computed anew"])
def _kept(request, monkeypatch):
    if request.param == "computed anew":
        monkeypatch.setattr("xcebra.networks.encoder._MOST_KEPT", 0)


def expected_inputs(model, recording, times):
    """Standardise, project and concatenate lags, in float64."""
    mean, reciprocal, loadings = (
        getattr(model, name).double().numpy() for name in ("mean", "reciprocal", "loadings")
    )
    x = recording.windows(times, model.window).astype(np.float64)
    return ((x - mean) * reciprocal @ loadings).reshape(len(times), -1)


@pytest.mark.usefixtures("_kept")
@pytest.mark.parametrize("window", [1, 4])
def test_inputs_of_the_network_are_the_components_at_any_samples(window, monkeypatch):
    """Samples in any order and repeated, with windows that end at the edges of epochs."""
    monkeypatch.setattr("xcebra.networks.encoder._EMBED_ROWS", 64)
    x = activity()
    recording = Recording(x, epochs=[(0, 150), (160, 400)])
    model = encoder(x, window=window)
    times = np.array([399, 0, 149, 160, 161, 5, 5, 152, *range(100, 140)])
    inputs = NetworkInputs(model, recording)(times)
    assert inputs.shape == (len(times), window * model.loadings.shape[1])
    assert not inputs.requires_grad
    expected = expected_inputs(model, recording, times)
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=0, atol=1e-4)
    np.testing.assert_allclose(
        model.network(inputs).detach(), model(model.samples(recording, times)).detach(), atol=1e-4
    )


@pytest.mark.usefixtures("_kept")
@pytest.mark.parametrize("window", [1, 4])
def test_inputs_of_no_samples(window):
    """A worker may have no row of a session that has few."""
    x = activity()
    model = encoder(x, window=window)
    inputs = NetworkInputs(model, Recording(x))(np.array([], dtype=np.int64))
    assert inputs.shape == (0, window * model.loadings.shape[1])
    assert model.network(inputs).shape == (0, 3)


@pytest.mark.usefixtures("_kept")
def test_inputs_are_read_from_files_of_integers(tmp_path):
    x = np.random.default_rng(0).poisson(3.0, size=(500, 4)).astype(np.int16)
    stored = np.memmap(tmp_path / "x.dat", dtype=np.int16, mode="w+", shape=x.shape)
    stored[:] = x
    model, recording, times = encoder(x), Recording(stored), np.arange(0, 500, 7)
    inputs = NetworkInputs(model, recording)(times)
    expected = expected_inputs(model, recording, times)
    np.testing.assert_allclose(inputs.numpy(), expected, rtol=0, atol=1e-5)


@pytest.mark.parametrize("most", [400 * 6, 400 * 6 - 1])
def test_inputs_are_kept_if_they_fit_into_memory(most, monkeypatch):
    """The recording is then read once. Otherwise it is read at every call."""
    monkeypatch.setattr("xcebra.networks.encoder._MOST_KEPT", most)
    x = activity()
    reads, rows = [], Recording.rows
    model, recording = encoder(x), Recording(x)
    monkeypatch.setattr(
        Recording, "rows", lambda own, times: (reads.append(len(times)), rows(own, times))[1]
    )
    inputs = NetworkInputs(model, recording)
    for _ in range(3):
        inputs(np.arange(10))
    assert reads == ([400] if most == 400 * 6 else [10, 10, 10])


@pytest.mark.usefixtures("_kept")
def test_inputs_have_single_precision_whatever_the_default_is():
    x = activity()
    model = encoder(x)
    torch.set_default_dtype(torch.float64)
    try:
        inputs = NetworkInputs(model, Recording(x))(np.arange(10))
    finally:
        torch.set_default_dtype(torch.float32)
    assert inputs.dtype == torch.float32


def test_of_very_many_components_those_with_most_variance_are_kept(monkeypatch):
    x = activity(n_neurons=20) + 0.1 * np.random.default_rng(1).standard_normal((400, 20))
    whole = measure(x)
    monkeypatch.setattr(encoder_module, "_MOST_COMPONENTS", 4)
    few = measure(x)
    assert whole.loadings.shape[1] > 4
    assert few.loadings.shape == (20, 4)
    # Eigenvectors may have either sign.
    same = np.abs((few.loadings * whole.loadings[:, :4]).sum(axis=0))
    np.testing.assert_allclose(same, 1.0, atol=1e-9)
