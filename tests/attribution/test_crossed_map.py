"""Maps of two decoders whose networks are set by hand: every derivative and score is known."""

import copy
import math
from dataclasses import replace
from functools import partial

import numpy as np
import pytest
import torch
from scipy.stats import spearmanr
from torch import nn

from xcebra.attribution import crossed_map
from xcebra.attribution.crossed_map import (
    Source,
    crossed_moments,
    derivatives,
    fit_mixtures,
    make_crossed_map,
    signed_root,
    variance_explained,
)
from xcebra.attribution.label_axes import Readout
from xcebra.attribution.request import MapRequest, Names, choose, latent_names
from xcebra.attribution.sparse_basis import Mixture
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.networks.crossed_decoder import CrossedDecoder, LabelColumns, halves
from xcebra.networks.decoder import Decoder
from xcebra.networks.encoder import Encoder, Inputs, embed

N, NEURONS, TIME = 300, 6, 2
KINDS = {"position": ("continuous", 2), "heading": ("circular", 2), "odour": ("discrete", 3)}


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def points_of(kind, width, rng, n=N):
    if kind == "circular":
        angle = rng.uniform(0, 2 * np.pi, n)
        return np.column_stack([np.cos(angle), np.sin(angle)])
    if kind == "discrete":
        return np.eye(width)[rng.choice(width, n, p=[0.5, 0.3, 0.2])]
    return rng.standard_normal((n, width)) * np.geomspace(0.5, 3, width) + 4


def case(
    *names,
    n_neurons=NEURONS,
    n_time=TIME,
    hidden=8,
    members=None,
    n=N,
    seed=0,
    told=False,
    bend=0.0,
):
    """A source with labels of some kinds, and decoders of one hidden layer or none.

    Neurons are left out one by one, and are uncorrelated: without a neuron it is simply zero.
    """
    rng = np.random.default_rng(seed)
    labels, columns, at = {}, [], 0
    for name in names:
        kind, width = KINDS[name]
        points = points_of(kind, width, rng, n)
        labels[name] = Label(name, kind, points, np.ones(n, dtype=bool))
        columns.append(LabelColumns(name, kind, slice(at, at + width)))
        at += width
    recording = Recording(rng.standard_normal((n, n_neurons)) * np.geomspace(0.5, 5, n_neurons) + 1)
    inputs = Inputs.measure(recording, recording.epochs, project=False)
    encoder = Encoder(inputs, at + n_time, limit=9.0, generator=generator(seed))
    encoder.network = nn.Sequential(nn.Linear(n_neurons, at + n_time))
    every = [label.points for label in labels.values()]
    whole = np.concatenate(every, axis=1) if every else np.zeros((n, 0))
    discrete = np.array(
        [
            KINDS[c.name][0] == "discrete"
            for c in columns
            for _ in range(c.columns.stop - c.columns.start)
        ],
        dtype=bool,
    )
    with torch.no_grad():
        torch.nn.init.normal_(encoder.network[0].weight, generator=generator(seed))
        embedding = embed(encoder, recording)
    fixed = {
        "around": np.array(False),
        "patterns": np.zeros((n_neurons, 0)),
        "group": np.arange(n_neurons),
        "correlations": np.eye(n_neurons)[None],
        "borders": np.zeros(0, dtype=np.int64),
        "label_mean": whole.mean(axis=0),
        "label_scale": whole.std(axis=0),
        "directions": rng.standard_normal((at, 3)),
        "phases": rng.uniform(0, 6, 3),
        "told": rng.standard_normal((n_neurons, 4 + at, n_time)) * float(told),
        "bend": rng.standard_normal((n_neurons, 4 + at, n_time)) * bend,
        "latent_mean": rng.standard_normal(n_time),
        "latent_scale": np.geomspace(0.5, 2, n_time),
        "embedding_scale": np.geomspace(0.25, 3, n_time),
        "reference_embedding": embedding[::7],
        "reference_labels": whole[::7],
        "class_shares": np.where(discrete, whole.mean(axis=0), 1.0),
    }
    fixed = {
        name: torch.from_numpy(np.asarray(a)).float()
        if a.dtype.kind == "f"
        else torch.from_numpy(a)
        for name, a in fixed.items()
    }
    decoder = CrossedDecoder(fixed, columns, generator(seed))
    for k in range(2):
        if members is not None:
            decoder.members[k] = plain(members[k])
        else:
            decoder.members[k] = bent(at + n_time, hidden, n_neurons, seed=10 * seed + k)
    block = slice(at, at + n_time) if n_time else None
    # Nothing is left over here that would be read with its help.
    unused = Decoder(inputs, torch.zeros(at + n_time), torch.ones(at + n_time))
    return Source(encoder, unused, decoder, recording, labels, block)


