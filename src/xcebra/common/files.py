"""Writing of files that are either complete or absent, never partly written."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


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
