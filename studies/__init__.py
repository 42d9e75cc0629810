"""Studies of what the package says of its own maps, on recordings with known wiring.

Each module is one question: ``python -m studies.penalty`` fits what has no row yet in
``results/studies/`` and tells the answer, which the documentation includes; ``table`` after it
tells the answer alone, from the rows there.
"""
