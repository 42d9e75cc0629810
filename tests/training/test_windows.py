"""Encoders that read several samples: what they see, what they are trained on, and their maps."""

import warnings

import numpy as np
import pytest
import torch
from scipy.ndimage import gaussian_filter1d

import xcebra
from xcebra import XCEBRA, AttributionMap, Recording
from xcebra.caveats import ShortRecordingWarning, XcebraWarning
from xcebra.data.epochs import Epochs
from xcebra.data.recording import overlap_of
from xcebra.networks.jacobian import RELATIVE_CUTOFF
from xcebra.report import write_report
from xcebra.training.plan import make_plan
from xcebra.training.settings import split_epochs

LAGS = {2: (-1, 0), 5: (-2, -1, 0, 1, 2), 10: (-5, -4, -3, -2, -1, 0, 1, 2, 3, 4)}


@pytest.fixture(scope="module")
def rec():
    return xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=4000, noise=0.2, seed=302)


@pytest.fixture(scope="module")
def fitted(rec):
    model = XCEBRA(2, 2, window=5, steps=60, batch_size=256, random_state=0, progress=False)
    return model.fit(rec.neural, rec.labels["z2"])


# What is seen


@pytest.mark.parametrize("size", LAGS)
def test_a_window_is_its_lags_and_the_edge_beyond_it(size):
    x = np.arange(40, dtype=float)[:, None] * [1.0, 10.0]
    rec = Recording(x, epochs=[(0, 12), (12, 20), (25, 40)])
    times = np.arange(40)
    found = rec.windows(times, size)
    assert found.shape == (40, size, 2)
    # Gaps are stretches of their own: every row can be embedded, and none sees another stretch.
    stretches = [(0, 12), (12, 20), (20, 25), (25, 40)]
    for start, stop in stretches:
        for t in range(start, stop):
            seen = [min(max(t + lag, start), stop - 1) for lag in LAGS[size]]
            assert found[t, :, 0].tolist() == seen
    assert np.array_equal(found[:, :, 1], 10 * found[:, :, 0])


def test_inside_leaves_only_samples_whose_window_lies_in_their_epoch():
    epochs = Epochs.check([(0, 12), (12, 16), (25, 40)], 40)
    for size, lags in LAGS.items():
        kept = epochs.inside(size)
        expected = [
            t
            for start, stop in epochs.pairs()
            for t in range(start, stop)
            if t + lags[0] >= start and t + lags[-1] < stop
        ]
        assert (kept.indices().tolist() if len(kept) else []) == expected


