"""One training loop for every objective, resumable to the same bits."""

from __future__ import annotations

import math
import signal
import threading
import time
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor
from torch.nn import functional as F
from tqdm import tqdm

from xcebra.caveats import InterruptedFitWarning, warn
from xcebra.encoder import Encoder
from xcebra.epochs import Epochs, IntArray
from xcebra.infonce import chance_level, infonce
from xcebra.jacobian import linearise, penalty
from xcebra.recording import Recording
from xcebra.sampling import NONE, Pairs
from xcebra.storage import read_tensors, write_tensors

_CHECKPOINT_SECONDS = 20.0
_CHECKPOINT_KIND = "xcebra-checkpoint"


@dataclass(frozen=True, eq=False)
class Objective:
    """One contrastive term: which latents it shapes, and who is a positive.

    Parameters
    ----------
    name : str
    block : slice
        Latents it acts on.
    pairs : Pairs
    weight : float
    """

    name: str
    block: slice
    pairs: Pairs
    weight: float = 1.0


@dataclass(frozen=True, eq=False)
class Regression:
    """The supervised baseline: squared error between latents and a standardised target.

    Parameters
    ----------
    name : str
    block : slice
    target : ndarray of shape (n_times, n_columns)
    valid : ndarray of shape (n_times,)
    """

    name: str
    block: slice
    target: NDArray[np.float64]
    valid: NDArray[np.bool_]
    weight: float = 1.0


@dataclass(frozen=True)
class TrainConfig:
    """Everything the loop needs to know that is not data.

    ``jacobian_weight`` is divided by the temperature, so that its meaning stays when the
    embedding's scale changes. The penalty is off for the first eighth of the steps, rises over the
    second, then holds.
    """

    steps: int
    batch_size: int
    learning_rate: float
    schedule: str
    jacobian_weight: float
    temperature: float
    similarity: str
    include_positive: bool
    projections: int | None
    seed: int

    def rate(self, step: int) -> float:
        """Learning rate of a step: constant, or up over a tenth and down a half cosine."""
        if self.schedule == "constant":
            return self.learning_rate
        rise = max(1, self.steps // 10)
        if step < rise:
            return self.learning_rate * (step + 1) / rise
        done = (step - rise) / max(1, self.steps - rise)
        return self.learning_rate * (0.005 + 0.995 * 0.5 * (1 + math.cos(math.pi * done)))

    def penalty_weight(self, step: int) -> float:
        """Weight of the Jacobian penalty at a step, before division by the temperature."""
        eighth = self.steps / 8
        return self.jacobian_weight * min(1.0, max(0.0, (step - eighth) / eighth))


@dataclass(eq=False)
class History:
    """What happened at each step, as plain arrays that grow with training."""

    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        """Append one step."""
        for name, value in values.items():
            self.rows.setdefault(name, []).append(value)

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """The history as arrays of shape (n_steps,)."""
        return {name: np.array(values) for name, values in self.rows.items()}


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
) -> dict[str, NDArray[np.float64]]:
    """Train the encoder in place and return its history.

    Ctrl-C ends training after the current step, with a warning; a second one raises. With
    ``checkpoint`` the state is written there from time to time and at the end, and a run that finds
    the file goes on from it; ``fingerprint`` tells whether it belongs to the same fit.
    """
    rng = np.random.default_rng(config.seed)
    generator = torch.Generator().manual_seed(config.seed)
    optimizer = torch.optim.Adam(
        encoder.network.parameters(),
        lr=config.learning_rate,
        fused=device.type in ("cpu", "cuda"),
    )
    state = _State(encoder, optimizer, rng, generator, History())
    first = state.load(checkpoint, fingerprint) if checkpoint and checkpoint.exists() else 0
    batch = _Batches(recording, epochs, objectives, config.batch_size, device)
    saved = time.monotonic()
    step = first
    with _deferred_interrupt() as interrupted, _bar(config, first, progress) as bar:
        for step in range(first, config.steps):
            if interrupted():
                if step == 0:
                    raise KeyboardInterrupt
                warn(
                    f"training was stopped at step {step} of {config.steps}; "
                    "the model keeps what it has learned so far",
                    InterruptedFitWarning,
                )
                break
            record = _step(state, batch, objectives, config, step)
            state.history.add(**record)
            bar.update()
            if bar.n % 10 == 0:
                bar.set_postfix_str(_summary(record, objectives), refresh=False)
            if checkpoint and time.monotonic() - saved > _CHECKPOINT_SECONDS:
                state.save(checkpoint, fingerprint, step + 1)
                saved = time.monotonic()
        else:
            step = config.steps
    if checkpoint and step > first:
        state.save(checkpoint, fingerprint, step)
    return state.history.arrays()


