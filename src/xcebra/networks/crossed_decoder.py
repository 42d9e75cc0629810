"""Two decoders, fitted to alternate stretches of time, from labels and latents to neurons.

Each neuron is regressed on the labels themselves, which are known without noise, and on the time
latents. The time latents are computed without this neuron (`leave_out`), and the part of them that
the labels predict is removed. The two decoders are fitted to different data. Therefore the products
of their derivatives, averaged over time, are zero on average for a neuron without signal.
"""

from __future__ import annotations

import copy
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace

import numpy as np
import torch
from jaxtyping import Float
from numpy.typing import NDArray
from torch import Tensor, nn

from xcebra.caveats import InterruptedFitWarning, warn
from xcebra.common.errors import InputError
from xcebra.common.interrupts import deferred_interrupt
from xcebra.common.progress import bar
from xcebra.data.epochs import Epochs, IntArray, evenly_spaced
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.networks.decoder import WIDTH, Decoder, DecoderConfig, outlasts_samples
from xcebra.networks.encoder import Encoder, Inputs, embed, linear
from xcebra.networks.leave_out import LeaveOut, Reader
from xcebra.networks.schedules import one_cycle

# Number of stretches of time, assigned to the two decoders alternately. With more stretches, both
# decoders see more of the whole recording; with fewer, less noise is shared across the borders. Not
# tuned.
N_STRETCHES = 20
# Largest number of samples to train on. Larger values need more memory; not tuned.
_MOST_SAMPLES = 200_000
# Number of samples that are used to decide when to stop, over all groups. Larger values give less
# noisy errors and take longer; not tuned.
_MOST_JUDGED = 8192
# Training stops after _PATIENCE evaluations, one every _BETWEEN_LOOKS steps, without a lower error
# of either decoder. Larger values train longer; twice as much training was no better
# (docs/real_recordings.md, "What was tried").
_BETWEEN_LOOKS = 100
_PATIENCE = 5
# Number of samples of the fit whose embedding and labels are stored. They are used to look up
# labels that are not given. Larger values find closer labels and make the model file larger; not
# tuned.
_MOST_REFERENCES = 4096
# The part of a latent that the labels predict is a ridge regression on cosines along random
# directions: the largest number of cosines, the number of samples needed for each, their scale in
# standard deviations of the labels, and the ridge penalty per sample. More cosines and a smaller
# penalty follow finer functions, but also more noise; not tuned.
_WAVES, _ROWS_A_WAVE, _WAVELENGTH, _RIDGE = 100, 20, 1.5, 1e-3
# Number of folds that hold out stretches for this regression. More folds train on more of the data
# and take longer; not tuned.
_FOLDS = 4
# A latent whose standard deviation, relative to its size, is smaller than this does not vary: the
# rest is rounding of single precision.
_LEAST_SPREAD = 1e-6
# Shares of a latent's variance that the labels predict on held-out time.
# - Up to _LEAST_TOLD, the share counts as zero.
# - Up to _OWN_FACTOR, after one standard error is subtracted, the latent is a factor of its own and
#   nothing is removed from it. The sparse basis undoes its mixture with the label.
# - From _COPY_OF_LABEL on, the latent is a copy of the label, and the label's part is removed.
# Between the last two, a part is removed in proportion. Larger values remove less. The rule was
# chosen on real recordings and on simulations with dataset seeds 100 to 104, so that results on
# these are not independent evidence (docs/real_recordings.md, "What was tried").
_LEAST_TOLD, _OWN_FACTOR, _COPY_OF_LABEL = 0.01, 0.2, 0.3


@dataclass(frozen=True)
class LabelColumns:
    """The name and kind of a label, and its columns among the label columns of the decoder."""

    name: str
    kind: str
    columns: slice


def label_columns(labels: Sequence[Label]) -> tuple[LabelColumns, ...]:
    """List the columns of every label; the labels are concatenated in the given order."""
    columns, start = [], 0
    for label in labels:
        stop = start + label.points.shape[1]
        columns.append(LabelColumns(label.name, label.kind, slice(start, stop)))
        start = stop
    return tuple(columns)


