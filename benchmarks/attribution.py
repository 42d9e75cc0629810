"""Our attribution methods beside Captum, once per output, and CEBRA, on one network and one run.

The network has the paper's widths. Where a side needs too long it gets fewer samples, and its time
is scaled up in proportion; the result says how many it had.
"""

from __future__ import annotations

import contextlib
import io
import statistics
from collections.abc import Callable
from typing import Any

import captum.attr
import cebra.attribution
import torch
from measuring import matrix_product_share, seconds
from torch import Tensor, nn

import xcebra

N_SAMPLES, N_NEURONS, N_LATENTS = 20_000, 400, 14
# Samples for the peer.
PEER_SAMPLES = {
    "inverted-gradient": 2000,
    "gradient": 20_000,
    "integrated-gradients": 400,
    "shap-zeros": 4000,
    "shap-shuffled": 4000,
    "feature-ablation": 600,
}
# Samples for us, where all of them would take minutes.
OUR_SAMPLES = {"integrated-gradients": 4000, "feature-ablation": 4000}
TURNS = 3


def network() -> nn.Sequential:
    """An encoder of the paper's widths."""
    torch.manual_seed(0)
    d = N_LATENTS
    return nn.Sequential(
        nn.Linear(N_NEURONS, 30 * d),
        nn.GELU(),
        nn.Linear(30 * d, 30 * d),
        nn.GELU(),
        nn.Linear(30 * d, 10 * d),
        nn.GELU(),
        nn.Linear(10 * d, d),
    )


def peer(method: str, module: nn.Module, x: Tensor) -> Callable[[], Any]:
    """The same map by Captum, one output at a time; the inverted one by CEBRA."""
    zeros = torch.zeros_like(x)
    if method == "inverted-gradient":
        return lambda: _cebra(module, x)
    if method == "feature-ablation":
        ablation = captum.attr.FeatureAblation(module)

        def ablate(j: int) -> Tensor:
            with torch.no_grad():
                return ablation.attribute(x, target=j)

        return _each_output(ablate)
    if method == "gradient":
        leaf = x.clone().requires_grad_()
        saliency = captum.attr.Saliency(module)
        return _each_output(lambda j: saliency.attribute(leaf, target=j, abs=False))
    if method == "integrated-gradients":
        path = captum.attr.IntegratedGradients(module)
        return _each_output(lambda j: path.attribute(x, target=j, n_steps=50))
    shap = captum.attr.GradientShap(module)
    shuffled = x.flatten()[torch.randperm(x.numel())].reshape(x.shape)
    baselines = zeros if method == "shap-zeros" else shuffled
    return _each_output(
        lambda j: shap.attribute(x, baselines=baselines, target=j, n_samples=5, stdevs=0.0)
    )


def bench_attribution() -> dict[str, Any]:
    """Seconds for 20,000 samples by both sides, taking turns, and their ratio."""
    module = network()
    x = torch.randn(N_SAMPLES, N_NEURONS, generator=torch.Generator().manual_seed(1))
    found: dict[str, Any] = {}
    for method, n_peer in PEER_SAMPLES.items():
        n_ours = OUR_SAMPLES.get(method, N_SAMPLES)
        mine = _ours(method, module, x[:n_ours])
        theirs = peer(method, module, x[:n_peer])
        _ours(method, module, x[:500])()
        peer(method, module, x[:50])()
        ours_s, peer_s = [], []
        for _ in range(TURNS):
            peer_s.append(seconds(theirs) * N_SAMPLES / n_peer)
            ours_s.append(seconds(mine) * N_SAMPLES / n_ours)
        ratios = [theirs / mine for theirs, mine in zip(peer_s, ours_s, strict=True)]
        found[method] = {
            "ours_s": statistics.median(ours_s),
            "peer_s": statistics.median(peer_s),
            "ratio": statistics.median(peer_s) / statistics.median(ours_s),
            "ratio_range": [min(ratios), max(ratios)],
            "ours_samples": n_ours,
            "peer_samples": n_peer,
            "peer": "cebra" if method == "inverted-gradient" else "captum",
            "matrix_product_share": matrix_product_share(_ours(method, module, x[:2000]), 1),
            "ours_all_s": ours_s,
            "peer_all_s": peer_s,
        }
    row = found["inverted-gradient"]
    n = PEER_SAMPLES["inverted-gradient"]
    needed = [seconds(lambda: _cebra_needed(module, x[:n])) * N_SAMPLES / n for _ in range(TURNS)]
    row["peer_needed_s"] = statistics.median(needed)
    row["ratio_needed"] = row["peer_needed_s"] / row["ours_s"]
    setting = {"n_samples": N_SAMPLES, "n_neurons": N_NEURONS, "n_latents": N_LATENTS}
    return {"setting": setting, "methods": found}


def report_attribution(found: dict[str, Any]) -> None:
    """Print what was measured."""
    print(f"{'attribution, 20,000 x 400 x 14':<32}{'ours':>12}{'peer':>12}{'ratio':>9}")
    for name, row in found["methods"].items():
        print(
            f"{name:<32}{row['ours_s']:>10.2f} s{row['peer_s']:>10.1f} s{row['ratio']:>8.1f}x, "
            f"{row['matrix_product_share']:.0%} of our time in matrix products; {row['peer']} had "
            f"{row['peer_samples']:,} samples, we {row['ours_samples']:,}"
        )
    row = found["methods"]["inverted-gradient"]
    print(
        "CEBRA computes four inverses; for its Jacobian and one of them: "
        f"{row['peer_needed_s']:.1f} s, {row['ratio_needed']:.1f}x"
    )


def _ours(method: str, module: nn.Module, x: Tensor) -> Callable[[], Any]:
    return lambda: xcebra.attribute(module, x, method=method)


def _each_output(attribute: Callable[[int], Tensor]) -> Callable[[], Any]:
    return lambda: [attribute(j).abs().mean(dim=0) for j in range(N_LATENTS)]


def _cebra(module: nn.Module, x: Tensor) -> Any:
    """The method as its users call it."""
    with contextlib.redirect_stdout(io.StringIO()):
        return abs(_cebra_method(module, x).compute_attribution_map()["jf-inv-svd"]).mean(0)


def _cebra_needed(module: nn.Module, x: Tensor) -> Any:
    """The part of it that a map is made of: the Jacobian, and one of the four inverses."""
    method = _cebra_method(module, x)
    return abs(method._inverse(method._compute_jacobian(method.input_data), method="svd")[0]).mean(
        0
    )


def _cebra_method(module: nn.Module, x: Tensor) -> Any:
    return cebra.attribution.init(
        name="jacobian-based",
        model=module,
        input_data=x.clone().requires_grad_(),
        output_dimension=N_LATENTS,
    )
