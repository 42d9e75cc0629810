"""Jacobians, their penalty and their inverse: closed forms, and torch.func in float64."""

import numpy as np
import pytest
import torch
from torch import nn

from xcebra.networks.encoder import Bound, UnitBlocks
from xcebra.networks.jacobian import RELATIVE_CUTOFF, invert, jacobian, linearise, penalty


class Gated(nn.Module):
    """Not a Sequential, not element-wise: every output depends on every input twice."""

    def __init__(self):
        super().__init__()
        self.value = nn.Linear(7, 3)
        self.gate = nn.Linear(7, 3)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.gate(x)) + x[:, :3] ** 2


def mlp(activation, *last):
    return nn.Sequential(
        nn.Linear(7, 11), activation, nn.Linear(11, 9), activation, nn.Linear(9, 4), *last
    )


NETWORKS = {
    "gelu": lambda: mlp(nn.GELU()),
    "gelu, tanh approximation": lambda: mlp(nn.GELU(approximate="tanh")),
    "relu": lambda: mlp(nn.ReLU()),
    "tanh": lambda: mlp(nn.Tanh()),
    "identity": lambda: mlp(nn.Identity()),
    "silu, which has no slope of its own": lambda: mlp(nn.SiLU()),
    "bound": lambda: mlp(nn.GELU(), Bound(0.7)),
    "unit blocks": lambda: mlp(nn.GELU(), UnitBlocks([slice(0, 1), slice(1, 4)])),
    "layer norm": lambda: mlp(nn.GELU(), nn.LayerNorm(4)),
    "layer norm inside": lambda: nn.Sequential(nn.Linear(7, 5), nn.LayerNorm(5), nn.Linear(5, 3)),
    "a Sequential in a Sequential": lambda: nn.Sequential(mlp(nn.GELU()), nn.Linear(4, 2)),
    "one output": lambda: nn.Sequential(nn.Linear(7, 5), nn.GELU(), nn.Linear(5, 1)),
    "custom module": Gated,
}


def build(name, dtype=torch.float64):
    torch.manual_seed(len(name))
    return NETWORKS[name]().to(dtype)


def samples(n=6, d=7, dtype=torch.float64, seed=0):
    return torch.randn(n, d, generator=torch.Generator().manual_seed(seed), dtype=dtype)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def by_torch_func(network, x, parameters=None):
    parameters = dict(network.named_parameters()) if parameters is None else parameters

    def output(row):
        return torch.func.functional_call(network, parameters, (row[None],))[0]

    return torch.func.vmap(torch.func.jacrev(output))(x)


def with_singular_values(values, n_columns=9, seed=0):
    """A matrix with these singular values, and random directions."""
    rng = np.random.default_rng(seed)
    left = np.linalg.qr(rng.standard_normal((len(values), len(values))))[0]
    right = np.linalg.qr(rng.standard_normal((n_columns, len(values))))[0]
    return torch.from_numpy(left * np.asarray(values) @ right.T)


def test_a_linear_map_has_its_weights_as_jacobian_and_their_pseudo_inverse_as_inverse():
    network = nn.Sequential(nn.Linear(7, 3).double())
    found = jacobian(network, samples())
    weights = network[0].weight.detach()
    assert torch.equal(found, weights.expand(6, 3, 7))
    expected = np.linalg.pinv(weights.numpy())
    np.testing.assert_allclose(invert(found.detach()).values[2].numpy(), expected, atol=1e-12)


def test_a_linear_map_has_its_squared_frobenius_norm_as_penalty():
    network = nn.Sequential(nn.Linear(7, 3).double())
    found = penalty(linearise(network, samples()), None, generator())
    expected = network[0].weight.detach().square().sum()
    assert float(found.detach()) == pytest.approx(float(expected), rel=1e-14)


def test_two_linear_maps_have_their_product_as_jacobian():
    network = nn.Sequential(nn.Linear(7, 5), nn.Linear(5, 3)).double()
    expected = (network[1].weight @ network[0].weight).detach()
    np.testing.assert_allclose(jacobian(network, samples())[0].detach(), expected, atol=1e-14)


@pytest.mark.parametrize("name", NETWORKS)
def test_jacobian_equals_torch_func(name):
    network, x = build(name), samples()
    with torch.no_grad():
        found = jacobian(network, x)
    expected = by_torch_func(network, x).detach()
    assert not found.requires_grad
    assert found.shape == expected.shape
    assert (found - expected).abs().max() < 1e-10


@pytest.mark.parametrize("name", NETWORKS)
def test_jacobian_in_float32_stays_in_float32(name):
    network, x = build(name, torch.float32), samples(dtype=torch.float32)
    found = jacobian(network, x).detach()
    assert found.dtype == torch.float32
    expected = by_torch_func(network.double(), x.double()).detach()
    assert (found.double() - expected).abs().max() < 1e-5 * max(1, expected.abs().max())


