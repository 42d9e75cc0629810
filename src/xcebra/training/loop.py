"""One training loop for every objective, resumable to the same bits."""

from __future__ import annotations

import copy
import math
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F

from xcebra.caveats import InterruptedFitWarning, warn
from xcebra.common.interrupts import deferred_interrupt
from xcebra.common.progress import bar
from xcebra.data.epochs import Epochs
from xcebra.data.recording import Recording
from xcebra.networks.encoder import Encoder
from xcebra.networks.jacobian import linearise, penalty
from xcebra.networks.schedules import one_cycle
from xcebra.training.batches import Batch, Batches, Objective, Part, Regression
from xcebra.training.checkpoints import History, Learner, TrainState
from xcebra.training.infonce import chance_level, infonce
from xcebra.training.weight_search import searches, weight_at

_CHECKPOINT_SECONDS = 20.0
_LARGEST_ADAPTED = 32 * 2**20 - 2**14


@dataclass(frozen=True)
class TrainConfig:
    """Everything the loop needs to know that is not data.

    ``jacobian_weight`` is divided by the temperature, so that its meaning stays when the
    embedding's scale changes. The penalty is off for the first eighth of the steps, rises over the
    second, then holds; with ``find_weight`` it is searched for, from ``jacobian_weight`` on
    (`weight_search`). It is exact, on ``penalty_samples`` of each batch's references: at equal
    cost that has less variance than random projections of all (``benchmarks/penalty.py``).
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

    def rate(self, step: int) -> float:
        """Learning rate of a step: constant, or up over a tenth and down a half cosine."""
        if self.schedule == "constant":
            return self.learning_rate
        return one_cycle(step, self.steps, self.learning_rate, rise=0.1)

    def penalty_weight(self, step: int) -> float:
        """Weight of the Jacobian penalty at a step, before division by the temperature."""
        eighth = self.steps / 8
        return self.jacobian_weight * min(1.0, max(0.0, (step - eighth) / eighth))


def train(
    encoder: Encoder,
    recording: Recording,
    epochs: Epochs,
    objectives: list[Objective | Regression],
    config: TrainConfig,
    *,
    device: torch.device,
    progress: bool = False,
    checkpoint: Path | None = None,
    fingerprint: str = "",
    callback: Callable[[int, Encoder], None] | None = None,
) -> dict[str, NDArray[np.float64]]:
    """Train the encoder in place and return its history.

    Ctrl-C ends training after the current step, with a warning; a second one raises. With
    ``checkpoint`` the state is written there from time to time and at the end, and a run that finds
    the file goes on from it; ``fingerprint`` tells whether it belongs to the same fit.
    ``callback`` is called after every step with the number of steps taken and the encoder.
    """
    state = new_state(encoder, config)
    first = state.load(checkpoint, fingerprint) if checkpoint and checkpoint.exists() else 0
    read = partial(encoder.samples, recording)
    batch = Batches(read, epochs, objectives, config.batch_size, device)
    saved = time.monotonic()
    with (
        deferred_interrupt() as interrupted,
        bar(config.steps, progress, initial=first, desc="xcebra", unit="step") as shown,
    ):
        for step in range(first, config.steps):
            if interrupted():
                if step == 0:
                    raise KeyboardInterrupt
                # Before the warning, which a caller may turn into an error.
                if checkpoint and step > first:
                    state.save(checkpoint, fingerprint, step)
                warn(
                    f"training was stopped at step {step} of {config.steps}; "
                    "the model keeps what it has learned so far",
                    InterruptedFitWarning,
                )
                break
            record = take_step(state, batch, objectives, config, step)
            state.history.add(**record)
            shown.update()
            if callback is not None:
                callback(step + 1, encoder)
            if shown.n % 10 == 0:
                shown.set_postfix_str(_summary(record, objectives), refresh=False)
            if checkpoint and time.monotonic() - saved > _CHECKPOINT_SECONDS:
                state.save(checkpoint, fingerprint, step + 1)
                saved = time.monotonic()
        else:
            if checkpoint and config.steps > first:
                state.save(checkpoint, fingerprint, config.steps)
    return state.history.arrays()


def new_state(encoder: Encoder, config: TrainConfig) -> TrainState:
    """Everything that changes while training, before the first step."""
    # Taken and given back, a block of this size teaches glibc's allocator, which adapts to the
    # largest one freed, to keep the memory of a step for the next: a tenth of a large step's time.
    torch.empty(_LARGEST_ADAPTED, dtype=torch.uint8)
    optimizer = torch.optim.AdamW(
        encoder.network.parameters(),
        lr=config.learning_rate,
        weight_decay=config.weight_decay,
        fused=encoder.loadings.device.type in ("cpu", "cuda"),
    )
    return TrainState(Learner(encoder, optimizer), np.random.default_rng(config.seed), History())


def take_step(
    state: TrainState,
    batch: Batches,
    objectives: list[Objective | Regression],
    config: TrainConfig,
    step: int,
) -> dict[str, float]:
    """Draw a batch, follow its gradient, and say how it went."""
    drawn = batch.draw(state.rng)
    rate, names = config.rate(step), [each.name for each in objectives]
    weight = config.penalty_weight(step)
    if config.find_weight:
        history = state.history.rows
        weight = weight_at(step, config.steps, config.jacobian_weight, names, history)
    if not (config.find_weight and searches(step, config.steps)):
        state.twin = None
    elif state.twin is None:
        state.twin = copy.deepcopy(state.learner)
    record = _follow(state.learner, drawn, objectives, config, weight, rate)
    if state.twin is not None:
        free = _follow(state.twin, drawn, objectives, config, 0.0, rate)
    total = record.pop("total")
    if not math.isfinite(total):
        raise FloatingPointError(
            f"the loss became {total} at step {step} with learning_rate="
            f"{config.learning_rate:g}; try a smaller learning_rate, for instance a tenth of it"
        )
    if config.find_weight:
        for name in names:
            twin = math.nan if state.twin is None else free[f"loss/{name}"]
            record[f"lost/{name}"] = record[f"loss/{name}"] - twin
    return {**record, "weight": weight, "learning_rate": rate}


def _follow(
    learner: Learner,
    drawn: Batch,
    objectives: list[Objective | Regression],
    config: TrainConfig,
    weight: float,
    rate: float,
) -> dict[str, float]:
    """One step down the gradient of a batch."""
    encoder, optimizer = learner.encoder, learner.optimizer
    for group in optimizer.param_groups:
        group["lr"] = rate
    optimizer.zero_grad()
    # Some references apart from the rest: the penalty needs their way back through the network.
    n_penalised = min(config.penalty_samples, drawn.n_references) if weight > 0 else 0
    at = linearise(encoder.network, encoder.components(drawn.rows[:n_penalised]))
    embedded = torch.cat([at.output, encoder(drawn.rows[n_penalised:])])
    reference, others = embedded[: drawn.n_references], embedded[drawn.n_references :]
    total = embedded.new_zeros(())
    record: dict[str, Tensor | float] = {}
    for objective, part in zip(objectives, drawn.parts, strict=True):
        loss, chance = _loss(objective, part, reference, others, config)
        total = total + objective.weight * loss
        record[f"loss/{objective.name}"] = math.nan if math.isnan(chance) else loss.detach()
        record[f"chance/{objective.name}"] = chance
    if weight > 0:
        size = penalty(at)
        total = total + weight / config.temperature * size
        record["penalty"] = size.detach()
    else:
        record["penalty"] = math.nan
    total.backward()
    optimizer.step()
    record["total"] = total.detach()
    return {name: float(value) for name, value in record.items()}


def _loss(
    objective: Objective | Regression,
    part: Part,
    reference: Tensor,
    others: Tensor,
    config: TrainConfig,
) -> tuple[Tensor, float]:
    """Loss of one objective, and the level at which nothing is learned."""
    x = reference[part.rows][:, objective.block]
    negatives = others[part.negatives][:, objective.block]
    if len(x) == 0 or (part.target is None and len(negatives) == 0):
        return reference.sum() * 0, math.nan  # no sample of this batch takes part
    if part.target is not None:
        return F.mse_loss(x, part.target), 1.0
    loss = infonce(
        x,
        others[part.positives][:, objective.block],
        negatives,
        similarity=config.similarity,
        temperature=config.temperature,
        include_positive=config.include_positive,
    )
    return loss, chance_level(len(negatives), config.include_positive)


def _summary(record: Mapping[str, float], objectives: list[Objective | Regression]) -> str:
    """Losses beside their chance levels, for the progress bar."""
    terms = [
        f"{o.name} {record[f'loss/{o.name}']:.2f} (chance {record[f'chance/{o.name}']:.2f})"
        for o in objectives
    ]
    if record["weight"] > 0:
        terms.append(f"|J|^2 {record['penalty']:.2f}")
    return ", ".join(terms)