def plain(weights):
    """A decoder without a hidden layer; weights of shape (neuron, input)."""
    layer = nn.Linear(weights.shape[1], weights.shape[0])
    with torch.no_grad():
        layer.weight.copy_(torch.as_tensor(weights))
        layer.bias.fill_(0.3)
    return nn.Sequential(layer)


def bent(n_inputs, hidden, n_outputs, seed):
    network = nn.Sequential(nn.Linear(n_inputs, hidden), nn.GELU(), nn.Linear(hidden, n_outputs))
    for parameter in network.parameters():
        nn.init.normal_(parameter, std=0.5, generator=generator(seed))
    return network


def rows_of(source, neuron, times):
    """What the decoders are given for one neuron, in float64, by hand."""
    decoder = source.decoder
    x = source.recording.neural[times].astype(np.float64)
    u = (x - source.encoder.mean.double().numpy()) * source.encoder.reciprocal.double().numpy()
    u[:, neuron] = 0.0  # left out; nobody predicts it
    weights, bias = (p.detach().double().numpy() for p in source.encoder.network[0].parameters())
    latents = (u @ weights.T + bias)[:, source.time_block or slice(0, 0)]
    points = np.concatenate([label.points[times] for label in source.labels.values()], axis=1)
    scaled = (points - decoder.label_mean.double().numpy()) / decoder.label_scale.double().numpy()
    waves = np.cos(scaled @ decoder.directions.double().numpy() + decoder.phases.double().numpy())
    functions = np.concatenate([np.ones((len(times), 1)), scaled, waves], axis=1)
    part = functions @ decoder.told[neuron].double().numpy()
    rest = (
        latents - part - decoder.latent_mean.double().numpy()
    ) / decoder.latent_scale.double().numpy()
    return torch.from_numpy(np.concatenate([scaled, rest], axis=1))


def dense(source, times):
    """Derivatives of every neuron by standardised inputs, by torch.func in float64."""
    found = []
    for member in source.decoder.members:
        network = nn.Sequential(*member)
        weights = {name: p.detach().double() for name, p in network.named_parameters()}

        def one(row, neuron, network=network, weights=weights):
            return torch.func.functional_call(network, weights, (row[None],))[0, neuron]

        by_neuron = [
            torch.func.vmap(torch.func.grad(one), in_dims=(0, None))(rows_of(source, i, times), i)
            for i in range(source.recording.n_neurons)
        ]
        found.append(torch.stack(by_neuron, dim=1))
    return torch.stack(found).numpy()


def whole(source, times):
    parts = list(derivatives(source, times))
    np.testing.assert_array_equal(np.concatenate([p for p, _ in parts]), np.arange(len(times)))
    return torch.cat([maps for _, maps in parts], dim=1).numpy()


TIMES = np.arange(0, N, 3)


# Derivatives