@pytest.mark.parametrize("name", NETWORKS)
def test_linearise_gives_the_networks_own_output(name):
    network, x = build(name), samples()
    assert torch.equal(linearise(network, x).output, network(x))


@pytest.mark.parametrize("name", NETWORKS)
def test_pullback_multiplies_rows_by_the_jacobian(name):
    network, x = build(name), samples()
    at = linearise(network, x)
    rows = torch.randn(6, 5, at.output.shape[1], generator=generator(), dtype=torch.float64)
    expected = rows @ by_torch_func(network, x)
    assert (at.pullback(rows) - expected).abs().max() < 1e-10


@pytest.mark.parametrize("name", NETWORKS)
def test_gradient_of_the_penalty_equals_autograd_through_torch_func(name):
    network, x = build(name), samples()
    parameters = dict(network.named_parameters())
    loss = penalty(linearise(network, x), None, generator())
    found = torch.autograd.grad(loss, list(parameters.values()), materialize_grads=True)
    dense = by_torch_func(network, x, parameters).square().sum(dim=(1, 2)).mean()
    expected = torch.autograd.grad(dense, list(parameters.values()), materialize_grads=True)
    assert float(loss.detach()) == pytest.approx(float(dense.detach()), rel=1e-12)
    for a, b in zip(found, expected, strict=True):
        assert (a - b).abs().max() < 1e-10 * max(1.0, float(b.abs().max()))


@pytest.mark.parametrize("approximate", ["none", "tanh"])
def test_gelu_slope_far_from_zero(approximate):
    """Zero and one to the last digit, with no NaN, and a derivative that vanishes."""
    network = nn.Sequential(nn.GELU(approximate=approximate)).double()
    x = torch.tensor([[-1e4], [-40.0], [0.0], [40.0], [1e4]], dtype=torch.float64)
    x.requires_grad_()
    found = jacobian(network, x)
    expected = torch.tensor([0.0, 0.0, 0.5, 1.0, 1.0], dtype=torch.float64)
    assert torch.equal(found.detach()[:, 0, 0], expected)
    (slope,) = torch.autograd.grad(found.sum(), x)
    assert torch.isfinite(slope).all()
    assert slope[[0, 1, 3, 4]].abs().max() == 0


@pytest.mark.parametrize("projections", [1, 3])
def test_random_projections_are_unbiased(projections):
    network = nn.Sequential(nn.Linear(7, 4).double())
    exact = float(network[0].weight.detach().square().sum())
    n, repeats = 200, 40
    draw = generator()
    at = linearise(network, samples(n))
    with torch.no_grad():
        found = np.array([float(penalty(at, projections, draw)) for _ in range(repeats)])
    assert found.std() > 0
    assert abs(found.mean() - exact) < 4 * found.std(ddof=1) / np.sqrt(repeats)


def test_random_projections_are_unbiased_for_a_nonlinear_network():
    network, x = build("gelu"), samples(n=4)
    exact = float(penalty(linearise(network, x), None, generator()).detach())
    at = linearise(network, x)
    with torch.no_grad():
        found = float(penalty(at, 20_000, generator()))
    # One direction has relative s.d. below 1; four s.d. of 80,000 of them.
    assert found == pytest.approx(exact, rel=4 / np.sqrt(4 * 20_000))


def test_projections_of_one_output_are_exact():
    network, x = build("one output"), samples()
    at = linearise(network, x)
    exact, drawn = penalty(at, None, generator()), penalty(at, 1, generator())
    assert float(drawn.detach()) == pytest.approx(float(exact.detach()), rel=1e-12)


def test_draws_come_from_the_generator_alone():
    at = linearise(build("gelu"), samples())
    first = penalty(at, 1, generator(5))
    torch.manual_seed(99)
    assert torch.equal(penalty(at, 1, generator(5)), first)
    assert not torch.equal(penalty(at, 1, generator(6)), first)


@pytest.mark.parametrize("name", NETWORKS)
@pytest.mark.parametrize("training", [True, False])
@pytest.mark.parametrize("leaf", [True, False])
def test_no_trace_is_left_on_the_network_or_the_samples(name, training, leaf):
    network, x = build(name), samples()
    network.train(training)
    x.requires_grad_(leaf)
    parameters = list(network.parameters())
    parameters[0].requires_grad_(False)
    for parameter in parameters:
        parameter.grad = torch.full_like(parameter, 2.0)
    before = [p.detach().clone() for p in (*parameters, x)]
    with torch.no_grad():
        jacobian(network, x)
    jacobian(network, x)
    penalty(linearise(network, x), None, generator())
    assert network.training is training
    assert [p.requires_grad for p in parameters] == [False] + [True] * (len(parameters) - 1)
    assert all(torch.equal(p.grad, torch.full_like(p, 2.0)) for p in parameters)
    assert x.requires_grad is leaf
    assert x.grad is None
    assert all(torch.equal(a, b) for a, b in zip(before, (*parameters, x), strict=True))


