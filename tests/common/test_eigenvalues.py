"""The largest eigenvalues, by whatever method, beside those of a dense decomposition."""

import numpy as np
import pytest

from xcebra.common import eigenvalues
from xcebra.common.eigenvalues import largest_eigenvalues


def symmetric(n, seed=0):
    x = np.random.default_rng(seed).standard_normal((n, n))
    return x + x.T


@pytest.mark.parametrize("most", [1, 4, 30, 60, 100])
def test_they_are_those_of_a_dense_decomposition(most, monkeypatch):
    """Of 60 eigenvalues: by iteration if two or fewer are asked for, else by LAPACK."""
    matrix = symmetric(60)
    expected = np.linalg.eigvalsh(matrix)[-most:]
    monkeypatch.setattr(eigenvalues, "_LARGE", 10)
    values, vectors = largest_eigenvalues(matrix, most)
    np.testing.assert_allclose(values, expected, rtol=1e-12)
    np.testing.assert_allclose(matrix @ vectors, vectors * values, atol=1e-10)
    np.testing.assert_allclose(vectors.T @ vectors, np.eye(len(values)), atol=1e-12)


def test_an_iteration_always_starts_at_the_same_vector(monkeypatch):
    monkeypatch.setattr(eigenvalues, "_LARGE", 10)
    matrix = symmetric(50)
    before = matrix.copy()
    (values, vectors), again = (largest_eigenvalues(matrix, 1) for _ in range(2))
    assert np.array_equal(values, again[0])
    assert np.array_equal(vectors, again[1])
    assert np.array_equal(matrix, before)
