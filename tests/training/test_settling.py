"""When training has settled, and what then happens to the schedule."""

import itertools

import numpy as np
import pytest

import xcebra
from xcebra import XCEBRA
from xcebra.training.settling import place_in_schedule, settled_at, steps_to_take

STEPS = 400


def history(learned, noise=0.01, penalty=None, n=STEPS, seed=0):
    """Losses of one objective whose chance level is 7, and the penalty, which begins late."""
    rng = np.random.default_rng(seed)
    t = np.arange(n)
    norms = np.full(n, 0.6) if penalty is None else penalty(t)
    norms = norms * (1 + 0.01 * rng.standard_normal(n))
    norms[: STEPS // 8] = np.nan
    return {
        "loss/label": (7 - learned(t) + noise * rng.standard_normal(n)).tolist(),
        "chance/label": [7.0] * n,
        "penalty": norms.tolist(),
    }


def test_losses_that_stay_the_same_have_settled_at_half_the_steps():
    assert settled_at(history(lambda t: 1 - np.exp(-t / 20)), STEPS) == STEPS // 2


def test_losses_that_still_fall_have_not_settled():
    # 4 % of what is learned at step 200, and 2 % at 400, in every 50 steps.
    assert settled_at(history(lambda t: 1 + 0.04 * t / 50), STEPS) is None


def test_a_weak_signal_is_never_certain_to_have_settled():
    """What is learned, 0.02, is as small as the noise of a loss."""
    for seed in range(20):
        weak = history(lambda t: 0.02 + 0 * t, noise=0.01, seed=seed)
        assert settled_at(weak, STEPS) is None


def test_derivatives_must_settle_too():
    falling = history(lambda t: 1 + 0 * t, penalty=lambda t: np.exp(-t / 400))
    assert settled_at(falling, STEPS) is None
    later = history(lambda t: 1 + 0 * t, penalty=lambda t: 0.5 + np.exp(-t / 40))
    assert settled_at(later, STEPS) == 220


def test_every_objective_must_settle():
    both = history(lambda t: 1 + 0 * t)
    other = history(lambda t: 1 + 0.04 * t / 50)
    both |= {"loss/time": other["loss/label"], "chance/time": other["chance/label"]}
    assert settled_at(both, STEPS) is None


def test_without_a_penalty_losses_decide_and_unknown_losses_are_left_out():
    free = history(lambda t: 1 + 0 * t)
    free["penalty"] = [np.nan] * STEPS
    assert settled_at(free, STEPS) == 200
    free["loss/label"][130::3] = [np.nan] * len(free["loss/label"][130::3])
    assert settled_at(free, STEPS) == 200
    free["loss/label"][150:] = [np.nan] * 250
    assert settled_at(free, STEPS) is None


def test_the_decision_depends_on_the_past_alone():
    whole = history(lambda t: 1 + 0 * t)
    for n in (0, 199, 200, 201, 260):
        part = {name: values[:n] for name, values in whole.items()}
        assert settled_at(part, STEPS) == (200 if n >= 200 else None)


@pytest.mark.parametrize("settled", [None, 200, 260, 397, 400])
def test_the_rest_of_the_schedule_is_passed_through_to_its_end(settled):
    n = steps_to_take(STEPS, settled)
    places = [place_in_schedule(step, settled) for step in range(n)]
    assert places[-1] < STEPS <= place_in_schedule(n, settled)
    assert all(0 < later - place <= 4 for place, later in itertools.pairwise(places))
    assert n == {None: 400, 200: 250, 260: 295, 397: 398, 400: 400}[settled]


@pytest.fixture(scope="module")
def easy():
    return xcebra.datasets.synthetic(n_hidden=1, n_observed=1, n_neurons=12, n_steps=3000, seed=100)


@pytest.fixture(scope="module")
def settled(easy):
    return XCEBRA(time_dims=1, random_state=0, progress=False).fit(easy.neural, easy.labels["z2"])


def test_an_easy_recording_takes_fewer_steps_and_ends_with_a_small_rate(settled):
    rates = settled.history_["learning_rate"]
    assert 250 <= len(rates) < 400
    assert rates[-1] < 0.02 * rates.max()


def test_a_number_of_steps_that_is_asked_for_is_taken(easy):
    model = XCEBRA(time_dims=1, steps=40, random_state=0, progress=False)
    assert len(model.fit(easy.neural, easy.labels["z2"]).history_["weight"]) == 40


def test_a_fit_that_goes_on_after_it_settled_gives_the_same_bits(easy, settled, tmp_path):
    class Killed(Exception):
        pass

    def kill(step, encoder):
        if step == len(settled.history_["weight"]) - 7:
            raise Killed

    path = tmp_path / "checkpoint"
    model = XCEBRA(time_dims=1, random_state=0, progress=False)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("xcebra.training.loop._CHECKPOINT_SECONDS", 0.0)
        with pytest.raises(Killed):
            model.fit(easy.neural, easy.labels["z2"], checkpoint=path, callback=kill)
    again = model.fit(easy.neural, easy.labels["z2"], checkpoint=path)
    assert set(again.history_) == set(settled.history_)
    for name, values in settled.history_.items():
        assert np.array_equal(again.history_[name], values, equal_nan=True)
    assert np.array_equal(again.transform(easy.neural), settled.transform(easy.neural))
