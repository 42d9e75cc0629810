"""The folder of a run over several sessions: what is in it, repeated, replaced and continued."""

import json
import shutil
from dataclasses import replace

import numpy as np
import pytest
from safetensors.numpy import load_file

import xcebra
from tests.report.session_case import HOSTILE, QUICK, session_recording
from xcebra.attribution.pooled import PooledMaps
from xcebra.caveats import MissingLabelWarning
from xcebra.common.errors import InputError
from xcebra.report import session_maps, session_runs
from xcebra.report.run_folder import MAPS, UNFINISHED_MAPS
from xcebra.report.run_settings import Settings, Source
from xcebra.report.session_maps import checked_column, groups_of, load_maps, make_maps
from xcebra.report.session_runs import (
    SessionFit,
    SessionRun,
    fit_session,
    is_session_run,
    make_session_run,
)
from xcebra.report.session_settings import Session, SessionSettings, sessions_of_files

pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")


def tensors(path):
    return load_file(path)


def assert_same_tensors(first, second):
    first, second = tensors(first), tensors(second)
    assert first.keys() == second.keys()
    for name, values in first.items():
        np.testing.assert_array_equal(values, second[name], err_msg=name)


def contents(folder):
    return sorted(str(path.relative_to(folder)) for path in folder.rglob("*") if path.is_file())


class TestJoint:
    def test_the_folder_has_everything(self, joint_run):
        run, _ = joint_run
        assert is_session_run(run.folder)
        names = ["b_0_b_1", "b_0_b_2", "b_1_b_1", "b_1_b_2"]
        files = {f"sessions/{name}/recording.npz" for name in names}
        files |= {f"maps/{name}.nc" for name in names}
        files |= {"run.toml", "log.txt", "model.safetensors", "maps/pooled.json"}
        assert files <= set(contents(run.folder))
        assert not list(run.folder.glob("checkpoint*"))
        assert not (run.folder / UNFINISHED_MAPS).exists()
        text = (run.folder / "log.txt").read_text()
        assert "session <b>0</b> 1: used 8 neurons, 800 samples" in text

    def test_it_is_read_again_with_the_same_models(self, joint_run):
        run, pooled = joint_run
        again = SessionRun.open(run.folder)
        assert again.settings == run.settings
        assert list(again.models) == [s.name for s in run.settings.sessions]
        name = "<b>1</b> 2"
        np.testing.assert_array_equal(
            again.models[name].transform(again.recordings[name]),
            run.models[name].transform(run.recordings[name]),
        )
        assert again.single(name).settings.recording.file.endswith("m1day2.npz")
        assert pooled.animals == {s.name: s.animal for s in run.settings.sessions}
        assert pooled.days[name] == 2

    def test_it_is_what_the_estimator_gives(self, joint_run):
        run, _ = joint_run
        model = xcebra.XCEBRA(**QUICK).fit(dict(run.recordings), label="heading")
        for name, recording in run.recordings.items():
            np.testing.assert_array_equal(
                model.transform({name: recording})[name], run.models[name].transform(recording)
            )

    def test_a_finished_run_is_not_fitted_again(self, joint_run, monkeypatch):
        run, _ = joint_run
        monkeypatch.setattr(xcebra.XCEBRA, "fit", None)
        make_session_run(run.settings, run.folder)

    def test_other_settings_are_refused_and_named(self, joint_run):
        run, _ = joint_run
        fewer = replace(run.settings, sessions=run.settings.sessions[:3])
        with pytest.raises(InputError, match=r"other settings \(sessions\)"):
            make_session_run(fewer, run.folder)
        with pytest.raises(InputError, match=r"other settings \(steps\)"):
            make_session_run(replace(run.settings, model={**QUICK, "steps": 9}), run.folder)
        with pytest.raises(InputError, match=r"other settings \(mode\)"):
            make_session_run(replace(run.settings, mode="separate"), run.folder)

    def test_a_failure_brings_back_the_run_that_was_to_be_replaced(self, joint_run, tmp_path):
        run, _ = joint_run
        shutil.copytree(run.folder, tmp_path / "run")
        before = contents(tmp_path / "run")
        wrong = replace(run.settings, model={**QUICK, "batch_size": 100_000})
        with pytest.raises(InputError, match="batch_size is 100000"):
            make_session_run(wrong, tmp_path / "run", overwrite=True)
        assert contents(tmp_path / "run") == before
        SessionRun.open(tmp_path / "run")
        with pytest.raises(InputError, match="batch_size is 100000"):
            make_session_run(wrong, tmp_path / "new")
        assert not (tmp_path / "new").exists()


