"""One default fit with its map and its test, in a process of its own, for `benchmarks/budget.py`.

``python benchmarks/budget_run.py FOLDER [profiled]`` reads the recording in FOLDER and prints the
results as JSON.
"""

from __future__ import annotations

import json
import sys
import warnings
from contextlib import AbstractContextManager, nullcontext
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
from measuring import Peak, Product, recorded_products
from numpy.typing import NDArray
from phases import PhaseLog

import xcebra

# Seconds between two looks at the memory: so few that they do not slow the fit.
_BETWEEN_LOOKS = 0.02


@dataclass(frozen=True)
class Stored:
    """A recording in a folder: ``neural.npy``, ``label.npy`` and ``setting.json``.

    Parameters
    ----------
    neural : ndarray of shape (n_times, n_neurons)
        Memory-mapped if the setting says so.
    label : ndarray of shape (n_times, n_columns)
    kind : str or None
        ``label_kind`` of the estimator.
    """

    neural: NDArray[np.float32]
    label: NDArray[Any]
    kind: str | None

    @classmethod
    def read(cls, folder: Path) -> Stored:
        """Read a recording that `write` wrote."""
        setting = json.loads((folder / "setting.json").read_text())
        neural = np.load(folder / "neural.npy", mmap_mode="r" if setting["mapped"] else None)
        return cls(neural, np.load(folder / "label.npy"), setting["kind"])

    def write(self, folder: Path, mapped: bool) -> None:
        """Write the recording to a folder that exists."""
        np.save(folder / "neural.npy", self.neural)
        np.save(folder / "label.npy", self.label)
        setting = json.dumps({"mapped": mapped, "kind": self.kind})
        (folder / "setting.json").write_text(setting)


def run(stored: Stored, profiled: bool) -> dict[str, Any]:
    """Fit, map and test; return the seconds of all phases, the peak of memory, and what was fitted.

    Parameters
    ----------
    stored : Stored
    profiled : bool
        Whether to record matrix products. This takes time and memory of its own.
    """
    model = xcebra.XCEBRA(label_kind=stored.kind, random_state=0, progress=False)
    recorder: AbstractContextManager[list[Product]]
    recorder = recorded_products() if profiled else nullcontext([])
    with recorder as products, Peak(_BETWEEN_LOOKS) as peak, PhaseLog() as log:
        model.fit(stored.neural, stored.label)
        model.attribute(stored.neural, stored.label, test=True)
    result: dict[str, Any] = {
        "seconds": log.seconds(),
        "total_s": log.total,
        "peak_mb": peak.most,
        "extra_mb": peak.most - peak.before,
        "n_times": len(stored.neural),
        "n_neurons": stored.neural.shape[1],
        "steps": len(model.history_["learning_rate"]),
        "batch": model.config_["batch_size"],
        "window": model.config_["window"],
        "blocks": {name: block.stop - block.start for name, block in model.blocks_.items()},
    }
    if profiled:
        result["torch_products_s"] = log.torch_products(products)
        result["numpy_products_s"] = log.numpy_products()
    return result


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    recording = Stored.read(Path(sys.argv[1]))
    print(json.dumps(run(recording, sys.argv[2:] == ["profiled"])))
