"""Run the leaderboard: a declarative file of hashers, data sets, code lengths and protocols."""

import tomllib
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor, as_completed
from dataclasses import dataclass, fields, replace
from functools import partial
from itertools import permutations
from multiprocessing import get_context
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from crossbit._progress import OnStep, Step
from crossbit._validation import check_known
from crossbit.data import Dataset, training_set
from crossbit.errors import CrossbitError, DataError
from crossbit.evaluation.evaluate import Evaluation, Protocol, dataset_relevance, split_rows
from crossbit.hashers import HASHERS, Hasher
from crossbit.inputs.posteriors import fit_posteriors
from crossbit.inputs.weak_labels import repair_labels
from crossbit.metrics import AveragePrecision, evaluate_ranking, rank_vectors
from crossbit.model import HashModel
from crossbit.model.layers import apply_layers
from crossbit_experiments.leaderboard.sets import BoardSet
from crossbit_experiments.methods import Method, run_methods
from crossbit_experiments.protocols import PROTOCOLS
from crossbit_experiments.runs import RunStore

CONFIG = Path(__file__).parent / "leaderboard.toml"
CLASSIFIER = "classifier"
"""Reference of the protocol P2: classify the query, rank the base by the posterior of its label."""
CODES_BITS = 32
"""Length of the codes that are kept under protocols with a large base."""


@dataclass(frozen=True, kw_only=True)
class Leaderboard:
    """What a leaderboard consists of.

    Attributes:
        sets: Data sets.
        hashers: Names of hashers; ``"*"`` stands for all that are registered.
        bits: Code lengths.
        seeds: Number of seeds.
        protocols: Names of protocols, without ``"leaderboard/"``.
    """

    sets: tuple[BoardSet, ...]
    hashers: tuple[str, ...] = ("*",)
    bits: tuple[int, ...] = (32,)
    seeds: int = 5
    protocols: tuple[str, ...] = ("P1",)

    @classmethod
    def read(cls, path: Path = CONFIG) -> "Leaderboard":
        """Read a configuration; unknown keys, hashers and protocols are rejected."""
        try:
            values = tomllib.loads(path.read_text(encoding="utf-8"))
        except (OSError, tomllib.TOMLDecodeError) as error:
            raise DataError(f"{path}: not a leaderboard configuration ({error})") from error
        sets = tuple(_made(BoardSet, entry, f"{path}: set") for entry in values.pop("set", []))
        board: Leaderboard = _made(cls, values | {"sets": sets}, str(path))
        for name in set(board.hashers) - {"*"}:
            check_known(name, HASHERS, "hasher")
        for named in (board.protocols, *(chosen.protocols for chosen in board.sets)):
            for name in named or ():
                check_known(name, _protocols(), "protocol")
        return board

    def hasher_names(self) -> list[str]:
        """Names of all hashers, in alphabetical order."""
        return sorted(HASHERS if "*" in self.hashers else set(self.hashers))

    def bits_of(self, chosen: BoardSet) -> tuple[int, ...]:
        """Code lengths of a set: its own, or those of the board."""
        return self.bits if chosen.bits is None else chosen.bits

    def protocols_of(self, chosen: BoardSet) -> tuple[str, ...]:
        """Protocols of a set: its own, or those of the board."""
        return self.protocols if chosen.protocols is None else chosen.protocols

    def only(
        self,
        *,
        sets: Sequence[str] | None = None,
        hashers: Sequence[str] | None = None,
        bits: Sequence[int] | None = None,
        protocols: Sequence[str] | None = None,
        seeds: int | None = None,
    ) -> "Leaderboard":
        """Return a part of the board; None keeps all."""
        known = {chosen.name: chosen for chosen in self.sets}
        chosen = tuple(known[check_known(name, known, "set")] for name in sets or known)
        kept_bits = tuple(bits or self.bits)
        kept_protocols = tuple(protocols or self.protocols)
        for name in kept_protocols:
            check_known(name, _protocols(), "protocol")
        for name in hashers or ():
            check_known(name, HASHERS, "hasher")
        return replace(
            self,
            sets=tuple(
                replace(
                    each,
                    bits=each.bits and tuple(n for n in each.bits if n in kept_bits),
                    protocols=each.protocols
                    and tuple(name for name in each.protocols if name in kept_protocols),
                )
                for each in chosen
            ),
            hashers=tuple(hashers or self.hashers),
            bits=kept_bits,
            protocols=kept_protocols,
            seeds=seeds or self.seeds,
        )


