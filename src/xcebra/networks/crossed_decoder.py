"""Two decoders, fitted to alternate stretches of time, from labels and latents to neurons.

Each neuron is regressed on the labels themselves, which are known without noise, and on the time
latents read without this neuron (`leave_out`), from which the part that the labels tell was taken
out. Whatever the two decoders agree on was seen twice, in different data: products of their
derivatives, averaged over time, are zero on average for a neuron without signal.
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

# Stretches of time, given to the two decoders in turn: many enough that both see the whole
# recording, long enough that noise at their borders does not matter.
N_STRETCHES = 20
_MOST_SAMPLES = 200_000
_MOST_JUDGED = 8192
_BETWEEN_LOOKS = 100
_PATIENCE = 5
# Samples that stand for the fit where a label is not given: enough to find a near one.
_MOST_REFERENCES = 4096
# The labels' part of a latent: cosines of random directions, and what a ridge costs.
_WAVES, _ROWS_A_WAVE, _WAVELENGTH, _RIDGE = 100, 20, 1.5, 1e-3
_FOLDS = 4
_LEAST_SPREAD = 1e-6
# Share of a latent's variance that the labels tell, held out. Below the first it is nothing. Less a
# standard error, up to the second the latent is a factor of its own and stays as it is: the sparse
# basis undoes what it has of the label. From the third on, it is a copy of the label, whose part is
# taken out.
_LEAST_TOLD, _OWN_FACTOR, _COPY_OF_LABEL = 0.01, 0.2, 0.3


@dataclass(frozen=True)
class LabelColumns:
    """Where a label stands among the label columns of the decoder, and of what kind it is."""

    name: str
    kind: str
    columns: slice


def label_columns(labels: Sequence[Label]) -> tuple[LabelColumns, ...]:
    """The columns of every label, one label after the other."""
    found, start = [], 0
    for label in labels:
        stop = start + label.points.shape[1]
        found.append(LabelColumns(label.name, label.kind, slice(start, stop)))
        start = stop
    return tuple(found)


class CrossedDecoder(nn.Module):
    """From label columns and time latents to the expected activity of standardised neurons, twice.

    Parameters
    ----------
    fixed : mapping of str to Tensor
        What was measured before training, kept as buffers:

        - ``around``: whether latents are means over each sample and its neighbours, which they are
          where the embedding outlasts a sample;
        - ``patterns`` (n_neurons, n_patterns): what is left over and read as further latents, which
          stand after the time latents wherever latents are spoken of; see
          `xcebra.networks.left_over`;
        - ``group`` (n_neurons,), ``correlations`` (n_quarters, n_neurons, n_neurons),
          ``borders`` (n_quarters - 1,): see `LeaveOut`;
        - ``label_mean``, ``label_scale`` (n_label_columns,);
        - ``directions`` (n_label_columns, n_waves), ``phases`` (n_waves,): smooth functions of the
          labels;
        - ``told`` (n_groups, 1 + n_label_columns + n_waves, n_time_latents): weights of the labels'
          part of every latent, as far as it is taken out;
        - ``bend``, of the same shape: weights of what is not linear in the rest of that part, which
          the sparse basis may undo;
        - ``latent_mean``, ``latent_scale``, ``embedding_scale`` (n_time_latents,): of the latents
          without the labels' part, and the scale that they had with it;
        - ``reference_embedding`` (n_references, n_latents), ``reference_labels``
          (n_references, n_label_columns), ``class_shares`` (n_label_columns,).
    labels : sequence of LabelColumns
    generator : torch.Generator, optional
        Source of the initial weights.
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
        """Latents of the time block, patterns that are left over not among them."""
        return len(self.latent_mean) - self.patterns.shape[1]

    def reader(self, encoder: Encoder, decoder: Decoder, time_block: slice | None) -> Reader:
        """What reads the latents that the members were trained with."""
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
        """What the members take: standardised labels, and latents without the labels' part."""
        scaled = (points - self.label_mean) / self.label_scale
        rest = (latents - self.labels_part(points) - self.latent_mean) / self.latent_scale
        return torch.cat([scaled.expand(len(latents), *scaled.shape), rest], dim=2)

    def labels_part(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent"]:
        """What is taken out of the latents because the labels tell it."""
        return self._functions_of(points, self.told)

    def bent_part(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent"]:
        """What the labels tell of latents that are no copies of them, its linear part aside."""
        return self._functions_of(points, self.bend)

    def bent_slopes(
        self, points: Float[Tensor, "sample column"]
    ) -> Float[Tensor, "group sample latent column"]:
        """Derivatives of the bent part by standardised labels, in units of the members' inputs."""
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
        """What label columns are multiplied by to be in the units of the map."""
        units = torch.ones_like(self.label_mean)
        for label in self.labels:
            if label.kind == "continuous":
                units[label.columns] = 1 / self.label_scale[label.columns].square().mean().sqrt()
            elif label.kind == "discrete":
                units[label.columns] = self.class_shares[label.columns].clamp_min(1e-6).rsqrt()
        return units

    def nearest_labels(self, embedding: NDArray[np.float32]) -> Tensor:
        """Labels of the samples of the fit that lie nearest in the embedding."""
        z = torch.from_numpy(embedding).to(self.reference_embedding)
        nearest = [
            torch.cdist(part, self.reference_embedding).argmin(dim=1) for part in z.split(2048)
        ]
        return self.reference_labels[torch.cat(nearest)]


def smooth_functions(scaled: Tensor, directions: Tensor, phases: Tensor) -> Tensor:
    """A constant, the columns themselves, and cosines along random directions."""
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
    """Measure what the decoders need, then train them, each on every other stretch of time.

    ``patterns``, of shape (n_neurons, n_patterns), are those of `xcebra.networks.left_over`.

    Each decoder is judged on the stretches of the other one, and keeps the weights with the least
    error there; training ends early when neither has become better for a while, or after Ctrl-C.
    """
    device = encoder.loadings.device
    times = known_times(recording.epochs, labels, _MOST_SAMPLES)
    leave_out = LeaveOut.measure(recording, recording.epochs, inputs)
    any_latents = time_block is not None or patterns.shape[1] > 0
    around = any_latents and outlasts_samples(encoder, recording, recording.epochs)
    # In single precision, as they are kept.
    kept = leave_out.correlations.astype(np.float32).astype(np.float64)
    reader = Reader(
        encoder, decoder, replace(leave_out, correlations=kept), time_block, patterns, around
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
    """Evenly spaced samples at which every label is known."""
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
    """Columns of all labels at some times, of shape (n_times, n_columns)."""
    if not labels:
        return torch.zeros(len(times), 0)
    found = np.concatenate([label.points[times] for label in labels], axis=1)
    return torch.from_numpy(found.astype(np.float32))


def halves(n: int) -> NDArray[np.int64]:
    """Which of the two decoders each of ``n`` samples in order trains: 0 or 1."""
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
    """Every buffer of the decoder."""
    rng = np.random.default_rng(seed)
    n_columns = points.shape[1]
    mean, scale = points.mean(dim=0), _spread(points)
    scale = torch.where(scale > 0, scale, 1.0)
    n_waves = min(_WAVES, len(times) // _ROWS_A_WAVE) if n_columns else 0
    reach = _WAVELENGTH * math.sqrt(max(1, n_columns))
    directions = torch.from_numpy(rng.standard_normal((n_columns, n_waves)) / reach).to(points)
    phases = torch.from_numpy(rng.uniform(0, 2 * np.pi, size=n_waves)).to(points)
    functions = smooth_functions((points - mean) / scale, directions, phases)
    told, bend = _labels_part(functions, latents, n_columns)
    rest = latents - torch.einsum("sf,gfl->gsl", functions, told)
    latent_scale = _spread(rest.flatten(0, 1))
    embedding_scale = _spread(latents.flatten(0, 1))
    # What is smaller is rounding of single precision.
    varies = latent_scale > _LEAST_SPREAD * (1 + latents.flatten(0, 1).abs().mean(dim=0))
    some = evenly_spaced(np.arange(len(times)), _MOST_REFERENCES)
    discrete = np.zeros(n_columns, dtype=bool)
    for each in label_columns(labels):
        discrete[each.columns] = each.kind == "discrete"
    shares = torch.where(torch.from_numpy(discrete).to(mean.device), mean, torch.ones_like(mean))
    return {
        "group": torch.from_numpy(leave_out.group),
        "correlations": torch.from_numpy(leave_out.correlations).float(),
        "borders": torch.from_numpy(leave_out.borders),
        "label_mean": mean,
        "label_scale": scale,
        "directions": directions,
        "phases": phases,
        "told": told,
        "bend": bend,
        "latent_mean": rest.flatten(0, 1).mean(dim=0),
        "latent_scale": torch.where(varies, latent_scale, 1.0),
        "embedding_scale": torch.where(varies, embedding_scale, 1.0),
        "reference_embedding": torch.from_numpy(embed(encoder, recording, times[some])),
        "reference_labels": points[torch.from_numpy(some).to(points.device)].cpu(),
        "class_shares": shares,
    }


def _spread(values: Tensor) -> Tensor:
    """Standard deviation of every column; torch's own warns where there are no columns."""
    return (values - values.mean(dim=0)).square().mean(dim=0).sqrt()


def _labels_part(functions: Tensor, latents: Tensor, n_columns: int) -> tuple[Tensor, Tensor]:
    """Weights of the smooth function of the labels in each latent: what to take out, what bends.

    How much of a latent the labels tell is found on held-out stretches: slow latents and labels
    that are unrelated look related in any one stretch of time. All of it is taken out of copies of
    the labels. Of other latents, what is not linear is kept apart: whether a latent that is a
    factor of its own also carries a function of the label, or is merely correlated with it, is not
    known here.
    """
    # On the CPU: not every device knows double precision, or regressors that depend on each other.
    design = functions.cpu().double()
    n_groups, n, n_latents = latents.shape
    y = latents.cpu().double().permute(1, 0, 2).reshape(n, n_groups * n_latents)
    if design.shape[1] <= 1 or n_latents == 0:
        nothing = latents.new_zeros(n_groups, design.shape[1], n_latents)
        return nothing, nothing.clone()
    stretch = torch.from_numpy(np.arange(n) * N_STRETCHES // n)
    fold = stretch % _FOLDS
    gram, cross = design.T @ design, design.T @ y
    ridge = torch.ones(design.shape[1], dtype=torch.float64)
    ridge[0] = 1e-9  # the constant is not held back
    predicted = torch.empty_like(y)
    for k in range(_FOLDS):
        out = fold == k
        rows, targets = design[out], y[out]
        inner = gram - rows.T @ rows + torch.diag(_RIDGE * (n - len(rows)) * ridge)
        predicted[out] = rows @ torch.linalg.solve(inner, cross - rows.T @ targets)
    centred = y - y.mean(dim=0)
    moved = predicted - predicted.mean(dim=0)
    told, error = _share_told((centred - moved).square(), centred.square(), stretch)
    # One share for each latent: all groups must have the same mixture of the label left in them.
    share, sure = (
        each.reshape(n_groups, n_latents).quantile(0.5, dim=0).repeat(n_groups)
        for each in (told, told - error)
    )
    copied = ((sure - _OWN_FACTOR) / (_COPY_OF_LABEL - _OWN_FACTOR)).clamp(0.0, 1.0)
    weights = torch.linalg.solve(gram + torch.diag(_RIDGE * n * ridge), cross)
    weights[0] = 0.0  # the mean of a latent is no part of the label
    columns = design[:, : 1 + n_columns]
    bend = weights.clone()
    bend[: 1 + n_columns] -= torch.linalg.lstsq(columns, design @ weights).solution
    bend *= torch.where(share > _LEAST_TOLD, 1 - copied, 0.0)
    both = (
        each.reshape(-1, n_groups, n_latents).permute(1, 0, 2).contiguous().to(latents)
        for each in (weights * copied, bend)
    )
    return next(both), next(both)


def _share_told(missed: Tensor, total: Tensor, stretch: Tensor) -> tuple[Tensor, Tensor]:
    """Share of the squares that is not missed, and its standard error over stretches of time.

    The error is that of the jackknife. Where there are few independent stretches, as in a short
    recording of slow factors, a share of a quarter is nothing but chance.
    """
    n_stretches = int(stretch.max()) + 1
    sums = [
        torch.zeros(n_stretches, each.shape[1], dtype=each.dtype).index_add_(0, stretch, each)
        for each in (missed, total)
    ]
    whole = [each.sum(dim=0) for each in sums]
    share = 1 - whole[0] / whole[1].clamp_min(1e-300)
    without = 1 - (whole[0] - sums[0]) / (whole[1] - sums[1]).clamp_min(1e-300)
    spread = (without - without.mean(dim=0)).square().mean(dim=0)
    return share, ((n_stretches - 1) * spread).sqrt()


def _train(
    decoder: CrossedDecoder,
    rows: Float[Tensor, "group sample input"],
    targets: Float[Tensor, "sample neuron"],
    config: DecoderConfig,
    progress: bool,
) -> None:
    """Train both members; a row of a group teaches the neurons of that group alone."""
    rng = np.random.default_rng(config.seed)
    device = targets.device
    n_groups, n = rows.shape[:2]
    half = halves(n)
    mine = [np.flatnonzero(half == k) for k in range(2)]
    if min(map(len, mine)) == 0:
        mine = [np.arange(n)] * 2
    # A group's neurons are one of n_groups of all: the weight makes up for it.
    taught = torch.stack([decoder.group == g for g in range(n_groups)]).to(targets) * n_groups
    judged = [
        torch.from_numpy(_evenly(other, _MOST_JUDGED // n_groups)).to(device)
        for other in mine[::-1]
    ]
    fused = device.type in ("cpu", "cuda")
    optimizers = [torch.optim.Adam(member.parameters(), fused=fused) for member in decoder.members]
    best = [copy.deepcopy(member.state_dict()) for member in decoder.members]
    least, since = [math.inf, math.inf], 0
    steps = bar(config.steps, progress, desc="crossed decoders", unit="step")
    with deferred_interrupt() as interrupted, steps:
        for step in range(config.steps):
            rate = one_cycle(step, config.steps, config.learning_rate, rise=0.05)
            for member, optimizer, own in zip(decoder.members, optimizers, mine, strict=True):
                optimizer.param_groups[0]["lr"] = rate
                drawn = torch.from_numpy(own[rng.integers(len(own), size=config.batch_size)])
                drawn = drawn.to(device)
                group = torch.from_numpy(rng.integers(n_groups, size=config.batch_size)).to(device)
                optimizer.zero_grad()
                missed = member(rows[group, drawn]) - targets[drawn]
                (missed.square() * taught[group]).mean().backward()
                optimizer.step()
            steps.update()
            last_one = step + 1 == config.steps or interrupted()
            if (step + 1) % _BETWEEN_LOOKS and not last_one:
                continue
            since += 1
            for k, member in enumerate(decoder.members):
                error = _error(member, rows[:, judged[k]], targets[judged[k]], taught)
                if error < least[k]:
                    best[k], least[k], since = copy.deepcopy(member.state_dict()), error, 0
            if interrupted():
                warn(
                    f"the decoders were stopped at step {step + 1} of {config.steps}; maps are "
                    "those of networks that are not trained to the end",
                    InterruptedFitWarning,
                )
            if last_one or since == _PATIENCE:
                break
    for member, state in zip(decoder.members, best, strict=True):
        member.load_state_dict(state)


def _evenly(rows: IntArray, most: int) -> IntArray:
    return evenly_spaced(rows, most)


def _error(member: nn.Module, rows: Tensor, targets: Tensor, taught: Tensor) -> float:
    with torch.no_grad():
        errors = [
            ((member(rows[g]) - targets).square() * taught[g]).mean() for g in range(len(rows))
        ]
    return float(torch.stack(errors).mean())


def expected(
    decoder: CrossedDecoder, rows: Float[Tensor, "group sample input"]
) -> Float[Tensor, "member sample neuron"]:
    """What both decoders expect of every neuron, from the inputs of its own group."""
    found = torch.empty(2, rows.shape[1], len(decoder.group), device=rows.device)
    with torch.no_grad():
        for k, member in enumerate(decoder.members):
            for g in range(len(rows)):
                own = decoder.group == g
                found[k][:, own] = member(rows[g])[:, own]
    return found
