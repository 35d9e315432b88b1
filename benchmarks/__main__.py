"""``python -m benchmarks [NAME ...]``: every benchmark, or the ones named."""

import sys

from .runner import main

if __name__ == "__main__":
    sys.exit(main())
