"""Moments of both decoders' derivatives, of which mixtures are found."""

import numpy as np
from crossed_case import TIMES, case, whole

from xcebra.attribution.crossed_mixtures import crossed_moments, fit_crossed_mixtures


def test_moments_are_mean_products_of_both_decoders_made_symmetric():
    source = case("position", told=True)
    first, second = whole(source, TIMES).astype(np.float64)
    products = np.einsum("sni,snj->nij", first, second) / len(TIMES)
    found, bent_ones, both_bent = crossed_moments(source, TIMES)
    np.testing.assert_allclose(found, (products + products.swapaxes(1, 2)) / 2, atol=1e-8)
    assert not bent_ones.any()
    assert not both_bent.any()


def test_without_labels_or_time_there_is_no_mixture():
    assert fit_crossed_mixtures(case("position", n_time=0), TIMES) == {}
