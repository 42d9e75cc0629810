"""The paper's numbers, held against the paper."""

import itertools
import math
import re
from pathlib import Path

import pytest

from xcebra.reproduce import paper_numbers as paper

PAPER = Path(__file__).parents[3] / "shared" / "paper.tex"
NAMES = {
    "feature ablation": "feature-ablation",
    "shapley shuffled": "shap-shuffled",
    "shapley zeros": "shap-zeros",
    "integrated gradient": "integrated-gradients",
    "integrated gradients": "integrated-gradients",
    "neuron gradient": "gradient",
    "inverted neuron gradient": "inverted-gradient",
}
FACTORS = {
    "attribution method name": "method",
    "dim Z1": "latents",
    "method name": "training",
    "extension": "penalty",
    "Residual": "residual",
}


def lines_of(label):
    """Cells of the table with a label, line by line."""
    if not PAPER.exists():
        pytest.skip(f"the paper's source is not here: {PAPER}")
    text = PAPER.read_text(encoding="utf-8").split(rf"\label{{{label}}}")[1]
    body = text.split(r"\end{tabular}")[0].split(r"\toprule")[1]
    return [[cell.strip() for cell in line.split("&")] for line in body.split(r"\\")]


def values_of(label):
    """From our name of each method to its values, in the order of columns."""
    found = {}
    for first, *cells in lines_of(label):
        parsed = [re.findall(r"([\d.]+)_\{([\d.]+)\}\^\{([\d.]+)\}", cell) for cell in cells]
        if cells and all(parsed):
            words = re.sub(r"\\midrule|\\textbf|\(Ours\)|[{},\n]", " ", first).lower().split()
            name = NAMES[" ".join(words)]
            found[name] = [paper.Value(*map(float, each[0])) for each in parsed]
    return found


def test_table_1_is_that_of_the_paper():
    theirs = values_of("tbl:summary")
    groups = re.findall(r"multicolumn\{2\}\{c\}\{([a-z ]+)\}", str(lines_of("tbl:summary")[0]))
    assert lines_of("tbl:summary")[1] == ["", *["none", "regularized"] * 3]
    assert tuple(groups) == paper.TRAININGS
    assert set(theirs) == set(paper.METHODS)
    for method, values in theirs.items():
        columns = list(itertools.product(groups, (False, True)))
        assert [paper.TABLE_1[method, kind, penalty] for kind, penalty in columns] == values


def test_table_2_is_that_of_the_paper():
    theirs = values_of("table:latent-attribution")
    assert ["no reg." in cell for cell in lines_of("table:latent-attribution")[0][1:]] == [1, 0]
    assert set(theirs) == set(paper.METHODS)
    for method, values in theirs.items():
        assert [paper.TABLE_2[method, False], paper.TABLE_2[method, True]] == values


def test_the_analysis_of_variance_is_that_of_the_paper():
    theirs = {}
    for name, *cells in lines_of("tbl:anova")[1:-1]:
        parts = re.sub(r"\\midrule\s*", "", name).split(":")
        key = tuple(FACTORS[re.sub(r"^C\((.*)\)$", r"\1", part)] for part in parts)
        theirs[key] = tuple(map(float, cells[:3]))
    assert list(theirs) == list(paper.ANOVA)
    for key, numbers in paper.ANOVA.items():
        assert numbers == pytest.approx(theirs[key], abs=0, nan_ok=True)


def test_every_cell_is_there():
    cells = itertools.product(paper.METHODS, paper.TRAININGS, (False, True))
    assert set(paper.TABLE_1) == set(cells)
    assert set(paper.TABLE_2) == set(itertools.product(paper.METHODS, (False, True)))
    factors = ("method", "latents", "training", "penalty")
    effects = [c for n in range(1, 5) for c in itertools.combinations(factors, n)]
    assert set(paper.ANOVA) == {*effects, ("residual",)}


def test_numbers_agree_with_each_other():
    for value in (*paper.TABLE_1.values(), *paper.TABLE_2.values()):
        assert 50 < value.low <= value.mean <= value.high <= 100
    levels = {"method": 6, "latents": 6, "training": 3, "penalty": 2}
    rest, degrees, none = paper.ANOVA["residual",]
    assert math.isnan(none)
    for factors, (squares, df, f) in paper.ANOVA.items():
        if factors != ("residual",):
            assert df == math.prod(levels[name] - 1 for name in factors)
            assert f == pytest.approx(squares / df / (rest / degrees), abs=0.006)
