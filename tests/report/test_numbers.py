"""What a page shows over time is the map that it shows, of any part, smoothed as it is."""

import base64
import json
import re
import warnings

import numpy as np
import pytest

import xcebra
from xcebra import XCEBRA, AttributionMap
from xcebra.caveats import MissingFactorWarning, XcebraWarning
from xcebra.report import write_report
from xcebra.report.numbers import map_over_time


@pytest.fixture(scope="module")
def fitted():
    rec = xcebra.datasets.synthetic(n_hidden=2, n_observed=2, n_steps=1000, seed=3)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", XcebraWarning)
        model = XCEBRA(time_dims=2, steps=5, batch_size=128, random_state=0, progress=False)
        return rec, model.fit(rec, label="z2")


def numbers(page):
    text = re.search(r'id="numbers">(.*?)</script>', page.read_text("utf-8"), re.S)[1]
    return json.loads(text)


@pytest.mark.parametrize(
    "block",
    [None, "z2", "time", slice(1, 3), np.eye(4)[:2] + 0.1],
    ids=["all", "label", "time", "slice", "directions"],
)
@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_a_page_of_any_part_of_the_embedding_shows_that_part_over_time(fitted, tmp_path, block):
    rec, model = fitted
    amap = model.attribute(rec, block=block)
    amap.save(tmp_path / "map.nc")
    again = AttributionMap.load(tmp_path / "map.nc")
    for shown in (amap, again):
        page = write_report(tmp_path / "page.html", model, shown, recording=rec)
        assert list(numbers(page)["over_time"]["blocks"]) == list(amap.blocks)


@pytest.mark.parametrize("smooth", [1, 16])
@pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")
def test_the_map_over_time_is_smoothed_as_the_map_is(fitted, smooth):
    rec, model = fitted
    amap = model.attribute(rec, method="inverted-gradient", smooth=smooth, keep_time=True)
    expected = amap.steps.norms(amap.blocks["z2"]).mean(axis=0)
    over_time = map_over_time(model, amap, rec)
    assert amap.made["smooth"] == smooth
    # One number per neuron and bin, up to rounding to 255 steps; means over bins of equal size.
    shown = over_time["blocks"]["z2"]
    decoded = np.frombuffer(base64.b64decode(shown["bytes"]), np.uint8)
    means = decoded.reshape(rec.n_neurons, -1).mean(axis=1) * shown["most"] / 254
    np.testing.assert_allclose(means, expected, atol=shown["most"] / 100)


def test_a_map_keeps_its_warnings_and_the_page_shows_them_without_asking_again(fitted, tmp_path):
    rec, model = fitted
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always", XcebraWarning)
        amap = model.attribute(rec, method="gradient")
    assert [str(w.message) for w in caught] == [str(w) for w in amap.warnings]
    told = (*amap.warnings, MissingFactorWarning("a sentence that nothing else says"))
    kept = AttributionMap(
        amap.values,
        amap.scores,
        amap.blocks,
        amap.neuron_names,
        amap.latent_names,
        amap.made,
        warnings=told,
    )
    kept.save(tmp_path / "map.nc")
    again = AttributionMap.load(tmp_path / "map.nc")
    assert [(type(w), str(w)) for w in again.warnings] == [(type(w), str(w)) for w in told]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        page = write_report(tmp_path / "page.html", model, again, recording=rec)
    assert page.read_text("utf-8").count("a sentence that nothing else says") == 1
