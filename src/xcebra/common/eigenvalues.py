"""The largest eigenvalues of symmetric matrices, without the others where that is faster."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy.linalg import eigh
from scipy.sparse.linalg import eigsh

Array = NDArray[np.float64]

# All eigenvalues of smaller matrices are computed. Of larger ones, an iterative method is used if
# at most this share of the eigenvalues is asked for. The values change only the speed, and the
# signs of eigenvectors.
_LARGE, _FEW = 1000, 0.03


def largest_eigenvalues(matrix: Array, most: int) -> tuple[Array, Array]:
    """The largest eigenvalues of a symmetric matrix, and their eigenvectors.

    Parameters
    ----------
    matrix : ndarray of shape (n, n)
    most : int
        Largest number of eigenvalues.

    Returns
    -------
    values : ndarray of shape (min(n, most),)
        Largest last.
    vectors : ndarray of shape (n, min(n, most))
        Orthonormal columns.
    """
    n = len(matrix)
    if n <= max(most, _LARGE):
        values, vectors = np.linalg.eigh(matrix)
        return values[-most:], vectors[:, -most:]
    if most > _FEW * n:
        values, vectors = eigh(matrix, subset_by_index=(n - most, n - 1), check_finite=False)
        return values, vectors
    # The start is drawn from a generator of its own, so that the result is always the same.
    start = np.random.default_rng(0).standard_normal(n)
    values, vectors = eigsh(matrix, k=most, which="LA", v0=start)
    return values, vectors
