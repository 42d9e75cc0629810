"""Time of fits, and of maps compared with other packages on the same network in one run.

The network has the paper's widths. A method that would take too long gets fewer samples, and its
time is scaled up in proportion; the row contains the number of samples.
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
# Numbers of samples for the other package, and for ours where all samples would take minutes.
PEER_SAMPLES = {
    "inverted-gradient": 2000,
    "gradient": 20_000,
    "integrated-gradients": 400,
    "shap-zeros": 4000,
    "shap-shuffled": 4000,
    "feature-ablation": 600,
}
OUR_SAMPLES = {"integrated-gradients": 4000, "feature-ablation": 4000}
# The maps of a fit that are timed: our decoder gradient, and the map of the paper.
TIMED_MAPS = ("decoder-gradient, sparse", "inverted-gradient, plain")
# Repetitions; the median of them is reported. More repetitions are more precise and take longer.
_TURNS = 3


@dataclass(frozen=True)
class Timing:
    """One method on a network with ``width`` outputs."""

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
    """Seconds for a map of 20,000 samples, ours and the other package's, and their ratio.

    The other package ("peer") is CEBRA for the inverted gradient and Captum for all other methods.
    The two run alternately. If the other package is not installed, only ours is measured.

    Parameters
    ----------
    method : str
        One of `COMPARED`.
    width : int
        Number of outputs of the network.
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
    result: dict[str, Any] = {"ours_s": statistics.median(ours_s), "ours_samples": n_ours}
    if peer_s:
        ratios = [b / a for a, b in zip(ours_s, peer_s, strict=True)]
        result |= {
            "peer": "cebra" if method == "inverted-gradient" else "captum",
            "peer_s": statistics.median(peer_s),
            "peer_samples": n_peer,
            "ratio": statistics.median(peer_s) / result["ours_s"],
            "ratio_range": [min(ratios), max(ratios)],
        }
    return result


def network(width: int) -> nn.Sequential:
    """Return an encoder with the paper's widths."""
    torch.manual_seed(0)
    layers: list[nn.Module] = []
    n_inputs = N_NEURONS
    for factor in WIDTHS:
        layers += [nn.Linear(n_inputs, factor * width), nn.GELU()]
        n_inputs = factor * width
    return nn.Sequential(*layers, nn.Linear(n_inputs, width))


def ours(method: Method, module: nn.Module, x: Tensor) -> Callable[[], Any]:
    """Return a function that makes our map."""
    return lambda: attribute(module, x, method=method)


def peer(method: str, module: nn.Module, x: Tensor, width: int) -> Callable[[], Any] | None:
    """Return a function that makes the same map with the other package.

    Captum makes it one output at a time; the inverted gradient is CEBRA's.

    Parameters
    ----------
    method : str
    module : torch.nn.Module
    x : Tensor of shape (n_samples, n_neurons)
    width : int
        Number of outputs of the module.

    Returns
    -------
    callable or None
        None if Captum or CEBRA is not installed.
    """
    try:
        import captum.attr
        import cebra.attribution
    except ImportError:
        return None
    if method == "inverted-gradient":

        def invert() -> Any:
            # This is how users of CEBRA call it.
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
    """Wall time of one call in seconds."""
    started = time.perf_counter()
    call()
    return time.perf_counter() - started
