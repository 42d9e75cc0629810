"""Maps of bare modules: closed forms, loops over samples in float64, and no trace left behind."""

import copy
import gc
import os
import re
import tempfile

import numpy as np
import pytest
import torch
from torch import nn

import xcebra
from xcebra import XCEBRA
from xcebra.attribution.engine import _shuffled
from xcebra.common.choices import CROSSED, METHODS
from xcebra.data.recording import Recording
from xcebra.networks.encoder import UnitBlocks
from xcebra.networks.jacobian import RELATIVE_CUTOFF

N, NEURONS, LATENTS, LAGS = 15, 6, 3, 4
SIX = [m for m in METHODS if m not in (CROSSED, "decoder-gradient")]
FIXED = ["inverted-gradient", "gradient", "integrated-gradients", "feature-ablation"]
SHAP = ["shap-zeros", "shap-shuffled"]


class Gated(nn.Module):
    """Neither a Sequential nor element-wise."""

    def __init__(self):
        super().__init__()
        self.value, self.gate = nn.Linear(NEURONS, LATENTS), nn.Linear(NEURONS, LATENTS)

    def forward(self, x):
        return self.value(x) * torch.sigmoid(self.gate(x)) + x[:, :LATENTS] ** 2


class Windowed(nn.Module):
    def __init__(self):
        super().__init__()
        self.net = nn.Sequential(nn.Conv1d(NEURONS, 5, 2), nn.Tanh(), nn.Conv1d(5, LATENTS, 3))

    def forward(self, x):
        return self.net(x)[:, :, 0]


class Unit(nn.Module):
    def forward(self, z):
        return z / z.norm(dim=1, keepdim=True)


class Products(nn.Module):
    """``(x1^2, x1 x2)``."""

    def forward(self, x):
        return torch.stack([x[:, 0] ** 2, x[:, 0] * x[:, 1]], dim=1)


def mlp(*last, activation=nn.GELU):
    return nn.Sequential(nn.Linear(NEURONS, 9), activation(), nn.Linear(9, LATENTS), *last)


MODULES = {
    "mlp": mlp,
    "relu in place": lambda: mlp(activation=lambda: nn.ReLU(inplace=True)),
    "leaky relu in place": lambda: mlp(activation=lambda: nn.LeakyReLU(0.2, inplace=True)),
    "in place first": lambda: nn.Sequential(nn.ELU(inplace=True), nn.Linear(NEURONS, LATENTS)),
    "nested": lambda: nn.Sequential(nn.Sequential(nn.Linear(NEURONS, 8), nn.SiLU()), tail()),
    "an empty part": lambda: nn.Sequential(nn.Sequential(), mlp(), nn.Sequential()),
    "slope first": lambda: nn.Sequential(nn.Tanh(), nn.Linear(NEURONS, LATENTS)),
    "batch norm": lambda: mlp(nn.BatchNorm1d(LATENTS)),
    "more latents than neurons": lambda: nn.Sequential(nn.Linear(NEURONS, 8), nn.Tanh()),
    "weight norm": lambda: nn.Sequential(
        nn.utils.parametrizations.weight_norm(nn.Linear(NEURONS, LATENTS)), nn.Tanh()
    ),
    "custom": Gated,
    "windowed": Windowed,
    "windowed, in layers": lambda: nn.Sequential(
        nn.Conv1d(NEURONS, 5, 2), nn.GELU(), nn.Flatten(), nn.Linear(15, LATENTS)
    ),
    "windowed, linear over lags": lambda: nn.Sequential(
        nn.Linear(LAGS, 2), nn.Tanh(), nn.Flatten(), nn.Linear(2 * NEURONS, LATENTS)
    ),
}


def tail():
    return nn.Sequential(nn.Sequential(nn.Linear(8, 7), nn.Tanh()), nn.Linear(7, LATENTS))


def build(name):
    torch.manual_seed(len(name))
    return MODULES[name]().double()


def samples(name="mlp", n=N, seed=0):
    shape = (n, NEURONS, LAGS) if name.startswith("windowed") else (n, NEURONS)
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(shape, generator=generator, dtype=torch.float64)


def out_of_place(module):
    """A copy in evaluation mode, safe to differentiate."""
    module = copy.deepcopy(module).eval()
    for part in module.modules():
        if getattr(part, "inplace", False):
            part.inplace = False
    return module


