"""Compile the loops of training while other work is done.

Compiling takes a few seconds on the first use after an installation, and the result is stored on
disk. Training waits until it is done, so that all steps use the same implementation: a resumed fit
gives the same bits.
"""

from __future__ import annotations

import threading

import torch

from xcebra.networks import gelu
from xcebra.training.kernels.fused import fused
from xcebra.training.kernels.fused import load as load_fused


def prepare_in_background(device: torch.device) -> threading.Thread | None:
    """Begin to load or compile what training on the CPU needs.

    Returns
    -------
    threading.Thread or None
        The thread that does it. None on other devices, which need nothing.
    """
    if device.type != "cpu":
        return None
    # Numba's functions are made here, so that two threads cannot make them twice.
    gelu.load()
    load_fused()
    thread = threading.Thread(target=_use_once, name="xcebra-compile")
    thread.start()
    return thread


def _use_once() -> None:
    points = torch.zeros(2, 1)
    fused(points, points, torch.zeros(2), True, True, True)
    gelu.gelu_and_slope(points, 1)