def _step(
    state: _State,
    batch: _Batches,
    objectives: list[Objective | Regression],
    config: TrainConfig,
    step: int,
) -> dict[str, float]:
    """Draw a batch, follow its gradient, and say how it went."""
    encoder = state.encoder
    for group in state.optimizer.param_groups:
        group["lr"] = config.rate(step)
    state.optimizer.zero_grad(set_to_none=True)
    drawn = batch.draw(state.rng)
    # References apart from the rest: the penalty needs their way back through the network.
    at = linearise(encoder.network, encoder.components(drawn.reference))
    others = encoder(drawn.others) if len(drawn.others) else at.output[:0]
    total = at.output.new_zeros(())
    record: dict[str, Tensor | float] = {}
    for objective, part in zip(objectives, drawn.parts, strict=True):
        loss, chance = part.loss(objective, at.output, others, config)
        total = total + objective.weight * loss
        record[f"loss/{objective.name}"] = loss.detach()
        record[f"chance/{objective.name}"] = chance
    weight = config.penalty_weight(step)
    if weight > 0:
        size = penalty(at, config.projections, state.generator)
        total = total + weight / config.temperature * size
        record["penalty"] = size.detach()
    else:
        record["penalty"] = math.nan
    total.backward()
    state.optimizer.step()
    if not math.isfinite(total.detach()):
        raise FloatingPointError(
            f"the loss became {float(total.detach())} at step {step} with learning_rate="
            f"{config.learning_rate:g}; try a smaller learning_rate, for instance a tenth of it"
        )
    numbers = {name: float(value) for name, value in record.items()}
    return {**numbers, "weight": weight, "learning_rate": config.rate(step)}


@dataclass(frozen=True, eq=False)
class _Part:
    """Where one objective finds its rows in a drawn batch."""

    rows: Tensor | slice
    positives: slice
    negatives: Tensor | slice
    target: Tensor | None = None

    def loss(
        self,
        objective: Objective | Regression,
        reference: Tensor,
        others: Tensor,
        config: TrainConfig,
    ) -> tuple[Tensor, float]:
        """Loss of this objective, and the level at which nothing is learned."""
        x = reference[self.rows][:, objective.block]
        if len(x) == 0:  # no sample of this batch takes part
            return reference.sum() * 0, math.nan
        if self.target is not None:
            return F.mse_loss(x, self.target), 1.0
        negatives = others[self.negatives][:, objective.block]
        loss = infonce(
            x,
            others[self.positives][:, objective.block],
            negatives,
            similarity=config.similarity,
            temperature=config.temperature,
            include_positive=config.include_positive,
        )
        return loss, chance_level(len(negatives), config.include_positive)


@dataclass(frozen=True, eq=False)
class _Drawn:
    reference: Tensor
    others: Tensor
    parts: list[_Part]