@pytest.mark.parametrize("told", [False, True])
def test_columns_of_a_continuous_label_share_one_unit(told):
    """Per standard deviation of the label, the root mean square over its columns."""
    source = case("position", told=told)
    found, by_input = whole(source, TIMES), dense(source, TIMES)
    scale = source.labels["position"].points.std(axis=0)
    unit = math.sqrt(np.mean(scale**2))
    np.testing.assert_allclose(found[..., :2], by_input[..., :2] / scale * unit, atol=2e-5)
    embedding_scale = source.decoder.embedding_scale.numpy()
    np.testing.assert_allclose(found[..., 2:], by_input[..., 2:] / embedding_scale, atol=2e-5)


def test_columns_in_the_same_raw_unit_keep_their_proportions():
    """x = y_0 + y_1 in the label's own unit: both columns have the same derivative."""
    source = case("position", n_time=0)
    scale = source.labels["position"].points.std(axis=0)
    weights = np.zeros((NEURONS, 2))
    weights[0] = scale
    weights[1] = [0, scale[1]]
    source.decoder.members[0] = source.decoder.members[1] = plain(weights)
    found = whole(source, TIMES)
    unit = math.sqrt(np.mean(scale**2))
    np.testing.assert_allclose(found[:, :, 0], unit, rtol=1e-5)
    np.testing.assert_allclose(found[:, :, 1, 1], unit, rtol=1e-5)
    assert not found[:, :, 1, 0].any()


def test_an_angle_moves_along_the_circle_alone():
    """x = f(theta): the derivative is df / dtheta, along (-sin, cos)."""
    source = case("heading")
    found, by_input = whole(source, TIMES)[..., :2], dense(source, TIMES)[..., :2]
    cosine, sine = source.labels["heading"].points[TIMES].T
    scale = source.labels["heading"].points.std(axis=0)
    by_angle = (by_input[..., 0] * (-sine / scale[0])[:, None]) + (
        by_input[..., 1] * (cosine / scale[1])[:, None]
    )
    along = np.stack([-sine, cosine], axis=1)
    np.testing.assert_allclose(found, by_angle[..., None] * along[:, None], atol=2e-5)
    radial = found[..., 0] * cosine[:, None] + found[..., 1] * sine[:, None]
    assert np.abs(radial).max() < 1e-6
    np.testing.assert_allclose(np.linalg.norm(found, axis=-1), np.abs(by_angle), atol=2e-5)


def test_a_cosine_tuned_neuron_turns_as_its_sine_and_a_radial_one_not_at_all():
    source = case("heading", n_time=0)
    scale = source.labels["heading"].points.std(axis=0)
    preferred = 0.7
    weights = np.zeros((NEURONS, 2))
    weights[0] = scale * [math.cos(preferred), math.sin(preferred)]  # cos(theta - preferred)
    source.decoder.members[0] = source.decoder.members[1] = plain(weights)
    found = whole(source, TIMES)
    cosine, sine = source.labels["heading"].points[TIMES].T
    angle = np.arctan2(sine, cosine)
    turned = -np.sin(angle - preferred)
    for k in range(2):
        np.testing.assert_allclose(found[k, :, 0, 0], turned * -sine, atol=1e-6)
        np.testing.assert_allclose(found[k, :, 0, 1], turned * cosine, atol=1e-6)
    assert not found[:, :, 1:].any()


def test_classes_are_contrasts_from_their_mean_times_the_root_of_their_share():
    source = case("odour", told=True)
    found = whole(source, TIMES)
    label = source.labels["odour"].points
    shares, scale = label.mean(axis=0), label.std(axis=0)
    for k, member in enumerate(source.decoder.members):
        network = nn.Sequential(*member).double()
        for neuron in range(NEURONS):
            rows = rows_of(source, neuron, TIMES)
            levels = []
            for c in range(3):
                moved = rows.clone()
                moved[:, :3] = torch.from_numpy((np.eye(3)[c] - shares) / scale)
                with torch.no_grad():
                    levels.append(network(moved)[:, neuron].numpy())
            levels = np.stack(levels, axis=1)
            contrasts = (levels - (levels @ shares)[:, None]) * np.sqrt(shares)
            np.testing.assert_allclose(found[k, :, neuron, :3], contrasts, atol=2e-5)
        network.float()


