"""Progress bars, in a terminal and in a notebook."""

from __future__ import annotations

import sys
from typing import Any

from tqdm.auto import tqdm


def bar(total: int, shown: bool, **options: Any) -> tqdm:
    """A bar, as the place where it runs can show it."""
    return tqdm(total=total, disable=not shown, **options)


def watched() -> bool:
    """Whether someone may be watching: in a terminal, or in a notebook."""
    return sys.stderr.isatty() or in_notebook()


def in_notebook() -> bool:
    """Whether this runs in a notebook's kernel."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return type(running).__name__ == "ZMQInteractiveShell"
