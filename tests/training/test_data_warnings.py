"""What in a recording would mislead is said before the fit, and silence means there is nothing."""

import warnings

import numpy as np
import pytest

import xcebra
from xcebra.caveats import OversampledWarning, RedundantLabelWarning
from xcebra.data.epochs import Epochs
from xcebra.data.labels import LabelSpec, make_label
from xcebra.training.data_warnings import warn_of_data


def told(neural, labels=None, epochs=None):
    """All warnings about a recording."""
    rec = xcebra.Recording(neural.astype(np.float32), labels or {}, epochs)
    made = [make_label(name, values, LabelSpec()) for name, values in rec.labels.items()]
    with warnings.catch_warnings(record=True) as given:
        warnings.simplefilter("always")
        warn_of_data(rec, rec.epochs, made)
    return [(each.category, str(each.message)) for each in given]


@pytest.fixture
def neural():
    return np.random.default_rng(0).standard_normal((3000, 8))


def smooth(n, seed, width=1):
    return np.sin(np.cumsum(0.1 * np.random.default_rng(seed).standard_normal((n, width)), axis=0))


@pytest.mark.parametrize("times", [3, 10])
def test_samples_that_repeat_are_told_with_their_number(neural, times):
    ((category, message),) = told(np.repeat(neural, times, axis=0))
    assert category is OversampledWarning
    assert f"changes about every {times} samples" in message
    assert f"every {times}th sample" in message


def test_what_changes_with_most_samples_is_not_told(neural):
    counts = np.random.default_rng(0).poisson(0.3, size=(3000, 8))
    assert told(neural) == []
    assert told(counts.astype(float)) == []


def test_repeats_across_the_border_of_an_epoch_do_not_count(neural):
    """Epochs of single changes: the sample before the border is another stretch's."""
    pairs = np.repeat(neural, 2, axis=0)
    epochs = [(start, start + 2) for start in range(1, len(pairs) - 2, 2)]
    assert told(pairs, epochs=epochs) == []


def test_spikes_in_bins_too_narrow_are_told():
    counts = np.random.default_rng(0).poisson(0.01, size=(3000, 8)).astype(float)
    ((category, message),) = told(counts)
    assert category is OversampledWarning
    assert "wider bins" in message


def test_a_label_that_another_tells_is_told(neural):
    x = smooth(3000, 1)
    found = told(neural, {"angle": x, "bent": np.exp(x), "free": smooth(3000, 2)})
    assert [category for category, _ in found] == [RedundantLabelWarning] * 2
    assert "label 'angle' can be predicted from 'bent'" in found[0][1]
    assert "leave 'angle' out" in found[0][1]
    assert "label 'bent' can be predicted from 'angle'" in found[1][1]


def test_a_part_can_be_told_from_the_whole_but_not_the_whole_from_a_part(neural):
    both = smooth(3000, 1, width=2)
    found = told(neural, {"position": both, "x": both[:, :1]})
    assert len(found) == 1
    assert "label 'x' can be predicted from 'position'" in found[0][1]


def test_labels_that_are_hardly_known_together_are_not_compared(neural):
    x, y = smooth(3000, 1), smooth(3000, 1)
    x[:1450], y[1550:] = np.nan, np.nan
    assert told(neural, {"early": y, "late": x}) == []


def test_a_fit_says_it_and_can_be_silenced(neural):
    rec = np.repeat(neural[:400], 4, axis=0)
    model = xcebra.XCEBRA(time_dims=1, steps=2, random_state=0, progress=False)
    with pytest.warns(OversampledWarning):
        model.fit(rec)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        warnings.simplefilter("ignore", OversampledWarning)
        model.fit(rec)


def test_one_sample_epochs_have_no_neighbours(neural):
    assert told(neural[:10], epochs=[(0, 1)]) == []
    assert Epochs.check([(0, 1)], 10).size == 1
