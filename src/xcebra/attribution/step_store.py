"""Room for the maps of single time steps while they are made: memory, or a file."""

from __future__ import annotations

import os
import tempfile
import weakref
from pathlib import Path

import numpy as np
from numpy.typing import NDArray
from torch import Tensor

from xcebra.attribution.attribution_map import Steps
from xcebra.data.epochs import IntArray

# Beyond this size they go to a temporary file.
_IN_MEMORY_BYTES = 2**30


class StepStore:
    """Where maps of single steps are kept, if they are; a file gets its name when it is whole."""

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
        # Gone with the map; a file with a name of its own is no longer there under this one.
        weakref.finalize(self._maps, self._temporary.unlink, missing_ok=True)

    def put(self, where: IntArray, maps: Tensor) -> None:
        """Keep the maps of some steps."""
        if self._maps is not None:
            self._maps[where] = maps.cpu().numpy()

    def steps(self, times: IntArray) -> Steps | None:
        """Everything kept, whole and from now on read-only."""
        if self._maps is None:
            return None
        if isinstance(self._maps, np.memmap):
            self._maps.flush()
        if self._path is not None:
            self._temporary.replace(self._path)
        self._maps.flags.writeable = False
        return Steps(self._maps, times)
