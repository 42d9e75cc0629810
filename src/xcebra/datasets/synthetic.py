"""The paper's synthetic recordings, harder variants of them, and recordings with any wiring.

Each factor is a random walk in a box or on a sphere. Neurons that are driven by the same factors
form a group. The activity of a group is a function of its factors: a well-conditioned matrix, a
leaky ReLU and a random projection.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from numba import njit
from numpy.typing import NDArray

from xcebra.common.errors import InputError
from xcebra.data.recording import Recording

_LEAK = 0.2  # slope of the leaky ReLU below zero
# Number of random matrices from which the best conditioned one is taken. Larger values give better
# conditioned mixing and take longer; not tuned.
_MIXING_DRAWS = 50_000

Array = NDArray[np.float64]


def synthetic(
    n_hidden: int = 4,
    n_observed: int = 2,
    n_steps: int = 100_000,
    observed: str | Sequence[str] = "z2",
    seed: int = 0,
    *,
    n_neurons: int = 50,
    connected: float = 0.5,
    correlation: float = 0.0,
    noise: float = 0.0,
    counts: bool = False,
    space: str = "box",
    sigma: float = 0.1,
    factors: Mapping[str, int] | None = None,
    wiring: Mapping[str, Any] | None = None,
) -> Recording:
    """Simulate a recording whose wiring is known.

    The defaults are the paper's data: ``z1`` drives all neurons, and ``z2`` drives the second half
    of them.

    Parameters
    ----------
    n_hidden, n_observed : int
        Number of columns of the factor that is no label (``n_hidden``), and of the factor that
        ``observed`` names (``n_observed``).
    n_steps : int
        Number of time steps.
    observed : str or sequence of str
        Names of the factors that are labels.
    seed : int
    n_neurons : int
    connected : float
        Share of the neurons that ``z2`` drives. They are the last ones.
    correlation : float
        ``z2`` becomes ``correlation * z1 + sqrt(1 - correlation^2) * z2``, column by column.
    noise : float
        Standard deviation of Gaussian noise, in units of each neuron's standard deviation.
    counts : bool
        Whether to return Poisson counts. Their rate is ``exp(0.8 x - 0.5)``, where ``x`` is the
        standardised activity.
    space : {"box", "sphere"}
        Truncated normal steps in ``[-1, 1]^d``, or von Mises-Fisher steps on the unit sphere with
        concentration ``1 / sigma^2``.
    sigma : float
        Size of a step of the random walk.
    factors : mapping of str to int, optional
        Names and numbers of columns of any number of factors, instead of ``z1`` and ``z2``.
    wiring : mapping of str to ndarray of bool of shape (n_neurons,), optional
        For each factor, whether it drives each neuron. A neuron that no factor drives is white
        noise. Needed with ``factors``.

    Returns
    -------
    Recording
        ``neural`` (time, neuron); ``labels`` and ``latents``, arrays (time, column) by factor; and
        ``ground_truth``, bool arrays (neuron,) by factor.

    Examples
    --------
    >>> rec = synthetic(n_hidden=3, n_observed=2, n_steps=1000)
    >>> rec.neural.shape, rec.labels["z2"].shape, int(rec.ground_truth["z2"].sum())
    ((1000, 50), (1000, 2), 25)
    """
    names = [observed] if isinstance(observed, str) else list(observed)
    if factors is None:
        if wiring is not None:
            raise InputError("wiring needs factors: their names and widths, in the same order")
        if names not in (["z1"], ["z2"]):
            raise InputError(f"observed must be 'z1' or 'z2', got {observed!r}")
        n_z1, n_z2 = (n_observed, n_hidden) if names == ["z1"] else (n_hidden, n_observed)
        factors = {"z1": n_z1, "z2": n_z2}
        if not isinstance(n_neurons, (int, np.integer)) or n_neurons < 1:
            raise InputError(f"n_neurons must be a whole number of 1 or more, got {n_neurons}")
        if not 0 <= connected <= 1:
            raise InputError(f"connected must be a share between 0 and 1, got {connected}")
        last = np.arange(n_neurons) >= n_neurons - round(connected * n_neurons)
        wiring = {"z1": np.ones(n_neurons, dtype=bool), "z2": last}
    truth = _check(factors, wiring, names, correlation, space, n_steps, noise, sigma)
    rng = np.random.default_rng(seed)
    latents = {}
    for name, width in factors.items():
        latents[name] = _walk(width, n_steps, space, sigma, rng)
    if correlation:
        first, second = latents.values()
        mixed = correlation * first[:, : second.shape[1]]
        latents[list(latents)[1]] = mixed + np.sqrt(1 - correlation**2) * second
    neural = _mix(latents, truth, rng)
    if noise:
        neural += noise * neural.std(axis=0) * rng.standard_normal(neural.shape)
    if counts:
        standardised = (neural - neural.mean(axis=0)) / neural.std(axis=0)
        neural = rng.poisson(np.exp(0.8 * standardised - 0.5)).astype(np.float64)
    labels = {name: latents[name] for name in names}
    return Recording(neural, labels, latents=latents, ground_truth=truth)


def _check(
    factors: Mapping[str, int],
    wiring: Mapping[str, Any] | None,
    observed: list[str],
    correlation: float,
    space: str,
    n_steps: int,
    noise: float,
    sigma: float,
) -> dict[str, NDArray[np.bool_]]:
    """Raise one error with all problems of the arguments; return the wiring as arrays."""
    problems = []
    least = 2 if space == "sphere" else 1
    for name, width in factors.items():
        if not isinstance(width, (int, np.integer)) or width < least:
            problems.append(f"factor {name!r} has {width} dimensions, needs {least} or more, whole")
    if wiring is None or set(wiring) != set(factors):
        problems.append(f"wiring must name the factors {list(factors)}, got {list(wiring or {})}")
        wiring = {}
    if any(not np.isin(row, (0, 1)).all() for row in wiring.values() if np.ndim(row) == 1):
        problems.append("wiring must hold bool arrays, not indices")
    truth = {name: np.asarray(wiring[name], dtype=bool) for name in factors if name in wiring}
    if len({t.shape for t in truth.values()}) > 1 or any(t.ndim != 1 for t in truth.values()):
        problems.append("wiring must hold bool arrays of one length, the number of neurons")
    for name in observed:
        if name not in factors:
            problems.append(f"observed must name factors of {list(factors)}, got {name!r}")
    if not 0 <= correlation < 1:
        problems.append(f"correlation must be at least 0 and below 1, got {correlation}")
    elif correlation:
        widths = list(factors.values())
        if len(widths) != 2 or widths[1] > widths[0] or space != "box":
            problems.append(
                "correlation needs two factors in a box, the second no wider than the first; got "
                f"{dict(factors)} in a {space}"
            )
    if space not in ("box", "sphere"):
        problems.append(f"space must be 'box' or 'sphere', got {space!r}")
    if not isinstance(n_steps, (int, np.integer)) or n_steps < 2:
        problems.append(f"n_steps must be a whole number of 2 or more, got {n_steps}")
    if not 0 <= noise < np.inf:
        problems.append(f"noise must be 0 or more and finite, got {noise}")
    if not 0 < sigma < 100:
        problems.append(f"sigma must be above 0 and below 100, got {sigma}")
    if problems:
        raise InputError("; ".join(problems))
    return truth


def _walk(width: int, n_steps: int, space: str, sigma: float, rng: np.random.Generator) -> Array:
    if space == "box":
        start = rng.uniform(-1, 1, size=width)
        return _box_walk(start, n_steps, sigma, rng)
    start = rng.standard_normal(width)
    directions = rng.standard_normal((n_steps, width))
    along = _sphere_steps(width, 1 / sigma**2, n_steps, rng)
    return _sphere_walk(start / np.linalg.norm(start), along, directions)


@njit(cache=True)
def _box_walk(start, n_steps, sigma, rng):  # type: ignore[no-untyped-def]
    """Random walk in [-1, 1]; steps that would leave it are drawn again (truncated normal)."""
    walk = np.empty((n_steps, len(start)))
    walk[0] = start
    for t in range(1, n_steps):
        for k in range(len(start)):
            proposal = 2.0
            while abs(proposal) > 1.0:
                proposal = walk[t - 1, k] + sigma * rng.standard_normal()
            walk[t, k] = proposal
    return walk


def _sphere_steps(width: int, kappa: float, n: int, rng: np.random.Generator) -> Array:
    """Draw the cosines between successive points, von Mises-Fisher distributed (Wood 1994)."""
    m = width - 1
    b = m / (2 * kappa + np.sqrt(4 * kappa**2 + m**2))
    x0 = (1 - b) / (1 + b)
    c = kappa * x0 + m * np.log1p(-(x0**2))
    cosine = np.empty(n)
    missing = np.arange(n)
    while len(missing):
        z = rng.beta(m / 2, m / 2, size=len(missing))
        w = (1 - (1 + b) * z) / (1 - (1 - b) * z)
        accepted = kappa * w + m * np.log(1 - x0 * w) - c >= np.log(rng.random(len(missing)))
        cosine[missing[accepted]] = w[accepted]
        missing = missing[~accepted]
    return cosine


@njit(cache=True)
def _sphere_walk(start, along, directions):  # type: ignore[no-untyped-def]
    """Random walk on the unit sphere.

    ``along`` holds the cosine between each point and the one before; the rest of the step is in a
    random tangent direction.
    """
    walk = np.empty_like(directions)
    walk[0] = start
    for t in range(1, len(walk)):
        point = walk[t - 1]
        tangent = directions[t] - (directions[t] * point).sum() * point
        tangent /= np.sqrt((tangent * tangent).sum())
        following = along[t] * point + np.sqrt(1 - along[t] ** 2) * tangent
        walk[t] = following / np.sqrt((following * following).sum())
    return walk


def _mix(
    latents: Mapping[str, Array], truth: Mapping[str, NDArray[np.bool_]], rng: np.random.Generator
) -> Array:
    """Mix factors into the activity of neurons; shape (time, neuron).

    Neurons that are driven by the same factors share one mixing. Groups of such neurons are drawn
    in the order in which they first appear.
    """
    table = np.array(list(truth.values())).T
    n_steps = len(next(iter(latents.values())))
    neural = np.empty((n_steps, len(table)))
    parents, first = np.unique(table, axis=0, return_index=True)
    for row in parents[np.argsort(first)]:
        members = np.flatnonzero((table == row).all(axis=1))
        if not row.any():
            neural[:, members] = rng.standard_normal((n_steps, len(members)))
            continue
        drivers = [z for z, drives in zip(latents.values(), row, strict=True) if drives]
        z = np.concatenate(drivers, axis=1)
        hidden = z @ _well_conditioned(z.shape[1], rng).T
        hidden = np.where(hidden > 0, hidden, _LEAK * hidden)
        neural[:, members] = hidden @ rng.standard_normal((len(members), z.shape[1])).T
    return neural


def _well_conditioned(size: int, rng: np.random.Generator) -> Array:
    """Return the best conditioned of many square matrices with uniform entries, unit columns."""
    n = min(_MIXING_DRAWS, 9 * _MIXING_DRAWS // size)
    draws = rng.uniform(-1, 1, size=(n, size, size))
    draws /= np.linalg.norm(draws, axis=1, keepdims=True)
    gram = np.linalg.eigvalsh(draws.transpose(0, 2, 1) @ draws)
    return draws[np.argmin(gram[:, -1] / np.maximum(gram[:, 0], 1e-300))]
