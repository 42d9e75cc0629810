"""The plan of a joint fit: several sessions with one embedding of their labels.

The sessions lie one after another on a common line of sample indices. Labels and pairs live on this
line; neural activity stays in the recordings and is never copied.
"""

from __future__ import annotations

import hashlib
import warnings
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np
import torch

from xcebra.caveats import XcebraWarning
from xcebra.common.checks import raise_if
from xcebra.common.errors import InputError
from xcebra.data.epochs import Epochs, IntArray
from xcebra.data.label_info import LabelInfo
from xcebra.data.labels import Label, LabelSpec, make_label
from xcebra.data.recording import Recording
from xcebra.networks.encoder import Encoder, NetworkInputs
from xcebra.training import settings
from xcebra.training.batches import Objective, Regression, SessionSamples
from xcebra.training.decisions import Decisions
from xcebra.training.plan import Plan, make_objectives, make_plan

# Layers of a session's encoder that are its own if the others are shared: the first linear layer
# and its activation function.
OWN_LAYERS = 2


@dataclass(frozen=True, eq=False, kw_only=True)
class JointPlan:
    """The plans of all sessions, and what they have in common.

    Parameters
    ----------
    plans : mapping of str to Plan
        The plan of each session by its name. Its blocks are those of the labels that the session
        has, and of time.
    decisions : Decisions
        The settings of the joint training. Its blocks are those of all labels, and of the largest
        time block.
    labels : tuple of Label
        Labels on the common line, in the order of their blocks. They are missing in sessions that
        lack them.
    lengths : tuple of int
        Number of samples of each session.
    batch_sizes : tuple of int
        Number of references that are drawn from each session in a step.
    shared : bool
        Whether all layers but the first are one network for all sessions.
    """

    plans: Mapping[str, Plan]
    decisions: Decisions
    labels: tuple[Label, ...]
    lengths: tuple[int, ...]
    batch_sizes: tuple[int, ...]
    shared: bool

    @cached_property
    def starts(self) -> IntArray:
        """First sample of each session on the common line, of shape (n_sessions,)."""
        return np.cumsum([0, *self.lengths[:-1]])

    @cached_property
    def training(self) -> Epochs:
        """Training samples of all sessions, on the common line."""
        return _joined_epochs([plan.training for plan in self.plans.values()], self.starts)

    def objectives(self) -> list[Objective | Regression]:
        """List the terms of the loss over the training samples of all sessions."""
        return make_objectives(self.decisions, self.labels, self.training, self.training)

    def samples(
        self, encoders: Sequence[Encoder], recordings: Mapping[str, Recording]
    ) -> list[SessionSamples]:
        """Describe where the training samples of each session come from."""
        return [
            SessionSamples(
                read=NetworkInputs(encoder, recordings[name]),
                epochs=_joined_epochs([plan.training], np.array([start])),
                start=int(start),
                stop=int(start) + length,
                n_references=batch_size,
                n_negatives=batch_size,
            )
            for (name, plan), encoder, start, length, batch_size in zip(
                self.plans.items(),
                encoders,
                self.starts,
                self.lengths,
                self.batch_sizes,
                strict=True,
            )
        ]

    def fingerprint(self, recordings: Mapping[str, Recording]) -> str:
        """Return a digest that is the same for two fits with the same data and settings."""
        digests = [plan.fingerprint(recordings[name]) for name, plan in self.plans.items()]
        if len(digests) == 1:
            return digests[0]
        values = [*self.plans, *digests, self.batch_sizes, self.shared]
        return hashlib.sha256(repr(values).encode()).hexdigest()

    def make_encoders(self, device: torch.device) -> list[Encoder]:
        """Make the encoders of all sessions, with the latents of all labels, before training."""
        decided = self.decisions
        time = decided.blocks.get("time")
        n_label = decided.n_latents if time is None else time.start
        encoders: list[Encoder] = []
        for i, plan in enumerate(self.plans.values()):
            n_latents = n_label + _width(plan.decisions.blocks.get("time"))
            blocks = _label_blocks(decided)
            blocks |= {"time": slice(n_label, n_latents)} if n_latents > n_label else {}
            encoder = Encoder(
                plan.inputs,
                n_latents,
                limit=decided.recipe.limit,
                window=plan.decisions.window,
                unit_blocks=list(blocks.values()) if decided.on_spheres else None,
                generator=torch.Generator().manual_seed(decided.train.seed + i),
            )
            if self.shared and encoders:
                encoder.share_layers(encoders[0], OWN_LAYERS)
            encoders.append(encoder.to(device))
        return encoders

    def with_penalty_weight(self, weight: float) -> JointPlan:
        """Return the same plan with another weight of the Jacobian penalty."""

        def changed(decided: Decisions) -> Decisions:
            return replace(decided, train=replace(decided.train, jacobian_weight=weight))

        plans = {n: replace(p, decisions=changed(p.decisions)) for n, p in self.plans.items()}
        return replace(self, plans=plans, decisions=changed(self.decisions))

    def own_latents(self, name: str) -> list[int]:
        """Latents of a session's encoder that are kept: those of its own labels, and of time."""
        own, blocks = self.plans[name].decisions.blocks, self.decisions.blocks
        kept = [i for label in own if label != "time" for i in _range(blocks[label])]
        if "time" in own:
            first = blocks["time"].start
            kept += range(first, first + own["time"].stop - own["time"].start)
        return kept


