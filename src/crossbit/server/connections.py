"""Connections: how many there may be, how long they may be silent, and whose input comes first."""

import asyncio
import ipaddress
import json
import time
from collections import deque
from http import HTTPStatus
from typing import Any

import httptools
from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol, RequestResponseCycle

_HEAD_SECONDS = 10.0  # that a client may take to send the head of a request
_HEAD_BYTES = 64 << 10
_MAX_PIPELINED = 16  # requests of one connection that wait for the one before
_SWEEP_SECONDS = 1.0  # between two checks of all connections
_STALL_SECONDS = 5.0  # in which a client must read _STALL_BYTES of a response that waits for it
_STALL_BYTES = 64 << 10
_CLOSE_SECONDS = 3.0  # that a closing connection has to send the rest of its response
_MAX_DEBT = 2.0  # seconds that a client may owe before its input waits for that of others
_DEBT_LIMIT = 30.0  # what a client can owe at most
_BYTES_PER_SECOND = 1 << 20  # that a client may send without owing more and more
_REFUSAL_DEBT = 5.0  # for a request that was refused, or a connection that was aborted
_SILENCE_DEBT = 0.5  # for a connection without a request
_REST = 3.0  # times as long as the event loop has worked, input of indebted clients waits
_MIN_WAIT = 0.001  # seconds between two reads from indebted clients
_MAX_WAIT = 0.02


class Throttle:
    """Reads from clients that ask too much only in the time that the others leave.

    Bytes must be read and parsed before they can be refused, in the event loop that serves all
    clients. So a client owes time for the bytes that it sends, and more for requests that are
    refused; debts are paid by waiting. The input of a client that owes much is not parsed and, in
    effect, not received: it waits in a queue, from which one connection after the other is read,
    in turns between clients, with pauses in which the event loop is free for everybody else.
    """

    def __init__(self) -> None:
        self._debts: dict[str, float] = {}  # client → when it will owe nothing
        self._waiting: dict[str, deque[BoundedProtocol]] = {}
        self._scheduled = False
        self._worked = 0.0  # CPU time of the event loop at the last read

    def __len__(self) -> int:
        """Return the number of connections that wait."""
        return sum(map(len, self._waiting.values()))

    def charge(self, client: str, seconds: float) -> None:
        """Increase the debt of a client."""
        now = time.monotonic()
        paid_at = max(self._debts.get(client, 0.0), now) + seconds
        self._debts[client] = min(paid_at, now + _DEBT_LIMIT)

    def owes(self, client: str) -> bool:
        """Return whether the input of a client must wait."""
        return self._debts.get(client, 0.0) - time.monotonic() > _MAX_DEBT

    def forget(self, now: float) -> None:
        """Drop the accounts of clients that owe nothing."""
        self._debts = {client: paid_at for client, paid_at in self._debts.items() if paid_at > now}

    def wait(self, connection: "BoundedProtocol") -> None:
        """Let a connection wait for its turn; `BoundedProtocol.take_turn` is called then."""
        self._waiting.setdefault(connection.address, deque()).append(connection)
        if not self._scheduled:
            self._schedule(connection.loop, _MIN_WAIT)

    def discard(self, connection: "BoundedProtocol") -> None:
        """Forget a connection that is closed."""
        connections = self._waiting.get(connection.address, deque())
        if connection in connections:
            connections.remove(connection)
            if not connections:
                del self._waiting[connection.address]

    def _schedule(self, loop: asyncio.AbstractEventLoop, seconds: float) -> None:
        self._scheduled = True
        self._worked = time.thread_time()
        loop.call_later(seconds, self._next, loop)

    def _next(self, loop: asyncio.AbstractEventLoop) -> None:
        """Read from one connection; the more the loop works for others, the longer is the pause."""
        worked = time.thread_time() - self._worked
        self._scheduled = False
        if not self._waiting:
            return
        client = next(iter(self._waiting))
        connections = self._waiting.pop(client)
        connection = connections.popleft()
        if connections:
            self._waiting[client] = connections  # behind all other clients
        if self._waiting:
            self._schedule(loop, min(max(_REST * worked, _MIN_WAIT), _MAX_WAIT))
        connection.take_turn()


