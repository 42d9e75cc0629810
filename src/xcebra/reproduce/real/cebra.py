"""CEBRA's own hybrid model and inverted gradient, computed with CEBRA's own classes.

The model is configured as its authors configure it: the label objective on the first latents, the
time objective on all latents, a Euclidean InfoNCE with temperature 1, and the Jacobian penalty.
"""

from __future__ import annotations

import contextlib
import importlib.util
import io
import itertools
import warnings
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.reproduce.measurements import samples_of

_MODEL = "offset1-model-mse-clip-5-5"
_UNITS, _BATCH, _TIME_DIMS = 256, 512, 4
_LEARNING_RATE, _PENALTY = 3e-4, 0.1
# Only the first samples are used, at most this many: CEBRA's label search compares every sample
# with every reference, so that long recordings would take too long.
_MOST_SAMPLES = 20_000
# Number of samples of a map, the same as `work.MAP_SAMPLES`.
_MAP_SAMPLES = 2_000


def has_cebra() -> bool:
    """Whether CEBRA is installed."""
    return importlib.util.find_spec("cebra") is not None


def cebra_scores(
    recording: Recording, label: Label, *, steps: int, seed: int
) -> NDArray[np.float64]:
    """Score of each neuron for the label: the mean over time of the norm of the inverted gradient.

    Parameters
    ----------
    recording : Recording
    label : Label
        Continuous or circular, known at every sample.
    steps : int
        Training steps.
    seed : int
        Seed of the weights, the batches and the projections of the penalty.

    Returns
    -------
    ndarray of shape (n_neurons,)
    """
    with warnings.catch_warnings():
        # CEBRA calls deprecated functions of its dependencies, which users cannot change.
        warnings.simplefilter("ignore")
        return _scores(recording, label, steps=steps, seed=seed)


def _scores(recording: Recording, label: Label, *, steps: int, seed: int) -> NDArray[np.float64]:
    import cebra.attribution

    times = recording.epochs.indices()[:_MOST_SAMPLES]
    neural = recording.rows(times)
    neural = (neural - neural.mean(axis=0)) / np.maximum(neural.std(axis=0), 1e-6)
    points = label.points[times]
    points = (points - points.mean(axis=0)) / np.maximum(points.std(axis=0), 1e-12)
    width = points.shape[1]
    model = _trained(neural, points, steps=steps, seed=seed)
    model.eval()
    samples = samples_of(recording, min(_MAP_SAMPLES, len(times)))
    inputs = neural[np.searchsorted(times, samples[samples <= times[-1]])]
    with contextlib.redirect_stdout(io.StringIO()):
        maps = cebra.attribution.init(
            name="jacobian-based",
            model=model,
            input_data=torch.tensor(inputs).requires_grad_(),
            output_dimension=width + _TIME_DIMS,
        ).compute_attribution_map()
    inverted = np.asarray(maps["jf-inv-svd"], dtype=np.float64)  # (sample, latent, neuron)
    return np.linalg.norm(inverted[:, :width], axis=1).mean(axis=0)


def _trained(neural: NDArray[Any], points: NDArray[Any], *, steps: int, seed: int) -> Any:
    import cebra.data
    import cebra.models
    import cebra.solver

    torch.manual_seed(seed)
    width = points.shape[1]
    dataset = cebra.data.DatasetxCEBRA(
        torch.tensor(neural, dtype=torch.float32), label=torch.tensor(points, dtype=torch.float32)
    )
    loader = cebra.data.ContrastiveMultiObjectiveLoader(
        dataset=dataset, num_steps=1, batch_size=_BATCH
    )
    model = cebra.models.init(
        _MODEL, num_neurons=neural.shape[1], num_units=_UNITS, num_output=width + _TIME_DIMS
    )
    dataset.configure_for(model)
    with contextlib.redirect_stdout(io.StringIO()):
        config = cebra.solver.MultiObjectiveConfig(loader)
        config.set_slice(0, width)
        config.set_loss("FixedEuclideanInfoNCE", temperature=1.0)
        config.set_distribution("time_delta", time_delta=1, label_name="label")
        config.push()
        config.set_slice(0, width + _TIME_DIMS)
        config.set_loss("FixedEuclideanInfoNCE", temperature=1.0)
        config.set_distribution("time", time_offset=1)
        config.push()
        config.finalize()
        solver = cebra.solver.init(
            "multiobjective-solver",
            model=model,
            feature_ranges=config.feature_ranges,
            regularizer=cebra.models.JacobianReg(),
            renormalize=False,
            use_sam=False,
            criterion=config.criterion,
            optimizer=torch.optim.Adam(model.parameters(), lr=_LEARNING_RATE),
            tqdm_on=False,
        )
    # CEBRA ignores the seeds passed to its distributions, so their generators are seeded here. Each
    # gets a different seed, because equal seeds would make their draws dependent.
    distributions = [loader.prior, *loader.distributions]
    seeds = np.random.SeedSequence(seed).generate_state(len(distributions))
    for distribution, value in zip(distributions, seeds, strict=True):
        distribution.generator.manual_seed(int(value))
    solver.model.train()
    batches = itertools.chain.from_iterable(itertools.repeat(loader))
    for batch in itertools.islice(batches, steps):
        solver.step(batch, weights_regularizer=[_PENALTY, _PENALTY])
    # Return all latents as one array, not one array for each objective.
    solver.model.split_outputs = False
    return solver.model
