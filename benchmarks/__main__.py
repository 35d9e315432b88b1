"""``python -m benchmarks [PATTERN ...]``: every case, or those whose names match."""

import sys

from .runner import main

if __name__ == "__main__":
    sys.exit(main())
