"""XCEBRA: the scikit-learn face of the method."""

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

from xcebra.attribution import crossed_map
from xcebra.attribution.attribution_map import AttributionMap
from xcebra.attribution.connections import block_connections, tested_samples
from xcebra.attribution.crossed_map import Source, make_crossed_map
from xcebra.attribution.engine import make_map, view_of_model
from xcebra.attribution.label_axes import (
    fit_mixtures,
    fit_readouts,
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
    TimeOn,
    Units,
)
from xcebra.common.errors import InputError, Problem
from xcebra.common.progress import watched
from xcebra.common.rendering import fit_html
from xcebra.data.labels import Label, delayed, make_label
from xcebra.data.recording import Recording, as_labels
from xcebra.io.model_file import plain, read_model, write_model
from xcebra.metrics import r_squared
from xcebra.networks.crossed_decoder import fit_crossed_decoder, known_times
from xcebra.networks.decoder import fit_decoder
from xcebra.networks.encoder import Encoder, embed
from xcebra.networks.left_over import find_left_over
from xcebra.statistics.label_decoding import decode
from xcebra.statistics.second_opinion import opposed, second_opinions
from xcebra.statistics.significance import Connections, merged
from xcebra.training import settings
from xcebra.training.batches import Objective
from xcebra.training.goodness_of_fit import (
    GoodnessOfFit,
    autocorrelation_time,
    held_out_fit,
    margin,
    training_fit,
    with_decoding,
)
from xcebra.training.loop import train
from xcebra.training.plan import Plan, make_plan
from xcebra.training.sampling import TimeOffset

_ROWS_AT_ONCE = 16_384
# Samples a step for each of the two decoders: together as many as for the one of the embedding.
_CROSSED_BATCH = 512


