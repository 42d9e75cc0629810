"""Simulated rat in a box with place, grid, head-direction and speed cells."""

from __future__ import annotations

import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from importlib.metadata import version
from typing import TYPE_CHECKING, Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.checks import number, raise_if
from xcebra.common.errors import MissingExtraError
from xcebra.common.files import atomically
from xcebra.data.recording import Recording
from xcebra.datasets.cache import cache_folder

if TYPE_CHECKING:
    from ratinabox import Agent

KINDS = ("place", "grid", "head-direction", "speed")

_PLACE_WIDTH = 0.2  # metres
_GRID_SCALES = (0.3, 0.4)  # metres, one for each of two modules
_GRID_ORIENTATIONS = (0.0, 0.1)  # radians
# The rate of a speed cell rises linearly above a threshold. Thresholds and gains are drawn between
# these limits; the unit is the mean speed plus one standard deviation, as in RatInABox.
_SPEED_THRESHOLDS = (0.0, 0.8)
_SPEED_GAINS = (0.5, 1.5)

Array = NDArray[np.float64]


def navigation(
    seed: int = 0,
    *,
    n_steps: int = 20_000,
    n_cells: int = 100,
    interval: float = 0.1,
    noise: float = 0.0,
    counts: bool = False,
    peak_rate: float = 20.0,
) -> Recording:
    """Simulate a rat exploring a box of one metre, and four kinds of cells, with RatInABox.

    Position drives place and grid cells, heading the head-direction cells, speed the speed cells.

    Parameters
    ----------
    seed : int
        Seed of the path, the cells and the noise.
    n_steps : int
        Number of time steps.
    n_cells : int
        Number of cells of each of the four kinds.
    interval : float
        Length of a time step in seconds.
    noise : float
        Standard deviation of Gaussian noise, in units of each neuron's standard deviation.
    counts : bool
        Whether to return Poisson spike counts instead of firing rates.
    peak_rate : float
        Firing rate, in spikes per second, of a cell whose rate is 1. Only for ``counts``.

    Returns
    -------
    Recording
        With the labels ``position`` (time, 2) in metres, ``heading`` (time, 2), cosine and sine,
        and ``speed`` (time, 1) in metres per second, and ``ground_truth`` for each. Neurons are
        named by their kind, ``"place 0"``, ...

    Notes
    -----
    This function needs ``pip install 'xcebra[navigation]'``. The simulation of the path takes up to
    half a minute. The path is then stored in the folder that the environment variable
    ``XCEBRA_CACHE`` names, by default in the operating system's folder for caches.

    Place cells are differences of Gaussians with a width of 0.2 m. Grid cells are rectified cosines
    in two modules with wavelengths of 0.3 and 0.4 m, rotated by 0.1 rad against each other (their
    fields are 0.35 and 0.46 m apart). RatInABox has only one speed cell, whose rate is proportional
    to speed. The speed cells of this function have their own gains (0.5 to 1.5) and thresholds (0
    to 0.8 times the mean speed plus one standard deviation), because equal neurons could not be
    distinguished.
    """
    problems: list[str] = []
    number(problems, "seed", seed, least=0, whole=True)
    if not problems and seed >= 2**32:
        problems.append(f"seed must be below 2**32 = {2**32}, got {seed}")
    number(problems, "n_steps", n_steps, least=2, whole=True)
    number(problems, "n_cells", n_cells, least=1, whole=True)
    number(problems, "interval", interval, least=0, above=True)
    number(problems, "noise", noise, least=0)
    number(problems, "peak_rate", peak_rate, least=0, above=True)
    if counts and noise:
        problems.append("counts have Poisson noise; give either counts=True or noise, not both")
    raise_if(problems)
    labels = _path(seed, n_steps, interval)
    rng = np.random.default_rng(seed)
    rates = _rates(labels, n_cells, rng)
    if noise:
        rates += noise * rates.std(axis=0) * rng.standard_normal(rates.shape)
    if counts:
        rates = rng.poisson(peak_rate * interval * np.maximum(rates, 0)).astype(np.float64)
    kinds = np.repeat(KINDS, n_cells)
    return Recording(
        rates,
        labels,
        neuron_names=tuple(f"{kind} {i}" for kind in KINDS for i in range(n_cells)),
        ground_truth={
            "position": np.isin(kinds, ("place", "grid")),
            "heading": kinds == "head-direction",
            "speed": kinds == "speed",
        },
        time=(interval * (np.arange(n_steps) + 0.5)).astype(np.float64),
    )


