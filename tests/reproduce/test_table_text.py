"""Tables of text: Markdown, CSV and LaTeX."""

import csv
import io
import re

import pytest

from xcebra.reproduce.statistics import Interval
from xcebra.reproduce.table_text import Table, per_cent, write

AWKWARD = (
    ("50 % | or so", "a_b & c^2", 'said "yes", then #1'),
    ("**98.2** [97.4, 98.9] n=3", "", "~1 {x} $5 \\ <2>"),
    ("one\nline", "a ** b", "**p_1** and **q & r**"),
)
TABLE = Table("Per cent & more", ("map", "a|b", "R^2"), AWKWARD, ("100 % of z_2.", "Second."))
# A letter that LaTeX reads as an order, and that no backslash stands before.
BARE = re.compile(r"(?<!\\)[%#$_^~<>|]")


def cells_of_markdown(line):
    return [cell.strip() for cell in re.split(r"(?<!\\)\|", line)[1:-1]]


def test_markdown_has_a_cell_for_every_cell():
    lines = TABLE.markdown().splitlines()
    assert lines[:2] == ["## Per cent & more", ""]
    table = lines[2:7]
    assert all(len(cells_of_markdown(line)) == 3 for line in table)
    assert cells_of_markdown(table[0]) == ["map", r"a\|b", "R^2"]
    assert cells_of_markdown(table[1]) == ["---"] * 3
    assert cells_of_markdown(table[2])[0] == r"50 % \| or so"
    assert cells_of_markdown(table[3])[:2] == ["**98.2** [97.4, 98.9] n=3", ""]
    assert cells_of_markdown(table[4])[0] == "one line"
    assert lines[7:] == ["", "- 100 % of z_2.", "- Second."]
    assert TABLE.markdown().endswith(".\n")


def test_csv_gives_the_cells_back():
    read = list(csv.reader(io.StringIO(TABLE.csv(), newline="")))
    assert read == [list(TABLE.columns), *map(list, AWKWARD)]


def test_latex_has_every_special_letter_escaped():
    lines = TABLE.latex().splitlines()
    body = [line for line in lines if line.endswith(r" \\")]
    assert len(body) == 4
    for line in body:
        assert len(re.findall(r"(?<!\\)&", line)) == 2
        assert not BARE.search(line)
    assert lines[2] == r"\caption{Per cent \& more}"
    assert body[0] == r"map & a\textbar{}b & R\^{}2 \\"
    assert body[1] == r"50 \% \textbar{} or so & a\_b \& c\^{}2 & said " + r'"yes", then \#1 \\'
    tilde = r"\~{}1 \{x\} \$5 \textbackslash{} \textless{}2\textgreater{} \\"
    assert body[2] == rf"\textbf{{98.2}} [97.4, 98.9] n=3 &  & {tilde}"
    assert body[3] == r"one line & a ** b & \textbf{p\_1} and \textbf{q \& r} \\"
    assert lines[-3:-1] == [
        r"\par\footnotesize 100 \% of z\_2.",
        r"\par\footnotesize Second.",
    ]


def test_latex_closes_what_it_opens():
    text = TABLE.latex()
    opened = re.findall(r"\\begin\{(\w+)\}", text)
    closed = re.findall(r"\\end\{(\w+)\}", text)
    assert opened == closed[::-1] == ["table", "tabular"]
    assert r"\begin{tabular}{lrr}" in text
    assert len(re.findall(r"(?<!\\)\{", text)) == len(re.findall(r"(?<!\\)\}", text))


def test_a_row_of_another_width_is_refused():
    with pytest.raises(ValueError, match=r"a row has 1 cells for 2 columns"):
        Table("t", ("a", "b"), (("1", "2"), ("1",)))
    with pytest.raises(ValueError, match=r"a row has 3 cells for 2 columns"):
        Table("t", ("a", "b"), (("1", "2", "3"),))


def test_write_makes_one_file_of_each_kind(tmp_path):
    folder = tmp_path / "new" / "folder"
    paths = write([TABLE], folder, "one", also=("csv", "tex"))
    assert [path.name for path in paths] == ["one.md", "one.tex", "one.csv"]
    told = [path.read_text(encoding="utf-8") for path in paths]
    assert told == [TABLE.markdown(), TABLE.latex(), TABLE.csv()]
    small = Table("Small", ("a",), (("1",),))
    paths = write([TABLE, small], folder, "two", also=("csv", "tex"))
    assert [path.name for path in paths] == ["two.md", "two.tex", "two-1.csv", "two-2.csv"]
    assert paths[0].read_text(encoding="utf-8") == f"{TABLE.markdown()}\n{small.markdown()}"
    assert paths[3].read_text(encoding="utf-8") == "a\n1\n"
    assert len(list(folder.iterdir())) == 7


def test_only_markdown_is_written_unless_more_is_asked_for(tmp_path):
    assert [path.name for path in write([TABLE], tmp_path, "t")] == ["t.md"]
    assert [path.name for path in tmp_path.iterdir()] == ["t.md"]


def test_what_cannot_be_written_leaves_the_old_files_whole(tmp_path):
    write([TABLE], tmp_path, "t")
    before = {path: path.read_bytes() for path in tmp_path.iterdir()}
    broken = Table("Half a letter \ud800", ("a",), ())
    with pytest.raises(UnicodeEncodeError):
        write([broken], tmp_path, "t")
    assert {path: path.read_bytes() for path in tmp_path.iterdir()} == before


def test_a_share_as_per_cent():
    value = Interval(0.98249, 0.974, 0.98951, 10)
    assert per_cent(value) == "98.2 [97.4, 99.0] n=10"
    assert per_cent(value, best=True) == "**98.2** [97.4, 99.0] n=10"
