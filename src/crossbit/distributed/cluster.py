"""Connect to a Ray cluster, or start a local one for as long as it is needed."""

import os
import secrets
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from crossbit._validation import check_integer
from crossbit.errors import BackendError, MissingExtraError

LOCAL = "local"
# Bytes of a local cluster's object store; only codes pass through it, rows are read from files.
_OBJECT_STORE = 200 << 20


@contextmanager
def connected(address: str, *, workers: int) -> Iterator[Any]:
    """Connect to a Ray cluster for the duration of a block.

    Ray authenticates callers with a token: ``RAY_AUTH_MODE=token`` is set unless the environment
    sets it, and the token comes from ``RAY_AUTH_TOKEN``, ``RAY_AUTH_TOKEN_PATH`` or
    ``~/.ray/auth_token``. If this process is already connected, that connection is used and stays
    open.

    Args:
        address: Address such as ``"10.0.0.1:6379"``; ``"local"`` starts a cluster on this machine,
            which listens on the loopback interface only and has a token of its own, and stops it.
        workers: Number of workers that will be requested; a local cluster has as many CPUs.

    Yields:
        The module ``ray``.

    Raises:
        MissingExtraError: Ray is not installed.
        BackendError: No cluster answers at the address, or it refuses the connection.
    """
    check_integer(workers, "workers", least=1)
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
        settings |= {
            "num_cpus": workers,
            "include_dashboard": False,
            "object_store_memory": _OBJECT_STORE,
            "_node_ip_address": "127.0.0.1",
        }
    try:
        ray.init(**settings)
    except (ConnectionError, RuntimeError, ValueError, ray.exceptions.RayError) as error:
        reason = str(error).partition("\n")[0]
        raise BackendError(
            f"cannot connect to Ray at {address!r}: {reason};"
            " check that it is running, that the versions match, and its token"
        ) from error
    try:
        yield ray
    finally:
        ray.shutdown()


def _import_ray(address: str) -> Any:  # noqa: ANN401 - Ray is not typed
    """Import Ray after setting the environment variables that it reads at import."""
    os.environ.setdefault("RAY_AUTH_MODE", "token")
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address == LOCAL:
        # Despite its name, this keeps all servers of the cluster on the loopback interface.
        os.environ.setdefault("RAY_ENABLE_WINDOWS_OR_OSX_CLUSTER", "0")
        # Ray reads the token once per process, so a second local cluster must have the same one.
        os.environ.setdefault("RAY_AUTH_TOKEN", secrets.token_hex(32))
    try:
        import ray
    except ImportError as error:
        raise MissingExtraError("ray") from error
    return ray