def one_by_one(module, x, method, axes=None):
    """Signed maps, (sample, neuron, latent), of loops that share nothing."""
    module = out_of_place(module)

    def output(row):
        return module(row[None])[0]

    def slopes(row):
        return torch.func.jacrev(output)(row).detach()

    maps = []
    for row in x:
        if method in ("gradient", "inverted-gradient"):
            rows = slopes(row)
            rows = rows if axes is None else torch.tensordot(torch.from_numpy(axes), rows, 1)
            if method == "inverted-gradient":
                inverse = torch.linalg.pinv(rows.flatten(1), rtol=RELATIVE_CUTOFF)
                rows = inverse.T.reshape(rows.shape)
        elif method == "integrated-gradients":
            nodes, weights = np.polynomial.legendre.leggauss(50)
            points = torch.from_numpy((1 + nodes) / 2).reshape(-1, *(1,) * row.ndim) * row
            every = torch.func.vmap(torch.func.jacrev(output))(points).detach()
            rows = torch.tensordot(torch.from_numpy(weights / 2), every, 1) * row
        else:
            rows = torch.zeros(len(output(row)), *row.shape, dtype=row.dtype)
            for where in np.ndindex(*row.shape):
                without = row.clone()
                without[where] = 0
                rows[(slice(None), *where)] = (output(row) - output(without)).detach()
        if axes is not None and method in ("integrated-gradients", "feature-ablation"):
            rows = torch.tensordot(torch.from_numpy(axes), rows, 1)
        rows = rows if rows.ndim == 2 else rows.norm(dim=2)
        maps.append(rows.T.numpy())
    return np.array(maps)


def assert_map(found, maps, rtol=1e-9):
    values = np.abs(maps).mean(axis=0)
    np.testing.assert_allclose(found.values, values, rtol=rtol, atol=rtol * values.max())
    for name, block in found.blocks.items():
        score = np.linalg.norm(maps[:, :, block], axis=2).mean(axis=0)
        np.testing.assert_allclose(found.block(name), score, rtol=rtol, atol=rtol * score.max())


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("name", MODULES)
def test_a_map_is_the_mean_over_samples_of_what_loops_find(name, method):
    module, x = build(name), samples(name)
    assert_map(xcebra.attribute(module, x, method=method), one_by_one(module, x, method))


@pytest.mark.parametrize("method", FIXED)
@pytest.mark.parametrize("name", ["mlp", "custom", "windowed"])
def test_new_axes_and_blocks_are_those_of_the_loop(name, method):
    module, x = build(name), samples(name)
    axes = np.array([[1.0, 2.0, 0.0], [0.5, -1.0, 0.0], [0.1, 0.3, 2.0]])
    blocks = {"a": slice(0, 1), "b": slice(1, 3)}
    found = xcebra.attribute(module, x, method=method, basis=axes, blocks=blocks)
    assert_map(found, one_by_one(module, x, method, axes))
    assert dict(found.blocks) == blocks
    assert found.latent_names == ("a0", "b0", "b1")


def linear():
    torch.manual_seed(0)
    return nn.Linear(NEURONS, LATENTS).double()


def signed(module, x, **options):
    """The map of every sample, (sample, neuron, latent)."""
    return xcebra.attribute(module, x, keep_time=True, **options).steps.maps


def test_a_linear_module_has_all_six_maps_in_closed_form():
    module, x = linear(), samples()
    weight, activity = module.weight.detach().numpy(), x.numpy()
    expected = {
        "gradient": np.abs(weight).T,
        "inverted-gradient": np.abs(np.linalg.pinv(weight)),
    }
    contribution = np.abs(weight.T) * np.abs(activity).mean(axis=0)[:, None]
    for method in ("integrated-gradients", "feature-ablation", "shap-zeros"):
        expected[method] = contribution
    for method, values in expected.items():
        found = xcebra.attribute(module, x, method=method)
        np.testing.assert_allclose(found.values, values, rtol=1e-10)


def test_shuffled_baselines_are_on_average_the_mean_of_all_entries():
    module = linear()
    x = samples(n=4000) + torch.arange(NEURONS)
    found = signed(module, x, method="shap-shuffled").mean(axis=0)
    from_mean = (x.mean(dim=0) - x.mean()).numpy()
    # Five baselines a sample, of standard deviation two: 0.014, and five times that.
    weight = module.weight.detach().numpy()
    assert (np.abs(found - (weight * from_mean).T) < 0.07 * np.abs(weight.T)).all()
    other = signed(module, x, method="shap-shuffled", random_state=1)
    again = signed(module, x, method="shap-shuffled", random_state=1)
    np.testing.assert_array_equal(other, again)
    assert np.abs(other.mean(axis=0) - found).max() > 1e-6


