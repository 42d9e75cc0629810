"""Labels made from series: their values in closed form."""

import numpy as np
import pytest

import xcebra
from xcebra.common.errors import InputError
from xcebra.data.label_info import LabelInfo
from xcebra.io import Contents, Intervals, Series, Spikes
from xcebra.io.derived import SMOOTHING, derive, split_name

RATE = 100.0
N = 2_000
TIMES = np.arange(N) / RATE
RADIUS, OMEGA = 3.0, 2.0  # metres, radians per second


def source(unit="", **columns):
    times = columns.pop("times", TIMES)
    entries = {
        name: Series(np.asarray(values, dtype=float), times, info=LabelInfo(unit=unit))
        for name, values in columns.items()
    }
    return Contents("the data", entries)


def circle(times=TIMES, **changes):
    x, y = RADIUS * np.cos(OMEGA * times), RADIUS * np.sin(OMEGA * times)
    return source(times=times, **{"x": x, "y": y, **changes})


def made(contents, what):
    return derive(contents, what).values[:, 0]


def inner(values, n=60):
    """Without the samples whose smoothing reaches beyond an end."""
    return values[n:-n]


def chord(step):
    """A central difference over a circle sees its chord: r sin(w h) / h."""
    return RADIUS * np.sin(OMEGA * step) / step


# A Gaussian of standard deviation s shrinks a circle of angular velocity w by exp(-(w s)^2 / 2).
SHRINKS = np.exp(-((OMEGA * SMOOTHING) ** 2) / 2)


class TestSpeed:
    def test_of_a_circle_is_radius_times_angular_velocity(self):
        speed = made(circle(), "speed(x, y, smooth=0)")
        np.testing.assert_allclose(inner(speed, 1), chord(1 / RATE), rtol=1e-9)
        np.testing.assert_allclose(speed, RADIUS * OMEGA, rtol=1e-3)

    def test_after_smoothing_it_is_that_of_the_smaller_circle(self):
        speed = made(circle(), "speed(x, y)")
        np.testing.assert_allclose(inner(speed), SHRINKS * chord(1 / RATE), rtol=1e-3)
        np.testing.assert_allclose(speed, RADIUS * OMEGA, rtol=0.06)

    @pytest.mark.parametrize("width", [0.02, 0.3])
    def test_smoothing_is_in_seconds_whatever_the_rate(self, width):
        for rate in (50.0, 200.0):
            times = np.arange(1_000) / rate
            speed = made(circle(times), f"speed(x, y, smooth={width})")
            expected = RADIUS * OMEGA * np.exp(-((OMEGA * width) ** 2) / 2)
            np.testing.assert_allclose(inner(speed, 300), expected, rtol=5e-3)

    @pytest.mark.parametrize("what", ["speed(x, y)", "speed(x, y, smooth=0)"])
    def test_of_a_straight_line_it_is_the_same_from_the_first_to_the_last_sample(self, what):
        contents = source(x=3 * TIMES - 5, y=4 * TIMES + 2)
        np.testing.assert_allclose(made(contents, what), 5.0, rtol=1e-9)

    @pytest.mark.parametrize("what", ["speed(x, y)", "speed(x, y, smooth=0)"])
    def test_it_is_not_taken_across_a_gap(self, what):
        """The animal jumps by 1000 m while nobody looks."""
        times = np.r_[TIMES[:800], TIMES[800:] + 5.0]
        jump = np.where(times > TIMES[799], 1_000.0, 0.0)
        contents = source(x=3 * times + jump, y=4 * times - jump, times=times)
        np.testing.assert_allclose(made(contents, what), 5.0, rtol=1e-9)

    @pytest.mark.parametrize("what", ["speed(x, y)", "speed(x, y, smooth=0)"])
    def test_missing_samples_are_missing_and_spoil_no_others(self, what):
        x, y = 3 * TIMES, 4 * TIMES
        x[100] = y[400:700] = np.nan
        speed = made(source(x=x, y=y), what)
        known = np.isfinite(x) & np.isfinite(y)
        assert np.isnan(speed[~known]).all()
        np.testing.assert_allclose(speed[known], 5.0, rtol=1e-9)

    def test_a_sample_between_two_missing_ones_has_no_speed(self):
        x = 3 * TIMES
        x[[500, 502]] = np.nan
        speed = made(source(x=x), "speed(x, smooth=0)")
        assert np.isnan(speed[500:503]).all()
        assert np.isfinite(np.delete(speed, [500, 501, 502])).all()

    def test_a_lone_sample_between_two_gaps_has_no_speed(self):
        times = np.r_[TIMES[:800], 100.0, TIMES[800:] + 200.0]
        speed = made(source(x=3 * times, times=times), "speed(x)")
        assert np.flatnonzero(np.isnan(speed)).tolist() == [800]

    def test_irregular_times(self):
        rng = np.random.default_rng(0)
        times = np.cumsum(rng.uniform(0.8, 1.2, N)) / RATE
        speed = made(circle(times), "speed(x, y, smooth=0)")
        # The error of a central difference is of second order in the step.
        np.testing.assert_allclose(inner(speed, 1), RADIUS * OMEGA, rtol=(OMEGA / RATE) ** 2)
        speed = made(circle(times), "speed(x, y)")
        np.testing.assert_allclose(inner(speed), RADIUS * OMEGA * SHRINKS, rtol=0.02)
        np.testing.assert_allclose(
            made(source(x=3 * times, y=4 * times, times=times), "speed(x, y)"), 5.0, rtol=1e-9
        )

    def test_of_one_column_it_is_the_size_of_the_velocity(self):
        contents = source(x=RADIUS * np.cos(OMEGA * TIMES))
        velocity = made(contents, "velocity(x)")
        np.testing.assert_array_equal(made(contents, "speed(x)"), np.abs(velocity))

    def test_whole_numbers_are_numbers(self):
        contents = Contents("the data", {"x": Series(np.arange(N) * 2, TIMES)})
        np.testing.assert_allclose(made(contents, "speed(x)"), 2 * RATE, rtol=1e-9)


