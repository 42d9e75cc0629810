"""Progress: bars for terminals and notebooks, and lines in the log for everything else."""

from __future__ import annotations

import logging
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

logger = logging.getLogger("xcebra")
# Lines about work that takes long. A program that wants to see them and nothing else listens to it.
lines = logging.getLogger("xcebra.progress")
# Lines about what a user's request has chosen, such as how many units a condition keeps.
choices = logging.getLogger("xcebra.choices")
# Without a handler of the program that uses this package, nothing is printed.
logger.addHandler(logging.NullHandler())
# Seconds between two lines about the same piece of work in the log.
_BETWEEN_LINES = 30.0


class Steps:
    """Counts the steps of a piece of work; a context manager.

    A bar is displayed if it is visible. Otherwise a line is logged every half minute.

    Parameters
    ----------
    total : int
        Number of steps.
    visible : bool
        Whether to display a bar.
    initial : int
        Number of steps that are done already.
    desc : str
        Name of the work.
    unit : str
        Name of one step.
    """

    def __init__(
        self, total: int, visible: bool, *, initial: int = 0, desc: str = "", unit: str = "step"
    ) -> None:
        self.n = initial
        self._total, self._desc, self._unit, self._note = total, desc, unit, ""
        self._bar: Any = None
        if visible:
            from tqdm.auto import tqdm

            self._bar = tqdm(total=total, initial=initial, desc=desc or None, unit=unit)
        self._last_line = time.monotonic()

    def update(self) -> None:
        """Count one step."""
        self.n += 1
        if self._bar is not None:
            self._bar.update()
        elif time.monotonic() - self._last_line >= _BETWEEN_LINES:
            self._last_line = time.monotonic()
            note = f", {self._note}" if self._note else ""
            name = f"{self._desc}: " if self._desc else ""
            lines.info("%s%s %d of %d%s", name, self._unit, self.n, self._total, note)

    def shorten(self, total: int) -> None:
        """Set the number of steps, after it turned out that fewer are needed."""
        self._total = total
        if self._bar is not None:
            self._bar.total = total

    def describe(self, note: str) -> None:
        """Set a short text that is displayed with the steps."""
        self._note = note
        if self._bar is not None:
            self._bar.set_postfix_str(note, refresh=False)

    def __enter__(self) -> Steps:
        return self

    def __exit__(self, *error: object) -> None:
        if self._bar is not None:
            self._bar.close()


@contextmanager
def phase(name: str) -> Iterator[None]:
    """Log how long a part of a computation takes; a context manager."""
    start = time.monotonic()
    try:
        yield
    finally:
        logger.info("%s: %.1f s", name, time.monotonic() - start)


def watched() -> bool:
    """Whether the output goes to a terminal or to a notebook, where a user may see it."""
    # Programs without a console, and some that run in the background, have no sys.stderr.
    return (sys.stderr is not None and sys.stderr.isatty()) or in_notebook()


def in_notebook() -> bool:
    """Whether the program runs in the kernel of a notebook."""
    shell = sys.modules.get("IPython")
    running = shell.get_ipython() if shell is not None else None
    return type(running).__name__ == "ZMQInteractiveShell"
