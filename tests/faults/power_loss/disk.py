"""The trees that a power failure may leave, from a recording of file system calls.

The model of the disk is weaker than any file system in use. At the moment of the failure:

- Data of a file that was synced (``fsync``, ``fdatasync``) is there, and nothing else is certain.
- Each unsynced write of a file is there, is missing, or is torn: a prefix of its sectors of 512
  bytes, or any set of them. Where it extended the file, there may be zeros instead. An unsynced
  change of the size is there or missing. Nothing orders the writes, within a file or among files.
- Each change of a name (create, rename, unlink, mkdir, rmdir, link) is certain once the folder that
  holds the name was synced. Of the others either a *prefix* in the order of the calls is there, as
  on a file system that journals its metadata, or, which POSIX also allows, any *subset*. A rename
  is one change: both of its names, or neither.
- Bytes outside the range of a write do not change, and synced bytes stay.

SQLite's ``-shm`` file is mapped, so stores into it are not recorded; every state has garbage there.
"""

import hashlib
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from enum import Enum

import numpy as np
from numpy.typing import NDArray

from tests.faults.power_loss.recording import Kind, Record, Recording, Tree

SECTOR = 512
_EXCHANGE = 2  # RENAME_EXCHANGE


class Names(Enum):
    """Which unsynced changes of names are there."""

    NONE = "none"
    ALL = "all"
    PREFIX = "prefix"
    SUBSET = "subset"


class Data(Enum):
    """Which unsynced data is there."""

    NONE = "none"
    ALL = "all"
    ZEROS = "zeros"  # sizes are there, data is not
    TORN = "torn"  # the last write of each file is torn
    SUBSET = "subset"


LOST = (Names.NONE, Data.NONE)
STRATEGIES = (
    LOST,
    (Names.ALL, Data.ALL),
    (Names.ALL, Data.NONE),
    (Names.NONE, Data.ALL),
    (Names.ALL, Data.ZEROS),
    (Names.PREFIX, Data.NONE),
    (Names.PREFIX, Data.ALL),
    (Names.PREFIX, Data.TORN),
    (Names.PREFIX, Data.SUBSET),
    (Names.SUBSET, Data.ZEROS),
    (Names.SUBSET, Data.TORN),
    (Names.SUBSET, Data.SUBSET),
)


@dataclass(eq=False)
class _File:
    """A file: its certain content, and the records since its last sync."""

    content: bytes = b""
    pending: list[Record] = field(default_factory=list)
    is_mapped: bool = False


@dataclass(eq=False)
class _Folder:
    """A folder: its certain names, and the names that a running system sees."""

    names: "dict[str, _File | _Folder]" = field(default_factory=dict)
    live: "dict[str, _File | _Folder]" = field(default_factory=dict)


_Node = _File | _Folder


@dataclass(frozen=True)
class _NameChange:
    """Names of folders that change together; None: the name is gone."""

    names: tuple[tuple[_Folder, str, _Node | None], ...]

    def concerns(self, folder: _Folder) -> bool:
        return any(folder is each for each, _, _ in self.names)


