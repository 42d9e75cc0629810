"""Encoders of several sessions: layers that are shared, and latents that are removed."""

import numpy as np
import pytest
import torch
from torch import nn

from xcebra.networks.encoder import WIDTHS, Encoder, FixedPoints, Inputs
from xcebra.networks.jacobian import linearise

LABELS = [slice(0, 2), slice(2, 3), slice(3, 5)]


def inputs(n_neurons, seed=0):
    rng = np.random.default_rng(seed)
    return Inputs(rng.normal(size=n_neurons), rng.uniform(1, 2, n_neurons), np.eye(n_neurons))


def encoder(n_neurons, seed, n_latents=5, blocks=None, window=1):
    return Encoder(
        inputs(n_neurons, seed),
        n_latents,
        limit=3.0,
        window=window,
        unit_blocks=blocks,
        generator=torch.Generator().manual_seed(seed),
    )


def activity(n_neurons, n=20):
    return torch.randn(n, n_neurons, generator=torch.Generator().manual_seed(9))


def test_shared_layers_are_applied_to_the_own_first_layer():
    one, other = encoder(6, 0), encoder(9, 1)
    before = other(activity(9))
    first = list(other.network)[:2]
    other.share_layers(one, 2)
    x = activity(9)
    hidden = first[1](first[0](other.components(x)))
    assert torch.equal(other(x), one.network[2:](hidden))
    assert not torch.equal(other(x), before)
    assert [a is b for a, b in zip(one.network, other.network, strict=True)] == (
        [False] * 2 + [True] * 6
    )


def test_later_layers_take_the_state_of_the_encoder_s_own():
    one = encoder(6, 0)
    later = Encoder.later_layers(5, limit=3.0)
    own = nn.Sequential(*list(one.network)[2:])
    later.load_state_dict(own.state_dict())
    hidden = torch.randn(7, WIDTHS[0] * 5, generator=torch.Generator().manual_seed(0))
    assert torch.equal(later(hidden), own(hidden))


@pytest.mark.parametrize("latents", [[0, 1, 2, 3, 4], [2, 3, 4], [3, 4], [4, 2, 0]])
def test_the_latents_that_are_kept_are_those_of_the_whole_encoder(latents):
    whole = encoder(6, 0)
    part = whole.with_latents(latents, None)
    x = activity(6)
    torch.testing.assert_close(part(x), whole(x)[:, latents], rtol=0, atol=1e-6)


def test_blocks_that_are_kept_still_have_unit_length():
    """A block is scaled by its own length, which does not depend on blocks that are removed."""
    whole = encoder(6, 0, blocks=LABELS)
    part = whole.with_latents([0, 1, 3, 4], [slice(0, 2), slice(2, 4)])
    x = activity(6)
    torch.testing.assert_close(part(x), whole(x)[:, [0, 1, 3, 4]], rtol=0, atol=1e-6)
    lengths = part(x).unflatten(1, (2, 2)).norm(dim=2)
    torch.testing.assert_close(lengths, torch.ones_like(lengths))


def test_a_copy_with_fewer_latents_shares_no_memory():
    one, other = encoder(6, 0), encoder(9, 1)
    other.share_layers(one, 2)
    before = {name: value.clone() for name, value in one.state_dict().items()}
    part = other.with_latents([0, 1], None)
    with torch.no_grad():
        for parameter in part.parameters():
            parameter.zero_()
    for name, value in one.state_dict().items():
        assert torch.equal(value, before[name]), name


def test_an_encoder_of_removed_latents_is_made_again_from_its_state():
    part = encoder(6, 0).with_latents([0, 4], None)
    again = Encoder(inputs(6), 2, limit=3.0, trained_latents=5)
    again.load_state_dict(part.state_dict())
    assert torch.equal(again(activity(6)), part(activity(6)))
    with pytest.raises(RuntimeError, match="size mismatch"):
        Encoder(inputs(6), 2, limit=3.0).load_state_dict(part.state_dict())


def test_fixed_points_are_embedded_as_they_are_and_have_nothing_to_learn():
    points, z = FixedPoints(), activity(3)
    assert torch.equal(points(z), z)
    assert torch.equal(linearise(points.network, z).output, z)
    assert not list(points.parameters())
    assert not points.state_dict()
