"""Products of linear layers: values and all derivatives are those of a product in float64."""

import copy
import threading

import pytest
import torch
from torch.autograd import forward_ad
from torch.func import functional_call, jacfwd, jacrev, jvp, vmap
from torch.nn import functional as F

from xcebra.common import products as dense
from xcebra.common.products import Dense, product

# Relative to the sum of the absolute values of the terms, the error of a sum of n terms in single
# precision is below n units in the last place, in whatever order they are added.
EPSILON = torch.finfo(torch.float32).eps

with_onednn = pytest.mark.skipif(
    not dense._has_faster_products(), reason="oneDNN is not used on this processor"
)

# Torch uses its own `torch.jit`, which it deprecates, for derivatives in forward mode.
uses_jit = pytest.mark.filterwarnings("ignore:.*torch.jit:DeprecationWarning")


def numbers(*shape, seed=0):
    return torch.randn(*shape, generator=torch.Generator().manual_seed(seed + sum(shape)))


def assert_product(result, x, weight, bias=None):
    """The error is within the bound for sums of this many terms."""
    x, weight = x.detach().double(), weight.detach().double()
    bias = None if bias is None else bias.detach().double()
    size = F.linear(x.abs(), weight.abs(), None if bias is None else bias.abs())
    assert result.dtype == torch.float32
    assert result.shape == (*x.shape[:-1], len(weight))
    error = (result.detach().double() - F.linear(x, weight, bias)).abs()
    assert (error <= (x.shape[-1] + 1) * EPSILON * size).all()


def assert_near(result, expected, relative=1e-5):
    """The largest error is small beside the largest entry."""
    assert result.shape == expected.shape
    error = (result.detach().double() - expected).abs().max()
    assert error <= relative * expected.abs().max()


def float64(*tensors):
    return [tensor.detach().double().requires_grad_() for tensor in tensors]


# Name of a case: the rows, as a function that makes them. All have 64 columns.
ROWS = {
    "contiguous": lambda: numbers(300, 64),
    "transposed": lambda: numbers(64, 300).T,
    "every second row": lambda: numbers(600, 64)[::2],
    "every second column": lambda: numbers(300, 128)[:, ::2],
    "not at the start of its memory": lambda: numbers(301, 65)[1:, 1:],
    "one row, repeated": lambda: numbers(1, 64).expand(300, 64),
    "one number, repeated": lambda: torch.tensor(2.5).expand(300, 64),
    "overlapping windows": lambda: numbers(400).as_strided((300, 64), (1, 1)),
    "many": lambda: numbers(5001, 64),
    "one row": lambda: numbers(1, 64),
    "vector": lambda: numbers(64),
    "three axes": lambda: numbers(7, 50, 64),
    "three axes, transposed": lambda: numbers(50, 7, 64).transpose(0, 1),
    "three axes, one matrix repeated": lambda: numbers(50, 64).expand(7, 50, 64),
    "four axes": lambda: numbers(2, 3, 60, 64),
    "no rows": lambda: numbers(0, 64),
    "three axes, no rows": lambda: numbers(5, 0, 64),
}


@pytest.mark.parametrize("rows", ROWS.values(), ids=ROWS.keys())
@pytest.mark.parametrize("has_bias", [True, False])
def test_values_are_those_of_a_product_in_float64(rows, has_bias):
    x, weight = rows(), numbers(50, 64, seed=1)
    bias = numbers(50, seed=2) if has_bias else None
    assert_product(product(x, weight, bias), x, weight, bias)


WEIGHTS = {
    "transposed": lambda: numbers(64, 50).T,
    "every second row": lambda: numbers(100, 64)[::2],
    "every second column": lambda: numbers(50, 128)[:, ::2],
    "one row, repeated": lambda: numbers(1, 64).expand(50, 64),
}


@pytest.mark.parametrize("weights", WEIGHTS.values(), ids=WEIGHTS.keys())
@pytest.mark.parametrize("needs_gradient", [True, False])
def test_weights_may_lie_in_memory_in_any_order(weights, needs_gradient):
    x, weight = numbers(300, 64), weights()
    result = product(x.requires_grad_(needs_gradient), weight)
    assert result.requires_grad == needs_gradient
    assert_product(result, x, weight)