def test_products_have_all_six_maps_in_closed_form():
    generator = torch.Generator().manual_seed(0)
    x = torch.rand(N, 2, generator=generator, dtype=torch.float64) + 0.5
    a, b = x.T.numpy()
    zero = np.zeros(N)
    expected = {
        "gradient": [[2 * a, b], [zero, a]],
        "inverted-gradient": [[1 / (2 * a), zero], [-b / (2 * a**2), 1 / a]],
        "integrated-gradients": [[a**2, a * b / 2], [zero, a * b / 2]],
        "feature-ablation": [[a**2, a * b], [zero, a * b]],
    }
    # The gradient at ``far * x`` is ``far`` times that at ``x``.
    far = signed(Products(), x, method="shap-zeros")[:, 0, 0] / (2 * a**2)
    assert ((far > 0) & (far < 1)).all()
    assert far.mean() == pytest.approx(0.5, abs=0.15)
    expected["shap-zeros"] = [[2 * far * a**2, far * a * b], [zero, far * a * b]]
    for method, maps in expected.items():
        maps = np.moveaxis(np.array(maps), 2, 0)
        found = signed(Products(), x, method=method)
        np.testing.assert_allclose(found, maps, rtol=1e-6, atol=1e-12)
        assert_map(xcebra.attribute(Products(), x, method=method), maps, rtol=1e-6)


def test_activity_that_is_everywhere_the_same_has_nothing_to_gain_by_shuffling():
    same = torch.full((N, 2), 1.5, dtype=torch.float64)
    assert not xcebra.attribute(Products(), same, method="shap-shuffled").values.any()


@pytest.mark.parametrize("method", SIX)
@pytest.mark.parametrize("name", ["mlp", "custom", "windowed"])
def test_the_size_of_a_batch_changes_nothing(name, method):
    module, x = build(name), samples(name)
    whole = signed(module, x, method=method)  # so few samples go through at once
    for size in (1, 7):
        np.testing.assert_allclose(
            signed(module, x, method=method, batch_size=size), whole, rtol=1e-6, atol=1e-7
        )


@pytest.mark.parametrize("method", ["gradient", "inverted-gradient"])
def test_nor_does_it_where_jacobians_are_smoothed(method):
    module, x = build("mlp"), samples()
    whole = signed(module, x, method=method, smooth=4)
    for size in (1, 7, N):
        found = signed(module, x, method=method, smooth=4, batch_size=size)
        np.testing.assert_allclose(found, whole, rtol=1e-6, atol=1e-7)


def test_smoothing_over_all_samples_is_the_mean_jacobian():
    module, x = build("mlp"), samples()
    mean = one_by_one(module, x, "gradient").mean(axis=0)
    found = signed(module, x, method="inverted-gradient", smooth=1000)
    inverse = np.linalg.pinv(mean.T)
    np.testing.assert_allclose(found, np.broadcast_to(inverse, found.shape), rtol=1e-5, atol=1e-7)


# Not shap-shuffled, nor shap-zeros of a bent module: draws belong to positions, not to samples.
@pytest.mark.parametrize(
    ("name", "method"),
    [(n, m) for n in ("mlp", "custom", "windowed") for m in FIXED] + [("linear", "shap-zeros")],
)
def test_the_order_of_samples_means_nothing(name, method):
    module, x = linear() if name == "linear" else build(name), samples(name)
    order = torch.from_numpy(np.random.default_rng(0).permutation(N))
    plain, permuted = (xcebra.attribute(module, each, method=method) for each in (x, x[order]))
    np.testing.assert_allclose(permuted.values, plain.values, rtol=1e-10)
    np.testing.assert_allclose(permuted.block("all"), plain.block("all"), rtol=1e-10)


each_method = pytest.mark.parametrize("method", SIX)


@each_method
def test_a_block_is_its_columns_of_the_whole_map(method):
    module, x = build("mlp"), samples()
    blocks = {"a": slice(0, 2), "b": slice(2, 3)}
    whole = xcebra.attribute(module, x, method=method, blocks=blocks)
    for asked, name, columns in [
        ("a", "a", slice(0, 2)),
        ("b", "b", slice(2, 3)),
        (slice(0, 2), "0:2", slice(0, 2)),
        (slice(-1, None), "2:3", slice(2, 3)),
        (slice(None), "0:3", slice(0, 3)),
    ]:
        part = xcebra.attribute(module, x, method=method, blocks=blocks, block=asked)
        np.testing.assert_allclose(part.values, whole.values[:, columns], rtol=1e-14)
        assert part.latent_names == whole.latent_names[columns]
        assert dict(part.blocks) == {name: slice(0, part.values.shape[1])}
        if isinstance(asked, str):
            np.testing.assert_allclose(part.block(name), whole.block(name), rtol=1e-14)