@pytest.mark.parametrize(
    ("values", "rank", "condition"),
    [
        ([3.0, 2.0, 1.0], 3, 3.0),
        ([1.0, 1.0, 1.0], 3, 1.0),
        ([1.0, 1e-3, 2e-4], 3, 5000.0),
        ([1.0, 1e-3, 5e-5], 2, 1000.0),
        ([1e-9, 1e-10, 1e-15], 2, 10.0),
        ([1e9, 1e8, 0.0], 2, 10.0),
        ([5.0, 0.0, 0.0], 1, 1.0),
    ],
)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_rank_condition_and_inverse_of_known_singular_values(dtype, values, rank, condition):
    matrix = with_singular_values(values).to(dtype)[None]
    found = invert(matrix)
    assert found.values.dtype == dtype
    assert found.rank.tolist() == [rank]
    # Rounding of the entries moves singular values by eps times the largest; that of the Gram
    # matrix moves their squares by as much.
    eps = torch.finfo(dtype).eps
    rounding = 20 * condition * (eps + condition * torch.finfo(torch.float64).eps)
    assert float(found.condition) == pytest.approx(condition, rel=rounding)
    expected = np.linalg.pinv(matrix[0].double().numpy(), rcond=RELATIVE_CUTOFF)
    error = np.abs(found.values[0].double().numpy() - expected).max()
    assert error < rounding * np.abs(expected).max()


def test_samples_are_inverted_each_for_itself():
    matrices = torch.stack(
        [with_singular_values(v, seed=i) for i, v in enumerate(([3, 2, 1], [5, 0, 0], [1, 1, 1]))]
    )
    together = invert(matrices)
    assert together.rank.tolist() == [3, 1, 3]
    for i, matrix in enumerate(matrices):
        np.testing.assert_allclose(together.values[i], np.linalg.pinv(matrix), atol=1e-12)


def test_full_row_rank_makes_the_inverse_a_right_inverse():
    matrices = torch.randn(20, 5, 9, generator=generator(), dtype=torch.float64)
    product = matrices @ invert(matrices).values
    assert (product - torch.eye(5, dtype=torch.float64)).abs().max() < 1e-10


def test_more_latents_than_neurons_makes_the_inverse_a_left_inverse():
    matrices = torch.randn(20, 9, 5, generator=generator(), dtype=torch.float64)
    found = invert(matrices)
    assert found.rank.tolist() == [5] * 20
    product = found.values @ matrices
    assert (product - torch.eye(5, dtype=torch.float64)).abs().max() < 1e-10


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_zero_jacobian_gives_zeros(dtype):
    found = invert(torch.zeros(2, 3, 5, dtype=dtype))
    assert torch.equal(found.values, torch.zeros(2, 5, 3, dtype=dtype))
    assert found.rank.tolist() == [0, 0]
    assert torch.isfinite(found.condition).all()


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_unit_norm_blocks_lose_a_rank_each_and_the_inverse_does_not_explode(dtype):
    torch.manual_seed(0)
    blocks = [slice(0, 2), slice(2, 5)]
    network = nn.Sequential(nn.Linear(7, 20), nn.GELU(), nn.Linear(20, 5), UnitBlocks(blocks))
    network = network.to(dtype)
    with torch.no_grad():
        jacobians = jacobian(network, samples(30, dtype=dtype))
    found = invert(jacobians)
    assert found.rank.tolist() == [3] * 30
    singular = torch.linalg.svdvals(jacobians.double())
    assert (singular[:, 3] < 1e-6 * singular[:, 0]).all()
    for i in range(30):
        expected = np.linalg.pinv(jacobians[i].double().numpy(), rcond=RELATIVE_CUTOFF)
        largest = np.abs(expected).max()
        assert largest < 10 / float(singular[i, 2])
        tolerance = 1e-3 if dtype == torch.float32 else 1e-9
        np.testing.assert_allclose(found.values[i].numpy(), expected, atol=tolerance * largest)


def test_the_cutoff_is_relative_to_the_largest_singular_value():
    matrix = with_singular_values([1.0, 0.1, 0.01])[None]
    for scale in (1e-12, 1.0, 1e12):
        assert invert(matrix * scale, cutoff=0.05).rank.tolist() == [2]
        assert invert(matrix * scale, cutoff=0.005).rank.tolist() == [3]
