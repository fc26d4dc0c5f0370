"""Access and limits of a service."""

from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path

from crossbit._validation import check_integer
from crossbit.collection.collection import Collection
from crossbit.errors import DataError
from crossbit.kernels.dispatch import available_cores

LOOPBACK = ("127.0.0.1", "localhost", "::1")
"""Host names of this machine."""


@dataclass(frozen=True, kw_only=True)
class ServerConfig:
    """Access and limits of a service.

    Args:
        default: Name of the collection at ``/api/…``; None takes the first one.
        token: Clients must send it as ``Authorization: Bearer …``; None admits everybody.
        token_file: File of tokens with rights, instead of one token; see `security.Tokens`.
        access_log: File to which a line of JSON is added for every request; ``"-"`` is stdout.
        writable: Whether clients may add and delete items.
        images: Folder of the items' images, or what returns it for a collection; None shows none.
        allowed_hosts: Host names that the service answers to, ``"*"`` for any. The check stops
            pages of other sites that resolve their own name to this machine (DNS rebinding).
        max_body_bytes: Largest request body.
        max_waiting_bytes: Largest sum of all request bodies in memory.
        body_timeout: Seconds that a client may take to send a body.
        request_timeout: Seconds that a request may take.
        max_requests: Number of requests in progress; further ones are answered with 503.
        threads: Number of requests processed at once.
        queue_size: Number of requests that may wait for a thread; further ones are answered with
            503.
    """

    default: str | None = None
    token: str | None = None
    token_file: Path | None = None
    access_log: str | None = None
    writable: bool = False
    images: Path | Callable[[Collection], Path | None] | None = None
    allowed_hosts: tuple[str, ...] = LOOPBACK
    max_body_bytes: int = 16 << 20
    max_waiting_bytes: int = 128 << 20
    body_timeout: float = 20.0
    request_timeout: float = 30.0
    max_requests: int = 512
    threads: int = field(default_factory=available_cores)
    queue_size: int = 256

    def __post_init__(self) -> None:
        """Validate the values; an empty token would admit everybody."""
        if self.token is not None and not (
            self.token and self.token.isascii() and self.token.isprintable()
        ):
            raise DataError("token must be one or more printable ASCII characters")
        if isinstance(self.images, Path) and not self.images.is_dir():
            raise DataError(f"{self.images}: expected an existing folder of images")
        check_integer(self.queue_size, "queue_size", least=0)
        for name in ("threads", "max_body_bytes", "max_waiting_bytes", "max_requests"):
            check_integer(getattr(self, name), name, least=1)
