"""GELU and its derivatives against their closed forms in float64."""

import numpy as np
import pytest
import torch
from scipy.special import ndtr

from xcebra.networks.gelu import gelu_and_slope


def closed_forms(a):
    """``a Phi(a)``, ``Phi(a) + a phi(a)`` and ``(2 - a^2) phi(a)``."""
    a = np.asarray(a, dtype=np.float64)
    density = np.exp(-a * a / 2) / np.sqrt(2 * np.pi)
    return a * ndtr(a), ndtr(a) + a * density, (2 - a * a) * density


def by_loop(a, n_curved=1):
    """The compiled loop is for contiguous rows in single precision."""
    return gelu_and_slope(torch.from_numpy(np.asarray(a, np.float32))[None], n_curved)


def by_torch(a, n_curved=1):
    """Other layouts, as well as other devices and precisions, use torch's own functions."""
    a = torch.from_numpy(np.asarray(a, np.float32))
    a = a.repeat_interleave(2)[::2][None]
    assert len(a[0]) < 2 or not a.is_contiguous()
    return gelu_and_slope(a, n_curved)


both = pytest.mark.parametrize("compute", [by_loop, by_torch])


def flat(results):
    return [result.numpy().ravel().astype(np.float64) for result in results]


@both
def test_values_and_derivatives_over_the_whole_range(compute):
    """The errors that are allowed: 7.5e-8 of the formula, and a few roundings of numbers near 1."""
    a = np.linspace(-40, 40, 800_001).astype(np.float32)
    expected = closed_forms(a)
    values, slope, curvature = flat(compute(a))
    assert (np.abs(values - expected[0]) <= 4e-7 * np.abs(a)).all()
    assert np.abs(slope - expected[1]).max() <= 4e-7
    assert np.abs(curvature - expected[2]).max() <= 2e-7


@both
def test_zero_and_denormal_numbers(compute):
    tiny = np.array([1.4e-45, 1e-42, 1e-40, 1.2e-38, 1e-30])
    a = np.concatenate([[0.0, -0.0], tiny, -tiny]).astype(np.float32)
    values, slope, curvature = flat(compute(a))
    # Half of the smallest number rounds to it, or to zero.
    assert (np.abs(values - a.astype(np.float64) / 2) <= 4e-7 * np.abs(a) + 1.5e-45).all()
    assert (values[:2] == 0).all()
    assert np.allclose(slope, 0.5, rtol=0, atol=4e-7)
    assert np.allclose(curvature, 2 / np.sqrt(2 * np.pi), rtol=0, atol=2e-7)


@both
def test_large_numbers_are_kept_or_set_to_zero_exactly(compute):
    a = np.array([40.0, 1e3, 1e10, 1e19, -40.0, -1e3, -1e10, -1e19], np.float32)
    values, slope, curvature = flat(compute(a))
    assert np.array_equal(values, np.maximum(a, 0))
    assert np.array_equal(slope, a > 0)
    assert (curvature == 0).all()


@both
def test_nan_stays_nan_and_infinite_numbers_are_not_hidden(compute):
    """A loss that becomes infinite must not be made finite, because training then has to stop."""
    results = [result[0] for result in compute([1.0, np.nan, np.inf, -np.inf, 2.0])]
    for result in results:
        assert np.isfinite(result.numpy()).tolist() == [True, False, False, False, True]
        assert torch.isnan(result[1])


@both
def test_slope_and_curvature_are_derivatives_of_the_closed_forms_before_them(compute):
    """By central differences of the closed forms, so that no formula is written twice."""
    a, h = np.linspace(-6, 6, 1001).astype(np.float32), 1e-5
    later, before = closed_forms(a.astype(float) + h), closed_forms(a.astype(float) - h)
    _, slope, curvature = flat(compute(a))
    assert np.allclose(slope, (later[0] - before[0]) / (2 * h), rtol=0, atol=1e-6)
    assert np.allclose(curvature, (later[1] - before[1]) / (2 * h), rtol=0, atol=1e-6)


@pytest.mark.parametrize("n_curved", [0, 1, 3, 5])
@pytest.mark.parametrize("contiguous", [True, False])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64])
def test_the_curvature_is_that_of_the_first_rows(n_curved, contiguous, dtype):
    a = torch.randn(5, 7, generator=torch.Generator().manual_seed(0)).to(dtype)
    a = a if contiguous else a.T.contiguous().T
    results = gelu_and_slope(a, n_curved)
    assert [tuple(result.shape) for result in results] == [(5, 7), (5, 7), (n_curved, 7)]
    expected = closed_forms(a.numpy())
    tolerance = 5e-7 if dtype == torch.float32 else 1e-14
    for result, values in zip(results, expected, strict=True):
        assert result.dtype == dtype
        assert np.allclose(result.numpy(), values[: len(result)], rtol=0, atol=tolerance)


@pytest.mark.parametrize("shape", [(0, 7), (5, 0), (0, 0)])
def test_nothing_to_compute(shape):
    results = gelu_and_slope(torch.empty(shape), 3)
    assert [tuple(result.shape) for result in results] == [
        shape,
        shape,
        (min(3, shape[0]), shape[1]),
    ]


def test_the_argument_is_not_changed_and_no_result_shares_its_memory():
    a = torch.linspace(-3, 3, 21).reshape(3, 7)
    before = a.clone()
    results = gelu_and_slope(a, 2)
    assert torch.equal(a, before)
    assert len({t.data_ptr() for t in (a, *results)}) == 4


@pytest.mark.parametrize("first", range(4))
def test_the_bits_do_not_depend_on_the_place_in_memory(first):
    """A worker that has some of the rows computes the same bits as one that has all of them."""
    a = torch.linspace(-8, 8, 20 * 13).reshape(20, 13)
    whole, part = gelu_and_slope(a, 20), gelu_and_slope(a[first:17], 17)
    for complete, own in zip(whole, part, strict=True):
        assert torch.equal(own, complete[first:17])


def test_the_derivatives_of_other_devices_lie_there():
    results = gelu_and_slope(torch.empty(5, 7, device="meta"), 2)
    assert {result.device.type for result in results} == {"meta"}
