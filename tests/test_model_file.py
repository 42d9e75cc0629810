"""What is kept of the goodness of fit in a model's file."""

import json
from dataclasses import asdict

from xcebra.decoding import Decoding
from xcebra.diagnostics import GoodnessOfFit, with_decoding
from xcebra.model_file import _goodness_of_fit


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
