"""Conditions such as ``"area == 'CA1' and rate > 0.5"``. They are parsed, and never executed."""

from __future__ import annotations

import ast
import operator
import re
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from xcebra.common.errors import InputError

_COMPARISONS: dict[type[ast.cmpop], Callable[[Any, Any], Any]] = {
    ast.Eq: operator.eq,
    ast.NotEq: operator.ne,
    ast.Lt: operator.lt,
    ast.LtE: operator.le,
    ast.Gt: operator.gt,
    ast.GtE: operator.ge,
}
# Comparisons that make sense between a text and the number that it spells.
_EQUALITIES = (ast.Eq, ast.NotEq)
# What the parser of Python, or a condition of too many parts, raises.
_UNREADABLE = (SyntaxError, ValueError, MemoryError, RecursionError)
# Characters of a condition that a message repeats.
_MOST_CHARACTERS = 100

Columns = Callable[[str], NDArray[Any]]


class Condition:
    """A condition that was parsed. Nothing but comparisons is ever executed.

    Parameters
    ----------
    text : str
        Comparisons of columns with values, joined by ``and``, ``or``, ``not`` and parentheses. A
        name with other characters than letters, digits and underscores stands between backticks.
    argument : str
        Name of the argument, for errors.
    example : str
        A condition that can be read, for errors.
    origin : str
        Name of the source that the columns belong to, for errors.
    derived : bool
        Whether ``speed(x, z)`` and ``trials/choice`` are names too.

    Raises
    ------
    ValueError
        If the condition cannot be read.
    """

    def __init__(
        self, text: str, argument: str, example: str, *, origin: str = "", derived: bool = False
    ) -> None:
        self._text, self._argument, self._example = text, argument, example
        self._subject = f"{origin}: {argument}" if origin else argument
        self._nodes = (ast.Name, ast.Call, ast.BinOp) if derived else (ast.Name,)
        self._quoted: list[str] = []
        self._source = re.sub(r"`([^`]*)`", self._placeholder, text).strip()
        try:
            self._tree = ast.parse(self._source, mode="eval").body
            self.names = tuple(dict.fromkeys(map(self.name, self._named(self._tree))))
        except _UNREADABLE:
            raise self._unreadable() from None

    def holds(
        self,
        columns: Columns,
        n: int,
        known: Mapping[str, NDArray[np.bool_]] | None = None,
    ) -> NDArray[np.bool_]:
        """Return where the condition holds.

        Parameters
        ----------
        columns : callable
            Returns the values of a column of shape (n,) by its name.
        n : int
            Number of rows.
        known : mapping of str to ndarray of bool of shape (n,), optional
            Where each column is known. A comparison with a value that is not known does not hold,
            and neither does its opposite.

        Returns
        -------
        ndarray of bool of shape (n,)

        Raises
        ------
        ValueError
            If the condition compares what cannot be compared.
        """
        try:
            return _Evaluation(self, columns, n, known or {}).truth(self._tree)
        except InputError:
            raise
        except _UNREADABLE:
            raise self._unreadable() from None

    def error(self, problem: str) -> InputError:
        """Return an error that begins with the condition."""
        return InputError(f"{self._subject}={self._short()} {problem}", (self._argument,))

    def _placeholder(self, match: re.Match[str]) -> str:
        self._quoted.append(match[1])
        return f"_quoted_{len(self._quoted) - 1}_"

    def _unreadable(self) -> InputError:
        return self.error(f"cannot be read; write a condition such as {self._example}")

    def _short(self) -> str:
        """Return the condition for a message, which has one line."""
        text = repr(self._text)
        return text if len(text) <= _MOST_CHARACTERS else text[: _MOST_CHARACTERS - 3] + "..."

    def _named(self, node: ast.AST) -> Iterator[ast.expr]:
        """Yield the parts of the condition that name a column."""
        if isinstance(node, ast.expr) and self.is_name(node):
            yield node
            return
        for child in ast.iter_child_nodes(node):
            yield from self._named(child)

    def is_name(self, node: ast.AST) -> bool:
        """Whether a part of the condition names a column."""
        return isinstance(node, self._nodes)

    def name(self, node: ast.expr) -> str:
        """Return the name of a column as it was written, without backticks."""
        text = ast.get_source_segment(self._source, node) or ""
        return re.sub(r"_quoted_(\d+)_", self._unquoted, text)

    def _unquoted(self, match: re.Match[str]) -> str:
        i = int(match[1])
        return self._quoted[i] if i < len(self._quoted) else match[0]


