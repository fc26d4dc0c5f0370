"""A Ray cluster: the one at an address, or one of our own for as long as it is needed."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossbit._validation import whole_number
from crossbit.errors import BackendError, MissingExtraError

LOCAL = "local"
_STORE = (
    200 << 20
)  # bytes of a local cluster's object store: rows are read from files, only codes pass through it


@contextmanager
def connected(address: str, *, workers: int) -> Iterator[Any]:
    """Connect to a Ray cluster and leave it when the block ends.

    Callers must prove who they are by a token: ``RAY_AUTH_MODE=token`` is set unless the environment says otherwise,
    and the token of a cluster is taken from where Ray looks for it (``RAY_AUTH_TOKEN``, ``RAY_AUTH_TOKEN_PATH`` or
    ``~/.ray/auth_token``). Where this process is connected already, that connection is used and left open.

    Args:
        address: Such as ``"10.0.0.1:6379"``; ``"local"`` starts a cluster on this machine that nobody else can reach,
            with a token of its own, and ends it.
        workers: How many workers will be asked for; a local cluster has as many processors.

    Yields:
        The module ``ray``.

    Raises:
        MissingExtraError: Ray is not installed.
        BackendError: No cluster answers at the address, or it refuses us.
    """
    whole_number(workers, "workers", least=1)
    ray = _import_ray(address)
    if ray.is_initialized():
        yield ray
        return
    settings: dict[str, Any] = {
        "address": address,
        "log_to_driver": False,
        "logging_level": "ERROR",
    }
    if address == LOCAL:
        settings |= {"num_cpus": workers, "include_dashboard": False, "object_store_memory": _STORE}
        settings |= {"_node_ip_address": "127.0.0.1"}
    try:
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).partition("\n")[0]
        raise BackendError(
            f"Ray at {address!r} cannot be used: {reason}; check that it runs, that versions agree, and its token"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray(address: str) -> Any:  # noqa: ANN401 - a module without types
    """Ray, told before it is imported who may speak to it, and where a local cluster listens."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        # The name speaks of other systems; what it does is keep every server of the cluster on the loopback.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        # Ray reads it once a process: a second cluster must have the same.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray", "ray") from error
    return ray