@each_method
def test_a_direction_along_a_latent_is_its_column_whatever_its_length(method):
    module, x = build("mlp"), samples()
    whole = xcebra.attribute(module, x, method=method).values
    for length in (1, 0.1, 5.0):
        part = xcebra.attribute(module, x, method=method, block=[[0, length, 0]])
        np.testing.assert_allclose(part.values[:, 0], whole[:, 1], rtol=1e-12)
        np.testing.assert_allclose(part.block("directions"), whole[:, 1], rtol=1e-12)
    assert part.latent_names == ("direction0",)


@each_method
def test_directions_are_made_orthonormal_in_their_order(method):
    module, x = build("mlp"), samples()
    maps = signed(module, x, method=method)
    first, second = np.array([1.0, 1.0, 0.0]), np.array([1.0, 0.0, 0.0])
    found = signed(module, x, method=method, block=[first, second])
    turned = np.array([[1, 1, 0], [1, -1, 0]]) / np.sqrt(2)
    np.testing.assert_allclose(found, maps @ turned.T, rtol=1e-5, atol=1e-6)


@each_method
@pytest.mark.parametrize("name", ["mlp", "windowed"])
def test_the_score_of_a_subspace_does_not_depend_on_the_basis_given_for_it(name, method):
    module, x = build(name), samples(name)
    plane = np.random.default_rng(0).standard_normal((2, LATENTS))
    mixed = np.array([[2.0, 1.0], [-0.3, 4.0]]) @ plane
    scores = [
        xcebra.attribute(module, x, method=method, block=each).block("directions")
        for each in (plane, mixed, plane[::-1])
    ]
    np.testing.assert_allclose(scores[1], scores[0], rtol=1e-10)
    np.testing.assert_allclose(scores[2], scores[0], rtol=1e-10)


@pytest.mark.parametrize("last", [Unit, lambda: UnitBlocks([slice(0, LATENTS)])])
def test_unit_length_outputs_are_inverted_on_the_tangent_plane(last):
    torch.manual_seed(0)
    module, x = mlp(last()).double(), samples()
    found = xcebra.attribute(module, x)
    maps = []
    for rows in one_by_one(module, x, "gradient").swapaxes(1, 2):
        left, values, right = np.linalg.svd(rows, full_matrices=False)
        assert values[-1] < 1e-12 * values[0]
        maps.append(right[:-1].T / values[:-1] @ left[:, :-1].T)
    assert_map(found, np.array(maps), rtol=1e-7)
    assert found.made["rank_lost"] == 1
    assert found.made["condition_worst"] < 1 / RELATIVE_CUTOFF


class Mixed(nn.Module):
    """Parts in different modes, some frozen, with hooks, statistics and dropout."""

    def __init__(self):
        super().__init__()
        self.layers = nn.Sequential(
            nn.Linear(NEURONS, 8),
            nn.BatchNorm1d(8),
            nn.ReLU(inplace=True),
            nn.Dropout(0.5),
            nn.Linear(8, LATENTS),
        )

    def forward(self, x):
        return self.layers(x)


def state(module):
    return {
        "modes": [part.training for part in module.modules()],
        "in place": [getattr(part, "inplace", None) for part in module.modules()],
        "needs": [p.requires_grad for p in module.parameters()],
        "types": [(v.dtype, v.device) for v in module.state_dict().values()],
        "hooks": [list(part._forward_hooks.values()) for part in module.modules()],
        "values": [v.clone().numpy().tobytes() for v in module.state_dict().values()],
        "gradients": [None if p.grad is None else p.grad.tolist() for p in module.parameters()],
    }


@each_method
@pytest.mark.parametrize("flat", [True, False])
@pytest.mark.parametrize("fails", [True, False])
def test_a_module_is_left_as_it_was(flat, method, fails):
    torch.manual_seed(0)
    mixed = Mixed()
    module = mixed.layers if flat else mixed
    module.train()
    mixed.layers[3].eval()
    mixed.layers[0].weight.requires_grad_(False)
    mixed.layers[4].weight.grad = torch.ones(LATENTS, 8)
    calls = []
    mixed.layers[4].register_forward_hook(lambda part, args, out: calls.append(part.training))
    x = torch.randn(N, NEURONS)
    before, original, draws = state(module), x.clone(), torch.get_rng_state()
    if fails:
        with pytest.raises(ValueError, match="block must be one of"):
            xcebra.attribute(module, x, method=method, block="nothing")
    else:
        first, again = (xcebra.attribute(module, x, method=method).values for _ in range(2))
        np.testing.assert_array_equal(first, again)
    assert state(module) == before
    assert torch.equal(x, original)
    assert torch.equal(torch.get_rng_state(), draws)
    assert calls
    assert not any(calls)


