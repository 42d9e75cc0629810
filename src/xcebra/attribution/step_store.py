"""Storage for the maps of single time steps while they are computed, in memory or in a file."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xcebra.attribution.steps import Steps
from xcebra.data.epochs import IntArray

# Larger maps are stored in a temporary file. Larger values use more memory. Not tuned.
_IN_MEMORY_BYTES = 2**30


class StepStore:
    """Stores the maps of single steps, if they are wanted.

    A file is written under a temporary name and renamed when it is complete.

    Parameters
    ----------
    keep : bool or Path
        Whether to store maps; a path is the file to store them in.
    *shape : int
        Shape of all maps, (n_times, n_neurons, n_latents).
    """

    def __init__(self, keep: bool | Path, *shape: int) -> None:
        self._maps: NDArray[np.float32] | None = None
        self._path, self._temporary = None if isinstance(keep, bool) else keep, Path()
        if keep is False:
            return
        if keep is True and 4 * np.prod(shape, dtype=float) <= _IN_MEMORY_BYTES:
            self._maps = np.empty(shape, dtype=np.float32)
            return
        folder = None if self._path is None else self._path.parent
        handle, name = tempfile.mkstemp(prefix="xcebra-map-", suffix=".npy", dir=folder)
        os.close(handle)
        self._temporary = Path(name)
        self._maps = np.lib.format.open_memmap(name, mode="w+", dtype=np.float32, shape=shape)
        # The temporary file is deleted together with the map. A file that was renamed stays.
        weakref.finalize(self._maps, self._temporary.unlink, missing_ok=True)

    def put(self, where: IntArray, maps: Tensor) -> None:
        """Store maps.

        Parameters
        ----------
        where : ndarray of int of shape (n_samples,)
            Positions of the samples in time.
        maps : Tensor of shape (n_samples, n_neurons, n_latents)
        """
        if self._maps is not None:
            self._maps[where] = maps.cpu().numpy()

    def steps(self, times: IntArray) -> Steps | None:
        """All stored maps, which are read-only from now on; None if maps are not wanted.

        Parameters
        ----------
        times : ndarray of int of shape (n_times,)
            Sample index of each map.
        """
        if self._maps is None:
            return None
        if isinstance(self._maps, np.memmap):
            self._maps.flush()
        if self._path is not None:
            self._temporary.replace(self._path)
        self._maps.flags.writeable = False
        return Steps(self._maps, times)
