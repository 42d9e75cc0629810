"""Epochs: half-open stretches that nothing crosses."""

import numpy as np
import pytest

from xcebra.data.epochs import Epochs


def test_split_keeps_the_last_share_of_every_epoch():
    training, held_out = Epochs.check([(0, 100), (200, 250)], 300).split(0.1)
    assert training.pairs() == [(0, 90), (200, 245)]
    assert held_out.pairs() == [(90, 100), (245, 250)]
    assert np.array_equal(
        np.sort(np.concatenate([training.indices(), held_out.indices()])),
        np.concatenate([np.arange(100), np.arange(200, 250)]),
    )


def test_cut_takes_stretches_out_at_even_distances():
    rest, stretches = Epochs.check(None, 100).cut(2, 10)
    assert stretches.pairs() == [(20, 30), (70, 80)]
    assert rest.pairs() == [(0, 20), (30, 70), (80, 100)]


def test_a_stretch_stays_in_its_epoch_and_leaves_no_crumbs():
    epochs = Epochs.check([(0, 52), (60, 108)], 200)
    rest, stretches = epochs.cut(1, 10)
    assert stretches.pairs() == [(42, 52)]
    # Two samples would be left after it, or before it.
    assert Epochs.check([(0, 24)], 24).cut(1, 20, least=2)[1].pairs() == [(0, 20)]
    assert Epochs.check([(0, 24), (24, 28)], 28).cut(1, 20, least=1)[1].pairs() == [(4, 24)]
    np.testing.assert_array_equal(
        np.sort(np.concatenate([rest.indices(), stretches.indices()])), epochs.indices()
    )


def test_thin_takes_whole_epochs_at_even_distances_and_never_more_than_their_share():
    rest, taken = Epochs.check([(k, k + 10) for k in range(0, 300, 10)], 300).thin(0.1)
    assert taken.pairs() == [(40, 50), (140, 150), (240, 250)]
    assert len(rest) == 27
    assert len(Epochs.check([(0, 50), (50, 100)], 100).thin(0.1)[1]) == 0
    rng = np.random.default_rng(0)
    for _ in range(50):
        borders = np.unique(rng.integers(0, 5_000, size=60))
        epochs = Epochs(borders[:-1], borders[1:])
        assert epochs.thin(0.1)[1].size <= 0.1 * epochs.size


def test_draw_is_uniform_over_all_samples_and_no_others():
    epochs = Epochs.check([(3, 5), (10, 14), (20, 21)], 30)
    drawn = epochs.draw(70_000, np.random.default_rng(0))
    values, counts = np.unique(drawn, return_counts=True)
    assert values.tolist() == [3, 4, 10, 11, 12, 13, 20]
    # 10,000 expected each, s.d. 93: five s.d. either way.
    assert np.abs(counts - 10_000).max() < 5 * 93


def test_stop_of_names_the_end_of_the_epoch_that_holds_a_sample():
    epochs = Epochs.check([(0, 4), (6, 9)], 10)
    assert epochs.stop_of(np.array([0, 3, 6, 8])).tolist() == [4, 4, 9, 9]


@pytest.mark.parametrize(
    ("epochs", "message"),
    [
        ([(5, 5)], "0 <= start < stop <= 10"),
        ([(-1, 5)], "0 <= start < stop <= 10"),
        ([(0, 11)], "0 <= start < stop <= 10"),
        ([(0, 6), (5, 8)], "before epochs\\[0\\] stops at 6"),
        ([(0.5, 6)], "whole sample indices"),
        ([(0, 6, 7)], "list of \\(start, stop\\)"),
        ([], "list of \\(start, stop\\)"),
        (5, "list of \\(start, stop\\)"),
        ("ab", "list of \\(start, stop\\)"),
    ],
)
def test_bad_epochs_are_refused(epochs, message):
    with pytest.raises(ValueError, match=message):
        Epochs.check(epochs, 10)


def test_neighbours_are_in_the_same_epoch():
    epochs = Epochs.check([(0, 4), (4, 5), (6, 8)], 10)
    before, after = epochs.neighbours(epochs.indices())
    assert epochs.indices().tolist() == [0, 1, 2, 3, 4, 6, 7]
    assert before.tolist() == [1, 0, 1, 2, 4, 7, 6]
    assert after.tolist() == [1, 2, 3, 2, 4, 7, 6]