def make_joint_plan(
    recordings: Mapping[str, Recording],
    params: Mapping[str, Any],
    controls: tuple[str, ...] = (),
) -> JointPlan:
    """Make the plan of a joint fit, or raise an error about the input.

    If they are chosen from the data, time offset and temperature are the same for all sessions: the
    median of the offsets that suit single sessions, and the geometric mean of their temperatures.
    With a shared time block, all sessions have as many time latents as the one that needs most.

    Parameters
    ----------
    recordings : mapping of str to Recording
        The sessions by name. Each has only the labels that are used.
    params : mapping
        The estimator's parameters, already checked by `settings.check_parameters`.
    controls : tuple of str
        Labels that are controlled for.
    """
    single = len(recordings) == 1
    if not single and params["objective"] == "regression":
        raise InputError(
            "objective='regression' cannot be fitted to several sessions at once; fit them one at "
            "a time, or use objective='contrastive'",
            ("objective",),
        )
    order = list(dict.fromkeys(name for rec in recordings.values() for name in rec.labels))
    _check_label_dims(params, order)
    specs = _common_specs(recordings, params, order)
    shared = params["time_block"] == "shared" and not single
    plans = {}
    for name, recording in recordings.items():
        with _about_session(name, single):
            own = _session_params(params, recording)
            plans[name] = make_plan(recording, own, _of(controls, recording), specs)
    if not single:
        plans = _in_common(recordings, params, controls, specs, plans, shared)
    labels = tuple(_joined_label(name, plans, recordings) for name in _block_order(plans, order))
    decisions = _joint_decisions(plans, labels, controls, shared)
    return JointPlan(
        plans=plans,
        decisions=decisions,
        labels=labels,
        lengths=tuple(recording.n_times for recording in recordings.values()),
        batch_sizes=_batch_sizes(plans, params["session_weight"]),
        shared=shared,
    )


def check_sessions(
    recordings: Mapping[str, Recording],
    params: Mapping[str, Any],
    controls: tuple[str, ...] = (),
) -> None:
    """Raise an error if sessions cannot be fitted one by one, or if their labels do not compare.

    Nothing that takes long is computed.

    Parameters
    ----------
    recordings, params, controls
        As for `make_joint_plan`.
    """
    order = list(dict.fromkeys(name for rec in recordings.values() for name in rec.labels))
    _check_label_dims(params, order)
    _common_specs(recordings, params, order)
    quick = {**params, "time_dims": params["time_dims"] or 0, "window": params["window"] or 1}
    for name, recording in recordings.items():
        with _about_session(name), warnings.catch_warnings():
            # The fits warn of the same things.
            warnings.simplefilter("ignore", XcebraWarning)
            own = _session_params(quick, recording)
            make_joint_plan({name: recording}, own, _of(controls, recording))


