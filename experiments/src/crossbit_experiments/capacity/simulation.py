r"""Simulation of sharded search: how long a query waits for the slowest of many shards.

A query arrives, is sent to one replica of every shard, and completes when the last shard has
answered. A replica processes its queries one after the other. Service times are drawn from
measurements, from the same measured query for all shards, so that a query that is slow on one shard
is slow on the others as it was when measured. Some answers straggle for reasons outside the model
(a noisy neighbor, a pause, a lost packet), some replicas may be down, and a client may *hedge*:
send the query to another replica if the first has not answered for a while (J. Dean, L. A. Barroso.
"The tail at scale." CACM 2013).
"""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from crossbit._validation import check_integer
from crossbit.errors import DataError

_Floats = NDArray[np.float64]
_RUNS = 10  # independent runs; each draws which replicas are down and starts with empty queues
_WARM_UP = 0.1  # share of the queries of a run that is discarded while queues still fill


@dataclass(frozen=True, kw_only=True)
class Cluster:
    """The simulated cluster.

    Args:
        shards: Shards that a query is sent to.
        replicas: Replicas per shard.
        load: Utilization of a replica if all are up and nothing is hedged.
        late: Share of the answers that straggle because of the machine or the network.
        lateness: Mean extra seconds of a straggler (exponential); it does not block the queue.
        network: Seconds of the round trip.
        down: Share of the replicas that are down; a shard without replicas is missing from the
            results.
        hedge: Seconds after which another replica is asked; None disables hedging.
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
        """Validate the numbers."""
        check_integer(self.shards, "shards", least=1)
        check_integer(self.replicas, "replicas", least=1)
        for name in ("load", "late", "down"):
            if not 0 <= getattr(self, name) < 1:
                raise DataError(
                    f"{name} must be at least 0 and below 1, got {getattr(self, name)!r}"
                )
        if self.hedge is not None and self.hedge < 0:
            raise DataError(f"hedge must be a number of seconds ≥ 0 or None, got {self.hedge!r}")

    @property
    def availability(self) -> float:
        r"""Probability that every shard has a replica that is up, $(1 - d^r)^s$."""
        return float((1 - self.down**self.replicas) ** self.shards)


@dataclass(frozen=True, eq=False)
class SimulationResult:
    """Outcome of a simulation.

    Attributes:
        seconds: Latency of each query.
        hedged: Share of the requests to shards that were sent to a second replica.
        complete: Share of the shards that have a replica that is up.
    """

    seconds: _Floats
    hedged: float
    complete: float

    def quantile(self, q: float) -> float:
        """Latency in seconds that the share ``q`` of the queries does not exceed."""
        return float(np.quantile(self.seconds, q))


def simulate(
    cluster: Cluster, sample: _Floats, *, queries: int = 10_000, seed: int = 0
) -> SimulationResult:
    """Send queries to a cluster at random times (a Poisson process).

    Args:
        cluster: The cluster.
        sample: Measured seconds, shape (queries, shards): each row is one query on several shards.
        queries: Number of queries to send.
        seed: Random seed.

    Example:
        >>> sample = np.full((1, 1), 0.001)
        >>> idle = Cluster(shards=100, load=0.0, late=0.0, network=0.0)
        >>> round(simulate(idle, sample, queries=10).quantile(0.99), 6)
        0.001
        >>> busy = Cluster(shards=100, load=0.5, late=0.0)
        >>> simulate(busy, sample, queries=500).quantile(0.5) > 0.002
        True
    """
    sample = np.asarray(sample, np.float64)
    if sample.ndim != 2 or not sample.size or not (sample > 0).all():
        raise DataError(
            "sample must hold positive seconds of shape (queries, shards),"
            f" got shape {sample.shape}"
        )
    random = np.random.default_rng(seed)
    runs = [_Servers(cluster, random) for _ in range(_RUNS)]
    seconds = [servers.run(sample, -(-queries // _RUNS)) for servers in runs]
    requests = sum(servers.requests for servers in runs)
    hedged = sum(servers.hedged for servers in runs)
    complete = float(np.mean([servers.complete for servers in runs]))
    return SimulationResult(np.concatenate(seconds), hedged / max(1, requests), complete)


class _Servers:
    """The replicas of all shards, and until when each is busy."""

    def __init__(self, cluster: Cluster, random: np.random.Generator) -> None:
        self.cluster = cluster
        self.random = random
        up = random.random((cluster.shards, cluster.replicas)) >= cluster.down
        self.complete = float(up.any(axis=1).mean())
        alive = up[up.any(axis=1)]  # shards without replicas delay no query
        self._n_alive = alive.sum(axis=1)
        # Replicas of each shard, those that are up first.
        self._order = np.argsort(~alive, axis=1, kind="stable")
        self._busy_until = np.zeros(alive.shape)
        self._shards = np.arange(len(alive))
        self.requests = 0
        self.hedged = 0

    def run(self, sample: _Floats, queries: int) -> _Floats:
        """Send queries and return the latencies of those after the warm-up."""
        work = sample.mean()
        load = self.cluster.load * self.cluster.replicas
        now = 0.0
        seconds = np.empty(queries)
        for query in range(queries):
            # Without load, queries arrive so rarely that queues are always empty.
            now += self.random.exponential(work / load) if load else 1e6 * work
            seconds[query] = self._query(now, sample[self.random.integers(len(sample))])
        return seconds[int(_WARM_UP * queries) :]

    def _query(self, now: float, times: _Floats) -> float:
        """Send a query to all shards and return the seconds until the last has answered."""
        if not len(self._shards):
            return self.cluster.network
        first = (self.random.random(len(self._shards)) * self._n_alive).astype(np.int64)
        answered = self._serve(self._shards, first, np.full(len(self._shards), now), times)
        self.requests += len(self._shards)
        if self.cluster.hedge is not None:
            slow = np.flatnonzero((answered - now > self.cluster.hedge) & (self._n_alive > 1))
            second = (first[slow] + 1) % self._n_alive[slow]
            sent = np.full(len(slow), now + self.cluster.hedge)
            answered[slow] = np.minimum(answered[slow], self._serve(slow, second, sent, times))
            self.hedged += len(slow)
        return float(answered.max()) - now + self.cluster.network

    def _serve(
        self,
        shards: NDArray[np.int64],
        replicas: NDArray[np.int64],
        sent: _Floats,
        times: _Floats,
    ) -> _Floats:
        """Queue one request per shard at a replica and return when each answer arrives."""
        work = times[self.random.integers(0, len(times), len(shards))]
        replica = self._order[shards, replicas]
        done: _Floats = np.maximum(sent, self._busy_until[shards, replica]) + work
        # A straggler delays its own answer only, not the queue behind it.
        self._busy_until[shards, replica] = done
        late = self.random.random(len(shards)) < self.cluster.late
        done[late] += self.random.exponential(self.cluster.lateness, int(late.sum()))
        return done
