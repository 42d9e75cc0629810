"""Maps of two decoders whose networks are set by hand: every score is known."""

import copy
import math
from functools import partial

import numpy as np
import pytest
import torch
from crossed_case import NEURONS, TIME, TIMES, N, case, plain, rows_of, whole
from scipy.stats import spearmanr

from xcebra.attribution import crossed_derivatives, crossed_map, crossed_mixtures
from xcebra.attribution.crossed_map import (
    make_crossed_map,
    signed_root,
)
from xcebra.attribution.crossed_mixtures import fit_crossed_mixtures
from xcebra.attribution.label_axes import Readout
from xcebra.attribution.request import MapRequest, Names, choose, latent_names
from xcebra.attribution.sparse_basis import Mixture

# Scores


def test_the_signed_root_keeps_the_sign_and_undoes_the_square():
    values = np.array([-4.0, -0.25, 0.0, 0.25, 9.0])
    assert signed_root(values).tolist() == [-2.0, -0.5, 0.0, 0.5, 3.0]


def asked(source, *, readouts=None, block=None, mixtures=None, label_dims=None, axes=True, **told):
    blocks, at = {}, 0
    for label in source.decoder.labels:
        own = label.columns.stop - label.columns.start
        width = (label_dims or {}).get(label.name, own)
        blocks[label.name] = slice(at, at + width)
        at += width
    if source.time_block is not None:
        blocks["time"] = slice(at, at + len(source.decoder.latent_mean))
    names = Names(source.recording.neuron_names, latent_names(blocks), blocks)
    select, chosen = choose(names, block)
    scale = told.pop("scale", None)
    times = told.pop("times", TIMES)
    options = MapRequest(method="crossed-gradient", select=select, **told)
    return make_crossed_map(
        source,
        times,
        chosen,
        blocks,
        options,
        mixtures=mixtures or {},
        readouts=readouts or {},
        in_label_axes=axes,
        scale=scale,
    )


def test_scores_and_values_are_signed_roots_of_mean_products():
    source = case("position", "heading", told=True)
    first, second = whole(source, TIMES).astype(np.float64)
    found = asked(source)
    products = (first * second).mean(axis=0)
    np.testing.assert_allclose(
        found.values, np.maximum(signed_root(products), 0), rtol=1e-4, atol=1e-5
    )
    assert (products < 0).any()
    for name, columns in {"position": [0, 1], "heading": [2, 3], "time": [4, 5]}.items():
        np.testing.assert_allclose(
            np.sign(found.block(name)) * found.block(name) ** 2,
            products[:, columns].sum(axis=1),
            rtol=1e-4,
            atol=1e-5,
        )
    assert found.made["method"] == "crossed-gradient"
    assert found.made["n_samples"] == len(TIMES)


def test_two_decoders_that_agree_give_the_root_mean_square():
    weights = np.random.default_rng(0).standard_normal((NEURONS, 4))
    source = case("heading", members=[weights, weights])
    found = asked(source)
    one = whole(source, TIMES)[0]
    expected = np.sqrt(np.square(one).sum(axis=2).mean(axis=0))[:, None]
    by_block = np.sqrt(np.square(one[..., :2]).sum(axis=2).mean(axis=0))
    np.testing.assert_allclose(found.block("heading"), by_block, rtol=1e-5)
    both = np.hypot(found.block("heading"), found.block("time"))
    np.testing.assert_allclose(both[:, None], expected, rtol=1e-5)


def test_two_decoders_that_contradict_each_other_give_its_negative():
    weights = np.random.default_rng(0).standard_normal((NEURONS, 4))
    agree, contradict = (
        asked(case("position", members=[weights, sign * weights])) for sign in (1, -1)
    )
    for name in ("position", "time"):
        np.testing.assert_allclose(contradict.block(name), -agree.block(name), rtol=1e-5)
        assert (agree.block(name) > 0).all()
    assert not contradict.values.any()