def test_the_squared_score_of_classes_is_the_variance_between_them():
    """x = the level of its class: sum of share times squared deviation is the variance."""
    source = case("odour", n_time=0)
    label = source.labels["odour"].points
    levels = np.random.default_rng(1).standard_normal((NEURONS, 3))
    source.decoder.members[0] = source.decoder.members[1] = plain(levels * label.std(axis=0))
    found = whole(source, TIMES)
    between = (label @ levels.T).var(axis=0)
    for k in range(2):
        squared = np.square(found[k]).sum(axis=2)
        np.testing.assert_allclose(squared, np.tile(between, (len(TIMES), 1)), rtol=1e-4)


def test_several_labels_and_time_stand_side_by_side():
    source = case("position", "heading", "odour")
    found, by_input = whole(source, TIMES), dense(source, TIMES)
    assert found.shape == (2, len(TIMES), NEURONS, 9)
    scale = source.labels["position"].points.std(axis=0)
    unit = math.sqrt(np.mean(scale**2))
    np.testing.assert_allclose(found[..., :2], by_input[..., :2] / scale * unit, atol=2e-5)
    np.testing.assert_allclose(
        found[..., 7:], by_input[..., 7:] / source.decoder.embedding_scale.numpy(), atol=2e-5
    )


def test_a_neurons_own_activity_has_no_part_in_its_derivatives():
    source = case("position", told=True)
    x = source.recording.neural.copy()
    x[:, 2] = 100 * np.random.default_rng(9).standard_normal(N)
    changed = replace(source, recording=Recording(x))
    before, after = whole(source, TIMES), whole(changed, TIMES)
    np.testing.assert_array_equal(before[:, :, 2], after[:, :, 2])
    assert np.abs(before[:, :, 3] - after[:, :, 3]).max() > 1e-2


@pytest.mark.parametrize("at_once", [1, 7, 1000])
def test_the_number_of_samples_at_once_does_not_matter(at_once, monkeypatch):
    source = case("position", "heading", "odour", told=True)
    first = whole(source, TIMES)
    monkeypatch.setattr(crossed_map, "_ROWS_AT_ONCE", at_once)
    np.testing.assert_allclose(whole(source, TIMES), first, atol=1e-5)


def test_the_decoders_are_left_as_they_are():
    source = case("position", "odour")
    before = {name: value.clone() for name, value in source.decoder.state_dict().items()}
    whole(source, TIMES)
    for name, value in source.decoder.state_dict().items():
        assert torch.equal(before[name], value)
    assert all(p.grad is None and p.requires_grad for p in source.decoder.parameters())


# Labels that are not given


def test_where_a_label_is_missing_that_of_the_nearest_sample_of_the_fit_is_taken():
    source = case("position", "heading")
    valid = np.arange(N) % 2 == 0
    position = source.labels["position"]
    points = np.where(valid[:, None], position.points, np.nan)
    known = {"position": Label("position", "continuous", points, valid)}
    partly = replace(source, labels=known)
    found = partly.points(np.arange(N)).numpy()
    embedding = embed(source.encoder, source.recording).astype(np.float64)
    apart = np.square(embedding[:, None] - embedding[::7]).sum(axis=2)
    nearest = 7 * apart.argmin(axis=1)
    np.testing.assert_allclose(found[valid, :2], position.points[valid], rtol=1e-6)
    np.testing.assert_allclose(found[~valid, :2], position.points[nearest[~valid]], rtol=1e-5)
    # Nobody gave the heading at all.
    heading = source.labels["heading"].points
    np.testing.assert_allclose(found[:, 2:], heading[nearest], atol=1e-6)
    # At the samples of the fit themselves, that is the label.
    np.testing.assert_allclose(found[::7, 2:], heading[::7], atol=1e-6)


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
    np.testing.assert_allclose(one.values, shown, rtol=1e-5, atol=1e-7)  # single precision
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
    maps_of = crossed_map.derivatives

    def carried(source, times):
        for positions, maps in maps_of(source, times):
            slopes = crossed_map.bent_slopes(source, times[positions])
            maps = maps.clone()
            maps[..., :2] -= torch.einsum(
                "msnl,snlc->msnc", maps[..., 2:] * torch.from_numpy(share).float(), slopes
            )
            yield positions, maps

    source.decoder.members[0] = source.decoder.members[1] = plain(columns)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(crossed_map, "derivatives", carried)
        found = fit_mixtures(source, TIMES)["position"]
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