def _made(kind: Callable[..., Any], values: Mapping[str, Any], where: str) -> Any:  # noqa: ANN401
    known = [field.name for field in fields(kind)]  # type: ignore[arg-type]
    if unknown := sorted(set(values) - set(known)):
        raise DataError(f"{where}: unknown key {unknown[0]!r}; known: {known}")
    listed = {k: tuple(v) if isinstance(v, list) else v for k, v in values.items()}
    try:
        return kind(**listed)
    except TypeError as error:
        raise DataError(f"{where}: {error}") from error


def _protocols() -> dict[str, Protocol]:
    """Short name → protocol."""
    prefix = "leaderboard/"
    return {
        name.removeprefix(prefix): protocol
        for name, protocol in PROTOCOLS.items()
        if name.startswith(prefix)
    }


def run_board(
    board: Leaderboard,
    folder: Path,
    *,
    jobs: int = 1,
    on_step: OnStep | None = None,
    on_note: Callable[[str], None] | None = None,
) -> None:
    """Run all cells that are not stored yet; each data set has a folder with its runs.

    Args:
        board: What to run.
        folder: Folder of the results.
        jobs: Number of processes; each works on one data set at a time.
        on_step: Progress callback, called after every data set.
        on_note: Called with a line for each stale run, and for each hasher that cannot run.
    """
    notes = on_note or (lambda _: None)
    done = 0
    if jobs == 1:
        for done, chosen in enumerate(board.sets, start=1):
            for note in run_set(board, chosen, folder):
                notes(note)
            if on_step is not None:
                on_step(Step(done, len(board.sets)))
        return
    with ProcessPoolExecutor(jobs, mp_context=get_context("spawn")) as pool:
        waiting = [pool.submit(run_set, board, chosen, folder) for chosen in board.sets]
        for done, finished in enumerate(as_completed(waiting), start=1):
            for note in finished.result():
                notes(note)
            if on_step is not None:
                on_step(Step(done, len(board.sets)))


def run_set(board: Leaderboard, chosen: BoardSet, folder: Path) -> list[str]:
    """Run the cells of one data set; return the notes."""
    data = chosen.load()
    path = folder / chosen.name
    notes: list[str] = []
    left_out: set[tuple[str, str]] = set()  # method and protocol
    for n_bits in board.bits_of(chosen):
        for seed in range(board.seeds):
            for name in board.hasher_names():
                if (reason := _unsuited(HASHERS[name], data)) is not None:
                    if (note := f"{chosen.name}: {name} is left out, it {reason}") not in notes:
                        notes.append(note)
                    continue
                method = hasher_method(name)
                for protocol in board.protocols_of(chosen):
                    if (name, protocol) not in left_out:
                        left_out |= _run_cell(method, data, path, n_bits, seed, protocol, notes)
    if "P2" in board.protocols_of(chosen):
        method = Method(
            key=CLASSIFIER,
            title="classify the query, rank by p(label)",
            baseline=partial(rank_by_label, protocol=_protocols()["P2"]),
            bytes_per_item=4,
        )
        for seed in range(board.seeds):
            _run_cell(method, data, path, 0, seed, "P2", notes)
    drop_codes(RunStore(path))
    return notes


