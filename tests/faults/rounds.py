"""How long the tests of faults run: briefly as a part of all tests, for hundreds of rounds in ``make test-faults``."""

import os

LONG = os.environ.get("CROSSBIT_FAULTS") == "long"
ROUNDS = {
    "kill": 400 if LONG else 15,
    "create": 50 if LONG else 3,
    "flip": 600 if LONG else 40,
    "writers": 20 if LONG else 2,
}
