"""Progress bars for terminals and notebooks."""

from __future__ import annotations

import sys
from typing import Any

from tqdm.auto import tqdm


def bar(total: int, visible: bool, **options: Any) -> tqdm:
    """Create a progress bar for a terminal or for a notebook, whichever the program runs in.

    Parameters
    ----------
    total : int
        Number of steps.
    visible : bool
        If False, nothing is displayed.
    **options
        Further arguments of tqdm.
    """
    return tqdm(total=total, disable=not visible, **options)


def watched() -> bool:
    """Whether the output goes to a terminal or to a notebook, where a user may see it."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether the program runs in the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return type(running).__name__ == "ZMQInteractiveShell"
