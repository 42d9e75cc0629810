"""The log of a run, and how a run ends after Ctrl-C."""

from __future__ import annotations

import logging
import warnings
from collections.abc import Iterator
from contextlib import closing, contextmanager
from logging.handlers import MemoryHandler
from pathlib import Path

from xcebra.caveats import InterruptedFitWarning
from xcebra.common.progress import logger
from xcebra.common.provenance import made_with

LOG = "log.txt"
# Lines of the log that are kept until there is a folder for them; reading a file gives a few.
_MOST_REMEMBERED = 1000


@contextmanager
def remembered() -> Iterator[MemoryHandler]:
    """Keep what is logged before there is a folder for it; a context manager."""
    handler = MemoryHandler(_MOST_REMEMBERED, flushLevel=logging.CRITICAL + 1, flushOnClose=False)
    with _heard_by(handler):
        yield handler


@contextmanager
def _heard_by(handler: logging.Handler) -> Iterator[None]:
    """Send what the package logs to a handler too; a context manager."""
    level = logger.level
    logger.addHandler(handler)
    logger.setLevel(logging.INFO)
    try:
        yield
    finally:
        logger.setLevel(level)
        logger.removeHandler(handler)


@contextmanager
def logged(folder: Path, command: str, before: MemoryHandler | None = None) -> Iterator[None]:
    """Append what happens to the log of a run: versions, phases and their durations, notes.

    Parameters
    ----------
    folder : Path
        Folder of the run.
    command : str
        Name of the command, for the first line.
    before : MemoryHandler, optional
        From `remembered`: what was logged before.
    """
    handler = logging.FileHandler(folder / LOG, encoding="utf-8")
    handler.setFormatter(logging.Formatter("%(asctime)s %(message)s"))
    with closing(handler), _heard_by(handler):
        try:
            versions = ", ".join(f"{name} {number}" for name, number in made_with().items())
            logger.info("xcebra %s, with %s", command, versions)
            if before is not None:
                before.setTarget(handler)
                before.flush()
            yield
        except KeyboardInterrupt:
            logger.info("stopped by the user")
            raise
        except Exception:
            logger.info("ended by an error", exc_info=True)
            raise


@contextmanager
def stopping() -> Iterator[None]:
    """Raise KeyboardInterrupt if a fit was interrupted, after its checkpoint was written."""
    with warnings.catch_warnings():
        warnings.simplefilter("error", InterruptedFitWarning)
        try:
            yield
        except InterruptedFitWarning:
            raise KeyboardInterrupt from None