BIASES = {
    "every second number": lambda: numbers(100)[::2],
    "one number, repeated": lambda: torch.tensor(3.0).expand(50),
    "column of a matrix": lambda: numbers(50, 4)[:, 1],
}


@pytest.mark.parametrize("biases", BIASES.values(), ids=BIASES.keys())
@pytest.mark.parametrize("needs_gradient", [True, False])
def test_biases_may_lie_in_memory_in_any_order(biases, needs_gradient):
    x, weight, bias = numbers(300, 64), numbers(50, 64, seed=1), biases()
    x.requires_grad_(needs_gradient)
    assert_product(product(x, weight, bias), x, weight, bias)


@pytest.mark.parametrize(("n_inputs", "n_outputs"), [(0, 50), (64, 0), (0, 0)])
def test_no_inputs_or_no_outputs(n_inputs, n_outputs):
    x, weight, bias = numbers(300, n_inputs), numbers(n_outputs, n_inputs), numbers(n_outputs)
    result = product(x, weight, bias)
    assert result.shape == (300, n_outputs)
    assert torch.equal(result, bias.expand(300, n_outputs))


@pytest.mark.parametrize("dtype", [torch.float64, torch.bfloat16])
def test_other_precisions_are_left_to_torch(dtype):
    x, weight, bias = (t.to(dtype) for t in (numbers(300, 64), numbers(50, 64), numbers(50)))
    assert torch.equal(product(x, weight, bias), F.linear(x, weight, bias))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_other_devices_are_left_to_torch(dtype):
    x, weight, bias = (
        torch.empty(*shape, device="meta", dtype=dtype) for shape in ((300, 64), (50, 64), (50,))
    )
    result = product(x, weight, bias)
    assert (result.device.type, result.dtype, result.shape) == ("meta", dtype, (300, 50))


@pytest.mark.parametrize(
    "wrong",
    [
        lambda: (numbers(300, 64), numbers(50, 63), None),
        lambda: (numbers(300, 64), numbers(50, 64), numbers(49)),
        lambda: (numbers(300, 64), numbers(50, 64).double(), None),
    ],
)
def test_shapes_and_precisions_that_do_not_fit_are_refused(wrong):
    with pytest.raises(RuntimeError):
        product(*wrong())


def test_the_arguments_are_not_changed():
    x, weight, bias = numbers(300, 64), numbers(50, 64), numbers(50)
    before = [t.clone() for t in (x, weight, bias)]
    product(x, weight, bias)
    assert all(torch.equal(t, b) for t, b in zip((x, weight, bias), before, strict=True))


def test_repeated_products_have_the_same_bits():
    x, weight, bias = numbers(5000, 64), numbers(180, 64), numbers(180)
    first = product(x, weight, bias)
    assert all(torch.equal(product(x, weight, bias), first) for _ in range(5))


# Derivatives


NEEDED = [(True, True, True), (True, False, False), (False, True, False), (False, False, True)]


@pytest.mark.parametrize("needed", NEEDED)
@pytest.mark.parametrize("shape", [(300, 64), (6, 50, 64), (3, 64)])
def test_gradients_are_those_of_a_product_in_float64(needed, shape):
    tensors = [numbers(*shape), numbers(50, 64, seed=1), numbers(50, seed=2)]
    upstream = numbers(*shape[:-1], 50, seed=3)
    expected = float64(*tensors)
    (F.linear(*expected) * upstream).sum().backward()
    for tensor, needs in zip(tensors, needed, strict=True):
        tensor.requires_grad_(needs)
    result = product(*tensors)
    assert result.requires_grad
    result.backward(upstream)
    for tensor, reference, needs in zip(tensors, expected, needed, strict=True):
        assert (tensor.grad is not None) == needs
        if needs:
            assert_near(tensor.grad, reference.grad)


def test_gradients_of_a_plain_sum():
    """Its gradient by the result is one number, repeated, which has no memory of its own."""
    tensors = [t.requires_grad_() for t in (numbers(300, 64), numbers(50, 64), numbers(50))]
    expected = float64(*tensors)
    F.linear(*expected).sum().backward()
    product(*tensors).sum().backward()
    for tensor, reference in zip(tensors, expected, strict=True):
        assert_near(tensor.grad, reference.grad)


