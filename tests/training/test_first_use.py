"""Loops are compiled while other work is done, once, and training uses the same ones."""

import os
import subprocess
import sys
import textwrap

import torch

from xcebra.training.first_use import prepare_in_background


def test_other_devices_need_nothing():
    assert prepare_in_background(torch.device("meta")) is None


def test_every_loop_is_compiled_once_whoever_comes_first(tmp_path):
    """In a new process without stored loops, the caller uses them at once."""
    script = """
        import torch
        from xcebra.networks import gelu
        from xcebra.training.first_use import prepare_in_background
        from xcebra.training.kernels import fused as module
        from xcebra.training.kernels.fused import fused, load

        thread = prepare_in_background(torch.device("cpu"))
        points = torch.randn(30, 3)
        first = fused(points, points, torch.zeros(30), True, True, True)
        thread.join()
        again = fused(points, points, torch.zeros(30), True, True, True)
        assert torch.equal(first.to_reference, again.to_reference)
        print(len(load().signatures), len(gelu.load().signatures))
    """
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, "-c", textwrap.dedent(script)],
        env=environment,
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout.split() == ["1", "1"]
    assert list(tmp_path.rglob("*.nbi"))