def test_scores_of_noise_lie_around_zero_on_both_sides():
    """Independent weights of variance 1: products have mean 0 and variance (number of columns)."""
    rng = np.random.default_rng(0)
    n = 400
    weights = rng.standard_normal((2, n, 3))
    source = case("position", n_neurons=n, n_time=1, members=weights, n=60)
    unit = whole(source, np.arange(5))[0, 0] / weights[0]  # what the columns are multiplied by
    found = asked(source, times=np.arange(0, 60, 10))
    squared = np.sign(found.block("position")) * found.block("position") ** 2
    expected = (weights[0] * weights[1] * np.square(unit))[:, :2].sum(axis=1)
    np.testing.assert_allclose(squared, expected, rtol=1e-3, atol=1e-5)
    assert abs(squared.mean()) < 3 * squared.std() / math.sqrt(n)
    assert 0.4 < (squared > 0).mean() < 0.6
    # A norm of one decoder's derivatives would put every one of them far above zero.
    assert np.linalg.norm(weights[0, :, :2] * unit[:, :2], axis=1).min() > 0


def test_how_well_the_halves_agree_is_the_rank_correlation_of_the_scores_of_each_alone():
    source = case("position", n_neurons=12)
    found = asked(source).made["halves_agree"]
    one = np.square(whole(source, TIMES))
    for name, columns in {"position": slice(0, 2), "time": slice(2, 4)}.items():
        alone = one[..., columns].sum(axis=(1, 3))
        assert found[name] == pytest.approx(spearmanr(*alone).statistic, abs=1e-3)
    weights = np.random.default_rng(0).standard_normal((NEURONS, 4))
    same = asked(case("position", members=[weights, -weights])).made["halves_agree"]
    assert same == {"position": 1.0, "time": 1.0}


def test_neurons_as_recorded_are_in_their_own_units():
    source = case("position", "odour")
    scale = source.encoder.scale
    standardised, recorded = asked(source), asked(source, scale=scale)
    np.testing.assert_allclose(
        recorded.values, standardised.values * scale.numpy()[:, None], rtol=1e-4, atol=1e-6
    )
    for name in ("position", "odour", "time"):
        np.testing.assert_allclose(
            recorded.block(name), standardised.block(name) * scale.numpy(), rtol=1e-4
        )


@pytest.mark.parametrize("name", ["position", "heading", "time"])
def test_a_block_by_name_is_that_part_of_the_map(name):
    source = case("position", "heading")
    everything, one = asked(source), asked(source, block=name)
    assert list(one.blocks) == [name]
    shown = everything.values[:, everything.blocks[name]]
    # Means of products are computed in single precision. Their root makes errors near zero larger.
    np.testing.assert_allclose(one.values**2, shown**2, rtol=1e-5, atol=1e-7)
    np.testing.assert_array_equal(one.block(name), everything.block(name))


def test_a_slice_of_latents_has_the_score_of_its_own_columns():
    source = case("position", "heading")
    first, second = whole(source, TIMES).astype(np.float64)
    found = asked(source, block=slice(1, 5))
    products = (first * second).mean(axis=0)[:, 1:5]
    np.testing.assert_allclose(found.values, np.maximum(signed_root(products), 0), atol=1e-4)
    squared = np.sign(found.block("1:5")) * found.block("1:5") ** 2
    np.testing.assert_allclose(squared, products.sum(axis=1), rtol=1e-3, atol=1e-5)


def test_steps_are_means_of_both_decoders():
    source = case("position", "heading")
    times = TIMES[5:60]
    found = asked(source, times=times, keep_time=True)
    np.testing.assert_allclose(found.steps.maps, whole(source, times).mean(axis=0), atol=1e-6)
    np.testing.assert_array_equal(found.steps.times, times)
    plain_map = asked(source, times=times)
    np.testing.assert_array_equal(found.values, plain_map.values)
    np.testing.assert_array_equal(found.block("heading"), plain_map.block("heading"))


def test_other_aggregates():
    source = case("position")
    both = whole(source, TIMES)
    mean, usual = both.mean(axis=0), asked(source)
    largest = asked(source, aggregate="max")
    np.testing.assert_allclose(largest.values, np.abs(mean).max(axis=0), rtol=1e-5)
    summed = asked(source, aggregate="sum")
    np.testing.assert_allclose(summed.values, usual.values * len(TIMES), rtol=1e-9)
    np.testing.assert_allclose(summed.block("time"), usual.block("time") * len(TIMES), rtol=1e-9)
    median = asked(source, aggregate="median", keep_time=True)
    np.testing.assert_allclose(median.values, np.median(np.abs(mean), axis=0), atol=1e-5)


