"""What `xcebra.XCEBRA` does with several sessions at once."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import clone
from sklearn.utils.validation import check_is_fitted
from torch import nn

from xcebra.attribution.fitting import FITTED, fit_networks, train_encoders
from xcebra.attribution.joint_fitting import (
    Anchors,
    fit_each_session,
    shared_layers,
    train_new_session,
    trained_digest,
)
from xcebra.attribution.label_axes import Readout
from xcebra.attribution.pooled import PooledMaps, pool
from xcebra.caveats import XcebraWarning
from xcebra.common.checks import number, raise_if
from xcebra.common.errors import InputError
from xcebra.common.progress import phase
from xcebra.data.label_info import LabelInfo
from xcebra.data.recording import Recording, as_labels
from xcebra.data.sessions import (
    chosen_by_session,
    is_several,
    labels_by_session,
    named_sessions,
)
from xcebra.io.model_file import ModelStore, plain
from xcebra.metrics import r_squared
from xcebra.statistics.significance import merged
from xcebra.training.decisions import Decisions
from xcebra.training.goodness_of_fit import GoodnessOfFit, over_sessions
from xcebra.training.joint_plan import make_joint_plan, make_session_plan

if TYPE_CHECKING:
    from xcebra.estimator import XCEBRA


# Attributes of a fit to one recording that a joint fit does not have.
_OF_ONE_SESSION = (
    *(f"{name}_" for name in FITTED if name not in ("history", "goodness_of_fit")),
    *("neuron_names_", "units_", "n_features_in_", "feature_names_in_"),
)


class JointSessions:
    """The part of the estimator that fits, embeds and attributes several sessions.

    Every session has a model of its own in ``sessions_``, which works as if it had been fitted to
    this session alone. Only the training of the encoders is joint.
    """

    if TYPE_CHECKING:
        sessions_: dict[str, XCEBRA]
        shared_: nn.Sequential | None
        decisions_: Decisions
        goodness_of_fit_: dict[str, GoodnessOfFit]
        label_info_: dict[str, LabelInfo]
        get_params: Callable[..., dict[str, Any]]

    @property
    def is_joint(self) -> bool:
        """Whether the model was fitted to several sessions by name or in a list."""
        return bool(getattr(self, "sessions_", None))

    def transform(self, X: Any, *, epochs: Iterable[tuple[int, int]] | None = None) -> Any:
        """Embed activity.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        epochs : list of (start, stop), optional
            Windows do not cross the borders of epochs. Every row of X is embedded, also those
            outside of the epochs.

        Returns
        -------
        ndarray of shape (n_times, n_latents)
            Label blocks first, then the time block. For several sessions, a mapping or a list of
            such arrays, as X is.
        """
        check_is_fitted(self)
        if not self.is_joint:
            single: Any = super()
            return single.transform(X, epochs=epochs)
        self._refuse_epochs(epochs)
        embedded = {n: model.transform(x) for n, (model, x, _) in self._by_session(X).items()}
        return embedded if isinstance(X, Mapping) else list(embedded.values())

    def fit_transform(self, X: Any, y: Any = None, **fit_params: Any) -> Any:
        """Fit, and return the embedding of the same data; see `fit` and `transform`."""
        single: Any = super()
        if not is_several(X):
            return single.fit_transform(X, y, **fit_params)
        model: Any = self
        return model.fit(X, y, **fit_params).transform(X)

    def fit_session(
        self, X: Any, y: Any = None, *, name: str, progress: bool | None = None
    ) -> XCEBRA:
        """Add a session to a joint fit, by training only an encoder of its own.

        The embedding of the other sessions stays as it is. The new session is aligned with it by
        its labels.

        Parameters
        ----------
        X : Recording, DataFrame or array-like of shape (n_times, n_neurons)
            The new session. It needs at least one of the labels of the joint fit.
        y : array-like, DataFrame, mapping, or None
            Its labels; those of the Recording if None.
        name : str
            Name of the new session.
        progress : bool or None
            Show progress bars; None is the estimator's own setting.

        Returns
        -------
        XCEBRA
            The model of the new session, which is also in ``sessions_``.
        """
        check_is_fitted(self)
        self._check_joint("fit_session")
        if not str(name).strip() or str(name) in self.sessions_:
            raise InputError(
                f"name={name!r} must be the name of a new session; there are "
                f"{list(self.sessions_)} already",
                ("name",),
            )
        decided = self.decisions_
        data, own_y = named_sessions({str(name): X}), {str(name): y}
        asked = [label for label in decided.labels if label not in decided.controls]
        present = [n for n in asked if n in _label_names(X, y)]
        if not present:
            raise InputError(
                f"session {str(name)!r} has none of the labels {asked}; it has "
                f"{_label_names(X, y) or 'none'}",
                ("y",),
            )
        for control in decided.controls:
            if control not in _label_names(X, y):
                raise InputError(
                    f"session {str(name)!r} lacks {control!r}, which the joint fit controls for; "
                    "give it as a label of the session",
                    ("y",),
                )
        chosen, _ = chosen_by_session(data, own_y, present, list(decided.controls) or None)
        model: XCEBRA = clone(self)
        recording = model._session_recording(X, y, chosen[str(name)])
        decoders = [
            (session.crossed_decoder_, session.blocks_) for session in self.sessions_.values()
        ]
        anchors = Anchors.collect(decided, decoders)
        with phase("plan"):
            plan = make_session_plan(
                str(name),
                recording,
                self.get_params(deep=False),
                decided,
                anchors.labels,
                self.label_info_,
                shared=self.shared_ is not None,
            )
        device = model._torch_device()
        shown = model._shows_progress() if progress is None else progress
        plan, encoder, history = train_new_session(
            recording, plan, decided, anchors, self.shared_, device=device, progress=shown
        )
        fitted = fit_networks(recording, plan, encoder, history, progress=shown)
        model._take(fitted, recording, self.get_params(deep=False), device)
        self.sessions_ = {**self.sessions_, str(name): model}
        self.goodness_of_fit_ = _joint_goodness(self.decisions_, self.sessions_)
        return model

    def alignment(self, X: Any, y: Any = None) -> dict[str, NDArray[np.float64]]:
        """How well the label spaces of sessions that were fitted together agree.

        The label of one session is predicted from its own embedding with the linear map
        (``readout_``) that was fitted to another session.

        Parameters
        ----------
        X : mapping of str to Recording, DataFrame or array, or list of these
            The sessions, as for `fit`.
        y : mapping, list or None
            Their labels; those of the Recordings if None.

        Returns
        -------
        dict of str to ndarray of shape (n_sessions, n_sessions)
            For each label, R^2 of the label of the session of the column with the readout of the
            session of the row, in the order of X. It is 1 if the prediction is perfect, and below
            zero if it is worse than the mean. NaN where a session lacks the label.
        """
        check_is_fitted(self)
        self._check_joint("alignment")
        parts = self._by_session(X, y)
        scores: dict[str, NDArray[np.float64]] = {}
        for name in self.blocks_:
            if name == "time":
                continue
            points: dict[str, tuple[NDArray[Any], NDArray[Any]]] = {}
            readouts: dict[str, Readout] = {}
            for session, (model, x, own_y) in parts.items():
                if name in model.readout_:
                    points[session] = model._block_and_label(name, x, own_y)
                    readouts[session] = model.readout_[name]
            scores[name] = crossed_readouts(list(parts), points, readouts)
        return scores

    def _fit_sessions(
        self,
        X: Any,
        y: Any,
        label: Any,
        control: Any,
        *,
        device: torch.device,
        progress: bool,
        checkpoint: Path | None,
        callback: Callable[[int, Any], None] | None,
    ) -> None:
        """Fit several sessions together; see `XCEBRA.fit`."""
        data = named_sessions(X)
        own_y = labels_by_session(data, y)
        chosen, controls = chosen_by_session(data, own_y, label, control)
        params = self.get_params(deep=False)
        models: dict[str, XCEBRA] = {n: clone(self) for n in data}
        recordings = {}
        for name in data:
            try:
                recordings[name] = models[name]._session_recording(
                    data[name], own_y[name], chosen[name]
                )
            except InputError as error:
                raise error.about(f"session {name!r}:") from None
        with phase("plan"):
            joint = make_joint_plan(recordings, params, controls)
        joint, encoders, history = train_encoders(
            recordings,
            joint,
            device=device,
            progress=progress,
            checkpoint=checkpoint,
            callback=callback,
        )
        store = None
        if checkpoint is not None:
            digest = trained_digest(recordings, joint, encoders)
            store = ModelStore(checkpoint, digest, list(recordings))
            models |= store.load(self._own_class(), device)
        done = set() if store is None else set(store.finished)
        for name, fitted in fit_each_session(
            recordings,
            joint,
            encoders,
            history,
            progress=progress,
            finished=done.__contains__,
        ):
            models[name]._take(fitted, recordings[name], params, device)
            if store is not None:
                store.save(name, models[name])
        for name in _OF_ONE_SESSION:
            self.__dict__.pop(name, None)  # of an earlier fit to one recording
        self.sessions_ = models
        self.shared_ = shared_layers(joint, list(encoders.values()))
        self._take_joint(joint.decisions, params, device)
        self.history_ = history

    def _take_joint(
        self, decided: Decisions, params: Mapping[str, Any], device: torch.device
    ) -> None:
        """Set the attributes of a joint fit, after ``sessions_``."""
        self.decisions_ = decided
        self.config_ = {**_plain(params), **decided.settings(), "device": str(device)}
        self.blocks_ = dict(decided.blocks)
        self.controls_ = decided.controls
        infos: dict[str, LabelInfo] = {}
        for session in self.sessions_.values():
            infos = {**session.label_info_, **infos}
        self.label_info_ = infos
        self.goodness_of_fit_ = _joint_goodness(decided, self.sessions_)

    def _refuse_epochs(self, epochs: Any) -> None:
        """Raise an error if epochs are given for several sessions."""
        if epochs is not None:
            raise InputError(
                "epochs are those of one recording; give each session its own, in its Recording",
                ("epochs",),
            )

    def _by_session(self, X: Any, y: Any = None) -> dict[str, tuple[XCEBRA, Any, Any]]:
        """Return the model and the data of each session that is given."""
        if not is_several(X):
            raise InputError(
                f"this model was fitted to the sessions {list(self.sessions_)}; give several "
                "recordings by name, such as {name: recording}, or use model.sessions_[name]",
                ("X",),
            )
        data = named_sessions(X)
        if not isinstance(X, Mapping):
            if len(X) != len(self.sessions_):
                raise InputError(
                    f"X has {len(X)} sessions, but the model was fitted to {len(self.sessions_)}; "
                    "give all of them in the same order, or some of them by name",
                    ("X",),
                )
            data = dict(zip(self.sessions_, X, strict=True))
        for name in data:
            if name not in self.sessions_:
                raise InputError(
                    f"X has a session {name!r}, but the model was fitted to "
                    f"{list(self.sessions_)}; add it with fit_session first",
                    ("X",),
                )
        own_y = labels_by_session(data, y)
        return {name: (self.sessions_[name], data[name], own_y[name]) for name in data}

    def _score_sessions(self, X: Any, y: Any) -> float:
        """Mean score over sessions."""
        parts = self._by_session(X, y)
        scores = []
        for model, x, own_y in parts.values():
            known = own_y
            if own_y is None and isinstance(x, Recording):
                known = {name: x.labels[name] for name in model.readout_ if name in x.labels}
            scores.append(model.score(x, known))
        return float(np.mean(scores))

    def _attribute_sessions(
        self, X: Any, y: Any, *, refits: int, controls: bool, **arguments: Any
    ) -> PooledMaps:
        parts = self._by_session(X, y)
        if not isinstance(arguments["keep_time"], bool):
            raise InputError(
                f"keep_time={str(arguments['keep_time'])!r} names one file for several sessions; "
                "use keep_time=True, or model.sessions_[name].attribute",
                ("keep_time",),
            )
        problems: list[str] = []
        number(problems, "refits", refits, least=0, whole=True)
        raise_if(problems)
        if refits and not arguments["test"]:
            raise InputError(f"refits={refits} are for the test: say test=True too", ("refits",))
        if refits and set(parts) != set(self.sessions_):
            raise InputError(
                f"refits={refits} fit all sessions again; give the data of all of "
                f"{list(self.sessions_)}",
                ("refits",),
            )
        maps = {}
        for name, (model, x, own_y) in parts.items():
            try:
                maps[name] = model.attribute(x, own_y, controls=controls, **arguments)
            except InputError as error:
                raise error.about(f"session {name!r}:") from None
        if refits:
            tests = {name: [dict(amap.connections)] for name, amap in maps.items()}
            for other in self._refitted_sessions(parts, refits):
                for name, (_, x, own_y) in parts.items():
                    tests[name].append(other.sessions_[name]._tested(x, own_y, controls))
            for name, amap in maps.items():
                connections = {
                    block: merged([test[block] for test in tests[name]])
                    for block in amap.connections
                }
                maps[name] = replace(amap, connections=connections)
        return pool(maps)

    def _refitted_sessions(
        self, parts: Mapping[str, tuple[XCEBRA, Any, Any]], refits: int
    ) -> Iterator[XCEBRA]:
        """Yield joint fits to the same sessions with other seeds, one at a time."""
        X = {name: x for name, (_, x, _) in parts.items()}
        y = {name: own_y for name, (_, _, own_y) in parts.items()}
        decided = self.decisions_
        label = [name for name in decided.labels if name not in decided.controls]
        seeds = np.random.default_rng(decided.train.seed).integers(2**31, size=refits)
        for seed in seeds.tolist():
            model: XCEBRA = clone(self)
            with warnings.catch_warnings():
                # The first fit has already given the warnings about these data.
                warnings.simplefilter("ignore", XcebraWarning)
                model.set_params(random_state=seed)
                model.fit(X, y, label=label, control=list(decided.controls) or None)
            yield model

    def _own_class(self) -> type[XCEBRA]:
        own: Any = type(self)
        return own

    def _check_joint(self, method: str) -> None:
        if not self.is_joint:
            raise InputError(
                f"{method} is for models of several sessions; fit a mapping of recordings first"
            )

    def _check_single(self, method: str) -> None:
        if self.is_joint:
            raise InputError(
                f"{method} is for one session; use model.sessions_[name].{method}, with a name of "
                f"{list(self.sessions_)}"
            )


def crossed_readouts(
    sessions: Sequence[str],
    points: Mapping[str, tuple[NDArray[Any], NDArray[Any]]],
    readouts: Mapping[str, Readout],
) -> NDArray[np.float64]:
    """Predict the label of every session with the readout of every session.

    Parameters
    ----------
    sessions : sequence of str
        All sessions, in order.
    points : mapping of str to (ndarray of shape (n, n_latents), ndarray of shape (n, n_columns))
        The block of the label and the label itself, for each session that has it.
    readouts : mapping of str to Readout
        Linear map from the block to the label, for the same sessions.

    Returns
    -------
    ndarray of shape (n_sessions, n_sessions)
        R^2 with the readout of the row, for the session of the column; NaN where there is none.
    """
    scores = np.full((len(sessions), len(sessions)), np.nan)
    for i, row in enumerate(sessions):
        for j, column in enumerate(sessions):
            if row in readouts and column in points:
                block, label = points[column]
                if readouts[row].weights.shape == (label.shape[1], block.shape[1]):
                    scores[i, j] = r_squared(label, readouts[row].predict(block))
    return scores


def _plain(params: Mapping[str, Any]) -> dict[str, Any]:
    return {name: plain(value) for name, value in params.items()}


def _label_names(X: Any, y: Any) -> list[str]:
    return list(X.labels) if isinstance(X, Recording) and y is None else list(as_labels(y))


def _joint_goodness(decided: Decisions, sessions: Mapping[str, XCEBRA]) -> dict[str, GoodnessOfFit]:
    """Goodness of fit of every block over all sessions that have it."""
    fits = [model.goodness_of_fit_ for model in sessions.values()]
    return {
        name: over_sessions([fit[name] for fit in fits if name in fit])
        for name in decided.blocks
        if any(name in fit for fit in fits)
    }
