r"""Sharded search, simulated: how long a query waits for the slowest of many shards.

A query arrives, is sent to one replica of every shard, and is answered when the last of them has answered. A replica
works through its queries one after the other. How long it works on one is drawn from measured times, the same query
for all shards, so that what is hard for one is hard for the others as it was when it was measured. Sometimes a replica
is late for reasons of its own (a neighbor on the machine, a pause, a lost packet), some replicas may be down, and a
caller may *hedge*: ask another replica when the first has not answered for a while (J. Dean, L. A. Barroso. "The tail
at scale." CACM 2013).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer
from crossbit.errors import DataError

Floats = NDArray[np.float64]
_DRAWS = 10  # times that other replicas are down, and queues begin empty
_BEGINNING = (
    0.1  # share of the queries of a draw that find queues still filling, and are not counted
)


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """What is simulated.

    Args:
        shards: Shards that a query is sent to.
        replicas: Of each shard.
        load: Share of their time that replicas work, when all are up and nothing is asked twice.
        late: Share of the answers that are late for reasons of machine and network.
        lateness: Seconds that these take longer, on average (exponential); others do not wait for them.
        network: Seconds there and back.
        down: Share of the replicas that are down; a shard without any is missing from the answers.
        hedge: Seconds after which another replica is asked; None: never.
    """

    shards: int
    replicas: int = 2
    load: float = 0.3
    late: float = 0.001
    lateness: float = 0.05
    network: float = 0.0005
    down: float = 0.0
    hedge: float | None = None

    def __post_init__(self) -> None:
        """Refuse numbers that make no sense."""
        check_integer(self.shards, "shards", least=1)
        check_integer(self.replicas, "replicas", least=1)
        for name in ("load", "late", "down"):
            if not 0 <= getattr(self, name) < 1:
                raise DataError(
                    f"{name} is a share, at least 0 and below 1, got {getattr(self, name)!r}"
                )
        if self.hedge is not None and self.hedge < 0:
            raise DataError(f"hedge is a number of seconds, or None, got {self.hedge!r}")

    @property
    def whole(self) -> float:
        r"""Share of the time in which every shard has a replica that is up, $(1 - d^r)^s$."""
        return float((1 - self.down**self.replicas) ** self.shards)


@dataclass(frozen=True, eq=False)
class Simulated:
    """What became of the queries.

    Attributes:
        seconds: How long each took.
        asked_twice: Share of the questions to shards that were asked of a second replica.
        complete: Share of the shards that have a replica that is up.
    """

    seconds: Floats
    asked_twice: float
    complete: float

    def quantile(self, q: float) -> float:
        """Seconds that the share ``q`` of the queries took at most."""
        return float(np.quantile(self.seconds, q))


def simulate(
    cluster: Cluster, sample: Floats, *, queries: int = 10_000, seed: int = 0
) -> Simulated:
    """Send queries to a cluster, at random moments (a Poisson process).

    Args:
        cluster: What it is like.
        sample: Measured seconds, shape (queries, shards): a row is one query, asked of several shards.
        queries: How many to send.
        seed: The same seed gives the same outcome.

    Example:
        >>> sample = np.full((1, 1), 0.001)
        >>> calm = Cluster(shards=100, load=0.0, late=0.0, network=0.0)
        >>> round(simulate(calm, sample, queries=10).quantile(0.99), 6)
        0.001
        >>> simulate(Cluster(shards=100, load=0.5, late=0.0), sample, queries=500).quantile(0.5) > 0.002
        True
    """
    sample = np.asarray(sample, np.float64)
    if sample.ndim != 2 or not sample.size or not (sample > 0).all():
        raise DataError(
            f"a sample has positive seconds, shape (queries, shards), got shape {sample.shape}"
        )
    random = np.random.default_rng(seed)
    draws = [_Servers(cluster, random) for _ in range(_DRAWS)]
    seconds = [servers.run(sample, -(-queries // _DRAWS)) for servers in draws]
    asked, twice = (sum(getattr(servers, name) for servers in draws) for name in ("asked", "twice"))
    complete = float(np.mean([servers.complete for servers in draws]))
    return Simulated(np.concatenate(seconds), twice / max(1, asked), complete)


class _Servers:
    """The replicas of all shards: until when each is busy."""

    def __init__(self, cluster: Cluster, random: np.random.Generator) -> None:
        self.cluster, self.random = cluster, random
        up = random.random((cluster.shards, cluster.replicas)) >= cluster.down
        self.complete = float(up.any(axis=1).mean())
        self._alive = up[up.any(axis=1)]  # shards that are gone keep nobody waiting
        self._n_alive = self._alive.sum(axis=1)
        # For each shard its replicas, those that are up first.
        self._order = np.argsort(~self._alive, axis=1, kind="stable")
        self._busy = np.zeros(self._alive.shape)
        self._shard = np.arange(len(self._alive))
        self.asked = self.twice = 0

    def run(self, sample: Floats, queries: int) -> Floats:
        """Send so many queries; seconds of those that are counted."""
        work, load = sample.mean(), self.cluster.load * self.cluster.replicas
        now, seconds = 0.0, np.empty(queries)
        for query in range(queries):
            now += self.random.exponential(work / load) if load else 1e6 * work
            seconds[query] = self.ask(now, sample[self.random.integers(len(sample))])
        return seconds[int(_BEGINNING * queries) :]

    def ask(self, now: float, times: Floats) -> float:
        """Send a query to all shards; seconds until the last has answered."""
        if not len(self._shard):
            return self.cluster.network
        first = (self.random.random(len(self._shard)) * self._n_alive).astype(np.int64)
        answered = self._work(self._shard, first, np.full(len(self._shard), now), times)
        self.asked += len(self._shard)
        if self.cluster.hedge is not None:
            again = np.flatnonzero((answered - now > self.cluster.hedge) & (self._n_alive > 1))
            another = (first[again] + 1) % self._n_alive[again]
            begun = np.full(len(again), now + self.cluster.hedge)
            answered[again] = np.minimum(answered[again], self._work(again, another, begun, times))
            self.twice += len(again)
        return float(answered.max()) - now + self.cluster.network

    def _work(
        self, shard: NDArray[np.int64], which: NDArray[np.int64], begun: Floats, times: Floats
    ) -> Floats:
        """When the answers of some replicas to a question each arrive; meanwhile they are busy."""
        takes = times[self.random.integers(0, len(times), len(shard))]
        replica = self._order[shard, which]
        done: Floats = np.maximum(begun, self._busy[shard, replica]) + takes
        self._busy[shard, replica] = done
        late = self.random.random(len(shard)) < self.cluster.late
        done[late] += self.random.exponential(self.cluster.lateness, int(late.sum()))
        return done
