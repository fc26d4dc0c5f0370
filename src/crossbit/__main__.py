"""``python -m crossbit`` is the command line."""

import sys

from crossbit.cli import main

if __name__ == "__main__":
    sys.exit(main())
