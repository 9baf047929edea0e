"""`python -m sim` is `weft`."""

import sys

from weft import main

if __name__ == "__main__":
    sys.exit(main())