class XCEBRA(TransformerMixin, BaseEstimator):
    """Identifiable embeddings of neural activity, and the attribution maps that follow from them.

    Every argument left at None takes the recipe's value or is chosen from the data; `config_` says
    what was used.

    Parameters
    ----------
    label_dims : int, mapping or None
        Latents for the label, or for each label by name; None gives each label its width.
    time_dims : int or None
        Latents for what no label explains; 0 is supervised contrastive learning. None counts the
        patterns that the neurons share beyond the labels, on neurons and times left out, from 0 to
        8; with ``recipe="paper"`` it is 4.
    jacobian_weight : float, "auto" or None
        Weight of the Jacobian penalty; it is divided by the temperature. ``"auto"`` looks, while
        training, for the highest at which every objective stays at its minimum: `history_` has its
        path, `config_` what was found.
    objective : {"contrastive", "regression"}
        ``"regression"`` is the supervised baseline.
    steps, batch_size : int or None
    learning_rate, temperature : float or None
    distance : {"euclidean", "cosine"}
    time_offset : int or None
        Samples between a reference and its positive in time, and length of a label's steps.
    time_on : {"all", "block"}
        Latents the time objective acts on: all of them, or the time block alone.
    label_kind : str, mapping or None
        ``"continuous"``, ``"discrete"`` or ``"circular"``, for all labels or by name. Floats are
        continuous unless said otherwise.
    label_delay : int or mapping
        Samples by which the label comes after the activity it belongs to.
    window : int or None
        Samples that each point of the embedding is read from, around its own and never across an
        epoch's edge. None takes 1, or 3 or 5 where averaging over as many samples lets one half of
        the neurons predict the other half better; with ``recipe="paper"`` it is 1.
    recipe : {"xcebra", "paper"}
    device : str or None
        A torch device; the CPU if not given.
    progress : bool or None
        Show a progress bar; None shows it where someone may be watching.
    random_state : int, RandomState or None

    Attributes
    ----------
    blocks_ : dict of str to slice
        Latents of each label and of time.
    history_ : dict of str to ndarray of shape (n_steps,)
    goodness_of_fit_ : dict of str to GoodnessOfFit
        Whether each objective was learned (``verdict``: yes, unclear or no), its held-out loss
        beside chance, and how well each label is decoded from the activity on held-out time.
    config_ : dict
        Every setting as resolved.
    encoder_ : Encoder
        The trained torch module, from raw activity to embedding.
    decoder_ : Decoder
        The torch module from embedding to expected activity.
    crossed_decoder_ : CrossedDecoder
        Two torch modules from labels and time latents to expected activity, fitted to alternate
        stretches of time: what maps and tests are made from.
    variance_explained_ : dict of str to ndarray of shape (n_neurons,)
        Share of each neuron's variance that is explained, each neuron by the labels and by what
        the other neurons know: ``"all"``, and what each block alone moves. On held-out time.
    deviance_explained_ : ndarray of shape (n_neurons,) or None
        For counts, the same as ``variance_explained_["all"]`` with Poisson's deviance in place of
        the variance, which rates of few spikes are better judged by.
    left_over_ : float
        Largest share of the neurons' variance in one pattern of activity that lasts, and that the
        embedding does not hold. `attribute` warns above 0.03: a factor may lack a latent.
    readout_ : dict of str to Readout
        Linear map from each label's block to the label.
    mixture_ : dict of str to Mixture
        For each label, the mixture with the time block that the sparse basis undoes.
    neuron_names_ : tuple of str
    n_features_in_ : int
    feature_names_in_ : ndarray of str
        Only if the input had names.

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
        epochs: Iterable[tuple[int, int]] | None = None,
        checkpoint: str | os.PathLike[str] | None = None,
        callback: Callable[[int, Encoder], None] | None = None,
    ) -> XCEBRA:
        """Train the encoder, then the decoder.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        y : array-like of shape (n_times,) or (n_times, n_columns), DataFrame, mapping, or None
            One label, several by name, or None to learn from time alone.
        label : str or iterable of str, optional
            Which of a Recording's labels to use.
        epochs : list of (start, stop), optional
            Uninterrupted stretches, in samples.
        checkpoint : path, optional
            Where to keep the state of training. A fit that finds the file goes on from it and ends
            with the same bits as one that was never stopped.
        callback : callable, optional
            Called after every step of training with the number of steps taken and the encoder, to
            watch it; what it changes in the encoder is trained on from there.
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
        recording = self._recording(X, y, label, epochs, reset=True)
        plan = make_plan(recording, params)
        decided = plan.decisions
        encoder = Encoder(
            plan.inputs,
            decided.n_latents,
            limit=decided.recipe.limit,
            window=decided.window,
            unit_blocks=decided.unit_blocks,
            generator=torch.Generator().manual_seed(decided.train.seed),
        ).to(device)
        progress = watched() if self.progress is None else bool(self.progress)
        history = train(
            encoder,
            recording,
            plan.training,
            plan.objectives(plan.training),
            decided.train,
            device=device,
            progress=progress,
            checkpoint=None if checkpoint is None else Path(checkpoint),
            fingerprint="" if checkpoint is None else plan.fingerprint(recording),
            callback=callback,
        )
        learn, stop_by, _ = plan.decoder_epochs()
        decoder = fit_decoder(
            encoder, plan.inputs, recording, learn, stop_by, decided.decoder, progress=progress
        )
        if decided.train.find_weight:
            # The search ends where it ends: from here on this is the weight.
            weight = float(history["weight"][-1])
            decided = replace(decided, train=replace(decided.train, jacobian_weight=weight))
        self.decisions_ = decided
        self.encoder_ = encoder
        self.history_ = history
        self.blocks_ = dict(decided.blocks)
        given = {name: plain(value) for name, value in params.items()}
        self.config_ = {**given, **decided.settings(), "device": str(device)}
        self.neuron_names_ = recording.neuron_names
        self.decoder_ = decoder
        left_over = find_left_over(encoder, decoder, recording, recording.epochs)
        self.left_over_ = left_over.share
        self.crossed_decoder_ = fit_crossed_decoder(
            encoder,
            decoder,
            plan.inputs,
            recording,
            plan.labels,
            decided.blocks.get("time"),
            left_over.directions,
            replace(decided.decoder, batch_size=min(_CROSSED_BATCH, decided.decoder.batch_size)),
            progress=progress,
        )
        source = self._source(recording, {each.name: each for each in plan.labels})
        times = known_times(recording.epochs, plan.labels, recording.n_times)
        self.variance_explained_ = crossed_map.variance_explained(
            source, times, decided.blocks, decided.train.seed
        )
        self.deviance_explained_ = crossed_map.deviance_explained(source, times)
        self.readout_ = fit_readouts(encoder, recording, plan)
        self.mixture_ = {}
        if not decided.on_spheres:
            # There is no constant mixture to undo on a sphere.
            self.mixture_ = crossed_map.fit_mixtures(source, times)
        self.goodness_of_fit_ = _judge(encoder, recording, plan, history)
        return self

    def transform(self, X: Any, *, epochs: Iterable[tuple[int, int]] | None = None) -> Any:
        """Embed activity.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        epochs : list of (start, stop), optional
            Windows do not reach across their borders. Every row is embedded, in an epoch or not.

        Returns
        -------
        ndarray of shape (n_times, n_latents)
            Label blocks first, then the time block.
        """
        check_is_fitted(self)
        return embed(self.encoder_, self._recording(X, epochs=epochs))

    def inverse_transform(self, Z: Any) -> NDArray[np.float32]:
        """The activity that the decoder expects for points of the embedding.

        Parameters
        ----------
        Z : array-like of shape (n_times, n_latents)

        Returns
        -------
        ndarray of shape (n_times, n_neurons)
            As recorded: not standardised.
        """
        check_is_fitted(self)
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
    ) -> AttributionMap:
        """Attribute the latents to the neurons, over the samples given.

        Parameters
        ----------
        X : array-like of shape (n_times, n_neurons), DataFrame or Recording
        y : array-like, DataFrame or mapping, optional
            Labels, as for `fit`, for the second opinion and ``test``; a Recording has its own.
        method : str or None
            ``"crossed-gradient"``: how each neuron's expected activity moves with the labels and
            with latents that are read without this neuron, where two decoders fitted to different
            stretches of time agree. A score is negative where they do not agree on anything.
            ``"decoder-gradient"``: how each neuron's expected activity moves with each latent.
            ``"inverted-gradient"``: the paper's, the pseudo-inverse of the encoder's Jacobian.
            ``"gradient"``: the Jacobian itself. ``"integrated-gradients"``, ``"shap-zeros"``,
            ``"shap-shuffled"``, ``"feature-ablation"``: contributions of each neuron to each
            latent, against zero activity or against shuffled entries. None is the recipe's best.
        aggregate : {"mean", "max", "sum", "median"}
            Over time, of absolute values; the median needs ``keep_time=True``.
        block : str, slice, array-like or None
            What to attribute: a block's name, latents, or directions of the embedding, of shape
            (n, n_latents), which are made orthonormal in order. None is everything.
        basis : {"raw", "label", "sparse"} or None
            Axes of the embedding: as learned; inside a label's block along the label's own
            columns; or those with the mixture undone that correlated factors make.
        smooth : int or None
            Neighbours in the embedding over which each Jacobian is averaged; 1 is none. None is
            the recipe's number, fewer where there are few samples.
        units : {"standardised", "raw"}
            Neurons in units of their standard deviation, or as recorded. Contributions have the
            unit of their latent, and do not change.
        keep_time : bool or path
            Keep the map of every sample, in memory or, if it is large or a path is given, in a
            file.
        epochs : list of (start, stop), optional
            Samples to aggregate over.
        every : int
            Use every n-th of them: maps change slowly, and that many times faster.
        batch_size : int or None
            Samples at a time; it changes speed and memory, not the map.
        test : bool
            Test every neuron's connection to every block, given all others, for
            `AttributionMap.significant`. It needs the labels.
        refits : int
            For the test: so many fits more, with other seeds, to the samples given. A connection
            then has to stand in the median fit, and intervals hold how fits differ.
        controls : bool
            For the test: carry a few units along that cannot be connected, copies of neurons moved
            in time and shuffled ones. If more of them than chance explains are called connected,
            no neuron is.
        """
        check_is_fitted(self)
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
            tested_samples(recording, labels)  # or an error, before any work
        caveats: list[XcebraWarning] = []
        for caveat in map_warnings(self, recording, request, names.blocks):
            warnings.warn(caveat, stacklevel=2)
            caveats.append(caveat)
        amap = self._map(recording, labels, recording.epochs.indices()[::every], names, request)
        timed = X if isinstance(X, Recording) else recording
        known = {name: labels[name] for name in amap.blocks if name in labels}
        opinions = second_opinions(timed, known, recording.epochs.indices())
        for caveat in opposed(amap.scores, opinions):
            warnings.warn(caveat, stacklevel=2)
            caveats.append(caveat)
        amap = replace(amap, opinions=opinions, warnings=tuple(caveats))
        if not test:
            return amap
        models = [self, *self._refitted(X, y, epochs, refits)]
        tests = [model._connections(recording, labels, controls) for model in models]
        connections = {
            name: merged([each[name] for each in tests]) for name in amap.blocks if name in tests[0]
        }
        return replace(amap, connections=connections)

    def score(self, X: Any, y: Any = None) -> float:
        """Variance of the labels explained linearly by their blocks, by the fit's own readout.

        Without labels, how far the time loss lies below chance, in nats.
        """
        check_is_fitted(self)
        recording = self._recording(X, y)
        embedding = embed(self.encoder_, recording)
        if not recording.labels:
            return self._time_score(embedding, recording)
        for name in recording.labels:
            if name not in self.readout_:
                raise InputError(
                    f"y has a label {name!r}, but the model was fitted with {list(self.readout_)}"
                )
        found = []
        for name, values in recording.labels.items():
            spec = self.decisions_.labels[name]
            each = delayed(make_label(name, values, spec), spec.delay, recording.epochs)
            predicted = self.readout_[name].predict(embedding[:, self.blocks_[name]])
            found.append(r_squared(each.points[each.valid], predicted[each.valid]))
        return float(np.mean(found))

    def get_feature_names_out(self, input_features: Any = None) -> NDArray[Any]:
        """Names of the latents: block and number."""
        check_is_fitted(self)
        return np.array(latent_names(self.blocks_), dtype=object)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the fitted model to one safetensors file, complete or not at all."""
        check_is_fitted(self)
        write_model(path, self)

    @classmethod
    def load(cls, path: str | os.PathLike[str], device: str | None = None) -> XCEBRA:
        """Read a model written by `save`; nothing in the file is executed."""
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
        """Whatever form the data has, as one checked recording."""
        if isinstance(X, Recording):
            named_labels = dict(X.labels) if y is None and reset else as_labels(y)
            if label is not None:
                named_labels = _chosen(named_labels, label)
            elif reset and y is None and X.labels:
                raise InputError(
                    f"the recording has labels {list(X.labels)}; say which to use with label=..., "
                    "or label=[] to learn from time alone"
                )
            given = X.epochs if epochs is None else epochs
            neural, names = X.neural, X.neuron_names
            validate_data(self, neural[:1], reset=reset, ensure_all_finite=False)
            return Recording(
                neural,
                named_labels,
                given,  # type: ignore[arg-type]
                names,
                overlap=X.overlap,
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

    def _labels(
        self, X: Any, y: Any, recording: Recording, *, required: bool = True
    ) -> dict[str, Label]:
        """The labels of the fit, as given with the data, moved by their delays.

        If they are not required, labels that are missing or do not fit the model are left out.
        """
        source = X if y is None else self._recording(X, y)
        given = source.labels if isinstance(source, Recording) else {}
        missing = [name for name in self.readout_ if name not in given]
        if missing and required:
            raise InputError(
                f"test=True needs the labels {list(self.readout_)}, and {missing[0]!r} is not "
                "given: pass y=..., or a Recording that has it"
            )
        found = {}
        for name in (name for name in self.readout_ if name in given):
            spec = self.decisions_.labels[name]
            try:
                label = make_label(name, given[name], spec)
            except ValueError:
                if required:
                    raise
            else:
                found[name] = delayed(label, spec.delay, recording.epochs)
        return found

    def _source(self, recording: Recording, labels: Mapping[str, Label]) -> Source:
        """What a map by the crossed decoders is made from."""
        time = self.blocks_.get("time")
        return Source(self.encoder_, self.decoder_, self.crossed_decoder_, recording, labels, time)

    def _subject(self) -> Subject:
        """What a map can be asked of this model."""
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
        recording: Recording,
        labels: Mapping[str, Label],
        times: NDArray[np.int64],
        names: Names,
        request: MapRequest,
    ) -> AttributionMap:
        """The map of some samples, as requested."""
        if request.method != CROSSED:
            view = view_of_model(self.encoder_, self.decoder_, request.method, request.units)
            request = replace(request, axes=self._axes(request.basis, recording))
            return make_map(view, reader(self.encoder_, recording), times, names, request)
        return make_crossed_map(
            self._source(recording, labels),
            times,
            names,
            self.blocks_,
            request,
            mixtures=self.mixture_ if request.basis == "sparse" else {},
            readouts=self.readout_,
            in_label_axes=request.basis != "raw",
            scale=self.encoder_.scale if request.units == "raw" else None,
        )

    def _axes(self, basis: str, recording: Recording) -> NDArray[np.float64] | None:
        """Axes of the embedding, for methods that attribute its latents."""
        if basis == "raw":
            return None
        if basis == "label":
            return label_axes(self.readout_, self.blocks_)
        mixtures = fit_mixtures(
            self.encoder_, self.decoder_, recording, self.blocks_, self.readout_
        )
        return sparse_axes(self.readout_, mixtures, self.blocks_)

    def _connections(
        self, recording: Recording, labels: Mapping[str, Label], controls: bool
    ) -> dict[str, Connections]:
        """Each block's connections, in the axes of the default map."""
        if self.crossed_decoder_ is None:
            raise InputError(
                "test=True needs decoders that models of version 0.3 do not have; fit the model "
                "again"
            )
        source = self._source(recording, labels)
        seed = self.decisions_.train.seed
        return block_connections(source, self.blocks_, self.mixture_, controls=controls, seed=seed)

    def _refitted(self, X: Any, y: Any, epochs: Any, refits: int) -> Iterator[XCEBRA]:
        """Fits to the same samples that differ in their seed alone, one at a time."""
        label = list(self.readout_) if isinstance(X, Recording) else None
        seeds = np.random.default_rng(self.decisions_.train.seed).integers(2**31, size=refits)
        for seed in seeds.tolist():
            chosen = {name: self.config_[name] for name in ("time_dims", "window")}
            model: XCEBRA = clone(self).set_params(random_state=seed, **chosen)
            with warnings.catch_warnings():
                # What the data speaks against was said at the first fit.
                warnings.simplefilter("ignore", XcebraWarning)
                model.fit(X, y, label=label, epochs=epochs)
            yield model

    def _time_score(self, embedding: NDArray[np.float32], recording: Recording) -> float:
        """How far the time loss lies below chance, on the samples given."""
        decided = self.decisions_
        if decided.time_latents is None:
            raise InputError("score needs y: this model was fitted to labels without a time block")
        pairs = TimeOffset(recording.epochs, decided.time_offset)
        objective = Objective("time", decided.time_latents, pairs)
        times = recording.epochs.indices()
        return margin(objective, torch.from_numpy(embedding)[times], times, decided.train)