def _check_label_dims(params: Mapping[str, Any], labels: list[str]) -> None:
    if isinstance(params["label_dims"], Mapping):
        problems: list[str] = []
        settings.named(problems, "label_dims", params["label_dims"], labels, None)
        raise_if(problems)


def make_session_plan(
    name: str,
    recording: Recording,
    params: Mapping[str, Any],
    decided: Decisions,
    known: Sequence[Label],
    infos: Mapping[str, LabelInfo],
    *,
    shared: bool,
) -> Plan:
    """Make the plan of a session that is added to a joint fit, or raise an error.

    Parameters
    ----------
    name : str
        Name of the session.
    recording : Recording
        The session, with only the labels that are used.
    params : mapping
        The estimator's parameters.
    decided : Decisions
        The settings of the joint fit.
    known : sequence of Label
        The labels of the joint fit, at some samples of its sessions.
    infos : mapping of str to LabelInfo
        What is known of the labels of the joint fit.
    shared : bool
        Whether the sessions share layers, and therefore the number of time latents.
    """
    with _about_session(name):
        for one in known:
            if one.name in recording.labels:
                _check_like(one, recording, decided.labels[one.name], infos[one.name])
        chosen = {
            **_session_params(params, recording),
            "label_dims": {label: _width(decided.blocks[label]) for label in recording.labels},
            "time_offset": max(decided.time_offset, 1 + recording.overlap),
            "temperature": decided.train.temperature,
            "time_dims": _width(decided.blocks.get("time")) if shared else params["time_dims"],
            "random_state": decided.train.seed,
        }
        return make_plan(recording, chosen, _of(decided.controls, recording), decided.labels)


def _check_like(known: Label, recording: Recording, spec: LabelSpec, info: LabelInfo) -> None:
    """Raise an error if a label of a new session is not like that of the joint fit."""
    name, own = known.name, recording.label_info[known.name]
    if own.kind and own.kind != known.kind:
        raise InputError(
            f"label {name!r} is {own.kind}, but {known.kind} in the joint fit; change its kind in "
            "the recording's label_info"
        )
    if own.unit and info.unit and own.unit != info.unit:
        raise InputError(
            f"label {name!r} is in {own.unit}, but in {info.unit} in the joint fit; convert it, "
            "because distances between labels are compared across sessions"
        )
    n_columns = make_label(name, recording.labels[name], spec).points.shape[1]
    if n_columns != known.points.shape[1]:
        raise InputError(
            f"label {name!r} has {n_columns} columns, but {known.points.shape[1]} in the joint "
            "fit; give it the same columns"
        )


def _in_common(
    recordings: Mapping[str, Recording],
    params: Mapping[str, Any],
    controls: tuple[str, ...],
    specs: Mapping[str, LabelSpec],
    plans: Mapping[str, Plan],
    shared: bool,
) -> dict[str, Plan]:
    """Make the plans again, with the same time offset, temperature and label blocks."""
    decided = {name: plan.decisions for name, plan in plans.items()}
    offset = int(np.median([d.time_offset for d in decided.values()]))
    least = max(d.window + recordings[name].overlap for name, d in decided.items())
    offset = max(offset, least)
    n_time = {name: _width(d.blocks.get("time")) for name, d in decided.items()}
    if shared:
        room = min(
            recordings[name].n_neurons - sum(map(_width, _label_blocks(d).values()))
            for name, d in decided.items()
        )
        n_time = dict.fromkeys(n_time, min(room, max(n_time.values())))
    again = {}
    for name, recording in recordings.items():
        chosen = {
            **_session_params(params, recording),
            "time_offset": offset,
            "window": decided[name].window,
            "time_dims": n_time[name],
        }
        with _about_session(name), warnings.catch_warnings():
            # The first plan has already given the warnings about these data.
            warnings.simplefilter("ignore", XcebraWarning)
            again[name] = make_plan(recording, chosen, _of(controls, recording), specs)
    logs = np.log([plan.decisions.train.temperature for plan in again.values()])
    temperature = float(np.exp(logs.mean()))
    for name, plan in again.items():
        train = replace(plan.decisions.train, temperature=temperature)
        again[name] = replace(plan, decisions=replace(plan.decisions, train=train))
    return again