class _Batches:
    """Draws references and negatives shared by all objectives, and the positives of each."""

    def __init__(
        self,
        recording: Recording,
        epochs: Epochs,
        objectives: list[Objective | Regression],
        batch_size: int,
        device: torch.device,
    ) -> None:
        self._recording = recording
        self._epochs = epochs
        self._objectives = objectives
        self._batch_size = batch_size
        self._device = device
        self._contrastive = any(isinstance(o, Objective) for o in objectives)

    def draw(self, rng: np.random.Generator) -> _Drawn:
        """One batch; random draws happen in a fixed order."""
        reference = self._epochs.draw(self._batch_size, rng)
        negative = self._epochs.draw(self._batch_size if self._contrastive else 0, rng)
        others = [negative]
        at = len(negative)
        parts = []
        for objective in self._objectives:
            if isinstance(objective, Regression):
                rows = np.flatnonzero(objective.valid[reference])
                target = self._tensor(objective.target[reference[rows]])
                parts.append(_Part(self._index(rows, reference), slice(0), slice(0), target))
                continue
            positive = objective.pairs.positives(reference, rng)
            rows = np.flatnonzero(positive != NONE)
            usable = np.flatnonzero(objective.pairs.takes_part(negative))
            parts.append(
                _Part(
                    self._index(rows, reference),
                    slice(at, at + len(rows)),
                    self._index(usable, negative),
                )
            )
            others.append(positive[rows])
            at += len(rows)
        return _Drawn(self._rows(reference), self._rows(np.concatenate(others)), parts)

    def _rows(self, times: IntArray) -> Tensor:
        return torch.from_numpy(self._recording.rows(times)).to(self._device)

    def _tensor(self, values: NDArray[np.float64]) -> Tensor:
        return torch.from_numpy(values.astype(np.float32)).to(self._device)

    def _index(self, rows: IntArray, of: IntArray) -> Tensor | slice:
        """Rows as an index; all of them as a slice, which costs nothing."""
        if len(rows) == len(of):
            return slice(0, len(of))
        return torch.from_numpy(rows).to(self._device)


@dataclass(eq=False)
class _State:
    """All that changes while training, so that a resumed run gives the same bits."""

    encoder: Encoder
    optimizer: torch.optim.Adam
    rng: np.random.Generator
    generator: torch.Generator
    history: History

    def save(self, path: Path, fingerprint: str, step: int) -> None:
        """Write everything to one file."""
        tensors = {f"encoder/{k}": v for k, v in self.encoder.state_dict().items()}
        for i, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {f"optimizer/{i}/{k}": torch.as_tensor(v) for k, v in moments.items()}
        for name, values in self.history.arrays().items():
            tensors[f"history/{name}"] = torch.from_numpy(values)
        tensors["generator"] = self.generator.get_state()
        header = {"step": step, "fingerprint": fingerprint, "rng": self.rng.bit_generator.state}
        write_tensors(path, _CHECKPOINT_KIND, tensors, header)

    def load(self, path: Path, fingerprint: str) -> int:
        """Take everything back and return the number of steps already done."""
        tensors, header = read_tensors(path, _CHECKPOINT_KIND)
        if header["fingerprint"] != fingerprint:
            raise ValueError(
                f"checkpoint {str(path)!r} belongs to another fit: its data, labels, epochs or "
                "settings differ; delete it or give another path"
            )
        self.encoder.load_state_dict(_under(tensors, "encoder/"))
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in _under(tensors, "optimizer/").items():
            index, moment = name.split("/")
            state.setdefault(int(index), {})[moment] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})
        for name, values in _under(tensors, "history/").items():
            self.history.rows[name] = values.tolist()
        self.generator.set_state(tensors["generator"])
        self.rng.bit_generator.state = header["rng"]
        return int(header["step"])


def _under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


@contextmanager
def _deferred_interrupt() -> Iterator[Any]:
    """Let Ctrl-C ask for an end after the current step; a second one raises at once."""
    asked = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def ask(signum: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)


def _bar(config: TrainConfig, first: int, progress: bool) -> tqdm:
    return tqdm(
        total=config.steps, initial=first, disable=not progress, desc="xcebra", unit="step"
    )


def _summary(record: Mapping[str, float], objectives: list[Objective | Regression]) -> str:
    """Losses beside their chance levels, for the progress bar."""
    terms = [
        f"{o.name} {record[f'loss/{o.name}']:.2f} (chance {record[f'chance/{o.name}']:.2f})"
        for o in objectives
    ]
    if record["weight"] > 0:
        terms.append(f"|J|^2 {record['penalty']:.2f}")
    return ", ".join(terms)
