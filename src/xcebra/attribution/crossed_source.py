"""What maps of the crossed decoders are computed from: a fitted model and a recording."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
import torch
from torch import Tensor

from xcebra.data.epochs import IntArray
from xcebra.data.labels import Label
from xcebra.data.recording import Activity
from xcebra.networks.crossed_decoder import CrossedDecoder
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, embed
from xcebra.networks.leave_out import Reader

# Means over time use at most this many samples, evenly spaced. Derivatives change slowly from
# sample to sample, so that more samples take longer and hardly change the mean. Not tuned.
MOST_SAMPLES = 4096


@dataclass(frozen=True, eq=False)
class Source:
    """A fitted model and the recording whose map is computed.

    Parameters
    ----------
    encoder : Encoder
    embedding_decoder : Decoder
        From the embedding to the activity.
    decoder : CrossedDecoder
    recording : Activity
        A Recording, or one in which controls take the place of some neurons.
    labels : mapping of str to Label
        Known labels. Where a label is unknown or missing, the label of the nearest sample of the
        fit in the embedding is used.
    time_block : slice or None
        Latents of the embedding that belong to time.
    """

    encoder: Encoder
    embedding_decoder: Decoder
    decoder: CrossedDecoder
    recording: Activity
    labels: Mapping[str, Label]
    time_block: slice | None

    @cached_property
    def reader(self) -> Reader:
        """The object that reads latents without the neurons of a group."""
        return self.decoder.reader(self.encoder, self.embedding_decoder, self.time_block)

    def with_recording(self, recording: Activity) -> Source:
        """The same model and another recording. The reader is used again, as it is expensive."""
        source = replace(self, recording=recording)
        source.__dict__["reader"] = self.reader
        return source

    def inputs(self, times: IntArray) -> tuple[Tensor, Tensor]:
        """Label columns, and the inputs of the decoders for each group of neurons.

        Parameters
        ----------
        times : ndarray of int of shape (n_samples,)

        Returns
        -------
        points : Tensor of shape (n_samples, n_label_columns)
        rows : Tensor of shape (n_groups, n_samples, n_columns)
        """
        latents = self.reader.latents(self.recording, times)
        points = self.points(times)
        with torch.no_grad():
            return points, self.decoder.inputs(points, latents)

    def neurons(self, times: IntArray) -> Tensor:
        """Standardised activity at ``times``, of shape (n_samples, n_neurons)."""
        rows = torch.from_numpy(self.recording.rows(times)).to(self.encoder.loadings.device)
        return self.encoder.standardised(rows)

    def points(self, times: IntArray) -> Tensor:
        """Label columns at ``times``, of shape (n_samples, n_label_columns).

        Unknown values are those of the nearest sample of the fit in the embedding.
        """
        columns = np.full((len(times), len(self.decoder.label_mean)), np.nan)
        for label in self.decoder.labels:
            if label.name in self.labels:
                measured = self.labels[label.name]
                known = measured.valid[times]
                columns[known, label.columns] = measured.points[times[known]]
        points = torch.from_numpy(columns.astype(np.float32)).to(self.decoder.label_mean)
        missing = torch.isnan(points)
        if missing.any():
            embedding = embed(self.encoder, self.recording, times)
            points = torch.where(missing, self.decoder.nearest_labels(embedding), points)
        return points
