"""Exact penalty or random projections: variance of the gradient, and time."""

from __future__ import annotations

import statistics
import time
from typing import Any

import numpy as np
import torch
from torch import Tensor

import xcebra
from xcebra.networks.encoder import Encoder
from xcebra.networks.jacobian import Linearised, linearise, penalty
from xcebra.training.plan import make_plan

# The batch size, and the number of batches. More batches estimate the variance more precisely.
_BATCH = 1024
_DRAWS = 60


def penalty_choice(recording: xcebra.Recording) -> dict[str, Any]:
    """Compare estimators of the penalty's gradient on a trained encoder.

    Each draw takes a fresh batch and fresh directions, so that both sources of variance count: the
    samples and the projections. Variance is the mean squared distance from the mean gradient,
    relative to the mean gradient's squared length; a lower product with seconds is better.
    """
    model = xcebra.XCEBRA(label_dims=2, time_dims=4, steps=200, random_state=0)
    model.fit(recording.neural, recording.labels["z2"])
    plan = make_plan(recording, {**model.get_params(), "label_dims": {"z2": 2}})
    encoder = model.encoder_
    rng = np.random.default_rng(0)
    draws = [plan.training.draw(_BATCH, rng) for _ in range(_DRAWS)]
    # An estimate of the true gradient from other batches.
    others = [plan.training.draw(_BATCH, rng) for _ in range(4 * _DRAWS)]
    exact_mean = torch.stack(
        [_gradient(encoder, recording, rows, None, 1) for rows in others]
    ).mean(dim=0)
    rows = []
    for name, projections, share in (
        ("exact, every sample", None, 1),
        ("exact, a sixth of them", None, 6),
        ("1 projection, every sample", 1, 1),
        ("2 projections, every sample", 2, 1),
    ):
        generator = torch.Generator().manual_seed(1)
        gradients, taken = [], []
        for drawn in draws:
            started = time.perf_counter()
            gradients.append(_gradient(encoder, recording, drawn, projections, share, generator))
            taken.append(time.perf_counter() - started)
        variance = torch.stack([(g - exact_mean).square().sum() for g in gradients]).mean()
        relative = float(variance / exact_mean.square().sum())
        extra = statistics.median(taken) - _forward_seconds(encoder, recording, draws)
        rows.append(
            {
                "name": name,
                "extra_ms": extra * 1e3,
                "variance": relative,
                "variance_seconds": relative * extra,
            }
        )
    return {"batch": _BATCH, "draws": _DRAWS, "estimators": rows}


def _gradient(
    encoder: Encoder,
    recording: xcebra.Recording,
    rows: Any,
    projections: int | None,
    share: int,
    generator: torch.Generator | None = None,
) -> Tensor:
    encoder.zero_grad()
    linearised = _linearised(encoder, recording, rows[: len(rows) // share])
    penalty(linearised, projections, generator).backward()
    # The bias of the last layer does not appear in the Jacobian, so it has no gradient.
    return torch.cat([p.grad.ravel() for p in encoder.parameters() if p.grad is not None])


def _linearised(encoder: Encoder, recording: xcebra.Recording, rows: Any) -> Linearised:
    return linearise(encoder.network, encoder.components(torch.from_numpy(recording.rows(rows))))


def _forward_seconds(encoder: Encoder, recording: xcebra.Recording, draws: list[Any]) -> float:
    """The forward pass that a training step needs anyway."""
    taken = []
    for rows in draws:
        started = time.perf_counter()
        _linearised(encoder, recording, rows)
        taken.append(time.perf_counter() - started)
    return statistics.median(taken)
