"""Studies of the method on simulated recordings, where the connected neurons are known.

Each module answers one question. ``python -m studies.penalty`` runs the fits that have no row yet
in ``results/studies/``, prints the answer and writes it to the file that the documentation
includes. ``python -m studies.penalty table`` runs nothing, and makes the answer from the rows that
are finished.
"""
