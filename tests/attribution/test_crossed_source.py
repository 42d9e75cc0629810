"""Labels that are not given are those of the nearest sample of the fit."""

from dataclasses import replace

import numpy as np
from crossed_case import N, case

from xcebra.data.labels import Label
from xcebra.networks.encoder import embed


def test_where_a_label_is_missing_that_of_the_nearest_sample_of_the_fit_is_taken():
    source = case("position", "heading")
    valid = np.arange(N) % 2 == 0
    position = source.labels["position"]
    points = np.where(valid[:, None], position.points, np.nan)
    known = {"position": Label("position", "continuous", points, valid)}
    partly = replace(source, labels=known)
    found = partly.points(np.arange(N)).numpy()
    embedding = embed(source.encoder, source.recording).astype(np.float64)
    apart = np.square(embedding[:, None] - embedding[::7]).sum(axis=2)
    nearest = 7 * apart.argmin(axis=1)
    np.testing.assert_allclose(found[valid, :2], position.points[valid], rtol=1e-6)
    np.testing.assert_allclose(found[~valid, :2], position.points[nearest[~valid]], rtol=1e-5)
    # Nobody gave the heading at all.
    heading = source.labels["heading"].points
    np.testing.assert_allclose(found[:, 2:], heading[nearest], atol=1e-6)
    # At the samples of the fit themselves, that is the label.
    np.testing.assert_allclose(found[::7, 2:], heading[::7], atol=1e-6)
