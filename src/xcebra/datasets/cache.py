"""The folder in which data that is expensive to make or to download is kept."""

from __future__ import annotations

import os
import sys
from pathlib import Path

from xcebra.common.errors import InputError


def cache_folder(cache: str | os.PathLike[str] | None = None, *, what: str) -> Path:
    """Return the cache folder, which is made if it does not exist.

    Parameters
    ----------
    cache : path, optional
        If not given, the folder that the environment variable ``XCEBRA_CACHE`` names, or else the
        folder for caches of the operating system.
    what : str
        What is kept there, in the plural, for the message if the folder cannot be written.

    Raises
    ------
    ValueError
        If the folder cannot be written.
    """
    named = cache if cache is not None else os.environ.get("XCEBRA_CACHE")
    folder = Path(named).expanduser() if named else _of_the_system() / "xcebra"
    try:
        folder.mkdir(parents=True, exist_ok=True)
        usable = os.access(folder, os.W_OK)
    except OSError:
        usable = False
    if not usable:
        raise InputError(
            f"{str(folder)!r} cannot be written, and {what} are kept there; set XCEBRA_CACHE to a "
            "folder that can"
        )
    return folder


def _of_the_system() -> Path:
    if sys.platform == "win32":
        local = os.environ.get("LOCALAPPDATA")
        return Path(local) if local else Path.home() / "AppData" / "Local"
    if sys.platform == "darwin":
        return Path.home() / "Library" / "Caches"
    base = os.environ.get("XDG_CACHE_HOME")
    return Path(base) if base else Path.home() / ".cache"
