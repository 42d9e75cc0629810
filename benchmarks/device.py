"""A default fit with its map on the CPU and on another device: time by phases, and agreement.

``python benchmarks/device.py --device cuda`` fits the same simulated recording on both, compares
losses and maps, and prints one line of JSON that can be pasted into an issue. It exits with an
error if the device is missing, or if losses or maps differ by more than rounding explains.
"""

from __future__ import annotations

import argparse
import json
import logging
import platform
import sys
import time
import warnings
from importlib.metadata import version
from typing import Any

import numpy as np
import torch

import xcebra

# Largest relative difference of the losses of the first steps, largest difference of the mean
# losses over the last tenth of the steps as a share of the chance level, and smallest correlation
# of the entries of the two maps. On a CPU, 20,000 samples of 50 neurons, with the loss and the GELU
# that other devices use, these are 1e-7, 3e-8 and 1.00000. Other devices round elsewhere, too.
_FIRST_STEPS, _FIRST_LOSSES, _LAST_LOSSES, _CORRELATION = 10, 1e-4, 1e-3, 0.999


class Phases(logging.Handler):
    """Collects the seconds of each phase, which the package logs."""

    def __init__(self) -> None:
        super().__init__(logging.INFO)
        self.seconds: dict[str, float] = {}

    def emit(self, record: logging.LogRecord) -> None:
        """Add the seconds of a phase that has ended."""
        if record.msg == "%s: %.1f s" and isinstance(record.args, tuple):
            name, seconds = record.args
            self.seconds[str(name)] = self.seconds.get(str(name), 0.0) + float(str(seconds))


def main() -> None:
    """Read the command line, fit on both devices, compare and print."""
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--device", required=True, help="torch device: cuda, cuda:1, mps, xpu ...")
    parser.add_argument("--samples", type=int, default=100_000)
    parser.add_argument("--neurons", type=int, default=50)
    parser.add_argument("--steps", type=int, default=None, help="training steps; the default's")
    options = parser.parse_args()
    problem = unusable(options.device)
    if problem:
        sys.exit(f"device.py: device {options.device!r} cannot be used here: {problem}")
    warnings.simplefilter("ignore", xcebra.caveats.XcebraWarning)
    recording = simulated(options.samples, options.neurons)
    small = simulated(1000, options.neurons)
    results = {}
    for role, device in (("cpu", "cpu"), ("device", options.device)):
        # What happens once in a process, such as compiling and starting the device, is not timed.
        fit_and_map(small, device, steps=5)
        results[role] = fit_and_map(recording, device, options.steps)
    agreement = compare(results["cpu"], results["device"])
    row = {
        "device": options.device,
        "device_name": name_of(options.device),
        "samples": options.samples,
        "neurons": options.neurons,
        "steps": len(results["cpu"]["history"]["weight"]),
        "cpu_seconds": results["cpu"]["seconds"],
        "device_seconds": results["device"]["seconds"],
        **agreement,
        "versions": {name: version(name) for name in ("xcebra", "torch", "numpy")},
        "python": platform.python_version(),
        "system": f"{platform.system()} {platform.machine()}",
        "threads": torch.get_num_threads(),
    }
    print(json.dumps(row))
    if not agreement["agrees"]:
        sys.exit(f"device.py: the results on {options.device!r} and on the CPU differ")


def unusable(device: str) -> str:
    """Why a device cannot be used, in one line; empty if it can be used."""
    try:
        torch.ones(2, device=device).sum().cpu().item()
    except Exception as error:  # torch raises errors of many types here
        return (str(error).strip() or type(error).__name__).splitlines()[0]
    return ""


def simulated(n_times: int, n_neurons: int) -> Any:
    """Simulate a recording of four hidden factors and two that are the label."""
    return xcebra.datasets.synthetic(
        n_hidden=4, n_observed=2, n_steps=n_times, n_neurons=n_neurons, seed=100
    )


def fit_and_map(recording: Any, device: str, steps: int | None) -> dict[str, Any]:
    """Fit and map at defaults; return the history, the map and the seconds of each phase."""
    phases, log = Phases(), logging.getLogger("xcebra")
    level = log.level
    log.addHandler(phases)
    log.setLevel(logging.INFO)
    model = xcebra.XCEBRA(2, 4, random_state=0, progress=False, device=device, steps=steps)
    try:
        started = time.perf_counter()
        model.fit(recording.neural, recording.labels["z2"])
        amap = model.attribute(recording.neural, recording.labels["z2"])
        total = time.perf_counter() - started
    finally:
        log.removeHandler(phases)
        log.setLevel(level)
    seconds = {name: round(value, 2) for name, value in phases.seconds.items()}
    return {
        "history": model.history_,
        "map": np.asarray(amap.values, dtype=np.float64),
        "seconds": {**seconds, "all": round(total, 2)},
    }


def compare(here: dict[str, Any], there: dict[str, Any]) -> dict[str, Any]:
    """Differences between two fits, and whether rounding explains them."""
    first, last = 0.0, 0.0
    for name, losses in here["history"].items():
        if not name.startswith("loss/"):
            continue
        # A loss that is not a number, because a batch had no pairs, is so on both devices.
        known, others = ~np.isnan(losses), there["history"][name]
        ours, theirs = losses[known], np.nan_to_num(others[known], nan=1e9)
        chance = here["history"][name.replace("loss/", "chance/")][known].mean()
        difference = np.abs(theirs - ours)
        first = max(first, (difference / np.abs(ours))[:_FIRST_STEPS].max())
        n_last = max(1, len(ours) // 10)
        last = max(last, abs((theirs - ours)[-n_last:].mean()) / chance)
    correlation = float(np.corrcoef(here["map"].ravel(), there["map"].ravel())[0, 1])
    agrees = first <= _FIRST_LOSSES and last <= _LAST_LOSSES and correlation >= _CORRELATION
    return {
        "first_losses_differ_by": float(f"{first:.2g}"),
        "last_losses_differ_by": float(f"{last:.2g}"),
        "maps_correlate": round(correlation, 5),
        "agrees": bool(agrees),
    }


def name_of(device: str) -> str:
    """The name that the driver gives to a device, if torch knows it."""
    kind = torch.device(device).type
    get_name = getattr(getattr(torch, kind, None), "get_device_name", None)
    if kind != "cpu" and get_name is not None:
        return str(get_name(device))
    return platform.processor() or platform.machine()


if __name__ == "__main__":
    main()
