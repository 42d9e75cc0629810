"""Fitting two decoders: which samples, who learns from what, and a case that is known."""

import os
import signal

import numpy as np
import pytest
import torch
from scipy.signal import lfilter
from torch import nn

from xcebra.attribution.crossed_derivatives import derivatives
from xcebra.attribution.crossed_source import Source
from xcebra.caveats import InterruptedFitWarning
from xcebra.data.epochs import Epochs
from xcebra.data.labels import Label
from xcebra.data.recording import Recording
from xcebra.networks import crossed_fit
from xcebra.networks.crossed_decoder import (
    CrossedDecoder,
    LabelColumns,
    expected,
    halves,
    label_columns,
)
from xcebra.networks.crossed_fit import (
    _error,
    _train,
    fit_crossed_decoder,
    known_times,
    label_points,
)
from xcebra.networks.decoder import Decoder, DecoderConfig
from xcebra.networks.encoder import Encoder, Inputs

NO_PATTERNS = torch.zeros(40, 0)


def generator(seed=0):
    return torch.Generator().manual_seed(seed)


def ar1(width, seed, n, memory=0.95):
    """Independent AR(1) processes of variance 1."""
    shocks = np.random.default_rng(seed).standard_normal((n + 300, width))
    return lfilter([np.sqrt(1 - memory**2)], [1.0, -memory], shocks, axis=0)[300:]


def label(values, name="label", kind="continuous", valid=None):
    valid = np.ones(len(values), dtype=bool) if valid is None else valid
    return Label(name, kind, np.asarray(values, dtype=np.float64), valid)


def fixed(group):
    """Buffers for three label columns and two time latents, of which training uses no number."""
    n_groups = max(group) + 1
    return {
        "around": torch.tensor(False),
        "patterns": torch.zeros(len(group), 0),
        "group": torch.tensor(group),
        "correlations": torch.eye(len(group))[None],
        "borders": torch.zeros(0, dtype=torch.int64),
        "label_mean": torch.zeros(3),
        "label_scale": torch.ones(3),
        "directions": torch.zeros(3, 0),
        "phases": torch.zeros(0),
        "told": torch.zeros(n_groups, 4, 2),
        "bend": torch.zeros(n_groups, 4, 2),
        "latent_mean": torch.zeros(2),
        "latent_scale": torch.ones(2),
        "embedding_scale": torch.ones(2),
        "reference_embedding": torch.zeros(1, 5),
        "reference_labels": torch.zeros(1, 3),
        "class_shares": torch.ones(3),
    }


# Which samples, and which columns


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


# Training


def taught(group):
    n_groups = max(group) + 1
    return torch.stack([torch.tensor(group) == g for g in range(n_groups)]).float() * n_groups


def test_the_error_is_that_of_every_neuron_from_its_own_inputs():
    group = (0, 1, 0, 1, 0, 1)
    model = CrossedDecoder(
        fixed(group), [LabelColumns("label", "continuous", slice(0, 3))], generator()
    )
    rows, targets = (torch.randn(2, 50, 5, generator=generator(4)), torch.randn(50, 6))
    for k, member in enumerate(model.members):
        direct = (expected(model, rows)[k] - targets).square().mean()
        assert _error(member, rows, targets, taught(group)) == pytest.approx(
            float(direct), rel=1e-5
        )


def trained(targets, rows, *, group=(0, 1, 0, 1, 1), steps=40, seed=0, learning_rate=3e-3):
    model = CrossedDecoder(
        fixed(group), [LabelColumns("label", "continuous", slice(0, 3))], generator()
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

    monkeypatch.setattr(crossed_fit, "_error", spied)
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


def test_targets_that_are_read_in_every_step_give_the_same_bits(monkeypatch):
    """Of large recordings, the activity of the training samples is not held in memory."""
    data = LinearCase(n=600)
    kept = data.fit(steps=30)
    monkeypatch.setattr(crossed_fit, "_MOST_KEPT", 0)
    for name, value in data.fit(steps=30).state_dict().items():
        assert torch.equal(value, kept.state_dict()[name])


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

    one_cycle = crossed_fit.one_cycle
    monkeypatch.setattr(crossed_fit, "one_cycle", lambda *told, rise: press(*told))
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
