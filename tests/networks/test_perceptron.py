"""Passes written out: their gradients are those of autograd in float64."""

import copy
from concurrent.futures import ThreadPoolExecutor
from itertools import pairwise

import pytest
import torch
from torch import nn
from torch.func import functional_call, jacrev, vmap

from xcebra.common.products import Dense
from xcebra.common.workers import shares
from xcebra.networks.encoder import Bound, UnitBlocks
from xcebra.networks.jacobian import pull_back
from xcebra.networks.perceptron import JacobianPenalty, Pass, split_layers

# Layers after the linear ones, all of them with six outputs.
ENDS = {
    "bounded": lambda: [Bound(2.0)],
    "unit blocks": lambda: [UnitBlocks([slice(0, 2), slice(2, 6)])],
    "one sphere": lambda: [UnitBlocks([slice(0, 6)])],
    "bounded, then a sphere": lambda: [Bound(1.5), UnitBlocks([slice(0, 6)])],
    "nothing": lambda: [],
}
WIDTHS = {"paper": (20, 60, 60, 30, 6), "two layers": (20, 40, 6), "one layer": (20, 6)}
ends = pytest.mark.parametrize("end", ENDS.values(), ids=ENDS.keys())
widths = pytest.mark.parametrize("widths", WIDTHS.values(), ids=WIDTHS.keys())


def perceptron(widths=WIDTHS["paper"], end=(), dtype=torch.float32):
    torch.manual_seed(0)
    layers = []
    for k, (before, after) in enumerate(pairwise(widths)):
        layers += [nn.GELU()] if k else []
        layers.append(Dense(before, after))
    return nn.Sequential(*layers, *end).to(dtype)


def numbers(*shape, seed=0, dtype=torch.float32):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def end_jacobian(end, raw):
    """Jacobian of the layers after the pass, as training computes it."""
    rows = torch.eye(raw.shape[1], dtype=raw.dtype).expand(len(raw), -1, -1)
    for layer in reversed(end):
        # Of the layers used in training there is one at most, so that its input is ``raw``.
        rows = pull_back(layer, raw, rows)
    return rows


def jacobian_of_end(end, raw):
    """The same for any number of layers, by `torch.func`."""
    if len(end) < 2:
        return end_jacobian(end, raw)
    return vmap(jacrev(lambda row: nn.Sequential(*end)(row[None])[0]))(raw)


def written_out(network, x, upstream, n_penalised, factor):
    """Gradients of ``(network(x) * upstream).sum()`` plus the penalty, and the squared norm."""
    linear, end = split_layers(network)
    run = Pass.forward(linear, x, n_penalised)
    raw = run.output.requires_grad_()
    embedded = raw
    for layer in end:
        embedded = layer(embedded)
    outputs, at_outputs, penalty = [embedded], [upstream], None
    if n_penalised:
        of_end = jacobian_of_end(end, raw[:n_penalised])
        penalty = JacobianPenalty.measure(run, of_end.detach(), factor)
        if of_end.requires_grad:
            outputs, at_outputs = [*outputs, of_end], [*at_outputs, penalty.to_end]
    torch.autograd.backward(outputs, at_outputs)
    return run.gradients(raw.grad, penalty), None if penalty is None else penalty.squared_norm


def by_autograd(network, x, upstream, n_penalised, factor):
    """The same of a network in float64, with the Jacobian by `torch.func`."""
    network = copy.deepcopy(network).double()
    x, upstream = x.double(), upstream.double()
    total, norm = (network(x) * upstream).sum(), None
    if n_penalised:
        weights = dict(network.named_parameters())
        jacobians = vmap(jacrev(lambda row: functional_call(network, weights, (row[None],))[0]))
        norm = jacobians(x[:n_penalised]).square().sum()
        total = total + factor * norm
    total.backward()
    linear = split_layers(network)[0]
    gradients = [(layer.weight.grad, layer.bias.grad) for layer in linear]
    return gradients, None if norm is None else norm.detach()


def assert_near(gradients, expected, relative):
    assert len(gradients) == len(expected)
    for own, reference in zip(gradients, expected, strict=True):
        for value, correct in zip(own, reference, strict=True):
            assert value.shape == correct.shape
            scale = correct.abs().max() + 1e-6
            assert (value.double() - correct).abs().max() <= relative * scale


# Which layers


def test_layers_are_divided_after_the_last_linear_one():
    network = perceptron(end=[Bound(2.0)])
    linear, end = split_layers(network)
    assert linear == [network[0], network[2], network[4], network[6]]
    assert end == [network[7]]


