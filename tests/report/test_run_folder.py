"""What a run reads, how it says so in run.toml, and what its log holds."""

import logging
import re

import numpy as np
import pandas as pd
import pytest
import tomli_w

import xcebra
from xcebra.common.errors import InputError
from xcebra.common.progress import logger, phase
from xcebra.report.run_folder import LOG, Settings, Source, logged, remembered

N = 300
TIMES = np.arange(N) / 20


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    folder = tmp_path_factory.mktemp("files")
    rng = np.random.default_rng(0)
    columns = {f"unit_{i}": rng.poisson(1 + i, N) for i in range(6)}
    x, y = 10 * np.sin(TIMES), 10 * np.cos(TIMES)
    heading = np.rad2deg(np.angle(np.exp(1j * 3 * TIMES)))
    frame = pd.DataFrame({"time": TIMES, "x": x, "z": y, "heading": heading, **columns})
    frame["speed_body"], frame["speed_head"] = rng.random(N), rng.random(N)
    frame.to_csv(folder / "rec.csv", index=False)
    units = pd.DataFrame({"unit": [f"unit_{i}" for i in range(5, -1, -1)], "area": list("aabbba")})
    units.to_csv(folder / "units.csv", index=False)
    return folder


def source(files, **changes):
    return Source(str(files / "rec.csv"), **{"labels": ("x",), **changes})


class TestSource:
    def test_controls_are_labels_after_the_others(self, files):
        rec, labels, controls = source(
            files, labels=("position=x,z",), controls=("speed=speed(x, z)", "speed_head")
        ).read({})
        assert (labels, controls) == (["position"], ["speed", "speed_head"])
        assert list(rec.labels) == ["position", "speed", "speed_head"]

    def test_a_pattern_may_stand_for_several_controls(self, files):
        _, labels, controls = source(files, labels=("?",), controls=("speed_*",)).read({})
        assert labels == ["x", "z"]
        assert controls == ["speed_body", "speed_head"]

    def test_what_is_both_is_a_control(self, files):
        _, labels, controls = source(files, labels=("x", "z"), controls=("x",)).read({})
        assert (labels, controls) == (["z"], ["x"])

    def test_without_labels_there_are_none(self, files):
        rec, labels, controls = source(files, labels=()).read({})
        assert (labels, controls, dict(rec.labels)) == ([], [], {})

    @pytest.mark.parametrize("kind", ["continuous", {"h": "continuous"}])
    def test_one_kind_for_all_labels_or_for_each(self, files, kind):
        """Without it, this label would be taken as an angle."""
        settings = Settings(source(files, labels=("h=heading",)), {"label_kind": kind})
        rec, *_ = settings.read()
        assert rec.label_info["h"].kind == "continuous"
        assert np.ptp(rec.labels["h"]) > 300


class TestSettings:
    def settings(self, files):
        read = source(
            files,
            labels=("position=x,z",),
            controls=("speed=speed(x, z)",),
            units="area == 'b' and rate > 30",
            unit_table=str(files / "units.csv"),
            epochs="x > -5 and speed > 1",
            label_unit={"position": "cm"},
            bin_size=0.1,
        )
        return Settings(read, {"random_state": 0, "label_kind": {"speed": "continuous"}})

    def test_they_come_back_from_their_file_and_read_the_same_recording(self, files, tmp_path):
        before = self.settings(files)
        path = tmp_path / "run.toml"
        path.write_text(tomli_w.dumps(before.as_table()))
        assert "area == 'b' and rate > 30" in path.read_text()
        after = Settings.load(path)
        assert after == before
        (first, *names), (second, *again) = before.read(), after.read()
        assert names == again == [["position"], ["speed"]]
        np.testing.assert_array_equal(first.neural, second.neural)
        assert first.neuron_names == second.neuron_names == ("unit_1", "unit_2", "unit_3")
        assert first.units["area"].tolist() == ["b", "b", "b"]
        assert (first.labels["position"][:, 0] > -5).all()
        assert first.epochs.pairs() == second.epochs.pairs()
        assert len(first.epochs.pairs()) == 3
        assert first.label_info == second.label_info
        assert first.label_info["position"].unit == "cm"
        for name, values in first.labels.items():
            np.testing.assert_array_equal(values, second.labels[name])

    def test_settings_of_version_0_4_are_still_read(self, tmp_path):
        path = tmp_path / "run.toml"
        path.write_text('[recording]\nfile = "a.npz"\nlabels = ["x"]\n[model]\nsteps = 5\n')
        assert Settings.load(path) == Settings(Source("a.npz", ("x",)), {"steps": 5})

    def test_a_setting_that_does_not_exist_is_answered_with_the_nearest(self, tmp_path):
        path = tmp_path / "run.toml"
        path.write_text('[recording]\nunit = "rate > 1"\n')
        with pytest.raises(
            InputError, match=r"has 'unit', which is no setting; did you mean 'units'"
        ):
            Settings.load(path)


class TestLog:
    def test_it_holds_phases_with_their_durations_and_notes(self, tmp_path):
        with logged(tmp_path, "fit"):
            with phase("training"):
                pass
            logger.info("note: something")
        with logged(tmp_path, "attribute"), phase("map"):
            pass
        lines = (tmp_path / LOG).read_text().splitlines()
        assert all(re.match(r"\d{4}-\d\d-\d\d \d\d:\d\d:\d\d,\d{3} ", line) for line in lines)
        words = [line.split(" ", 2)[2] for line in lines]
        assert words[0].startswith("xcebra fit, with ")
        assert f"xcebra {xcebra.__version__}" in words[0]
        assert re.fullmatch(r"training: \d+\.\d s", words[1])
        assert words[2] == "note: something"
        assert words[3].startswith("xcebra attribute, with ")
        assert words[4].startswith("map: ")

    def test_what_was_said_before_the_folder_existed_is_in_it(self, tmp_path):
        with remembered() as before:
            logger.info("note: heading was taken as an angle")
        with logged(tmp_path, "fit", before):
            pass
        assert "note: heading was taken as an angle" in (tmp_path / LOG).read_text()

    def test_an_error_is_in_it_and_the_logger_is_as_before(self, tmp_path):
        handlers, level = list(logger.handlers), logger.level
        with pytest.raises(KeyError), logged(tmp_path, "fit"):
            raise KeyError("a bug")
        text = (tmp_path / LOG).read_text()
        assert "ended by an error" in text
        assert "KeyError: 'a bug'" in text
        with pytest.raises(KeyboardInterrupt), logged(tmp_path, "fit"):
            raise KeyboardInterrupt
        assert "stopped by the user" in (tmp_path / LOG).read_text()
        assert (logger.handlers, logger.level) == (handlers, level)
        assert logging.getLogger("xcebra") is logger
