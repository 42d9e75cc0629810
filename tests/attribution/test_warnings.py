"""A map that should not be believed says so: encoders broken on purpose, one way each."""

import copy
import warnings
from dataclasses import replace

import numpy as np
import pytest
import torch

import xcebra
from xcebra import XCEBRA
from xcebra.caveats import (
    CollapsedEmbeddingWarning,
    DuplicateNeuronWarning,
    IllConditionedWarning,
    MissingFactorWarning,
    SaturatedOutputWarning,
    XcebraWarning,
)


@pytest.fixture(scope="module")
def fitted():
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=5_000, noise=0.2, seed=300)
    model = XCEBRA(2, 2, steps=100, batch_size=256, random_state=0, progress=False)
    return rec, model.fit(rec.neural, rec.labels["z2"])


def broken(model, change):
    """A copy whose last linear layer was changed."""
    other = copy.deepcopy(model)
    layer = other.encoder_.network[-2]
    assert isinstance(layer, torch.nn.Linear)
    with torch.no_grad():
        change(layer)
    return other


def told(model, rec, **options):
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        model.attribute(rec.neural[:1000], **options)
    return {each.category: str(each.message) for each in given}


@pytest.mark.parametrize("method", [None, "decoder-gradient", "inverted-gradient", "gradient"])
def test_a_good_fit_has_nothing_to_say(fitted, method):
    rec, model = fitted
    assert told(model, rec, method=method) == {}


def test_outputs_at_their_bound_are_told(fitted):
    rec, model = fitted

    def grow(layer):
        layer.weight[1] *= 100

    found = told(broken(model, grow), rec, method="gradient")
    assert set(found) == {SaturatedOutputWarning}
    message = found[SaturatedOutputWarning]
    assert message.startswith("latent 1 lies at the bound")
    assert f"lower temperature, to {model.config_['temperature'] / 4:.2g}" in message


def test_a_direction_that_hardly_moves_is_told_where_it_is_inverted(fitted):
    rec, model = fitted

    def shrink(layer):
        layer.weight[0] *= 1e-3

    weak = broken(model, shrink)
    assert "times weaker" in told(weak, rec, method="inverted-gradient")[IllConditionedWarning]
    assert told(weak, rec, method="gradient") == {}


def test_the_length_of_unit_blocks_is_not_taken_for_a_weak_direction(fitted, short_decoders):
    rec, _ = fitted
    model = XCEBRA(
        3, 3, distance="cosine", steps=60, batch_size=256, random_state=0, progress=False
    )
    model.fit(rec.neural, rec.labels["z2"])
    assert IllConditionedWarning not in told(model, rec, method="inverted-gradient")


def test_copies_of_a_neuron_are_told_by_all_methods_but_the_decoder_s(fitted, full_decoders):
    rec, _ = fitted
    twice = np.column_stack([rec.neural, 3 * rec.neural[:, 7] + 1])
    model = XCEBRA(2, 2, steps=20, batch_size=256, random_state=0, progress=False)
    with full_decoders():
        model.fit(twice, rec.labels["z2"])
    with pytest.warns(DuplicateNeuronWarning, match=r"neurons 7 and 50 are nearly the same"):
        model.attribute(twice[:1000], method="gradient")
    with warnings.catch_warnings():
        warnings.simplefilter("error", DuplicateNeuronWarning)
        model.attribute(twice[:1000])


def test_latents_that_hold_nothing_are_told_for_their_block_alone(fitted):
    rec, model = fitted
    flat = copy.copy(model)
    fits = model.goodness_of_fit_
    flat.goodness_of_fit_ = {**fits, "label": replace(fits["label"], collapsed=1)}
    embedding = {"method": "decoder-gradient"}
    message = told(flat, rec, **embedding)[CollapsedEmbeddingWarning]
    assert "embedding of 'label' has 1 direction in" in message
    assert told(flat, rec, block="time", **embedding) == {}
    assert set(told(flat, rec, block=slice(0, 1), **embedding)) == {CollapsedEmbeddingWarning}


def test_a_map_of_the_label_itself_does_not_mind_what_its_block_holds(fitted):
    rec, model = fitted
    flat = copy.copy(model)
    fits = model.goodness_of_fit_
    flat.goodness_of_fit_ = {**fits, "label": replace(fits["label"], collapsed=1)}
    assert told(flat, rec) == {}


def test_a_missing_factor_is_told_and_fewer_latents_are_not_advised_beside_it(fitted):
    rec, model = fitted
    lacking = copy.copy(model)
    lacking.left_over_ = 0.2
    fits = model.goodness_of_fit_
    lacking.goodness_of_fit_ = {**fits, "time": replace(fits["time"], collapsed=1)}
    for method in (None, "decoder-gradient"):
        found = told(lacking, rec, method=method)
        assert set(found) == {MissingFactorWarning}
        assert (
            "one pattern of activity holds 20% of the neurons' variance"
            in (found[MissingFactorWarning])
        )


def test_every_warning_has_a_parent_that_silences_it():
    import xcebra.caveats as caveats

    kinds = [each for each in vars(caveats).values() if isinstance(each, type)]
    assert len(kinds) > 12
    assert all(issubclass(each, XcebraWarning) for each in kinds)
