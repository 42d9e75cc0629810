"""Training: its schedules in closed form, and runs that are killed, stopped, resumed or refused."""

import json
import math
import os
import signal
import subprocess
import sys
import threading
import time
from contextlib import contextmanager
from dataclasses import replace

import numpy as np
import pytest
import torch

import xcebra
from xcebra import XCEBRA
from xcebra.caveats import InterruptedFitWarning, MissingLabelWarning
from xcebra.common.interrupts import deferred_interrupt
from xcebra.common.tensor_file import read_tensors
from xcebra.training.plan import make_plan
from xcebra.training.settings import RECIPES

SETTINGS = {"time_dims": 2, "steps": 240, "batch_size": 128, "random_state": 0}

# A fit in a process of its own, which writes its checkpoint after every step.
SCRIPT = """
import json, sys, warnings
from dataclasses import replace
import torch, xcebra, xcebra.training.loop
from xcebra.training.settings import RECIPES
torch.set_num_threads(1)
xcebra.training.loop._CHECKPOINT_SECONDS = -1.0
for name, recipe in RECIPES.items():
    RECIPES[name] = replace(recipe, decoder_steps=40)
rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2000)
model = xcebra.XCEBRA(**json.loads(sys.argv[2]))
with warnings.catch_warnings(record=True) as caught:
    warnings.simplefilter("always")
    model.fit(rec.neural, rec.labels["z2"], checkpoint=sys.argv[1])
told = {
    "warnings": [[w.category.__name__, str(w.message)] for w in caught],
    "n_steps": {name: len(values) for name, values in model.history_.items()},
    "shape": model.transform(rec.neural).shape,
    "loss": list(model.history_["loss/label"]),
}
print(json.dumps(told))
"""


