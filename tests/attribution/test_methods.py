"""Attribution methods: closed forms by hand, and Captum's numbers in float64 with its own draws."""

from unittest import mock

import numpy as np
import pytest
import torch
from captum.attr import FeatureAblation, GradientShap, IntegratedGradients, Saliency
from torch import nn

from xcebra.attribution import methods
from xcebra.networks.encoder import Bound, UnitBlocks
from xcebra.networks.jacobian import jacobian

N, NEURONS, LATENTS = 9, 7, 4


class Gated(nn.Module):
    """Not a Sequential, and not element-wise."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(NEURONS, LATENTS)
        self.gate = nn.Linear(NEURONS, LATENTS)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.gate(x)) + x[:, :LATENTS] ** 2


class Windowed(nn.Module):
    """(sample, neuron, time) to (sample, latent), as CEBRA's models."""

    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(
            nn.Conv1d(NEURONS, 6, 3), nn.GELU(), nn.Conv1d(6, LATENTS, 3), nn.Flatten()
        )

    def forward(self, x):
        return self.net(x)


def mlp(*last):
    return nn.Sequential(
        nn.Linear(NEURONS, 11), nn.GELU(), nn.Linear(11, 9), nn.Tanh(), nn.Linear(9, LATENTS), *last
    )


NETWORKS = {
    "mlp": mlp,
    "bounded": lambda: mlp(Bound(0.7)),
    "unit blocks": lambda: mlp(UnitBlocks([slice(0, 1), slice(1, 4)])),
    "layer norm": lambda: mlp(nn.LayerNorm(LATENTS)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(NEURONS, 8), nn.GELU()), mlp_tail()),
    "no linear layer first": lambda: nn.Sequential(nn.Tanh(), nn.Linear(NEURONS, LATENTS)),
    "custom": Gated,
    "windowed": Windowed,
}


def mlp_tail():
    return nn.Sequential(nn.Linear(8, 8), nn.SiLU(), nn.Linear(8, LATENTS))


def build(name):
    torch.manual_seed(len(name))
    return NETWORKS[name]().double()


def samples(name, n=N, seed=0):
    shape = (n, NEURONS, 5) if name == "windowed" else (n, NEURONS)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def assert_equal(ours, theirs, tolerance=1e-12):
    """Relative to the largest entry."""
    theirs = torch.stack(theirs, dim=1).detach()
    assert ours.shape == theirs.shape
    assert (ours - theirs).abs().max() <= tolerance * theirs.abs().max()


# Captum rounds the points of its path to single precision.
PATH = 1e-6
each_network = pytest.mark.parametrize("name", NETWORKS)


@each_network
def test_gradient_is_captums(name):
    network, x = build(name), samples(name).requires_grad_()
    theirs = [Saliency(network).attribute(x, target=j, abs=False) for j in range(LATENTS)]
    assert_equal(jacobian(network, x).detach(), theirs)


@each_network
def test_integrated_gradients_are_captums(name):
    network, x = build(name), samples(name)
    captum = IntegratedGradients(network)
    theirs = [captum.attribute(x, target=j, n_steps=50) for j in range(LATENTS)]
    with torch.no_grad():
        ours = methods.integrated_gradients(network, x, torch.zeros_like(x[0]))
    assert_equal(ours, theirs, PATH)


@each_network
def test_integrated_gradients_are_captums_from_another_baseline(name):
    network, x = build(name), samples(name)
    baseline = samples(name, 1, seed=5)
    captum = IntegratedGradients(network)
    theirs = [captum.attribute(x, baselines=baseline, target=j, n_steps=13) for j in range(LATENTS)]
    with torch.no_grad():
        ours = methods.integrated_gradients(network, x, baseline[0], n_points=13)
    assert_equal(ours, theirs, PATH)


@each_network
@pytest.mark.parametrize("kind", ["zeros", "shuffled"])
def test_gradient_shap_is_captums_with_its_own_draws(name, kind):
    network, x = build(name), samples(name)
    flat = x.flatten()[torch.randperm(x.numel(), generator=torch.Generator().manual_seed(1))]
    baselines = torch.zeros_like(x[:1]) if kind == "zeros" else flat.reshape(x.shape)
    draws, theirs = None, []
    for j in range(LATENTS):
        theirs_j, found = captum_shap(network, x, baselines, j)
        assert draws is None or np.array_equal(draws[1], found[1])
        draws = found
        theirs.append(theirs_j)
    chosen, far = (torch.from_numpy(d.reshape(N, 5).T.copy()) for d in draws)
    with torch.no_grad():
        assert_equal(methods.gradient_shap(network, x, baselines, chosen, far), theirs)


