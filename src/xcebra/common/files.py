"""Safe names of files, and files that are either complete or absent, never partly written."""

from __future__ import annotations

import os
import re
import tempfile
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path


def safe_name(text: str, taken: Iterable[str] = (), suffix: str = "") -> str:
    """Return a name of a file or folder that is safe on every system and not taken.

    It has no separators of folders. Names that are the same after that are numbered.

    Parameters
    ----------
    text : str
        What the name should say.
    taken : iterable of str
        Names that cannot be used. Capital and small letters count as the same.
    suffix : str
        Ending of the name, such as ``".nc"``.
    """
    stem = re.sub(r"[^A-Za-z0-9_-]+", "_", text).strip("_")[:80] or "session"
    if re.fullmatch(r"con|prn|aux|nul|com\d|lpt\d", stem, re.IGNORECASE):
        stem += "_"  # names of devices on Windows, whatever the ending
    used = {name.lower() for name in taken}
    name, number = f"{stem}{suffix}", 2
    while name.lower() in used:
        name, number = f"{stem}-{number}{suffix}", number + 1
    return name


@contextmanager
def atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """Provide a temporary file in the same folder, which is renamed to ``path`` at the end.

    If an exception is raised before that, the temporary file is removed and ``path`` is unchanged.
    """
    path = Path(path)
    if not path.parent.is_dir():
        raise FileNotFoundError(
            f"cannot write {str(path)!r}: there is no folder {str(path.parent)!r}"
        )
    handle, name = tempfile.mkstemp(dir=path.parent, prefix=path.name, suffix=".tmp")
    os.close(handle)
    temporary = Path(name)
    try:
        yield temporary
        with temporary.open("rb+") as file:
            os.fsync(file.fileno())
        temporary.chmod(0o666 & ~_umask())
        temporary.replace(path)
    except BaseException:
        temporary.unlink(missing_ok=True)
        raise


def _umask() -> int:
    """The process's mask of permissions for new files; it can be read only by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