class TestInputs:
    def settings(self, folder, recordings, **changes):
        files = []
        for name, recording in recordings.items():
            xcebra.write(recording, folder / f"{name}.npz")
            files.append(folder / f"{name}.npz")
        shared = Source("", ("heading", "speed"))
        return SessionSettings(shared, sessions_of_files(files), QUICK, **changes)

    def without(self, recording, *labels):
        kept = {n: v for n, v in recording.labels.items() if n not in labels}
        return replace(recording, labels=kept, label_info={})

    @pytest.mark.parametrize("mode", ["joint", "separate"])
    def test_other_units_are_refused_before_training(self, tmp_path, mode):
        recordings = {"a": session_recording(1), "b": session_recording(2, unit="cm/s")}
        settings = self.settings(tmp_path, recordings, mode=mode)
        with pytest.raises(InputError, match="'speed' is in m/s in session 'a' and in cm/s"):
            make_session_run(settings, tmp_path / "run")
        assert not (tmp_path / "run").exists()

    def test_a_session_may_lack_a_label_but_not_all(self, tmp_path):
        recordings = {
            "a": session_recording(1),
            "b": self.without(session_recording(2), "speed"),
        }
        settings = self.settings(tmp_path, recordings)
        with pytest.warns(MissingLabelWarning, match="session 'b' has no speed"):
            inputs = session_runs._read_all(settings)
        assert list(inputs.labels) == ["heading", "speed"]
        assert inputs.written == {"a": ("heading", "speed"), "b": ("heading",)}
        assert list(inputs.recordings["b"].labels) == ["heading"]
        recordings["b"] = self.without(session_recording(2), "speed", "heading")
        settings = self.settings(tmp_path, recordings)
        with pytest.raises(InputError, match=r"session 'b': .*'heading' is not in it"):
            session_runs._read_all(settings)

    def test_a_label_that_no_session_has_is_refused(self, tmp_path):
        recordings = {"a": session_recording(1), "b": session_recording(2)}
        settings = self.settings(tmp_path, recordings)
        wrong = replace(settings, recording=Source("", ("heading", "sped")))
        with pytest.raises(InputError, match=r"session 'a': .*did you mean 'speed'"):
            session_runs._read_all(wrong)
        nothing = replace(settings, recording=Source(""))
        with pytest.raises(InputError, match="no label is asked about"):
            session_runs._read_all(nothing)

    def test_a_session_uses_its_own_units_and_unit_table(self, tmp_path):
        xcebra.write(session_recording(1), tmp_path / "a.npz")
        xcebra.write(session_recording(2), tmp_path / "b.npz")
        lines = ["unit,layer", *(f"n{i},{i % 2}" for i in range(7)), f"{HOSTILE},0"]
        (tmp_path / "u.csv").write_text("\n".join(lines))
        sessions = (
            Session("a", str(tmp_path / "a.npz"), units="area == 'adn'"),
            Session(
                "b",
                str(tmp_path / "b.npz"),
                units="layer == 1",
                unit_table=str(tmp_path / "u.csv"),
            ),
        )
        settings = SessionSettings(Source("", ("heading",)), sessions, QUICK).with_digests()
        assert settings.sessions[1].unit_table_sha256
        recordings = session_runs._read_all(settings).recordings
        assert recordings["a"].neuron_names == ("n0", "n1", "n2", "n3")
        assert recordings["b"].neuron_names == ("n1", "n3", "n5")


