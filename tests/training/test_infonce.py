"""The loss and both forms of its kernel, against a dense float64 sum with autograd."""

import math
import subprocess
import sys
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import pytest
import torch

from xcebra.training.infonce import SIMILARITIES, chance_level, infonce, pair_losses
from xcebra.training.kernels import contrast, fused, tiled

EPS = float(torch.finfo(torch.float32).eps)
# (references, negatives, latents): around the row block (8), the column block (1024), the number
# of rows after which sums are flushed (256) and the number of pairs that calls for threads.
SHAPES = [
    (1, 1, 1),
    (1, 7, 2),
    (7, 1, 3),
    (8, 8, 4),
    (9, 1023, 5),
    (5, 1024, 4),
    (13, 1029, 6),
    (3, 2051, 17),
    (530, 520, 3),
]


@pytest.fixture(autouse=True)
def n_threads():
    """One thread unless a test sets another number: idle threads that wait slow small work."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield torch.set_num_threads
    torch.set_num_threads(before)


def points(n, m, d, seed=0, scale=1.0, offset=0.0):
    """References, positives near them, negatives: float32 numbers."""
    g = torch.Generator().manual_seed(seed)
    reference = torch.randn(n, d, generator=g)
    positive = reference + 0.3 * torch.randn(n, d, generator=g)
    negative = torch.randn(m, d, generator=g)
    return [p * scale + offset for p in (reference, positive, negative)]


def dense_pairs(reference, positive, negative, similarity, temperature, include_positive):
    """Loss of each pair, by the whole matrix of similarities."""
    if similarity == "cosine":
        reference, positive, negative = (
            p / p.norm(dim=1, keepdim=True) for p in (reference, positive, negative)
        )
    if similarity == "euclidean":
        matched = -(reference - positive).square().sum(dim=1) / temperature
        psi = -(reference[:, None] - negative[None]).square().sum(dim=2) / temperature
    else:
        matched = (reference * positive).sum(dim=1) / temperature
        psi = reference @ negative.T / temperature
    if include_positive:
        psi = torch.cat([psi, matched[:, None]], dim=1)
    return torch.logsumexp(psi, dim=1) - matched


def dense_loss(*args):
    return dense_pairs(*args).mean()


def value_and_gradients(loss, arrays, similarity, temperature, include_positive, dtype):
    """Value, and gradients by reference, positive, negative and temperature, in float64."""
    leaves = [p.detach().to(dtype, copy=True).requires_grad_() for p in arrays]
    tau = torch.tensor(temperature, dtype=dtype, requires_grad=True)
    value = loss(*leaves, similarity, tau, include_positive)
    return [g.double() for g in (value.detach(), *torch.autograd.grad(value, [*leaves, tau]))]


def our_loss(reference, positive, negative, similarity, temperature, include_positive):
    return infonce(
        reference,
        positive,
        negative,
        similarity=similarity,
        temperature=temperature,
        include_positive=include_positive,
    )


def assert_same(found, expected, tolerance):
    """Agreement relative to the largest entry of each array, and to 1."""
    for a, b in zip(found, expected, strict=True):
        assert a.shape == b.shape
        assert (a - b).abs().max() <= tolerance * max(1.0, float(b.abs().max()))


def kernel_reference(reference, negative, matched, euclidean, include_positive):
    """Everything a kernel returns, from float64 autograd on the whole matrix."""
    x, y, match = (p.double().clone().requires_grad_() for p in (reference, negative, matched))
    psi = -(x[:, None] - y[None]).square().sum(dim=2) if euclidean else x @ y.T
    partition = torch.logsumexp(psi, dim=1)
    loss = torch.logaddexp(partition, match) if include_positive else partition
    to_x, to_y, to_match = torch.autograd.grad(
        (loss - match).sum(), (x, y, match), materialize_grads=True
    )
    return partition.detach(), -to_match, to_x, to_y


@pytest.mark.parametrize("include_positive", [False, True])
@pytest.mark.parametrize("euclidean", [True, False])
@pytest.mark.parametrize(("n", "m", "d"), SHAPES)
@pytest.mark.parametrize(
    ("kernel", "dtype", "tolerance"),
    [
        (fused, torch.float32, 1e-5),
        (tiled, torch.float32, 1e-5),
        (tiled, torch.float64, 1e-12),
    ],
)
def test_kernel_equals_the_dense_sum(
    kernel, dtype, tolerance, n, m, d, euclidean, include_positive
):
    x, p, y = (each.to(dtype) for each in points(n, m, d))
    matched = -(x - p).square().sum(dim=1) if euclidean else (x * p).sum(dim=1)
    found = kernel(x, y, matched, euclidean, include_positive, True)
    expected = kernel_reference(x, y, matched, euclidean, include_positive)
    assert all(each.dtype == dtype for each in found)
    assert_same([each.double() for each in found], expected, tolerance)


@pytest.mark.parametrize("kernel", [fused, tiled])
@pytest.mark.parametrize("euclidean", [True, False])
def test_kernel_without_gradient_gives_the_same_partition_and_no_gradient(kernel, euclidean):
    x, _, y = points(13, 1029, 5)
    matched = torch.zeros(13)
    with_gradient = kernel(x, y, matched, euclidean, True, True)
    without = kernel(x, y, matched, euclidean, True, False)
    assert torch.equal(without.partition, with_gradient.partition)
    assert torch.equal(without.weight, with_gradient.weight)
    assert without.to_reference.numel() == without.to_negative.numel() == 0


@pytest.mark.parametrize("kernel", [fused, tiled])
def test_kernel_leaves_its_inputs_as_they_were(kernel):
    arrays = points(9, 40, 3)
    before = [p.clone() for p in arrays]
    kernel(arrays[0], arrays[2], torch.zeros(9), True, True, True)
    assert all(torch.equal(a, b) for a, b in zip(arrays, before, strict=True))


@pytest.mark.parametrize(("dtype", "form"), [(torch.float32, fused), (torch.float64, tiled)])
def test_float32_on_the_cpu_is_fused_and_float64_is_tiled(dtype, form):
    x, _, y = (p.to(dtype) for p in points(13, 50, 3))
    chosen = contrast(x, y, torch.zeros(13, dtype=dtype), True, False, gradient=True)
    direct = form(x, y, torch.zeros(13, dtype=dtype), True, False, True)
    assert chosen.partition.dtype == dtype
    assert all(torch.equal(a, b) for a, b in zip(chosen, direct, strict=True))


@pytest.mark.parametrize("include_positive", [False, True])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 2e-5), (torch.float64, 1e-10)])
@pytest.mark.parametrize("temperature", [1.0, 0.2])
def test_value_and_every_gradient_equal_dense_autograd(
    temperature, dtype, tolerance, similarity, include_positive
):
    arrays = points(37, 1029, 5)
    rest = (similarity, temperature, include_positive)
    found = value_and_gradients(our_loss, arrays, *rest, dtype)
    assert_same(found, value_and_gradients(dense_loss, arrays, *rest, torch.float64), tolerance)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("d", range(1, 18))
def test_any_number_of_latents(d, similarity):
    arrays = points(11, 37, d, seed=d)
    rest = (similarity, 0.7, True)
    found = value_and_gradients(our_loss, arrays, *rest, torch.float32)
    assert_same(found, value_and_gradients(dense_loss, arrays, *rest, torch.float64), 2e-5)


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("n", "m"), [(1, 1), (1, 50), (50, 1), (17, 33)])
def test_any_number_of_references_and_negatives(n, m, similarity):
    arrays = points(n, m, 4)
    for include_positive in (False, True):
        rest = (similarity, 1.0, include_positive)
        found = value_and_gradients(our_loss, arrays, *rest, torch.float32)
        assert_same(found, value_and_gradients(dense_loss, arrays, *rest, torch.float64), 2e-5)


@pytest.mark.parametrize("which", [0, 1, 2])
def test_each_argument_gets_its_gradient_when_it_alone_needs_one(which):
    arrays = points(9, 30, 3)
    whole = value_and_gradients(our_loss, arrays, "euclidean", 1.0, True, torch.float32)
    arrays[which].requires_grad_()
    infonce(*arrays, include_positive=True).backward()
    assert torch.equal(arrays[which].grad.double(), whole[1 + which])


def test_no_gradient_is_kept_when_none_is_needed():
    loss = infonce(*points(9, 30, 3))
    assert not loss.requires_grad
    assert loss.grad_fn is None


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_duplicates_among_references_positives_and_negatives(similarity):
    x, _, y = points(12, 20, 3)
    x = torch.cat([x, x[:5], y[:3]])
    y = torch.cat([y, y, x[:4]])
    for include_positive in (False, True):
        rest = (similarity, 0.5, include_positive)
        found = value_and_gradients(our_loss, [x, x, y], *rest, torch.float32)
        assert_same(found, value_and_gradients(dense_loss, [x, x, y], *rest, torch.float64), 2e-5)


def whole_numbers(distance):
    """Points whose squared distances float32 holds exactly, and negatives with mean 0."""
    g = torch.Generator().manual_seed(3)
    half = torch.randint(-2, 3, (10, 3), generator=g).float()
    negative = torch.cat([half, -half, half, -half])
    reference = torch.randint(-2, 3, (9, 3), generator=g).float()
    reference[:, 0] += distance
    positive = reference + torch.randint(-1, 2, (9, 3), generator=g)
    return reference, positive, negative


@pytest.mark.parametrize("distance", [100, 1000])
@pytest.mark.parametrize("kernel", [fused, tiled])
def test_far_points_keep_exact_shares_where_every_exponential_underflows(kernel, distance):
    x, p, y = whole_numbers(distance)
    psi = -(x[:, None] - y[None]).square().sum(dim=2)
    assert psi.max() < -0.9 * distance**2  # exp(-104) is already zero in float32
    matched = -(x - p).square().sum(dim=1)
    found = kernel(x, y, matched, True, False, True)
    expected = kernel_reference(x, y, matched, True, False)
    assert_same([each.double() for each in found], expected, 1e-5)


@pytest.mark.parametrize("distance", [100, 1000])
@pytest.mark.parametrize("include_positive", [False, True])
def test_far_points_have_the_right_loss_and_gradients(include_positive, distance):
    arrays = whole_numbers(distance)
    rest = ("euclidean", 1.0, include_positive)
    found = value_and_gradients(our_loss, arrays, *rest, torch.float32)
    assert_same(found, value_and_gradients(dense_loss, arrays, *rest, torch.float64), 1e-5)


@pytest.mark.parametrize("size", [1e2, 1e3])
def test_opposite_points_under_the_dot_product(size):
    """Similarities far below the bound |x| |y| that exponentials are first measured from."""
    x = torch.tensor([[size, 0.0], [size, 1.0]])
    y = torch.tensor([[-size, 0.0], [-size, 0.0], [-size, 4.0], [0.0, size]])[:3]
    rest = ("dot", 1.0, False)
    found = value_and_gradients(our_loss, [x, x, y], *rest, torch.float32)
    assert_same(found, value_and_gradients(dense_loss, [x, x, y], *rest, torch.float64), 1e-5)


@pytest.mark.parametrize("kernel", [fused, tiled])
def test_negatives_too_far_to_count_do_not_count(kernel):
    x = torch.tensor([[-8.2, 0.0]])
    y = torch.zeros(5000, 2)
    y[1:, 0] = 1000 + torch.linspace(-1, 1, 4999)
    found = kernel(x, y, torch.zeros(1), True, False, True)
    expected = kernel_reference(x, y, torch.zeros(1), True, False)
    assert_same([each.double() for each in found], expected, 1e-5)


@pytest.mark.parametrize("kernel", [fused, tiled])
def test_an_offset_common_to_all_points_costs_no_digits(kernel):
    x, _, y = points(37, 1029, 4, offset=1e3)
    found = kernel(x, y, torch.zeros(37), True, False, True)
    expected = kernel_reference(x, y, torch.zeros(37), True, False)
    assert_same([each.double() for each in found], expected, 1e-5)


def test_loss_of_points_around_a_thousand():
    arrays = points(37, 1029, 4, offset=1e3)
    rest = ("euclidean", 1.0, True)
    found = value_and_gradients(our_loss, arrays, *rest, torch.float32)
    expected = value_and_gradients(dense_loss, arrays, *rest, torch.float64)
    # Autograd sums the temperature's gradient over coordinates of 1e3 that cancel: fewer digits.
    assert_same(found[:-1], expected[:-1], 2e-5)
    assert_same(found[-1:], expected[-1:], 1e3 * EPS * 10)


@pytest.mark.parametrize("include_positive", [False, True])
@pytest.mark.parametrize("n_negatives", [1, 2, 1000, 1029])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_a_constant_embedding_gives_the_chance_level(
    dtype, similarity, n_negatives, include_positive
):
    constant = torch.tensor([0.3, -1.7, 2.2], dtype=dtype)
    x, y = constant.repeat(17, 1), constant.repeat(n_negatives, 1)
    found = infonce(x, x, y, similarity=similarity, include_positive=include_positive)
    expected = chance_level(n_negatives, include_positive)
    largest = {"euclidean": 0.0, "cosine": 1.0, "dot": float(constant.square().sum())}[similarity]
    rounding = 2 * torch.finfo(dtype).eps * max(expected, largest)
    assert abs(float(found) - expected) <= rounding


@pytest.mark.parametrize("offset", [0.0, 1.0, 1e3, 1e6])
def test_a_constant_embedding_gives_the_chance_level_wherever_it_sits(offset):
    x, y = torch.full((9, 3), offset), torch.full((1029, 3), offset)
    assert float(infonce(x, x, y)) == pytest.approx(math.log(1029), rel=EPS)


def test_chance_level_counts_the_positive_if_it_is_in_the_sum():
    assert chance_level(512) == math.log(512)
    assert chance_level(512, True) == math.log(513)
    assert chance_level(1) == 0.0


@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize("scale", [0.01, 1.0, 30.0, 1e3])
def test_the_loss_is_never_negative_with_the_positive_in_the_sum(scale, similarity):
    for seed in range(5):
        x, p, y = points(20, 30, 3, seed=seed, scale=scale)
        for positive in (x, p, y[:20]):
            loss = infonce(x, positive, y, similarity=similarity, include_positive=True)
            assert float(loss) >= 0.0


@pytest.mark.parametrize("which", [0, 1, 2])
@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_nan_among_the_points_is_not_hidden(similarity, which):
    arrays = points(9, 30, 3)
    arrays[which][2, 1] = torch.nan
    assert math.isnan(float(infonce(*arrays, similarity=similarity)))


@pytest.mark.parametrize("include_positive", [False, True])
@pytest.mark.parametrize("similarity", SIMILARITIES)
@pytest.mark.parametrize(("dtype", "tolerance"), [(torch.float32, 1e-5), (torch.float64, 1e-12)])
def test_pair_losses_are_those_of_the_dense_sum(dtype, tolerance, similarity, include_positive):
    x, p, y = (each.to(dtype) for each in points(37, 1029, 4))
    options = {"temperature": 0.4, "include_positive": include_positive}
    losses = pair_losses(x, y, similarity=similarity, **options)
    rows = torch.tensor([5, 5, 36, 0, 12])
    found = losses(rows, p[:5])
    doubles = [each.double() for each in (x[rows], p[:5], y)]
    assert_same([found.double()], [dense_pairs(*doubles, similarity, 0.4, include_positive)], 1e-5)
    every = losses(torch.arange(37), p).mean()
    whole = infonce(x, p, y, similarity=similarity, **options)
    assert float(every) == pytest.approx(float(whole), rel=tolerance)


def test_pair_losses_ask_for_no_gradient():
    x, p, y = (each.requires_grad_() for each in points(9, 30, 3))
    assert not pair_losses(x, y)(torch.arange(9), p).requires_grad


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_same_thread_count_gives_the_same_bits(dtype, n_threads):
    n_threads(2)
    arrays = points(700, 1029, 5)
    rest = ("euclidean", 0.3, True)
    first = value_and_gradients(our_loss, arrays, *rest, dtype)
    for _ in range(5):
        again = value_and_gradients(our_loss, arrays, *rest, dtype)
        assert all(torch.equal(a, b) for a, b in zip(first, again, strict=True))


@pytest.mark.parametrize("similarity", SIMILARITIES)
def test_thread_counts_agree_to_float_precision(similarity, n_threads):
    arrays = points(700, 1029, 5)
    found = []
    for n in (1, 2, 3, 5):
        n_threads(n)
        found.append(value_and_gradients(our_loss, arrays, similarity, 0.3, True, torch.float32))
    for other in found[1:]:
        assert_same(other, found[0], 1e-5)


@pytest.mark.parametrize(("n", "fewest"), [(1, 0), (2, 1), (3, 1)])
def test_the_kernel_starts_no_more_threads_than_torch_has(n, fewest, n_threads):
    x, _, y = points(3000, 3000, 4)
    fused(x[:9], y, torch.zeros(9), True, False, True)  # compiled before anyone counts
    n_threads(n)
    seen = set()
    threading.setprofile(lambda *_: seen.add(threading.get_ident()))
    try:
        fused(x, y, torch.zeros(3000), True, False, True)
    finally:
        threading.setprofile(None)
    # A worker that is done may take a second share, so fewer than n can do it all.
    assert fewest <= len(seen) <= (n if n > 1 else 0)


def test_calls_from_several_python_threads_do_not_disturb_each_other(n_threads):
    n_threads(2)
    jobs = [points(300 + 10 * i, 1029, 1 + i, seed=i) for i in range(6)]
    rest = ("euclidean", 0.5, True)
    alone = [value_and_gradients(our_loss, job, *rest, torch.float32) for job in jobs]
    with ThreadPoolExecutor(4) as pool:
        together = list(
            pool.map(lambda job: value_and_gradients(our_loss, job, *rest, torch.float32), jobs * 3)
        )
    for found, expected in zip(together, alone * 3, strict=True):
        assert_same(found, expected, 1e-6)


_MEMORY = """
import resource, torch
from xcebra.training.infonce import infonce

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # kB on Linux

