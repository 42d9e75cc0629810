"""The mixtures of time latents' columns that make the columns of each label sparse."""

from __future__ import annotations

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.attribution.crossed_derivatives import bent_slopes, derivatives
from xcebra.attribution.crossed_source import MOST_SAMPLES, Source
from xcebra.attribution.sparse_basis import Bends, Mixture, sparsest
from xcebra.data.epochs import IntArray, evenly_spaced

Array = NDArray[np.float64]


def crossed_moments(source: Source, times: IntArray) -> tuple[Array, Array, Array]:
    """Mean over time of the products of each neuron's rows in the two decoders, symmetrised.

    The noise of the two decoders is independent, so that its products are zero on average.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)

    Returns
    -------
    products : ndarray of shape (n_neurons, n_columns, n_columns)
        Products of the columns.
    bent : ndarray of shape (n_neurons, n_columns, n_time_latents, n_label_columns)
        Products of each column with every time latent's column times the slope of its bent part.
    both_bent : ndarray of shape (n_neurons, n_time_latents, n_time_latents, n_label_columns)
        Products of the time latents' columns, each times the slope of its bent part.
    """
    n_labels = len(source.decoder.label_mean)
    totals: list[Tensor] = []
    for positions, maps in derivatives(source, times):
        slopes = bent_slopes(source, times[positions]).cpu().double()
        rows = maps.cpu().double()
        bent = rows[..., n_labels:, None] * slopes
        sums = [
            torch.einsum("sni,snj->nij", rows[0], rows[1]),
            torch.einsum("sni,snjc->nijc", rows[0], bent[1])
            + torch.einsum("sni,snjc->nijc", rows[1], bent[0]),
            torch.einsum("snic,snjc->nijc", bent[0], bent[1]),
        ]
        totals = [a + b for a, b in zip(totals, sums, strict=True)] if totals else sums
    products, crossed, both_bent = ((total / max(1, len(times))).numpy() for total in totals)
    return (
        (products + products.transpose(0, 2, 1)) / 2,
        crossed / 2,
        (both_bent + both_bent.transpose(0, 2, 1, 3)) / 2,
    )


def fit_crossed_mixtures(source: Source, times: IntArray) -> dict[str, Mixture]:
    """For each label, the mixture of time latents' columns that makes its own columns sparse.

    A hidden factor that is correlated with a label leaves a constant mixture of its columns in
    those of the label. A time latent that carries a function of the label leaves its column times
    the slope of that function. See `xcebra.attribution.sparse_basis`. Mixtures of correlated
    labels with each other are not undone: the decoders are fitted to all labels together.

    Parameters
    ----------
    source : Source
    times : ndarray of int of shape (n_times,)

    Returns
    -------
    dict of str to Mixture
        The mixture of each label by its name; empty without labels or without time latents.
    """
    n_labels, n_time = len(source.decoder.label_mean), len(source.decoder.latent_mean)
    if n_labels == 0 or n_time == 0:
        return {}
    positions = evenly_spaced(np.arange(len(times)), MOST_SAMPLES)
    moments, bent, both_bent = crossed_moments(source, times[positions])
    others = np.arange(n_labels, n_labels + n_time)
    mixtures = {}
    for label in source.decoder.labels:
        columns = label.columns
        of_label = bent[..., columns]
        bends = None
        if of_label.any():
            bends = Bends(
                with_others=of_label[:, n_labels:].transpose(0, 1, 3, 2),
                with_block=np.einsum("ncjc->nj", of_label[:, columns]),
                among=both_bent[..., columns].sum(axis=3),
            )
        mixtures[label.name] = sparsest(moments, columns, others, bends)
    return mixtures
