"""XCEBRA: the method as a scikit-learn estimator."""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.base import BaseEstimator, TransformerMixin, clone
from sklearn.utils.validation import check_array, check_is_fitted, validate_data

from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.connections import block_connections, tested_samples
from xcebra.attribution.crossed_map import make_crossed_map
from xcebra.attribution.crossed_source import Source
from xcebra.attribution.engine import make_map, view_of_model
from xcebra.attribution.fitting import FITTED, Fitted, fit_networks, train_encoders
from xcebra.attribution.label_axes import (
    fit_mixtures,
    label_axes,
    reader,
    sparse_axes,
)
from xcebra.attribution.request import MapRequest, Names, Subject, latent_names, resolve
from xcebra.attribution.warnings import map_warnings
from xcebra.caveats import XcebraWarning
from xcebra.common.checks import number
from xcebra.common.choices import (
    CROSSED,
    Aggregate,
    Basis,
    Distance,
    Method,
    ObjectiveName,
    RecipeName,
    SessionWeight,
    TimeBlock,
    TimeOn,
    Units,
)
from xcebra.common.errors import InputError, Problem
from xcebra.common.progress import phase, watched
from xcebra.common.rendering import fit_html
from xcebra.common.workers import one_thread
from xcebra.data.label_selection import chosen_labels, which_labels, with_controls
from xcebra.data.labels import Label, delayed, make_label
from xcebra.data.recording import Recording, as_labels
from xcebra.data.sessions import is_several
from xcebra.io.model_file import plain, read_model, write_model
from xcebra.joint_sessions import JointSessions
from xcebra.metrics import r_squared
from xcebra.networks.encoder import Encoder, embed
from xcebra.statistics.second_opinion import opposed, second_opinions
from xcebra.statistics.significance import Connections, merged
from xcebra.training import settings
from xcebra.training.batches import Objective
from xcebra.training.first_use import prepare_in_background
from xcebra.training.goodness_of_fit import (
    margin,
)
from xcebra.training.joint_plan import make_joint_plan
from xcebra.training.sampling import TimeOffset

# Points of the embedding that are decoded at once. It changes speed and memory, not the result.
_ROWS_AT_ONCE = 16_384


class _Embedding(TransformerMixin, BaseEstimator):
    """The embedding of one recording.

    Scikit-learn puts what ``transform`` of this class returns into the container that `set_output`
    names. It could not do so with the embeddings of several sessions.
    """

    def transform(self, X: Any, *, epochs: Iterable[tuple[int, int]] | None = None) -> Any:
        model: Any = self
        return embed(model.encoder_, model._recording(X, epochs=epochs))