class Connections:
    """All connections of a service: their number is limited, and stalled ones are aborted.

    When all places are taken, a client with fewer connections displaces one of the client that has
    the most: no client can take all places from the others.

    Args:
        total: Largest number of connections.
        per_client: Largest number of connections of one address.

    Attributes:
        throttle: Decides whose input is read first.
    """

    def __init__(self, total: int, per_client: int) -> None:
        self.throttle = Throttle()
        self._total = total
        self._per_client = per_client
        self._clients: dict[str, dict[BoundedProtocol, None]] = {}
        self._sweeping = False

    def __len__(self) -> int:
        """Return the number of connections."""
        return sum(map(len, self._clients.values()))

    def add(self, connection: "BoundedProtocol") -> bool:
        """Admit a connection if there is a place for it."""
        own = self._clients.get(connection.address, {})
        if len(own) >= self._per_client:
            return False
        if len(self) >= self._total:
            largest = max(self._clients.values(), key=len)
            if len(largest) <= len(own) + 1:
                return False
            idle = (other for other in largest if not other.is_busy)
            self._abort(next(idle, next(iter(largest))))
        self._clients.setdefault(connection.address, {})[connection] = None
        if not self._sweeping:
            self._sweeping = True
            connection.loop.call_later(_SWEEP_SECONDS, self._sweep, connection.loop)
        return True

    def must_wait(self, connection: "BoundedProtocol") -> bool:
        """Return whether input must wait for that of others; a client that is alone never waits.

        A proxy is one client, whatever its users do.
        """
        return len(self._clients) > 1 and self.throttle.owes(connection.address)

    def discard(self, connection: "BoundedProtocol") -> None:
        """Forget a connection."""
        own = self._clients.get(connection.address)
        if own is not None and connection in own:
            del own[connection]
            if not own:
                del self._clients[connection.address]

    def _abort(self, connection: "BoundedProtocol") -> None:
        self.discard(connection)
        connection.transport.abort()

    def _sweep(self, loop: asyncio.AbstractEventLoop) -> None:
        now = time.monotonic()
        for connections in list(self._clients.values()):
            for connection in list(connections):
                if connection.is_stalled(now):
                    self.throttle.charge(connection.address, _REFUSAL_DEBT)
                    self._abort(connection)
        self.throttle.forget(now)
        self._sweeping = bool(self._clients)
        if self._sweeping:
            loop.call_later(_SWEEP_SECONDS, self._sweep, loop)


