"""Forward and backward passes through linear layers with GELU between them, written out.

Autograd would compute the same gradients. Written out, a pass consists of a few long operations,
which several threads can compute at the same time: autograd's many short ones would make them wait
for each other, because Python runs one thread at a time.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import torch
from jaxtyping import Float
from torch import Tensor, nn

from xcebra.common.products import product
from xcebra.networks.gelu import gelu_and_slope

Gradients = list[tuple[Tensor, Tensor]]


def split_layers(network: nn.Sequential) -> tuple[list[nn.Linear], list[nn.Module]]:
    """Divide a network into its linear layers, with GELU between them, and what follows them.

    Parameters
    ----------
    network : torch.nn.Sequential
        Linear layers and GELU in turn, then layers without parameters, if any.

    Returns
    -------
    linear : list of torch.nn.Linear
    end : list of torch.nn.Module
    """
    linear: list[nn.Linear] = []
    layers = list(network)
    for i in range(0, len(layers), 2):
        layer = layers[i]
        if not isinstance(layer, nn.Linear):
            # A GELU without a linear layer after it is not between two of them.
            return linear, layers[max(0, i - 1) :]
        linear.append(layer)
        if i + 2 >= len(layers) or not _is_exact_gelu(layers[i + 1]):
            return linear, layers[i + 1 :]
    return linear, []


def _is_exact_gelu(layer: nn.Module) -> bool:
    return type(layer) is nn.GELU and layer.approximate == "none"


@dataclass(frozen=True, eq=False)
class Pass:
    """A forward pass, with everything that the backward pass needs.

    Parameters
    ----------
    linear : sequence of torch.nn.Linear
    inputs : list of Tensor
        Input of each linear layer, of shape (n_samples, n_inputs).
    output : Tensor of shape (n_samples, n_outputs)
        Output of the last layer.
    slopes : list of Tensor
        Derivative of GELU after each linear layer except the last one, of shape (n_samples,
        n_units).
    curvatures : list of Tensor
        Second derivative of GELU, for the first samples.
    """

    linear: Sequence[nn.Linear]
    inputs: list[Tensor]
    output: Tensor
    slopes: list[Tensor]
    curvatures: list[Tensor]

    @classmethod
    def forward(
        cls, linear: Sequence[nn.Linear], x: Float[Tensor, "sample input"], n_penalised: int = 0
    ) -> Pass:
        """Run the layers forward. Nothing is recorded by autograd.

        Parameters
        ----------
        linear : sequence of torch.nn.Linear
        x : Tensor of shape (n_samples, n_inputs)
        n_penalised : int
            Number of samples, the first ones, for which a `JacobianPenalty` can be measured.
        """
        inputs: list[Tensor] = []
        slopes: list[Tensor] = []
        curvatures: list[Tensor] = []
        with torch.no_grad():
            for k, layer in enumerate(linear):
                if k:
                    x, slope, curvature = gelu_and_slope(x, n_penalised)
                    slopes.append(slope)
                    curvatures.append(curvature)
                inputs.append(x)
                x = product(x, layer.weight, layer.bias)
        return cls(linear, inputs, x, slopes, curvatures)

    def gradients(
        self,
        upstream: Float[Tensor, "sample output"],
        penalty: JacobianPenalty | None = None,
    ) -> Gradients:
        """Gradients of a loss by the weights and the bias of each layer.

        Parameters
        ----------
        upstream : Tensor of shape (n_samples, n_outputs)
            Gradient of the loss by the output. It is not changed.
        penalty : JacobianPenalty, optional
            A penalty on the Jacobian at the first samples, whose gradients are added.
        """
        gradients: Gradients = []
        n_layers = len(self.linear)
        with torch.no_grad():
            for k in reversed(range(n_layers)):
                to_weight = _product_over_samples(upstream, self.inputs[k])
                if penalty is not None:
                    to_weight += penalty.to_weights[k]
                gradients.append((to_weight, upstream.sum(dim=0)))
                if k:
                    upstream = product(upstream, self.linear[k].weight.T)
                    upstream = upstream.mul_(self.slopes[k - 1])
                    if penalty is not None:
                        upstream[: penalty.n] += penalty.to_outputs[k - 1]
        return gradients[::-1]


@dataclass(frozen=True, eq=False)
class JacobianPenalty:
    """The squared norm of the Jacobian at the first samples of a pass, with its gradients.

    Parameters
    ----------
    n : int
        Number of samples.
    squared_norm : Tensor
        Sum over these samples of the squared Frobenius norm.
    to_weights : list of Tensor
        Gradient by the weights of each layer.
    to_outputs : list of Tensor of shape (n, n_outputs)
        Gradient by the output of each layer except the last one.
    to_end : Tensor of shape (n, n_latents, n_outputs)
        Gradient by the Jacobian of the layers that follow the pass.
    """

    n: int
    squared_norm: Tensor
    to_weights: list[Tensor]
    to_outputs: list[Tensor]
    to_end: Tensor

    @classmethod
    def measure(
        cls, run: Pass, end: Float[Tensor, "sample latent output"], factor: float
    ) -> JacobianPenalty:
        """Compute the squared norm, and the gradients of ``factor`` times the squared norm.

        Rows of the Jacobian are pulled back from the last layer to the first: ``R_k = U_k W_k``,
        where ``U_k`` is ``R_(k+1)`` times the slopes of GELU. The gradients go the other way.

        Parameters
        ----------
        run : Pass
            With ``n_penalised`` of ``n``.
        end : Tensor of shape (n, n_latents, n_outputs)
            Jacobian of the layers that follow the pass, at its first ``n`` samples.
        factor : float
        """
        n, n_layers = len(end), len(run.linear)
        slopes = [slope[:n, None] for slope in run.slopes]
        with torch.no_grad():
            scaled, rows = [end], [product(end, run.linear[-1].weight.T)]
            for k in reversed(range(n_layers - 1)):
                scaled.append(rows[-1] * slopes[k])
                rows.append(product(scaled[-1], run.linear[k].weight.T))
            scaled, rows = scaled[::-1], rows[::-1]
            squared_norm = rows[0].square().sum()
            to_rows = rows[0] * (2 * factor)
            to_weights, to_outputs = [], []
            for k in range(n_layers):
                flat = scaled[k].flatten(0, 1), to_rows.flatten(0, 1)
                to_weights.append(_product_over_samples(*flat))
                to_scaled = product(to_rows, run.linear[k].weight)
                if k < n_layers - 1:
                    to_slopes = (to_scaled * rows[k + 1]).sum(dim=1)
                    to_outputs.append(to_slopes * run.curvatures[k])
                    to_rows = to_scaled.mul_(slopes[k])
        return cls(n, squared_norm, to_weights, to_outputs, to_scaled)


def _product_over_samples(
    left: Float[Tensor, "sample row"], right: Float[Tensor, "sample column"]
) -> Float[Tensor, "row column"]:
    """Compute ``left.T @ right``, in the order that is faster: few rows, many columns."""
    if left.shape[1] <= right.shape[1]:
        return product(left.T, right.T)
    # Optimizers need gradients in the order of the weights.
    return product(right.T, left.T).T.contiguous()
