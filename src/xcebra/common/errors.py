"""Errors that are caused by the user's input, as distinct from errors of the program."""

from __future__ import annotations


class InputError(ValueError):
    """A value cannot be used. The message says which one, what is allowed, and what to do.

    Parameters
    ----------
    message : str
    arguments : tuple of str
        Names of the arguments that the message is about. The command line uses them to name its own
        options instead.
    """

    def __init__(self, message: str, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.arguments = arguments

    def about(self, subject: str) -> InputError:
        """The same error with what it is about in front of its message."""
        return type(self)(f"{subject} {self}", self.arguments)


class InputTypeError(InputError, TypeError):
    """A value of a type that cannot be used."""


class Problem(str):
    """Message about one argument, to be raised together with other problems."""

    argument: str

    def __new__(cls, text: str, argument: str) -> Problem:
        """Create the message and store the name of the argument with it."""
        problem = super().__new__(cls, text)
        problem.argument = argument
        return problem


class MissingExtraError(ImportError):
    """An optional package is not installed. The message says how to install it."""