def _common_specs(
    recordings: Mapping[str, Recording], params: Mapping[str, Any], labels: Sequence[str]
) -> dict[str, LabelSpec]:
    """Kind, delay and classes of each label, or an error if the sessions contradict each other."""
    kinds: dict[str, str] = {}
    given = params["label_kind"]
    for name, recording in recordings.items():
        for label, info in recording.label_info.items():
            if given is not None and (not isinstance(given, Mapping) or given.get(label)):
                continue  # What the user says wins over what the recordings say.
            if info.kind and kinds.setdefault(label, info.kind) != info.kind:
                raise InputError(
                    f"label {label!r} is {info.kind} in session {name!r} and {kinds[label]} in "
                    "another one; give it the same kind in all sessions, for instance with "
                    f"label_kind={{{label!r}: {kinds[label]!r}}}",
                    ("label_kind",),
                )
    specs = settings.label_specs(params, list(labels), kinds)
    if len(recordings) == 1:
        return specs
    for label, spec in specs.items():
        having = {n: rec for n, rec in recordings.items() if label in rec.labels}
        _check_alike(label, having)
        made = {}
        with warnings.catch_warnings(record=True) as guesses:
            warnings.simplefilter("always", XcebraWarning)
            for name, recording in having.items():
                with _about_session(name):
                    made[name] = make_label(label, recording.labels[label], spec)
        by_kind = {made[n].kind: n for n in reversed(having)}
        if len(by_kind) > 1:
            kinds_found = ", ".join(f"{kind} in session {n!r}" for kind, n in by_kind.items())
            raise InputError(
                f"label {label!r} was taken as {kinds_found}; say label_kind={{{label!r}: ...}}",
                ("label_kind",),
            )
        # A kind that is guessed is told once, not for every session.
        for guess in {str(guess.message): guess.message for guess in guesses}.values():
            warnings.warn(guess, stacklevel=2)
        (kind,) = by_kind
        specs[label] = replace(spec, kind=kind, classes=_common_classes(label, made))
    return specs


def _common_classes(label: str, made: Mapping[str, Label]) -> tuple[Any, ...] | None:
    """Classes of a discrete label in all sessions, in order; None if the label is not discrete."""
    try:
        return tuple(sorted({c for one in made.values() for c in one.classes})) or None
    except TypeError:  # Text and numbers have no common order.
        examples = ", ".join(f"{one.classes[0]!r} in session {n!r}" for n, one in made.items())
        raise InputError(
            f"label {label!r} has text as classes in some sessions and numbers in others "
            f"({examples}); give its classes the same names in all sessions"
        ) from None


def _check_alike(label: str, recordings: Mapping[str, Recording]) -> None:
    """Raise an error if a label has other columns or another unit in some of the sessions."""
    first, *others = recordings
    info, n_columns = recordings[first].label_info[label], recordings[first].labels[label].shape[1]
    for name in others:
        own, n_own = recordings[name].label_info[label], recordings[name].labels[label].shape[1]
        if n_own != n_columns:
            raise InputError(
                f"label {label!r} has {n_columns} columns in session {first!r} and {n_own} in "
                f"session {name!r}; give it the same columns in all sessions"
            )
        if info.unit and own.unit and own.unit != info.unit:
            raise InputError(
                f"label {label!r} is in {info.unit} in session {first!r} and in {own.unit} in "
                f"session {name!r}; convert one of them, because distances between labels are "
                "compared across sessions"
            )


def _joined_label(
    name: str, plans: Mapping[str, Plan], recordings: Mapping[str, Recording]
) -> Label:
    """Concatenate a label over all sessions. It is missing in sessions that lack it."""
    by_session = {s: {label.name: label for label in plan.labels} for s, plan in plans.items()}
    known = next(labels[name] for labels in by_session.values() if name in labels)
    points, valid = [], []
    for session, labels in by_session.items():
        n = recordings[session].n_times
        if name in labels:
            points.append(labels[name].points)
            valid.append(labels[name].valid)
        else:
            points.append(np.zeros((n, known.points.shape[1])))
            valid.append(np.zeros(n, dtype=bool))
    return replace(known, points=np.concatenate(points), valid=np.concatenate(valid))


