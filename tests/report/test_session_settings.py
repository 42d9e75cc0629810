"""Tables of sessions, their names, and the settings that are written to run.toml."""

import tomllib
from pathlib import Path

import pandas as pd
import pytest
import tomli_w

from xcebra.common.errors import InputError
from xcebra.report.run_settings import Settings, Source
from xcebra.report.session_settings import (
    Session,
    SessionSettings,
    load_settings,
    read_sessions,
    sessions_of_files,
)


def table(folder, text):
    path = folder / "sessions.csv"
    path.write_text(text, encoding="utf-8")
    return path


class TestFiles:
    def test_sessions_are_named_after_their_files(self):
        sessions = sessions_of_files([Path("a/day1.nwb"), Path("a/day2.npz")])
        assert [s.name for s in sessions] == ["day1", "day2"]

    def test_files_of_one_name_are_named_after_their_folders(self):
        sessions = sessions_of_files([Path("ann/day.nwb"), Path("bob/day.nwb"), Path("bob/x.nwb")])
        assert [s.name for s in sessions] == ["ann_day", "bob_day", "x"]

    @pytest.mark.parametrize(
        ("files", "message"),
        [
            (["a/day.nwb", "a/../a/day.nwb"], "is named twice"),
            (["a/day.nwb", "a/day.npz"], "2 sessions are called 'a_day'"),
            (["x/a/day.nwb", "y/a/day.nwb"], "2 sessions are called 'a_day'"),
        ],
    )
    def test_names_that_stay_the_same_are_refused(self, files, message):
        with pytest.raises(InputError, match=message):
            sessions_of_files([Path(file) for file in files])


class TestTable:
    def test_files_are_relative_to_the_table_and_empty_cells_are_missing(self, tmp_path):
        path = table(
            tmp_path,
            "\ufefffile,session,animal,day,units,epochs,unit_table\n"
            "a.nwb,first,007,1,\"area == 'a,b' and rate > 1\",,\n"
            "\n"
            f"{tmp_path}/b.nwb, second ,008,2.5,,wake,units.csv\n",
        )
        first, second = read_sessions(path)
        assert first == Session(
            "first", str(tmp_path / "a.nwb"), "007", 1, units="area == 'a,b' and rate > 1"
        )
        assert second == Session(
            "second",
            str(tmp_path / "b.nwb"),
            "008",
            2.5,
            epochs="wake",
            unit_table=str(tmp_path / "units.csv"),
        )
        assert isinstance(first.day, int)

    def test_days_that_are_not_all_numbers_are_text(self, tmp_path):
        path = table(tmp_path, "file,day\na.nwb,2024-05-01\nb.nwb,2\n")
        assert [s.day for s in read_sessions(path)] == ["2024-05-01", "2"]

    def test_parquet_has_the_same_meaning(self, tmp_path):
        frame = pd.DataFrame({"file": ["a.nwb", "b.nwb"], "animal": ["x", "y"], "day": [1, 2]})
        frame.to_parquet(tmp_path / "sessions.parquet")
        frame.to_csv(tmp_path / "sessions.csv", index=False)
        assert read_sessions(tmp_path / "sessions.parquet") == read_sessions(
            tmp_path / "sessions.csv"
        )

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("", "is empty"),
            ("file,animal\n", "lists no session"),
            ("path\na.nwb\n", "has a column 'path'.* known are .*file, session"),
            ("animal\nx\n", "has no column 'file'"),
            ("file,anmal\na.nwb,x\n", "did you mean 'animal'"),
            ("file,file\na.nwb,b.nwb\n", "two columns have the same name"),
            ("file,animal\na.nwb,x,y\n", "row 1 has 3 fields"),
            ("file,animal\na.nwb,x\n,y\n", "row 2 names no file"),
            ("file,session\na.nwb,x\nb.nwb,x\n", "2 sessions are called 'x'"),
            ("file,animal\na.nwb,x\nb.nwb,\n", "animal of session 'b' is missing"),
            ("file,day\na.nwb,1\nb.nwb,\n", "day of session 'b' is missing"),
        ],
    )
    def test_what_is_wrong_is_said_with_the_remedy(self, tmp_path, text, message):
        with pytest.raises(InputError, match=message) as caught:
            read_sessions(table(tmp_path, text))
        assert "\n" not in str(caught.value)

    def test_a_table_that_is_not_there(self, tmp_path):
        with pytest.raises(FileNotFoundError, match="there is no file"):
            read_sessions(tmp_path / "none.csv")
        (tmp_path / "a.txt").touch()
        with pytest.raises(InputError, match=r"must end in \.csv or \.parquet"):
            read_sessions(tmp_path / "a.txt")


