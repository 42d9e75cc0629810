"""Handling of Ctrl-C: training stops after the current step and keeps what was learned."""

from __future__ import annotations

import signal
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any


@contextmanager
def deferred_interrupt() -> Iterator[Callable[[], bool]]:
    """Record the first Ctrl-C instead of raising it; a second one raises KeyboardInterrupt.

    Yields a function that returns whether Ctrl-C was pressed. Signals can be handled only in the
    main thread; in other threads the function always returns False.
    """
    asked = False
    if threading.current_thread() is not threading.main_thread():
        yield lambda: False
        return

    def ask(signum: int, frame: Any) -> None:
        nonlocal asked
        if asked:
            raise KeyboardInterrupt
        asked = True

    before = signal.signal(signal.SIGINT, ask)
    try:
        yield lambda: asked
    finally:
        signal.signal(signal.SIGINT, before)