class Disk:
    """What is certain and what is pending after some records of a recording."""

    def __init__(self, recording: Recording) -> None:
        self.root = _Folder()
        self._nodes: dict[int, _Node] = {recording.inodes["."]: self.root}
        self._pending: list[_NameChange] = []
        for path, content in recording.before.items():
            node = _Folder() if content is None else _File(content)
            self._nodes[recording.inodes[path]] = node
            parent, _, name = path.rpartition("/")
            folder = self._folder(recording.inodes[parent or "."])
            folder.names[name] = node
            folder.live[name] = node

    def apply(self, record: Record) -> None:
        """Let the next call of the recording happen."""
        match record.kind:
            case Kind.WRITE | Kind.TRUNCATE | Kind.EXTEND:
                self._file(record.inode).pending.append(record)
            case Kind.SYNC:
                self._sync(self._nodes[record.inode])
            case Kind.SYNC_ALL:
                for node in list(self._nodes.values()):
                    self._sync(node)
            case Kind.MAP:
                self._file(record.inode).is_mapped = True
            case Kind.UNSUPPORTED:
                raise AssertionError(f"{record.name}: a call that the recorder does not support")
            case Kind.MARK:
                pass
            case _:
                self._apply_to_names(record)

    def _apply_to_names(self, record: Record) -> None:
        folder = self._folder(record.folder)
        if record.kind is Kind.CREATE:
            self._nodes[record.inode] = _File()
        elif record.kind is Kind.MKDIR:
            self._nodes[record.inode] = _Folder()
        if record.kind in (Kind.UNLINK, Kind.RMDIR):
            self._change((folder, record.name, None))
        elif record.kind is Kind.RENAME:
            target = self._folder(record.folder2)
            replaced = target.live[record.name2] if record.flags & _EXCHANGE else None
            node = folder.live[record.name]
            self._change((folder, record.name, replaced), (target, record.name2, node))
        else:
            self._change((folder, record.name, self._nodes[record.inode]))

    def tree(self, names: Names, data: Data, random: np.random.Generator) -> Tree:
        """Return one tree that a power failure may leave now."""
        certain: dict[int, dict[str, _Node]] = {}
        for change in _choose(self._pending, names, random):
            for folder, name, node in change.names:
                entries = certain.setdefault(id(folder), dict(folder.names))
                entries.pop(name, None)
                if node is not None:
                    entries[name] = node
        tree: Tree = {}
        contents: dict[int, bytes] = {}

        def visit(folder: _Folder, prefix: str) -> None:
            for name, node in sorted(certain.get(id(folder), folder.names).items()):
                if isinstance(node, _Folder):
                    tree[prefix + name] = None
                    visit(node, f"{prefix}{name}/")
                else:
                    if id(node) not in contents:
                        contents[id(node)] = _content(node, data, random)
                    tree[prefix + name] = contents[id(node)]

        visit(self.root, "")
        return tree

    def mapped_names(self) -> set[str]:
        """Return the names of files that were mapped for writing."""
        folders = [node for node in self._nodes.values() if isinstance(node, _Folder)]
        return {
            name
            for folder in folders
            for name, node in folder.live.items()
            if isinstance(node, _File) and node.is_mapped
        }

    def _folder(self, inode: int) -> _Folder:
        node = self._nodes[inode]
        assert isinstance(node, _Folder)
        return node

    def _file(self, inode: int) -> _File:
        node = self._nodes[inode]
        assert isinstance(node, _File)
        return node

    def _change(self, *names: tuple[_Folder, str, _Node | None]) -> None:
        self._pending.append(_NameChange(names))
        for folder, name, node in names:
            folder.live.pop(name, None)
            if node is not None:
                folder.live[name] = node

    def _sync(self, node: _Node) -> None:
        if isinstance(node, _File):
            node.content = _replay(node.content, node.pending)
            node.pending.clear()
            return
        for change in [change for change in self._pending if change.concerns(node)]:
            self._pending.remove(change)
            for folder, name, named in change.names:
                folder.names.pop(name, None)
                if named is not None:
                    folder.names[name] = named


def _choose(
    changes: Sequence[_NameChange], names: Names, random: np.random.Generator
) -> Sequence[_NameChange]:
    match names:
        case Names.NONE:
            return ()
        case Names.ALL:
            return changes
        case Names.PREFIX:
            return changes[: int(random.integers(len(changes) + 1))]
        case Names.SUBSET:
            share = random.choice([0.1, 0.5, 0.9])
            return [change for change in changes if random.random() < share]


def _content(file: _File, data: Data, random: np.random.Generator) -> bytes:
    """Return one content that a power failure may leave in a file."""
    if file.is_mapped:
        return random.bytes(len(_replay(file.content, file.pending)))
    kept: list[Record] = []
    for record, fate in zip(file.pending, _fates(data, len(file.pending), random), strict=True):
        if fate == "kept":
            kept.append(record)
        elif fate == "zeros":
            kept.append(_without_data(record))
        elif fate == "torn":
            kept.extend(_torn(record, random))
    return _replay(file.content, kept)


def _fates(data: Data, count: int, random: np.random.Generator) -> list[str]:
    """Return what happens to each of the writes of a file."""
    match data:
        case Data.NONE:
            return ["missing"] * count
        case Data.ALL:
            return ["kept"] * count
        case Data.ZEROS:
            return ["zeros"] * count
        case Data.TORN:
            return [*["kept"] * (count - 1), "torn"][:count]
        case Data.SUBSET:
            fates = ("kept", "missing", "zeros", "torn")
            return [str(fate) for fate in random.choice(fates, count, p=[0.6, 0.2, 0.1, 0.1])]


def _without_data(record: Record) -> Record:
    """Return the change of the size alone that a write makes."""
    if record.kind is not Kind.WRITE:
        return record
    return _resized(record, record.offset + len(record.data))


def _resized(record: Record, size: int) -> Record:
    return Record(Kind.EXTEND, 0, record.inode, 0, 0, size, "", "", b"")


