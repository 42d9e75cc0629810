"""The state of training, and the checkpoint file that stores it."""

from __future__ import annotations

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from xcebra.common.errors import InputError
from xcebra.common.tensor_file import read_tensors, under, write_tensors
from xcebra.networks.encoder import Encoder, FixedPoints
from xcebra.networks.perceptron import Gradients, split_layers

_KIND = "xcebra-checkpoint"
_TWIN = "twin/"

# Losses and other values of one step, as they are computed: tensors on the device of the encoders.
Record = dict[str, Tensor | float]


@dataclass(eq=False)
class History:
    """Losses, penalty, weights and learning rate of each step, as lists that grow."""

    rows: dict[str, list[float]] = field(default_factory=dict)

    def add(self, **values: float) -> None:
        """Append the values of one step."""
        for name, value in values.items():
            self.rows.setdefault(name, []).append(value)

    def last(self) -> dict[str, float]:
        """Return the values of the last step."""
        return {name: values[-1] for name, values in self.rows.items()}

    def arrays(self) -> dict[str, NDArray[np.float64]]:
        """Return the history as arrays of shape (n_steps,)."""
        return {name: np.array(values) for name, values in self.rows.items()}


@dataclass(eq=False)
class Learner:
    """The encoders of all sessions and their optimizer."""

    encoders: tuple[Encoder | FixedPoints, ...]
    optimizer: torch.optim.Adam

    def set_gradients(self, by_worker: Sequence[Sequence[Gradients]]) -> None:
        """Add up gradients and give them to the parameters, for the optimizer.

        Parameters
        ----------
        by_worker : sequence of sequence of Gradients
            From each worker, the gradients of the linear layers of each session's encoder.
        """
        self.optimizer.zero_grad()
        # The order of the sums is fixed.
        for by_session in by_worker:
            for encoder, gradients in zip(self.encoders, by_session, strict=True):
                layers = split_layers(encoder.network)[0]
                for layer, (to_weight, to_bias) in zip(layers, gradients, strict=True):
                    for parameter, value in ((layer.weight, to_weight), (layer.bias, to_bias)):
                        if parameter.requires_grad:
                            before = parameter.grad
                            parameter.grad = value if before is None else before.add_(value)

    def tensors(self, prefix: str) -> dict[str, Tensor]:
        """Return the whole state, with names that begin with the prefix."""
        # Sessions may share layers, but a file has no shared tensors.
        several = len(self.encoders) > 1
        tensors = {
            f"{prefix}encoder/{i}/{k}": v.clone() if several else v
            for i, encoder in enumerate(self.encoders)
            for k, v in encoder.state_dict().items()
        }
        for i, moments in self.optimizer.state_dict()["state"].items():
            tensors |= {
                f"{prefix}optimizer/{i}/{k}": torch.as_tensor(v) for k, v in moments.items()
            }
        return tensors

    def take(self, tensors: Mapping[str, Tensor], prefix: str) -> None:
        """Restore the state from the result of `tensors`."""
        for i, encoder in enumerate(self.encoders):
            # Checkpoints of version 0.4.0 and earlier have one encoder, without a number.
            own = under(tensors, f"{prefix}encoder/{i}/") or under(tensors, f"{prefix}encoder/")
            encoder.load_state_dict(own)
        state: dict[int, dict[str, Tensor]] = {}
        for name, value in under(tensors, f"{prefix}optimizer/").items():
            index, moment = name.split("/")
            state.setdefault(int(index), {})[moment] = value
        groups = self.optimizer.state_dict()["param_groups"]
        self.optimizer.load_state_dict({"state": state, "param_groups": groups})


@dataclass(eq=False)
class TrainState:
    """Everything that changes during training, so that a resumed run gives the same bits.

    ``twin`` is the copy that is trained without the penalty while its weight is searched for.
    ``settled`` is the number of steps after which training had settled (`settling`); it follows
    from the history and is not saved. ``unread`` has the numbers of the steps that are not in the
    history yet, with their values. It must be empty when the state is saved.
    """

    learner: Learner
    rng: np.random.Generator
    history: History
    twin: Learner | None = None
    settled: int | None = None
    unread: list[tuple[int, Record]] = field(default_factory=list)

    def save(self, path: Path, fingerprint: str, step: int) -> None:
        """Write the state to a file."""
        tensors = self.learner.tensors("")
        if self.twin is not None:
            tensors |= self.twin.tensors(_TWIN)
        for name, values in self.history.arrays().items():
            tensors[f"history/{name}"] = torch.from_numpy(values)
        header = {"step": step, "fingerprint": fingerprint, "rng": self.rng.bit_generator.state}
        write_tensors(path, _KIND, tensors, header)

    def load(self, path: Path, fingerprint: str) -> int:
        """Restore the state from a file and return the number of steps that were done."""
        tensors, header = read_tensors(path, _KIND)
        if header["fingerprint"] != fingerprint:
            raise InputError(
                f"checkpoint {str(path)!r} belongs to another fit: its data, labels, epochs or "
                "settings differ; delete it or give another path"
            )
        self.learner.take(tensors, "")
        if under(tensors, _TWIN):
            self.twin = copy.deepcopy(self.learner)
            self.twin.take(tensors, _TWIN)
        for name, values in under(tensors, "history/").items():
            self.history.rows[name] = values.tolist()
        self.rng.bit_generator.state = header["rng"]
        return int(header["step"])