def test_moments_are_mean_products_of_both_decoders_made_symmetric():
    source = case("position", told=True)
    first, second = whole(source, TIMES).astype(np.float64)
    products = np.einsum("sni,snj->nij", first, second) / len(TIMES)
    found, bent_ones, both_bent = crossed_moments(source, TIMES)
    np.testing.assert_allclose(found, (products + products.swapaxes(1, 2)) / 2, atol=1e-8)
    assert not bent_ones.any()
    assert not both_bent.any()


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
    found = fit_mixtures(source, TIMES)["position"]
    np.testing.assert_allclose(found.weights, -mixing, atol=1e-3)
    undone = asked(source, mixtures={"position": found})
    np.testing.assert_allclose(undone.block("position"), np.linalg.norm(sparse, axis=1), atol=2e-3)


def test_without_labels_or_time_there_is_no_mixture():
    assert fit_mixtures(case("position", n_time=0), TIMES) == {}


# Variance explained


def explained_case(n=N):
    """Neurons that are what the first decoder expects, for one; of others nothing is true."""
    source = case("position", n=n)
    weights = np.random.default_rng(2).standard_normal((2, NEURONS, 4)) * 0.4
    for k in range(2):
        source.decoder.members[k] = plain(weights[k])
    return source


def test_each_decoder_explains_the_stretches_of_the_other():
    source = explained_case()
    found = variance_explained(source, np.arange(N), {"position": slice(0, 2)}, 0)["all"]
    x = source.recording.neural.astype(np.float64)
    u = (x - x.mean(axis=0)) / x.std(axis=0)
    half = halves(N)
    for neuron in range(NEURONS):
        rows = rows_of(source, neuron, np.arange(N))
        with torch.no_grad():
            both = [m.double()(rows)[:, neuron].numpy() for m in source.decoder.members]
        held_out = np.where(half == 0, both[1], both[0])
        missed = np.square(u[:, neuron] - held_out).mean() / u[:, neuron].var()
        assert found[neuron] == pytest.approx(1 - missed, abs=1e-4)


def test_shares_of_blocks_are_half_the_mean_product_of_exchanges():
    source = explained_case()
    blocks = {"position": slice(0, 2), "time": slice(2, 4)}
    found = variance_explained(source, np.arange(N), blocks, seed=3)
    other = np.random.default_rng(3).permutation(N)
    weights = [m[0].weight.detach().double().numpy() for m in source.decoder.members]
    for name, columns in blocks.items():
        for neuron in range(NEURONS):
            rows = rows_of(source, neuron, np.arange(N)).numpy()[:, columns]
            changes = [(rows[other] - rows) @ w[neuron, columns] for w in weights]
            expected = (changes[0] * changes[1]).mean() / 2
            assert found[name][neuron] == pytest.approx(expected, abs=1e-4)
    # Decoders that have nothing in common explain nothing, on either side of zero.
    both = np.concatenate([found["position"], found["time"]])
    assert (both < 0).any()
    assert (both > 0).any()


def test_a_silent_neuron_has_exactly_nothing_explained():
    source = explained_case()
    x = source.recording.neural.copy()
    x[:, 1] = 3.0
    silent = replace(source, recording=Recording(x))
    source.encoder.reciprocal[1] = 0.0
    found = variance_explained(silent, np.arange(N), {"position": slice(0, 2)}, 0)
    assert all(share[1] == 0 for share in found.values())
