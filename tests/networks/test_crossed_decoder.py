"""Two decoders from labels and latents: what they are given, and what they expect."""

import numpy as np
import pytest
import torch

from xcebra.networks.crossed_decoder import (
    N_STRETCHES,
    CrossedDecoder,
    LabelColumns,
    expected,
    halves,
    smooth_functions,
)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def fixed(n_columns=3, n_latents=2, group=(0, 1, 0, 1, 1), n_waves=4, **others):
    """Buffers with numbers that are easy to tell apart."""
    rng = np.random.default_rng(0)
    n_groups, n_functions = max(group) + 1, 1 + n_columns + n_waves
    arrays = {
        "around": np.array(False),
        "patterns": np.zeros((len(group), 0)),
        "group": np.array(group),
        "correlations": np.eye(len(group))[None],
        "borders": np.zeros(0, dtype=np.int64),
        "label_mean": rng.standard_normal(n_columns),
        "label_scale": np.geomspace(0.5, 2, n_columns),
        "directions": rng.standard_normal((n_columns, n_waves)),
        "phases": rng.uniform(0, 6, n_waves),
        "told": rng.standard_normal((n_groups, n_functions, n_latents)),
        "bend": rng.standard_normal((n_groups, n_functions, n_latents)),
        "latent_mean": rng.standard_normal(n_latents),
        "latent_scale": np.geomspace(0.3, 3, n_latents),
        "embedding_scale": np.geomspace(0.4, 4, n_latents),
        "reference_embedding": rng.standard_normal((40, 5)),
        "reference_labels": rng.standard_normal((40, n_columns)),
        "class_shares": np.ones(n_columns),
        **others,
    }
    return {
        name: torch.as_tensor(np.asarray(a)).float()
        if np.asarray(a).dtype.kind == "f"
        else torch.as_tensor(np.asarray(a))
        for name, a in arrays.items()
    }


@pytest.mark.parametrize("n", [20, 21, 399, 4000])
def test_the_two_decoders_take_turns_in_stretches_of_the_same_length(n):
    half = halves(n)
    edges = np.flatnonzero(np.diff(half)) + 1
    assert len(edges) == N_STRETCHES - 1
    lengths = np.diff([0, *edges, n])
    assert lengths.max() - lengths.min() <= 1
    assert half[0] == 0
    assert set(half.tolist()) == {0, 1}
    assert abs(int((half == 0).sum()) - n / 2) <= N_STRETCHES / 2


def test_smooth_functions_are_a_constant_the_columns_and_cosines():
    scaled = torch.tensor([[0.5, -1.0], [2.0, 0.0]], dtype=torch.float64)
    directions = torch.tensor([[1.0, 0.0, 2.0], [0.5, 1.0, 0.0]], dtype=torch.float64)
    phases = torch.tensor([0.0, np.pi, 1.0], dtype=torch.float64)
    expected_waves = [
        [np.cos(0.0), np.cos(-1 + np.pi), np.cos(2.0)],
        [np.cos(2.0), np.cos(np.pi), np.cos(5.0)],
    ]
    found = smooth_functions(scaled, directions, phases)
    np.testing.assert_allclose(found[:, 3:], expected_waves, atol=1e-12)
    assert found[:, 0].tolist() == [1.0, 1.0]
    assert torch.equal(found[:, 1:3], scaled)


def test_slopes_of_the_bent_part_are_its_derivatives():
    model = CrossedDecoder(fixed(), [], generator()).double()
    points = torch.randn(3, 3, generator=generator(1), dtype=torch.float64)
    scaled = (points - model.label_mean) / model.label_scale

    def part(one):
        return model.bent_part((one * model.label_scale + model.label_mean)[None])[:, 0]

    found = model.bent_slopes(points)
    for k, one in enumerate(scaled):
        expected_slopes = torch.autograd.functional.jacobian(part, one)
        torch.testing.assert_close(found[:, k] * model.latent_scale[:, None], expected_slopes)


def test_inputs_are_standardised_labels_and_what_is_left_of_each_groups_latents():
    model = CrossedDecoder(fixed(), [LabelColumns("label", "continuous", slice(0, 3))], generator())
    points, latents = (
        torch.randn(7, 3, generator=generator(1)),
        torch.randn(2, 7, 2, generator=generator(2)),
    )
    found = model.inputs(points, latents)
    for g in range(2):
        scaled = (points - model.label_mean) / model.label_scale
        waves = torch.cos(scaled @ model.directions + model.phases)
        part = torch.cat([torch.ones(7, 1), scaled, waves], dim=1) @ model.told[g]
        rest = (latents[g] - part - model.latent_mean) / model.latent_scale
        assert (found[g, :, :3] - scaled).abs().max() < 1e-6
        assert (found[g, :, 3:] - rest).abs().max() < 1e-5


def test_units_of_labels_by_their_kind():
    """One unit for all columns of a continuous label; none for angles; classes by their share."""
    labels = [
        LabelColumns("position", "continuous", slice(0, 2)),
        LabelColumns("heading", "circular", slice(2, 4)),
        LabelColumns("reward", "discrete", slice(4, 6)),
    ]
    given = fixed(
        6,
        label_scale=np.array([1.0, 7.0, 0.7, 0.7, 0.4, 0.4]),
        class_shares=np.array([1, 1, 1, 1, 0.2, 0.8]),
    )
    found = CrossedDecoder(given, labels).label_units()
    expected_units = [0.2, 0.2, 1.0, 1.0, 0.2**-0.5, 0.8**-0.5]
    np.testing.assert_allclose(found.numpy(), expected_units, rtol=1e-6)


def test_labels_not_given_are_those_of_the_nearest_sample_of_the_fit():
    model = CrossedDecoder(fixed(), [LabelColumns("label", "continuous", slice(0, 3))])
    z = np.random.default_rng(3).standard_normal((5000, 5)).astype(np.float32)  # several parts
    found = model.nearest_labels(z)
    reference = model.reference_embedding.numpy().astype(np.float64)
    apart = np.square(z[:, None].astype(np.float64) - reference).sum(axis=2)
    near = np.sort(apart, axis=1)
    clear = near[:, 1] - near[:, 0] > 1e-4
    assert clear.mean() > 0.99
    nearest = model.reference_labels.numpy()[apart.argmin(axis=1)]
    np.testing.assert_array_equal(found.numpy()[clear], nearest[clear])


def test_what_is_expected_of_a_neuron_comes_from_the_inputs_of_its_own_group():
    model = CrossedDecoder(fixed(), [LabelColumns("label", "continuous", slice(0, 3))], generator())
    rows = torch.randn(2, 6, 5, generator=generator(3))
    found = expected(model, rows)
    assert found.shape == (2, 6, 5)
    for k, member in enumerate(model.members):
        for neuron, g in enumerate([0, 1, 0, 1, 1]):
            whole = member(rows[g]).detach()[:, neuron]
            assert (found[k, :, neuron] - whole).abs().max() < 1e-6
    assert (found[0] - found[1]).abs().max() > 1e-3
