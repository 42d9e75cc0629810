"""What files and objects say of units comes with the recording, and goes into files with it."""

from datetime import UTC, datetime

import numpy as np
import pandas as pd
import pynapple as nap
import pytest
import xarray as xr
from hdmf.common import VectorData
from pynwb import NWBHDF5IO, NWBFile
from pynwb.behavior import CompassDirection, Position, SpatialSeries
from pynwb.testing.mock.ophys import (
    mock_ImagingPlane,
    mock_PlaneSegmentation,
    mock_RoiResponseSeries,
)

import xcebra
from xcebra.caveats import LabelKindWarning
from xcebra.common.errors import InputError
from xcebra.data.label_info import LabelInfo
from xcebra.io import describe, opened

SECONDS = 20.0
TIMES = np.arange(0, SECONDS, 0.02)
N_UNITS = 6
AREAS = ["CA1", "CA3", "CA1", "DG"]


def trains(n=N_UNITS, seed=0):
    """Unit i has 20 * (i + 1) spikes, and so i + 1 per second."""
    rng = np.random.default_rng(seed)
    return [np.sort(rng.uniform(0, SECONDS, 20 * (i + 1))) for i in range(n)]


def saved(path, fill):
    nwb = NWBFile("a session", path.stem, datetime(2020, 1, 1, tzinfo=UTC))
    fill(nwb)
    with NWBHDF5IO(str(path), "w") as io:
        io.write(nwb)
    return path


def add_electrodes(nwb):
    device = nwb.create_device("probe")
    groups = [
        nwb.create_electrode_group(f"shank{i}", "a shank", area, device)
        for i, area in enumerate(("CA1", "CA3"))
    ]
    for i, area in enumerate(AREAS):
        nwb.add_electrode(group=groups[i % 2], location=area, id=10 + i)
    return groups


def add_behaviour(nwb):
    module = nwb.create_processing_module("behavior", "behaviour")
    position = Position(name="Position")
    for name, values in (("x", 30 * np.sin(TIMES)), ("z", 20 * np.cos(TIMES))):
        position.add_spatial_series(
            SpatialSeries(
                name=name, data=values, timestamps=TIMES, reference_frame="room", unit="cm"
            )
        )
    module.add(position)
    degrees = np.rad2deg(np.angle(np.exp(1j * TIMES)))
    compass = CompassDirection(name="CompassDirection")
    compass.add_spatial_series(
        SpatialSeries(
            name="ry", data=degrees, timestamps=TIMES, reference_frame="room", unit="degrees"
        )
    )
    module.add(compass)


@pytest.fixture(scope="module")
def file(tmp_path_factory):
    """A file with everything that a table of units, trials and epochs may hold."""

    def fill(nwb):
        groups = add_electrodes(nwb)
        nwb.add_unit_column("quality", "text")
        nwb.add_unit_column("depth", "numbers, one of them missing")
        nwb.add_unit_column("shank", "whole numbers")
        nwb.add_unit_column("putative", "truth values")
        nwb.add_unit_column("notes", "nothing")
        nwb.add_unit_column("histogram", "an array each")
        nwb.add_unit_column("neighbours", "a list each", index=True)
        nwb.add_unit_column("nearest", "a row of the electrodes", table=nwb.electrodes)
        for i, train in enumerate(trains()):
            nwb.add_unit(
                id=20 + i,
                spike_times=train,
                obs_intervals=[[0.0, SECONDS]],
                electrodes=[i % 4, (i + 1) % 4],
                electrode_group=groups[i % 2],
                waveform_mean=np.zeros((8, 2)),
                quality=["good", "mua", "good"][i % 3],
                depth=np.nan if i == 2 else 10.0 * i,
                shank=i % 2,
                putative=i < 3,
                notes="",
                histogram=np.arange(5.0),
                neighbours=[1, 2],
                nearest=i % 4,
            )
        nwb.add_trial_column("choice", "text")
        nwb.add_trial_column("contrast", "numbers")
        for i in range(4):
            nwb.add_trial(
                4.0 * i, 4.0 * i + 3, choice=["left", "right"][i % 2], contrast=0.25 * (i + 1)
            )
        nwb.add_epoch(0.0, 8.0, ["wake", "maze"])  # two tags
        nwb.add_epoch(8.0, 12.0, ["sws"])
        nwb.add_epoch(12.0, 20.0, ["wake"])
        add_behaviour(nwb)

    return saved(tmp_path_factory.mktemp("nwb") / "all.nwb", fill)