def test_at_most_so_many_samples_are_used_and_they_are_spread_evenly(monkeypatch):
    source = case("position")
    monkeypatch.setattr(crossed_map, "MOST_SAMPLES", 11)
    few = asked(source, times=np.arange(N))
    some = np.linspace(0, N - 1, 11).astype(np.int64)
    assert few.made["n_samples"] == 11
    monkeypatch.undo()
    np.testing.assert_array_equal(few.values, asked(source, times=some).values)
    # Whoever asks for every step gets every step.
    monkeypatch.setattr(crossed_map, "MOST_SAMPLES", 11)
    assert len(asked(source, times=np.arange(N), keep_time=True).steps) == N


# Axes


def test_latents_as_learned_are_the_labels_columns_by_how_the_label_moves_with_them():
    """dx / dz = dx / dy times dy / dz, with y in units of its standard deviation."""
    source = case("position")
    rng = np.random.default_rng(3)
    spread = source.labels["position"].points.std(axis=0)
    readout = Readout(rng.standard_normal((2, 2)), np.zeros(2), spread)
    found = asked(source, readouts={"position": readout}, axes=False, keep_time=True)
    columns = whole(source, TIMES)[..., :2]
    by_latent = columns @ readout.weights / math.sqrt(np.mean(spread**2))
    np.testing.assert_allclose(found.steps.maps[..., :2], by_latent.mean(axis=0), atol=1e-5)
    products = (by_latent[0] * by_latent[1]).mean(axis=0)
    np.testing.assert_allclose(found.values[:, :2], np.maximum(signed_root(products), 0), atol=1e-4)
    # The score of the block is the label's own: it does not depend on the latents.
    np.testing.assert_array_equal(found.block("position"), asked(source).block("position"))


@pytest.mark.parametrize("width", [1, 4])
def test_a_block_of_another_width_than_its_label_shows_its_latents(width):
    source = case("position")
    rng = np.random.default_rng(4)
    spread = source.labels["position"].points.std(axis=0)
    readout = Readout(rng.standard_normal((2, width)), np.zeros(2), spread)
    found = asked(source, readouts={"position": readout}, label_dims={"position": width})
    by_latent = whole(source, TIMES)[..., :2] @ readout.weights / math.sqrt(np.mean(spread**2))
    products = (by_latent[0] * by_latent[1]).mean(axis=0)
    assert found.values.shape == (NEURONS, width + TIME)
    np.testing.assert_allclose(
        found.values[:, :width], np.maximum(signed_root(products), 0), atol=1e-4
    )
    plain_map = asked(source)
    np.testing.assert_array_equal(found.block("position"), plain_map.block("position"))
    np.testing.assert_allclose(found.values[:, width:], plain_map.values[:, 2:], rtol=1e-5)


def mixed(weights, bends=(0.0,) * TIME):
    """A mixture of which only what is added matters."""
    none = np.zeros(NEURONS)
    return Mixture(np.asarray(weights), none, none, 0.0, 0, 0.0, bends=np.asarray(bends))


@pytest.mark.parametrize("name", ["position", "heading"])
def test_without_a_bend_derivatives_are_those_at_the_same_latents_less_the_bend(name):
    """f(y, z) is f(y, r + b(y)) with r = z - b(y): its derivative by y at the same r."""
    source = case(name, told=True, bend=0.3)
    decoder = source.decoder
    members = [copy.deepcopy(member).double() for member in decoder.members]
    directions, phases = decoder.directions.double(), decoder.phases.double()
    unit, points = decoder.label_scale.double(), source.points(TIMES).double()

    def bend(scaled, neuron):
        waves = torch.cos(scaled @ directions + phases)
        functions = torch.cat([torch.ones(1, dtype=torch.float64), scaled, waves])
        return functions @ decoder.bend[neuron].double() / decoder.latent_scale.double()

    def slope(k, neuron, row, point):
        left = row[2:] - bend(row[:2], neuron)
        found = torch.func.jacrev(
            lambda y: members[k](torch.cat([y, left + bend(y, neuron)]))[neuron]
        )(row[:2])
        if name == "position":
            return found * unit.square().mean().sqrt() / unit
        along = torch.stack([-point[1], point[0]])
        return (found * along / unit).sum() * along

    straight = mixed(np.zeros((TIME, 2)), np.ones(TIME))
    score = asked(source, mixtures={name: straight}).block(name)
    for neuron in range(NEURONS):
        rows = rows_of(source, neuron, TIMES)
        first, second = (
            torch.func.vmap(partial(slope, k, neuron))(rows, points).detach() for k in range(2)
        )
        squared = np.sign(score[neuron]) * score[neuron] ** 2
        mean = float((first * second).sum(dim=1).mean())
        assert squared == pytest.approx(mean, rel=2e-3, abs=2e-4)