def captum_shap(network, x, baselines, target):
    """Captum's answer, and the draws it took: row r of baselines, share c of the way."""
    np.random.seed(7)
    found = {}
    choice, uniform = np.random.choice, np.random.uniform

    def note(key, function):
        def noted(*arguments, **options):
            found[key] = function(*arguments, **options)
            return found[key]

        return noted

    with (
        mock.patch("numpy.random.choice", note("chosen", choice)),
        mock.patch("numpy.random.uniform", note("far", uniform)),
    ):
        answer = GradientShap(network).attribute(
            x, baselines=baselines, target=target, n_samples=5, stdevs=0.0
        )
    chosen = found.get("chosen", np.zeros(5 * len(x), dtype=np.int64))
    return answer, (np.asarray(chosen), found["far"])


@each_network
def test_feature_ablation_is_captums(name):
    network, x = build(name), samples(name)
    x[2, 3] = 0.0  # an entry at its baseline changes nothing
    captum = FeatureAblation(network)
    with torch.no_grad():
        theirs = [captum.attribute(x, target=j) for j in range(LATENTS)]
        ours = methods.feature_ablation(network, x, torch.zeros_like(x[0]))
    assert_equal(ours, theirs)
    assert not ours[2, :, 3].any()


def test_feature_ablation_does_not_depend_on_the_layout_of_samples_in_memory():
    network = nn.Sequential(nn.Flatten(), nn.Linear(12, 2).double())
    x = torch.randn(5, 4, 3, dtype=torch.float64).mT
    assert not x.is_contiguous()
    with torch.no_grad():
        apart = methods.feature_ablation(network, x, torch.zeros_like(x[0]))
        whole = methods.feature_ablation(network, x.contiguous(), torch.zeros_like(x[0]))
    assert whole.abs().min() > 0
    torch.testing.assert_close(apart, whole)


def test_feature_ablation_does_not_depend_on_how_many_pairs_are_tried_at_once():
    network, x = build("mlp"), samples("mlp")
    with torch.no_grad():
        whole = methods.feature_ablation(network, x, torch.ones(NEURONS, dtype=x.dtype))
        with mock.patch.object(methods, "_PAIRS_AT_ONCE", 40):
            parts = methods.feature_ablation(network, x, torch.ones(NEURONS, dtype=x.dtype))
    torch.testing.assert_close(parts, whole, rtol=0, atol=1e-14)


class Products(nn.Module):
    """``f(x) = (x1^2, x1 x2)``."""

    def forward(self, x):
        return torch.stack([x[:, 0] ** 2, x[:, 0] * x[:, 1]], dim=1)


def test_closed_forms_of_a_product():
    x = samples("mlp")[:, :2]
    a, b = x.T
    zero, origin = torch.zeros_like(a), torch.zeros(2, dtype=x.dtype)
    gradients = torch.stack([torch.stack([2 * a, zero], 1), torch.stack([b, a], 1)], 1)
    torch.testing.assert_close(jacobian(Products(), x).detach(), gradients)
    # On the way from 0 gradients grow in proportion, so their mean is half the last one.
    with torch.no_grad():
        found = methods.integrated_gradients(Products(), x, origin)
    torch.testing.assert_close(found, gradients / 2 * x[:, None])
    far = torch.rand(5, N, dtype=x.dtype, generator=torch.Generator().manual_seed(3))
    chosen = torch.zeros(5, N, dtype=torch.int64)
    with torch.no_grad():
        found = methods.gradient_shap(Products(), x, origin[None], chosen, far)
    torch.testing.assert_close(found, far.mean(0)[:, None, None] * gradients * x[:, None])
    with torch.no_grad():
        found = methods.feature_ablation(Products(), x, origin)
    gone = torch.stack([torch.stack([a**2, zero], 1), torch.stack([a * b, a * b], 1)], 1)
    torch.testing.assert_close(found, gone)


@pytest.mark.parametrize("bias", [True, False])
def test_all_contributions_of_a_linear_network_are_weight_times_difference(bias):
    torch.manual_seed(0)
    network = nn.Sequential(nn.Linear(NEURONS, LATENTS, bias=bias)).double()
    x, baselines = samples("mlp"), samples("mlp", 3, seed=9)
    weight = network[0].weight.detach()
    expected = weight * (x - baselines[1])[:, None]
    rng = np.random.default_rng(0)
    far = torch.from_numpy(rng.random((5, N)))
    chosen = torch.ones(5, N, dtype=torch.int64)
    with torch.no_grad():
        for found in (
            methods.integrated_gradients(network, x, baselines[1]),
            methods.gradient_shap(network, x, baselines, chosen, far),
            methods.gradient_shap(network, x, baselines[1:2], torch.zeros_like(chosen), far),
            methods.feature_ablation(network, x, baselines[1]),
        ):
            torch.testing.assert_close(found, expected, rtol=1e-12, atol=1e-12)


def test_integrated_gradients_add_up_to_the_change_of_the_output():
    network, x = build("mlp"), samples("mlp")
    origin = torch.zeros(NEURONS, dtype=x.dtype)
    with torch.no_grad():
        found = methods.integrated_gradients(network, x, origin).sum(dim=2)
        expected = network(x) - network(origin[None])
    torch.testing.assert_close(found, expected, rtol=1e-9, atol=1e-9)
