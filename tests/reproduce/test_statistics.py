"""Intervals, analysis of variance and Tukey's test, by hand and against scipy."""

import itertools

import numpy as np
import pytest
import scipy.stats

from xcebra.reproduce import paper_numbers as paper
from xcebra.reproduce.statistics import anova, balanced, f_of_model, interval, tukey


def observed(score, **levels):
    """Every combination of levels; the score is a function of its place."""
    names = list(levels)
    return [
        {**dict(zip(names, cell, strict=True)), "score": float(score(*cell))}
        for cell in itertools.product(*levels.values())
    ]


def two_way(seed=0, n=4):
    rng = np.random.default_rng(seed)
    return observed(
        lambda a, b, dataset: a + 2 * (b == "y") + a * (b == "z") + rng.normal(),
        a=(0, 1),
        b=("x", "y", "z"),
        dataset=range(n),
    )


def test_equal_scores_have_an_interval_without_width():
    for value, n in itertools.product((0.1, 0.97, 1 / 3), (1, 2, 9, 60)):
        found = interval([value] * n)
        assert found.low == found.mean == found.high == pytest.approx(value)
        assert found.n_datasets == n


def test_interval_of_two_scores_goes_from_one_to_the_other():
    """A quarter of all resamples hold only the lower, a quarter only the higher."""
    assert interval([0.2, 0.8])[:3] == pytest.approx((0.5, 0.2, 0.8))
    # Both ends lie at the mean if the middle 20 % are asked for.
    assert interval([0.2, 0.8], level=0.2)[:3] == pytest.approx((0.5, 0.5, 0.5))


@pytest.mark.parametrize("level", [0.5, 0.95])
def test_interval_of_many_scores_is_that_of_the_normal_distribution(level):
    scores = np.random.default_rng(0).exponential(size=2000)
    found = interval(scores, n=4000, level=level)
    wide = scipy.stats.norm.ppf((1 + level) / 2) * scores.std() / np.sqrt(len(scores))
    assert found.mean == pytest.approx(scores.mean())
    assert found.low == pytest.approx(scores.mean() - wide, abs=0.08 * wide)
    assert found.high == pytest.approx(scores.mean() + wide, abs=0.08 * wide)


def test_intervals_hold_the_true_mean_as_often_as_they_say():
    rng = np.random.default_rng(1)
    found = [interval(rng.normal(3, 2, size=40), n=300) for _ in range(400)]
    covered = np.mean([each.low <= 3 <= each.high for each in found])
    # 95 % less what the bootstrap lacks in 40 scores, and three standard errors of 400 draws.
    assert 0.90 < covered < 0.975


def test_interval_counts_recordings_and_is_the_same_every_time():
    scores = list(np.random.default_rng(0).random(4))
    assert interval(scores, [0, 0, 1, 7]).n_datasets == 3
    assert interval(scores).n_datasets == 4
    assert interval(scores) == interval(scores, seed=0)
    assert interval(scores, [0, 0, 1, 7])[:3] == interval(scores)[:3]
    assert interval(scores, seed=1) != interval(scores)


def test_interval_of_nothing_is_refused():
    with pytest.raises(ValueError, match=r"1 number or more.*got none"):
        interval([])


def test_balanced_leaves_out_exactly_the_datasets_that_lack_a_cell():
    whole = observed(lambda *cell: 1, a=(0, 1), b="xy", dataset=range(5))
    without = [o for o in whole if (o["a"], o["b"], o["dataset"]) not in {(0, "x", 3), (1, "y", 0)}]
    found = balanced(without, ("a", "b"))
    assert found == [o for o in whole if o["dataset"] in (1, 2, 4)]
    assert balanced(whole, ("a", "b")) == whole
    # A cell that nobody has leaves nothing; one factor alone sees no gap here.
    assert balanced([o for o in whole if (o["a"], o["b"]) != (0, "x")], ("a", "b")) == []
    assert balanced(without, ("a",)) == without
    assert balanced([], ("a", "b")) == []


