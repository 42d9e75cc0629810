"""Regression networks that are trained by minibatches, by several threads.

The gradients are those of `xcebra.networks.perceptron`, which are written out: a step consists of a
few long operations, so that several threads can work at the same time.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import torch
from jaxtyping import Float
from torch import Tensor, nn

from xcebra.common.progress import Steps
from xcebra.networks.perceptron import Gradients, Pass, split_layers


def take_steps(
    take_step: Callable[[int], None],
    first: int,
    most: int,
    n_steps: int,
    interrupted: Callable[[], bool],
    progress: Steps,
) -> int:
    """Take steps up to the next look at the error; return the number of steps that were taken.

    Parameters
    ----------
    take_step : callable
        ``take_step(step)`` takes one step.
    first : int
        Number of the first step to take.
    most : int
        Number of steps between two looks.
    n_steps : int
        Number of all steps.
    interrupted : callable
        Whether to stop after the current step.
    progress : Steps
    """
    step = first
    while step < min(first + most, n_steps):
        take_step(step)
        progress.update()
        step += 1
        if interrupted():
            break
    return step


class Regressor:
    """A network of linear layers with GELU between them, and its optimizer.

    Parameters
    ----------
    network : torch.nn.Sequential
        Layers without parameters, if any, then linear layers with GELU between them.
    """

    def __init__(self, network: nn.Sequential) -> None:
        layers = list(network)
        n_fixed = next(i for i, layer in enumerate(layers) if isinstance(layer, nn.Linear))
        self._fixed = nn.Sequential(*layers[:n_fixed])
        self._network = nn.Sequential(*layers[n_fixed:])
        self._linear, end = split_layers(self._network)
        if end:
            raise TypeError(f"{type(end[0]).__name__} follows the linear layers of a regression")
        parameters = list(network.parameters())
        fused = parameters[0].device.type in ("cpu", "cuda")
        self._optimizer = torch.optim.Adam(parameters, fused=fused)

    def inputs(self, x: Tensor) -> Tensor:
        """Apply the first layers, which have no parameters."""
        with torch.no_grad():
            return self._fixed(x)

    def predict(self, x: Float[Tensor, "sample input"]) -> Float[Tensor, "sample output"]:
        """Predict from `inputs`."""
        with torch.no_grad():
            return self._network(x)

    def gradients(
        self,
        x: Float[Tensor, "sample input"],
        targets: Float[Tensor, "sample output"],
        n_samples: int,
        weights: Float[Tensor, "sample output"] | None = None,
    ) -> Gradients:
        """Gradients of the mean squared error over a minibatch, or of a part of this mean.

        Parameters
        ----------
        x : Tensor of shape (n_rows, n_inputs)
            See `inputs`.
        targets : Tensor of shape (n_rows, n_outputs)
        n_samples : int
            Number of samples of the whole minibatch. The gradients of its parts add up to those of
            its mean squared error.
        weights : Tensor of shape (n_rows, n_outputs), optional
            Weight of every squared error.
        """
        with torch.no_grad():
            run = Pass.forward(self._linear, x)
            residual = run.output.sub_(targets)
            if weights is not None:
                residual.mul_(weights)
            residual.mul_(2 / (n_samples * targets.shape[1]))
            return run.gradients(residual)

    def step(self, parts: Sequence[Gradients], learning_rate: float) -> None:
        """Change the weights by one step of Adam.

        Parameters
        ----------
        parts : sequence of Gradients
            Gradients of the parts of the minibatch. They are added in this order.
        learning_rate : float
        """
        first, *others = parts
        for k, layer in enumerate(self._linear):
            for name, gradient in zip(("weight", "bias"), first[k], strict=True):
                for part in others:
                    gradient = gradient.add_(part[k][name == "bias"])
                getattr(layer, name).grad = gradient
        self._optimizer.param_groups[0]["lr"] = learning_rate
        self._optimizer.step()