def test_a_hook_that_changes_outputs_is_part_of_the_module():
    module = nn.Sequential(linear())
    module[0].register_forward_hook(lambda part, args, out: 2 * out)
    expected = 2 * module[0].weight.detach().abs().T
    for given in (module, module[0]):
        found = xcebra.attribute(given, samples(), method="gradient")
        np.testing.assert_allclose(found.values, expected, rtol=1e-12)


@each_method
def test_the_users_samples_are_not_changed_by_modules_that_work_in_place(method):
    module, x = build("in place first"), samples()
    original = x.clone()
    xcebra.attribute(module, x, method=method)
    assert torch.equal(x, original)


def test_nor_by_modules_that_do_so_by_themselves():
    x = samples()
    original = x.clone()
    xcebra.attribute(Says(lambda each: each.mul_(2)), x, method="feature-ablation")
    assert torch.equal(x, original)


def test_samples_come_as_they_are_and_the_module_keeps_its_precision():
    seen = []
    module = linear()
    module.register_forward_pre_hook(lambda part, args: seen.append(args[0].dtype))
    counts = np.random.default_rng(0).integers(0, 5, (N, NEURONS))
    frozen = counts.astype(float)
    frozen.flags.writeable = False
    wanted = xcebra.attribute(module, counts.astype(float), method="feature-ablation").values
    given = {
        "integers": counts,
        "small integers": counts.astype(np.uint8),
        "single": counts.astype(np.float32),
        "lists": counts.tolist(),
        "read-only": frozen,
        "reversed twice": counts.astype(float)[::-1].copy()[::-1],
        "columns first": np.asfortranarray(counts.astype(float)),
        "a tensor": torch.from_numpy(counts),
        "a tensor that requires a gradient": torch.from_numpy(frozen.copy()).requires_grad_(),
        "a recording": Recording(counts),
    }
    for name, X in given.items():
        found = xcebra.attribute(module, X, method="feature-ablation").values
        np.testing.assert_allclose(found, wanted, rtol=1e-12, err_msg=name)
    assert set(seen) == {torch.float64}
    assert given["a tensor that requires a gradient"].grad is None


def test_precision_is_that_of_parameters_else_of_buffers_else_of_the_samples():
    class Fixed(nn.Module):
        def __init__(self, dtype):
            super().__init__()
            self.register_buffer("count", torch.zeros(1, dtype=torch.int64))
            self.register_buffer("weight", torch.eye(NEURONS, 2, dtype=dtype))

        def forward(self, x):
            return x @ self.weight

    for dtype in (torch.float32, torch.float64):
        found = xcebra.attribute(Fixed(dtype), samples().numpy(), method="gradient")
        np.testing.assert_array_equal(found.values, np.eye(NEURONS, 2))
    exact = xcebra.attribute(Products(), samples()[:, :2], method="feature-ablation")
    x = samples()[:, :2].numpy()
    assert exact.values[0, 0] == pytest.approx((x[:, 0] ** 2).mean(), rel=1e-14)


@pytest.mark.parametrize("dtype", [torch.float16, torch.bfloat16])
def test_half_precision_is_summed_in_single(dtype):
    class Gains(nn.Module):
        def __init__(self):
            super().__init__()
            self.gains = nn.Parameter(torch.tensor([0.1, 0.7, 3.0]).to(dtype))

        def forward(self, x):
            return x * self.gains

    module = Gains()
    x = samples(n=3000)[:, :3]
    found = xcebra.attribute(module, x, method="gradient", aggregate="sum", keep_time=True)
    expected = torch.diag(module.gains.detach().double()).numpy()
    np.testing.assert_allclose(found.values, 3000 * expected, rtol=1e-5)
    np.testing.assert_array_equal(found.steps.maps[0], expected)


