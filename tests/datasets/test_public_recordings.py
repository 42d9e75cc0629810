"""Head-direction cells and grid cells of mice, in the form in which they are public."""

import os
import re
from pathlib import Path

import numpy as np
import pytest
from typer.testing import CliRunner

from xcebra.cli import app
from xcebra.datasets import axona, head_direction, head_direction_file, mouse_grid_cells
from xcebra.datasets.head_direction import ARCHIVE as PYNAPPLE
from xcebra.datasets.mouse_grid_cells import ARCHIVE as EPHYSIOPY

SHARED = Path(__file__).parents[3] / "shared" / "data"
# A folder with the two archives; without one they are downloaded.
ARCHIVES = os.environ.get("XCEBRA_ARCHIVES")


@pytest.fixture(scope="module")
def cache(tmp_path_factory):
    return os.environ.get("XCEBRA_CACHE") or tmp_path_factory.mktemp("cache")


def had(function, known, cache, **arguments):
    """The recording, or a reason to skip where its archive cannot be had."""
    archive = Path(ARCHIVES) / known.file if ARCHIVES else None
    try:
        return function(archive=archive, cache=cache, **arguments)
    except (ConnectionError, FileNotFoundError) as error:
        pytest.skip(str(error))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::xcebra.caveats.LabelKindWarning")
def test_head_direction_cells_are_read_with_their_areas(cache):
    rec = had(head_direction, PYNAPPLE, cache)
    assert rec.neural.shape[1] == 15
    assert rec.units["location"].tolist() == ["adn"] * 7 + ["ca1"] * 8
    assert {name: label.shape[1] for name, label in rec.labels.items()} == {
        "heading": 1,
        "position": 2,
        "speed": 1,
    }
    assert rec.label_info["heading"].kind == "circular"
    assert 529 < rec.n_times * 0.05 < 530
    assert all(np.isfinite(label).all() for label in rec.labels.values())
    rate = rec.neural.mean(axis=0) / 0.05
    assert 0.1 < rate.min() < rate.max() < 50
    wake = head_direction(epochs="wake", labels=["ry"], cache=cache)
    assert wake.n_times == 12_000


@pytest.mark.slow
def test_the_command_writes_the_file_itself(cache, tmp_path, monkeypatch):
    path = had(head_direction_file, PYNAPPLE, cache)
    monkeypatch.chdir(tmp_path)
    words = ["fetch", "head-direction", "--out", "day1.nwb", "--cache", str(cache)]
    result = CliRunner().invoke(app, words)
    assert result.exit_code == 0, result.output
    assert (tmp_path / "day1.nwb").read_bytes() == path.read_bytes()
    if (SHARED / "head_direction.nwb").is_file():
        assert path.read_bytes() == (SHARED / "head_direction.nwb").read_bytes()


@pytest.mark.slow
def test_grid_cells_are_read_as_they_were_for_the_benchmark(cache):
    rec = had(mouse_grid_cells, EPHYSIOPY, cache)
    assert rec.neural.shape == (120_050, 10)
    assert rec.neural.sum(axis=0).tolist() == [
        *(5700, 3885, 1494, 4550, 991, 930, 651, 340, 337, 1650),
    ]
    assert rec.units["tetrode"].tolist() == [3] * 9 + [4]
    if not (SHARED / "grid_cells.npz").is_file():
        pytest.skip(f"grid_cells.npz is not in {SHARED}")
    with np.load(SHARED / "grid_cells.npz") as known:
        assert rec.neuron_names == tuple(known["unit"])
        np.testing.assert_array_equal(rec.neural, known["neural"])
        np.testing.assert_allclose(rec.labels["position"], known["position"], atol=1e-6)
        np.testing.assert_allclose(rec.labels["speed"][:, 0], known["speed"], atol=1e-6)
        moving = known["speed"] > 0.01
        turned = rec.labels["movement_direction"][moving, 0] - known["movement_direction"][moving]
        np.testing.assert_allclose(np.angle(np.exp(1j * turned)), 0, atol=1e-5)


@pytest.mark.slow
def test_grid_cells_can_be_had_for_the_time_of_the_light_alone(cache):
    rec = had(mouse_grid_cells, EPHYSIOPY, cache, epochs="stimulation", bin_size=0.1)
    assert rec.n_times == 12_000
    assert set(np.unique(rec.labels["light"])) == {1}


# The format of the files, by files that are made here.