def drop_codes(store: RunStore) -> None:
    """Keep the codes of the first seed: of every length under P1, else of `CODES_BITS` bits."""
    dropped = []
    for name in store.names():
        protocol, _, n_bits, seed = name.rsplit("-", 3)
        if seed != "0" or (protocol != "P1" and n_bits != str(CODES_BITS)):
            dropped.append(name)
    store.drop_codes(dropped)


def _run_cell(
    method: Method,
    data: Dataset,
    folder: Path,
    n_bits: int,
    seed: int,
    protocol: str,
    notes: list[str],
) -> set[tuple[str, str]]:
    """Run a cell; return method and protocol if the protocol leaves the method out."""
    try:
        left_out = run_methods(
            [method],
            data,
            folder,
            n_bits=n_bits,
            seeds=[seed],
            protocol=_protocols()[protocol],
            prefix=cell_prefix(protocol),
            on_note=notes.append,
        )
    except CrossbitError as error:
        notes.append(f"{data.name}: {method.key} with {n_bits} bits, seed {seed}: {error}")
        return set()
    return {(key, protocol) for key in left_out}


def cell_prefix(protocol: str) -> str:
    """Begin of the names of the runs under a protocol."""
    return f"{protocol}-"


def hasher_method(name: str) -> Method:
    """Return a hasher with nothing set as a method; it is fitted once for all protocols."""
    kind = HASHERS[name]
    return Method(key=name, title=kind.__name__, build=partial(_build, kind, {}))


def _build(kind: type[Hasher], fitted: dict[str, HashModel], **fields: Any) -> Hasher:  # noqa: ANN401
    """Build a hasher whose `fit` returns the model that an equal hasher has fitted before."""
    hasher = kind(**fields)
    key = repr(sorted(fields.items()))

    def fit(*args: Any, **kwargs: Any) -> HashModel:  # noqa: ANN401 - those of `Hasher.fit`
        if key not in fitted:
            fitted.clear()
            fitted[key] = kind.fit(hasher, *args, **kwargs)
        return fitted[key]

    vars(hasher)["fit"] = fit
    return hasher


def _unsuited(kind: type[Hasher], data: Dataset) -> str | None:
    """Say why a hasher cannot learn from a data set; None if it can."""
    fewest, most = kind.modalities
    n = len(data.views)
    if n < fewest or (most is not None and n > most):
        return f"does not take {n} modalities"
    if kind.supervision and not kind.supervision & {"labels", "aligned"}:
        return f"learns from {' or '.join(sorted(kind.supervision))}"
    return None


def rank_by_label(
    data: Dataset, seed: int, *, protocol: Protocol
) -> tuple[Evaluation, dict[str, NDArray[np.float64]]]:
    """Evaluate the reference of P2: rank base items by the query's posterior of their labels.

    It classifies the queries with the posteriors of `AutoHash` and stores no codes. An item of
    several classes is ranked by the sum of their posteriors.
    """
    train = training_set(**data.part("train").fit_arguments(None))
    _, posteriors, _ = repair_labels(train, partial(fit_posteriors, seed=seed), seed)
    labels = data.labels_by_modality()
    measure = AveragePrecision()
    reports = {}
    values = {}
    for left, right in permutations(data.modalities, 2):
        queries = split_rows(data, protocol.queries, left)
        base = split_rows(data, protocol.base, right)
        P = apply_layers(posteriors.layers[left], data.views[left][queries])
        own = np.asarray(labels[right])[base]
        classes = posteriors.classes
        member = own[:, classes] if own.ndim == 2 else own[:, None] == classes
        relevant = dataset_relevance(data, (left, queries), (right, base))
        ranking = rank_vectors(P, member.astype(np.float32), relevant, metric="dot")
        reports[left, right] = evaluate_ranking(ranking, measures=(measure,))
        values[f"{left}-{right}"] = ranking.measure(measure)
    return Evaluation(reports, protocol), values
