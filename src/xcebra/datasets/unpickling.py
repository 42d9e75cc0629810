"""Read numbers from pickles, without calling any function that a pickle names.

A pickle can name any function and have it called, and even NumPy's own types can be made to use
bytes as memory addresses. Therefore no function or type is imported for a pickle. The placeholder
classes in this module only store their arguments, which become numbers after a check.
"""

from __future__ import annotations

import io
import pickle
import re
from typing import Any

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from xcebra.common.errors import InputError


class _Part:
    """Placeholder for a type. It sets its own state, so that a pickle cannot set attributes."""

    says = "something"

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError(f"{self.says} has no state")


class _Kind(_Part):
    """Placeholder for a dtype: its code, such as ``f8``, and the order of its bytes."""

    says = "a dtype"
    code: Any = None
    order: Any = None

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        if not re.fullmatch("[iu][1248]|f[248]", str(self.code)):
            raise InputError(f"got values of type {kind_of(self.code)}, not numbers")
        return np.dtype((self.order if self.order in ("<", ">") else "=") + str(self.code))


class _Array(_Part):
    """Placeholder for an array: its shape, dtype, and bytes or list of objects."""

    says = "an array"
    state: Any = (0, None, None, None, None)

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, _, _, _, _ = state
        self.state = state

    def array(self) -> NDArray[Any]:
        _, shape, kind, _, data = self.state
        # The order, by rows or by columns, does not matter for a list of times.
        return np.frombuffer(data, kind.dtype()).reshape(shape)

    def only_object(self) -> Any:
        _, shape, _, _, data = self.state
        if shape != () or not isinstance(data, list) or len(data) != 1:
            raise InputError("it is not one object without dimensions")
        return data[0]


class _Number(_Part):
    """Placeholder for a NumPy scalar."""

    says = "a number"
    kind: Any = None
    data: Any = None

    def __init__(self, kind: Any, data: Any) -> None:
        self.kind, self.data = kind, data

    def number(self) -> Any:
        return np.frombuffer(self.data, self.kind.dtype()).item()


class _Bytes(_Part):
    """Placeholder for the functions that make bytes in old pickles."""

    def __new__(cls, text: str = "", encoding: str = "latin1") -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("bytes are made of latin1 only")
        return text.encode("latin1")


_PLACEHOLDERS: dict[tuple[str, str], type[_Part]] = {
    ("numpy", "dtype"): _Kind,
    ("numpy", "ndarray"): _Array,
    ("_codecs", "encode"): _Bytes,
    ("builtins", "bytes"): _Bytes,
    ("__builtin__", "bytes"): _Bytes,
    **{
        (f"numpy.{core}.multiarray", name): part
        for core in ("core", "_core")  # before NumPy 2, and since
        for name, part in (("_reconstruct", _Array), ("scalar", _Number))
    },
}


class _Unpickler(pickle.Unpickler):
    """Unpickler that knows only the names needed for arrays of numbers."""

    def find_class(self, module: str, name: str) -> Any:
        placeholder = _PLACEHOLDERS.get((module, name))
        if placeholder is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return placeholder


def unpickled(file: io.BytesIO, where: str) -> Any:
    """Read the only object in a ``.npy`` file.

    Parameters
    ----------
    file : BytesIO
    where : str
        Start of error messages.

    Returns
    -------
    object
        Dicts, lists and plain values, with placeholders for arrays and NumPy scalars.

    Raises
    ------
    ValueError
        If the file contains anything else.
    """
    try:
        read = npy.read_array_header_1_0
        read = read if npy.read_magic(file) == (1, 0) else npy.read_array_header_2_0
        shape, _, dtype = read(file)
    except ValueError as error:
        raise InputError(f"{where} is damaged ({error})") from None
    if not dtype.hasobject or shape != ():
        raise InputError(
            f"{where} must be an object array without dimensions that holds a dict, got shape "
            f"{shape} and dtype {dtype}"
        )
    try:
        return _Unpickler(file).load().only_object()
    # Bytes that are no such pickle can raise any kind of error.
    except Exception as error:
        raise InputError(
            f"{where} was refused: {error}. Only dicts, lists, numbers and arrays of numbers are "
            "read; anything else could run code"
        ) from None


def plain_number(value: Any) -> Any:
    """Return a number of a pickle as a Python number; None if the value is no number."""
    if isinstance(value, _Number):
        try:
            return value.number()
        except (AttributeError, TypeError, ValueError):
            return None
    return value if isinstance(value, (int, float)) and not isinstance(value, bool) else None


def plain_array(value: Any) -> NDArray[np.float64]:
    """Return an array or a list of numbers of a pickle as an array of its shape.

    Raises
    ------
    ValueError
        If the value is neither, or holds anything but numbers.
    """
    if isinstance(value, _Array):
        try:
            return value.array().astype(np.float64)
        except (AttributeError, TypeError) as error:
            raise InputError(f"got an array without numbers ({error})") from None
    if not isinstance(value, (list, tuple)):
        raise InputError(f"got {kind_of(value)}")
    numbers = [plain_number(item) for item in value]
    if None in numbers:
        raise InputError(f"got {kind_of(value[numbers.index(None)])} among them")
    return np.array(numbers, dtype=np.float64)


def kind_of(value: Any) -> str:
    """Return what a value of a pickle is, for an error message."""
    if isinstance(value, _Part):
        return value.says
    return repr(value)[:40] if isinstance(value, (str, int, float)) else type(value).__name__
