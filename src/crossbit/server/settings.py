"""Settings: who may ask, how much, how long, and where pictures are."""

import os
from dataclasses import dataclass, field
from pathlib import Path

from crossbit._validation import check_integer
from crossbit.errors import DataError

LOOPBACK = ("127.0.0.1", "localhost", "::1")


@dataclass(frozen=True, kw_only=True)
class Settings:
    """What a service allows.

    Args:
        token: Whoever asks must send it as ``Authorization: Bearer …``; nobody must if None.
        writable: Whether items can be added and deleted.
        media: The folder that the pictures of items are in; no pictures are shown if None.
        hosts: The names by which the service may be called: a page elsewhere that resolves its own name to this machine
            is refused.
        body_bytes: Longest body of a request.
        body_seconds: How long a client may take to send one.
        work_seconds: How long an answer may take.
        threads: How many answers are worked on at once.
        waiting: How many more may wait for their turn; the next is told to come back later.
    """

    token: str | None = None
    writable: bool = False
    media: Path | None = None
    hosts: tuple[str, ...] = LOOPBACK
    body_bytes: int = 16 << 20
    body_seconds: float = 20.0
    work_seconds: float = 30.0
    threads: int = field(default_factory=lambda: os.cpu_count() or 1)
    waiting: int = 256

    def __post_init__(self) -> None:
        """Refuse settings that would let nobody in, or an empty token that would let everybody."""
        if self.token is not None and (
            not self.token or not self.token.isascii() or not self.token.isprintable()
        ):
            raise DataError(
                "a token is made of printable ASCII characters, at least one; got another"
            )
        if self.media is not None and not self.media.is_dir():
            raise DataError(f"{self.media}: the folder of pictures is not there; name another one")
        check_integer(self.threads, "the number of threads", least=1)
        check_integer(self.waiting, "the number of requests that may wait", least=0)
        check_integer(self.body_bytes, "the longest body, in bytes,", least=1)
