"""What a user gave cannot be used: errors of the user, told apart from errors of the program."""

from __future__ import annotations


class InputError(ValueError):
    """A value that cannot be used; the message says which, what is allowed, and what to do.

    Parameters
    ----------
    message : str
    arguments : tuple of str
        Names of the arguments it is about, for whoever gave them by another name, such as the
        options of the command line.
    """

    def __init__(self, message: str, arguments: tuple[str, ...] = ()) -> None:
        super().__init__(message)
        self.arguments = arguments


class InputTypeError(InputError, TypeError):
    """A value of a type that cannot be used."""


class Problem(str):
    """What is wrong with one argument, to be raised together with other problems."""

    argument: str

    def __new__(cls, text: str, argument: str) -> Problem:
        """Text that also carries the name of its argument."""
        problem = super().__new__(cls, text)
        problem.argument = argument
        return problem


class MissingExtraError(ImportError):
    """A package that is not installed with xcebra itself; the message says how to install it."""
