"""Reading and writing of safetensors files that hold tensors and a JSON header."""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from safetensors import SafetensorError
from safetensors.torch import load, save
from torch import Tensor

from xcebra.common.errors import InputError
from xcebra.common.files import atomically

# Version of the format that is written, and the versions that can be read.
FORMAT_VERSION = 3
_READABLE = ("2", "3")


def write_tensors(
    path: str | os.PathLike[str],
    kind: str,
    tensors: Mapping[str, Tensor],
    header: Mapping[str, Any],
) -> None:
    """Write tensors and a header to a file, which is never left partly written.

    Parameters
    ----------
    path : path
        Its folder must exist.
    kind : str
        What the file holds; `read_tensors` checks it.
    tensors : mapping of str to Tensor
    header : mapping
        Values that can be written as JSON.
    """
    plain = {name: value.detach().cpu().contiguous() for name, value in tensors.items()}
    text = json.dumps(header, sort_keys=True)
    metadata = {
        "kind": kind,
        "format_version": str(FORMAT_VERSION),
        "header": text,
        "sha256": _digest(kind, str(FORMAT_VERSION), text, plain),
    }
    with atomically(path) as temporary:
        temporary.write_bytes(save(plain, metadata))


def read_tensors(
    path: str | os.PathLike[str], kind: str
) -> tuple[dict[str, Tensor], dict[str, Any]]:
    """Read a file that was written by `write_tensors`.

    Parameters
    ----------
    path : path
    kind : str
        What the file must hold.

    Returns
    -------
    tensors : dict of str to Tensor
    header : dict

    Raises
    ------
    FileNotFoundError
    ValueError
        If the file is damaged, was edited, is of another kind, or has a format version that this
        package cannot read.
    """
    path = Path(path)
    if not path.is_file():
        raise FileNotFoundError(f"there is no file {str(path)!r}")
    try:
        # The file is read only once, so that header and data belong together even if the file is
        # replaced at the same time.
        content = path.read_bytes()
        tensors = load(content)
        size = int.from_bytes(content[:8], "little")
        metadata = json.loads(content[8 : 8 + size]).get("__metadata__", {})
    except SafetensorError as error:
        raise InputError(
            f"{str(path)!r} is not a complete safetensors file ({error}); "
            "it was cut short or is something else; write it again or restore a copy"
        ) from None
    if metadata.get("kind") != kind:
        raise InputError(f"{str(path)!r} holds {metadata.get('kind')!r}, expected {kind!r}")
    version = metadata.get("format_version", "")
    if version not in _READABLE:
        raise InputError(
            f"{str(path)!r} has format version {version}, this package reads "
            f"{' and '.join(_READABLE)}; "
            "install the version of xcebra that wrote it"
        )
    if metadata.get("sha256") != _digest(kind, version, metadata.get("header", ""), tensors):
        raise InputError(
            f"{str(path)!r} does not match its own digest: it was edited or damaged after it was "
            "written; restore a copy"
        )
    return tensors, json.loads(metadata["header"])


def under(tensors: Mapping[str, Tensor], prefix: str) -> dict[str, Tensor]:
    """Select the tensors whose names start with a prefix, and remove the prefix from the names."""
    return {k.removeprefix(prefix): v for k, v in tensors.items() if k.startswith(prefix)}


def _digest(kind: str, version: str, header: str, tensors: Mapping[str, Tensor]) -> str:
    """SHA-256 of the whole content, as hexadecimal digits."""
    state = hashlib.sha256()
    for text in (kind, version, header):
        state.update(text.encode() + b"\0")
    for name in sorted(tensors):
        value = tensors[name]
        state.update(f"{name}:{value.dtype}:{tuple(value.shape)}".encode() + b"\0")
        state.update(value.numpy().tobytes())
    return state.hexdigest()
