"""``python -m xcebra.cli``."""

from xcebra.cli import main

if __name__ == "__main__":
    main()