class TestVelocity:
    def test_of_a_straight_line_is_its_slope(self):
        label = derive(source(x=3 * TIMES, y=-4 * TIMES, unit="cm"), "velocity(x, y)")
        np.testing.assert_allclose(label.values[:, 0], 3.0, rtol=1e-9)
        np.testing.assert_allclose(label.values[:, 1], -4.0, rtol=1e-9)
        assert label.info == LabelInfo(
            None,
            ("velocity of x", "velocity of y"),
            "cm/s",
            "velocity(x, y), smoothed by 0.1 s",
        )

    def test_of_an_entry_with_several_columns(self):
        entry = Series(np.stack([TIMES, 2 * TIMES], axis=1), TIMES, ("x", "y"))
        label = derive(Contents("the data", {"position": entry}), "velocity(position)")
        np.testing.assert_allclose(label.values, np.tile([1.0, 2.0], (N, 1)), rtol=1e-9)
        assert label.info.columns == ("velocity of x", "velocity of y")
        nameless = Contents("the data", {"position": Series(entry.values, TIMES)})
        columns = derive(nameless, "velocity(position)").info.columns
        assert columns == ("velocity of position 1", "velocity of position 2")


class TestAngles:
    def test_direction_of_movement_on_a_circle_leads_its_place_by_a_right_angle(self):
        direction = made(circle(), "direction(x, y)")
        turned = np.angle(np.exp(1j * (direction - OMEGA * TIMES - np.pi / 2)))
        np.testing.assert_allclose(inner(turned), 0.0, atol=1e-6)
        assert derive(circle(), "direction(x, y)").info.kind == "circular"

    def test_angle_of_a_rotating_pair_of_points(self):
        """Two diodes on a head that turns while the animal walks."""
        heading = 0.7 * TIMES + 0.3
        x, y = 5 * np.cos(TIMES), TIMES
        contents = source(x1=x, y1=y, x2=x + 2 * np.cos(heading), y2=y + 2 * np.sin(heading))
        angle = made(contents, "angle(x1, y1, x2, y2)")
        np.testing.assert_allclose(np.exp(1j * angle), np.exp(1j * heading), atol=1e-9)
        assert derive(contents, "angle(x1, y1, x2, y2)").info.unit == "rad"

    def test_angle_of_a_vector(self):
        angle = made(circle(), "angle(x, y)")
        np.testing.assert_allclose(np.exp(1j * angle), np.exp(1j * OMEGA * TIMES), atol=1e-9)

    def test_radians(self):
        degrees = np.linspace(-180, 180, N)
        np.testing.assert_allclose(
            made(source(h=degrees), "radians(h)"), np.linspace(-np.pi, np.pi, N)
        )

    def test_radians_are_not_converted_twice(self):
        """An angle that counts whole turns spans more than any heading."""
        degrees = np.linspace(0, 3_000, N)
        rec = xcebra.read(
            {"neural": (TIMES, np.zeros((N, 3))), "h": (TIMES, degrees)}, labels="a=radians(h)"
        )
        np.testing.assert_allclose(rec.labels["a"][:, 0], np.deg2rad(degrees))
        assert rec.label_info["a"] == LabelInfo("circular", (), "rad", "radians(h)")


