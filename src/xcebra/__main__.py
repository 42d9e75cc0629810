"""``python -m xcebra`` is the command line, where the script is not on the path."""

from xcebra.cli import main

if __name__ == "__main__":
    main()