def test_anova_of_two_factors_by_hand():
    seen = two_way(n=4)
    y = np.array([o["score"] for o in seen]).reshape(2, 3, 4)
    grand, a, b, cell = y.mean(), y.mean((1, 2)), y.mean((0, 2)), y.mean(2)
    squares = {
        ("a",): 12 * np.square(a - grand).sum(),
        ("b",): 8 * np.square(b - grand).sum(),
        ("a", "b"): 4 * np.square(cell - a[:, None] - b[None] + grand).sum(),
    }
    rest = np.square(y - cell[:, :, None]).sum()
    degrees = {("a",): 1, ("b",): 2, ("a", "b"): 2}
    found = anova(seen, ("a", "b"))
    assert [effect.factors for effect in found.effects] == list(squares)
    assert found.residual == (pytest.approx(rest), 18)
    for effect in found.effects:
        f = squares[effect.factors] / degrees[effect.factors] / (rest / 18)
        assert effect.sum_of_squares == pytest.approx(squares[effect.factors])
        assert effect.degrees == degrees[effect.factors]
        assert effect.f == pytest.approx(f)
        assert effect.p == pytest.approx(scipy.stats.f.sf(f, effect.degrees, 18))
    whole = sum(squares.values()) / 5 / (rest / 18)
    assert found.f == pytest.approx(whole)
    assert found.p == pytest.approx(scipy.stats.f.sf(whole, 5, 18))
    assert found.n_observations == 24
    # Its table gives the whole model's F back.
    table = {e.factors: (e.sum_of_squares, e.degrees, e.f) for e in found.effects}
    assert f_of_model({**table, ("residual",): (*found.residual, np.nan)}) == pytest.approx(whole)


def test_sums_of_squares_add_up_to_the_total():
    rng = np.random.default_rng(2)
    seen = observed(
        lambda a, b, c, dataset: a * (b == "y") + c + rng.normal(),
        a=(0, 1, 2),
        b="xy",
        c=(0, 1),
        dataset=range(3),
    )
    found = anova(seen, ("a", "b", "c"))
    scores = np.array([o["score"] for o in seen])
    total = sum(e.sum_of_squares for e in found.effects) + found.residual[0]
    assert total == pytest.approx(np.square(scores - scores.mean()).sum())
    assert sum(e.degrees for e in found.effects) + found.residual[1] == len(seen) - 1
    assert len(found.effects) == 7


def test_anova_of_one_factor_is_that_of_scipy():
    seen = two_way(seed=3)
    groups = [[o["score"] for o in seen if o["b"] == b] for b in "xyz"]
    theirs = scipy.stats.f_oneway(*groups)
    (effect,) = anova(seen, ("b",)).effects
    assert (effect.f, effect.p) == pytest.approx((theirs.statistic, theirs.pvalue))


def test_anova_refuses_what_is_not_balanced():
    seen = two_way()
    with pytest.raises(ValueError, match=r"each of 6 cells; 6 cells have between 3 and 4"):
        anova(seen[1:], ("a", "b"))
    with pytest.raises(ValueError, match=r"each of 6 cells; 5 cells have between 4 and 4"):
        anova(seen[4:], ("a", "b"))
    with pytest.raises(ValueError, match=r"more than one, in each of 6 cells"):
        anova(seen[::4], ("a", "b"))
    anova(balanced(seen[1:], ("a", "b")), ("a", "b"))


def test_anova_refuses_a_factor_without_levels():
    with pytest.raises(ValueError, match=r"'a' has 1 in 12 observations"):
        anova(two_way()[:12], ("a", "b"))
    with pytest.raises(ValueError, match=r"'a' has 0 in 0 observations"):
        anova([], ("a", "b"))


@pytest.mark.parametrize("level", [0.05, 0.2])
def test_tukey_is_that_of_scipy_pair_by_pair(level):
    rng = np.random.default_rng(4)
    # Not in order of their names, nor with as many observations.
    seen = [
        {"m": m, "score": 0.8 * at + rng.normal()}
        for at, m in enumerate("dbeca")
        for _ in range(5 + at)
    ]
    groups = [[o["score"] for o in seen if o["m"] == m] for m in "abcde"]
    theirs = scipy.stats.tukey_hsd(*groups)
    ends = theirs.confidence_interval(1 - level)
    found = tukey(seen, ("m",), level)
    assert [(p.first, p.second) for p in found] == list(itertools.combinations("abcde", 2))
    for pair in found:
        i, j = "abcde".index(pair.first), "abcde".index(pair.second)
        assert pair.difference == pytest.approx(np.mean(groups[j]) - np.mean(groups[i]))
        assert pair.difference == pytest.approx(theirs.statistic[j, i])
        assert (pair.low, pair.high) == pytest.approx((ends.low[j, i], ends.high[j, i]), rel=1e-4)
        assert pair.p == pytest.approx(theirs.pvalue[i, j], rel=1e-4, abs=1e-8)
        assert pair.differs == (theirs.pvalue[i, j] < level)
    assert 0 < sum(pair.differs for pair in found) < len(found)


def test_tukey_joins_the_names_of_factors():
    found = tukey(two_way(), ("b", "a"))
    names = [f"{b}: {a}" for b in "xyz" for a in (0, 1)]
    assert [(p.first, p.second) for p in found] == list(itertools.combinations(names, 2))


def test_the_papers_table_gives_another_f_than_its_text():
    assert round(f_of_model(paper.ANOVA), 1) == 8.0