@pytest.fixture(scope="module", autouse=True)
def _one_thread():
    """The same thread count here and in the other processes: the same bits."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(before)


@pytest.fixture(scope="module", autouse=True)
def _short_decoders():
    """These tests are about the encoder; its decoders are trained for a moment only."""
    with pytest.MonkeyPatch.context() as patch:
        for name, recipe in RECIPES.items():
            patch.setitem(RECIPES, name, replace(recipe, decoder_steps=40))
        yield


@pytest.fixture(scope="module")
def rec():
    return xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2_000)


@pytest.fixture(scope="module")
def uninterrupted(rec):
    return XCEBRA(**SETTINGS).fit(rec.neural, rec.labels["z2"])


@pytest.fixture(scope="module")
def plain(rec):
    """What most fits below must equal bit for bit, or must not."""
    np.random.seed(1)
    torch.manual_seed(1)
    return quick().fit(rec.neural, rec.labels["z2"])


@pytest.fixture(scope="module")
def checkpointed(rec, tmp_path_factory):
    """A checkpoint of a finished fit, alone in its folder, and the fit."""
    path = tmp_path_factory.mktemp("run") / "checkpoint"
    return path, quick().fit(rec.neural, rec.labels["z2"], checkpoint=path)


@pytest.fixture(scope="module")
def config(rec):
    recording = xcebra.Recording(rec.neural, rec.labels)
    return make_plan(recording, XCEBRA(**SETTINGS).get_params()).decisions.train


def quick(**settings):
    return XCEBRA(**SETTINGS | {"steps": 20} | settings)


def assert_same_bits(model, other):
    assert model.history_.keys() == other.history_.keys()
    for name, values in model.history_.items():
        assert np.array_equal(values, other.history_[name], equal_nan=True), name
    weights, others = model.encoder_.state_dict(), other.encoder_.state_dict()
    assert weights.keys() == others.keys()
    for name, values in weights.items():
        assert torch.equal(values, others[name]), name


def steps_done(path):
    """Steps in a checkpoint; read from a copy, since it may be replaced while it is read."""
    if not path.exists():
        return 0
    copy = path.with_name("copy")
    copy.write_bytes(path.read_bytes())
    return read_tensors(copy, "xcebra-checkpoint")[1]["step"]


@contextmanager
def fit_elsewhere(path):
    """A process that fits; whatever happens here, it does not outlive the test."""
    with subprocess.Popen(
        [sys.executable, "-c", SCRIPT, str(path), json.dumps(SETTINGS)],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    ) as process:
        try:
            yield process
        finally:
            process.kill()


def wait_for_step(process, path, step, seconds=60):
    """Read the checkpoint again and again while it is written: it must always be whole."""
    deadline = time.monotonic() + seconds
    while steps_done(path) < step:
        assert process.poll() is None, process.communicate()[1]
        assert time.monotonic() < deadline, "the fit did not get under way"
        time.sleep(0.01)


# Schedules


def test_a_constant_rate_is_constant(config):
    constant = replace(config, schedule="constant", learning_rate=3e-4, steps=100)
    assert {constant.rate(step) for step in range(100)} == {3e-4}


def test_one_cycle_rises_over_a_tenth_and_falls_along_half_a_cosine(config):
    cycle = replace(config, schedule="one-cycle", learning_rate=2.0, steps=1_000)
    assert cycle.rate(0) == pytest.approx(2.0 / 100)
    assert cycle.rate(49) == pytest.approx(1.0)
    assert cycle.rate(99) == pytest.approx(2.0)
    assert cycle.rate(100) == pytest.approx(2.0)
    assert cycle.rate(550) == pytest.approx(2.0 * (0.005 + 0.995 / 2))
    assert cycle.rate(325) == pytest.approx(2.0 * (0.005 + 0.995 * (1 + math.sqrt(0.5)) / 2))
    assert cycle.rate(999) == pytest.approx(2.0 * 0.005, rel=1e-2)
    rates = np.array([cycle.rate(step) for step in range(1_000)])
    assert (np.diff(rates[:100]) > 0).all()
    assert (np.diff(rates[100:]) < 0).all()


@pytest.mark.parametrize("steps", [1, 2, 5, 10, 11])
def test_one_cycle_of_few_steps_stays_between_zero_and_its_peak(config, steps):
    cycle = replace(config, schedule="one-cycle", learning_rate=1.0, steps=steps)
    rates = [cycle.rate(step) for step in range(steps)]
    assert max(rates) == 1.0
    assert min(rates) > 0


def test_the_penalty_is_off_for_an_eighth_rises_over_the_next_and_holds(config):
    paper = replace(config, steps=20_000, jacobian_weight=0.1)
    assert [paper.penalty_weight(step) for step in (0, 1, 2_499, 2_500)] == [0.0] * 4
    assert paper.penalty_weight(2_501) == pytest.approx(0.1 / 2_500)
    assert paper.penalty_weight(3_125) == pytest.approx(0.025)
    assert paper.penalty_weight(3_750) == pytest.approx(0.05)
    assert [paper.penalty_weight(step) for step in (5_000, 5_001, 19_999)] == [0.1] * 3


@pytest.mark.parametrize("steps", [1, 3, 8, 100])
def test_the_penalty_never_leaves_zero_to_its_weight_whatever_the_steps(config, steps):
    weights = [replace(config, steps=steps).penalty_weight(step) for step in range(steps)]
    assert weights[0] == 0
    assert (np.diff(weights) >= 0).all()
    assert max(weights) <= config.jacobian_weight


def test_the_history_shows_the_schedules_and_the_chance_level(uninterrupted, config):
    history = uninterrupted.history_
    steps = range(SETTINGS["steps"])
    assert all(len(values) == len(steps) for values in history.values())
    assert np.array_equal(history["learning_rate"], [config.rate(step) for step in steps])
    assert np.array_equal(history["weight"], [config.penalty_weight(step) for step in steps])
    assert np.array_equal(np.isnan(history["penalty"]), history["weight"] == 0)
    for name in ("label", "time"):
        # Our recipe has the positive in the sum.
        assert history[f"chance/{name}"] == pytest.approx(math.log(SETTINGS["batch_size"] + 1))
        # A network that is not trained keeps what is near in time near, so it starts below chance.
        first = history[f"loss/{name}"][0] - history[f"chance/{name}"][0]
        assert -0.75 < first < 0.1
        assert history[f"loss/{name}"][-20:].mean() < history[f"loss/{name}"][:5].mean()


@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_before_training_pairs_of_unrelated_samples_have_the_loss_of_chance(rec):
    """Activity in another order than in time, and labels in a third one."""
    rng = np.random.default_rng(0)
    first, second = rng.permutation(len(rec.neural)), rng.permutation(len(rec.neural))
    history = quick(steps=2).fit(rec.neural[first], rec.labels["z2"][second]).history_
    for name in ("label", "time"):
        assert history[f"loss/{name}"][0] == pytest.approx(history[f"chance/{name}"][0], abs=0.05)


def test_the_paper_s_chance_level_is_log_n(rec):
    model = quick(recipe="paper", steps=2).fit(rec.neural, rec.labels["z2"])
    assert model.history_["chance/label"] == pytest.approx(math.log(128))


# Seeds


def test_two_fits_in_one_process_give_the_same_bits(rec, plain):
    np.random.seed(2)
    torch.manual_seed(2)
    assert_same_bits(plain, quick().fit(rec.neural, rec.labels["z2"]))


def test_another_seed_gives_another_model(rec, plain):
    other = quick(random_state=1).fit(rec.neural, rec.labels["z2"])
    assert not np.array_equal(plain.history_["loss/label"], other.history_["loss/label"])


def test_a_fit_outside_the_main_thread_gives_the_same_bits(rec, plain):
    models = []
    thread = threading.Thread(
        target=lambda: models.append(quick().fit(rec.neural, rec.labels["z2"]))
    )
    thread.start()
    thread.join()
    assert_same_bits(models[0], plain)


# Killed and resumed


def test_a_killed_run_goes_on_to_the_same_bits(rec, uninterrupted, tmp_path):
    path = tmp_path / "checkpoint"
    with fit_elsewhere(path) as process:
        wait_for_step(process, path, SETTINGS["steps"] // 3)  # the penalty is at work
        process.kill()
        process.communicate()
        assert process.returncode != 0
    assert SETTINGS["steps"] // 3 <= steps_done(path) < SETTINGS["steps"]
    resumed = XCEBRA(**SETTINGS).fit(rec.neural, rec.labels["z2"], checkpoint=path)
    assert_same_bits(resumed, uninterrupted)
    assert steps_done(path) == SETTINGS["steps"]
    assert np.array_equal(resumed.transform(rec.neural), uninterrupted.transform(rec.neural))
    assert resumed.goodness_of_fit_ == uninterrupted.goodness_of_fit_


def test_a_search_for_the_weight_goes_on_to_the_same_bits(rec, tmp_path):
    """Stopped where the twin is at work, which the checkpoint must hold."""
    path = tmp_path / "checkpoint"
    settings = {"jacobian_weight": "auto", "steps": 40}
    whole = quick(**settings).fit(rec.neural, rec.labels["z2"])

    def stop(step, _):
        if step == 10:
            signal.raise_signal(signal.SIGINT)

    with pytest.warns(InterruptedFitWarning):
        quick(**settings).fit(rec.neural, rec.labels["z2"], checkpoint=path, callback=stop)
    assert steps_done(path) == 10
    resumed = quick(**settings).fit(rec.neural, rec.labels["z2"], checkpoint=path)
    assert_same_bits(resumed, whole)


def test_the_twin_is_the_encoder_without_the_penalty(rec):
    """It starts as a copy: nothing is lost at first, then more and more."""
    model = quick(jacobian_weight="auto", steps=80).fit(rec.neural, rec.labels["z2"])
    weight, lost = model.history_["weight"], model.history_["lost/label"]
    at_work = ~np.isnan(lost)
    assert np.flatnonzero(at_work).tolist() == list(range(10, 30))
    assert (weight[:10] == 0).all()
    assert lost[10] == pytest.approx(0, abs=1e-5)
    assert lost[25:30].mean() > lost[10:15].mean()
    assert len(set(weight[30:])) == 1
    assert model.config_["jacobian_weight"] == weight[-1] > 0
    free = quick(jacobian_weight=0.0, steps=80).fit(rec.neural, rec.labels["z2"])
    # Until the search ends, the twin takes the steps of a fit without penalty.
    twin = (model.history_["loss/label"] - lost)[at_work]
    assert twin == pytest.approx(free.history_["loss/label"][at_work], rel=1e-4)


def test_a_finished_run_is_taken_from_its_checkpoint_without_a_step(rec, checkpointed):
    path, first = checkpointed
    written = path.read_bytes()
    again = quick().fit(rec.neural, rec.labels["z2"], checkpoint=str(path))
    assert_same_bits(first, again)
    assert path.read_bytes() == written
    assert os.listdir(path.parent) == ["checkpoint"]


def test_a_checkpoint_changes_nothing_about_the_fit(checkpointed, plain):
    assert_same_bits(checkpointed[1], plain)


# Checkpoints that do not belong


@pytest.fixture(scope="module")
def checkpoint(checkpointed):
    return checkpointed[0]


@pytest.mark.parametrize(
    "settings",
    [
        {"steps": 21},
        {"batch_size": 64},
        {"random_state": 1},
        {"learning_rate": 2e-3},
        {"temperature": 0.5},
        {"jacobian_weight": 0.1},
        {"time_offset": 3},
        {"time_dims": 3},
        {"label_dims": 3},
        {"time_on": "block"},
        {"distance": "cosine"},
        {"objective": "regression", "time_dims": 0},
        {"recipe": "paper", "learning_rate": 1e-3, "jacobian_weight": 0.05},
    ],
)
def test_a_checkpoint_of_other_settings_is_refused(rec, checkpoint, settings):
    with pytest.raises(ValueError, match=r"belongs to another fit.*delete it or give another path"):
        quick(**settings).fit(rec.neural, rec.labels["z2"], checkpoint=checkpoint)


def test_a_checkpoint_of_other_data_labels_or_epochs_is_refused(rec, checkpoint):
    x, y = rec.neural, rec.labels["z2"]
    scaled, moved, missing = x * 2, y.copy(), y.copy()
    moved[100] += 1e-3
    missing[100:150] = np.nan
    refused = pytest.raises(ValueError, match=f"checkpoint {str(checkpoint)!r} belongs to another")
    with refused:
        quick().fit(scaled, y, checkpoint=checkpoint)
    with refused:
        quick().fit(x, moved, checkpoint=checkpoint)
    with refused, pytest.warns(MissingLabelWarning):
        quick().fit(x, missing, checkpoint=checkpoint)
    with refused:
        quick().fit(x, y, epochs=[(0, 1_000), (1_000, 2_000)], checkpoint=checkpoint)
    with refused:
        quick().fit(x, {"another": y}, checkpoint=checkpoint)


def test_a_checkpoint_of_the_same_counts_in_another_order_is_refused(tmp_path):
    """The shuffled control: same mean and spread of every neuron, exactly, yet other data."""
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=2_000, counts=True)
    shuffled = rec.neural.copy()
    shuffled[1:1_800] = rec.neural[1 + np.random.default_rng(0).permutation(1_799)]
    settings = {"temperature": 1.0, "time_offset": 1}
    quick(**settings).fit(rec.neural, rec.labels["z2"], checkpoint=tmp_path / "x")
    with pytest.raises(ValueError, match="belongs to another fit"):
        quick(**settings).fit(shuffled, rec.labels["z2"], checkpoint=tmp_path / "x")


def test_a_checkpoint_of_another_kind_of_label_is_refused(rec, tmp_path):
    """Cosine and sine as an angle or as two plain columns: same values, other pairs."""
    angle = np.cumsum(np.random.default_rng(0).normal(size=2_000)) * 0.1
    y = np.stack([np.cos(angle), np.sin(angle)], axis=1)
    quick(label_kind="circular").fit(rec.neural, y, checkpoint=tmp_path / "x")
    with pytest.raises(ValueError, match="belongs to another fit"):
        quick(label_kind="continuous").fit(rec.neural, y, checkpoint=tmp_path / "x")


def test_without_a_seed_a_checkpoint_goes_on_or_says_what_is_missing(rec, tmp_path):
    """The default random_state draws a new seed at every fit: no second fit can match."""
    model = quick(random_state=None)
    try:
        model.fit(rec.neural, rec.labels["z2"], checkpoint=tmp_path / "x")
        model.fit(rec.neural, rec.labels["z2"], checkpoint=tmp_path / "x")
    except ValueError as error:
        told = str(error)
        assert "random_state" in told


def test_a_damaged_checkpoint_is_refused_by_name(rec, checkpoint, tmp_path):
    path = tmp_path / "damaged"
    path.write_bytes(checkpoint.read_bytes()[:-100])
    with pytest.raises(ValueError, match=f"{str(path)!r} is not a complete"):
        quick().fit(rec.neural, rec.labels["z2"], checkpoint=path)


def test_a_saved_model_is_no_checkpoint(rec, plain, tmp_path):
    plain.save(tmp_path / "model")
    with pytest.raises(ValueError, match="holds 'xcebra-model', expected 'xcebra-checkpoint'"):
        quick().fit(rec.neural, rec.labels["z2"], checkpoint=tmp_path / "model")


def test_a_checkpoint_without_a_folder_is_refused_before_training(rec, tmp_path):
    """This fit would fail at its second step: whatever comes first is what is raised."""
    model = quick(learning_rate=1e38)
    with pytest.raises(FileNotFoundError, match="no folder"):
        model.fit(rec.neural, rec.labels["z2"], checkpoint=tmp_path / "no" / "checkpoint")


# Stopped by hand


@pytest.mark.skipif(sys.platform == "win32", reason="no SIGINT for another process")
def test_ctrl_c_keeps_what_was_learned_and_the_checkpoint_goes_on(rec, uninterrupted, tmp_path):
    path = tmp_path / "checkpoint"
    with fit_elsewhere(path) as process:
        wait_for_step(process, path, 20)
        process.send_signal(signal.SIGINT)
        out, err = process.communicate(timeout=60)
        assert process.returncode == 0, err
    told = json.loads(out)
    ((category, message),) = told["warnings"]
    assert category == "InterruptedFitWarning"
    (n_steps,) = set(told["n_steps"].values())
    assert 20 <= n_steps < SETTINGS["steps"]
    assert f"stopped at step {n_steps} of {SETTINGS['steps']}" in message
    assert told["shape"] == [2_000, 4]
    assert told["loss"] == list(uninterrupted.history_["loss/label"][:n_steps])
    assert steps_done(path) == n_steps
    resumed = XCEBRA(**SETTINGS).fit(rec.neural, rec.labels["z2"], checkpoint=path)
    assert_same_bits(resumed, uninterrupted)


def test_the_first_ctrl_c_asks_and_the_second_raises():
    with deferred_interrupt() as interrupted:
        assert not interrupted()
        signal.raise_signal(signal.SIGINT)
        assert interrupted()
        with pytest.raises(KeyboardInterrupt):
            signal.raise_signal(signal.SIGINT)


def test_ctrl_c_is_the_caller_s_again_after_a_fit_and_after_a_failure(rec):
    before = signal.getsignal(signal.SIGINT)
    quick(steps=2).fit(rec.neural, rec.labels["z2"])
    assert signal.getsignal(signal.SIGINT) is before
    with pytest.raises(FloatingPointError):
        quick(learning_rate=1e38).fit(rec.neural, rec.labels["z2"])
    assert signal.getsignal(signal.SIGINT) is before


# Losses that go wrong, and labels that are hardly there


@pytest.mark.parametrize("recipe", ["xcebra", "paper"])
def test_a_loss_that_is_no_longer_finite_names_the_learning_rate(rec, recipe):
    with pytest.raises(
        FloatingPointError, match=r"became nan at step \d+ with learning_rate=1e\+38; try a smaller"
    ):
        quick(learning_rate=1e38, recipe=recipe).fit(rec.neural, rec.labels["z2"])


def test_a_fit_that_failed_is_not_fitted(rec):
    model = quick(learning_rate=1e38)
    with pytest.raises(FloatingPointError):
        model.fit(rec.neural, rec.labels["z2"])
    assert not hasattr(model, "encoder_")


def known_at_few(rec, n_known):
    y = np.full((2_000, 2), np.nan)
    y[100 : 100 + n_known] = rec.labels["z2"][100 : 100 + n_known]
    return y


@pytest.mark.parametrize("recipe", ["xcebra", "paper"])
@pytest.mark.filterwarnings("ignore::xcebra.caveats.MissingLabelWarning")
def test_batches_that_hold_no_reference_or_no_negative_of_a_label_pass_it_by(rec, recipe):
    model = quick(recipe=recipe, steps=40).fit(rec.neural, known_at_few(rec, 15))
    loss, chance = (model.history_[f"{kind}/label"] for kind in ("loss", "chance"))
    left_out = np.isnan(chance)
    assert 5 < left_out.sum() < 35
    assert np.isfinite(loss[~left_out]).all()
    assert np.isfinite(model.history_["loss/time"]).all()


@pytest.mark.filterwarnings("ignore::xcebra.caveats.MissingLabelWarning")
def test_steps_without_the_label_are_gaps_in_its_history_not_losses_of_zero(rec):
    """Zeros would pull down the loss that the goodness of fit reports."""
    model = quick(steps=40).fit(rec.neural, known_at_few(rec, 15))
    loss, chance = (model.history_[f"{kind}/label"] for kind in ("loss", "chance"))
    left_out = np.isnan(chance)
    assert model.goodness_of_fit_["label"].loss == pytest.approx(loss[~left_out].mean())
    assert np.array_equal(np.isnan(loss), left_out)


@pytest.mark.filterwarnings("ignore::xcebra.caveats.MissingLabelWarning")
def test_a_label_that_no_batch_held_is_told_as_unknown_without_a_stray_warning(rec):
    model = quick(steps=2, time_offset=1).fit(rec.neural, known_at_few(rec, 2))
    assert np.isnan(model.history_["chance/label"]).all()
    assert np.isnan(model.goodness_of_fit_["label"].loss)
    assert model.goodness_of_fit_["label"].learned is None