def test_what_a_latent_carries_of_the_label_is_found_and_undone():
    """Latents with a curve of the label in them: neurons that follow the latents seem connected."""
    rng = np.random.default_rng(0)
    n = 30
    time = rng.standard_normal((n, TIME))
    sparse = rng.standard_normal((n, 2)) * (np.arange(n) < 15)[:, None]
    source = case("position", n_neurons=n, bend=0.5)
    source.decoder.bend[:] = source.decoder.bend[:1]
    source.decoder.bend[:, :3] = 0.0
    unit = source.decoder.label_scale.square().mean().sqrt() / source.decoder.label_scale
    columns = np.concatenate(
        [sparse / unit.numpy(), time * source.decoder.embedding_scale.numpy()], 1
    )

    share = np.array([0.8, 0.3])
    maps_of = crossed_derivatives.derivatives

    def carried(source, times):
        for positions, maps in maps_of(source, times):
            slopes = crossed_derivatives.bent_slopes(source, times[positions])
            maps = maps.clone()
            maps[..., :2] -= torch.einsum(
                "msnl,snlc->msnc", maps[..., 2:] * torch.from_numpy(share).float(), slopes
            )
            yield positions, maps

    source.decoder.members[0] = source.decoder.members[1] = plain(columns)
    with pytest.MonkeyPatch.context() as patch:
        for module in (crossed_map, crossed_mixtures):
            patch.setattr(module, "derivatives", carried)
        found = fit_crossed_mixtures(source, TIMES)["position"]
        assert asked(source).block("position")[15:].min() > 0.05
        undone = asked(source, mixtures={"position": found})
    np.testing.assert_allclose(found.bends, share, atol=0.02)
    np.testing.assert_allclose(undone.block("position"), np.linalg.norm(sparse, axis=1), atol=0.03)


def test_a_mixture_adds_columns_of_time_to_those_of_its_label_alone():
    source = case("position", "heading")
    mixture = np.random.default_rng(5).standard_normal((TIME, 2))
    found = asked(source, mixtures={"position": mixed(mixture)})
    both = whole(source, TIMES).astype(np.float64)
    both[..., :2] += both[..., 4:] @ mixture
    products = (both[0] * both[1]).mean(axis=0)
    np.testing.assert_allclose(
        found.values, np.maximum(signed_root(products), 0), rtol=1e-3, atol=2e-4
    )
    squared = np.sign(found.block("position")) * found.block("position") ** 2
    np.testing.assert_allclose(squared, products[:, :2].sum(axis=1), rtol=1e-3, atol=1e-4)
    plain_map = asked(source)
    for name in ("heading", "time"):
        np.testing.assert_array_equal(found.block(name), plain_map.block(name))


def test_the_mixture_that_correlated_factors_make_is_found():
    """Columns of the label are sparse ones and a mixture of those of time."""
    rng = np.random.default_rng(0)
    n = 30
    time = rng.standard_normal((n, TIME))
    sparse = rng.standard_normal((n, 2)) * (np.arange(n) < 15)[:, None]
    source = case("position", n_neurons=n)
    decoder = source.decoder
    unit = decoder.label_scale.square().mean().sqrt() / decoder.label_scale
    mixing = rng.standard_normal((TIME, 2))
    seen = np.concatenate([sparse + time @ mixing, time], axis=1)
    by_input = seen / np.concatenate([unit.numpy(), 1 / decoder.embedding_scale.numpy()])
    decoder.members[0] = decoder.members[1] = plain(by_input)
    found = fit_crossed_mixtures(source, TIMES)["position"]
    np.testing.assert_allclose(found.weights, -mixing, atol=1e-3)
    undone = asked(source, mixtures={"position": found})
    np.testing.assert_allclose(undone.block("position"), np.linalg.norm(sparse, axis=1), atol=2e-3)
