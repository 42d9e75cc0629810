"""Write a fitted model to one file, and read it."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from glob import escape
from pathlib import Path
from typing import Any, TypeVar

import numpy as np
import torch

from xcebra.attribution.label_axes import Readout
from xcebra.attribution.sparse_basis import Mixture
from xcebra.common.errors import InputError
from xcebra.common.tensor_file import read_tensors, under, write_tensors
from xcebra.data.label_info import NOTHING_KNOWN, infos_from_plain, plain_infos
from xcebra.data.units import plain_units, units_from_plain
from xcebra.networks.crossed_decoder import CrossedDecoder, LabelColumns
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, Inputs
from xcebra.statistics.label_decoding import Decoding
from xcebra.training.decisions import Decisions
from xcebra.training.goodness_of_fit import GoodnessOfFit

_KIND = "xcebra-model"
# Kind of the files that hold one finished session of a joint fit that is still running.
_PART_KIND = "xcebra-session"
# Arrays of each label's axes, and arrays and numbers of each mixture, by their names in the file.
_READOUT = ("weights", "intercept", "spread")
_MIXTURE = ("weights", "before", "after")
_MIXTURE_NUMBERS = ("gap", "n_unconnected", "instability", "n_before")

Model = TypeVar("Model")


def write_model(path: str | os.PathLike[str], model: Any) -> None:
    """Write everything that a fitted estimator has learned, and its settings."""
    if not model.is_joint:
        tensors, header = _tensors_and_header(model)
    else:
        tensors, header = _joint_tensors_and_header(model)
    write_tensors(path, _KIND, tensors, header)


def read_model(path: str | os.PathLike[str], cls: type[Model], device: torch.device) -> Model:
    """Read a fitted estimator of class ``cls`` from a file.

    Parameters
    ----------
    path : path
    cls : type
        Class of the estimator, `xcebra.XCEBRA` or a class derived from it.
    device : torch.device
        Where the networks are put.
    """
    tensors, header = read_tensors(path, _KIND)
    if "sessions" not in header:
        return _model(tensors, header, cls, device)
    return _joint_model(tensors, header, cls, device)


@dataclass(eq=False)
class ModelStore:
    """Finished sessions of a joint fit, in files beside its checkpoint.

    Parameters
    ----------
    checkpoint : Path
        The checkpoint of the training. The files of the sessions have its name, with a number.
    fingerprint : str
        Digest of the fit. Files of other fits are not used.
    sessions : list of str
        Names of all sessions.
    finished : list of str
        Names of the sessions that `load` has read.
    """

    checkpoint: Path
    fingerprint: str
    sessions: list[str]
    finished: list[str] = field(default_factory=list)

    def load(self, cls: type[Model], device: torch.device) -> dict[str, Model]:
        """Read the sessions that are finished."""
        models = {}
        for name in self.sessions:
            path = self._path(name)
            if not path.is_file():
                continue
            try:
                tensors, header = read_tensors(path, _PART_KIND)
            except InputError:
                continue  # The session is fitted again, and the file is replaced.
            if header["fingerprint"] == self.fingerprint and header["session"] == name:
                models[name] = _model(tensors, header["model"], cls, device)
                self.finished.append(name)
        return models

    def save(self, name: str, model: Any) -> None:
        """Write the model of a session that is finished."""
        tensors, header = _tensors_and_header(model)
        part = {"fingerprint": self.fingerprint, "session": name, "model": header}
        write_tensors(self._path(name), _PART_KIND, tensors, part)

    def _path(self, name: str) -> Path:
        number = self.sessions.index(name)
        return self.checkpoint.with_name(f"{self.checkpoint.name}-session{number}.safetensors")


def remove_checkpoint(checkpoint: Path) -> None:
    """Remove a checkpoint and the files of finished sessions beside it."""
    checkpoint.unlink(missing_ok=True)
    for path in checkpoint.parent.glob(f"{escape(checkpoint.name)}-session*.safetensors"):
        path.unlink(missing_ok=True)


def _joint_tensors_and_header(model: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    tensors = {f"history/{k}": torch.from_numpy(v) for k, v in model.history_.items()}
    sessions = []
    for i, (name, session) in enumerate(model.sessions_.items()):
        own, header = _tensors_and_header(session)
        # Sessions share their history, but a file has no shared tensors.
        tensors |= {f"session/{i}/{k}": v.clone() for k, v in own.items()}
        sessions.append([name, header])
    if model.shared_ is not None:
        tensors |= {f"shared/{k}": v for k, v in model.shared_.state_dict().items()}
    header = {
        "params": {k: plain(v) for k, v in model.get_params(deep=False).items()},
        "decisions": model.decisions_.as_plain(),
        "history": list(model.history_),
        "sessions": sessions,
        "is_shared": model.shared_ is not None,
    }
    return tensors, header


def _joint_model(
    tensors: Mapping[str, torch.Tensor],
    header: Mapping[str, Any],
    cls: type[Model],
    device: torch.device,
) -> Model:
    model: Any = cls(**{**header["params"], "device": str(device)})
    model.sessions_ = {
        name: _model(under(tensors, f"session/{i}/"), own, cls, device)
        for i, (name, own) in enumerate(header["sessions"])
    }
    decided = Decisions.from_plain(header["decisions"])
    model.history_ = {name: tensors[f"history/{name}"].numpy() for name in header["history"]}
    model.shared_ = None
    if header["is_shared"]:
        layers = Encoder.later_layers(
            decided.n_latents, limit=decided.recipe.limit, unit_blocks=decided.unit_blocks
        )
        layers.load_state_dict(under(tensors, "shared/"))
        model.shared_ = layers.to(device).requires_grad_(False)
    model._take_joint(decided, header["params"], device)
    return model


def _tensors_and_header(model: Any) -> tuple[dict[str, torch.Tensor], dict[str, Any]]:
    """Return the tensors and the header of a model of one session."""
    tensors = {f"encoder/{k}": v for k, v in model.encoder_.state_dict().items()}
    tensors |= {f"history/{k}": torch.from_numpy(v) for k, v in model.history_.items()}
    for name, readout in model.readout_.items():
        tensors[f"weights/{name}"] = torch.from_numpy(readout.weights)
        tensors[f"intercept/{name}"] = torch.from_numpy(readout.intercept)
        tensors[f"spread/{name}"] = torch.from_numpy(readout.spread)
    tensors |= {f"decoder/{k}": v for k, v in model.decoder_.state_dict().items()}
    for name, share in model.variance_explained_.items():
        tensors[f"variance/{name}"] = torch.from_numpy(share)
    if model.deviance_explained_ is not None:
        tensors["deviance"] = torch.from_numpy(model.deviance_explained_)
    for name, mixture in model.mixture_.items():
        for part in (*_MIXTURE, "bends"):
            tensors[f"mixture/{name}/{part}"] = torch.from_numpy(getattr(mixture, part))
    crossed = model.crossed_decoder_
    if crossed is not None:
        tensors |= {f"crossed/{k}": v for k, v in crossed.state_dict().items()}
    names = getattr(model, "feature_names_in_", None)
    header = {
        "params": {k: plain(v) for k, v in model.get_params(deep=False).items()},
        "config": model.config_,
        "decisions": model.decisions_.as_plain(),
        "goodness_of_fit": {k: asdict(v) for k, v in model.goodness_of_fit_.items()},
        "history": list(model.history_),
        "variance_explained": list(model.variance_explained_),
        "left_over": model.left_over_,
        "mixture": {
            name: {part: getattr(mixture, part) for part in _MIXTURE_NUMBERS}
            for name, mixture in model.mixture_.items()
        },
        "crossed": None if crossed is None else _plain_labels(crossed),
        "neuron_names": list(model.neuron_names_),
        "units": plain_units(model.units_),
        "label_info": plain_infos(model.label_info_),
        "feature_names_in": None if names is None else list(names),
    }
    return tensors, header


def _model(
    tensors: Mapping[str, torch.Tensor],
    header: Mapping[str, Any],
    cls: type[Model],
    device: torch.device,
) -> Model:
    """Make a fitted estimator of one session from its tensors and its header."""
    model: Any = cls(**{**header["params"], "device": str(device)})
    model.config_ = {**header["config"], "device": str(device)}
    if "decisions" in header:
        model.decisions_ = Decisions.from_plain(header["decisions"])
    else:  # format 2, of version 0.4.0 and earlier
        blocks = {name: slice(a, b) for name, a, b in header["blocks"]}
        model.decisions_ = Decisions.from_settings(header["config"], blocks)
    decided = model.decisions_
    model.blocks_ = dict(decided.blocks)
    # The file sorts its tensors by name; their original order is in the header.
    model.history_ = {name: tensors[f"history/{name}"].numpy() for name in header["history"]}
    model.goodness_of_fit_ = {
        name: _goodness_of_fit(fields) for name, fields in header["goodness_of_fit"].items()
    }
    model.readout_ = {
        name: Readout(*(tensors[f"{part}/{name}"].numpy() for part in _READOUT))
        for name in model.blocks_
        if name != "time"
    }
    model.variance_explained_ = {
        name: tensors[f"variance/{name}"].numpy() for name in header["variance_explained"]
    }
    model.deviance_explained_ = tensors["deviance"].numpy() if "deviance" in tensors else None
    model.left_over_ = header["left_over"]
    model.mixture_ = {}
    for name, numbers in header["mixture"].items():
        arrays: dict[str, Any] = {
            part: tensors[f"mixture/{name}/{part}"].numpy() for part in _MIXTURE
        }
        # Models of version 0.3 have no bends.
        bends = tensors.get(f"mixture/{name}/bends", torch.zeros(len(arrays["weights"])))
        model.mixture_[name] = Mixture(**arrays, **numbers, bends=bends.numpy())
    state = under(tensors, "encoder/")
    inputs = Inputs(*(state[k].double().numpy() for k in ("mean", "scale", "loadings")))
    model.encoder_ = Encoder(
        inputs,
        decided.n_latents,
        limit=decided.recipe.limit,
        window=decided.window,
        unit_blocks=decided.unit_blocks,
        trained_latents=decided.trained_latents,
    )
    model.encoder_.load_state_dict(state)
    model.encoder_.to(device)
    unit = torch.ones(decided.n_latents)
    model.decoder_ = Decoder(inputs, unit, unit, unit_blocks=decided.unit_blocks)
    model.decoder_.load_state_dict(under(tensors, "decoder/"))
    model.decoder_.to(device)
    model.crossed_decoder_ = None
    if header.get("crossed") is not None:
        model.crossed_decoder_ = _crossed(under(tensors, "crossed/"), header["crossed"]).to(device)
    model.neuron_names_ = tuple(header["neuron_names"])
    # Models of version 0.4.0 and earlier know nothing of units and labels.
    model.units_ = units_from_plain(header.get("units", {}))
    infos = infos_from_plain(header.get("label_info", {}))
    model.label_info_ = {n: infos.get(n, NOTHING_KNOWN) for n in model.blocks_ if n != "time"}
    model.controls_ = decided.controls
    model.n_features_in_ = len(state["mean"])
    if header["feature_names_in"] is not None:
        model.feature_names_in_ = np.array(header["feature_names_in"], dtype=object)
    return model


def _plain_labels(decoder: CrossedDecoder) -> list[list[Any]]:
    return [
        [label.name, label.kind, label.columns.start, label.columns.stop]
        for label in decoder.labels
    ]


def _crossed(state: Mapping[str, torch.Tensor], labels: list[list[Any]]) -> CrossedDecoder:
    fixed = {name: values for name, values in state.items() if not name.startswith("members.")}
    columns = [LabelColumns(name, kind, slice(a, b)) for name, kind, a, b in labels]
    decoder = CrossedDecoder(fixed, columns)
    decoder.load_state_dict(dict(state))
    return decoder


def _goodness_of_fit(fields: Mapping[str, Any]) -> GoodnessOfFit:
    """Make a goodness of fit from plain values.

    In files of version 0.3, the only p-value is that of the loss.
    """
    arguments = {"loss_p_value": fields.get("p_value"), **fields}
    arguments["nulls"] = tuple(fields.get("nulls", ()))
    if arguments.get("decoding") is not None:
        decoding = arguments["decoding"]
        arguments["decoding"] = Decoding(**{**decoding, "nulls": tuple(decoding["nulls"])})
    return GoodnessOfFit(**arguments)


def plain(value: Any) -> Any:
    """Return a parameter as a value that JSON can hold; anything else becomes None.

    A random generator, for instance, is not kept.
    """
    if isinstance(value, Mapping):
        return {str(k): plain(v) for k, v in value.items()}
    if isinstance(value, np.generic):
        return value.item()
    return value if isinstance(value, (str, int, float, bool, type(None))) else None
