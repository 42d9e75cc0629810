"""The authors' side of the benchmark: CEBRA 0.6.1, driven through its own classes.

Everything timed here is CEBRA's code, configured as its authors configure xCEBRA: the label
objective on the first ``k`` latents, the time objective on all of them, both with a fixed
Euclidean InfoNCE at temperature 1, and the Jacobian penalty added once per objective. CEBRA
ignores the seeds passed to its distributions, so their generators are seeded here afterwards.
Its label search holds several (samples, batch) matrices at once, so the first call also pays for
fresh memory and can take twice as long as the next ones: warm up before timing.
"""

from __future__ import annotations

import contextlib
import io
import itertools

import cebra.data
import cebra.distributions
import cebra.models
import cebra.solver
import numpy as np
import torch

__all__ = ["HybridTraining", "LabelPositives", "infonce"]

MODEL = "offset1-model-mse-clip-5-5"
LEARNING_RATE = 3e-4
TEMPERATURE = 1.0
TIME_OFFSET = 1
OBJECTIVES = ("label", "time")


def infonce(reference: torch.Tensor, positive: torch.Tensor, negative: torch.Tensor) -> float:
    """Run CEBRA's fixed-temperature Euclidean InfoNCE forward and backward.

    The three tensors have shape (N, d) and require gradients; after the call, the ``grad`` of
    each holds the gradient of this loss alone.
    """
    for tensor in (reference, positive, negative):
        tensor.grad = None
    criterion = cebra.models.criterions.FixedEuclideanInfoNCE(temperature=TEMPERATURE)
    loss, _, _ = criterion(reference, positive, negative)
    loss.backward()
    return loss.item()


class LabelPositives:
    """CEBRA's label positives: reference label plus a random observed step, nearest sample."""

    def __init__(self, labels: np.ndarray, seed: int) -> None:
        self._distribution = cebra.distributions.TimedeltaDistribution(
            torch.tensor(labels, dtype=torch.float32), time_delta=TIME_OFFSET
        )
        _seed_generators([self._distribution], seed)

    def sample(self, reference_indices: np.ndarray | torch.Tensor) -> np.ndarray:
        """Draw one positive index for each reference index."""
        reference = torch.as_tensor(reference_indices, dtype=torch.int64)
        return self._distribution.sample_conditional(reference).numpy()


class HybridTraining:
    """The authors' hybrid xCEBRA training, one step at a time.

    The embedding has ``labels.shape[1] + time_dims`` dimensions, labels first. The penalty acts
    at its full weight from the first step, as it does after the authors' ramp; a weight of zero
    leaves it out altogether, as the authors' schedule does before the ramp.

    The global torch generator is seeded too: CEBRA draws from it the initial weights and the
    random projections of the penalty.
    """

    def __init__(
        self,
        neural: np.ndarray,
        labels: np.ndarray,
        time_dims: int,
        batch_size: int,
        jacobian_weight: float,
        seed: int,
    ) -> None:
        torch.manual_seed(seed)
        n_labels = labels.shape[1]
        n_latents = n_labels + time_dims

        dataset = cebra.data.DatasetxCEBRA(
            torch.tensor(neural, dtype=torch.float32),
            label=torch.tensor(labels, dtype=torch.float32),
        )
        # A pass over this loader is one batch; the passes are chained without end below.
        loader = cebra.data.ContrastiveMultiObjectiveLoader(
            dataset=dataset, num_steps=1, batch_size=batch_size
        )
        model = cebra.models.init(
            MODEL, num_neurons=neural.shape[1], num_units=256, num_output=n_latents
        )
        dataset.configure_for(model)

        with contextlib.redirect_stdout(io.StringIO()):  # CEBRA prints its configuration
            config = cebra.solver.MultiObjectiveConfig(loader)
            config.set_slice(0, n_labels)
            config.set_loss("FixedEuclideanInfoNCE", temperature=TEMPERATURE)
            config.set_distribution("time_delta", time_delta=TIME_OFFSET, label_name="label")
            config.push()
            config.set_slice(0, n_latents)
            config.set_loss("FixedEuclideanInfoNCE", temperature=TEMPERATURE)
            config.set_distribution("time", time_offset=TIME_OFFSET)
            config.push()
            config.finalize()

            self.solver = cebra.solver.init(
                "multiobjective-solver",
                model=model,
                feature_ranges=config.feature_ranges,
                regularizer=cebra.models.JacobianReg(),
                renormalize=False,
                use_sam=False,
                criterion=config.criterion,
                optimizer=torch.optim.Adam(model.parameters(), lr=LEARNING_RATE),
                tqdm_on=False,
            )
        self.solver.model.train()

        _seed_generators([loader.prior, *loader.distributions], seed)
        self._batches = itertools.chain.from_iterable(itertools.repeat(loader))
        self._weights = [float(jacobian_weight)] * len(OBJECTIVES) if jacobian_weight else None

    def step(self) -> dict[str, float]:
        """Sample a batch, update the model once and return the terms of the loss.

        ``loss`` is the minimised sum; ``label`` and ``time`` are the two InfoNCE terms, and
        ``jacobian_label`` and ``jacobian_time`` the two penalties before weighting.
        """
        batch = next(self._batches)
        total = self.solver.step(batch, weights_regularizer=self._weights)
        terms = {"loss": total["sum_loss_train"]}
        for i, name in enumerate(OBJECTIVES):
            terms[name] = self.solver.log["loss_train", i][-1]
            if self._weights is not None:
                terms[f"jacobian_{name}"] = self.solver.log["regularizer", i][-1]
        return terms


def _seed_generators(distributions: list[cebra.distributions.base.HasGenerator], seed: int) -> None:
    """Seed every distribution differently: equal streams would tie label steps to references."""
    seeds = np.random.SeedSequence(seed).generate_state(len(distributions))
    for distribution, value in zip(distributions, seeds, strict=True):
        distribution.generator.manual_seed(int(value))