class TestSettings:
    def settings(self, **changes):
        shared = Source("", ("heading", "position=x,z"), bin_size=0.1, units="rate > 1")
        sessions = (
            Session("a/../b", "a.nwb", "ann", 1, units="rate > 2"),
            Session("a b", "b.nwb", "bob", 2),
            Session("A_B", "c.nwb", "bob", 3),
        )
        return SessionSettings(
            shared, sessions, {"steps": 5, "label_dims": {"position": 2}}, **changes
        )

    def test_they_come_back_from_their_file(self, tmp_path):
        before = self.settings(mode="separate")
        path = tmp_path / "run.toml"
        path.write_text(tomli_w.dumps(before.as_table()))
        assert load_settings(path) == load_settings(tmp_path) == before
        assert "file" not in tomllib.loads(path.read_text())["recording"]
        path.write_text('[recording]\nfile = "a.nwb"\n')
        assert load_settings(path) == Settings(Source("a.nwb"), {})

    def test_folders_are_safe_and_different(self):
        assert self.settings().folders == {"a/../b": "a_b", "a b": "a_b-2", "A_B": "A_B-3"}

    def test_a_session_has_its_own_settings_and_no_labels_that_it_lacks(self):
        settings = self.settings()
        first, second = (settings.of_session(s) for s in settings.sessions[:2])
        assert (first.recording.file, first.recording.units) == ("a.nwb", "rate > 2")
        assert (second.recording.file, second.recording.units) == ("b.nwb", "rate > 1")
        assert first.recording.bin_size == 0.1
        lacking = settings.of_session(settings.sessions[0], ("heading",))
        assert lacking.recording.labels == ("heading",)
        assert lacking.model == {"steps": 5, "label_dims": {}}

    def test_the_same_recording_twice_is_refused_unless_other_parts_are_used(self, tmp_path):
        (tmp_path / "a.npz").write_bytes(b"1")
        (tmp_path / "b.npz").write_bytes(b"1")
        a, b = (Session(n, str(tmp_path / f"{n}.npz")) for n in "ab")
        with pytest.raises(InputError, match="'a' and 'b' are the same recording"):
            SessionSettings(Source(""), (a, b)).with_digests()
        other = Session("b", b.file, epochs="rest")
        made = SessionSettings(Source(""), (a, other)).with_digests()
        assert len({s.sha256 for s in made.sessions}) == 1
        (tmp_path / "a.npz").write_bytes(b"2")
        with pytest.raises(InputError, match="has changed since these settings were written"):
            made.with_digests()

    @pytest.mark.parametrize(
        ("text", "message"),
        [
            ("sessions = 3\n", r"must be tables, each under \[\[sessions\]\]"),
            ('[[sessions]]\nfile = "a"\n', "has no 'name'"),
            ('[[sessions]]\nname = "a"\nfile = "a"\ndy = 1\n', "has 'dy'.* did you mean 'day'"),
            ('mode = "both"\n[[sessions]]\nname = "a"\nfile = "a"\n', "'joint' or 'separate'"),
        ],
    )
    def test_a_wrong_file_of_settings(self, tmp_path, text, message):
        path = tmp_path / "run.toml"
        path.write_text(text)
        with pytest.raises(InputError, match=message):
            load_settings(path)
