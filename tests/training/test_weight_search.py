"""The weight that a fit finds for itself: where known costs say it must settle."""

import math

import numpy as np
import pytest

from xcebra.training.weight_search import MAY_LOSE, searches, weight_at

USUAL = 0.05


def follow(costs, steps=400, lag=15.0, learned=2.0, noise=0.0, usual=USUAL):
    """Training as the search sees it: losses that follow the weight, a little late.

    ``costs`` are what each objective loses, in nats, per unit of weight.
    """
    rng = np.random.default_rng(0)
    rows = {"weight": []}
    for name in costs:
        rows |= {f"{kind}/{name}": [] for kind in ("loss", "chance", "lost")}
    lost = dict.fromkeys(costs, 0.0)
    for step in range(steps):
        weight = weight_at(step, steps, usual, list(costs), rows)
        rows["weight"].append(weight)
        for name, cost in costs.items():
            lost[name] += (cost * weight - lost[name]) / lag
            seen = lost[name] + noise * rng.standard_normal()
            rows[f"lost/{name}"].append(seen if searches(step, steps) else math.nan)
            rows[f"chance/{name}"].append(6.9)
            rows[f"loss/{name}"].append(6.9 - learned + seen)
    return np.array(rows["weight"]), rows


# Far from where it begins there is less time to settle.
@pytest.mark.parametrize(
    ("weight", "error"),
    [(0.005, 0.1), (0.01, 0.1), (0.05, 0.1), (0.1, 0.1), (0.2, 0.2), (0.4, 0.35)],
)
@pytest.mark.parametrize("steps", [400, 4000])
def test_it_settles_where_an_objective_loses_what_it_may(weight, error, steps):
    cost = MAY_LOSE * 2.0 / weight
    found, _ = follow({"label": cost}, steps, lag=steps * 15 / 400)
    assert found[-1] == pytest.approx(weight, rel=error)


def test_noise_of_batches_moves_it_little():
    found = [follow({"label": 1.0}, noise=noise)[0][-1] for noise in (0.0, 0.01)]
    assert found[0] == pytest.approx(found[1], rel=0.1)


def test_the_objective_that_suffers_most_decides():
    alone, _ = follow({"label": 2.0})
    beside, _ = follow({"label": 2.0, "time": 0.5})
    assert np.array_equal(alone, beside)


def test_an_objective_that_learned_nothing_has_nothing_to_lose():
    _, rows = follow({"label": 1.0})
    names = ["label", "unrelated"]
    rng = np.random.default_rng(0)
    steps = len(rows["weight"])
    rows["chance/unrelated"] = [6.9] * steps
    rows["lost/unrelated"] = (0.05 * rng.standard_normal(steps)).tolist()
    rows["loss/unrelated"] = [6.9 + each for each in rows["lost/unrelated"]]
    for step in (60, 100, 150):
        so_far = {name: values[:step] for name, values in rows.items()}
        both = weight_at(step, steps, USUAL, names, so_far)
        assert both == weight_at(step, steps, USUAL, ["label"], so_far)


def test_without_anything_learned_it_stays_where_it_began():
    found, _ = follow({"label": 1.0}, learned=-1.0)
    assert found[found > 0] == pytest.approx(USUAL / 4)


def test_off_while_warming_up_then_rising_then_held():
    found, _ = follow({"label": 1.0})
    assert (found[:50] == 0).all()
    assert found[50] == USUAL / 4
    assert (np.diff(found[50:80]) > 0).all()
    assert len(set(found[150:])) == 1
    assert [searches(step, 400) for step in (49, 50, 149, 150)] == [False, True, True, False]


@pytest.mark.parametrize("cost", [0.0, -1.0, 1e6])
def test_it_stays_within_reach_of_the_usual_weight(cost):
    found, _ = follow({"label": cost})
    assert USUAL / 16 <= found[-1] <= USUAL * 16


@pytest.mark.parametrize("steps", [1, 2, 3, 4, 7, 10])
def test_however_few_the_steps_there_is_a_weight(steps):
    found, _ = follow({"label": 1.0}, steps)
    assert np.isfinite(found).all()
    assert (found >= 0).all()


def test_batches_without_a_pair_of_an_objective_do_not_count():
    _, rows = follow({"label": 1.0})
    rows["chance/gone"] = rows["loss/gone"] = rows["lost/gone"] = [math.nan] * 400
    found = weight_at(100, 400, USUAL, ["label", "gone"], rows)
    assert found == weight_at(100, 400, USUAL, ["label"], rows)