def read(path, **options):
    return xcebra.read(path, **{"labels": "x", "bin_size": 0.1, **options})


class TestNWB:
    def test_every_simple_column_is_kept_and_nothing_else(self, file):
        units = read(file).units
        assert {name: values.tolist() for name, values in units.items() if name != "depth"} == {
            "electrode_group": ["shank0", "shank1"] * 3,
            "quality": ["good", "mua", "good"] * 2,
            "shank": [0, 1] * 3,
            "putative": [True] * 3 + [False] * 3,
            "location": ["CA1,CA3", "CA3,CA1", "CA1,DG", "DG,CA1", "CA1,CA3", "CA3,CA1"],
        }
        np.testing.assert_array_equal(units["depth"], [0, 10, np.nan, 30, 40, 50])
        kinds = {name: values.dtype.kind for name, values in units.items()}
        assert kinds["shank"] == "i"
        assert kinds["putative"] == "b"
        assert kinds["depth"] == "f"

    def test_units_are_chosen_with_their_rows(self, file):
        rec = read(file, units="quality == 'good' and depth > 0")
        assert rec.neuron_names == ("23", "25")
        assert rec.units["depth"].tolist() == [30.0, 50.0]
        whole = read(file)
        np.testing.assert_array_equal(rec.neural, whole.neural[:, [3, 5]])

    def test_rates_are_spikes_per_second_of_observation(self, file):
        assert read(file, units="rate > 3.99").neuron_names == ("23", "24", "25")
        assert read(file, units="rate >= 4.01").neuron_names == ("24", "25")
        assert read(file, units="rate < 2 or name == 25").neuron_names == ("20", "25")
        assert "rate" not in read(file, units="rate > 3").units

    def test_tags_choose_epochs(self, file):
        assert read(file, epochs="wake").epochs.pairs() == [(0, 80), (80, 160)]
        assert read(file, epochs="sws").time[[0, -1]] == pytest.approx([8.05, 11.95])
        assert read(file, epochs="maze").n_times == 80
        with pytest.raises(InputError, match=r"epochs='wke' .*; did you mean 'wake'\? it has"):
            read(file, epochs="wke")

    def test_trials_are_labels(self, file):
        rec = read(file, labels=["trials/choice", "c=contrast"])
        assert set(rec.labels) == {"trials/choice", "c"}
        inside = rec.time % 4 < 3
        trial = (rec.time // 4).astype(int)
        choice = np.where(inside, np.array(["left", "right"])[trial % 2], "")
        np.testing.assert_array_equal(rec.labels["trials/choice"][:, 0], choice)
        contrast = np.where(inside, 0.25 * (trial + 1), np.nan)
        np.testing.assert_array_equal(rec.labels["c"][:, 0], contrast)

    def test_position_and_heading_have_their_units(self, file):
        with pytest.warns(LabelKindWarning, match="its unit is degrees"):
            rec = read(file, labels=["position=x,z", "heading=ry", "speed=speed(x, z)"])
        assert rec.label_info == {
            "position": LabelInfo(None, ("x", "z"), "cm", "x, z"),
            "heading": LabelInfo("circular", unit="rad"),
            "speed": LabelInfo(unit="cm/s", source="speed(x, z), smoothed by 0.1 s"),
        }
        heading = rec.labels["heading"][:, 0]
        np.testing.assert_allclose(np.exp(1j * heading), np.exp(1j * rec.time), atol=1e-6)

    def test_it_is_described(self, file):
        with opened(file) as contents:
            details = {entry.name: " ".join(entry.details) for entry in describe(contents)}
        assert "quality (good: 4, mua: 2)" in details["units"]
        assert "rates: 1 to 6 spikes per second" in details["units"]
        assert "choose them with --epochs, as in --epochs wake" in details["epochs"]
        assert "a label: trials/choice" in details["trials"]

    def test_the_area_of_a_peak_channel(self, tmp_path):
        def fill(nwb):
            add_electrodes(nwb)
            nwb.add_unit_column("peak_channel_id", "id of an electrode")
            for i, train in enumerate(trains(3)):
                nwb.add_unit(spike_times=train, peak_channel_id=[13, 11, 99][i])

        rec = xcebra.read(saved(tmp_path / "peak.nwb", fill), bin_size=0.1)
        assert rec.units["location"].tolist() == ["DG", "CA3", ""]
        assert rec.units["peak_channel_id"].tolist() == [13, 11, 99]

    def test_the_area_of_an_electrode_group(self, tmp_path):
        def fill(nwb):
            device = nwb.create_device("probe")
            group = nwb.create_electrode_group("tetrode", "four wires", "adn", device)
            for train in trains(2):
                nwb.add_unit(spike_times=train, electrode_group=group)

        rec = xcebra.read(saved(tmp_path / "group.nwb", fill), bin_size=0.1)
        assert rec.units["location"].tolist() == ["adn", "adn"]
        assert rec.units["electrode_group"].tolist() == ["tetrode", "tetrode"]

    def test_a_location_in_the_unit_table_wins(self, tmp_path):
        def fill(nwb):
            add_electrodes(nwb)
            nwb.add_unit_column("location", "area")
            for train in trains(2):
                nwb.add_unit(spike_times=train, electrodes=[0], location="V1")

        rec = xcebra.read(saved(tmp_path / "own.nwb", fill), bin_size=0.1)
        assert rec.units["location"].tolist() == ["V1", "V1"]

    def test_names_of_units_in_the_file(self, tmp_path):
        """Ids from zero on say nothing, and names are better; a table is matched by them."""

        def fill(nwb):
            nwb.add_unit_column("unit_name", "name")
            for i, train in enumerate(trains(3)):
                nwb.add_unit(spike_times=train, unit_name="cab"[i])

        path = saved(tmp_path / "names.nwb", fill)
        table = {"unit_name": ["a", "b", "c"], "depth": [1, 2, 3]}
        rec = xcebra.read(path, bin_size=0.1, unit_table=table)
        assert rec.neuron_names == ("c", "a", "b")
        assert rec.units["depth"].tolist() == [3, 1, 2]

    def test_ids_that_are_given_twice_name_no_unit(self, tmp_path):
        def fill(nwb):
            nwb.add_unit_column("area", "text")
            for i, train in enumerate(trains(3)):
                nwb.add_unit(spike_times=train, id=[5, 5, 6][i], area="abc"[i])

        rec = xcebra.read(saved(tmp_path / "twice.nwb", fill), bin_size=0.1)
        assert rec.neuron_names == ("0", "1", "2")
        assert rec.units["area"].tolist() == ["a", "b", "c"]

    def test_regions_of_interest(self, tmp_path):
        def fill(nwb):
            plane = mock_PlaneSegmentation(
                n_rois=0, nwbfile=nwb, imaging_plane=mock_ImagingPlane(nwbfile=nwb)
            )
            plane.add_column("cell_type", "text")
            plane.add_column("snr", "numbers")
            for i in range(5):
                plane.add_roi(image_mask=np.zeros((4, 4)), cell_type=["PV", "VIP"][i % 2], snr=i)
            mock_RoiResponseSeries(
                name="dff",
                data=np.random.default_rng(0).random((100, 3)),
                rate=10.0,
                n_rois=3,
                plane_segmentation=plane,
                rois=plane.create_roi_table_region("some", region=[4, 0, 1]),
                nwbfile=nwb,
            )

        path = saved(tmp_path / "roi.nwb", fill)
        rec = xcebra.read(path)
        assert {name: values.tolist() for name, values in rec.units.items()} == {
            "cell_type": ["PV", "PV", "VIP"],
            "snr": [4, 0, 1],
        }
        chosen = xcebra.read(path, units="cell_type == 'PV' and snr > 1")
        np.testing.assert_array_equal(chosen.neural, rec.neural[:, :1])

    def test_large_columns_are_not_read(self, file, monkeypatch):
        """Masks of cells and waveforms may be much larger than the recording."""
        read_rows = VectorData.__getitem__

        def watched(column, rows):
            assert column.name not in ("waveform_mean", "histogram")
            return read_rows(column, rows)

        monkeypatch.setattr(VectorData, "__getitem__", watched)
        assert "quality" in read(file).units


class TestTables:
    """A table beside the recording."""

    def source(self, names=("a", "b", "c")):
        return {"units": dict(zip(names, trains(3), strict=True)), "x": (TIMES, TIMES)}

    def read(self, table, names=("a", "b", "c"), **options):
        return xcebra.read(self.source(names), bin_size=0.1, unit_table=table, **options)

    def frame(self):
        return pd.DataFrame({"unit": ["c", "a", "b"], "area": ["V1", None, "CA1"], "n": [3, 1, 2]})

    @pytest.mark.parametrize("form", ["frame", "mapping", "csv", "parquet"])
    def test_in_any_form_and_any_order(self, form, tmp_path):
        table = self.frame()
        if form == "mapping":
            table = table.to_dict("list")
        elif form == "csv":
            table.to_csv(tmp_path / "units.csv", index=False)
            table = tmp_path / "units.csv"
        elif form == "parquet":
            table.to_parquet(tmp_path / "units.parquet")
            table = str(tmp_path / "units.parquet")
        rec = self.read(table)
        assert rec.units["area"].tolist() == ["", "CA1", "V1"]
        assert rec.units["n"].tolist() == [1, 2, 3]
        assert self.read(table, units="area == 'V1'").neuron_names == ("c",)

    def test_by_number_in_any_order(self):
        """The ids of these units are 0, 1 and 2, and the table is sorted by depth."""
        table = {"id": [2, 0, 1], "depth": [20, 0, 10]}
        assert self.read(table, names=(0, 1, 2)).units["depth"].tolist() == [0, 10, 20]

    def test_by_position(self):
        rec = self.read({"depth": [5, 6, 7]})
        assert rec.units["depth"].tolist() == [5, 6, 7]
        rec = self.read(self.frame(), names=(0, 1, 2))
        assert rec.neuron_names == ("c", "a", "b")

    @pytest.mark.parametrize("form", ["frame", "csv", "parquet"])
    @pytest.mark.parametrize("name", [None, "cell id"])
    def test_by_the_index_in_any_order(self, form, name, tmp_path):
        table = self.frame().set_index("unit").rename_axis(name)
        if form == "csv" and name is None:
            table.to_csv(tmp_path / "units.csv")
            table = tmp_path / "units.csv"
        elif form == "parquet":
            table.to_parquet(tmp_path / "units.parquet")
            table = tmp_path / "units.parquet"
        rec = self.read(table)
        assert rec.units["n"].tolist() == [1, 2, 3]
        assert set(rec.units) == {"area", "n"}

    def test_by_an_index_of_numbers(self):
        """A table that was sorted by another column, or of which rows were left out."""
        table = pd.DataFrame({"depth": [0, 10, 20, 30]})
        turned = table.iloc[:3].sort_values("depth", ascending=False)
        assert self.read(turned, names=(0, 1, 2)).units["depth"].tolist() == [0, 10, 20]
        names = (1, 2, 3)
        assert self.read(table.iloc[1:], names=names).units["depth"].tolist() == [10, 20, 30]
        assert self.read(table.iloc[:3], names=names).units["depth"].tolist() == [0, 10, 20]

    def test_a_column_of_names_is_found_before_the_index(self):
        table = self.frame().set_axis([7, 8, 9], axis=0)
        assert self.read(table).units["n"].tolist() == [1, 2, 3]

    @pytest.mark.parametrize("index", [[7, 8, 9], ["a", "b", "d"], ["a", "a", "b"], [(1, 2)] * 3])
    def test_an_index_of_other_names_is_refused(self, index):
        table = pd.DataFrame({"depth": [0, 10, 20]}, index=index)
        with pytest.raises(
            InputError, match=r"unit_table has the index .* not the names of the 3 neurons.*reset_i"
        ) as caught:
            self.read(table)
        assert caught.value.arguments == ("unit_table",)

    def test_it_is_added_to_what_the_file_says(self, file):
        table = {"id": np.arange(25, 19, -1), "layer": list("fedcba"), "quality": ["new"] * 6}
        units = read(file, unit_table=table).units
        assert units["layer"].tolist() == list("abcdef")
        assert units["quality"].tolist() == ["new"] * 6
        assert units["shank"].tolist() == [0, 1] * 3

    def test_an_npz_with_a_csv(self, tmp_path):
        rng = np.random.default_rng(0)
        np.savez(tmp_path / "rec.npz", neural=rng.poisson(1, (200, 3)), x=rng.random(200))
        self.frame().to_csv(tmp_path / "units.csv", index=False)
        rec = xcebra.read(tmp_path / "rec.npz", unit_table=tmp_path / "units.csv")
        assert rec.neuron_names == ("c", "a", "b")
        assert rec.units["area"].tolist() == ["V1", "", "CA1"]

    @pytest.mark.parametrize(
        ("table", "message"),
        [
            (
                {"depth": [1, 2]},
                r"unit_table has 2 rows, but there are 3 neurons; give one row for",
            ),
            (
                {"unit": ["a", "b", "d"]},
                r"unit_table has no row for neuron 'c': its column 'unit' h",
            ),
            ({"depth": [1, 2, 3], "n": [1]}, r"unit_table: must have columns of one length"),
            ({}, r"unit_table: must have columns"),
            (
                {"a": [[1], [2], [3]]},
                r"unit_table: column 'a' must hold numbers or text, one for ea",
            ),
            (3, r"unit_table must be a file, a DataFrame or a mapping, got int"),
            ("units.xlsx", r"unit_table='units.xlsx' must end in .csv or .parquet"),
        ],
    )
    def test_what_does_not_fit_is_refused(self, table, message, tmp_path, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "units.xlsx").touch()
        with pytest.raises(InputError, match=message) as caught:
            self.read(table)
        assert caught.value.arguments == ("unit_table",)
        assert "\n" not in str(caught.value)

    def test_a_file_that_does_not_exist(self):
        with pytest.raises(FileNotFoundError, match=r"there is no file 'no.csv'; check its name"):
            self.read("no.csv")

    @pytest.mark.parametrize(
        ("units", "message"),
        [
            (["d"], r"units has 'd', which is no unit; the units are 'a', 'b', 'c'"),
            ([], r"units must be a condition, such as .*, or a list of names, got \[\]"),
            (3, r"units must be a condition, such as .* got 3"),
            ("aera == 'V1'", r"units=.* names 'aera', which no unit has; did you mean 'area'\?"),
            (
                "rate > 100",
                r"units='rate > 100' holds for none of 3 .*rate \(1.006: 1, 2.011: 1,",
            ),
        ],
    )
    def test_units_that_are_not_there(self, units, message):
        with pytest.raises(InputError, match=message) as caught:
            self.read(self.frame(), units=units)
        assert caught.value.arguments == ("units",)
        assert str(caught.value).startswith("the data: ")


class TestObjects:
    def test_metadata_of_a_group_of_spikes(self):
        group = nap.TsGroup(
            {i: nap.Ts(train) for i, train in zip((4, 7, 9), trains(3), strict=True)},
            metadata={"area": ["a", "b", "a"], "depth": [1.0, np.nan, 3.0]},
        )
        rec = xcebra.read(group, bin_size=0.1)
        assert list(rec.units) == ["area", "depth"]
        assert rec.units["area"].tolist() == ["a", "b", "a"]
        assert rec.neuron_names == ("4", "7", "9")
        assert xcebra.read(group, bin_size=0.1, units="area == 'a'").neuron_names == ("4", "9")

    def test_metadata_of_columns(self):
        frame = nap.TsdFrame(
            t=np.arange(50) / 10, d=np.random.rand(50, 3), metadata={"area": ["a", "b", "a"]}
        )
        rec = xcebra.read(frame, units="area == 'a'")
        assert rec.units["area"].tolist() == ["a", "a"]
        np.testing.assert_allclose(rec.neural, frame.d[:, [0, 2]], rtol=1e-6)

    def test_coordinates_of_an_array(self):
        array = xr.DataArray(
            np.random.rand(3, 50),
            dims=("neuron", "time"),
            coords={
                "time": np.arange(50) / 10,
                "neuron": ["p", "q", "r"],
                "area": ("neuron", ["a", "b", "a"]),
                "xy": (("neuron", "time"), np.zeros((3, 50))),
                "session": 3,
            },
        )
        rec = xcebra.read(array)
        assert list(rec.units) == ["area"]
        assert rec.neuron_names == ("p", "q", "r")
        assert xcebra.read(array, units=["r"]).units["area"].tolist() == ["a"]

    def test_arrays_of_an_npz_with_one_value_per_neuron(self, tmp_path):
        rng = np.random.default_rng(0)
        np.savez(
            tmp_path / "rec.npz",
            neural=rng.poisson(1, (200, 3)),
            time=np.arange(200) / 10,
            x=rng.random(200),
            region=np.array(["a", "b", "a"]),
            depth=np.array([1, 2, 3]),
            **{"units/area": np.array([b"V1", b"V2", b"V1"])},
        )
        rec = xcebra.read(tmp_path / "rec.npz")
        assert set(rec.labels) == {"x"}
        assert {name: values.tolist() for name, values in rec.units.items()} == {
            "region": ["a", "b", "a"],
            "depth": [1, 2, 3],
            "area": ["V1", "V2", "V1"],
        }

    def test_as_many_neurons_as_samples_leave_arrays_labels(self, tmp_path):
        np.savez(tmp_path / "rec.npz", neural=np.random.rand(150, 150), x=np.random.rand(150))
        rec = xcebra.read(tmp_path / "rec.npz")
        assert set(rec.labels) == {"x"}
        assert not rec.units


def known_recording():
    rng = np.random.default_rng(0)
    n = 120
    return xcebra.Recording(
        rng.poisson(1.0, (n, 4)),
        {
            "position": rng.random((n, 2)),
            "heading": rng.uniform(0, 6, n),
            "choice": np.where(np.arange(n) % 3 == 0, "", "left"),
            "lick": rng.random(n) < 0.5,
            "lap": np.arange(n) // 40,
        },
        [(0, 60), (60, n)],
        neuron_names=("p", "q", "r", "é"),
        time=(np.arange(n) + 0.5) * 0.1,
        units={
            "area": ["CA1", "", "V1", "é"],
            "depth": [1.5, np.nan, -3.0, 0.0],
            "shank": [1, 2, 3, 4],
            "good": [True, False, True, True],
            "id": [7, 8, 9, 10],
            "electrode_group": ["g0", "g0", "g1", "g1"],
            "spike width (ms)": [0.1, 0.2, 0.3, 0.4],
        },
        label_info={
            "position": LabelInfo(None, ("x", "z"), "cm", "x, z"),
            "heading": LabelInfo("circular", unit="rad", source="radians(ry)"),
            "lick": LabelInfo("discrete"),
            "lap": LabelInfo("continuous"),
        },
    )


@pytest.mark.parametrize(
    ("name", "options"),
    [("rec.npz", {}), ("rec.nwb", {}), ("rec.nwb", {"spikes": True})],
    ids=["npz", "nwb", "nwb with spikes"],
)
def test_units_and_labels_come_back_from_files(name, options, tmp_path):
    rec = known_recording()
    xcebra.write(rec, tmp_path / name, **options)
    more = {"bin_size": 0.1, "epochs": "epochs"} if options else {}
    if name.endswith("nwb"):
        more.setdefault("epochs", "epochs")
    again = xcebra.read(tmp_path / name, **more)
    np.testing.assert_array_equal(again.neural, rec.neural)
    assert again.neuron_names == rec.neuron_names
    assert again.epochs.pairs() == rec.epochs.pairs()
    assert set(again.units) == set(rec.units)
    for column, values in rec.units.items():
        assert again.units[column].dtype.kind == values.dtype.kind
        np.testing.assert_array_equal(again.units[column], values)
    assert set(again.labels) == set(rec.labels)
    assert again.label_info == rec.label_info
    for label, values in rec.labels.items():
        np.testing.assert_array_equal(again.labels[label], values)


def test_columns_may_have_any_name_and_be_missing(tmp_path):
    units = {"spikes/s": [1, 2], "name": ["x", "y"], "depth": [np.nan, np.nan], "note": ["", ""]}
    rec = xcebra.Recording(np.ones((5, 2)), time=np.arange(5.0), units=units)
    for name, spikes in (("a.npz", False), ("b.nwb", False), ("c.nwb", True)):
        xcebra.write(rec, tmp_path / name, spikes=spikes)
        again = xcebra.read(tmp_path / name, bin_size=1.0 if spikes else None)
        assert set(again.units) == set(units)
        for column, values in rec.units.items():
            np.testing.assert_array_equal(again.units[column], values)


@pytest.mark.parametrize("spikes", [True, False])
def test_neurons_with_one_name_stay_two(spikes, tmp_path):
    rec = xcebra.Recording(np.eye(9, 3), time=np.arange(9.0), neuron_names=("a", "a", "b"))
    xcebra.write(rec, tmp_path / "rec.nwb", spikes=spikes)
    options = {"bin_size": 1.0, "epochs": "epochs"} if spikes else {}
    np.testing.assert_array_equal(xcebra.read(tmp_path / "rec.nwb", **options).neural, rec.neural)


def test_files_without_these_fields_are_still_read(tmp_path):
    """As version 0.4.0 has written them."""
    rec = known_recording()
    np.savez(
        tmp_path / "old.npz",
        neural=rec.neural,
        neuron_names=np.array(rec.neuron_names),
        epochs=np.array(rec.epochs.pairs()),
        time=rec.time,
        **{"labels/position": rec.labels["position"]},
    )
    old = xcebra.read(tmp_path / "old.npz")
    assert old.neuron_names == rec.neuron_names
    assert not old.units
    assert old.label_info == {"position": LabelInfo()}


def test_damaged_label_info_is_one_error(tmp_path):
    np.savez(tmp_path / "bad.npz", neural=np.zeros((9, 2)), label_info=np.array("{"))
    with pytest.raises(InputError, match=r"bad.npz: 'label_info' is damaged; write the file again"):
        xcebra.read(tmp_path / "bad.npz")
