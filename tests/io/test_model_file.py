"""What is kept in a model's file: of the goodness of fit, and of the two crossed decoders."""

import json
from dataclasses import asdict

import numpy as np
import pytest
import torch

from xcebra import XCEBRA
from xcebra.common.tensor_file import read_tensors, write_tensors
from xcebra.io.model_file import _goodness_of_fit
from xcebra.statistics.label_decoding import Decoding
from xcebra.training.goodness_of_fit import GoodnessOfFit, with_decoding

# Five steps teach a model nothing, which it says.
pytestmark = pytest.mark.filterwarnings("ignore::xcebra.caveats.XcebraWarning")


def kept(fields):
    return _goodness_of_fit(json.loads(json.dumps(fields)))


def test_goodness_of_fit_comes_back_with_its_decoding():
    decoding = Decoding(0.4, 0.005, 0.35, (0.01, -0.02), error=12.0, chance_error=88.0)
    loss = GoodnessOfFit(4.0, 6.0, True, 0.005, 7.0, (6.9, 7.1), 0.5, 0, loss_p_value=0.005)
    for fit in (loss, with_decoding(loss, decoding), GoodnessOfFit(4.0, 6.0, None)):
        assert kept(asdict(fit)) == fit


def test_a_file_of_version_0_3_is_still_read():
    fields = asdict(GoodnessOfFit(4.0, 6.0, False, 0.3, 7.0, (6.9, 7.1), 0.5, 0))
    del fields["decoding"], fields["loss_p_value"]
    fit = kept(fields)
    assert fit.verdict == "no"
    assert fit.p_value == fit.loss_p_value == 0.3
    assert "p = 0.300" in fit.explanation("heading")


N = 600


@pytest.fixture(scope="module")
def fitted():
    """Labels of every kind, on neurons of which one is silent."""
    rng = np.random.default_rng(0)
    walk = rng.standard_normal((N, 3)).cumsum(axis=0) / 5
    x = np.tanh(walk @ rng.standard_normal((3, 9))) + 0.3 * rng.standard_normal((N, 9))
    x[:, 4] = 1.0
    labels = {
        "place": np.sin(walk[:, :1]),
        "heading": np.angle(np.exp(1j * walk[:, 1])),
        "side": np.where(walk[:, 2] > np.median(walk[:, 2]), "left", "right"),
    }
    model = XCEBRA(
        time_dims=2,
        steps=5,
        batch_size=64,
        label_kind={"place": "continuous", "heading": "circular", "side": "discrete"},
        random_state=0,
        progress=False,
    )
    return x, labels, model.fit(x, labels)


def test_the_crossed_decoders_come_back_bit_for_bit(fitted, tmp_path):
    x, y, model = fitted
    model.save(tmp_path / "model.safetensors")
    again = XCEBRA.load(tmp_path / "model.safetensors")
    ours, theirs = model.crossed_decoder_, again.crossed_decoder_
    assert theirs.labels == ours.labels
    assert [each.kind for each in theirs.labels] == ["continuous", "circular", "discrete"]
    assert theirs.state_dict().keys() == ours.state_dict().keys()
    for name, value in ours.state_dict().items():
        assert value.dtype == theirs.state_dict()[name].dtype
        assert torch.equal(value, theirs.state_dict()[name])
    for name, share in model.variance_explained_.items():
        np.testing.assert_array_equal(share, again.variance_explained_[name])
    for name, mixture in model.mixture_.items():
        assert mixture.n_before == again.mixture_[name].n_before
        np.testing.assert_array_equal(mixture.weights, again.mixture_[name].weights)
    for labels in (y, None):
        first, second = (each.attribute(x, labels) for each in (model, again))
        np.testing.assert_array_equal(first.values, second.values)
        for name in first.blocks:
            np.testing.assert_array_equal(first.block(name), second.block(name))


def test_a_model_without_them_uses_the_decoder_of_the_embedding(fitted, tmp_path):
    """As files of version 0.3 are."""
    x, y, model = fitted
    model.save(tmp_path / "new.safetensors")
    tensors, header = read_tensors(tmp_path / "new.safetensors", "xcebra-model")
    del header["crossed"]
    for numbers in header["mixture"].values():
        del numbers["n_before"]
    kept = {name: value for name, value in tensors.items() if not name.startswith("crossed/")}
    write_tensors(tmp_path / "old.safetensors", "xcebra-model", kept, header)
    old = XCEBRA.load(tmp_path / "old.safetensors")
    assert old.crossed_decoder_ is None
    found = old.attribute(x)
    assert found.made["method"] == "decoder-gradient"
    expected = model.attribute(x, method="decoder-gradient")
    np.testing.assert_array_equal(found.values, expected.values)
    with pytest.raises(ValueError, match=r"needs decoders that models of version 0\.3 do not have"):
        old.attribute(x, method="crossed-gradient")
    with pytest.raises(ValueError, match=r"needs decoders that models of version 0\.3 do not have"):
        old.attribute(x, y, test=True)
    old.save(tmp_path / "again.safetensors")
    assert XCEBRA.load(tmp_path / "again.safetensors").crossed_decoder_ is None
