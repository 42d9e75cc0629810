"""Files that are complete or not there at all."""

from __future__ import annotations

import os
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path


@contextmanager
def atomically(path: str | os.PathLike[str]) -> Iterator[Path]:
    """A file to write beside ``path``; it takes that name if all goes well, else it is removed."""
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
    """What new files may not be; it can only be read by setting it."""
    mask = os.umask(0)
    os.umask(mask)
    return mask