def tetrode(path, times, timebase=96_000):
    """Four records of 50 samples for each spike."""
    record = np.zeros((len(times), 4), dtype=[("time", ">u4"), ("waveform", "i1", (50,))])
    record["time"] = np.round(np.asarray(times)[:, None] * timebase)
    head = f"num_chans 4\r\ntimebase {timebase} hz\r\nsamples_per_spike 50\r\n"
    head += f"num_spikes {len(times)}     \r\ndata_start"
    path.write_bytes(head.encode() + record.tobytes() + b"\r\ndata_end\r\n")
    return path


def tracking(path, pixels, rate=50.0):
    record = np.zeros(len(pixels), dtype=[("time", ">u4"), ("coordinates", ">u2", (8,))])
    record["coordinates"][:, :2] = pixels
    head = f"sample_rate {rate} hz\r\npixels_per_metre 200\r\nnum_pos_samples {len(pixels)}   \r\n"
    path.write_bytes(head.encode() + b"data_start" + record.tobytes() + b"\r\ndata_end\r\n")
    return path


def test_spikes_and_their_clusters(tmp_path):
    times = [0.5, 1.25, 2.0]
    np.testing.assert_allclose(axona.read_axona_spikes(tetrode(tmp_path / "t.1", times)), times)
    cut = tmp_path / "t_1.cut"
    cut.write_text(
        "n_clusters: 2\n cluster: 1 center: 0 0\n\nExact_cut_for: t spikes: 3\n 1  0\n2 "
    )
    assert axona.read_axona_clusters(cut).tolist() == [1, 0, 2]


def test_position_is_interpolated_where_no_light_was_seen_and_averaged(tmp_path):
    pixels = np.full((100, 2), 300)
    pixels[:, 1] = 2 * np.arange(100)
    pixels[40:43] = 1023
    pixels[43] = 900  # the frame after a gap is not used
    times, position = axona.read_axona_position(tracking(tmp_path / "t.pos", pixels))
    np.testing.assert_allclose(times[:2], [0.01, 0.03])
    np.testing.assert_allclose(position[:, 0], 1.5)
    # The mean of 20 frames, ten before and nine after.
    np.testing.assert_allclose(position[10:-10, 1], (2 * np.arange(100) - 1)[10:-10] / 200)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"no header", "no 'data_start'"),
        (b"timebase 50 hz\ndata_start", "no number 'num_spikes'"),
        (
            b"samples_per_spike 50\nnum_spikes 9\ntimebase 9\ndata_startxx",
            "2 bytes of spikes, but 1,944",
        ),
    ],
)
def test_files_that_are_damaged_are_told(tmp_path, content, words):
    path = tmp_path / "t.1"
    path.write_bytes(content)
    with pytest.raises(ValueError, match=words):
        axona.read_axona_spikes(path)


def test_tracking_and_clusters_that_are_damaged_are_told(tmp_path):
    path = tracking(tmp_path / "t.pos", np.full((5, 2), 1023))
    with pytest.raises(ValueError, match="never seen"):
        axona.read_axona_position(path)
    path.write_bytes(path.read_bytes()[:-40])
    with pytest.raises(ValueError, match="fewer than the 5 frames"):
        axona.read_axona_position(path)
    cut = tmp_path / "t_1.cut"
    cut.write_text("Exact_cut_for: t spikes: 3\n 1 0")
    with pytest.raises(ValueError, match="not a complete"):
        axona.read_axona_clusters(cut)


@pytest.mark.parametrize(
    ("words", "message"),
    [
        ("head-direction --out day1.npz", "--out must end in .nwb, got 'day1.npz'"),
        ("grid-cells --out day1.csv", "--out must end in .npz or .nwb"),
        ("grid-cells --out nowhere/day1.npz", "there is no folder 'nowhere'"),
        ("head-direction --out day1.nwb --archive no.tar.gz", "there is no file 'no.tar.gz'"),
        ("head-direction --out day1.nwb", "could not be downloaded: .*pip download --no-deps"),
    ],
)
def test_what_cannot_be_fetched_is_told_in_one_line(words, message, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("XCEBRA_CACHE", str(tmp_path / "cache"))
    monkeypatch.setenv("PIP_INDEX_URL", "http://127.0.0.1:9/simple")
    monkeypatch.setenv("no_proxy", "127.0.0.1")
    result = CliRunner().invoke(app, ["fetch", *words.split()])
    assert result.exit_code == 2
    *_, line = result.stderr.splitlines()
    assert line.startswith("xcebra: ")
    assert re.search(message, line), line