def _block_order(plans: Mapping[str, Plan], labels: Sequence[str]) -> list[str]:
    """Order of the labels' blocks: that of a session with all labels, if there is one."""
    orders = [list(_label_blocks(plan.decisions)) for plan in plans.values()]
    complete = max(orders, key=len)
    return [*complete, *(name for name in labels if name not in complete)]


def _joint_decisions(
    plans: Mapping[str, Plan], labels: Sequence[Label], controls: tuple[str, ...], shared: bool
) -> Decisions:
    """Return the settings of the joint training."""
    decided = [plan.decisions for plan in plans.values()]
    if len(decided) == 1:
        return decided[0]
    blocks, start = {}, 0
    for label in labels:
        width = next(_width(d.blocks[label.name]) for d in decided if label.name in d.blocks)
        blocks[label.name] = slice(start, start + width)
        start += width
    n_time = max(_width(d.blocks.get("time")) for d in decided)
    if n_time:
        blocks["time"] = slice(start, start + n_time)
    n_training = sum(d.n_training for d in decided)
    specs: dict[str, LabelSpec] = {}
    for one in decided:
        specs |= {name: spec for name, spec in one.labels.items() if name not in specs}
    # First layers see one session only and overfit as in separate fits. The weight decay is
    # therefore that of an average session, and more if layers are shared, because their gradients
    # have less noise. With the smaller one of all sessions together, embeddings of six sessions of
    # 1,000 samples were worse than separate ones. With the square root of the number of sessions in
    # place of the fourth root, time latents of ten sessions got worse (seeds 100 to 109).
    more = len(decided) ** 0.25 if shared else 1.0
    train = replace(
        decided[0].train,
        batch_size=sum(d.train.batch_size for d in decided),
        weight_decay=more * float(np.mean([d.train.weight_decay for d in decided])),
    )
    return replace(
        decided[0],
        train=train,
        blocks=blocks,
        labels={name: specs[name] for name in blocks if name != "time"},
        n_components=max(d.n_components for d in decided),
        n_training=n_training,
        n_held_out=sum(d.n_held_out for d in decided),
        controls=controls,
    )


def _batch_sizes(plans: Mapping[str, Plan], session_weight: str) -> tuple[int, ...]:
    """Number of references of each session: its own batch size, or in proportion to its length.

    The sum over all sessions is the same in both cases.
    """
    sizes = [plan.decisions.train.batch_size for plan in plans.values()]
    if session_weight == "equal" or len(sizes) == 1:
        return tuple(sizes)
    n_samples = np.array([plan.training.size for plan in plans.values()])
    shares = sum(sizes) * n_samples / n_samples.sum()
    return tuple(max(2, round(share)) for share in shares.tolist())


def _joined_epochs(epochs: Sequence[Epochs], starts: IntArray) -> Epochs:
    """Concatenate the epochs of sessions that start at ``starts`` on the common line."""
    return Epochs(
        np.concatenate([own.starts + start for own, start in zip(epochs, starts, strict=True)]),
        np.concatenate([own.stops + start for own, start in zip(epochs, starts, strict=True)]),
    )


@contextmanager
def _about_session(name: str, single: bool = False) -> Iterator[None]:
    """Name the session in errors about its data; a context manager."""
    try:
        yield
    except InputError as error:
        raise error if single else error.about(f"session {name!r}:") from None


def _session_params(params: Mapping[str, Any], recording: Recording) -> dict[str, Any]:
    """Return the parameters without numbers of latents for labels that a session lacks."""
    dims = params["label_dims"]
    if isinstance(dims, Mapping):
        dims = {name: dim for name, dim in dims.items() if str(name) in recording.labels}
    return {**params, "label_dims": dims}


def _of(controls: tuple[str, ...], recording: Recording) -> tuple[str, ...]:
    return tuple(name for name in controls if name in recording.labels)


def _label_blocks(decided: Decisions) -> dict[str, slice]:
    return {name: block for name, block in decided.blocks.items() if name != "time"}


def _width(block: slice | None) -> int:
    return 0 if block is None else int(block.stop - block.start)


def _range(block: slice) -> range:
    return range(block.start, block.stop)