class CrossedDecoder(nn.Module):
    """Two networks that map label columns and time latents to the expected standardised activity.

    Parameters
    ----------
    fixed : mapping of str to Tensor
        Values that are measured before training and registered as buffers:

        - ``around``: whether latents are means over each sample and its neighbours, which is the
          case if the embedding outlasts a sample;
        - ``patterns`` (n_neurons, n_patterns): patterns of the activity that is left over. They are
          used as further latents, which follow the time latents; see `xcebra.networks.left_over`;
        - ``group`` (n_neurons,), ``correlations`` (n_quarters, n_neurons, n_neurons),
          ``borders`` (n_quarters - 1,): see `LeaveOut`;
        - ``label_mean``, ``label_scale`` (n_label_columns,);
        - ``directions`` (n_label_columns, n_waves), ``phases`` (n_waves,): parameters of the smooth
          functions of the labels; see `smooth_functions`;
        - ``told`` (n_groups, 1 + n_label_columns + n_waves, n_time_latents): weights of the smooth
          functions in the part of every latent that is removed because the labels predict it;
        - ``bend``, of the same shape: weights of the nonlinear part of what the labels predict and
          what is not removed; the sparse basis may undo it;
        - ``latent_mean``, ``latent_scale`` (n_time_latents,): mean and standard deviation of the
          latents after the removal;
        - ``embedding_scale`` (n_time_latents,): their standard deviation before the removal;
        - ``reference_embedding`` (n_references, n_latents), ``reference_labels``
          (n_references, n_label_columns): samples of the fit, to look up labels that are not given;
        - ``class_shares`` (n_label_columns,): share of the samples in each class of a discrete
          label, and 1 for the columns of other labels.
    labels : sequence of LabelColumns
    generator : torch.Generator, optional
        Random generator for the initial weights.
    """

    around: Tensor
    patterns: Tensor
    group: Tensor
    correlations: Tensor
    borders: Tensor
    label_mean: Tensor
    label_scale: Tensor
    directions: Tensor
    phases: Tensor
    told: Tensor
    bend: Tensor
    latent_mean: Tensor
    latent_scale: Tensor
    embedding_scale: Tensor
    reference_embedding: Tensor
    reference_labels: Tensor
    class_shares: Tensor

    def __init__(
        self,
        fixed: Mapping[str, Tensor],
        labels: Sequence[LabelColumns],
        generator: torch.Generator | None = None,
    ) -> None:
        super().__init__()
        for name, values in fixed.items():
            self.register_buffer(name, values)
        self.labels = tuple(labels)
        n_inputs, n_neurons = len(self.label_mean) + len(self.latent_mean), len(self.group)
        self.members = nn.ModuleList(
            nn.Sequential(
                linear(n_inputs, WIDTH, generator),
                nn.GELU(),
                linear(WIDTH, WIDTH, generator),
                nn.GELU(),
                linear(WIDTH, n_neurons, generator),
            )
            for _ in range(2)
        )

    @property
    def n_time_latents(self) -> int:
        """Number of latents of the time block, without the patterns that are left over."""
        return len(self.latent_mean) - self.patterns.shape[1]

    def reader(self, encoder: Encoder, decoder: Decoder, time_block: slice | None) -> Reader:
        """Make the reader of the latents that the two networks were trained with."""
        leave_out = LeaveOut(
            self.group.cpu().numpy(),
            self.correlations.cpu().double().numpy(),
            self.borders.cpu().numpy(),
        )
        around = bool(self.around)
        return Reader(encoder, decoder, leave_out, time_block, self.patterns, around)

    def inputs(
        self,
        points: Float[Tensor, "sample column"],
        latents: Float[Tensor, "group sample latent"],
    ) -> Float[Tensor, "group sample input"]:
        """Make the inputs of the two networks.

        Parameters
        ----------
        points : Tensor of shape (n_samples, n_label_columns)
            Columns of the labels.
        latents : Tensor of shape (n_groups, n_samples, n_time_latents)
            Latents computed without each group of neurons.

        Returns
        -------
        Tensor of shape (n_groups, n_samples, n_label_columns + n_time_latents)
            Standardised labels, and standardised latents from which `labels_part` is removed.
        """
        scaled = (points - self.label_mean) / self.label_scale
        rest = (latents - self.labels_part(points) - self.latent_mean) / self.latent_scale
        return torch.cat([scaled.expand(len(latents), *scaled.shape), rest], dim=2)

    def labels_part(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent"]:
        """Compute the part of the latents that is removed because the labels predict it."""
        return self._functions_of(points, self.told)

    def bent_part(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent"]:
        """Compute the nonlinear function of the labels in latents that are not copies of them."""
        return self._functions_of(points, self.bend)

    def bent_slopes(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent column"]:
        """Derivatives of `bent_part` by the standardised labels, in units of the inputs."""
        scaled = (points - self.label_mean) / self.label_scale
        sines = torch.sin(scaled @ self.directions + self.phases)
        n_columns = len(self.label_mean)
        waves = torch.einsum(
            "sw,cw,gwl->gslc", -sines, self.directions, self.bend[:, 1 + n_columns :]
        )
        linear_part = self.bend[:, 1 : 1 + n_columns].transpose(1, 2)[:, None]
        return (waves + linear_part) / self.latent_scale[:, None]

    def _functions_of(self, points: Tensor, weights: Tensor) -> Tensor:
        scaled = (points - self.label_mean) / self.label_scale
        functions = smooth_functions(scaled, self.directions, self.phases)
        return torch.einsum("sf,gfl->gsl", functions, weights)

    def label_units(self) -> Tensor:
        """Factors that convert the label columns to the units of the map."""
        units = torch.ones_like(self.label_mean)
        for label in self.labels:
            if label.kind == "continuous":
                units[label.columns] = 1 / self.label_scale[label.columns].square().mean().sqrt()
            elif label.kind == "discrete":
                units[label.columns] = self.class_shares[label.columns].clamp_min(1e-6).rsqrt()
        return units

    def nearest_labels(self, embedding: NDArray[np.float32]) -> Tensor:
        """Look up the labels of the nearest stored samples of the fit.

        Parameters
        ----------
        embedding : ndarray of shape (n_samples, n_latents)

        Returns
        -------
        Tensor of shape (n_samples, n_label_columns)
        """
        z = torch.from_numpy(embedding).to(self.reference_embedding)
        nearest = [
            torch.cdist(part, self.reference_embedding).argmin(dim=1) for part in z.split(2048)
        ]
        return self.reference_labels[torch.cat(nearest)]


def smooth_functions(scaled: Tensor, directions: Tensor, phases: Tensor) -> Tensor:
    """Compute a constant, the columns themselves, and cosines along random directions.

    Parameters
    ----------
    scaled : Tensor of shape (n_samples, n_columns)
        Standardised columns.
    directions : Tensor of shape (n_columns, n_waves)
    phases : Tensor of shape (n_waves,)

    Returns
    -------
    Tensor of shape (n_samples, 1 + n_columns + n_waves)
    """
    waves = torch.cos(scaled @ directions + phases)
    return torch.cat([scaled.new_ones(len(scaled), 1), scaled, waves], dim=1)


def fit_crossed_decoder(
    encoder: Encoder,
    decoder: Decoder,
    inputs: Inputs,
    recording: Recording,
    labels: Sequence[Label],
    time_block: slice | None,
    patterns: Tensor,
    config: DecoderConfig,
    *,
    progress: bool = False,
) -> CrossedDecoder:
    """Fit the two decoders, each to every other stretch of time.

    Each decoder is evaluated on the stretches of the other one, and the weights with the smallest
    error there are used. Training stops early if neither error has decreased for a while, or after
    Ctrl-C.

    Parameters
    ----------
    encoder : Encoder
    decoder : Decoder
        The decoder of the embedding, to compute the activity that is left over.
    inputs : Inputs
        Those of the encoder.
    recording : Recording
    labels : sequence of Label
    time_block : slice or None
        Time latents of the embedding.
    patterns : Tensor of shape (n_neurons, n_patterns)
        Patterns of the activity that is left over; see `xcebra.networks.left_over`.
    config : DecoderConfig
    progress : bool
        Whether to show a progress bar.
    """
    device = encoder.loadings.device
    times = known_times(recording.epochs, labels, _MOST_SAMPLES)
    leave_out = LeaveOut.measure(recording, recording.epochs, inputs)
    any_latents = time_block is not None or patterns.shape[1] > 0
    around = any_latents and outlasts_samples(encoder, recording, recording.epochs)
    # Rounded to single precision, as in the buffer and the model file.
    rounded = leave_out.correlations.astype(np.float32).astype(np.float64)
    reader = Reader(
        encoder, decoder, replace(leave_out, correlations=rounded), time_block, patterns, around
    )
    latents = reader.latents(recording, times)
    points = label_points(labels, times).to(device)
    fixed = _measure(encoder, recording, times, points, latents, leave_out, labels, config.seed)
    fixed |= {"around": torch.tensor(around), "patterns": patterns}
    generator = torch.Generator().manual_seed(config.seed)
    crossed = CrossedDecoder(fixed, label_columns(labels), generator).to(device)
    with torch.no_grad():
        rows = crossed.inputs(points, latents)
    targets = encoder.standardised(torch.from_numpy(recording.rows(times)).to(device))
    _train(crossed, rows, targets, config, progress)
    return crossed


def known_times(epochs: Epochs, labels: Sequence[Label], most: int) -> IntArray:
    """Select evenly spaced samples, at most ``most``, at which every label is known."""
    times = epochs.indices()
    for label in labels:
        times = times[label.valid[times]]
    if len(times) == 0:
        raise InputError(
            f"no sample has all of the labels {[label.name for label in labels]}; fit them one at "
            "a time, or fill their gaps"
        )
    return evenly_spaced(times, most)


def label_points(labels: Sequence[Label], times: IntArray) -> Tensor:
    """Concatenate the columns of all labels at some times, of shape (n_times, n_columns)."""
    if not labels:
        return torch.zeros(len(times), 0)
    points = np.concatenate([label.points[times] for label in labels], axis=1)
    return torch.from_numpy(points.astype(np.float32))


def halves(n: int) -> NDArray[np.int64]:
    """Assign each of ``n`` consecutive samples to one of the two decoders, 0 or 1."""
    return np.arange(n) * N_STRETCHES // n % 2


def _measure(
    encoder: Encoder,
    recording: Recording,
    times: IntArray,
    points: Tensor,
    latents: Tensor,
    leave_out: LeaveOut,
    labels: Sequence[Label],
    seed: int,
) -> dict[str, Tensor]:
    """Compute the buffers of the decoder, except ``around`` and ``patterns``."""
    rng = np.random.default_rng(seed)
    n_columns = points.shape[1]
    mean, scale = points.mean(dim=0), _standard_deviation(points)
    scale = torch.where(scale > 0, scale, 1.0)
    n_waves = min(_WAVES, len(times) // _ROWS_A_WAVE) if n_columns else 0
    wavelength = _WAVELENGTH * math.sqrt(max(1, n_columns))
    directions = torch.from_numpy(rng.standard_normal((n_columns, n_waves)) / wavelength).to(points)
    phases = torch.from_numpy(rng.uniform(0, 2 * np.pi, size=n_waves)).to(points)
    functions = smooth_functions((points - mean) / scale, directions, phases)
    removed, bend = _labels_part(functions, latents, n_columns)
    rest = latents - torch.einsum("sf,gfl->gsl", functions, removed)
    latent_scale = _standard_deviation(rest.flatten(0, 1))
    embedding_scale = _standard_deviation(latents.flatten(0, 1))
    # Smaller standard deviations are rounding errors of single precision.
    varies = latent_scale > _LEAST_SPREAD * (1 + latents.flatten(0, 1).abs().mean(dim=0))
    references = evenly_spaced(np.arange(len(times)), _MOST_REFERENCES)
    discrete = np.zeros(n_columns, dtype=bool)
    for label in label_columns(labels):
        discrete[label.columns] = label.kind == "discrete"
    shares = torch.where(torch.from_numpy(discrete).to(mean.device), mean, torch.ones_like(mean))
    return {
        "group": torch.from_numpy(leave_out.group),
        "correlations": torch.from_numpy(leave_out.correlations).float(),
        "borders": torch.from_numpy(leave_out.borders),
        "label_mean": mean,
        "label_scale": scale,
        "directions": directions,
        "phases": phases,
        "told": removed,
        "bend": bend,
        "latent_mean": rest.flatten(0, 1).mean(dim=0),
        "latent_scale": torch.where(varies, latent_scale, 1.0),
        "embedding_scale": torch.where(varies, embedding_scale, 1.0),
        "reference_embedding": torch.from_numpy(embed(encoder, recording, times[references])),
        "reference_labels": points[torch.from_numpy(references).to(points.device)].cpu(),
        "class_shares": shares,
    }


def _standard_deviation(values: Tensor) -> Tensor:
    """Standard deviation of every column. `torch.std` would warn if there are no columns."""
    return (values - values.mean(dim=0)).square().mean(dim=0).sqrt()


def _labels_part(functions: Tensor, latents: Tensor, n_columns: int) -> tuple[Tensor, Tensor]:
    """Weights of the smooth functions of the labels in each latent.

    The share of a latent that the labels predict is measured on held-out stretches, because slow
    latents and slow labels that are unrelated look related within a single stretch of time. From
    latents that are copies of the labels, the whole prediction is removed. For other latents, its
    nonlinear part is returned separately: it is not known here whether such a latent contains a
    function of the label or is only correlated with it.

    Parameters
    ----------
    functions : Tensor of shape (n_samples, n_functions)
        See `smooth_functions`.
    latents : Tensor of shape (n_groups, n_samples, n_latents)
    n_columns : int
        Number of label columns.

    Returns
    -------
    removed, bend : Tensor of shape (n_groups, n_functions, n_latents)
        Weights of the part to remove, and of the nonlinear part that is not removed.
    """
    # On the CPU: some devices have no double precision or cannot solve for dependent regressors.
    design = functions.cpu().double()
    n_groups, n, n_latents = latents.shape
    y = latents.cpu().double().permute(1, 0, 2).reshape(n, n_groups * n_latents)
    if design.shape[1] <= 1 or n_latents == 0:
        zeros = latents.new_zeros(n_groups, design.shape[1], n_latents)
        return zeros, zeros.clone()
    stretch = torch.from_numpy(np.arange(n) * N_STRETCHES // n)
    fold = stretch % _FOLDS
    gram, cross = design.T @ design, design.T @ y
    ridge = torch.ones(design.shape[1], dtype=torch.float64)
    ridge[0] = 1e-9  # the constant is not penalised
    predicted = torch.empty_like(y)
    for k in range(_FOLDS):
        out = fold == k
        rows, targets = design[out], y[out]
        inner = gram - rows.T @ rows + torch.diag(_RIDGE * (n - len(rows)) * ridge)
        predicted[out] = rows @ torch.linalg.solve(inner, cross - rows.T @ targets)
    centred = y - y.mean(dim=0)
    centred_prediction = predicted - predicted.mean(dim=0)
    shares, errors = _share_explained(
        (centred - centred_prediction).square(), centred.square(), stretch
    )
    # The median over groups is used for each latent, so that the same mixture with the label
    # remains in all groups.
    share, lower_bound = (
        values.reshape(n_groups, n_latents).quantile(0.5, dim=0).repeat(n_groups)
        for values in (shares, shares - errors)
    )
    copied = ((lower_bound - _OWN_FACTOR) / (_COPY_OF_LABEL - _OWN_FACTOR)).clamp(0.0, 1.0)
    weights = torch.linalg.solve(gram + torch.diag(_RIDGE * n * ridge), cross)
    weights[0] = 0.0  # the mean of a latent is not removed
    columns = design[:, : 1 + n_columns]
    bend = weights.clone()
    bend[: 1 + n_columns] -= torch.linalg.lstsq(columns, design @ weights).solution
    bend *= torch.where(share > _LEAST_TOLD, 1 - copied, 0.0)
    by_group = (
        values.reshape(-1, n_groups, n_latents).permute(1, 0, 2).contiguous().to(latents)
        for values in (weights * copied, bend)
    )
    return next(by_group), next(by_group)


def _share_explained(residual: Tensor, total: Tensor, stretch: Tensor) -> tuple[Tensor, Tensor]:
    """Share of the variance that is explained, and its standard error over stretches of time.

    The standard error is that of the jackknife. In a short recording of slow factors there are few
    independent stretches, and a share of a quarter can be due to chance alone.

    Parameters
    ----------
    residual, total : Tensor of shape (n_samples, n_columns)
        Squared residuals, and squared deviations from the mean.
    stretch : Tensor of shape (n_samples,)
        Number of the stretch that each sample belongs to.

    Returns
    -------
    share, error : Tensor of shape (n_columns,)
    """
    n_stretches = int(stretch.max()) + 1
    sums = [
        torch.zeros(n_stretches, squares.shape[1], dtype=squares.dtype).index_add_(
            0, stretch, squares
        )
        for squares in (residual, total)
    ]
    totals = [by_stretch.sum(dim=0) for by_stretch in sums]
    share = 1 - totals[0] / totals[1].clamp_min(1e-300)
    without = 1 - (totals[0] - sums[0]) / (totals[1] - sums[1]).clamp_min(1e-300)
    variance = (without - without.mean(dim=0)).square().mean(dim=0)
    return share, ((n_stretches - 1) * variance).sqrt()


def _train(
    decoder: CrossedDecoder,
    rows: Float[Tensor, "group sample input"],
    targets: Float[Tensor, "sample neuron"],
    config: DecoderConfig,
    progress: bool,
) -> None:
    """Train both networks. A row of a group is used for the neurons of that group only."""
    rng = np.random.default_rng(config.seed)
    device = targets.device
    n_groups, n = rows.shape[:2]
    half = halves(n)
    samples = [np.flatnonzero(half == k) for k in range(2)]
    if min(map(len, samples)) == 0:
        samples = [np.arange(n)] * 2
    # A group has about one in n_groups of the neurons. The weight compensates for this.
    weights = torch.stack([decoder.group == g for g in range(n_groups)]).to(targets) * n_groups
    judged = [
        torch.from_numpy(evenly_spaced(other, _MOST_JUDGED // n_groups)).to(device)
        for other in samples[::-1]
    ]
    fused = device.type in ("cpu", "cuda")
    optimizers = [torch.optim.Adam(member.parameters(), fused=fused) for member in decoder.members]
    best = [copy.deepcopy(member.state_dict()) for member in decoder.members]
    least, since = [math.inf, math.inf], 0
    steps = bar(config.steps, progress, desc="crossed decoders", unit="step")
    with deferred_interrupt() as interrupted, steps:
        for step in range(config.steps):
            rate = one_cycle(step, config.steps, config.learning_rate, rise=0.05)
            for member, optimizer, own in zip(decoder.members, optimizers, samples, strict=True):
                optimizer.param_groups[0]["lr"] = rate
                drawn = torch.from_numpy(own[rng.integers(len(own), size=config.batch_size)])
                drawn = drawn.to(device)
                group = torch.from_numpy(rng.integers(n_groups, size=config.batch_size)).to(device)
                optimizer.zero_grad()
                residual = member(rows[group, drawn]) - targets[drawn]
                (residual.square() * weights[group]).mean().backward()
                optimizer.step()
            steps.update()
            is_last = step + 1 == config.steps or interrupted()
            if (step + 1) % _BETWEEN_LOOKS and not is_last:
                continue
            since += 1
            for k, member in enumerate(decoder.members):
                error = _error(member, rows[:, judged[k]], targets[judged[k]], weights)
                if error < least[k]:
                    best[k], least[k], since = copy.deepcopy(member.state_dict()), error, 0
            if interrupted():
                warn(
                    f"the decoders were stopped at step {step + 1} of {config.steps}; maps are "
                    "those of networks that are not trained to the end",
                    InterruptedFitWarning,
                )
            if is_last or since == _PATIENCE:
                break
    for member, state in zip(decoder.members, best, strict=True):
        member.load_state_dict(state)


def _error(member: nn.Module, rows: Tensor, targets: Tensor, weights: Tensor) -> float:
    with torch.no_grad():
        errors = [
            ((member(rows[g]) - targets).square() * weights[g]).mean() for g in range(len(rows))
        ]
    return float(torch.stack(errors).mean())


def expected(
    decoder: CrossedDecoder, rows: Float[Tensor, "group sample input"]
) -> Float[Tensor, "member sample neuron"]:
    """Activity of every neuron that the two decoders expect, from the inputs of its own group.

    Parameters
    ----------
    decoder : CrossedDecoder
    rows : Tensor of shape (n_groups, n_samples, n_inputs)
        See `CrossedDecoder.inputs`.

    Returns
    -------
    Tensor of shape (2, n_samples, n_neurons)
        Standardised activity.
    """
    activity = torch.empty(2, rows.shape[1], len(decoder.group), device=rows.device)
    with torch.no_grad():
        for k, member in enumerate(decoder.members):
            for g in range(len(rows)):
                own = decoder.group == g
                activity[k][:, own] = member(rows[g])[:, own]
    return activity
