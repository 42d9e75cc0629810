"""How long fits take, and maps beside those of other packages on the same network, in one run.

The network has the paper's widths. Where a side needs too long it gets fewer samples, and its time
is scaled up in proportion; the row says how many it had.
"""

from __future__ import annotations

import contextlib
import io
import statistics
import time
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from xcebra.attribution.module import attribute
from xcebra.common.choices import Method
from xcebra.networks.encoder import WIDTHS
from xcebra.reproduce.measurements import MAPS, Training, measure, without_caveats
from xcebra.reproduce.sources import Cells

N_SAMPLES, N_NEURONS = 20_000, 400
COMPARED: tuple[Method, ...] = (
    "inverted-gradient",
    "gradient",
    "shap-zeros",
    "shap-shuffled",
    "integrated-gradients",
    "feature-ablation",
)
# Samples for the peer, and for us where all of them would take minutes.
PEER_SAMPLES = {
    "inverted-gradient": 2000,
    "gradient": 20_000,
    "integrated-gradients": 400,
    "shap-zeros": 4000,
    "shap-shuffled": 4000,
    "feature-ablation": 600,
}
OUR_SAMPLES = {"integrated-gradients": 4000, "feature-ablation": 4000}
# Of a fit: the default map, and the paper's.
TIMED_MAPS = ("decoder-gradient, sparse", "inverted-gradient, plain")
_TURNS = 3


@dataclass(frozen=True)
class Timing:
    """One method on a network with so many outputs."""

    method: Method
    width: int


@dataclass(frozen=True)
class FitTiming:
    """One fit to simulated cells, and maps of all its samples."""

    data: Cells
    training: Training


@measure.register
def _(item: Timing) -> dict[str, Any]:
    return compare(item.method, item.width)


@measure.register
def _(item: FitTiming) -> dict[str, Any]:
    recording = item.data.make()
    started = time.perf_counter()
    with without_caveats():
        model = item.training.fit(item.data, recording)
        fitted = time.perf_counter() - started
        maps = {
            name: seconds(partial(model.attribute, recording, **MAPS[name])) for name in TIMED_MAPS
        }
    return {"fit_s": fitted, "map_s": maps}


def compare(method: Method, width: int) -> dict[str, Any]:
    """Seconds for 20,000 samples by both sides, taking turns, and their ratio.

    The peer is CEBRA for the inverted gradient and Captum for all others; without it, our side
    alone is measured.
    """
    module = network(width)
    x = torch.randn(N_SAMPLES, N_NEURONS, generator=torch.Generator().manual_seed(1))
    n_ours, n_peer = OUR_SAMPLES.get(method, N_SAMPLES), PEER_SAMPLES[method]
    theirs = peer(method, module, x[:n_peer], width)
    ours(method, module, x[:500])()
    ours_s, peer_s = [], []
    for _ in range(_TURNS):
        if theirs is not None:
            peer_s.append(seconds(theirs) * N_SAMPLES / n_peer)
        ours_s.append(seconds(ours(method, module, x[:n_ours])) * N_SAMPLES / n_ours)
    found: dict[str, Any] = {"ours_s": statistics.median(ours_s), "ours_samples": n_ours}
    if peer_s:
        ratios = [b / a for a, b in zip(ours_s, peer_s, strict=True)]
        found |= {
            "peer": "cebra" if method == "inverted-gradient" else "captum",
            "peer_s": statistics.median(peer_s),
            "peer_samples": n_peer,
            "ratio": statistics.median(peer_s) / found["ours_s"],
            "ratio_range": [min(ratios), max(ratios)],
        }
    return found


def network(width: int) -> nn.Sequential:
    """An encoder of the paper's widths."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    before = N_NEURONS
    for per in WIDTHS:
        layers += [nn.Linear(before, per * width), nn.GELU()]
        before = per * width
    return nn.Sequential(*layers, nn.Linear(before, width))


def ours(method: Method, module: nn.Module, x: Tensor) -> Callable[[], Any]:
    """Our map."""
    return lambda: attribute(module, x, method=method)


def peer(method: str, module: nn.Module, x: Tensor, width: int) -> Callable[[], Any] | None:
    """The same map by Captum, one output at a time; the inverted one by CEBRA; None without it."""
    try:
        import captum.attr
        import cebra.attribution
    except ImportError:
        return None
    if method == "inverted-gradient":

        def invert() -> Any:
            # As its users call it.
            with contextlib.redirect_stdout(io.StringIO()):
                maps = cebra.attribution.init(
                    name="jacobian-based",
                    model=module,
                    input_data=x.clone().requires_grad_(),
                    output_dimension=width,
                ).compute_attribution_map()
            return abs(maps["jf-inv-svd"]).mean(0)

        return invert
    options: dict[str, Any] = {}
    inputs = x
    if method == "feature-ablation":
        attributed = captum.attr.FeatureAblation(module).attribute
    elif method == "gradient":
        inputs, options = x.clone().requires_grad_(), {"abs": False}
        attributed = captum.attr.Saliency(module).attribute
    elif method == "integrated-gradients":
        attributed, options = captum.attr.IntegratedGradients(module).attribute, {"n_steps": 50}
    else:
        shuffled = x.flatten()[torch.randperm(x.numel())].reshape(x.shape)
        baselines = torch.zeros_like(x) if method == "shap-zeros" else shuffled
        options = {"baselines": baselines, "n_samples": 5, "stdevs": 0.0}
        attributed = captum.attr.GradientShap(module).attribute
    context = torch.no_grad if method == "feature-ablation" else contextlib.nullcontext

    def each_output() -> Any:
        with context():
            return [attributed(inputs, target=j, **options).abs().mean(dim=0) for j in range(width)]

    return each_output


def seconds(call: Callable[[], Any]) -> float:
    """Wall time of one call."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