def _judge(
    encoder: Encoder,
    recording: Recording,
    plan: Plan,
    history: Mapping[str, NDArray[np.float64]],
) -> dict[str, GoodnessOfFit]:
    """Goodness of fit of each objective, on held-out samples if there are any.

    Labels are decoded from the whole recording, each part of it held out in turn.
    """
    result = {name: training_fit(name, history) for name in plan.decisions.blocks}
    if plan.held_out is not None:
        times = plan.held_out.indices()
        embedding = torch.from_numpy(embed(encoder, recording, times))
        series = {each.name: each.points[times][each.valid[times]] for each in plan.labels}
        for objective in plan.objectives(plan.held_out):
            followed = series.get(objective.name, embedding[:, objective.block].numpy())
            slowness = autocorrelation_time(followed)
            result[objective.name] = held_out_fit(
                objective, embedding, times, plan.decisions.train, slowness
            )
    decided = plan.decisions
    for label in plan.labels:
        decoding = decode(recording, label, window=decided.window, seed=decided.train.seed)
        result[label.name] = with_decoding(result[label.name], decoding)
    return result


def _chosen(labels: Mapping[str, Any], names: str | Iterable[str]) -> dict[str, Any]:
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in labels:
            raise InputError(f"label must name labels of {list(labels)}, got {name!r}")
    return {name: labels[name] for name in wanted}


def _device(name: str | None) -> torch.device:
    try:
        device = torch.device(name or "cpu")
        torch.empty(0, device=device)
    except (RuntimeError, AssertionError, TypeError) as error:
        raise InputError(f"device={name!r} cannot be used here: {error}") from None
    return device