def test_nothing_is_recorded_without_gradients():
    x, weight = numbers(300, 64).requires_grad_(), numbers(50, 64).requires_grad_()
    with torch.no_grad():
        assert not product(x, weight).requires_grad
    with torch.inference_mode():
        assert product(x, weight).is_inference()
    assert not product(x.detach(), weight.detach()).requires_grad


@pytest.mark.parametrize("shape", [(300, 64), (6, 50, 64)])
def test_second_derivatives_are_those_of_a_product_in_float64(shape):
    """The gradient of a squared norm of a gradient, as the penalty on Jacobians needs it."""

    def squared_gradient(multiply, x, weight, bias):
        output = torch.tanh(multiply(x, weight, bias)).square().sum()
        gradients = torch.autograd.grad(output, (x, weight, bias), create_graph=True)
        return sum(gradient.square().sum() for gradient in gradients)

    scale = 0.1
    tensors = [scale * numbers(*shape), scale * numbers(50, 64, seed=1), numbers(50, seed=2)]
    tensors = [tensor.requires_grad_() for tensor in tensors]
    expected = float64(*tensors)
    squared_gradient(F.linear, *expected).backward()
    squared_gradient(product, *tensors).backward()
    for tensor, reference in zip(tensors, expected, strict=True):
        assert_near(tensor.grad, reference.grad, 1e-4)


@uses_jit
def test_transforms_of_torch_func():
    """They see torch's own operations: `vmap`, `jacrev`, `jacfwd`, `jvp`, and one in another."""
    x, weight, bias = numbers(300, 64), numbers(50, 64, seed=1), numbers(50, seed=2)
    by_row = vmap(product, in_dims=(0, None, None))(x, weight, bias)
    assert_product(by_row, x, weight, bias)

    def one(rows):
        return product(rows, weight, bias).square().sum(dim=0)

    # The derivative of the sum over rows of y^2 by x is 2 y W.
    expected = 2 * F.linear(x.double(), weight.double(), bias.double())[:, :, None]
    expected = (expected * weight.double()).transpose(0, 1)
    assert_near(jacrev(one)(x), expected)
    assert_near(jacfwd(one)(x), expected)
    tangent = numbers(300, 64, seed=5)
    pushed = jvp(one, (x,), (tangent,))[1]
    assert_near(pushed, torch.einsum("osi,si->o", expected, tangent.double()), 1e-4)
    single = vmap(jacrev(lambda row: product(row, weight, bias)))(x)
    assert torch.equal(single, weight.expand(300, 50, 64))


def test_transforms_of_a_layer_by_its_parameters():
    layer = Dense(64, 50)
    x = numbers(300, 64)
    weights = {name: parameter.detach() for name, parameter in layer.named_parameters()}
    total = jacrev(lambda weights: functional_call(layer, weights, (x,)).sum(dim=0))(weights)
    expected = torch.eye(50)[:, :, None] * x.sum(dim=0)
    assert_near(total["weight"], expected.double())
    assert torch.equal(total["bias"], 300 * torch.eye(50))


@uses_jit
@pytest.mark.parametrize("needs_gradient", [True, False])
def test_derivatives_in_forward_mode(needs_gradient):
    """Tangents that are given without `torch.func` are passed on too."""
    x, weight = numbers(300, 64), numbers(50, 64, seed=1).requires_grad_(needs_gradient)
    tangent = numbers(300, 64, seed=2)
    with forward_ad.dual_level():
        result = forward_ad.unpack_dual(product(forward_ad.make_dual(x, tangent), weight))
    assert_product(result.primal, x, weight)
    assert result.tangent is not None
    assert_product(result.tangent, tangent, weight)


def test_precision_chosen_by_autocast():
    x, weight = numbers(300, 64), numbers(50, 64)
    with torch.autocast("cpu", dtype=torch.bfloat16):
        result, expected = product(x, weight), F.linear(x, weight)
    assert result.dtype == torch.bfloat16
    assert torch.equal(result, expected)


# The layer


def test_a_layer_is_a_linear_layer():
    """It has the same parameters and the same values, and a copy is independent."""
    layer, plain = Dense(64, 50), torch.nn.Linear(64, 50)
    plain.load_state_dict(layer.state_dict())
    x = numbers(300, 64)
    assert_product(layer(x), x, layer.weight, layer.bias)
    assert_product(plain(x), x, layer.weight, layer.bias)
    other = copy.deepcopy(layer)
    with torch.no_grad():
        layer.weight.zero_()
    assert_product(other(x), x, plain.weight, plain.bias)