class XCEBRA(JointSessions, _Embedding):
    """Identifiable embeddings of neural activity, and attribution maps computed from them.

    An argument that is None takes the recipe's value or is chosen from the data. `config_` holds
    the values that were used.

    Parameters
    ----------
    label_dims : int, mapping or None
        Number of latents for the label, or for each label by name. None gives each label as many
        latents as it has columns.
    time_dims : int or None
        Number of latents in the time block, which holds what no label explains. 0 is supervised
        contrastive learning. None counts the patterns of activity that neurons share beyond the
        labels, from 0 to 8, on neurons and times that are left out; with ``recipe="paper"`` it
        is 4.
    jacobian_weight : float, "auto" or None
        Weight of the Jacobian penalty; it is divided by the temperature. ``"auto"`` searches,
        during training, for the highest weight at which every objective stays at its minimum.
        `history_` holds the weight at every step, and `config_` the weight at the end.
    objective : {"contrastive", "regression"}
        ``"regression"`` is the supervised baseline.
    steps, batch_size : int or None
        Number of training steps, and samples in each of them.
    learning_rate, temperature : float or None
        Learning rate of training, and temperature of the contrastive loss.
    distance : {"euclidean", "cosine"}
        Distance between points of the embedding in the contrastive loss.
    time_offset : int or None
        Number of samples between a reference and its positive in the time objective. Changes of a
        label are also taken over this many samples.
    time_on : {"all", "block"}
        Latents that the time objective acts on: all of them, or the time block alone.
    label_kind : str, mapping or None
        ``"continuous"``, ``"discrete"`` or ``"circular"``, for all labels or for each label by
        name. By default, labels of floats are continuous.
    label_delay : int or mapping
        Number of samples by which the label comes after the activity that it belongs to.
    window : int or None
        Number of samples that each point of the embedding is computed from. The window lies around
        the point's own sample and never crosses the border of an epoch. None chooses 1, or 3 or 5
        if averaging over as many samples lets one half of the neurons predict the other half
        better; with ``recipe="paper"`` it is 1.
    time_block : {"shared", "own"}
        Only for several sessions. ``"shared"``: the encoders of all sessions have the same layers
        except for the first one, and therefore one time block. ``"own"``: they share no layer, and
        each session has a time block of its own, with its own number of latents.
    session_weight : {"equal", "samples"}
        Only for several sessions: how many samples of each session are drawn in a training step.
        ``"equal"``: as many as in a fit to this session alone. ``"samples"``: in proportion to its
        length.
    recipe : {"xcebra", "paper"}
        Complete set of default values.
    device : str or None
        A torch device; None is the CPU.
    progress : bool or None
        Show a progress bar. None shows it in a terminal and in a notebook.
    random_state : int, RandomState or None
        Seed of everything that is drawn at random.

    Attributes
    ----------
    blocks_ : dict of str to slice
        Latents of each label and of time.
    history_ : dict of str to ndarray of shape (n_steps,)
        Losses, penalty and weight of the penalty at every training step.
    goodness_of_fit_ : dict of str to GoodnessOfFit
        Whether each objective was learned (``verdict``: yes, unclear or no), its held-out loss and
        the loss at chance, and how well each label is decoded from the activity on held-out time.
    config_ : dict
        The value that was used for every setting.
    encoder_ : Encoder
        The trained torch module, from raw activity to embedding.
    decoder_ : Decoder
        The torch module from embedding to expected activity.
    crossed_decoder_ : CrossedDecoder
        Two torch modules from labels and time latents to expected activity, fitted to alternate
        stretches of time. Default maps and tests are computed from them.
    variance_explained_ : dict of str to ndarray of shape (n_neurons,)
        Share of each neuron's variance that is explained on held-out time, by the labels and by
        latents that are read from the other neurons: ``"all"`` is the share of all blocks
        together, and the other keys are the shares of single blocks.
    deviance_explained_ : ndarray of shape (n_neurons,) or None
        The same as ``variance_explained_["all"]`` with the Poisson deviance in place of the
        variance. It is the better measure for neurons with few spikes. None if the activity is
        not counts.
    left_over_ : float
        Largest share of the neurons' variance in one lasting pattern of activity that the
        embedding does not hold. `attribute` warns if it is above 0.03, because a factor may then
        have no latent.
    readout_ : dict of str to Readout
        Linear map from each label's block to the label.
    mixture_ : dict of str to Mixture
        For each label, the mixture with the time block that the sparse basis undoes.
    sessions_ : dict of str to XCEBRA
        After a fit to several sessions, the model of each session by its name. It works as if it
        had been fitted to this session alone, and has all the attributes listed here. The joint
        model itself has `blocks_`, `history_`, `goodness_of_fit_`, `config_`, `controls_` and
        `label_info_`. Empty after a fit to one recording.
    controls_ : tuple of str
        Labels that were controlled for.
    neuron_names_ : tuple of str
    units_ : dict of str to ndarray of shape (n_neurons,)
        What the recording says of each neuron, such as its area.
    label_info_ : dict of str to LabelInfo
        What the recording says of each label.
    n_features_in_ : int
        Number of neurons.
    feature_names_in_ : ndarray of str
        Names of the columns of X. It exists only if X had names.

    Examples
    --------
    >>> import xcebra
    >>> rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2000)
    >>> model = xcebra.XCEBRA(time_dims=2, steps=20, random_state=0)
    >>> model.fit(rec.neural, rec.labels["z2"]).transform(rec.neural).shape
    (2000, 4)
    >>> model.blocks_
    {'label': slice(0, 2, None), 'time': slice(2, 4, None)}
    """

    def __init__(
        self,
        label_dims: int | Mapping[str, int] | None = None,
        time_dims: int | None = None,
        *,
        jacobian_weight: float | str | None = None,
        objective: ObjectiveName = "contrastive",
        steps: int | None = None,
        batch_size: int | None = None,
        learning_rate: float | None = None,
        temperature: float | None = None,
        distance: Distance = "euclidean",
        time_offset: int | None = None,
        time_on: TimeOn = "all",
        label_kind: str | Mapping[str, str] | None = None,
        label_delay: int | Mapping[str, int] = 0,
        window: int | None = None,
        time_block: TimeBlock = "shared",
        session_weight: SessionWeight = "equal",
        recipe: RecipeName = "xcebra",
        device: str | None = None,
        progress: bool | None = None,
        random_state: Any = None,
    ) -> None:
        self.label_dims = label_dims
        self.time_dims = time_dims
        self.jacobian_weight = jacobian_weight
        self.objective = objective
        self.steps = steps
        self.batch_size = batch_size
        self.learning_rate = learning_rate
        self.temperature = temperature
        self.distance = distance
        self.time_offset = time_offset
        self.time_on = time_on
        self.label_kind = label_kind
        self.label_delay = label_delay
        self.window = window
        self.time_block = time_block
        self.session_weight = session_weight
        self.recipe = recipe
        self.device = device
        self.progress = progress
        self.random_state = random_state

    def fit(
        self,
        X: Any,
        y: Any = None,
        *,
        label: str | Iterable[str] | None = None,
        control: Any = None,
        epochs: Iterable[tuple[int, int]] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[int, Encoder], None] | None = None,
    ) -> XCEBRA:
        """Train the encoder, then fit the decoders.

        Several sessions, which may have different neurons, are fitted together: a mapping from
        names to recordings, or a list of recordings. Each session gets an encoder of its own. Their
        embeddings of the labels are the same, because the positive of a sample is the sample with
        the most similar label in any session. A session may lack some of the labels. What follows
        after training is done for each session on its own; see `sessions_`.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
            One recording; or several sessions, as a mapping or a list of these.
        y : array-like of shape (n_times,) or (n_times, n_columns), DataFrame, mapping, or None
            One label, several by name, or None to learn from time alone. For several sessions, a
            mapping by the names of the sessions, or a list in their order.
        label : str or iterable of str, optional
            Labels of the Recording to use.
        control : str, iterable of str, or mapping, optional
            Labels that the neurons may follow and that you do not ask about, such as speed if you
            ask about position: names of labels of the Recording or of ``y``, or a mapping from
            names to data. They are learned and regressed along with the others. What a label adds
            is then what it adds beyond them.
        epochs : list of (start, stop), optional
            Uninterrupted stretches of time, as sample indices.
        checkpoint : path, optional
            File for the state of training. If the file exists, training continues from it, and
            the result is bitwise the same as that of a fit that was not interrupted. Finished
            sessions of a joint fit are written to files beside it.
        callback : callable, optional
            Called after every training step with the number of steps taken and the encoder, or a
            mapping from sessions to encoders. If it changes the encoder, training continues from
            the changed encoder.

        Returns
        -------
        XCEBRA
            The fitted estimator itself.
        """
        params = self.get_params(deep=False)
        settings.check_parameters(params)
        device = _device(self.device)
        if checkpoint is not None:
            if not isinstance(self.random_state, (int, np.integer)):
                raise InputError(
                    f"checkpoint needs random_state to be a number, got {self.random_state!r}: "
                    "another fit must take the same path to go on from it"
                )
            if not Path(checkpoint).parent.is_dir():
                raise FileNotFoundError(
                    f"checkpoint={str(checkpoint)!r}: there is no folder "
                    f"{str(Path(checkpoint).parent)!r}; make it first"
                )
        progress = self._shows_progress()
        path = None if checkpoint is None else Path(checkpoint)
        if is_several(X):
            self._refuse_epochs(epochs)
            with one_thread():
                self._fit_sessions(
                    X,
                    y,
                    label,
                    control,
                    device=device,
                    progress=progress,
                    checkpoint=path,
                    callback=callback,
                )
            return self
        y, label, controls = with_controls(X, y, label, control)
        recording = self._recording(X, y, label, epochs, reset=True)
        prepare_in_background(device)
        with one_thread():
            with phase("plan"):
                joint = make_joint_plan({"": recording}, params, controls)
            joint, encoders, history = train_encoders(
                {"": recording},
                joint,
                device=device,
                progress=progress,
                checkpoint=path,
                callback=None if callback is None else lambda step, nets: callback(step, nets[""]),
            )
            plan, encoder = joint.plans[""], encoders[""]
            fitted = fit_networks(recording, plan, encoder, history, progress=progress)
        self.sessions_: dict[str, XCEBRA] = {}
        self.__dict__.pop("shared_", None)  # of an earlier joint fit
        self._take(fitted, recording, params, device)
        return self

    def _take(
        self,
        fitted: Fitted,
        recording: Recording,
        params: Mapping[str, Any],
        device: torch.device,
    ) -> None:
        """Set the attributes of a fit to one recording."""
        decided = fitted.decisions
        arguments = {name: plain(value) for name, value in params.items()}
        self.decisions_ = decided
        self.config_ = {**arguments, **decided.settings(), "device": str(device)}
        self.blocks_ = dict(decided.blocks)
        self.controls_ = decided.controls
        self.neuron_names_ = recording.neuron_names
        self.units_ = dict(recording.units)
        self.label_info_ = dict(recording.label_info)
        for name in FITTED:
            setattr(self, f"{name}_", getattr(fitted, name))

    def _shows_progress(self) -> bool:
        return watched() if self.progress is None else bool(self.progress)

    def _torch_device(self) -> torch.device:
        return _device(self.device)

    def inverse_transform(self, Z: Any) -> NDArray[np.float32]:
        """Predict the activity of the neurons from points of the embedding.

        Parameters
        ----------
        Z : array-like of shape (n_times, n_latents)

        Returns
        -------
        ndarray of shape (n_times, n_neurons)
            Expected activity in the units of the recording, not standardised.
        """
        check_is_fitted(self)
        self._check_single("inverse_transform")
        points = check_array(Z, dtype=np.float32, input_name="Z")
        n_latents = max(block.stop for block in self.blocks_.values())
        if points.shape[1] != n_latents:
            raise InputError(
                f"Z has {points.shape[1]} columns, but the embedding has {n_latents} latents"
            )
        with torch.no_grad():
            parts = torch.from_numpy(points).split(_ROWS_AT_ONCE)
            return torch.cat([self.decoder_(z.to(self.decoder_.mean)).cpu() for z in parts]).numpy()

    def attribute(
        self,
        X: Any,
        y: Any = None,
        *,
        method: Method | None = None,
        aggregate: Aggregate = "mean",
        block: Any = None,
        basis: Basis | None = None,
        smooth: int | None = None,
        units: Units = "standardised",
        keep_time: bool | str | Path = False,
        epochs: Iterable[tuple[int, int]] | None = None,
        every: int = 1,
        batch_size: int | None = None,
        test: bool = False,
        refits: int = 0,
        controls: bool = True,
    ) -> Any:
        """Compute the attribution map of the samples in X.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        y : array-like, DataFrame or mapping, optional
            Labels, as for `fit`. They are used for the second opinion and for ``test``. The
            labels of a Recording are used if y is None.
        method : str or None
            ``"crossed-gradient"``: the change of each neuron's expected activity with the labels
            and with latents that are read without this neuron, as far as two decoders that were
            fitted to different stretches of time agree. A score is negative if their
            derivatives have opposite signs on average.
            ``"decoder-gradient"``: the change of each neuron's expected activity with each latent.
            ``"inverted-gradient"``: the method of the paper, the pseudo-inverse of the encoder's
            Jacobian.
            ``"gradient"``: the Jacobian itself. ``"integrated-gradients"``, ``"shap-zeros"``,
            ``"shap-shuffled"``, ``"feature-ablation"``: contributions of each neuron to each
            latent, compared with zero activity or with shuffled activity. None is the default of
            the recipe.
        aggregate : {"mean", "max", "sum", "median"}
            How absolute values are aggregated over time. The median needs ``keep_time=True``.
        block : str, slice, array-like or None
            What to attribute: the name of a block, a slice of latents, or directions of the
            embedding as an array of shape (n_directions, n_latents), which are made orthonormal in
            the order of the rows. None is the whole embedding.
        basis : {"raw", "label", "sparse"} or None
            Axes of the embedding. ``"raw"``: as learned. ``"label"``: inside a label's block,
            along the label's own columns. ``"sparse"``: label axes with the mixture of correlated
            factors undone. None is the default of the recipe.
        smooth : int or None
            Neighbours in the embedding over which each Jacobian is averaged; 1 is none. None is
            the recipe's number, fewer where there are few samples.
        units : {"standardised", "raw"}
            Units of the neurons: their standard deviation, or the units of the recording.
            Contributions have the unit of the latent and are the same in both.
        keep_time : bool or path
            Keep the map of every sample, in memory if it is small enough and otherwise in a
            temporary file; a path is the file to keep it in.
        epochs : list of (start, stop), optional
            Stretches of time to aggregate over.
        every : int
            Use every n-th sample only. Maps change slowly over time, and the computation is about
            n times faster.
        batch_size : int or None
            Number of samples computed at once. It changes speed and memory, not the map.
        test : bool
            Test whether each neuron is connected to each block, given all other blocks, for
            `AttributionMap.significant`. The test needs the labels.
        refits : int
            Only with ``test=True``: number of further fits to the same samples with other seeds.
            A connection must then hold in the median fit, and intervals include the differences
            between fits.
        controls : bool
            Only with ``test=True``: also test a few surrogate units, which cannot be connected:
            neurons shifted in time and shuffled neurons. If the test calls more of them connected
            than chance explains, no neuron is called connected.

        Returns
        -------
        AttributionMap
            For several sessions, a `PooledMaps` with the map of each of them.
        """
        check_is_fitted(self)
        if self.is_joint:
            self._refuse_epochs(epochs)
            return self._attribute_sessions(
                X,
                y,
                method=method,
                aggregate=aggregate,
                block=block,
                basis=basis,
                smooth=smooth,
                units=units,
                keep_time=keep_time,
                every=every,
                batch_size=batch_size,
                test=test,
                refits=refits,
                controls=controls,
            )
        recording = self._recording(X, epochs=epochs)
        problems: list[str] = []
        number(problems, "every", every, least=1, whole=True)
        number(problems, "refits", refits, least=0, whole=True)
        if refits and not test:
            text = f"refits={refits} are for the test: say test=True too"
            problems.append(Problem(text, "refits"))
        request, names = resolve(
            self._subject(),
            n_samples=recording.epochs.size,
            method=method,
            basis=basis,
            smooth=smooth,
            units=units,
            aggregate=aggregate,
            block=block,
            keep_time=keep_time,
            batch_size=batch_size,
            seed=self.decisions_.train.seed,
            problems=problems,
        )
        labels = self._labels(X, y, recording, required=test)
        if test:
            tested_samples(recording, labels)  # raises an error before any work if they are too few
        caveats: list[XcebraWarning] = []
        for caveat in map_warnings(self, recording, request, names.blocks):
            warnings.warn(caveat, stacklevel=2)
            caveats.append(caveat)
        source = self._source(recording, labels)
        with one_thread(), phase("map"):
            amap = self._map(source, recording, recording.epochs.indices()[::every], names, request)
        timed = X if isinstance(X, Recording) else recording
        known = {name: labels[name] for name in amap.blocks if name in labels}
        with one_thread(), phase("second opinion"):
            opinions = second_opinions(timed, known, recording.epochs.indices())
        for caveat in opposed(amap.scores, opinions):
            warnings.warn(caveat, stacklevel=2)
            caveats.append(caveat)
        amap = replace(
            amap,
            opinions=opinions,
            warnings=tuple(caveats),
            units=recording.units or self.units_,
            made={**amap.made, **self._label_facts(amap.blocks)},
        )
        if not test:
            return amap
        refitted = list(self._refitted(X, y, epochs, refits))
        with one_thread(), phase("test"):
            sources = [source, *(model._source(recording, labels) for model in refitted)]
            models = zip([self, *refitted], sources, strict=True)
            tests = [model._connections(one, controls) for model, one in models]
        connections = {
            name: merged([blocks[name] for blocks in tests])
            for name in amap.blocks
            if name in tests[0]
        }
        return replace(amap, connections=connections)

    def score(self, X: Any, y: Any = None) -> float:
        """Share of the labels' variance that is explained linearly by their blocks.

        The linear maps are those of the fit, `readout_`. Without labels, the score is the
        difference between the time loss at chance and the time loss, in nats.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        y : array-like, DataFrame, mapping, or None
            Labels, as for `fit`.

        Returns
        -------
        float
        """
        check_is_fitted(self)
        if self.is_joint:
            return self._score_sessions(X, y)
        recording = self._recording(X, y)
        embedding = embed(self.encoder_, recording)
        if not recording.labels:
            return self._time_score(embedding, recording)
        for name in recording.labels:
            if name not in self.readout_:
                raise InputError(
                    f"y has a label {name!r}, but the model was fitted with {list(self.readout_)}"
                )
        scores = []
        for name in recording.labels:
            block, points = self._known_points(name, embedding, recording)
            scores.append(r_squared(points, self.readout_[name].predict(block)))
        return float(np.mean(scores))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the latents: the block and a number inside the block."""
        check_is_fitted(self)
        return np.array(latent_names(self.blocks_), dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file; no incomplete file is left behind."""
        check_is_fitted(self)
        write_model(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | None = None) -> XCEBRA:
        """Read a model written by `save`; no code in the file is executed."""
        return read_model(path, cls, _device(device))

    def _repr_html_inner(self) -> str:
        return str(super()._repr_html_inner()) + self._verdict_html()

    def _repr_mimebundle_(self, **options: Any) -> dict[str, str]:
        bundle: dict[str, str] = super()._repr_mimebundle_(**options)
        if "text/html" in bundle:
            bundle["text/html"] += self._verdict_html()
        return bundle

    def _verdict_html(self) -> str:
        return fit_html(self.goodness_of_fit_) if hasattr(self, "goodness_of_fit_") else ""

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        tags.target_tags.required = False
        tags.transformer_tags.preserves_dtype = ["float32"]
        return tags

    def _recording(
        self,
        X: Any,
        y: Any = None,
        label: str | Iterable[str] | None = None,
        epochs: Iterable[tuple[int, int]] | None = None,
        *,
        reset: bool = False,
    ) -> Recording:
        """Turn data of any accepted form into one checked recording."""
        if isinstance(X, Recording):
            named_labels = dict(X.labels) if y is None and reset else as_labels(y)
            if label is not None:
                named_labels = chosen_labels(named_labels, label)
            elif reset and y is None and X.labels:
                raise which_labels(X)
            stretches = X.epochs if epochs is None else epochs
            neural, names = X.neural, X.neuron_names
            validate_data(self, neural[:1], reset=reset, ensure_all_finite=False)
            known = {n: info for n, info in X.label_info.items() if n in named_labels}
            return Recording(
                neural,
                named_labels,
                stretches,  # type: ignore[arg-type]
                names,
                overlap=X.overlap,
                units=X.units,
                label_info=known,
            )
        if label is not None:
            raise InputError(f"label={label!r} chooses from a Recording; pass arrays as y instead")
        checked = validate_data(
            self,
            X,
            reset=reset,
            dtype="numeric",
            ensure_all_finite=False,
            ensure_min_samples=2 if reset else 1,
        )
        names = getattr(self, "feature_names_in_", ()) if reset else self.neuron_names_
        return Recording(checked, as_labels(y), epochs, tuple(names))  # type: ignore[arg-type]

    def _session_recording(self, X: Any, y: Any, labels: list[str]) -> Recording:
        """Make the recording of one session of a joint fit, with some of its labels."""
        if isinstance(X, Recording) and y is None:
            return self._recording(X, label=labels, reset=True)
        known = as_labels(y)
        return self._recording(X, {name: known[name] for name in labels}, reset=True)

    def _known_points(
        self, name: str, embedding: NDArray[np.float32], recording: Recording
    ) -> tuple[NDArray[Any], NDArray[Any]]:
        """Return a label's block of the embedding, and the label, where it is known."""
        spec = self.decisions_.labels[name]
        values = recording.labels[name]
        label = delayed(make_label(name, values, spec), spec.delay, recording.epochs)
        return embedding[label.valid, self.blocks_[name]], label.points[label.valid]

    def _block_and_label(self, name: str, X: Any, y: Any) -> tuple[NDArray[Any], NDArray[Any]]:
        """Embed data, and return the block of a label and the label itself."""
        known = X.labels if y is None and isinstance(X, Recording) else as_labels(y)
        if name not in known:
            raise InputError(
                f"the label {name!r} is not given: pass y=..., or a Recording that has it", ("y",)
            )
        recording = self._recording(X, {name: known[name]})
        return self._known_points(name, embed(self.encoder_, recording), recording)

    def _tested(self, X: Any, y: Any, controls: bool) -> dict[str, Connections]:
        """Test the connections of a session."""
        recording = self._recording(X)
        source = self._source(recording, self._labels(X, y, recording))
        with one_thread():
            return self._connections(source, controls)

    def _labels(
        self, X: Any, y: Any, recording: Recording, *, required: bool = True
    ) -> dict[str, Label]:
        """Take the labels of the fit from the data and shift them by their delays.

        If labels are not required, those that are missing or that do not suit the model are left
        out.
        """
        source = X if y is None else self._recording(X, y)
        known = source.labels if isinstance(source, Recording) else {}
        missing = [name for name in self.readout_ if name not in known]
        if missing and required:
            raise InputError(
                f"test=True needs the labels {list(self.readout_)}, and {missing[0]!r} is not "
                "given: pass y=..., or a Recording that has it"
            )
        labels = {}
        for name in (name for name in self.readout_ if name in known):
            spec = self.decisions_.labels[name]
            try:
                label = make_label(name, known[name], spec)
            except ValueError:
                if required:
                    raise
            else:
                labels[name] = delayed(label, spec.delay, recording.epochs)
        return labels

    def _source(self, recording: Recording, labels: Mapping[str, Label]) -> Source | None:
        """Collect what a map of the crossed decoders is computed from, if there are any."""
        if self.crossed_decoder_ is None:  # a model of version 0.3
            return None
        time = self.blocks_.get("time")
        return Source(self.encoder_, self.decoder_, self.crossed_decoder_, recording, labels, time)

    def _subject(self) -> Subject:
        """Describe which maps this model can give, and its defaults."""
        recipe = self.decisions_.recipe
        return Subject(
            names=Names(self.neuron_names_, latent_names(self.blocks_), self.blocks_),
            method=recipe.method,
            basis=recipe.basis,
            smooth=recipe.smooth,
            cosine=self.decisions_.on_spheres,
            has_decoder=True,
            has_crossed_decoder=self.crossed_decoder_ is not None,
        )

    def _map(
        self,
        source: Source | None,
        recording: Recording,
        times: NDArray[np.int64],
        names: Names,
        request: MapRequest,
    ) -> AttributionMap:
        """Compute the requested map of the samples at ``times``."""
        if request.method != CROSSED:
            view = view_of_model(self.encoder_, self.decoder_, request.method, request.units)
            request = replace(request, axes=self._axes(request.basis, recording))
            return make_map(view, reader(self.encoder_, recording), times, names, request)
        assert source is not None  # models without it have no such method
        return make_crossed_map(
            source,
            times,
            names,
            self.blocks_,
            request,
            mixtures=self.mixture_ if request.basis == "sparse" else {},
            readouts=self.readout_,
            in_label_axes=request.basis != "raw",
            scale=self.encoder_.scale if request.units == "raw" else None,
        )

    def _label_facts(self, blocks: Iterable[str]) -> dict[str, Any]:
        """Return what a map keeps of its labels: their kinds, and which are controlled for."""
        kinds = {n: spec.kind for n, spec in self.decisions_.labels.items() if n in blocks}
        controls = [name for name in self.controls_ if name in blocks]
        return {
            **({"label_kinds": kinds} if kinds else {}),
            **({"controls": controls} if controls else {}),
        }

    def _axes(self, basis: str, recording: Recording) -> NDArray[np.float64] | None:
        """Axes of the embedding for methods that attribute its latents; None if as learned."""
        if basis == "raw":
            return None
        if basis == "label":
            return label_axes(self.readout_, self.blocks_)
        mixtures = fit_mixtures(
            self.encoder_, self.decoder_, recording, self.blocks_, self.readout_
        )
        return sparse_axes(self.readout_, mixtures, self.blocks_)

    def _connections(self, source: Source | None, controls: bool) -> dict[str, Connections]:
        """Test the connections to each block, in the axes of the default map."""
        if source is None:
            raise InputError(
                "test=True needs decoders that models of version 0.3 do not have; fit the model "
                "again"
            )
        seed = self.decisions_.train.seed
        return block_connections(source, self.blocks_, self.mixture_, controls=controls, seed=seed)

    def _refitted(self, X: Any, y: Any, epochs: Any, refits: int) -> Iterator[XCEBRA]:
        """Yield fits to the same samples with other seeds, one at a time."""
        label = list(self.readout_) if isinstance(X, Recording) else None
        control = list(self.controls_) or None
        seeds = np.random.default_rng(self.decisions_.train.seed).integers(2**31, size=refits)
        for seed in seeds.tolist():
            chosen = {name: self.config_[name] for name in ("time_dims", "window")}
            model: XCEBRA = clone(self).set_params(random_state=seed, **chosen)
            with warnings.catch_warnings():
                # The first fit has already given the warnings about these data.
                warnings.simplefilter("ignore", XcebraWarning)
                model.fit(X, y, label=label, control=control, epochs=epochs)
            yield model

    def _time_score(self, embedding: NDArray[np.float32], recording: Recording) -> float:
        """Difference between the time loss at chance and the time loss on a recording."""
        decided = self.decisions_
        if decided.time_latents is None:
            raise InputError("score needs y: this model was fitted to labels without a time block")
        pairs = TimeOffset(recording.epochs, decided.time_offset)
        objective = Objective("time", decided.time_latents, pairs)
        times = recording.epochs.indices()
        return margin(objective, torch.from_numpy(embedding)[times], times, decided.train)


def _device(name: str | None) -> torch.device:
    """The torch device with this name, or an error if it cannot be used."""
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device={name!r} cannot be used here: {error}") from None
    return device
