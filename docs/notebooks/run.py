"""Execute notebooks and keep their outputs: ``python docs/notebooks/run.py [NAME ...]``."""

import os
import sys
from pathlib import Path

import nbformat
from nbclient import NotebookClient

HERE = Path(__file__).parent
# The command that belongs to this Python.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ["PATH"]])

for path in [HERE / name for name in sys.argv[1:]] or sorted(HERE.glob("*.ipynb")):
    notebook = nbformat.read(path, as_version=4)
    NotebookClient(notebook, timeout=1200, kernel_name="python3").execute(cwd=str(HERE))
    for cell in notebook.cells:
        cell.metadata.pop("execution", None)
    nbformat.write(notebook, path)
    print(path.name)