@uses_jit
@pytest.mark.filterwarnings("ignore::torch.jit.TracerWarning")
@pytest.mark.parametrize("record", ["trace", "export"])
def test_a_layer_can_be_traced_and_exported(record):
    layer, x = Dense(64, 50), numbers(300, 64)
    if record == "trace":
        recorded = torch.jit.trace(layer, x)
    else:
        recorded = torch.export.export(layer, (x,)).module()
    assert_product(recorded(x), x, layer.weight, layer.bias)


def test_several_threads_at_once():
    """Each thread gets the product of its own arguments."""
    weight = numbers(50, 64, seed=1)
    rows = [numbers(300, 64, seed=k) for k in range(4)]
    expected = [product(x, weight) for x in rows]
    differs = []

    def work(k):
        for _ in range(50):
            differs.append(not torch.equal(product(rows[k], weight), expected[k]))

    threads = [threading.Thread(target=work, args=(k,)) for k in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len(differs) == 200
    assert not any(differs)


# The choice of the library


@pytest.fixture
def _undecided():
    """The choice is made anew in the test, and again after it."""
    dense._has_faster_products.cache_clear()
    yield
    dense._has_faster_products.cache_clear()


def called(monkeypatch):
    """List the calls of oneDNN's product from now on."""
    calls = []
    original = dense._onednn_product
    monkeypatch.setattr(
        dense, "_onednn_product", lambda *args: (calls.append(args), original(*args))[1]
    )
    return calls


@with_onednn
def test_large_products_and_their_gradients_use_onednn(monkeypatch):
    calls = called(monkeypatch)
    x, weight = numbers(300, 64).requires_grad_(), numbers(50, 64).requires_grad_()
    product(x, weight).square().sum().backward()
    assert len(calls) == 3


def test_small_products_use_torch(monkeypatch):
    calls = called(monkeypatch)
    product(numbers(3, 4), numbers(5, 4))
    assert not calls


@with_onednn
@pytest.mark.usefixtures("_undecided")
@pytest.mark.parametrize("device", ["cpu", "meta"])
def test_the_choice_does_not_depend_on_defaults_of_torch(device):
    """The user's default device and default precision would make the check fail, or refuse."""
    torch.set_default_dtype(torch.float64)
    try:
        with torch.device(device):
            assert dense._has_faster_products()
    finally:
        torch.set_default_dtype(torch.float32)


@pytest.mark.usefixtures("_undecided")
@pytest.mark.parametrize("error", [AttributeError, RuntimeError, TypeError])
def test_where_onednn_fails_torch_is_used(monkeypatch, error):
    def fails(*_):
        raise error

    monkeypatch.setattr(dense, "_onednn_product", fails)
    assert not dense._has_faster_products()
    x, weight = numbers(300, 64).requires_grad_(), numbers(50, 64)
    assert_product(product(x, weight), x, weight)


@pytest.mark.usefixtures("_undecided")
def test_where_onednn_gives_other_results_torch_is_used(monkeypatch):
    monkeypatch.setattr(dense, "_onednn_product", lambda x, w, b: F.linear(x, w, b) + 1)
    assert not dense._has_faster_products()


@pytest.mark.parametrize("of_x", [True, False])
def test_parts_of_larger_matrices_reach_onednn_as_dense_copies(monkeypatch, of_x):
    """With the strides of a part, oneDNN was a thousand times slower."""
    seen = []

    class Spy:
        @staticmethod
        def _linear_pointwise(x, weight, *rest):
            seen.extend([x, weight])
            return x @ weight.T

    monkeypatch.setattr(torch.ops, "mkldnn", Spy)
    generator = torch.Generator().manual_seed(0)
    part = torch.randn(300, 4000, generator=generator)[:, 100:300]
    whole = torch.randn(300, 200, generator=generator)
    x, weight = (part, whole) if of_x else (whole, part)
    result = dense._onednn_product(x, weight, None)
    assert all(t.is_contiguous() or t.T.is_contiguous() for t in seen)
    assert torch.allclose(result, x @ weight.T, rtol=1e-4, atol=1e-4)
