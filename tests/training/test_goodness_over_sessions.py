"""Goodness of fit over several sessions, against Fisher's method and means by hand."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import chi2, combine_pvalues

from xcebra.statistics.label_decoding import Decoding
from xcebra.training.goodness_of_fit import GoodnessOfFit, over_sessions, with_decoding


def of_loss(p_value, loss=4.0, **others):
    learned = None if p_value is None else p_value <= 0.01
    return GoodnessOfFit(loss, 6.0, learned, p_value, loss_p_value=p_value, **others)


def of_label(p_value, r2=0.4, loss_p_value=0.005, **others):
    decoding = Decoding(r2 + 0.1, p_value, r2, (0.1, 0.2), error=1.0, chance_error=3.0, **others)
    return with_decoding(of_loss(loss_p_value), decoding)


def test_one_session_is_itself():
    fit = of_label(0.005)
    assert over_sessions([fit]) is fit


@pytest.mark.parametrize("p_values", [(0.005, 0.3), (0.2, 0.2, 0.2), (0.005,) * 4, (1.0, 1.0)])
def test_p_values_are_combined_by_fisher_s_method(p_values):
    joint = over_sessions([of_loss(p) for p in p_values])
    assert joint.loss_p_value == combine_pvalues(p_values).pvalue == joint.p_value
    by_hand = chi2.sf(-2 * np.log(p_values).sum(), 2 * len(p_values))
    assert joint.loss_p_value == pytest.approx(by_hand, rel=1e-9)
    assert joint.learned == (by_hand <= 0.01)


def test_losses_and_information_are_means_over_sessions_that_have_them():
    fits = [
        of_loss(0.01, 3.0, shifted=5.0, information=0.2, collapsed=0, nulls=(1.0,)),
        of_loss(0.02, 5.0, shifted=6.0, information=0.4, collapsed=2, nulls=(2.0,)),
        replace(of_loss(None, math.nan), chance=9.0),
    ]
    joint = over_sessions(fits)
    assert joint.loss == 4.0
    assert joint.chance == 7.0
    assert joint.shifted == 5.5
    assert joint.information == pytest.approx(0.3)
    assert joint.collapsed == 2
    assert joint.loss_p_value == combine_pvalues([0.01, 0.02]).pvalue
    assert joint.nulls == ()


def test_nothing_is_known_if_no_session_knows_it():
    joint = over_sessions([of_loss(None, math.nan), of_loss(None, math.nan)])
    assert math.isnan(joint.loss)
    assert joint.verdict == "unclear"
    assert (joint.p_value, joint.loss_p_value, joint.information) == (None, None, None)


def test_decodings_are_averaged_and_decide_the_verdict():
    fits = [of_label(0.03, 0.2), of_label(0.02, 0.4)]
    joint = over_sessions(fits)
    assert joint.decoding.p_value == joint.p_value == combine_pvalues([0.03, 0.02]).pvalue
    assert joint.decoding.r2_without_drift == pytest.approx(0.3)
    assert joint.decoding.r2 == pytest.approx(0.4)
    assert (joint.decoding.error, joint.decoding.chance_error) == (1.0, 3.0)
    assert joint.decoding.accuracy is None
    assert joint.decoding.nulls == ()
    # Alone, the first one is a "no"; together, the evidence is enough.
    assert [fit.verdict for fit in fits] == ["no", "unclear"]
    assert joint.verdict == "yes"


@pytest.mark.parametrize(
    ("p_values", "r2", "loss_p_value", "verdict"),
    [
        ((0.005, 0.005), 0.4, 0.005, "yes"),
        ((0.005, 0.005), 0.05, 0.01, "yes"),
        ((0.005, 0.005), 0.05, 0.9, "unclear"),
        ((0.005, 0.005), -0.1, 0.005, "unclear"),
        ((0.05, 0.05), 0.4, 0.005, "unclear"),
        ((0.5, 0.5), 0.4, 0.005, "no"),
    ],
)
def test_the_verdict_follows_the_rule_of_one_session(p_values, r2, loss_p_value, verdict):
    joint = over_sessions([of_label(p, r2, loss_p_value) for p in p_values])
    assert joint.verdict == verdict
    alone = of_label(
        combine_pvalues(p_values).pvalue, r2, combine_pvalues([loss_p_value] * 2).pvalue
    )
    assert joint.learned == alone.learned


def test_sessions_without_a_decoding_do_not_hide_those_that_have_one():
    without = with_decoding(of_loss(0.005), None)
    joint = over_sessions([without, of_label(0.005)])
    assert joint.decoding.p_value == pytest.approx(0.005)
    assert joint.verdict == "yes"
    # A label that cannot be decoded in any session is unclear, as it is in each of them.
    assert without.verdict == "unclear"
    assert over_sessions([without, without]).verdict == "unclear"
