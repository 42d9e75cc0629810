"""Which labels a fit uses: those that are asked about, and those that are controlled for."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from difflib import get_close_matches
from typing import Any

from xcebra.common.errors import InputError
from xcebra.data.recording import Recording, as_labels


def with_controls(
    X: Any, y: Any, label: Any, control: Any
) -> tuple[Any, list[str] | None, tuple[str, ...]]:
    """Add labels that are controlled for to the labels, after those that are asked about.

    Returns
    -------
    y : mapping or object
    label : list of str or None
        Labels of a Recording to use, if ``y`` is not given.
    controls : tuple of str
        Names of the labels that are controlled for.
    """
    wanted = None if label is None else [label] if isinstance(label, str) else list(label)
    if control is None:
        return y, wanted, ()
    if isinstance(X, Recording) and y is None and wanted is None and X.labels:
        raise which_labels(X)
    if isinstance(control, Mapping):
        own = dict(X.labels) if isinstance(X, Recording) and y is None else as_labels(y)
        if wanted is not None:
            own = chosen_labels(own, wanted)
        for name in control:
            if str(name) in own:
                raise InputError(
                    f"control names {name!r}, which is a label already; rename one", ("control",)
                )
        data = {str(name): values for name, values in control.items()}
        return {**own, **data}, None, tuple(data)
    names = [control] if isinstance(control, str) else control
    if not isinstance(names, (list, tuple)) or not all(isinstance(name, str) for name in names):
        raise InputError(
            "control must name labels, or be a mapping from names to data, got "
            f"{type(control).__name__}; as in control={{'speed': speed}}",
            ("control",),
        )
    known = list(X.labels) if isinstance(X, Recording) and y is None else list(as_labels(y))
    for name in names:
        if name not in known:
            near = get_close_matches(name, known, n=1)
            hint = f"did you mean {near[0]!r}? else " if near else ""
            raise InputError(
                f"control names {name!r}, but the labels are {known}; {hint}give its data with "
                f"control={{{name!r}: values}}",
                ("control",),
            )
    asked = [name for name in (known if wanted is None else wanted) if name not in names]
    if not asked:
        raise InputError(
            f"control={list(names)} leaves no label to ask about; name one with label=",
            ("control",),
        )
    if isinstance(X, Recording) and y is None:
        return y, [*asked, *names], tuple(names)
    labels = as_labels(y)
    return {name: labels[name] for name in [*asked, *names]}, None, tuple(names)


def which_labels(recording: Recording) -> InputError:
    """The error if a fit does not say which labels of a recording to use."""
    return InputError(
        f"the recording has labels {list(recording.labels)}; say which to use with label=..., or "
        "label=[] to learn from time alone"
    )


def chosen_labels(labels: Mapping[str, Any], names: str | Iterable[str]) -> dict[str, Any]:
    """The labels with these names, or an error if there is no such label."""
    wanted = [names] if isinstance(names, str) else list(names)
    for name in wanted:
        if name not in labels:
            raise InputError(f"label must name labels of {list(labels)}, got {name!r}")
    return {name: labels[name] for name in wanted}
