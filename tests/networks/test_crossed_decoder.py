"""Two decoders from labels and latents: the labels' part, closed forms, who learns from what."""

import os
import signal

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from sklearn.linear_model import Ridge
from torch import nn

from xcebra.attribution.crossed_map import Source, derivatives
from xcebra.caveats import InterruptedFitWarning
from xcebra.data.epochs import Epochs
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.networks import crossed_decoder
from xcebra.networks.crossed_decoder import (
    N_STRETCHES,
    CrossedDecoder,
    LabelColumns,
    _error,
    _labels_part,
    _train,
    expected,
    fit_crossed_decoder,
    halves,
    known_times,
    label_columns,
    label_points,
    smooth_functions,
)
from xcebra.networks.decoder import Decoder, DecoderConfig
from xcebra.networks.encoder import Encoder, Inputs

N = 4000
NO_PATTERNS = torch.zeros(40, 0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ar1(width, seed, n=N, memory=0.95):
    """Independent AR(1) processes of variance 1."""
    shocks = np.random.default_rng(seed).standard_normal((n + 300, width))
    return lfilter([np.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)[300:]


def label(values, name="label", kind="continuous", valid=None):
    valid = np.ones(len(values), dtype=bool) if valid is None else valid
    return Label(name, kind, np.asarray(values, dtype=np.float64), valid)


def functions_of(points, n_waves=100, seed=0):
    rng = np.random.default_rng(seed)
    width = points.shape[1]
    directions = rng.standard_normal((width, n_waves)) / (1.5 * np.sqrt(width))
    phases = rng.uniform(0, 2 * np.pi, size=n_waves)
    scaled = (points - points.mean(axis=0)) / points.std(axis=0)
    return smooth_functions(*(torch.from_numpy(each) for each in (scaled, directions, phases)))


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


# Which samples, and which columns


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


def test_labels_stand_one_after_the_other():
    rng = np.random.default_rng(0)
    labels = [
        label(rng.random((9, k)), name, kind)
        for k, name, kind in [(2, "a", "circular"), (1, "b", "continuous"), (3, "c", "discrete")]
    ]
    found = label_columns(labels)
    assert found == (
        LabelColumns("a", "circular", slice(0, 2)),
        LabelColumns("b", "continuous", slice(2, 3)),
        LabelColumns("c", "discrete", slice(3, 6)),
    )
    times = np.array([8, 0, 3])
    points = label_points(labels, times)
    for each, own in zip(labels, found, strict=True):
        np.testing.assert_array_equal(
            points[:, own.columns].numpy(), each.points[times].astype(np.float32)
        )
    assert label_points([], times).shape == (3, 0)


def test_samples_are_those_at_which_every_label_is_known_spread_evenly():
    valid = np.arange(100) % 2 == 0, np.arange(100) >= 50
    labels = [label(np.zeros((100, 1)), str(i), valid=v) for i, v in enumerate(valid)]
    epochs = Epochs.check([(0, 60), (70, 100)], 100)
    found = known_times(epochs, labels, 1000)
    assert found.tolist() == [50, 52, 54, 56, 58, *range(70, 100, 2)]
    few = known_times(epochs, labels, 4)
    assert few.tolist() == [50, 72, 84, 98]
    never = label(np.zeros((100, 1)), "never", valid=np.arange(100) % 2 == 1)
    with pytest.raises(ValueError, match=r"no sample has all of the labels \['0', 'never'\]"):
        known_times(epochs, [labels[0], never], 1000)


# The labels' part of a latent


def rest_of(latent, points):
    """What is left of a latent, as a share of its variance, and the weights."""
    functions = functions_of(points)
    told, _ = _labels_part(functions, torch.from_numpy(latent)[None], points.shape[1])
    left = torch.from_numpy(latent) - functions @ told[0]
    return (left.var(dim=0, correction=0).numpy() / latent.var(axis=0)), told


@pytest.mark.parametrize("width", [1, 2])
def test_a_latent_that_is_a_function_of_the_label_is_taken_out_wholly(width):
    y = np.tanh(ar1(width, 1))
    bent = np.column_stack([y[:, 0], np.exp(y.sum(axis=1)), np.cos(2 * y[:, 0]), y[:, 0] ** 2])
    left, _ = rest_of(bent + 3, y)
    assert left.max() < 0.01


def test_its_mean_is_no_part_of_the_label():
    y = ar1(1, 1)
    functions = functions_of(y)
    left = []
    for offset in (0.0, 7.0):
        latent = torch.from_numpy(y + offset)[None]
        told, _ = _labels_part(functions, latent, 1)
        assert not told[0, 0].any()
        left.append(latent - functions @ told)
    assert (left[1] - left[0] - 7).abs().max() < 1e-6


def test_an_angle_is_taken_out_through_its_cosine_and_sine():
    angle = np.cumsum(0.2 * np.random.default_rng(0).standard_normal(N))
    points = np.column_stack([np.cos(angle), np.sin(angle)])
    bump = np.exp(2 * np.cos(angle - 1))[:, None]
    left, _ = rest_of(bump, points)
    assert left.max() < 0.01


def parts(latent, y):
    """What is taken out of a latent, and what bends in the rest of the label's part."""
    functions = functions_of(y)
    both = _labels_part(functions, torch.from_numpy(latent)[None], 1)
    return [(functions @ weights[0])[:, 0].numpy() for weights in both]


@pytest.mark.parametrize("seed", range(4))
def test_a_factor_that_is_merely_correlated_stays_as_it_is(seed):
    y, own = ar1(1, 2 * seed), ar1(1, 2 * seed + 1)
    taken, bent = parts(0.3 * y + np.sqrt(1 - 0.09) * own, y)
    assert not taken.any()
    assert bent.var() < 0.05


def test_what_bends_is_told_apart_from_what_goes_straight():
    """0.25 y + 0.25 (y^2 - 1) / sqrt(2) + own: the label tells 0.125 of it."""
    y, own = ar1(1, 3, 40_000), ar1(1, 4, 40_000)
    curve = (y**2 - 1) / np.sqrt(2)
    latent = 0.25 * y + 0.25 * curve + np.sqrt(1 - 0.125) * own
    taken, bent = parts(latent, y)
    assert not taken.any()
    assert np.polyfit(y[:, 0], bent, 1)[0] == pytest.approx(0, abs=1e-6)
    assert np.cov(bent, curve[:, 0])[0, 1] / curve.var() == pytest.approx(0.25, abs=0.06)


def test_of_copies_nothing_is_left_to_bend():
    y = ar1(1, 3)
    taken, bent = parts(np.exp(y) + 0.3 * ar1(1, 4), y)
    assert taken.var() > 0.5
    assert not bent.any()


def test_more_is_taken_out_the_more_of_a_latent_it_is():
    """None of it up to one limit of the share that the label tells, all of it from another on."""
    y, own = ar1(1, 3, 40_000), ar1(1, 4, 40_000)
    low, high = crossed_decoder._OWN_FACTOR, crossed_decoder._COPY_OF_LABEL
    for r in (0.005, 0.1, 0.2, 0.25, 0.4, 0.8):
        part, _ = parts(np.sqrt(r) * y + np.sqrt(1 - r) * own, y)
        slope = np.polyfit(y[:, 0], part, 1)[0] / np.sqrt(r)
        assert slope == pytest.approx(np.clip((r - low) / (high - low), 0, 1), abs=0.12)


@pytest.mark.parametrize("seed", range(6))
def test_an_unrelated_slow_latent_is_left_as_it_is(seed):
    """Forty memories long: in one recording a function of one of them seems to fit the other."""
    y, latent = ar1(1, 2 * seed, memory=0.99), ar1(1, 2 * seed + 1, memory=0.99)
    _, told = rest_of(latent, y)
    assert not told.any()
    functions = functions_of(y).numpy()[:, 1:]
    seems = Ridge(alpha=1e-3 * N).fit(functions, latent).score(functions, latent)
    assert seems > 0.01  # which would be taken out if it were not held against other stretches


def test_the_labels_part_is_a_ridge_regression_with_what_held_out_stretches_say_of_it():
    """Everything again, in numpy and scikit-learn."""
    n = 1500
    y = ar1(2, 5, n)
    latents = np.stack(
        [
            np.column_stack([np.sin(y.sum(axis=1)), y[:, 0]]) + s * ar1(2, 6 + g, n) + g
            for g, s in enumerate((0.3, 0.75, 1.2))
        ]
    )
    functions = functions_of(y, n_waves=30)
    found, bent = (each.numpy() for each in _labels_part(functions, torch.from_numpy(latents), 2))
    design = functions.numpy()[:, 1:]
    fold = np.arange(n) * 20 // n % 4
    shares = []
    for latent in latents:
        predicted = np.empty_like(latent)
        for k in range(4):
            train = fold != k
            ridge = _ridge_with_plain_constant(design[train], latent[train])
            predicted[~train] = ridge(design[~train])
        c, m = latent - latent.mean(axis=0), predicted - predicted.mean(axis=0)
        stretch = np.arange(n) * 20 // n
        told = [
            1 - np.square(c - m)[kept].sum(axis=0) / np.square(c)[kept].sum(axis=0)
            for kept in [stretch >= 0, *(stretch != k for k in range(20))]
        ]
        shares.append(told[0] - np.std(told[1:], axis=0) * np.sqrt(19))
    # One decision for each latent, by the median over groups.
    low, high = crossed_decoder._OWN_FACTOR, crossed_decoder._COPY_OF_LABEL
    copied = np.clip((np.median(shares, axis=0) - low) / (high - low), 0, 1)
    assert ((copied > 0) & (copied < 1)).any()  # the case between is among them
    for g, latent in enumerate(latents):
        whole = _ridge_with_plain_constant(design, latent)
        weights = whole(np.eye(design.shape[1])) - whole(np.zeros((1, design.shape[1])))
        np.testing.assert_allclose(found[g, 1:], weights * copied, atol=1e-6)
        straight = np.linalg.lstsq(functions.numpy()[:, :3], design @ weights, rcond=None)[0]
        weights[:2] -= straight[1:]
        np.testing.assert_allclose(bent[g, 1:], weights * (1 - copied), atol=1e-6)
    assert not found[:, 0].any()


def _ridge_with_plain_constant(design, targets):
    """Ridge on columns that are not centred, with a constant that costs next to nothing."""
    ridge = Ridge(alpha=1e-3 * len(design)).fit(design, targets)
    return ridge.predict


def test_without_labels_or_latents_there_is_nothing_to_take_out():
    constant = torch.ones(50, 1, dtype=torch.float64)
    assert not any(each.any() for each in _labels_part(constant, torch.randn(2, 50, 3), 0))
    functions = functions_of(ar1(1, 0, 50), 2)
    assert _labels_part(functions, torch.randn(2, 50, 0), 1)[0].shape == (2, 4, 0)


# What the members are given


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


# Training


def taught(group):
    n_groups = max(group) + 1
    return torch.stack([torch.tensor(group) == g for g in range(n_groups)]).float() * n_groups


def test_the_error_is_that_of_every_neuron_from_its_own_inputs():
    group = (0, 1, 0, 1, 0, 1)
    model = CrossedDecoder(
        fixed(group=group), [LabelColumns("label", "continuous", slice(0, 3))], generator()
    )
    rows, targets = (torch.randn(2, 50, 5, generator=generator(4)), torch.randn(50, 6))
    for k, member in enumerate(model.members):
        direct = (expected(model, rows)[k] - targets).square().mean()
        assert _error(member, rows, targets, taught(group)) == pytest.approx(
            float(direct), rel=1e-5
        )


def trained(targets, rows, *, group=(0, 1, 0, 1, 1), steps=40, seed=0, learning_rate=3e-3):
    model = CrossedDecoder(
        fixed(group=group), [LabelColumns("label", "continuous", slice(0, 3))], generator()
    )
    _train(model, rows, targets, DecoderConfig(steps, 32, learning_rate, seed), False)
    return model


def bits(module):
    return torch.cat([p.detach().flatten() for p in module.parameters()])


def test_each_decoder_learns_from_its_own_stretches_alone():
    """One look, at the end: what is judged by does not choose then."""
    rows = torch.randn(2, 400, 5, generator=generator(5))
    targets = torch.randn(400, 5, generator=generator(6))
    first = trained(targets, rows)
    for k in range(2):
        changed = targets.clone()
        changed[torch.from_numpy(halves(400) == k)] += 3.0
        other = trained(changed, rows)
        assert torch.equal(bits(first.members[1 - k]), bits(other.members[1 - k]))
        assert not torch.equal(bits(first.members[k]), bits(other.members[k]))


def test_the_weights_kept_are_the_best_on_the_other_ones_stretches(monkeypatch):
    rows = torch.randn(2, 100, 5, generator=generator(5))
    targets = torch.randn(100, 5, generator=generator(6))  # nothing to learn: it gets worse
    seen = []

    def spied(*told):
        seen.append(_error(*told))
        return seen[-1]

    monkeypatch.setattr(crossed_decoder, "_error", spied)
    model = trained(targets, rows, steps=3000, learning_rate=3e-3)
    by_member = np.array(seen).reshape(-1, 2).T
    # Five looks at which neither became better, and the rest is not waited for.
    assert by_member.shape[1] == max(by_member.argmin(axis=1)) + 1 + 5 < 30
    half = halves(100)
    for k in range(2):
        other = np.flatnonzero(half != k)
        error = _error(model.members[k], rows[:, other], targets[other], taught((0, 1, 0, 1, 1)))
        assert error == pytest.approx(by_member[k].min(), rel=1e-6)
        assert by_member[k, -1] > 1.05 * by_member[k].min()


def test_the_same_seed_gives_the_same_bits_whatever_torch_drew_before():
    data = LinearCase(n=600)
    first = data.fit(steps=30)
    torch.manual_seed(123)
    state = torch.get_rng_state()
    again, other = data.fit(steps=30), data.fit(steps=30, seed=1)
    assert torch.equal(torch.get_rng_state(), state)
    for name, value in first.state_dict().items():
        assert torch.equal(value, again.state_dict()[name])
    assert not torch.equal(bits(first.members[0]), bits(other.members[0]))
    assert not torch.equal(bits(first.members[0]), bits(first.members[1]))


def test_the_encoder_is_left_alone():
    data = LinearCase(n=600)
    model = data.encoder
    model.train()
    model.network[0].weight.grad = torch.full_like(model.network[0].weight, 7.0)
    before = {name: value.clone() for name, value in model.state_dict().items()}
    data.fit(steps=5)
    assert model.training
    assert all(torch.equal(before[name], value) for name, value in model.state_dict().items())
    assert model.network[0].weight.grad.eq(7).all()


def test_ctrl_c_keeps_what_was_learned_and_says_so(monkeypatch):
    data = LinearCase(n=600)
    asked = []

    def press(*told):
        if not asked:
            asked.append(os.kill(os.getpid(), signal.SIGINT))
        return one_cycle(*told[:3], rise=0.05)

    one_cycle = crossed_decoder.one_cycle
    monkeypatch.setattr(crossed_decoder, "one_cycle", lambda *told, rise: press(*told))
    with pytest.warns(InterruptedFitWarning, match="stopped at step 1 of 50"):
        model = data.fit(steps=50)
    assert all(torch.isfinite(bits(member)).all() for member in model.members)


def test_too_few_samples_for_two_halves_teach_both_decoders_the_same():
    rows, targets = torch.randn(2, 1, 5, generator=generator(1)), torch.ones(1, 5)
    model = trained(targets, rows, steps=200)
    for k in range(2):
        assert (expected(model, rows)[k] - 1).abs().max() < 0.2


# A case in which everything is known


class LinearCase:
    """Neurons ``a y + b z + noise`` of a label and a hidden factor, and an encoder that reads z.

    Parameters
    ----------
    mix : tuple of float
        The latent is ``mix[0] y + mix[1] z`` in place of z.
    """

    def __init__(self, n=6000, *, mix=(0.0, 1.0), noise=0.1, seed=0):
        rng = np.random.default_rng(seed)
        y, z = ar1(1, 50 + seed, n), ar1(1, 60 + seed, n)
        self.a, self.b = (rng.standard_normal(40) for _ in range(2))
        self.a[:10], self.b[10:20] = 0.0, 0.0
        x = y * self.a + z * self.b + noise * rng.standard_normal((n, 40))
        self.recording = Recording(x)
        self.labels = [label(y)]
        self.inputs = Inputs.measure(self.recording, self.recording.epochs, project=False)
        # Nothing is left over here that would be read with its help.
        self.unused = Decoder(self.inputs, torch.zeros(1), torch.ones(1))
        self.spread, self.latent = x.std(axis=0), mix[0] * y + mix[1] * z
        u = (x - x.mean(axis=0)) / self.spread
        self.encoder = Encoder(self.inputs, 1, limit=9.0, generator=generator())
        self.encoder.network = nn.Sequential(nn.Linear(40, 1, bias=False))
        weights = np.linalg.lstsq(u, self.latent, rcond=None)[0]
        with torch.no_grad():
            self.encoder.network[0].weight.copy_(torch.from_numpy(weights.T))

    def fit(self, *, steps=500, seed=0):
        config = DecoderConfig(steps, 256, 5e-3, seed)
        return fit_crossed_decoder(
            self.encoder,
            self.unused,
            self.inputs,
            self.recording,
            self.labels,
            slice(0, 1),
            NO_PATTERNS,
            config,
        )

    def slopes(self, decoder):
        """Mean derivatives of both decoders, neuron by column, as recorded."""
        source = Source(
            self.encoder,
            self.unused,
            decoder,
            self.recording,
            {"label": self.labels[0]},
            slice(0, 1),
        )
        found = [maps.mean(dim=1) for _, maps in derivatives(source, np.arange(0, 6000, 10))]
        return torch.stack(found).mean(dim=0).numpy() * self.spread[:, None]


def test_of_a_linear_recording_both_decoders_learn_the_derivatives():
    case = LinearCase()
    decoder = case.fit()
    assert not decoder.told.any()
    y = case.labels[0].points
    expected_slopes = np.column_stack([case.a * y.std(), case.b])
    found = case.slopes(decoder)
    for k in range(2):
        assert np.abs(found[k] - expected_slopes).max() < 0.12
        assert np.abs(found[k] - expected_slopes).mean() < 0.03


def test_a_latent_that_knows_the_label_gives_it_back_to_the_label():
    """l = 0.8 y + 0.6 z, x = a y + b z: without the labels' part, l is 0.6 z, and x as before."""
    case = LinearCase(mix=(0.8, 0.6))
    decoder = case.fit()
    y = case.labels[0].points
    assert decoder.told.any()
    # Of the embedding's variance 1, 0.36 is left: an exchange of what is left moves x by b.
    np.testing.assert_allclose(decoder.embedding_scale, case.latent.std(), rtol=0.02)
    np.testing.assert_allclose(decoder.latent_scale, 0.6 * 1.0, rtol=0.06)
    expected_slopes = np.column_stack([case.a * y.std(), case.b / case.latent.std()])
    found = case.slopes(decoder)
    for k in range(2):
        assert np.abs(found[k] - expected_slopes).mean() < 0.05
        # A neuron of the hidden factor alone has no part in the label.
        assert np.abs(found[k][:10, 0]).max() < 0.12


def test_a_decoder_of_time_alone_and_one_of_labels_alone():
    case = LinearCase(n=600)
    config = DecoderConfig(5, 64, 1e-3, 0)
    told = (case.encoder, case.unused, case.inputs, case.recording)
    time = fit_crossed_decoder(*told, [], slice(0, 1), NO_PATTERNS, config)
    assert time.members[0][0].in_features == 1
    assert time.told.shape == (5, 1, 1)
    alone = fit_crossed_decoder(*told, case.labels, None, NO_PATTERNS, config)
    assert alone.members[0][0].in_features == 1
    assert alone.latent_mean.shape == (0,)
    assert not alone.around


def test_what_is_measured_is_of_the_samples_with_a_label():
    case = LinearCase(n=600)
    valid = np.arange(600) < 300
    y = np.where(valid[:, None], case.labels[0].points, np.nan)
    decoder = fit_crossed_decoder(
        case.encoder,
        case.unused,
        case.inputs,
        case.recording,
        [label(y, valid=valid)],
        slice(0, 1),
        NO_PATTERNS,
        DecoderConfig(3, 64, 1e-3, 0),
    )
    assert float(decoder.label_mean) == pytest.approx(y[:300].mean(), abs=1e-6)
    assert float(decoder.label_scale) == pytest.approx(y[:300].std(), abs=1e-6)
    assert len(decoder.reference_labels) == 300
    assert all(torch.isfinite(value).all() for value in decoder.state_dict().values())
