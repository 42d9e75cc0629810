"""The training loop for all objectives. A resumed run gives exactly the same result."""

from __future__ import annotations

import copy
import itertools
import math
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from xcebra.caveats import InterruptedFitWarning, warn
from xcebra.common.interrupts import deferred_interrupt
from xcebra.common.progress import Steps
from xcebra.common.workers import Workers, shares
from xcebra.networks.encoder import Encoder, FixedPoints
from xcebra.networks.jacobian import pull_back
from xcebra.networks.perceptron import Gradients, JacobianPenalty, Pass, split_layers
from xcebra.networks.schedules import one_cycle
from xcebra.training.batches import (
    Batch,
    Batches,
    Objective,
    Part,
    Regression,
    SessionSamples,
)
from xcebra.training.checkpoints import History, Learner, Record, TrainState
from xcebra.training.infonce import chance_level, infonce
from xcebra.training.settling import (
    BETWEEN_LOOKS,
    place_in_schedule,
    settled_at,
    steps_to_take,
)
from xcebra.training.weight_search import searches, weight_at

# Seconds between two checkpoints. Larger values lose more work after a crash; smaller values write
# more often. Not tuned.
_CHECKPOINT_SECONDS = 20.0
# Fewest rows of a batch for each worker. With fewer, starting and joining the parts of a step takes
# more time than it saves; not tuned.
_ROWS_A_WORKER = 1024
# Number of steps after which losses are read on devices other than the CPU. Such a device computes
# while Python prepares the next steps, and reading a value waits until it has computed everything.
# Larger values wait less often and notice an infinite loss later; not tuned.
_STEPS_UNREAD = 10
# Bytes of a block just below 32 MB, the largest size to which glibc adapts its threshold for
# returning memory to the system; see `new_state`.
_LARGEST_ADAPTED = 32 * 2**20 - 2**14


@dataclass(frozen=True)
class TrainConfig:
    """Settings of the training loop.

    ``jacobian_weight`` is divided by the temperature, so that its meaning does not depend on the
    scale of the embedding. The weight is zero for the first eighth of the steps, increases during
    the second eighth, and is constant afterwards. With ``find_weight``, the weight is searched for,
    starting from ``jacobian_weight`` (`weight_search`). The penalty is computed exactly, on
    ``penalty_samples`` references of each batch: at equal cost, this has less variance than random
    projections of all references (``benchmarks/penalty.py``). With ``until_settled``, training may
    end before ``steps`` (`settling`).
    """

    steps: int
    batch_size: int
    learning_rate: float
    weight_decay: float
    schedule: str
    jacobian_weight: float
    temperature: float
    similarity: str
    include_positive: bool
    penalty_samples: int
    seed: int
    find_weight: bool = False
    until_settled: bool = False

    def rate(self, step: int) -> float:
        """Learning rate of a step: constant, or a one-cycle schedule that rises over a tenth."""
        if self.schedule == "constant":
            return self.learning_rate
        return one_cycle(step, self.steps, self.learning_rate, rise=0.1)

    def penalty_weight(self, step: int) -> float:
        """Weight of the Jacobian penalty at a step, before division by the temperature."""
        eighth = self.steps / 8
        return self.jacobian_weight * min(1.0, max(0.0, (step - eighth) / eighth))