class BoundedProtocol(HttpToolsProtocol):
    """HTTP protocol whose connections are bounded in time, memory and number of requests.

    The application only sees a request whose head is complete, and writes whole responses. So the
    protocol itself must drop clients that send a head slowly (slowloris), that do not read their
    responses, or that send requests faster than they are answered.

    Args:
        connections: The connections of the service.
        settings: Arguments of uvicorn's protocol.
    """

    def __init__(self, *, connections: Connections, **settings: Any) -> None:  # noqa: ANN401
        super().__init__(**settings)
        self.address = ""
        self._connections = connections
        self._running: RequestResponseCycle | None = None
        self._ignores_input = False
        self._held: list[bytes] = []  # input that waits for its turn
        self._held_since = 0.0
        self._in_body = False
        self._head_since = 0.0  # when the client began, or had to begin, to send a head
        self._head_bytes = 0
        self._unsent = 0  # bytes of responses at the time _unsent_since
        self._unsent_since: float | None = None
        self._closing_since: float | None = None

    @property
    def is_busy(self) -> bool:
        """Whether a request is being received or answered."""
        cycle: RequestResponseCycle | None = self.cycle
        return cycle is not None and not cycle.response_complete

    def connection_made(self, transport: asyncio.Transport) -> None:  # type: ignore[override]
        """Admit or reject the connection."""
        super().connection_made(transport)
        self.address = client_address(self.client)
        self._head_since = time.monotonic()
        if not self._connections.add(self):
            self._reject(503, "too many connections; close some, or retry later")

    def connection_lost(self, exc: Exception | None) -> None:
        """Forget the connection and its waiting requests."""
        self._connections.discard(self)
        self._connections.throttle.discard(self)
        self._held.clear()
        self._ignores_input = True
        request: RequestResponseCycle | None = self.cycle
        if request is None:
            self._charge(_SILENCE_DEBT)
        self.pipeline.clear()
        if self._running is not None:
            # uvicorn tells only the newest request of a connection that the client is gone.
            self._running.disconnected = True
            self._running.message_event.set()
        super().connection_lost(exc)

    def data_received(self, data: bytes) -> None:
        """Parse input now or, if the client asks too much, when the others leave time for it."""
        if self._ignores_input:
            return
        self._charge(len(data) / _BYTES_PER_SECOND)
        if self._held or self._connections.must_wait(self):
            if not self._held:
                self._held_since = time.monotonic()
                self._connections.throttle.wait(self)
            self._held.append(data)
            self.flow.pause_reading()
        else:
            self._parse(data)

    def take_turn(self) -> None:
        """Parse the input that has waited."""
        data = b"".join(self._held)
        self._held.clear()
        # The client answers for the time that it takes, not for the time that it waits for us.
        self._head_since += time.monotonic() - self._held_since
        if data and not self.transport.is_closing():
            self.flow.resume_reading()
            self._parse(data)

    def _charge(self, seconds: float) -> None:
        self._connections.throttle.charge(self.address, seconds)

    def _note_refusal(self) -> None:
        """Note that the application has refused a request."""
        self._charge(_REFUSAL_DEBT)

    def _parse(self, data: bytes) -> None:
        """Parse input within the limits; what follows a rejected request is ignored."""
        self._unset_keepalive_if_required()
        self._head_bytes += len(data)
        try:
            self.parser.feed_data(data)
        except httptools.HttpParserUpgrade:
            self._ignores_input = True  # another protocol would follow; the request is answered
        except httptools.HttpParserError as error:
            if not isinstance(error.__context__, _PipelineFullError):
                self._reject(400, "invalid HTTP request")
        if not self._in_body and self._head_bytes > _HEAD_BYTES:
            self._reject(431, f"the head of a request exceeds {_HEAD_BYTES:,} bytes")
        elif self.pipeline:
            self.flow.pause_reading()

    def on_message_begin(self) -> None:
        """Start the time of a head."""
        self._head_since = time.monotonic()
        super().on_message_begin()

    def on_headers_complete(self) -> None:
        """Start the request, or queue it behind the one that is being answered."""
        if len(self.pipeline) >= _MAX_PIPELINED:
            # The client repeats what is dropped here on a new connection.
            self.cycle.keep_alive = False
            self._ignores_input = True
            self._charge(_REFUSAL_DEBT)
            raise _PipelineFullError
        self._in_body = True
        self.scope["state"]["note_refusal"] = self._note_refusal
        super().on_headers_complete()
        if not self.pipeline:
            self._running = self.cycle

    def on_message_complete(self) -> None:
        """Count the bytes of the next head."""
        self._in_body = False
        self._head_bytes = 0
        super().on_message_complete()

    def on_response_complete(self) -> None:
        """Continue with the next request, or wait for one as long as connections are kept alive."""
        self._head_since = time.monotonic() + self.timeout_keep_alive
        if self.pipeline:
            self._running = self.pipeline[-1][0]
        super().on_response_complete()
        if self.pipeline:
            self.flow.pause_reading()

    def resume_writing(self) -> None:
        """Note that the client reads."""
        self._unsent_since = None
        super().resume_writing()

    def is_stalled(self, now: float) -> bool:
        """Return whether the client has stopped reading a response or sending a head."""
        unsent = self.transport.get_write_buffer_size()
        if unsent:
            if self._unsent_since is None or unsent + _STALL_BYTES <= self._unsent:
                self._unsent = unsent
                self._unsent_since = now
            return now - self._unsent_since > _STALL_SECONDS
        self._unsent_since = None
        if self.transport.is_closing():
            self._closing_since = self._closing_since or now
            return now - self._closing_since > _CLOSE_SECONDS
        waits_for_us = self.is_busy or bool(self._held)
        return not waits_for_us and now - self._head_since > _HEAD_SECONDS

    def _reject(self, status: int, message: str) -> None:
        """Send an error, unless it would interrupt a response, and close the connection."""
        self._ignores_input = True
        if status != 503:
            self._charge(_REFUSAL_DEBT)
        if not self.is_busy and not self.transport.is_closing():
            body = json.dumps({"error": message}).encode()
            head = (
                f"HTTP/1.1 {status} {HTTPStatus(status).phrase}\r\n"
                f"content-type: application/json\r\ncontent-length: {len(body)}\r\n"
                + ("retry-after: 1\r\n" if status == 503 else "")
                + "connection: close\r\n\r\n"
            )
            self.transport.write(head.encode() + body)
        self.transport.close()


class _PipelineFullError(Exception):
    """A client has sent too many requests without waiting for the responses."""


def client_address(client: tuple[str, int] | None) -> str:
    """Return the address of a client; of IPv6 the network, which one client has for itself."""
    host = client[0] if client else ""
    if ":" not in host:
        return host
    return str(ipaddress.ip_network((host.partition("%")[0], 64), strict=False))
