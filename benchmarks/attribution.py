"""Our attribution methods compared with Captum and CEBRA, on one network and in one run."""

from __future__ import annotations

import statistics
from typing import Any

import cebra.attribution
import torch
from measuring import matrix_product_share, seconds
from torch import Tensor, nn

from xcebra.reproduce import timing
from xcebra.reproduce.timing import N_NEURONS, N_SAMPLES, PEER_SAMPLES

N_LATENTS = 14
# Repetitions; the median of them is reported.
TURNS = 3


def bench_attribution() -> dict[str, Any]:
    """Seconds for 20,000 samples, ours and the other package's in turn, and their ratio."""
    module = timing.network(N_LATENTS)
    x = torch.randn(N_SAMPLES, N_NEURONS, generator=torch.Generator().manual_seed(1))
    methods: dict[str, Any] = {}
    for method in timing.COMPARED:
        share = matrix_product_share(timing.ours(method, module, x[:2000]), 1)
        methods[method] = {**timing.compare(method, N_LATENTS), "matrix_product_share": share}
    row = methods["inverted-gradient"]
    n = PEER_SAMPLES["inverted-gradient"]
    needed = [seconds(lambda: _cebra_needed(module, x[:n])) * N_SAMPLES / n for _ in range(TURNS)]
    row["peer_needed_s"] = statistics.median(needed)
    row["ratio_needed"] = row["peer_needed_s"] / row["ours_s"]
    setting = {"n_samples": N_SAMPLES, "n_neurons": N_NEURONS, "n_latents": N_LATENTS}
    return {"setting": setting, "methods": methods}


def report_attribution(results: dict[str, Any]) -> None:
    """Print the results of `bench_attribution`."""
    print(f"{'attribution, 20,000 x 400 x 14':<32}{'ours':>12}{'peer':>12}{'ratio':>9}")
    for name, row in results["methods"].items():
        print(
            f"{name:<32}{row['ours_s']:>10.2f} s{row['peer_s']:>10.1f} s{row['ratio']:>8.1f}x, "
            f"{row['matrix_product_share']:.0%} of our time in matrix products; {row['peer']} had "
            f"{row['peer_samples']:,} samples, we {row['ours_samples']:,}"
        )
    row = results["methods"]["inverted-gradient"]
    print(
        "CEBRA computes four inverses; for its Jacobian and one of them: "
        f"{row['peer_needed_s']:.1f} s, {row['ratio_needed']:.1f}x"
    )


def _cebra_needed(module: nn.Module, x: Tensor) -> Any:
    """The part of CEBRA's computation that a map needs: the Jacobian and one of four inverses."""
    method = cebra.attribution.init(
        name="jacobian-based",
        model=module,
        input_data=x.clone().requires_grad_(),
        output_dimension=N_LATENTS,
    )
    jacobian = method._compute_jacobian(method.input_data)
    return abs(method._inverse(jacobian, method="svd")[0]).mean(0)
