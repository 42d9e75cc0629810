"""Derivatives of two decoders whose networks are set by hand, for every kind of label."""

import math
from dataclasses import replace

import numpy as np
import pytest
import torch
from crossed_case import NEURONS, TIMES, N, case, dense, plain, rows_of, whole
from torch import nn

from xcebra.attribution import crossed_derivatives
from xcebra.data.recording import Recording


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
    monkeypatch.setattr(crossed_derivatives, "_ROWS_AT_ONCE", at_once)
    np.testing.assert_allclose(whole(source, TIMES), first, atol=1e-5)


def test_the_decoders_are_left_as_they_are():
    source = case("position", "odour")
    before = {name: value.clone() for name, value in source.decoder.state_dict().items()}
    whole(source, TIMES)
    for name, value in source.decoder.state_dict().items():
        assert torch.equal(before[name], value)
    assert all(p.grad is None and p.requires_grad for p in source.decoder.parameters())
