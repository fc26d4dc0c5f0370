"""Run the command line with ``python -m crossbit``."""

import sys

from crossbit.cli import main

if __name__ == "__main__":
    sys.exit(main())