@pytest.mark.parametrize("size", LAGS)
def test_the_nearest_other_windows_leave_the_sample_out_and_touch_it(size):
    epochs = Epochs.check(None, 100)
    before, after = epochs.neighbours(np.array([50]), size - size // 2, size // 2 + 1)
    lags = np.array(LAGS[size])
    assert (before[0] + lags).max() == 49
    assert (after[0] + lags).min() == 51


def test_neighbours_at_an_edge_are_the_one_there_is():
    epochs = Epochs.check([(0, 10)], 10)
    before, after = epochs.neighbours(np.array([1, 8, 4]), 3, 4)
    assert before.tolist() == [5, 5, 1]
    assert after.tolist() == [5, 5, 8]
    assert [each.tolist() for each in epochs.neighbours(np.array([5]), 7, 7)] == [[0], [9]]


# What is trained on


def test_no_window_of_training_reaches_into_what_is_held_out(rec):
    recording = Recording(rec.neural, {"z2": rec.labels["z2"]}, [(0, 1500), (1500, 4000)])
    plan = make_plan(recording, XCEBRA(2, 2, window=10, random_state=0).get_params())
    assert plan.decisions.time_offset >= 10
    seen = {
        name: set((each.indices()[:, None] + LAGS[10]).ravel().tolist())
        for name, each in (("training", plan.training), ("held out", plan.held_out))
    }
    assert not seen["training"] & seen["held out"]
    assert min(seen["training"]) == 0
    assert max(seen["training"]) == 3999
    assert len(seen["training"]) + len(seen["held out"]) == 4000
    assert len(plan.held_out) > 1


@pytest.mark.parametrize(("window", "length"), [(4, 60), (3, 50)])
def test_nothing_is_measured_on_what_is_held_out(window, length):
    """Short epochs: with the offset that is chosen, other samples are held out than without."""
    rng = np.random.default_rng(0)
    borders = [(k * length, (k + 1) * length) for k in range(50)]
    x = np.cumsum(rng.standard_normal((50 * length, 6)), axis=0)
    params = XCEBRA(None, 2, window=window, random_state=0).get_params()
    plan = make_plan(Recording(x, epochs=borders), params)
    spoiled = x.copy()
    spoiled[plan.held_out.indices()] = 1e6 * rng.standard_normal((plan.held_out.size, 6))
    again = make_plan(Recording(spoiled, epochs=borders), params)
    assert plan.held_out.pairs() == again.held_out.pairs()
    np.testing.assert_array_equal(plan.inputs.mean, again.inputs.mean)
    np.testing.assert_array_equal(plan.inputs.loadings, again.inputs.loadings)


# Pairs in time


def noise(width):
    """What neurons that share nothing do, smoothed."""
    x = np.random.default_rng(0).standard_normal((3000, 20))
    return gaussian_filter1d(x, width, axis=0) if width else x


@pytest.mark.parametrize("recipe", ["xcebra", "paper"])
@pytest.mark.parametrize(("window", "width"), [(10, 0), (1, 2.0), (4, 1.0)])
def test_noise_that_windows_or_smoothing_spread_is_not_learned(
    window, width, recipe, short_decoders
):
    rec = Recording(noise(width), overlap=overlap_of(width))
    settings = {"window": window, "recipe": recipe, "steps": 40, "batch_size": 256}
    model = XCEBRA(None, 3, random_state=0, progress=False, **settings)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit(rec, label=[])
    assert model.config_["time_offset"] >= window + overlap_of(width) >= 4
    assert model.goodness_of_fit_["time"].learned is False


def test_pairs_that_share_what_was_measured_are_refused(rec):
    with pytest.raises(ValueError, match=r"time_offset=3 .*window=5 .*give time_offset=5 or more"):
        XCEBRA(2, 2, window=5, time_offset=3).fit(rec.neural, rec.labels["z2"])
    smoothed = Recording(noise(1.0), overlap=3)
    with pytest.raises(ValueError, match=r"over 3 on either side.*give time_offset=4 or more"):
        XCEBRA(None, 2, time_offset=2).fit(smoothed, label=[])


def test_smoothing_is_known_to_the_recording():
    for wrong in (-1, 0.5, None):
        with pytest.raises(ValueError, match=f"overlap must be a whole number.* got {wrong}"):
            Recording(noise(0), overlap=wrong)
    assert [overlap_of(width) for width in (0, 0.25, 0.5, 1.0, 2.5)] == [0, 0, 1, 3, 9]
    values, times = np.random.default_rng(0).standard_normal((200, 3)), 0.1 * np.arange(200)
    read = xcebra.read({"neural": (times, values)}, neural="neural", smooth=0.2)
    assert read.overlap == 7
    assert xcebra.read({"neural": (times, values)}, neural="neural").overlap == 0


def test_short_epochs_are_told_and_every_tenth_is_held_out():
    many = [(k * 40, k * 40 + 40) for k in range(100)] + [(4000, 4012)]
    epochs = Epochs.check(many, 4012)
    training, held_out = split_epochs(epochs, 10, window=10)
    assert training.starts[0] == 5
    assert set(training.lengths) == set(held_out.lengths) == {31}
    assert (held_out.starts - 5).tolist() == list(range(160, 4000, 400))
    assert len(held_out) == 10
    recording = Recording(np.random.default_rng(0).standard_normal((4012, 5)), epochs=many)
    with pytest.warns(ShortRecordingWarning, match="1 of 101 .* time_offset=10 and window=10"):
        make_plan(recording, XCEBRA(None, 2, window=10, random_state=0).get_params())


def test_windows_longer_than_every_epoch_are_refused(rec):
    short = [(k * 10, k * 10 + 10) for k in range(400)]
    with pytest.raises(ValueError, match=r"read from window=12 samples each.*lower time_offset or"):
        XCEBRA(2, 2, window=12).fit(rec.neural, rec.labels["z2"], epochs=short)
    with pytest.raises(ValueError, match="window must be a whole number of 1 or more, got 0"):
        XCEBRA(2, 2, window=0).fit(rec.neural, rec.labels["z2"])


def test_a_window_of_one_is_no_window(rec):
    settings = {"steps": 5, "batch_size": 128, "random_state": 0, "progress": False}
    neural, label = rec.neural[:1000], rec.labels["z2"][:1000]
    plain, one = (
        XCEBRA(2, 2, window=window, **settings).fit(neural, label) for window in (None, 1)
    )
    assert np.array_equal(plain.transform(neural), one.transform(neural))
    assert plain.config_["window"] == 1


# What comes out


def test_an_embedding_has_a_row_for_each_sample_and_keeps_to_its_epoch(rec, fitted):
    z = fitted.transform(rec.neural)
    assert z.shape == (4000, 4)
    epochs = [(0, 2000), (2000, 4000)]
    apart = fitted.transform(rec.neural, epochs=epochs)
    differ = np.flatnonzero((z != apart).any(axis=1))
    assert differ.tolist() == [1998, 1999, 2000, 2001]
    halves = np.concatenate([fitted.transform(rec.neural[a:b]) for a, b in epochs])
    np.testing.assert_allclose(apart, halves, atol=1e-6)


def test_a_saved_model_reads_the_same_windows(rec, fitted, tmp_path):
    fitted.save(tmp_path / "model.safetensors")
    again = XCEBRA.load(tmp_path / "model.safetensors")
    assert again.window == again.encoder_.window == 5
    assert np.array_equal(again.transform(rec.neural), fitted.transform(rec.neural))


def jacobians(model, rec, times):
    """By autograd, (time, latent, lag, neuron), of standardised neurons."""
    encoder = model.encoder_
    x = torch.from_numpy(rec.windows(times, model.window))
    found = torch.func.vmap(torch.func.jacrev(lambda one: encoder(one[None])[0]))(x)
    return (found * encoder.scale).detach().double().numpy()


def test_maps_of_derivatives_are_those_of_autograd_over_neurons_and_lags(rec, fitted):
    data = Recording(rec.neural[:60])
    dense = jacobians(fitted, data, np.arange(60))
    options = {"basis": "raw", "smooth": 1, "keep_time": True}
    gradient = fitted.attribute(data, method="gradient", **options)
    over = np.linalg.norm(dense, axis=2).transpose(0, 2, 1)
    np.testing.assert_allclose(gradient.steps.maps, over, rtol=1e-3, atol=1e-5)
    assert list(gradient.lags) == [-2, -1, 0, 1, 2]
    for i, each in enumerate(gradient.lags.values()):
        np.testing.assert_allclose(each.values, np.abs(dense[:, :, i]).mean(axis=0).T, rtol=1e-3)
        block = np.linalg.norm(dense[:, :2, i], axis=1).mean(axis=0)
        np.testing.assert_allclose(each.block("label"), block, rtol=1e-3)
    inverses = np.linalg.pinv(dense.reshape(60, 4, -1)).reshape(60, 5, -1, 4)
    inverted = fitted.attribute(data, method="inverted-gradient", **options)
    np.testing.assert_allclose(
        inverted.values, np.linalg.norm(inverses, axis=1).mean(axis=0), rtol=2e-2
    )
    np.testing.assert_allclose(
        inverted.lags[1].values, np.abs(inverses[:, 3]).mean(axis=0), rtol=2e-2, atol=1e-4
    )


def test_windows_of_ten_with_blocks_of_unit_norm(rec):
    """Each block loses a direction, the radial one; its inverse must not explode."""
    model = XCEBRA(
        3, 3, window=10, distance="cosine", steps=60, batch_size=256, random_state=0, progress=False
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model.fit(rec.neural, rec.labels["z2"])
        data = Recording(rec.neural[:60])
        embedding = model.transform(data.neural)
        options = {"basis": "raw", "smooth": 1, "keep_time": True}
        inverted = model.attribute(data, method="inverted-gradient", **options)
        decoder = model.attribute(rec.neural, every=4)
    for block in model.blocks_.values():
        np.testing.assert_allclose(np.linalg.norm(embedding[:, block], axis=1), 1, rtol=1e-5)
    dense = jacobians(model, data, np.arange(60)).reshape(60, 6, -1)
    for block in model.blocks_.values():
        radial = np.einsum("tl,tlx->tx", embedding[:, block], dense[:, block])
        assert np.abs(radial).max() < 1e-4 * np.abs(dense).max()
    inverses = np.linalg.pinv(dense, rcond=RELATIVE_CUTOFF).reshape(60, 10, -1, 6)
    over = np.linalg.norm(inverses, axis=1).mean(axis=0)
    np.testing.assert_allclose(inverted.values, over, rtol=2e-2)
    assert list(inverted.lags) == list(LAGS[10])
    truth = rec.ground_truth
    assert xcebra.metrics.auroc(decoder, truth, block="label", factor="z2", score="block") > 0.95


@pytest.mark.parametrize("method", ["integrated-gradients", "shap-zeros", "feature-ablation"])
def test_contributions_are_those_of_a_module_that_reads_windows(rec, fitted, method):
    class Bare(torch.nn.Module):
        def forward(self, x):
            return fitted.encoder_(x.mT)

    data = Recording(rec.neural[:40])
    windows = data.windows(np.arange(40), 5).transpose(0, 2, 1)
    seed = fitted.config_["random_state"]
    bare = xcebra.attribute(Bare(), windows, method=method, random_state=seed)
    ours = fitted.attribute(data, method=method, basis="raw")
    np.testing.assert_allclose(ours.values, bare.values, rtol=2e-3, atol=1e-5)
    for mine, its in zip(ours.lags.values(), bare.lags.values(), strict=True):
        np.testing.assert_allclose(mine.values, its.values, rtol=2e-3, atol=1e-5)
    assert list(bare.lags) == [0, 1, 2, 3, 4]


def test_the_decoder_s_map_has_no_lags_and_finds_the_neurons(rec, fitted):
    amap = fitted.attribute(rec.neural, every=4)
    assert amap.lags == {}
    truth = rec.ground_truth
    assert xcebra.metrics.auroc(amap, truth, block="label", factor="z2", score="block") > 0.95


def test_lags_are_saved_with_the_map(rec, fitted, tmp_path):
    amap = fitted.attribute(rec.neural[:200], method="gradient")
    amap.save(tmp_path / "map.nc")
    again = AttributionMap.load(tmp_path / "map.nc")
    assert list(again.lags) == list(amap.lags)
    for lag, each in amap.lags.items():
        assert np.array_equal(again.lags[lag].values, each.values)
        assert np.array_equal(again.lags[lag].block("time"), each.block("time"))
    dataset = amap.to_xarray()
    assert dataset["lag_value"].sel(lag=-1).shape == (50, 4)


def test_every_so_manieth_sample_is_read_with_its_own_neighbours(rec, fitted):
    whole = fitted.attribute(rec.neural[:300], method="gradient", keep_time=True)
    some = fitted.attribute(rec.neural[:300], method="gradient", keep_time=True, every=7)
    assert some.steps.times.tolist() == list(range(0, 300, 7))
    np.testing.assert_allclose(some.steps.maps, whole.steps.maps[::7], atol=1e-6)
    with pytest.raises(ValueError, match="every must be a whole number of 1 or more, got 0"):
        fitted.attribute(rec.neural, every=0)


def test_neurons_that_lead_the_label_are_found_at_their_lag(short_decoders):
    """Three neurons show the label three samples before it comes; the others show nothing."""
    rng = np.random.default_rng(0)
    label = np.sin(np.cumsum(0.4 * rng.standard_normal(6003)))
    x = rng.standard_normal((6000, 8))
    x[:, :3] += 3 * label[3:, None]
    model = XCEBRA(1, 0, window=9, steps=150, batch_size=256, random_state=0, progress=False)
    model.fit(x, label[:6000])
    assert model.goodness_of_fit_["label"].learned
    amap = model.attribute(x, method="gradient", every=5)
    strength = {lag: each.block("label")[:3].mean() for lag, each in amap.lags.items()}
    assert max(strength, key=strength.get) == -3
    assert amap.block("label")[:3].min() > 2 * amap.block("label")[3:].max()


def test_a_tested_map_and_its_page_of_a_model_with_a_window(
    rec, tmp_path, monkeypatch, full_decoders
):
    monkeypatch.setattr("xcebra.statistics.block_gains.N_SHIFTS", 19)
    data = Recording(rec.neural, rec.labels, ground_truth=rec.ground_truth)
    model = XCEBRA(2, 2, window=4, steps=60, batch_size=256, random_state=0, progress=False)
    with full_decoders():
        model.fit(data, label="z2")
    amap = model.attribute(data, test=True, every=4)
    truth = rec.ground_truth["z2"]
    assert amap.significant("z2")[truth].mean() > 0.8
    page = tmp_path / "page.html"
    write_report(page, model, amap, recording=data)
    assert "window" in page.read_text()
