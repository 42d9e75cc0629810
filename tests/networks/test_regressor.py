"""Regression networks: gradients and steps against autograd in double precision."""

import copy

import pytest
import torch
from torch import nn

from xcebra.networks.decoder import Rescale
from xcebra.networks.regressor import Regressor


def network(n_outputs=7, seed=0):
    torch.manual_seed(seed)
    rescale = Rescale(torch.tensor([1.0, -2.0, 0.5]), torch.tensor([2.0, 0.5, 3.0]))
    return nn.Sequential(
        rescale, nn.Linear(3, 16), nn.GELU(), nn.Linear(16, 16), nn.GELU(), nn.Linear(16, n_outputs)
    )


def batch(n=50, n_outputs=7):
    generator = torch.Generator().manual_seed(1)
    draw = [torch.randn(n, k, generator=generator) for k in (3, n_outputs)]
    return *draw, torch.rand(n, n_outputs, generator=generator)


def exact(net, x, y, weights):
    """The gradients of the mean weighted squared error, in double precision."""
    double = copy.deepcopy(net).double()
    ((double(x.double()) - y.double()).square() * weights.double()).mean().backward()
    return [p.grad for p in double.parameters()]


@pytest.mark.parametrize("n_parts", [1, 2, 3])
@pytest.mark.parametrize("weighted", [True, False])
def test_gradients_of_parts_add_up_to_those_of_the_mean_squared_error(n_parts, weighted):
    net = network()
    x, y, weights = batch()
    regressor = Regressor(net)
    rows = torch.arange(len(x)).tensor_split(n_parts)
    parts = [
        regressor.gradients(regressor.inputs(x[r]), y[r], len(x), weights[r] if weighted else None)
        for r in rows
    ]
    expected = exact(net, x, y, weights if weighted else torch.ones_like(y))
    total = [sum(part[k][i] for part in parts) for k in range(3) for i in range(2)]
    for ours, theirs in zip(total, expected, strict=True):
        assert torch.allclose(ours.double(), theirs, rtol=1e-4, atol=1e-7)


def test_steps_are_those_of_adam_on_autograd_s_gradients():
    net, x_y = network(), batch()
    x, y, _ = x_y
    other = copy.deepcopy(net).double()
    optimizer = torch.optim.Adam(other.parameters(), lr=1e-2)
    regressor = Regressor(net)
    inputs = regressor.inputs(x)
    for _ in range(20):
        half = len(x) // 2
        parts = [
            regressor.gradients(inputs[r], y[r], len(x))
            for r in (slice(0, half), slice(half, None))
        ]
        regressor.step(parts, 1e-2)
        optimizer.zero_grad()
        nn.functional.mse_loss(other(x.double()), y.double()).backward()
        optimizer.step()
    for ours, theirs in zip(net.parameters(), other.parameters(), strict=True):
        assert torch.allclose(ours.double(), theirs, rtol=1e-3, atol=1e-4)
    assert torch.allclose(regressor.predict(inputs), net(x))


def test_gradients_have_the_order_of_the_weights_in_memory():
    """The fused optimizer reads memory in this order, whatever the strides are."""
    regressor = Regressor(network())
    x, y, _ = batch()
    for to_weight, _ in regressor.gradients(regressor.inputs(x), y, len(x)):
        assert to_weight.is_contiguous()


def test_a_layer_after_the_linear_ones_is_refused():
    with pytest.raises(TypeError, match="Tanh"):
        Regressor(nn.Sequential(nn.Linear(3, 4), nn.Tanh()))
