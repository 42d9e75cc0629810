"""All settings of a fit, as one value that is saved with the model.

The value includes the recipe. Therefore a saved model does not change if a later release changes a
default.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, replace
from typing import Any

from xcebra.common.choices import TimeOn
from xcebra.data.labels import LabelSpec
from xcebra.networks.decoder import DecoderConfig
from xcebra.training.loop import TrainConfig
from xcebra.training.settings import RECIPES, Recipe


@dataclass(frozen=True, kw_only=True, eq=False)
class Decisions:
    """The value of every setting of a fit.

    Parameters
    ----------
    recipe : Recipe
        The default values.
    train : TrainConfig
    decoder : DecoderConfig
    blocks : mapping of str to slice
        Latents of each label and of time.
    labels : mapping of str to LabelSpec
        Kind, delay and classes of each label.
    time_offset, window : int
        In samples.
    time_on : {"all", "block"}
    regression : bool
        Whether the objective is regression, the supervised baseline.
    n_components, n_training, n_held_out : int
    controls : tuple of str
        Labels that are controlled for, and not asked about.
    trained_latents : int or None
        Number of latents during training, if some were removed afterwards: those of labels that
        this session of a joint fit lacks.
    """

    recipe: Recipe
    train: TrainConfig
    decoder: DecoderConfig
    blocks: Mapping[str, slice]
    labels: Mapping[str, LabelSpec]
    time_offset: int
    window: int
    time_on: TimeOn
    regression: bool
    n_components: int
    n_training: int
    n_held_out: int
    controls: tuple[str, ...] = ()
    trained_latents: int | None = None

    @property
    def n_latents(self) -> int:
        """Number of latents of the embedding."""
        return max(block.stop for block in self.blocks.values())

    @property
    def on_spheres(self) -> bool:
        """Whether every block of the embedding has unit length."""
        return self.train.similarity == "cosine"

    @property
    def unit_blocks(self) -> list[slice] | None:
        """Blocks of unit length; None if the blocks are not scaled to unit length."""
        return list(self.blocks.values()) if self.on_spheres else None

    @property
    def time_latents(self) -> slice | None:
        """Latents that the time objective acts on; None if there is no time block."""
        time = self.blocks.get("time")
        if time is None:
            return None
        return slice(time.start if self.time_on == "block" else 0, self.n_latents)

    def settings(self) -> dict[str, Any]:
        """Return the settings as plain values, mostly named as the estimator's arguments."""
        dims = {name: block.stop - block.start for name, block in self.blocks.items()}
        return {
            **asdict(self.train),
            "time_offset": self.time_offset,
            "window": self.window,
            "time_on": self.time_on,
            "time_dims": dims.pop("time", 0),
            "label_dims": dims,
            "label_kind": {name: spec.kind for name, spec in self.labels.items()},
            "label_delay": {name: spec.delay for name, spec in self.labels.items()},
            "label_classes": {name: list(spec.classes or ()) for name, spec in self.labels.items()},
            "controls": list(self.controls),
            "objective": "regression" if self.regression else "contrastive",
            "exclude_self": self.recipe.exclude_self,
            "project": self.recipe.project,
            "limit": self.recipe.limit,
            "decoder_steps": self.decoder.steps,
            "decoder_learning_rate": self.decoder.learning_rate,
            "n_components": self.n_components,
            "n_training": self.n_training,
            "n_held_out": self.n_held_out,
            "random_state": self.train.seed,
        }

    def as_plain(self) -> dict[str, Any]:
        """Convert to values that can be written as JSON."""
        plain = {name: getattr(self, name) for name in self.__dataclass_fields__}
        plain["recipe"], plain["train"] = asdict(self.recipe), asdict(self.train)
        plain["decoder"] = asdict(self.decoder)
        plain["blocks"] = [[name, b.start, b.stop] for name, b in self.blocks.items()]
        plain["labels"] = [[name, asdict(spec)] for name, spec in self.labels.items()]
        return plain

    @classmethod
    def from_plain(cls, plain: Mapping[str, Any]) -> Decisions:
        """Convert back from the result of `as_plain`."""
        values = dict(plain)
        values["recipe"] = Recipe(**plain["recipe"])
        values["train"] = TrainConfig(**plain["train"])
        values["decoder"] = DecoderConfig(**plain["decoder"])
        values["blocks"] = {name: slice(a, b) for name, a, b in plain["blocks"]}
        values["labels"] = {name: _label_spec(**spec) for name, spec in plain["labels"]}
        values["controls"] = tuple(plain.get("controls", ()))
        return cls(**values)

    @classmethod
    def from_settings(cls, config: Mapping[str, Any], blocks: Mapping[str, slice]) -> Decisions:
        """Make the decisions of a model file of version 0.4.0 or earlier, which contains none.

        Parameters
        ----------
        config : mapping
            The settings in the file; see `settings`.
        blocks : mapping of str to slice
        """
        known = TrainConfig.__dataclass_fields__.keys() & config.keys()
        train = TrainConfig(**{name: config[name] for name in known})
        stored = {name: config[name] for name in ("limit", "exclude_self", "project")}
        names = ("label_kind", "label_delay", "label_classes")
        specs = {
            label: _label_spec(*(config[name][label] for name in names))
            for label in config["label_kind"]
        }
        return cls(
            recipe=replace(RECIPES[config["recipe"]], **stored),
            train=train,
            decoder=DecoderConfig(
                steps=config["decoder_steps"],
                batch_size=min(1024, config["n_training"]),
                learning_rate=config["decoder_learning_rate"],
                seed=train.seed,
            ),
            blocks=blocks,
            labels=specs,
            time_offset=config["time_offset"],
            window=config.get("window", 1),
            time_on=config["time_on"],
            regression=config["objective"] == "regression",
            n_components=config["n_components"],
            n_training=config["n_training"],
            n_held_out=config["n_held_out"],
        )


def _label_spec(kind: str, delay: int, classes: Any) -> LabelSpec:
    # JSON has no tuples: classes of several columns are lists in a file.
    known = tuple(tuple(c) if isinstance(c, list) else c for c in classes or ())
    return LabelSpec(kind, delay, known)