def test_every_step_is_kept_with_its_sign():
    module, x = build("custom"), samples()
    for method in FIXED:
        maps = one_by_one(module, x, method)
        assert (maps < 0).any()
        found = xcebra.attribute(module, x, method=method, keep_time=True)
        np.testing.assert_allclose(found.steps.maps, maps, rtol=1e-5, atol=1e-6)
        np.testing.assert_array_equal(found.steps.times, np.arange(N))
        np.testing.assert_allclose(found.signed(), maps.mean(axis=0), rtol=1e-5, atol=1e-6)
        median = xcebra.attribute(module, x, method=method, keep_time=True, aggregate="median")
        expected = np.median(np.abs(maps), axis=0)
        np.testing.assert_allclose(median.values, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("kind", [str, lambda path: path])
def test_steps_go_to_the_file_that_is_asked_for_and_stay_there(tmp_path, kind):
    module, x = build("mlp"), samples()
    expected = signed(module, x)
    found = xcebra.attribute(module, x, keep_time=kind(tmp_path / "steps.npy"))
    np.testing.assert_array_equal(found.steps.maps, expected)
    assert isinstance(found.steps.stored, np.memmap)
    with pytest.raises(ValueError, match="read-only"):
        found.steps.stored[0, 0, 0] = 1
    del found
    gc.collect()
    np.testing.assert_array_equal(np.load(tmp_path / "steps.npy"), expected)


@pytest.mark.skipif(not os.path.isdir("/proc/self/fd"), reason="counts open files as Linux does")
def test_large_maps_go_to_a_file_that_leaves_with_them(tmp_path, monkeypatch):
    module, x = build("mlp"), samples()
    expected = signed(module, x)
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    monkeypatch.setattr(
        "xcebra.attribution.step_store._IN_MEMORY_BYTES", 4 * N * NEURONS * LATENTS - 1
    )
    n_open = len(os.listdir("/proc/self/fd"))
    found = xcebra.attribute(module, x, keep_time=True)
    assert [path.suffix for path in tmp_path.iterdir()] == [".npy"]
    part = found.restrict(epochs=[(2, 9)])
    del found
    gc.collect()
    assert len(list(tmp_path.iterdir())) == 1
    np.testing.assert_array_equal(part.steps.maps, expected[2:9])
    del part
    gc.collect()
    assert not list(tmp_path.iterdir())
    assert len(os.listdir("/proc/self/fd")) == n_open
    monkeypatch.setattr("xcebra.attribution.step_store._IN_MEMORY_BYTES", 4 * N * NEURONS * LATENTS)
    kept = xcebra.attribute(module, x, keep_time=True)
    assert not list(tmp_path.iterdir())
    assert len(kept.steps) == N


@pytest.mark.parametrize("method", FIXED)
def test_only_samples_of_the_epochs_count(method):
    module, x = build("mlp"), samples()
    epochs = [(1, 5), (9, 14)]
    times = [*range(1, 5), *range(9, 14)]
    expected = one_by_one(module, x[times], method)
    found = xcebra.attribute(module, x, method=method, epochs=epochs, keep_time=True)
    assert_map(found, expected)
    np.testing.assert_array_equal(found.steps.times, times)
    assert found.made["n_samples"] == 9
    names = [f"cell {i}" for i in range(NEURONS)]
    recording = Recording(x.numpy(), epochs=epochs, neuron_names=names)
    from_recording = xcebra.attribute(module, recording, method=method)
    assert_map(from_recording, expected, rtol=1e-5)
    assert from_recording.neuron_names == tuple(names)


def test_background_of_shuffled_baselines_comes_from_the_epochs_alone():
    module, x = linear(), samples()
    x[:10] = 2.0
    found = xcebra.attribute(module, x, method="shap-shuffled", epochs=[(0, 10)])
    assert not found.values.any()


class Says(nn.Module):
    def __init__(self, answer):
        super().__init__()
        self.answer = answer

    def forward(self, x):
        return self.answer(x)


DIRECTIONS = "a slice, or finite directions of shape (n_directions, 3), one per row, got shape"
WRONG = {
    "an unknown method": ({"method": "magic"}, "method must be one of ['decoder-gradient', 'inv"),
    "a list of methods": ({"method": ["gradient"]}, "got ['gradient']"),
    "the decoder": (
        {"method": "decoder-gradient"},
        "needs a decoder, which XCEBRA fits and a bare module does not have; use one of ['inverted",
    ),
    "aggregate": ({"aggregate": "mode"}, "aggregate must be one of ['mean', 'max', 'sum', 'median"),
    "median without time": ({"aggregate": "median"}, "needs every time step: give keep_time=True"),
    "no smoothing": ({"smooth": 0}, "smooth must be a whole number of 1 or more, got 0"),
    "smooth None": ({"smooth": None}, "smooth must be a whole number of 1 or more, got None"),
    "half a neighbour": ({"smooth": 1.5}, "smooth must be a whole number of 1 or more, got 1.5"),
    "smoothed contributions": (
        {"method": "feature-ablation", "smooth": 3},
        "smooth=3 averages Jacobians, and 'feature-ablation' has none; use smooth=1, or one of",
    ),
    "smoothed by numpy": (
        {"method": "shap-zeros", "smooth": np.int64(3)},
        "smooth=3 averages Jacobians, and 'shap-zeros' has none",
    ),
    "batch size": ({"batch_size": 0}, "batch_size must be a whole number of 1 or more, got 0"),
    "keep_time": ({"keep_time": 1}, "keep_time must be True, False or a path, got 1"),
    "no folder": (
        {"keep_time": "/nowhere/at/all.npy"},
        "keep_time='/nowhere/at/all.npy': there is no folder '/nowhere/at'",
    ),
    "negative seed": ({"random_state": -1}, "random_state must be a whole number of 0 or more"),
    "no seed": ({"random_state": None}, "random_state must be a whole number of 0 or more"),
    "one problem": ({"smooth": 0, "batch_size": 0}, "got 0; batch_size must be a whole number"),
    "epochs": ({"epochs": [(0, 99)]}, "epochs[0] is (0, 99), but an epoch needs"),
    "neuron names": ({"neuron_names": "abc"}, "neuron_names has 3 names, but X has 6 neurons"),
    "a gap between blocks": (
        {"blocks": {"a": slice(0, 1), "b": slice(2, 3)}},
        "blocks['b'] is slice(2, 3, None), but blocks must be slices that lie side by side and in "
        "order; this one starts at 1",
    ),
    "an empty block": ({"blocks": {"a": slice(0, 0)}}, "this one starts at 0"),
    "an open block": ({"blocks": {"a": slice(0, None)}}, "this one starts at 0"),
    "every second": (
        {"blocks": {"a": slice(0, 3, 2)}},
        "blocks['a'] is slice(0, 3, 2), but blocks",
    ),
    "no slice": ({"blocks": {"a": (0, 3)}}, "blocks['a'] is (0, 3), but blocks must be slices"),
    "short blocks": (
        {"blocks": {"a": slice(0, 2)}},
        "blocks end at 2, but the module has 3 latents",
    ),
    "long blocks": (
        {"blocks": {"a": slice(0, 4)}},
        "blocks end at 4, but the module has 3 latents",
    ),
    "basis by name": (
        {"basis": "sparse"},
        "basis='sparse' needs a fitted XCEBRA; for a bare module give 'raw' or a matrix of shape",
    ),
    "small basis": ({"basis": np.eye(2)}, "finite matrix of shape (3, 3), got shape (2, 2)"),
    "infinite basis": (
        {"basis": np.full((3, 3), np.inf)},
        "basis must be 'raw' or a finite matrix",
    ),
    "singular basis": (
        {"basis": np.ones((3, 3))},
        "basis has no inverse: its rows must be linearly",
    ),
    "block name": ({"block": "b"}, "block must be one of ['all'], a slice of the 3 latents or a m"),
    "beyond": ({"block": slice(0, 4)}, "must choose one or more neighbours of the 3 latents"),
    "empty": ({"block": slice(2, 2)}, "must choose one or more neighbours of the 3 latents"),
    "step": ({"block": slice(0, 3, 2)}, "must choose one or more neighbours of the 3 latents"),
    "short direction": ({"block": [1.0, 0.0]}, f"{DIRECTIONS} (2,)"),
    "no direction": ({"block": np.empty((0, 3))}, f"{DIRECTIONS} (0, 3)"),
    "NaN direction": ({"block": [[1.0, np.nan, 0.0]]}, f"{DIRECTIONS} (1, 3)"),
    "one row, which may mean latents": ({"block": [1, 0, 0]}, f"{DIRECTIONS} (3,)"),
    "a mask": ({"block": [[True, False, True]]}, f"{DIRECTIONS} (1, 3)"),
    "words for a basis": ({"basis": [["a"]]}, "basis must be 'raw' or a finite matrix"),
    "three axes": ({"block": np.ones((1, 1, 3))}, f"{DIRECTIONS} (1, 1, 3)"),
    "an object": ({"block": object()}, f"{DIRECTIONS} ()"),
    "dependent directions": (
        {"block": [[1, 0, 0], [2, 0, 0]]},
        "the 2 directions of block span only 1 dimensions; leave out those that follow",
    ),
    "zero direction": ({"block": [[0, 0, 0]]}, "the 1 directions of block span only 0 dimensions"),
    "one axis": ({"X": np.ones(6)}, "n_lags), got float64 of shape (6,)"),
    "four axes": ({"X": np.ones((2, 6, 1, 1))}, "n_lags), got float64 of shape (2, 6, 1, 1)"),
    "no samples": ({"X": np.ones((0, 6))}, "n_lags), got float64 of shape (0, 6)"),
    "words": ({"X": [["a", "b"]]}, "X must hold numbers of shape (n_samples, n_neurons) or"),
    "nothing": ({"X": None}, "n_lags), got NoneType"),
    "ragged": ({"X": [[1, 2], [3]]}, "n_lags), got list"),
    "complex": ({"X": np.ones((2, 6), complex)}, "n_lags), got complex128 of shape (2, 6)"),
    "NaN": ({"X": np.full((2, 6), np.nan)}, "X has NaN or infinite entries; fill them or leave"),
    "infinite": ({"X": torch.full((2, 6), torch.inf)}, "X has NaN or infinite entries"),
    "other neurons": (
        {"X": np.ones((2, 5))},
        "the module cannot read samples of shape (1, 5): ",
    ),
    "lags": ({"X": np.ones((2, 5, 4))}, "or (n_samples, n_neurons, n_lags) for models of time win"),
    "an index beyond": ({"module": Says(lambda x: x[:, [9]])}, "the module cannot read samples of"),
    "three axes out": (
        {"module": Says(lambda x: x[:, :, None])},
        "the module must answer (sample, latent), but for one sample it gave (1, 6, 1); add",
    ),
    "one axis out": ({"module": Says(lambda x: x[:, 0])}, "but for one sample it gave (1,)"),
    "samples lost": ({"module": Says(lambda x: x.expand(2, 6))}, "for one sample it gave (2, 6)"),
    "two answers": ({"module": Says(lambda x: (x, x))}, "but for one sample it gave a tuple"),
}


@pytest.mark.parametrize("what", WRONG)
def test_what_cannot_be_done_is_said(what):
    changed, message = WRONG[what]
    given = {"module": linear(), "X": samples(), "method": "gradient", **changed}
    with pytest.raises(ValueError, match=re.escape(message)):
        xcebra.attribute(**given)


def test_the_scale_of_axes_scales_columns_and_nothing_else():
    module, x = build("mlp"), samples()
    plain = xcebra.attribute(module, x)
    scale = np.array([1.0, 1e6, 1e-6])
    scaled = xcebra.attribute(module, x, basis=np.diag(scale))
    np.testing.assert_allclose(scaled.values, plain.values / scale, rtol=1e-9)
    assert scaled.made["rank_lost"] == 0
    assert scaled.made["condition_median"] == plain.made["condition_median"]
    assert (plain.made["basis"], scaled.made["basis"]) == ("raw", "given")


def test_a_file_that_is_there_is_not_written_over(tmp_path):
    module, x = build("mlp"), samples()
    path = tmp_path / "x.npy"
    np.save(path, x)
    with pytest.raises(ValueError, match="is there already; remove it or rename"):
        xcebra.attribute(module, np.load(path, mmap_mode="r"), keep_time=path)
    assert np.array_equal(np.load(path), x)


def test_a_map_that_fails_half_way_leaves_no_file(tmp_path):
    class Tires(torch.nn.Module):
        calls = 0

        def forward(self, x):
            Tires.calls += 1
            if Tires.calls > 6:
                raise RuntimeError("tired")
            return x[:, :2] ** 2

    with pytest.raises(RuntimeError, match="tired"):
        xcebra.attribute(Tires(), samples(), batch_size=1, keep_time=tmp_path / "map.npy")
    gc.collect()
    assert not list(tmp_path.iterdir())


@pytest.mark.parametrize("thing", [len, XCEBRA()], ids=["a function", "an estimator"])
def test_what_is_not_a_module_is_refused(thing):
    with pytest.raises(TypeError, match=r"module must be a torch\.nn\.Module, got"):
        xcebra.attribute(thing, samples())


def test_the_shuffled_background_covers_the_whole_recording(monkeypatch):
    monkeypatch.setattr("xcebra.attribution.engine._BACKGROUND", 8)
    asked = []
    _shuffled(lambda times: (asked.extend(times), torch.zeros(len(times), 2))[1], np.arange(15), 0)
    assert asked[0] == 0
    assert asked[-1] == 14
    assert np.diff(asked).max() <= 3