class _Evaluation:
    """Where a condition holds, for given columns; see `Condition.holds`."""

    def __init__(
        self,
        condition: Condition,
        columns: Columns,
        n: int,
        known: Mapping[str, NDArray[np.bool_]],
    ) -> None:
        self._condition = condition
        self._columns, self._n, self._known = columns, n, known

    def truth(self, node: ast.expr, opposite: bool = False) -> NDArray[np.bool_]:
        """Return where a part of the condition, or its opposite, holds."""
        if isinstance(node, ast.BoolOp):
            parts = [self.truth(value, opposite) for value in node.values]
            return self._combined(parts, isinstance(node.op, ast.And) != opposite)
        if isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not):
            return self.truth(node.operand, not opposite)
        if isinstance(node, ast.Compare):
            sides = [node.left, *node.comparators]
            pairs = zip(sides, node.ops, sides[1:], strict=False)
            parts = [
                self._where_known(self._compared(left, op, right) ^ opposite, left, right)
                for left, op, right in pairs
            ]
            return self._combined(parts, not opposite)
        if self._condition.is_name(node):
            column = self._columns(self._condition.name(node))
            if column.dtype.kind == "b":
                return self._where_known(column ^ opposite, node)
            raise self._condition.error(
                f"needs a comparison with {self._condition.name(node)!r}, such as == or >"
            )
        raise self._condition.error("may only compare columns with numbers and text")

    @staticmethod
    def _combined(parts: list[NDArray[np.bool_]], all_must_hold: bool) -> NDArray[np.bool_]:
        combine = np.logical_and if all_must_hold else np.logical_or
        return np.asarray(combine.reduce(parts))

    def _where_known(self, result: NDArray[np.bool_], *sides: ast.expr) -> NDArray[np.bool_]:
        for side in sides:
            if (
                self._condition.is_name(side)
                and (name := self._condition.name(side)) in self._known
            ):
                result = result & self._known[name]
        return result

    def _compared(self, left: ast.expr, op: ast.cmpop, right: ast.expr) -> NDArray[np.bool_]:
        if isinstance(op, (ast.In, ast.NotIn)):
            column = self._side(left, None)
            if not isinstance(right, (ast.List, ast.Tuple, ast.Set)):
                raise self._condition.error("needs a list after 'in', such as [1, 2]")
            within = np.zeros(column.shape, dtype=bool)
            for item in right.elts:
                within |= self._result(column, self._side(item, column), operator.eq)
            return ~within if isinstance(op, ast.NotIn) else within
        if type(op) not in _COMPARISONS:
            raise self._condition.error("knows ==, !=, <, <=, >, >= and in")
        first, second = self._side(left, None), self._side(right, None)
        if isinstance(op, _EQUALITIES):
            first, second = self._side(left, second), self._side(right, first)
        return self._result(first, second, _COMPARISONS[type(op)])

    def _result(
        self, first: Any, second: Any, compare: Callable[[Any, Any], Any]
    ) -> NDArray[np.bool_]:
        kinds = {np.asarray(side).dtype.kind in "US" for side in (first, second)}
        if len(kinds) > 1:
            raise self._condition.error(
                "compares text with a number; text stands in quotation marks"
            )
        return np.broadcast_to(np.asarray(compare(first, second)), (self._n,)).astype(bool)

    def _side(self, node: ast.expr, beside: Any) -> Any:
        """Value of one side. A number ``beside`` text is turned into text."""
        if self._condition.is_name(node):
            return self._columns(self._condition.name(node))
        try:
            value = ast.literal_eval(node)
        except (ValueError, TypeError, SyntaxError, MemoryError, RecursionError):
            value = None
        if not isinstance(value, (str, int, float, bool)):
            raise self._condition.error("may only compare columns with numbers and text")
        is_text = beside is not None and np.asarray(beside).dtype.kind == "U"
        if is_text and not isinstance(value, str):
            value = as_text(value)
        return np.asarray(value)


def as_text(value: Any) -> str:
    """A value as text; whole floats without their decimal point."""
    if isinstance(value, float) and value.is_integer():
        return str(int(value))
    return str(value)