class TestSeparate:
    def test_a_worker_fits_a_complete_run_and_returns_its_errors(self, session_files, tmp_path):
        source = Source(str(session_files / "m0day1.npz"), ("heading",))
        text = json.dumps(Settings(source, QUICK).as_table())
        found = fit_session(SessionFit("a", text, str(tmp_path / "a")))
        assert found["error"] is None
        assert {"run.toml", "recording.npz", "model.safetensors"} <= set(contents(tmp_path / "a"))
        wrong = Settings(source, {**QUICK, "batch_size": 10_000})
        found = fit_session(SessionFit("b", json.dumps(wrong.as_table()), str(tmp_path / "b")))
        assert found["error"][0].startswith("batch_size is 10000")
        assert found["error"][1] == ["batch_size"]
        assert json.dumps(found)

    def test_finished_sessions_are_kept_if_another_fails(
        self, session_files, tmp_path, monkeypatch
    ):
        files = [session_files / f"m0day{day}.npz" for day in (1, 2)]
        settings = SessionSettings(
            Source("", ("heading",)), sessions_of_files(files), QUICK, mode="separate"
        )

        def here(work, items, rows, **options):
            results = [{"notes": [], "error": ["cannot be", ["units"]]} for _ in items]
            results[0] = work(items[0])
            return [{"found": result} for result in results]

        monkeypatch.setattr(session_runs, "sweep", here)
        with pytest.raises(InputError, match="session 'm0day2': cannot be"):
            make_session_run(settings, tmp_path / "run")
        model = tmp_path / "run" / "sessions" / "m0day1" / "model.safetensors"
        written = model.stat().st_mtime_ns
        with pytest.raises(FileNotFoundError, match="is not finished; go on with"):
            SessionRun.open(tmp_path / "run")

        def all_here(work, items, rows, **options):
            assert [item.name for item in items] == ["m0day2"]
            return [{"found": work(item)} for item in items]

        monkeypatch.setattr(session_runs, "sweep", all_here)
        run = make_session_run(settings, tmp_path / "run")
        assert run.joint is None
        assert model.stat().st_mtime_ns == written
        pooled = make_maps(run, test=False)
        assert (run.folders["m0day2"] / "map.nc").is_file()
        assert pooled.animals is None


class TestMaps:
    def test_maps_that_are_finished_are_not_made_again(self, joint_run, tmp_path, monkeypatch):
        run, pooled = joint_run
        shutil.copytree(run.folder, tmp_path / "run")
        copy = replace(run, folder=tmp_path / "run")
        shutil.rmtree(copy.folder / MAPS)
        made = []
        attribute = xcebra.XCEBRA.attribute

        def failing(model, recording, **arguments):
            if len(made) == 2:
                raise KeyboardInterrupt
            made.append(recording)
            return attribute(model, recording, **arguments)

        monkeypatch.setattr(xcebra.XCEBRA, "attribute", failing)
        with pytest.raises(KeyboardInterrupt):
            make_maps(copy, test=True)
        assert load_maps(copy) is None
        made.append("go on")
        again = make_maps(copy, test=True)
        assert len(made) == 5
        assert not (copy.folder / UNFINISHED_MAPS).exists()
        for name, amap in pooled.items():
            np.testing.assert_array_equal(again[name].scores["heading"], amap.scores["heading"])
        assert PooledMaps.load(copy.folder / MAPS).days == pooled.days

    def test_unfinished_maps_of_another_kind_are_not_used(self, joint_run, tmp_path, monkeypatch):
        run, _ = joint_run
        shutil.copytree(run.folder, tmp_path / "run")
        copy = replace(run, folder=tmp_path / "run")
        unfinished = copy.folder / UNFINISHED_MAPS
        unfinished.mkdir()
        (unfinished / "request.json").write_text("{}")
        (unfinished / "b_0_b_1.nc").write_text("of another kind")
        kept = session_maps._maps_one_by_one(copy, {"test": False, "refits": 0})
        assert all(not amap.connections for amap in kept.values())

    def test_the_usual_column_is_one_of_all_sessions(self):
        one, other = {"area": np.array(["a", "a"])}, {"area": np.array(["b"]), "layer": np.ones(1)}
        assert checked_column({"x": one, "y": other}, None) == "area"
        assert checked_column({"x": one, "y": one}, None) is None
        with pytest.raises(InputError, match="session 'x': group_by='layer' is no column"):
            checked_column({"x": one, "y": other}, "layer")

    def test_without_a_column_all_neurons_are_one_group(self, joint_run):
        _, pooled = joint_run
        groups = groups_of(pooled, None)
        (row,) = groups.groups["heading"]
        assert row.group == "all neurons"
        assert row.n_neurons == sum(len(amap.neuron_names) for amap in pooled.values())
        assert groups.comparisons["heading"] == ()
