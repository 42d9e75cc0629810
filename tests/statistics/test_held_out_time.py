"""Held-out time: stretches of the same length, and folds that take turns."""

import numpy as np
import pytest

from xcebra.statistics.held_out_time import N_FOLDS, N_STRETCHES, folds, stretches


@pytest.mark.parametrize("n", [20, 21, 399, 4000])
def test_stretches_have_the_same_length_and_take_turns_in_the_folds(n):
    stretch = stretches(n)
    lengths = np.bincount(stretch)
    assert len(lengths) == N_STRETCHES
    assert lengths.max() - lengths.min() <= 1
    assert (np.diff(stretch) >= 0).all()
    np.testing.assert_array_equal(folds(n), stretch % N_FOLDS)


def test_fewer_samples_than_stretches_have_one_each():
    assert len(set(stretches(7).tolist())) == 7