def _torn(record: Record, random: np.random.Generator) -> list[Record]:
    """Return the part of a write that reached the disk: a prefix or any set of its sectors."""
    if record.kind is not Kind.WRITE:
        return [record] if random.random() < 0.5 else []
    end = record.offset + len(record.data)
    starts = [record.offset, *range((record.offset // SECTOR + 1) * SECTOR, end, SECTOR)]
    if random.random() < 0.5:
        starts = starts[: random.integers(len(starts) + 1)]
    else:
        starts = [start for start in starts if random.random() < 0.5]
    sectors = []
    for start in starts:
        stop = min((start // SECTOR + 1) * SECTOR, end)
        data = record.data[start - record.offset : stop - record.offset]
        sectors.append(Record(Kind.WRITE, 0, record.inode, 0, 0, start, "", "", data))
    if random.random() < 0.5:  # the size changed before the data arrived
        sectors.append(_resized(record, end))
    return sectors


def _replay(content: bytes, records: Sequence[Record]) -> bytes:
    if not records:
        return content
    result = bytearray(content)
    for record in records:
        size = record.offset + len(record.data)
        if record.kind is Kind.TRUNCATE:
            del result[record.offset :]
        if len(result) < size:
            result.extend(bytes(size - len(result)))
        if record.kind is Kind.WRITE:
            result[record.offset : size] = record.data
    return bytes(result)


@dataclass(frozen=True)
class CrashState:
    """A tree that a power failure may leave.

    Args:
        tree: Its files and folders.
        position: Number of records before the failure.
        begun: Number of the last call that had begun.
        acknowledged: Number of the last call that had returned.
        names: Which unsynced changes of names are there.
        data: Which unsynced data is there.
    """

    tree: Tree
    position: int
    begun: int
    acknowledged: int
    names: Names
    data: Data

    @property
    def digest(self) -> bytes:
        """Checksum of the tree, without mapped files, whose content does not count."""
        hasher = hashlib.blake2b(digest_size=16)
        for path, content in self.tree.items():
            size = -1 if content is None else len(content)
            hasher.update(f"{path}\0{size}\0".encode())
            if content is not None and not path.endswith("-shm"):
                hasher.update(content)
        return hasher.digest()

    def __str__(self) -> str:
        """Where it comes from."""
        return (
            f"power failure after record {self.position}, call {self.begun} begun,"
            f" {self.acknowledged} acknowledged; names: {self.names.value}, data: {self.data.value}"
        )


def crash_states(recording: Recording, count: int, seed: int) -> Iterator[CrashState]:
    """Yield at most ``count`` states of a recording; some of them may be equal.

    What is certain at the moment of each acknowledgment is always among them. The others are
    spread over all moments, half of them at changes of names, sizes and syncs, which are rarer
    than writes.
    """
    random = np.random.default_rng(seed)
    disk = Disk(recording)
    plan = _plan(recording.records, count, random)
    begun = -1
    acknowledged = -1
    for position, record in enumerate(recording.records, start=1):
        disk.apply(record)
        if record.kind is Kind.MARK:
            event, _, number = record.name.partition(" ")
            begun = int(number)
            acknowledged = int(number) if event == "end" else acknowledged
        for names, data in plan.get(position, ()):
            tree = disk.tree(names, data, random)
            yield CrashState(tree, position, begun, acknowledged, names, data)


def _plan(
    records: Sequence[Record], count: int, random: np.random.Generator
) -> dict[int, list[tuple[Names, Data]]]:
    """Choose moments, as numbers of records that precede them, and strategies for each."""
    moments = np.arange(1, len(records) + 1)
    kinds = np.array([record.kind for record in records])
    is_end = [record.kind is Kind.MARK and record.name.startswith("end ") for record in records]
    is_rare = ~np.isin(kinds, [Kind.WRITE, Kind.MARK])
    common = _pairs(moments, random)
    rare = _pairs(moments[is_rare], random)
    chosen = [(int(moment), LOST) for moment in moments[is_end]]
    while len(chosen) < count and (common or rare):
        source = rare if rare and (len(chosen) % 2 or not common) else common
        chosen.append(source.pop())
    plan: dict[int, list[tuple[Names, Data]]] = {}
    for moment, strategy in chosen:
        plan.setdefault(moment, []).append(strategy)
    return plan


def _pairs(
    moments: NDArray[np.int64], random: np.random.Generator
) -> list[tuple[int, tuple[Names, Data]]]:
    """Return all pairs of a moment and a strategy in random order, random strategies repeated."""
    strategies = [
        strategy
        for strategy in STRATEGIES
        for _ in range(4 if {Names.PREFIX, Names.SUBSET} & {*strategy} else 1)
    ]
    pairs = [(int(moment), strategy) for moment in moments for strategy in strategies]
    return [pairs[i] for i in random.permutation(len(pairs))]
