"""Small recordings of several sessions, for the tests of runs over them."""

import numpy as np

from xcebra import Recording
from xcebra.data.label_info import LabelInfo

HOSTILE = "<img src=x onerror=alert(1)>"
WIDTH = 0.05


def session_recording(seed, n_times=800, n_heading=4, n_other=4, unit="m/s"):
    """Some head-direction cells in one area; one more and cells that follow nothing in another."""
    rng = np.random.default_rng(seed)
    heading = np.cumsum(rng.normal(0, 0.4, n_times)) % (2 * np.pi)
    preferred = rng.uniform(0, 2 * np.pi, n_heading + 1)
    rates = np.full((n_times, n_heading + n_other), 0.6)
    rates[:, : n_heading + 1] = 3 * np.exp(3 * (np.cos(heading[:, None] - preferred) - 1))
    n_neurons = rates.shape[1]
    return Recording(
        rng.poisson(rates).astype(np.float32),
        {"heading": heading, "speed": np.abs(rng.normal(1, 0.4, n_times))},
        time=WIDTH * np.arange(n_times),
        neuron_names=(*(f"n{i}" for i in range(n_neurons - 1)), HOSTILE),
        units={
            "area": ["adn"] * n_heading + [HOSTILE] * n_other,
            "cell": [f"c{i}" for i in range(n_neurons)],
        },
        label_info={
            "heading": LabelInfo("circular", unit="rad"),
            "speed": LabelInfo(unit=unit),
        },
    )


QUICK = {"steps": 12, "batch_size": 128, "time_dims": 1, "window": 1, "random_state": 0}
