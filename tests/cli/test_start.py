"""Starting is quick because little is imported: what is imported is counted, not timed."""

import subprocess
import sys

import numpy as np
import pytest

import xcebra

HEAVY = ("torch", "numba", "scipy", "sklearn", "pandas", "matplotlib", "h5py", "pynwb", "joblib")

MODULES = """
import sys
{code}
print("imported:", *sorted({{name.partition(".")[0] for name in sys.modules}}))
"""

COMMAND = """
from xcebra.cli import app
try:
    app({arguments!r}, prog_name="xcebra")
except SystemExit as end:
    assert not end.code, end.code
"""


def imported(code):
    found = subprocess.run(
        [sys.executable, "-c", MODULES.format(code=code)],
        capture_output=True,
        text=True,
        check=True,
    )
    return set(found.stdout.splitlines()[-1].split()[1:])


@pytest.mark.parametrize("arguments", [["--version"], ["--help"], ["fit", "--help"]])
def test_version_and_help_import_nothing_heavy(arguments):
    found = imported(COMMAND.format(arguments=arguments))
    assert "typer" in found
    assert not found & {*HEAVY, "numpy"}


def test_completion_of_a_shell_imports_nothing_heavy():
    code = "import os; os.environ |= {'_XCEBRA_COMPLETE': 'complete_bash', "
    code += "'COMP_WORDS': 'xcebra attribute run --method ', 'COMP_CWORD': '4'}"
    found = imported(f"{code}\n" + COMMAND.format(arguments=[]))
    assert not found & {*HEAVY, "numpy"}


def test_a_file_is_inspected_without_torch(tmp_path):
    path = tmp_path / "small.npz"
    np.savez(path, spikes=np.ones((50, 3)), position=np.arange(50.0))
    found = imported(COMMAND.format(arguments=["inspect", str(path)]))
    assert "numpy" in found
    assert not found & {"torch", "numba", "sklearn", "pandas", "matplotlib", "pynwb"}


def test_the_package_itself_imports_nothing_heavy_and_shows_its_public_names_alone():
    assert not imported("import xcebra") & {*HEAVY, "numpy"}
    shown = [name for name in dir(xcebra) if not name.startswith("_")]
    assert sorted(shown) == sorted(xcebra.__all__)
    for name in xcebra.__all__:
        assert getattr(xcebra, name) is not None
    with pytest.raises(AttributeError, match="module 'xcebra' has no attribute 'formats'"):
        xcebra.formats  # noqa: B018