def run(n, dtype):
    arrays = [torch.randn(n, 6, dtype=dtype, requires_grad=True) for _ in range(3)]
    infonce(*arrays, include_positive=True).backward()

for n, dtype, threads in ((20_000, torch.float32, 2), (4_500, torch.float64, 1)):
    torch.set_num_threads(threads)
    run(600, dtype)
    before = peak()
    run(n, dtype)
    print(peak() - before)
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="ru_maxrss has another unit")
def test_memory_does_not_grow_with_the_square_of_the_batch():
    told = subprocess.run(
        [sys.executable, "-c", _MEMORY], capture_output=True, text=True, check=True
    )
    fused_extra, tiled_extra = map(float, told.stdout.split())
    assert fused_extra < 50  # the matrix alone would be 1,526 MB
    assert tiled_extra < 100  # the matrix alone would be 154 MB, and several are needed


def test_gradients_are_those_of_finite_differences():
    """An independent check of the reference itself, in float64."""
    arrays = [p.double().requires_grad_() for p in points(5, 7, 3)]
    tau = torch.tensor(0.7, dtype=torch.float64, requires_grad=True)
    for similarity in SIMILARITIES:
        assert torch.autograd.gradcheck(
            lambda x, p, y, t, s=similarity: our_loss(x, p, y, s, t, True), (*arrays, tau)
        )


