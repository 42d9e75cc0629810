"""The paper's figure of real grid cells, on a simulated file in the format of the public ones.

``python examples/grid_cells.py`` writes ``demo/rat_s_grid_modules_1.npz``: forty minutes of a
simulated rat, with cells that fire on a hexagonal grid and cells that fire at random. It then does
what ``xcebra reproduce grid-cells`` does with a real recording.
"""

from __future__ import annotations

import hashlib
import sys
from pathlib import Path

import numpy as np
from scipy.ndimage import gaussian_filter1d

from xcebra.reproduce import GridCells, reproduce

FOLDER = Path(__file__).parent.parent / "demo"
BEGIN, BOX, SPACING, TURN = 9939.0, 1.5, 0.5, 0.2
STEP = 0.01


def write_recording(
    path: Path, *, seconds: float, n_grid: int, n_other: int, seed: int = 0
) -> GridCells:
    """Write a file in the public format: grid cells first, then cells that fire at random."""
    rng = np.random.default_rng(seed)
    t = BEGIN + np.arange(0, seconds, STEP)
    velocity = gaussian_filter1d(rng.standard_normal((len(t), 2)), 60, axis=0)
    velocity *= 0.3 / np.sqrt(np.square(velocity).sum(axis=1).mean())
    # The path is reflected at the walls of the box.
    position = np.cumsum(STEP * velocity, axis=0) + BOX / 2
    position = np.abs(position % (2 * BOX) - BOX) - BOX / 2
    angles = np.deg2rad([0, 60, 120]) + TURN
    waves = 4 * np.pi / np.sqrt(3) / SPACING * np.column_stack([np.cos(angles), np.sin(angles)])
    spikes = {}
    for cell in range(n_grid + n_other):
        phase = rng.uniform(0, SPACING, size=2)
        field = np.maximum(0, np.cos((position + phase) @ waves.T).sum(axis=1) / 3)
        rate = 20 * field**1.5 if cell < n_grid else np.full(len(t), 4.0)
        n = rng.poisson(STEP * rate)
        spikes[cell] = np.sort(np.repeat(t, n) + rng.uniform(0, STEP, size=n.sum()))
    np.savez(
        path,
        spikes_mod1=np.array(spikes, dtype=object),
        t=t,
        x=position[:, 0],
        y=position[:, 1],
        z=np.zeros(len(t)),
        azimuth=np.arctan2(velocity[:, 1], velocity[:, 0]) % (2 * np.pi),
    )
    return GridCells(str(path), hashlib.sha256(path.read_bytes()).hexdigest(), "s", (1,))


def main() -> None:
    """Write the file, then its tables and figures."""
    FOLDER.mkdir(exist_ok=True)
    path = FOLDER / "rat_s_grid_modules_1.npz"
    data = write_recording(path, seconds=2400, n_grid=42, n_other=18)
    for written in reproduce("grid-cells", FOLDER, data=data, progress=sys.stderr.isatty()):
        print(written)


if __name__ == "__main__":
    main()
