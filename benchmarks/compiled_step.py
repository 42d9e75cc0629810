"""The network's part of a training step: written out as in the package, by autograd, and compiled.

One call is a forward pass through the encoder's layers, the exact squared norm of the Jacobian at
some of the samples, and the gradients of a loss and of this penalty by all weights. `torch.compile`
needs a C++ compiler. The package does not use it.
"""

from __future__ import annotations

import itertools
import shutil
import statistics
import time
from collections.abc import Callable, Sequence
from typing import Any

import torch
from measuring import seconds
from torch import Tensor, nn
from torch.nn import functional as F

from xcebra.common.products import Dense
from xcebra.networks.perceptron import JacobianPenalty, Pass

# Share of the rows that the penalty is computed for; about that of a default fit.
_PENALISED = 20
_TURNS, _CALLS = 9, 3
_FACTOR = 1e-3


def written_out(layers: Sequence[nn.Linear], x: Tensor, upstream: Tensor, n: int) -> list[Tensor]:
    """Gradients by the passes of the package."""
    run = Pass.forward(layers, x, n)
    identity = torch.eye(upstream.shape[1]).expand(n, -1, -1)
    penalty = JacobianPenalty.measure(run, identity, _FACTOR)
    return [gradient for pair in run.gradients(upstream, penalty) for gradient in pair]


def loss(layers: Sequence[nn.Linear], x: Tensor, upstream: Tensor, n: int) -> Tensor:
    """A loss with the gradient ``upstream`` by the output, plus the penalty, for autograd."""
    slopes = []
    for layer in layers[:-1]:
        x = layer(x)
        slopes.append(_gelu_slope(x[:n]))
        x = F.gelu(x)
    rows = layers[-1].weight.expand(n, -1, -1)
    for layer, slope in zip(reversed(layers[:-1]), reversed(slopes), strict=True):
        rows = (rows * slope[:, None]) @ layer.weight
    return (layers[-1](x) * upstream).sum() + _FACTOR * rows.square().sum()


def _gelu_slope(x: Tensor) -> Tensor:
    density = torch.exp(-x.square() / 2) * (2 * torch.pi) ** -0.5
    return 0.5 * (1 + torch.erf(x * 0.5**0.5)) + x * density


def bench_compiled_step(widths: Sequence[int], n_rows: int) -> dict[str, Any]:
    """Median milliseconds of the three ways, which take turns.

    Parameters
    ----------
    widths : sequence of int
        Numbers of inputs, of units of the layers, and of outputs.
    n_rows : int
    """
    torch.manual_seed(0)
    plain = [nn.Linear(a, b) for a, b in itertools.pairwise(widths)]
    dense = [Dense(a, b) for a, b in itertools.pairwise(widths)]
    for layer, other in zip(plain, dense, strict=True):
        other.load_state_dict(layer.state_dict())
    parameters = [p for layer in plain for p in (layer.weight, layer.bias)]
    x, upstream = torch.randn(n_rows, widths[0]), torch.randn(n_rows, widths[-1])
    n = n_rows // _PENALISED

    def differentiated(function: Callable[..., Tensor]) -> list[Tensor]:
        return list(torch.autograd.grad(function(plain, x, upstream, n), parameters))

    ways: dict[str, Callable[[], list[Tensor]]] = {
        "package": lambda: written_out(dense, x, upstream, n),
        "autograd": lambda: differentiated(loss),
    }
    compiled, reason = _compiled(differentiated, ways)
    reference = ways["autograd"]()
    difference = {
        name: max(float((a - b).norm() / b.norm()) for a, b in zip(way(), reference, strict=True))
        for name, way in ways.items()
    }
    taken: dict[str, list[float]] = {name: [] for name in ways}
    for _ in range(_TURNS):
        for name, way in ways.items():
            taken[name] += [seconds(way) for _ in range(_CALLS)]
    return {
        "rows": n_rows,
        "penalised": n,
        "ms": {name: statistics.median(values) * 1e3 for name, values in taken.items()},
        "difference": difference,
        "compiled": compiled,
        "reason": reason,
    }


def _compiled(
    differentiated: Callable[[Callable[..., Tensor]], list[Tensor]],
    ways: dict[str, Callable[[], list[Tensor]]],
) -> tuple[dict[str, float] | None, str | None]:
    """Add the compiled way; return the time of its first call, or the reason why there is none."""
    if not any(shutil.which(name) for name in ("c++", "g++", "clang++")):
        return None, "there is no C++ compiler"
    torch._dynamo.reset()
    function = torch.compile(loss)
    started = time.perf_counter()
    try:
        differentiated(function)
    except Exception as error:  # whatever the compiler of this machine says
        return None, f"{type(error).__name__}: {str(error).splitlines()[0]}"
    ways["compiled"] = lambda: differentiated(function)
    return {"first_call_s": time.perf_counter() - started}, None