def test_loss_by_hand():
    """Two negatives at distances 1 and 2, the positive at distance 1, temperature 1/2."""
    x, p = torch.tensor([[0.0]]), torch.tensor([[1.0]])
    y = torch.tensor([[1.0], [2.0]])
    expected = 2 + np.log(np.exp(-2) + np.exp(-8))
    assert float(infonce(x, p, y, temperature=0.5)) == pytest.approx(expected, abs=1e-6)
    expected = 2 + np.log(2 * np.exp(-2) + np.exp(-8))
    found = infonce(x, p, y, temperature=0.5, include_positive=True)
    assert float(found) == pytest.approx(expected, abs=1e-6)


def test_an_unknown_similarity_is_refused():
    x = torch.zeros(3, 2)
    with pytest.raises(ValueError, match=r"similarity must be one of .*got 'cosin'"):
        infonce(x, x, x, similarity="cosin")


def test_far_points_cost_no_more_time_than_near_ones():
    """Exponentials that vanish must not become denormal numbers, which are ten times slower."""

    def seconds(spread):
        x = torch.randn(1500, 6, generator=torch.Generator().manual_seed(0)) * spread
        taken = []
        for _ in range(5):
            started = time.process_time()
            fused(x, x, torch.zeros(1500), True, False, True)
            taken.append(time.process_time() - started)
        return min(taken)

    seconds(1.0)
    assert seconds(5.0) < 3 * seconds(1.0)
