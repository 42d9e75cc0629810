"""Numbers out of pickles, without calling anything that a pickle names.

A name in a pickle is a way to call whatever has that name, and NumPy's own types can be talked into
taking bytes for addresses. So none of them is handed out: the classes here only keep what they
are given, and become numbers after a check.
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
    """In place of something else. With its own state, lest a pickle set the class's attributes."""

    says = "something"

    def __setstate__(self, state: Any) -> None:
        raise pickle.UnpicklingError(f"{self.says} has no state")


class _Kind(_Part):
    """In place of a dtype: its code, as ``f8``, and the order of its bytes."""

    says = "a dtype"
    code: Any = None
    order: Any = None

    def __init__(self, code: Any, *_: Any) -> None:
        self.code = code

    def __setstate__(self, state: Any) -> None:
        self.order = state[1]

    def dtype(self) -> np.dtype[Any]:
        if not re.fullmatch("[iu][1248]|f[248]", str(self.code)):
            raise InputError(f"got values of type {told(self.code)}, not numbers")
        return np.dtype((self.order if self.order in ("<", ">") else "=") + str(self.code))


class _Array(_Part):
    """In place of an array: its shape, dtype, and bytes or list of objects."""

    says = "an array"
    state: Any = (0, None, None, None, None)

    def __init__(self, *_: Any) -> None:
        pass

    def __setstate__(self, state: Any) -> None:
        _, _, _, _, _ = state
        self.state = state

    def array(self) -> NDArray[Any]:
        _, shape, kind, _, data = self.state
        # Whether by rows or by columns does not matter for a list of times.
        return np.frombuffer(data, kind.dtype()).reshape(shape)

    def only_object(self) -> Any:
        _, shape, _, _, data = self.state
        if shape != () or not isinstance(data, list) or len(data) != 1:
            raise InputError("it is not one object without dimensions")
        return data[0]


class _Number(_Part):
    """In place of a NumPy scalar."""

    says = "a number"
    kind: Any = None
    data: Any = None

    def __init__(self, kind: Any, data: Any) -> None:
        self.kind, self.data = kind, data

    def number(self) -> Any:
        return np.frombuffer(self.data, self.kind.dtype()).item()


class _Bytes(_Part):
    """In place of what old pickles make bytes with."""

    def __new__(cls, text: str = "", encoding: str = "latin1") -> Any:
        if not isinstance(text, str) or encoding != "latin1":
            raise pickle.UnpicklingError("bytes are made of latin1 only")
        return text.encode("latin1")


_STAND_INS: dict[tuple[str, str], type[_Part]] = {
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
    """Knows what makes up arrays of numbers, and nothing else."""

    def find_class(self, module: str, name: str) -> Any:
        found = _STAND_INS.get((module, name))
        if found is None:
            raise pickle.UnpicklingError(f"it asks for {module}.{name}")
        return found


def unpickled(file: io.BytesIO, where: str) -> Any:
    """The one object in a ``.npy`` file: dicts, lists and plain values, with stand-ins for arrays.

    Parameters
    ----------
    file : BytesIO
    where : str
        How errors begin.

    Raises
    ------
    ValueError
        If there is anything else in it.
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
    # Bytes that are no such pickle can fail in any way.
    except Exception as error:
        raise InputError(
            f"{where} was refused: {error}. Only dicts, lists, numbers and arrays of numbers are "
            "read; anything else could run code"
        ) from None


def plain_number(given: Any) -> Any:
    """A number out of a pickle, as Python's own; None if it is none."""
    if isinstance(given, _Number):
        try:
            return given.number()
        except (AttributeError, TypeError, ValueError):
            return None
    return given if isinstance(given, (int, float)) and not isinstance(given, bool) else None


def plain_array(given: Any) -> NDArray[np.float64]:
    """An array or a list of numbers out of a pickle.

    Raises
    ------
    ValueError
        If it is none.
    """
    if isinstance(given, _Array):
        try:
            return given.array().astype(np.float64)
        except (AttributeError, TypeError) as error:
            raise InputError(f"got an array without numbers ({error})") from None
    if not isinstance(given, (list, tuple)):
        raise InputError(f"got {told(given)}")
    numbers = [plain_number(each) for each in given]
    if None in numbers:
        raise InputError(f"got {told(given[numbers.index(None)])} among them")
    return np.array(numbers, dtype=np.float64)


def told(value: Any) -> str:
    """What something out of a pickle is, for an error."""
    if isinstance(value, _Part):
        return value.says
    return repr(value)[:40] if isinstance(value, (str, int, float)) else type(value).__name__
