"""``python -m gradcheck``."""

import sys

from gradcheck import main

if __name__ == "__main__":
    sys.exit(main())
