"""Matrix products at the shapes of a training step: MKL's and oneDNN's, and in half precision.

``python benchmarks/products.py`` adds a line to ``results/speed/products.jsonl``. All run with one
thread, as they do in the workers of a training step, and take turns.

A layer has three products: forward (``x W^T``), and backward to its input (``u W``) and to its
weights (``u^T x``). Variants: ``mkl`` and ``onednn`` in single precision; ``bfloat16``, by oneDNN
with both factors stored in it; and ``mixed``, where factors in single precision are converted to
bfloat16 before the product and the result is converted back. Errors are relative to double
precision.
"""

from __future__ import annotations

import argparse
import itertools
import statistics
from collections.abc import Callable, Sequence
from typing import Any

import torch
from measuring import add_row, provenance, seconds
from torch import Tensor
from torch.nn import functional as F

from xcebra.common.products import _has_faster_products

# Rows of a worker's part of a batch, at the default size and at the paper's size of a batch.
_ROWS = (2500, 10_000)
# Widths of the encoder of 50 neurons and 6 latents.
_WIDTHS = (50, 180, 180, 60, 6)
_TURNS, _CALLS = 15, 5
Factors = tuple[Tensor, Tensor]


def onednn(x: Tensor, weight: Tensor) -> Tensor:
    """Compute ``x @ weight.T`` by oneDNN in the precision of the factors."""
    return torch.ops.mkldnn._linear_pointwise(x, weight, None, "none", [], "")


def mixed(x: Tensor, weight: Tensor) -> Tensor:
    """Compute ``x @ weight.T`` in bfloat16, from and to single precision."""
    return onednn(x.bfloat16(), weight.bfloat16()).float()


VARIANTS: dict[str, tuple[Callable[[Tensor, Tensor], Tensor], torch.dtype]] = {
    "mkl": (F.linear, torch.float32),
    "onednn": (onednn, torch.float32),
    "bfloat16": (onednn, torch.bfloat16),
    "mixed": (mixed, torch.float32),
}


def layer_products(rows: int, n_inputs: int, n_outputs: int) -> dict[str, Factors]:
    """The factors ``x, weight`` of the three products ``x @ weight.T`` of a layer."""
    generator = torch.Generator().manual_seed(0)
    x = torch.randn(rows, n_inputs, generator=generator)
    weight = torch.randn(n_outputs, n_inputs, generator=generator) / n_inputs**0.5
    upstream = torch.randn(rows, n_outputs, generator=generator)
    return {
        "forward": (x, weight),
        "to input": (upstream, weight.T),
        "to weights": (upstream.T, x.T),
    }


def measure(factors: Factors) -> dict[str, Any]:
    """Median milliseconds and relative errors of the variants, which take turns."""
    exact = factors[0].double() @ factors[1].double().T
    calls: dict[str, Callable[[], Tensor]] = {}
    errors: dict[str, float] = {}
    for name, (function, dtype) in VARIANTS.items():
        x, weight = (factor.to(dtype) for factor in factors)
        calls[name] = lambda function=function, x=x, weight=weight: function(x, weight)  # type: ignore[misc]
        errors[name] = float((calls[name]().double() - exact).norm() / exact.norm())
    taken: dict[str, list[float]] = {name: [] for name in calls}
    for _ in range(_TURNS):
        for name, call in calls.items():
            taken[name].append(seconds(lambda call=call: _repeat(call)) / _CALLS)  # type: ignore[misc]
    milliseconds = {name: statistics.median(values) * 1e3 for name, values in taken.items()}
    multiplications = exact.numel() * factors[0].shape[1]
    return {
        "ms": milliseconds,
        "gflops": {name: 2e-6 * multiplications / ms for name, ms in milliseconds.items()},
        "error": errors,
    }


def _repeat(call: Callable[[], Tensor]) -> None:
    for _ in range(_CALLS):
        call()


def bench_products() -> dict[str, Any]:
    """Measure all layers, and one step of the network with and without `torch.compile`."""
    from compiled_step import bench_compiled_step

    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        rows: list[dict[str, Any]] = []
        for n_rows in _ROWS:
            for layer, (n_inputs, n_outputs) in enumerate(itertools.pairwise(_WIDTHS), start=1):
                for name, factors in layer_products(n_rows, n_inputs, n_outputs).items():
                    if layer == 1 and name == "to input":
                        continue  # activity needs no gradient
                    shape = {"rows": n_rows, "layer": layer, "from": n_inputs, "to": n_outputs}
                    rows.append({**shape, "product": name, **measure(factors)})
        return {
            "used": "onednn" if _has_faster_products() else "mkl",
            "products": rows,
            "sums": [_sums(rows, n_rows) for n_rows in _ROWS],
            "steps": [bench_compiled_step(_WIDTHS, n_rows) for n_rows in _ROWS],
        }
    finally:
        torch.set_num_threads(threads)


def _sums(rows: Sequence[dict[str, Any]], n_rows: int) -> dict[str, Any]:
    """All products of the network for one number of rows."""
    own = [row for row in rows if row["rows"] == n_rows]
    return {
        "rows": n_rows,
        "ms": {name: sum(row["ms"][name] for row in own) for name in VARIANTS},
        "largest_error": {name: max(row["error"][name] for row in own) for name in VARIANTS},
    }


def report_products(results: dict[str, Any]) -> None:
    """Print the results of `bench_products`."""
    head = "".join(f"{name:>20}" for name in VARIANTS)
    print(f"{'milliseconds (GFLOP/s), 1 thread':<40}{head}")
    for row in results["products"]:
        name = f"{row['rows']:,} rows, {row['from']} -> {row['to']}, {row['product']}"
        cells = (f"{row['ms'][v]:.3f} ({row['gflops'][v]:.0f})" for v in VARIANTS)
        print(f"{name:<40}" + "".join(f"{cell:>20}" for cell in cells))
    for row in results["sums"]:
        cells = (f"{row['ms'][v]:.2f} ({row['largest_error'][v]:.0e})" for v in VARIANTS)
        name = f"{row['rows']:,} rows, all (largest error)"
        print(f"{name:<40}" + "".join(f"{cell:>20}" for cell in cells))
    print(f"the package uses {results['used']} on this processor")
    for step in results["steps"]:
        taken = ", ".join(f"{name} {ms:.2f} ms" for name, ms in step["ms"].items())
        print(f"network with penalty, {step['rows']:,} rows, forward and backward: {taken}")
        if step["compiled"] is None:
            print(f"  torch.compile: {step['reason']}")
        else:
            print(f"  torch.compile took {step['compiled']['first_call_s']:.0f} s to compile")


def main() -> None:
    """Measure, print and write."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--no-write", action="store_true", help="only print")
    arguments = parser.parse_args()
    results = bench_products()
    report_products(results)
    if not arguments.no_write:
        add_row("products", {**provenance(), **results})


if __name__ == "__main__":
    main()
