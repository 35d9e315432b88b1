"""``python -m entrenar`` is the command ``entrenar``."""

from .cli import main

if __name__ == "__main__":
    main()
