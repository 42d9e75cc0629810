"""How a map and an encoding model of the label alone agree, in words."""

from __future__ import annotations

from xcebra.attribution.attribution_map import AttributionMap

# Rank correlations of 0.5 and more are commonly called large (Cohen 1988). The value only decides
# which words are used.
LARGE = 0.5


def agreement_words(amap: AttributionMap, name: str) -> str:
    """Return what the second opinion says of the map of a label; empty if there is none.

    Parameters
    ----------
    amap : AttributionMap
    name : str
        A block.
    """
    rho = amap.agreement(name)
    if rho is None:
        return ""
    if rho >= LARGE:
        words, about = "rank the neurons alike", ", but disagree about"
    elif rho > 0:
        words, about = "agree only in part", " and disagree about"
    else:
        words, about = "disagree", ", most of all about"
    n_neurons = len(amap.disagreements(name))
    if n_neurons:
        words += f"{about} {n_neurons} neuron{'s' * (n_neurons != 1)}"
    return f"the map and an encoding model of {name} alone {words} (rank correlation {rho:z.2f})"


def disagree(amap: AttributionMap, name: str) -> bool:
    """Whether the map and the encoding model disagree, as a whole or about a neuron."""
    rho = amap.agreement(name)
    return rho is not None and (rho < LARGE or bool(amap.disagreements(name)))
