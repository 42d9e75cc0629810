"""Fit several sessions together, and add a session to a joint fit."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from xcebra.attribution.fitting import Fitted, fit_networks
from xcebra.common.progress import phase
from xcebra.data.epochs import Epochs, evenly_spaced
from xcebra.data.label_info import plain_infos
from xcebra.data.labels import Label
from xcebra.data.recording import Recording, chunks
from xcebra.data.units import plain_units
from xcebra.networks.crossed_decoder import CrossedDecoder
from xcebra.networks.encoder import Encoder, FixedPoints, NetworkInputs
from xcebra.training.batches import SessionSamples
from xcebra.training.decisions import Decisions
from xcebra.training.joint_plan import OWN_LAYERS, JointPlan
from xcebra.training.loop import train
from xcebra.training.plan import Plan, make_objectives

# Largest number of points of the joint embedding that a new session is aligned with, over all
# sessions. Larger values find closer labels and need more memory; not tuned.
_MOST_ANCHORS = 8192


def fit_each_session(
    recordings: Mapping[str, Recording],
    joint: JointPlan,
    encoders: Mapping[str, Encoder],
    history: dict[str, NDArray[np.float64]],
    *,
    progress: bool,
    finished: Callable[[str], bool] = lambda name: False,
) -> Iterator[tuple[str, Fitted]]:
    """Fit the decoders of each session in turn, after joint training.

    Parameters
    ----------
    recordings : mapping of str to Recording
    joint : JointPlan
    encoders : mapping of str to Encoder
        The trained encoders, with the latents of all labels.
    history : dict of str to ndarray of shape (n_steps,)
    progress : bool
        Whether to display progress bars.
    finished : callable
        Whether a session is finished already, so that it is left out.

    Yields
    ------
    name : str
    fitted : Fitted
    """
    for name, recording in recordings.items():
        if finished(name):
            continue
        plan = session_plan(joint, name, encoders[name])
        encoder = encoders[name]
        if len(recordings) > 1:
            # The copy shares no layer with other sessions.
            kept = joint.own_latents(name)
            encoder = encoder.with_latents(kept, plan.decisions.unit_blocks)
        with phase(f"session {name}"):
            yield name, fit_networks(recording, plan, encoder, history, progress=progress)


def trained_digest(
    recordings: Mapping[str, Recording], joint: JointPlan, encoders: Mapping[str, Encoder]
) -> str:
    """Return a digest of all that the decoders of the sessions are fitted to, and of their names.

    It is the same for two fits only if the data, the settings and the trained encoders are the
    same. Training that was stopped early has another digest than training that was completed.
    """
    state = hashlib.sha256(joint.fingerprint(recordings).encode())
    for name, recording in recordings.items():
        described = {
            "decisions": joint.plans[name].decisions.as_plain(),
            "neuron_names": recording.neuron_names,
            "units": plain_units(recording.units),
            "label_info": plain_infos(recording.label_info),
        }
        state.update(json.dumps(described, sort_keys=True).encode())
        # Decoders are also fitted to samples that are held out of training.
        for chunk in chunks(recording.neural, recording.epochs):
            state.update(np.ascontiguousarray(chunk).tobytes())
        for tensor in encoders[name].state_dict().values():
            state.update(tensor.cpu().numpy().tobytes())
    return state.hexdigest()


def session_plan(joint: JointPlan, name: str, encoder: Encoder) -> Plan:
    """Return the plan of a session, with the number of latents during training."""
    plan = joint.plans[name]
    last: Any = encoder.network[-2]
    if last.out_features == plan.decisions.n_latents:
        return plan
    return replace(plan, decisions=replace(plan.decisions, trained_latents=last.out_features))


def shared_layers(joint: JointPlan, encoders: Sequence[Encoder]) -> nn.Sequential | None:
    """Return the layers that all sessions share, which do not change any more; None if none are."""
    if not joint.shared:
        return None
    layers = nn.Sequential(*list(encoders[0].network)[OWN_LAYERS:])
    return layers.requires_grad_(False)


@dataclass(frozen=True, eq=False)
class Anchors:
    """Points of a joint embedding with their labels, which a new session is aligned with.

    Parameters
    ----------
    embedding : Tensor of shape (n_points, n_label_latents)
        The blocks of all labels; zero where a session lacks the label.
    labels : tuple of Label
        Labels of the points.
    """

    embedding: Tensor
    labels: tuple[Label, ...]

    @classmethod
    def collect(
        cls,
        decided: Decisions,
        sessions: Sequence[tuple[CrossedDecoder, Mapping[str, slice]]],
    ) -> Anchors:
        """Collect the samples that the decoders of all sessions store.

        Parameters
        ----------
        decided : Decisions
            The settings of the joint fit.
        sessions : sequence of (CrossedDecoder, mapping of str to slice)
            The decoders of each session, and the blocks of its embedding.
        """
        blocks = {name: b for name, b in decided.blocks.items() if name != "time"}
        n_latents = max(block.stop for block in blocks.values())
        columns: dict[str, int] = {}
        for decoder, _ in sessions:
            columns |= {c.name: c.columns.stop - c.columns.start for c in decoder.labels}
        most = _MOST_ANCHORS // len(sessions)
        parts: dict[str, list[NDArray[np.float64]]] = {name: [] for name in blocks}
        valid: dict[str, list[NDArray[np.bool_]]] = {name: [] for name in blocks}
        points = []
        for decoder, own in sessions:
            stored = decoder.reference_embedding.cpu()
            rows = torch.from_numpy(evenly_spaced(np.arange(len(stored)), most))
            embedding = torch.zeros(len(rows), n_latents)
            measured = {label.name: label.columns for label in decoder.labels}
            for name, block in blocks.items():
                known = name in measured
                values = np.zeros((len(rows), columns[name]))
                if known:
                    embedding[:, block] = stored[rows][:, own[name]]
                    values = decoder.reference_labels[rows][:, measured[name]].double().numpy()
                parts[name].append(values)
                valid[name].append(np.full(len(rows), known))
            points.append(embedding)
        labels = tuple(
            Label(
                name,
                str(decided.labels[name].kind),
                np.concatenate(parts[name]),
                np.concatenate(valid[name]),
                tuple(decided.labels[name].classes or ()),
            )
            for name in blocks
        )
        return cls(torch.cat(points), labels)


def train_new_session(
    recording: Recording,
    plan: Plan,
    decided: Decisions,
    anchors: Anchors,
    shared: nn.Sequential | None,
    *,
    device: torch.device,
    progress: bool,
) -> tuple[Plan, Encoder, dict[str, NDArray[np.float64]]]:
    """Train the encoder of a new session, so that its label blocks are those of a joint fit.

    Positives and negatives of a label are also taken from points of the joint embedding, which do
    not change. Layers that the sessions share do not change either.

    Parameters
    ----------
    recording : Recording
    plan : Plan
        The plan of the new session.
    decided : Decisions
        The settings of the joint fit.
    anchors : Anchors
    shared : nn.Sequential or None
        The layers that all sessions share.
    device : torch.device
    progress : bool
        Whether to show a progress bar.

    Returns
    -------
    plan : Plan
    encoder : Encoder
        With the latents of the session's own labels and of time.
    history : dict of str to ndarray of shape (n_steps,)
    """
    time = plan.decisions.blocks.get("time", slice(0, 0))
    n_label = anchors.embedding.shape[1]
    n_latents = n_label + time.stop - time.start
    blocks = {name: block for name, block in decided.blocks.items() if name != "time"}
    if n_latents > n_label:
        blocks["time"] = slice(n_label, n_latents)
    settings = replace(plan.decisions, blocks=blocks)
    encoder = Encoder(
        plan.inputs,
        n_latents,
        limit=decided.recipe.limit,
        window=settings.window,
        unit_blocks=settings.unit_blocks,
        generator=torch.Generator().manual_seed(settings.train.seed),
    ).to(device)
    if shared is not None:
        own = list(encoder.network)[:OWN_LAYERS]
        encoder.network = nn.Sequential(*own, *shared.to(device))
    n_times, n_anchors = recording.n_times, len(anchors.embedding)
    first = n_times + np.arange(n_anchors)
    # Every anchor is an epoch of its own: two of them are not neighbours in time.
    line = Epochs(
        np.concatenate([plan.training.starts, first]),
        np.concatenate([plan.training.stops, first + 1]),
    )
    own_labels = {label.name: label for label in plan.labels}
    labels = tuple(
        _continued(anchor, own_labels.get(anchor.name), n_times) for anchor in anchors.labels
    )
    points = anchors.embedding.to(device)
    n = settings.train.batch_size
    samples = [
        SessionSamples(
            read=NetworkInputs(encoder, recording),
            epochs=plan.training,
            start=0,
            stop=n_times,
            n_references=n,
            n_negatives=n,
        ),
        SessionSamples(
            read=lambda times: points[torch.from_numpy(times).to(device)],
            epochs=Epochs(first, first + 1),
            start=n_times,
            stop=n_times + n_anchors,
            n_references=0,
            n_negatives=n,
        ),
    ]
    with phase("training"):
        history = train(
            [encoder, FixedPoints()],
            samples,
            make_objectives(settings, labels, line, line),
            settings.train,
            device=device,
            progress=progress,
        )
    if settings.train.find_weight:
        # The weight at the end of the search is the weight of this fit.
        config = replace(plan.decisions.train, jacobian_weight=float(history["weight"][-1]))
        plan = replace(plan, decisions=replace(plan.decisions, train=config))
    kept = [i for name in own_labels for i in range(blocks[name].start, blocks[name].stop)]
    kept += range(n_label, n_latents)
    if len(kept) != n_latents:
        plan = replace(plan, decisions=replace(plan.decisions, trained_latents=n_latents))
    return plan, encoder.with_latents(kept, plan.decisions.unit_blocks), history


def _continued(anchor: Label, own: Label | None, n_times: int) -> Label:
    """Return the label of a new session, followed by that of the anchors."""
    points = np.zeros((n_times, anchor.points.shape[1])) if own is None else own.points
    valid = np.zeros(n_times, dtype=bool) if own is None else own.valid
    return replace(
        anchor,
        points=np.concatenate([points, anchor.points]),
        valid=np.concatenate([valid, anchor.valid]),
    )
