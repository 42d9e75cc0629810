"""Several sessions that are fitted together: their names, and the labels that each of them has."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from xcebra.common.errors import InputError, InputTypeError
from xcebra.data.recording import Recording, as_labels


def is_several(X: Any) -> bool:
    """Whether data are several sessions: a mapping by name, or a list of recordings or arrays.

    A list of lists of numbers is one array, as everywhere in scikit-learn. Some sparse matrices of
    scipy are mappings, but they have a shape.
    """
    if isinstance(X, Mapping):
        return not hasattr(X, "shape")
    return isinstance(X, list | tuple) and (len(X) == 0 or any(map(_is_session, X)))


def _is_session(data: Any) -> bool:
    return isinstance(data, Recording) or getattr(data, "ndim", None) == 2


def named_sessions(X: Any, argument: str = "X") -> dict[str, Any]:
    """Return sessions by name. Sessions in a list are named ``"0"``, ``"1"``, ...

    Parameters
    ----------
    X : mapping or sequence
    argument : str
        Name of the argument, for messages.

    Raises
    ------
    ValueError
        If there is no session, or if two have the same name.
    """
    named = list(X.items()) if isinstance(X, Mapping) else list(enumerate(X))
    if not named:
        raise InputError(
            f"{argument} holds no session; give one recording, or several by name", (argument,)
        )
    sessions: dict[str, Any] = {}
    for name, data in named:
        text = str(name)
        if not text.strip() or text in sessions:
            raise InputError(
                f"{argument} has two sessions named {text!r}; give each another name"
                if text in sessions
                else f"{argument} has a session with an empty name; give it a name",
                (argument,),
            )
        if not _is_session(data):
            raise InputTypeError(
                f"{argument}[{text!r}] must be a Recording, an array of shape (time, neuron) or a "
                f"DataFrame, got {type(data).__name__}",
                (argument,),
            )
        if not isinstance(data, Recording) and 0 in data.shape:
            raise InputError(
                f"{argument}[{text!r}] is empty, it has shape {tuple(data.shape)}; leave the "
                "session out",
                (argument,),
            )
        sessions[text] = data
    return sessions


def labels_by_session(sessions: Mapping[str, Any], y: Any) -> dict[str, Any]:
    """Return the argument ``y`` of each session; None for sessions that have no entry.

    Parameters
    ----------
    sessions : mapping of str to object
    y : mapping, sequence or None
        One entry for each session: a mapping by the sessions' names, or a list in their order.
    """
    if y is None:
        return dict.fromkeys(sessions)
    if isinstance(y, Mapping):
        given = {str(name): values for name, values in y.items()}
        unknown = [name for name in given if name not in sessions]
        if unknown:
            raise InputError(
                f"y names {unknown[0]!r}, but the sessions are {list(sessions)}; for several "
                "sessions, y has one entry for each of them, by its name",
                ("y",),
            )
        return {name: given.get(name) for name in sessions}
    if not isinstance(y, list | tuple) or len(y) != len(sessions):
        n = f"{len(y)} entries" if isinstance(y, list | tuple) else f"a {type(y).__name__}"
        raise InputError(
            f"y must have one entry for each of the {len(sessions)} sessions, got {n}", ("y",)
        )
    return dict(zip(sessions, y, strict=True))


def chosen_by_session(
    sessions: Mapping[str, Any],
    y: Mapping[str, Any],
    label: str | Iterable[str] | None,
    control: Any,
) -> tuple[dict[str, list[str]], tuple[str, ...]]:
    """Choose the labels of every session.

    A session may lack some of the labels, but not all of them, and none that is controlled for.

    Returns
    -------
    labels : dict of str to list of str
        Names of the labels of each session, those that are controlled for last.
    controls : tuple of str
        Names of the labels that are controlled for.
    """
    controls = _names("control", control)
    known = {
        name: list(data.labels)
        if isinstance(data, Recording) and y[name] is None
        else list(as_labels(y[name]))
        for name, data in sessions.items()
    }
    everywhere = list(dict.fromkeys(name for names in known.values() for name in names))
    if not everywhere:
        raise InputError(
            "several sessions are joined by their labels, and they have none; give labels as y, or "
            "fit each session on its own",
            ("y",),
        )
    if label is None and all(values is None for values in y.values()):
        raise InputError(
            f"the sessions have labels {everywhere}; say which to use with label=...", ("label",)
        )
    wanted = everywhere if label is None else list(_names("label", label))
    asked = [name for name in wanted if name not in controls]
    for argument, names in (("label", asked), ("control", controls)):
        for name in names:
            if name not in everywhere:
                near = get_close_matches(name, everywhere, n=1)
                hint = f"; did you mean {near[0]!r}?" if near else ""
                raise InputError(
                    f"{argument} names {name!r}, but the sessions have {everywhere}{hint}",
                    (argument,),
                )
    if not asked:
        raise InputError(
            "several sessions are joined by their labels, and no label is asked about; name one "
            "with label=..., or fit each session on its own",
            ("label",),
        )
    for session, names in known.items():
        if not set(asked) & set(names):
            raise InputError(
                f"session {session!r} has none of the labels {asked}; it has {names or 'none'}; "
                "leave the session out, or name one of its labels",
                ("label",),
            )
        missing = [name for name in controls if name not in names]
        if missing:
            raise InputError(
                f"session {session!r} lacks {missing[0]!r}, which is controlled for; leave the "
                "session out, or do not control for it",
                ("control",),
            )
    labels = {
        session: [name for name in (*asked, *controls) if name in names]
        for session, names in known.items()
    }
    return labels, controls


def _names(argument: str, value: Any) -> tuple[str, ...]:
    names: Any = () if value is None else [value] if isinstance(value, str) else value
    is_list = isinstance(names, Iterable) and not isinstance(names, Mapping)
    names = list(names) if is_list else [names]
    if not all(isinstance(name, str) for name in names):
        raise InputError(
            f"{argument} must name labels of the sessions, got {type(value).__name__}; put its "
            "data into the recordings",
            (argument,),
        )
    return tuple(dict.fromkeys(names))