def train(
    encoders: Sequence[Encoder | FixedPoints],
    sessions: Sequence[SessionSamples],
    objectives: list[Objective | Regression],
    config: TrainConfig,
    *,
    device: torch.device,
    progress: bool = False,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    callback: Callable[[int], None] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Train the encoders of one or several sessions in place and return the history.

    Ctrl-C stops training after the current step, with a warning. A second Ctrl-C raises
    `KeyboardInterrupt` at once.

    Parameters
    ----------
    encoders : sequence of Encoder
        One for each session. They may share layers.
    sessions : sequence of SessionSamples
        Samples to train on.
    objectives : list of Objective or Regression
        Terms of the loss.
    config : TrainConfig
        The batch sizes are those of the sessions.
    device : torch.device
    progress : bool
        Whether to show a progress bar.
    checkpoint : Path, optional
        File that the state is written to, from time to time and at the end. If the file exists,
        training continues from it.
    fingerprint : str
        Digest of the fit. A checkpoint with another fingerprint is refused.
    callback : callable, optional
        ``callback(n_steps)`` is called after every step with the number of steps done.

    Returns
    -------
    dict of str to ndarray of shape (n_steps,)
    """
    state = new_state(encoders, config)
    first = state.load(checkpoint, fingerprint) if checkpoint and checkpoint.exists() else 0
    batch = Batches(sessions, objectives, device)
    saved = time.monotonic()
    with (
        step_workers(sessions, objectives, device) as workers,
        deferred_interrupt() as interrupted,
        Steps(config.steps, progress, initial=first, desc="training") as progress_bar,
    ):
        _settle(state, config, progress_bar)
        for step in itertools.count(first):
            if step >= steps_to_take(config.steps, state.settled):
                break
            if interrupted():
                if step == 0:
                    raise KeyboardInterrupt
                # Saved before the warning, because a caller may turn warnings into errors.
                read_losses(state, config)
                if checkpoint and step > first:
                    state.save(checkpoint, fingerprint, step)
                warn(
                    f"training was stopped at step {step} of {config.steps}; "
                    "the model keeps what it has learned so far",
                    InterruptedFitWarning,
                )
                return state.history.arrays()
            record = workers.lead(take_step, state, batch, objectives, config, step, workers)
            state.unread.append((step, record))
            if _losses_are_due(step, config, device):
                read_losses(state, config)
            if (step + 1) % BETWEEN_LOOKS == 0:
                _settle(state, config, progress_bar)
            progress_bar.update()
            if callback is not None:
                callback(step + 1)
            if progress_bar.n % _STEPS_UNREAD == 0:
                progress_bar.describe(_summary(state.history.last(), objectives))
            if checkpoint and time.monotonic() - saved > _CHECKPOINT_SECONDS:
                read_losses(state, config)
                state.save(checkpoint, fingerprint, step + 1)
                saved = time.monotonic()
        read_losses(state, config)
        if checkpoint and step > first:
            state.save(checkpoint, fingerprint, step)
    return state.history.arrays()


def _settle(state: TrainState, config: TrainConfig, progress_bar: Steps) -> None:
    """Decide whether training has settled, from the history."""
    if config.until_settled and state.settled is None:
        state.settled = settled_at(state.history.rows, config.steps)
        progress_bar.shorten(steps_to_take(config.steps, state.settled))


def step_workers(
    sessions: Sequence[SessionSamples], objectives: Sequence[object], device: torch.device
) -> Workers:
    """Make the workers of training steps, as many as the rows of a batch are enough for."""
    n_rows = sum(s.n_references * (1 + len(objectives)) + s.n_negatives for s in sessions)
    return Workers(max(1, n_rows // _ROWS_A_WORKER), device)


def new_state(encoders: Sequence[Encoder | FixedPoints], config: TrainConfig) -> TrainState:
    """Make the state of training before the first step."""
    # The allocator of glibc adapts its thresholds to the largest block that was freed. Allocating
    # and freeing a block of this size makes it reuse the memory of a step for the next step, which
    # saves a tenth of the time of a large step.
    torch.empty(_LARGEST_ADAPTED, dtype=torch.uint8)
    # Parameters that several encoders share are listed once, and fixed ones are left out.
    every = (p for encoder in encoders for p in encoder.network.parameters())
    parameters = dict.fromkeys(parameter for parameter in every if parameter.requires_grad)
    optimizer = torch.optim.AdamW(
        list(parameters),
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=next(iter(parameters)).device.type in ("cpu", "cuda"),
    )
    learner = Learner(tuple(encoders), optimizer)
    return TrainState(learner, np.random.default_rng(config.seed), History())


def take_step(
    state: TrainState,
    batch: Batches,
    objectives: list[Objective | Regression],
    config: TrainConfig,
    step: int,
    workers: Workers,
) -> Record:
    """Draw a batch, take a gradient step, and return what `read_losses` reads.

    Nothing here waits for a value that the device computes.
    """
    drawn = batch.draw(state.rng)
    rate = config.rate(place_in_schedule(step, state.settled))
    names = [objective.name for objective in objectives]
    weight = config.penalty_weight(step)
    if config.find_weight:
        history = state.history.rows
        weight = weight_at(step, config.steps, config.jacobian_weight, names, history)
    if not (config.find_weight and searches(step, config.steps)):
        state.twin = None
    elif state.twin is None:
        state.twin = copy.deepcopy(state.learner)
    record = _follow(state.learner, drawn, objectives, config, weight, rate, workers)
    if config.find_weight:
        free: Record = {}
        if state.twin is not None:
            free = _follow(state.twin, drawn, objectives, config, 0.0, rate, workers)
        record |= {f"free/{name}": free.get(f"loss/{name}", math.nan) for name in names}
    return {**record, "weight": weight, "learning_rate": rate}


def _losses_are_due(step: int, config: TrainConfig, device: torch.device) -> bool:
    """Whether losses are read after a step."""
    # While the weight is searched for, it depends on the step before, as does the first one after.
    begun, ended = searches(step, config.steps), searches(step - 1, config.steps)
    is_needed = config.find_weight and (begun or ended)
    return device.type == "cpu" or is_needed or (step + 1) % _STEPS_UNREAD == 0


def read_losses(state: TrainState, config: TrainConfig) -> None:
    """Read the losses of all steps that have not been read, in one transfer, into the history.

    Raises
    ------
    FloatingPointError
        If the loss of one of these steps is not finite.
    """
    tensors = [v for _, record in state.unread for v in record.values() if isinstance(v, Tensor)]
    numbers = iter(torch.stack(tensors).cpu().tolist() if tensors else [])
    for step, record in state.unread:
        values: dict[str, float] = {}
        for name, value in record.items():
            number = next(numbers) if isinstance(value, Tensor) else float(value)
            kind, _, objective = name.partition("/")
            if kind == "free":
                values[f"lost/{objective}"] = values[f"loss/{objective}"] - number
            else:
                values[name] = number
        total = values.pop("total")
        if not math.isfinite(total):
            raise FloatingPointError(
                f"the loss became {total} at step {step} with learning_rate="
                f"{config.learning_rate:g}; try a smaller learning_rate, for instance a tenth of it"
            )
        state.history.add(**values)
    state.unread.clear()


def _follow(
    learner: Learner,
    drawn: Batch,
    objectives: list[Objective | Regression],
    config: TrainConfig,
    weight: float,
    rate: float,
    workers: Workers,
) -> Record:
    """Take a gradient step on a batch; return the losses, the penalty and their total."""
    for group in learner.optimizer.param_groups:
        group["lr"] = rate
    penalised = config.penalty_samples if weight > 0 else 0
    scale = weight / config.temperature
    pieces = workers.divide(
        lambda k: _embed_part(learner.encoders, drawn, penalised, scale, k, workers.n)
    )
    embedded = _joined(pieces, drawn.order)
    n_references = sum(drawn.n_references)
    reference, others = embedded[:n_references], embedded[n_references:]
    total = embedded.new_zeros(())
    record: Record = {}
    for objective, parts in zip(objectives, drawn.parts, strict=True):
        loss, chance = _loss_of_parts(objective, parts, reference, others, config, workers)
        total = total + objective.weight * loss
        record[f"loss/{objective.name}"] = math.nan if math.isnan(chance) else loss.detach()
        record[f"chance/{objective.name}"] = chance
    total.backward()
    record["total"], record["penalty"] = total.detach(), math.nan
    if weight > 0:
        record["penalty"] = sum(piece.squared_norm for own in pieces for piece in own)
        record["total"] = record["total"] + scale * record["penalty"]
    gradients = workers.divide(lambda k: [piece.gradients() for piece in pieces[k]])
    learner.set_gradients(gradients)
    learner.optimizer.step()
    return record


@dataclass(frozen=True, eq=False)
class _Piece:
    """Rows of one session that one worker embeds, and passes back later.

    Parameters
    ----------
    run : Pass or None
        The pass through the linear layers. None if the session has points in place of an encoder.
    raw : Tensor of shape (n_rows, n_latents)
        Output of the linear layers.
    embedded : Tensor of shape (n_rows, n_latents)
        ``raw`` after the layers that follow.
    leaf : Tensor of shape (n_rows, n_latents)
        The same values, cut off from ``embedded``. Losses are computed from it, by one worker for
        all rows together, and its gradient is then passed on.
    n_penalised : int
        Number of rows whose Jacobian is penalised. They come first.
    penalty : JacobianPenalty or None
    end : Tensor or None
        Jacobian of the layers after ``raw``, at the rows that are penalised.
    share : float
        Factor of the penalty's squared norm in the mean over all samples that are penalised.
    """

    run: Pass | None
    raw: Tensor
    embedded: Tensor
    leaf: Tensor
    n_penalised: int
    penalty: JacobianPenalty | None = None
    end: Tensor | None = None
    share: float = 0.0

    @property
    def squared_norm(self) -> Tensor | float:
        """Part of the mean squared norm of the Jacobian."""
        return 0.0 if self.penalty is None else self.share * self.penalty.squared_norm

    def gradients(self) -> Gradients:
        """Gradients by the weights and biases of the linear layers."""
        if self.run is None:
            return []
        upstream = self.leaf.grad
        if upstream is None:
            upstream = torch.zeros_like(self.leaf)
        ends, at_ends = [self.embedded], [upstream]
        if self.penalty is not None and self.end is not None:
            ends, at_ends = [*ends, self.end], [*at_ends, self.penalty.to_end]
        torch.autograd.backward(ends, at_ends)
        assert self.raw.grad is not None
        return self.run.gradients(self.raw.grad, self.penalty)


def _embed_part(
    encoders: Sequence[Encoder | FixedPoints],
    drawn: Batch,
    penalised: int,
    scale: float,
    part: int,
    n_parts: int,
) -> list[_Piece]:
    """Read and embed one worker's part of the rows of every session, with its part of the penalty.

    Parameters
    ----------
    encoders : sequence of Encoder
    drawn : Batch
    penalised : int
        Number of references, in each session, whose Jacobian is penalised.
    scale : float
        Factor of the penalty in the loss.
    part, n_parts : int
        Number of the part, and number of parts.
    """
    pieces = []
    for s, (encoder, times) in enumerate(zip(encoders, drawn.times, strict=True)):
        linear, end = split_layers(encoder.network)
        n_first = min(penalised, drawn.n_references[s]) if linear else 0
        first, rest = shares(n_first, n_parts)[part], shares(len(times) - n_first, n_parts)[part]
        own = np.concatenate([times[:n_first][first], times[n_first:][rest]])
        x = drawn.sessions[s].read(own)
        if not linear:
            pieces.append(_Piece(None, x, x, x, 0))
            continue
        n = first.stop - first.start
        run = Pass.forward(linear, x, n)
        raw = run.output.requires_grad_()
        embedded = raw
        for layer in end:
            embedded = layer(embedded)
        penalty, end_jacobian, share = None, None, 0.0
        if n:
            identity = torch.eye(raw.shape[1], device=raw.device, dtype=raw.dtype).expand(n, -1, -1)
            end_jacobian = identity
            for layer in reversed(end):
                end_jacobian = pull_back(layer, raw[:n], end_jacobian)
            share = drawn.n_references[s] / sum(drawn.n_references) / n_first
            penalty = JacobianPenalty.measure(run, end_jacobian.detach(), scale * share)
        leaf = embedded.detach().requires_grad_()
        pieces.append(_Piece(run, raw, embedded, leaf, n, penalty, end_jacobian, share))
    return pieces


def _joined(pieces: Sequence[Sequence[_Piece]], order: Tensor | None) -> Tensor:
    """Join the embedded rows of all workers and sessions in the common order of the batch.

    Returns a Tensor of shape (n_rows, n_latents).
    """
    rows = []
    for parts in zip(*pieces, strict=True):
        rows += [piece.leaf[: piece.n_penalised] for piece in parts]
        rows += [piece.leaf[piece.n_penalised :] for piece in parts]
    # Sessions may differ in their number of time latents, which come last. A latent that is zero
    # everywhere does not change distances inside a session.
    widest = max(z.shape[1] for z in rows)
    embedded = torch.cat([_padded(z, widest) for z in rows])
    return embedded if order is None else embedded[order]


def _padded(z: Tensor, n_latents: int) -> Tensor:
    """Append latents that are zero."""
    return z if z.shape[1] == n_latents else F.pad(z, (0, n_latents - z.shape[1]))


def _loss_of_parts(
    objective: Objective | Regression,
    parts: Sequence[Part],
    reference: Tensor,
    others: Tensor,
    config: TrainConfig,
    workers: Workers,
) -> tuple[Tensor, float]:
    """Mean loss of an objective over its parts, and its mean chance level.

    Parts without samples that can be used are left out.
    """
    results = [_loss(objective, part, reference, others, config, workers) for part in parts]
    if len(parts) == 1:
        return results[0]
    known = [
        (part.share, *result)
        for part, result in zip(parts, results, strict=True)
        if not math.isnan(result[1])
    ]
    if not known:
        return results[0]
    whole = sum(share for share, _, _ in known)
    loss = torch.stack([share / whole * loss for share, loss, _ in known]).sum()
    return loss, sum(share / whole * chance for share, _, chance in known)


def _loss(
    objective: Objective | Regression,
    part: Part,
    reference: Tensor,
    others: Tensor,
    config: TrainConfig,
    workers: Workers,
) -> tuple[Tensor, float]:
    """Loss of one objective, and its chance level."""
    x = reference[part.rows][:, objective.block]
    negatives = others[part.negatives][:, objective.block]
    if len(x) == 0 or (part.target is None and len(negatives) == 0):
        return reference.sum() * 0, math.nan  # no sample of this batch can be used
    if part.target is not None:
        return F.mse_loss(x, part.target), 1.0
    loss = infonce(
        x,
        others[part.positives][:, objective.block],
        negatives,
        similarity=config.similarity,
        temperature=config.temperature,
        include_positive=config.include_positive,
        workers=workers,
    )
    return loss, chance_level(len(negatives), config.include_positive)


def _summary(record: Mapping[str, float], objectives: list[Objective | Regression]) -> str:
    """Losses and their chance levels, for the progress bar."""
    terms = [
        f"{o.name} {record[f'loss/{o.name}']:.2f} (chance {record[f'chance/{o.name}']:.2f})"
        for o in objectives
    ]
    if record["weight"] > 0:
        terms.append(f"|J|^2 {record['penalty']:.2f}")
    return ", ".join(terms)