def test_layers_without_an_end_without_linear_ones_and_none():
    network = perceptron()
    assert split_layers(network) == ([network[0], network[2], network[4], network[6]], [])
    bound = Bound(2.0)
    assert split_layers(nn.Sequential(bound)) == ([], [bound])
    assert split_layers(nn.Sequential()) == ([], [])


def test_a_network_that_ends_with_gelu_or_has_another_activation_function():
    """Only GELU between two linear layers belongs to the pass."""
    first, gelu, second, relu = nn.Linear(2, 3), nn.GELU(), nn.Linear(3, 4), nn.ReLU()
    assert split_layers(nn.Sequential(first, relu, second)) == ([first], [relu, second])
    assert split_layers(nn.Sequential(first, gelu, second, relu)) == ([first, second], [relu])
    assert split_layers(nn.Sequential(first, gelu)) == ([first], [gelu])
    assert split_layers(nn.Sequential(first, gelu, relu)) == ([first], [gelu, relu])
    approximate = nn.GELU(approximate="tanh")
    assert split_layers(nn.Sequential(first, approximate, second)) == (
        [first],
        [approximate, second],
    )


# Values and gradients


@widths
@pytest.mark.parametrize("n", [0, 1, 700])
def test_the_output_is_that_of_the_network(widths, n):
    network, x = perceptron(widths), numbers(n, 20)
    run = Pass.forward(split_layers(network)[0], x)
    expected = copy.deepcopy(network).double()(x.double())
    assert run.output.shape == (n, 6)
    assert torch.allclose(run.output.double(), expected, rtol=0, atol=1e-5)
    assert not run.output.requires_grad
    assert torch.equal(run.inputs[0], x)


@ends
@widths
@pytest.mark.parametrize("n_penalised", [0, 1, 37, 400])
def test_gradients_are_those_of_autograd_in_float64(end, widths, n_penalised):
    """The tolerance is that of single precision, for sums over hundreds of samples."""
    network = perceptron(widths, end())
    x, upstream = numbers(400, 20, seed=1), numbers(400, 6, seed=2)
    gradients, norm = written_out(network, x, upstream, n_penalised, 0.3)
    expected, expected_norm = by_autograd(network, x, upstream, n_penalised, 0.3)
    assert_near(gradients, expected, 3e-5)
    if n_penalised:
        assert float(norm) == pytest.approx(float(expected_norm), rel=1e-5)


@ends
@widths
def test_in_double_precision_they_agree_to_its_rounding(end, widths):
    """A formula that is only nearly right would not."""
    network = perceptron(widths, end(), torch.float64)
    x, upstream = numbers(50, 20, dtype=torch.float64), numbers(50, 6, dtype=torch.float64)
    gradients, norm = written_out(network, x, upstream, 20, 0.3)
    expected, expected_norm = by_autograd(network, x, upstream, 20, 0.3)
    assert_near(gradients, expected, 1e-12)
    assert float(norm) == pytest.approx(float(expected_norm), rel=1e-13)


def test_the_penalty_of_one_layer_in_closed_form():
    """Without activation functions, J = W and the gradient of n |W|^2 is 2 n W."""
    network, n = perceptron((20, 6)), 30
    run = Pass.forward(split_layers(network)[0], numbers(50, 20), n)
    penalty = JacobianPenalty.measure(run, torch.eye(6).expand(n, -1, -1), 0.25)
    weight = network[0].weight.detach()
    assert torch.allclose(penalty.squared_norm, n * weight.square().sum())
    assert torch.allclose(penalty.to_weights[0], 0.5 * n * weight)
    assert penalty.to_outputs == []
    ((to_weight, to_bias),) = run.gradients(torch.zeros(50, 6), penalty)
    assert torch.allclose(to_weight, 0.5 * n * weight)
    assert not to_bias.any()


def test_the_gradient_by_the_jacobian_of_the_end_in_closed_form():
    """Of |E W|^2, it is 2 E W W^T."""
    network, n = perceptron((20, 6)), 30
    run, of_end = Pass.forward(split_layers(network)[0], numbers(50, 20), n), numbers(n, 4, 6)
    penalty = JacobianPenalty.measure(run, of_end, 0.25)
    weight = network[0].weight.detach()
    assert torch.allclose(penalty.to_end, 0.5 * of_end @ weight @ weight.T, atol=1e-5)


def test_gradients_are_linear_in_the_factor_and_zero_for_zero():
    network, x = perceptron(), numbers(100, 20)
    run = Pass.forward(split_layers(network)[0], x, 40)
    of_end = torch.eye(6).expand(40, -1, -1)
    one, two, none = (JacobianPenalty.measure(run, of_end, factor) for factor in (1.0, 2.0, 0.0))
    assert torch.equal(one.squared_norm, two.squared_norm)
    # Twice a number is exact.
    for single, double in zip(one.to_weights, two.to_weights, strict=True):
        assert torch.equal(2 * single, double)
    plain, with_none = run.gradients(x[:, :6]), run.gradients(x[:, :6], none)
    for own, other in zip(plain, with_none, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(own, other, strict=True))