def test_the_logarithm_is_missing_where_it_is_not_defined():
    values = np.r_[np.exp(np.arange(5.0)), 0.0, -1.0, np.nan]
    contents = source(s=values, times=np.arange(8.0), unit="cm/s")
    np.testing.assert_allclose(made(contents, "log(s)"), [0, 1, 2, 3, 4, *[np.nan] * 3])
    assert derive(contents, "log(s)").info.unit == "log cm/s"
    with pytest.raises(InputError, match=r"labels='log\(s\)' has no value above zero"):
        derive(source(s=-values[:5], times=np.arange(5.0)), "log(s)")


def test_functions_of_functions():
    np.testing.assert_allclose(
        made(circle(), "log(speed(x, y, smooth=0))"),
        np.log(made(circle(), "speed(x, y, smooth=0)")),
    )
    source_text = derive(circle(), "log(speed(x,y))").info.source
    assert source_text == "log(speed(x, y), smoothed by 0.1 s)"


def test_columns_are_joined_and_keep_their_names_and_unit():
    contents = source(x=TIMES, z=2 * TIMES, unit="cm")
    label = derive(contents, "x, z")
    np.testing.assert_array_equal(label.values, np.stack([TIMES, 2 * TIMES], axis=1))
    assert label.info == LabelInfo(None, ("x", "z"), "cm", "x, z")


def test_a_name_and_what_it_is():
    contents = source(x=TIMES)
    assert split_name("position=x,z", contents) == ("position", "x,z")
    assert split_name(" s = speed(x, smooth=0.3) ", contents) == ("s", "speed(x, smooth=0.3)")
    assert split_name("speed(x, smooth=0.3)", contents) == ("speed(x, smooth=0.3)",) * 2
    named = Contents("the data", {"a=b": contents.entries["x"]})
    assert split_name("a=b", named) == ("a=b", "a=b")
    with pytest.raises(InputError, match="has nothing after '='; write, for instance"):
        split_name("position=", contents)


@pytest.mark.parametrize(
    ("what", "message"),
    [
        ("sped(x, y)", "uses 'sped', which is no function; did you mean 'speed'? known are speed,"),
        ("exec(x)", "uses 'exec', which is no function; known are speed"),
        ("speed()", "needs names inside its parentheses, as in speed(x, y)"),
        ("speed(smooth=0.1)", "needs names inside its parentheses"),
        ("speed(x,)", "needs names inside its parentheses"),
        ("speed(x, w)", "labels='w' is not in it; it has 'x', 'y'"),
        ("speed(x", "labels='speed(x' cannot be read; write, for instance, speed(x, z)"),
        ("x, w", "labels='w' is not in it"),
        ("speed(x, smooth=fast)", "has smooth='fast', which must be a number of seconds, 0 or"),
        ("speed(x, smooth=-1)", "has smooth='-1', which must be a number of seconds, 0 or"),
        ("speed(x, smooth=inf)", "has smooth='inf', which must be a number of seconds, 0 or"),
        ("log(" * 3_000 + "x" + ")" * 3_000, "has more than 20 functions; write, for instance,"),
        ("angle(x, y, x)", "needs 2 or 4 columns, got 3"),
        ("direction(x)", "needs 2 columns, got 1"),
        ("radians(x, y)", "needs 1 column, got 2"),
        ("speed(units)", "'units' holds spike times, not a label"),
        ("trials", "is a list of intervals; it can be epochs, not labels; its columns are 'trials"),
        ("speed(trials/choice)", "needs numbers over time"),
        ("speed(word)", "needs numbers over time"),
        ("speed(untimed)", "needs the times of its series, because a rate is per second"),
        ("x, trials/choice", "columns of intervals are labels of their own"),
        ("x, other", "'x' and 'other' have different times and cannot be columns of one label"),
    ],
)
def test_what_cannot_be_made_is_one_line_with_the_remedy(what, message):
    entries = dict(circle().entries)
    entries["units"] = Spikes({"a": TIMES})
    entries["trials"] = Intervals([0.0, 1.0], [1.0, 2.0], {"choice": np.array([0, 1])})
    entries["word"] = Series(np.array(["a", "b"] * (N // 2)), TIMES)
    entries["untimed"] = Series(TIMES)
    entries["other"] = Series(TIMES[:50], TIMES[:50])
    with pytest.raises(InputError) as caught:
        derive(Contents("rec.nwb", entries), what)
    text = str(caught.value)
    assert message in text
    assert text.startswith("rec.nwb: ")
    assert "\n" not in text
    assert caught.value.arguments == ("labels",)
