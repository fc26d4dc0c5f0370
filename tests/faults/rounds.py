"""Rounds of the fault tests: few in the test suite, hundreds in ``make test-faults``."""

import os

LONG = os.environ.get("CROSSBIT_FAULTS") == "long"
ROUNDS = {
    "kill": 400 if LONG else 15,
    "create": 50 if LONG else 3,
    "flip": 600 if LONG else 40,
    "writers": 20 if LONG else 2,
}
# What a session has tried, printed at its end: description → number.
COUNTS: dict[str, int] = {}
