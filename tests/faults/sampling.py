"""Sample histories: hypothesis draws bytes, which are read as programs, a schedule and faults."""

from collections.abc import Callable, Sequence
from typing import TypeVar

from hypothesis import strategies as st

from tests.faults import actions, reads
from tests.faults.actions import IDS, Action, Upgrade, Upsert
from tests.faults.interleaving import Fault, History
from tests.faults.oracle import N_MODELS

T = TypeVar("T")


class _Tape:
    """Numbers read from bytes. Zeros, the simplest bytes, give the simplest history."""

    def __init__(self, raw: bytes) -> None:
        self._raw = iter(raw)

    def number(self, limit: int) -> int:
        """Return a number below a limit."""
        return next(self._raw) % limit

    def flag(self) -> bool:
        """Return true or false."""
        return self.number(2) == 1

    def choice(self, options: Sequence[T]) -> T:
        """Return one of several options."""
        return options[self.number(len(options))]

    def ids(self) -> tuple[str, ...]:
        """Return one or two ids."""
        return tuple(dict.fromkeys((self.choice(IDS), self.choice(IDS))))


_MODALITIES = (("image",), ("text",), ("image", "text"))
ACTIONS: dict[str, Callable[[_Tape], Action]] = {
    "upsert": lambda tape: Upsert(
        tape.ids(),
        tape.choice(_MODALITIES),
        tape.number(5),
        payload=tape.choice((None, 0, 1, 2)),
    ),
    "codes": lambda tape: Upsert(
        tape.ids(), tape.choice(_MODALITIES), tape.number(5), as_codes=True
    ),
    "payload": lambda tape: Upsert(
        tape.ids(), (), payload=tape.number(4), field=tape.choice(("n", "m"))
    ),
    "delete": lambda tape: actions.Delete(tape.ids(), tape.choice((None, None, "image", "text"))),
    "delete matching": lambda tape: actions.Delete(
        None, tape.choice((None, None, "image", "text")), tape.number(4)
    ),
    "update": lambda tape: actions.Update(
        tape.ids(), tape.choice((None, 0, 1, 2)), tape.choice(("n", "m"))
    ),
    "upgrade": lambda tape: Upgrade(tape.number(N_MODELS)),
    "batches": lambda tape: Upgrade(tape.number(N_MODELS), with_batches=True),
    "compact": lambda tape: actions.Compact(),
    "check": lambda tape: reads.Check(),
    "search": lambda tape: reads.Search(
        tape.number(5), tape.choice((None, None, 0, 1)), tape.flag()
    ),
    "get": lambda tape: reads.Get(tape.ids()),
    "scan": lambda tape: reads.Scan(),
    "summary": lambda tape: reads.Summary(),
    "export": lambda tape: reads.Export(),
    "copy": lambda tape: reads.Copy(),
    "reopen": lambda tape: actions.Reopen(),
    "backup": lambda tape: actions.Backup(),
    "restore": lambda tape: actions.Restore(tape.flag()),
}
_FREQUENT = ("upsert", "upsert", "codes", "delete", "upgrade", "upgrade", "batches", "search")
_MAX_ACTORS = 3
_MAX_ACTIONS = 3
_MAX_SWITCHES = 6
_MAX_FAULTS = 2
_HEADER = 11
_CELL = 8  # bytes of an action
_TAPE = _HEADER + _MAX_ACTORS * _MAX_ACTIONS * _CELL + 2 * _MAX_SWITCHES + 4 * _MAX_FAULTS


def histories(kinds: Sequence[str] = tuple(ACTIONS)) -> st.SearchStrategy[History]:
    """Return a strategy for histories; few kinds of actions meet in each."""
    weighted = [*kinds, *(kind for kind in _FREQUENT if kind in kinds)]
    return st.binary(min_size=_TAPE, max_size=_TAPE).map(lambda raw: _history(raw, weighted))


def _history(raw: bytes, kinds: Sequence[str]) -> History:
    """Read a history from bytes: each part has its place, so that parts shrink independently."""
    header = _Tape(raw[:_HEADER])
    keeps_features = header.flag()
    has_text = header.flag()
    is_shared = header.flag()
    n_actors = 2 + header.number(_MAX_ACTORS - 1)
    n_switches = 1 + header.number(_MAX_SWITCHES)
    n_faults = max(0, header.number(4) - 1)
    chosen = [header.choice(kinds) for _ in range(2 + header.number(3))]
    start = _HEADER
    programs = []
    for _ in range(n_actors):
        cells = range(start, start + _MAX_ACTIONS * _CELL, _CELL)
        drawn = [_Tape(raw[cell : cell + _CELL]) for cell in cells]
        count = 1 + drawn[0].number(_MAX_ACTIONS)
        programs.append(tuple(ACTIONS[tape.choice(chosen)](tape) for tape in drawn[:count]))
        start += _MAX_ACTIONS * _CELL
    tail = _Tape(raw[-2 * _MAX_SWITCHES - 4 * _MAX_FAULTS :])
    switches = tuple((tail.number(31), tail.number(2)) for _ in range(n_switches))
    faults = tuple(
        Fault(
            tail.number(n_actors),
            tail.number(_MAX_ACTIONS),
            tail.choice(("interrupt", "kill")),
            tail.number(50),
        )
        for _ in range(n_faults)
    )
    return History(keeps_features, has_text, tuple(programs), switches, faults, is_shared)
