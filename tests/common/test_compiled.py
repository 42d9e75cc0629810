"""Compiled loops: the exponential against float64, and functions that cannot be stored on disk."""

import threading
import time

import numpy as np
import pytest
from numba import njit

from xcebra.common import compiled as module
from xcebra.common.compiled import compiled, exp, f32


@njit(nogil=True, fastmath=module.MATHS)
def exponentials(values, out):
    for i in range(len(values)):
        out[i] = exp(values[i])


def computed(values):
    out = np.empty(len(values), f32)
    exponentials(np.asarray(values, f32), out)
    return out


def test_exponentials_have_the_relative_error_that_is_stated():
    """2.5e-7 from the polynomial and rounding, 7.5e-8 |v| from the product of v with log2(e)."""
    v = -np.concatenate([np.geomspace(1e-45, 69.3, 200_001), np.linspace(0, 69.3, 200_001)])
    v = v.astype(f32)
    exact = np.exp(v.astype(np.float64))
    relative = np.abs(computed(v) - exact) / exact
    assert (relative <= 2.5e-7 + 7.5e-8 * np.abs(v)).all()
    assert relative[v > -1].max() < 2.5e-7


def test_the_exponential_of_zero_is_exactly_one():
    tiny = np.nextafter(f32(0), f32(-1))
    assert computed([0.0, -0.0, tiny, -1e-38, -1e-40]).tolist() == [1.0] * 5


def test_results_below_the_limit_are_exactly_zero_and_none_is_denormal():
    limit = -100 * np.log(2)
    v = limit + np.array([1e-3, -1e-3, -1.0, -30.0, -1e4, -3e38, -np.inf])
    result = computed(v)
    assert result[0] == pytest.approx(2.0**-100, rel=2e-3)
    assert (result[1:] == 0).all()
    around = computed(np.linspace(limit - 1, limit + 1, 10_001))
    assert (around[around > 0] >= 2.0**-101).all()


def test_nan_stays_nan():
    assert np.isnan(computed([-1.0, np.nan, -2.0])).tolist() == [False, True, False]


@pytest.mark.parametrize("first", range(1, 9))
def test_the_bits_do_not_depend_on_the_place_in_the_loop(first):
    """The first entries of a vectorised loop, its last ones and single ones have the same bits."""
    v = -np.linspace(0, 80, 1001).astype(f32)
    whole = computed(v)
    assert np.array_equal(computed(v[first:]), whole[first:])
    assert np.array_equal(computed(v[:-first]), whole[:-first])
    assert computed(v[first : first + 1])[0] == whole[first]


def twice(values):
    total = f32(0)
    for value in values:
        total += f32(2) * value
    return total


def test_a_compiled_function_is_the_function():
    values = np.arange(100, dtype=f32)
    assert compiled(twice)(values) == twice(values) == 9900


def test_where_nothing_can_be_stored_it_is_compiled_all_the_same(monkeypatch):
    """Numba raises an error if there is no folder that it can write to."""
    requests = []

    def without_folder(**options):
        requests.append(options)
        if options.get("cache"):
            raise RuntimeError("cannot cache function: no locator available for file")
        return njit(**options)

    monkeypatch.setattr(module, "njit", without_folder)
    assert compiled(twice)(np.arange(100, dtype=f32)) == 9900
    stored, not_stored = requests
    assert stored == {"cache": True, **not_stored}
    assert not_stored["nogil"]


def test_division_by_zero_is_that_of_numpy():
    def reciprocal(values, out):
        for i in range(len(values)):
            out[i] = f32(1) / values[i]

    out = np.empty(3, f32)
    compiled(reciprocal)(np.array([0.0, -0.0, 2.0], f32), out)
    assert np.isinf(out[:2]).all()
    assert out[2] == 0.5


def test_other_threads_run_while_a_compiled_function_runs():
    """This thread never waits for as long as the function runs in another one."""

    def compute(out, n):
        for i in range(n):
            out[0] = np.sqrt(out[0] + f32(i))

    compute = compiled(compute)
    compute(np.zeros(1, f32), 1)
    took, ticks = [], []

    def work():
        started = time.perf_counter()
        compute(np.zeros(1, f32), 100_000_000)
        took.append(time.perf_counter() - started)

    thread = threading.Thread(target=work)
    thread.start()
    while thread.is_alive():
        ticks.append(time.perf_counter())
        time.sleep(0.001)
    assert max(np.diff(ticks)) < took[0] / 2