def test_nothing_that_was_given_is_changed_and_parameters_keep_their_gradients():
    network, x, upstream = perceptron(), numbers(100, 20), numbers(100, 6)
    linear = split_layers(network)[0]
    for parameter in network.parameters():
        parameter.grad = torch.full_like(parameter, 7.0)
    run = Pass.forward(linear, x, 40)
    of_end = torch.eye(6).repeat(40, 1, 1)
    penalty = JacobianPenalty.measure(run, of_end, 0.3)
    kept = [x, upstream, of_end, *run.inputs, *run.slopes, *run.curvatures, *penalty.to_weights]
    kept += [*penalty.to_outputs, *network.parameters()]
    before = [tensor.detach().clone() for tensor in kept]
    first = run.gradients(upstream, penalty)
    again = run.gradients(upstream, penalty)
    assert all(torch.equal(t, b) for t, b in zip(kept, before, strict=True))
    assert all((parameter.grad == 7).all() for parameter in network.parameters())
    # The backward pass can be repeated.
    for own, other in zip(first, again, strict=True):
        assert all(torch.equal(a, b) for a, b in zip(own, other, strict=True))


def test_rows_in_any_order_of_memory():
    network = perceptron(end=[Bound(2.0)])
    x, upstream = numbers(20, 300).T, numbers(6, 300).T
    gradients, _ = written_out(network, x, upstream, 100, 0.3)
    expected, _ = by_autograd(network, x, upstream, 100, 0.3)
    assert_near(gradients, expected, 3e-5)


def test_an_upstream_gradient_that_is_one_number_repeated():
    network, x = perceptron(), numbers(300, 20)
    upstream = torch.tensor(0.5).expand(300, 6)
    gradients = Pass.forward(split_layers(network)[0], x).gradients(upstream)
    expected, _ = by_autograd(network, x, upstream, 0, 0.0)
    assert_near(gradients, expected, 3e-5)


# Divided between workers


def divided(network, x, upstream, n_penalised, n_parts, pool):
    """Sums over parts, in which the samples that are penalised come first, as in training."""
    first = shares(n_penalised, n_parts)
    rest = shares(len(x) - n_penalised, n_parts)

    def part(k):
        own = [
            torch.cat([t[:n_penalised][first[k]], t[n_penalised:][rest[k]]]) for t in (x, upstream)
        ]
        return written_out(network, *own, first[k].stop - first[k].start, 0.3)

    results = list(pool.map(part, range(n_parts)))
    sums = [
        tuple(sum(values) for values in zip(*layer, strict=True))
        for layer in zip(*(gradients for gradients, _ in results), strict=True)
    ]
    return sums, sum(norm for _, norm in results if norm is not None)


@pytest.mark.parametrize("end", [ENDS["bounded"], ENDS["unit blocks"]])
@pytest.mark.parametrize("n_parts", [1, 2, 3, 5])
@pytest.mark.parametrize("n_penalised", [4, 150])
def test_parts_add_up_to_the_whole_and_repeat_their_bits(end, n_parts, n_penalised):
    """With four samples for five workers, one of them has none that is penalised."""
    network = perceptron(end=end())
    x, upstream = numbers(500, 20, seed=1), numbers(500, 6, seed=2)
    expected, expected_norm = by_autograd(network, x, upstream, n_penalised, 0.3)
    with ThreadPoolExecutor(n_parts) as pool:
        gradients, norm = divided(network, x, upstream, n_penalised, n_parts, pool)
        assert_near(gradients, expected, 3e-5)
        assert float(norm) == pytest.approx(float(expected_norm), rel=1e-5)
        for _ in range(3):
            again, norm_again = divided(network, x, upstream, n_penalised, n_parts, pool)
            assert torch.equal(norm_again, norm)
            for own, other in zip(gradients, again, strict=True):
                assert all(torch.equal(a, b) for a, b in zip(own, other, strict=True))


def test_parts_without_a_sample_add_nothing():
    network = perceptron(end=[Bound(2.0)])
    gradients, norm = written_out(network, numbers(0, 20), numbers(0, 6), 0, 0.3)
    assert norm is None
    for own, layer in zip(gradients, split_layers(network)[0], strict=True):
        assert [value.shape for value in own] == [layer.weight.shape, layer.bias.shape]
        assert not any(value.any() for value in own)
