"""`python -m factormer`, which is the command `factormer`."""

import sys

from factormer.app.cli import main

if __name__ == "__main__":
    sys.exit(main())
