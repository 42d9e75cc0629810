"""Time that numpy spends in matrix products.

Torch's profiler does not see them. A small library in C, made from ``blas_clock.c`` where a C
compiler exists, is preloaded into the process that is measured and takes the time of each call.
Where there is no compiler, or numpy has another BLAS than OpenBLAS, numpy's products are not
counted, and the results say so.
"""

from __future__ import annotations

import ctypes
import os
import shutil
import subprocess
import sys
from pathlib import Path

_SOURCE = Path(__file__).with_name("blas_clock.c")
_LIBRARY = "XCEBRA_BENCHMARK_BLAS_CLOCK"
_CHECK = """
import sys
sys.path.insert(0, sys.argv[1])
import numpy as np
from blas_clock import numpy_seconds
x = np.ones((400, 400), np.float32)
x @ x, x.T @ x.astype(np.float64)
sys.exit(not numpy_seconds()[0] > 0)
"""


def make_blas_clock(folder: Path) -> dict[str, str]:
    """Return variables of the environment with which a process counts numpy's products.

    It is empty where they cannot be counted.

    Parameters
    ----------
    folder : Path
        For the compiled library.
    """
    compiler = shutil.which("cc") or shutil.which("gcc") or shutil.which("clang")
    if sys.platform != "linux" or compiler is None:
        return {}
    library = folder / "blas_clock.so"
    command = [compiler, "-O2", "-shared", "-fPIC", "-o", str(library), str(_SOURCE), "-ldl"]
    if subprocess.run(command, capture_output=True).returncode:
        return {}
    variables = {"LD_PRELOAD": str(library), _LIBRARY: str(library)}
    check = [sys.executable, "-c", _CHECK, str(Path(__file__).parent)]
    done = subprocess.run(check, env={**os.environ, **variables}, capture_output=True)
    return {} if done.returncode else variables


def numpy_seconds() -> tuple[float, float] | None:
    """Seconds of numpy's products so far: in the main thread, and in all others together.

    None if they are not counted.
    """
    library = os.environ.get(_LIBRARY)
    if library is None:
        return None
    clock = ctypes.CDLL(library)
    clock.blas_clock_main.restype = clock.blas_clock_others.restype = ctypes.c_int64
    return clock.blas_clock_main() * 1e-9, clock.blas_clock_others() * 1e-9