def _path(seed: int, n_steps: int, interval: float) -> dict[str, Array]:
    """Return position, heading and speed over time; simulated once, then read from the cache."""
    ratinabox = _toolbox()
    name = f"path-{version('ratinabox')}-{seed}-{n_steps}-{float(interval)!r}.npz"
    # Before the path is simulated, so that no time is lost if the folder cannot be written.
    cached = cache_folder(what="simulated paths") / name
    # A damaged file is treated as if there were none.
    damaged = suppress(OSError, ValueError, KeyError, EOFError, zipfile.BadZipFile)
    with damaged, cached.open("rb") as raw, np.load(raw, allow_pickle=False) as file:
        return {label: file[label] for label in ("position", "heading", "speed")}
    with _global_seed(seed):
        agent = _agent(ratinabox, interval)
        for _ in range(n_steps):
            agent.update()
    path = {
        "position": np.array(agent.history["pos"]),
        "heading": np.array(agent.history["head_direction"]),
        "speed": np.linalg.norm(agent.history["vel"], axis=1)[:, None],
    }
    with atomically(cached) as temporary, open(temporary, "wb") as file:
        np.savez(file, **path)
    return path


def _rates(labels: dict[str, Array], n_cells: int, rng: np.random.Generator) -> Array:
    """Return the rates of all cells, 1 at the peak of a field; shape (time, cell)."""
    ratinabox = _toolbox()
    with _global_seed(0):
        agent = _agent(ratinabox, 0.1)
    place = ratinabox.PlaceCells(
        agent,
        {
            "description": "diff_of_gaussians",
            "widths": _PLACE_WIDTH,
            "place_cell_centres": rng.uniform(0, 1, size=(n_cells, 2)),
        },
    )
    module = np.arange(n_cells) * len(_GRID_SCALES) // n_cells
    grid = ratinabox.GridCells(
        agent,
        {
            "n": n_cells,
            "gridscale": np.take(_GRID_SCALES, module),
            "orientation": np.take(_GRID_ORIENTATIONS, module),
            "phase_offset": rng.uniform(0, 2 * np.pi, size=(n_cells, 2)),
        },
    )
    heads = ratinabox.HeadDirectionCells(agent, {"n": n_cells})
    positions = {"evaluate_at": None, "pos": labels["position"]}
    heading = [heads.get_state(evaluate_at=None, head_direction=h)[:, 0] for h in labels["heading"]]
    speed = labels["speed"] / (agent.speed_mean + agent.speed_std)
    above = np.maximum(speed - rng.uniform(*_SPEED_THRESHOLDS, size=n_cells), 0)
    gains = rng.uniform(*_SPEED_GAINS, size=n_cells)
    return np.concatenate(
        [
            place.get_state(**positions).T,
            grid.get_state(**positions).T,
            np.array(heading),
            gains * above,
        ],
        axis=1,
    )


def _agent(ratinabox: Any, interval: float) -> Agent:
    return ratinabox.Agent(ratinabox.Environment(), {"dt": interval})


def _toolbox() -> Any:
    try:
        import ratinabox
    except ImportError as error:
        raise MissingExtraError(
            "navigation needs RatInABox: pip install 'xcebra[navigation]'"
        ) from error
    return ratinabox


@contextmanager
def _global_seed(seed: int) -> Iterator[None]:
    """Seed NumPy's global generator, which RatInABox uses, and restore its state afterwards."""
    before = np.random.get_state()  # noqa: NPY002
    np.random.seed(seed)  # noqa: NPY002
    try:
        yield
    finally:
        np.random.set_state(before)  # noqa: NPY002
