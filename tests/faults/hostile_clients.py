"""Hostile clients of one kind: python hostile_clients.py KIND PORT CLIENTS.

Every client has an address of its own and repeats its attack, whatever the service answers. The
process only gets the time that others leave: the service and its polite client share the cores with
it, while real attackers would bring their own.
"""

import asyncio
import contextlib
import io
import json
import os
import random
import socket
import struct
import sys
from collections.abc import Awaitable, Callable
from functools import cache

Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


class Attacker:
    """One client: where it connects to, and from which address."""

    def __init__(self, port: int, address: str, number: int) -> None:
        self.port = port
        self.address = address
        self.random = random.Random(number)
        self.number = number

    async def connect(self, *, receive_buffer: int | None = None) -> Connection:
        """Open a connection."""
        connection = socket.socket()
        if receive_buffer is not None:
            connection.setsockopt(socket.SOL_SOCKET, socket.SO_RCVBUF, receive_buffer)
        connection.setblocking(False)
        connection.bind((self.address, 0))
        try:
            loop = asyncio.get_running_loop()
            await loop.sock_connect(connection, ("127.0.0.1", self.port))
            return await asyncio.open_connection(sock=connection)
        except BaseException:
            connection.close()
            raise

    async def post(
        self, path: str, body: bytes, content_type: str = "application/json", headers: str = ""
    ) -> None:
        """Send a request and read the beginning of the answer."""
        reader, writer = await self.connect()
        try:
            writer.write(head("POST", path, len(body), content_type, headers) + body)
            await writer.drain()
            await reader.read(4096)
        finally:
            writer.transport.abort()


def head(
    method: str, path: str, length: int | None, content_type: str = "", headers: str = ""
) -> bytes:
    """Return the head of a request."""
    lines = [f"{method} {path} HTTP/1.1", "Host: localhost"]
    if length is not None:
        lines.append(f"Content-Length: {length}")
    if content_type:
        lines.append(f"Content-Type: {content_type}")
    return ("\r\n".join(lines) + "\r\n" + headers + "\r\n").encode()


async def slow_head(client: Attacker) -> None:
    """Open connections, and send a byte of the head per second."""
    connections = [await client.connect() for _ in range(5)]
    try:
        for byte in head("GET", "/" + "a" * 60, None):
            for _, writer in connections:
                writer.write(bytes([byte]))
                await writer.drain()
            await asyncio.sleep(1)
    finally:
        for _, writer in connections:
            writer.transport.abort()


async def slow_body(client: Attacker) -> None:
    """Send 15 of 16 MB of a picture, then a byte per second."""
    _, writer = await client.connect()
    try:
        writer.write(head("POST", "/api/search", 16 << 20, "multipart/form-data; boundary=line"))
        for _ in range(15):
            writer.write(bytes(1 << 20))
            await writer.drain()
        while True:
            writer.write(b"\0")
            await writer.drain()
            await asyncio.sleep(1)
    finally:
        writer.transport.abort()


async def never_read(client: Attacker) -> None:
    """Request more than the buffers hold, and read nothing."""
    _, writer = await client.connect(receive_buffer=2048)
    assert isinstance(writer.transport, asyncio.Transport)
    writer.transport.pause_reading()
    try:
        writer.write(head("GET", "/page/style.css", None) * 700)
        await writer.drain()
        while not writer.transport.is_closing():
            await asyncio.sleep(1)
            writer.write(head("GET", "/page/style.css", None))
            await writer.drain()
    finally:
        writer.transport.abort()


async def pipeline_flood(client: Attacker) -> None:
    """Send thousands of requests without waiting for the answers."""
    reader, writer = await client.connect()
    try:
        path = client.random.choice(["/healthz", "/api/items?limit=100", "/page/main.js"])
        writer.write(head("GET", path, None) * 3000)
        while await reader.read(1 << 16):
            pass
    finally:
        writer.transport.abort()


async def giant_json(client: Attacker) -> None:
    """Send megabytes of JSON that is invalid in every element."""
    await client.post(*client.random.choice(giant_bodies()))


async def giant_filter(client: Attacker) -> None:
    """Search with as many values as a filter takes, and with many more."""
    await client.post("/api/search", client.random.choice(giant_filters()))


async def image_bomb(client: Attacker) -> None:
    """Upload small files that decode to many pixels."""
    part = b'--line\r\nContent-Disposition: form-data; name="file"; filename="a"\r\n\r\n'
    body = part + client.random.choice(image_bombs()) + b"\r\n--line--\r\n"
    await client.post("/api/search", body, "multipart/form-data; boundary=line")


async def half_open(client: Attacker) -> None:
    """Open connections without a request, and reset some of them."""
    connections = [await client.connect() for _ in range(20)]
    await asyncio.sleep(client.random.random())
    for number, (_, writer) in enumerate(connections):
        if number % 2:
            linger = struct.pack("ii", 1, 0)
            raw = writer.get_extra_info("socket")
            raw.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, linger)
        writer.transport.abort()


async def foreign_page(client: Attacker) -> None:
    """Send what a page of another site could: foreign origins, hosts and content types."""
    body = b'{"items":[{"id":"csrf","payload":{"x":1}}]}'
    content_type, headers = client.random.choice(
        [
            ("text/plain", ""),
            ("", ""),
            ("application/json", "Origin: http://evil.example\r\n"),
            ("multipart/form-data; boundary=x", "Origin: null\r\n"),
            ("application/json", "Transfer-Encoding: chunked\r\n"),
        ]
    )
    await client.post("/api/items", body, content_type, headers)


async def garbage(client: Attacker) -> None:
    """Send bytes that are no HTTP, heads without an end, and other protocols."""
    reader, writer = await client.connect()
    try:
        writer.write(
            client.random.choice(
                [
                    client.random.randbytes(10_000),
                    b"GET / HTTP/1.1\r\n" + b"X-More: " + b"y" * 500_000,
                    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n",
                    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(500),
                    head("GET", "/", None, headers="Connection: Upgrade\r\nUpgrade: websocket\r\n"),
                    head("POST", "/api/search", None, headers="Transfer-Encoding: chunked\r\n")
                    + b"ffffffffffffffff\r\n"
                    + bytes(1000),
                    b"\r\n" * 5000,
                ]
            )
        )
        await writer.drain()
        await reader.read(4096)
    finally:
        writer.transport.abort()


KINDS: dict[str, Callable[[Attacker], Awaitable[None]]] = {
    attack.__name__: attack
    for attack in (
        slow_head,
        slow_body,
        never_read,
        pipeline_flood,
        giant_json,
        giant_filter,
        image_bomb,
        half_open,
        foreign_page,
        garbage,
    )
}


@cache
def giant_bodies() -> list[tuple[str, bytes]]:
    """Return bodies that parsers and validators need much time or memory for."""
    row = b'{"id":1,"features":{"image":[' + b'"x",' * 65_000 + b'"x"]}}'
    return [
        ("/api/items", b'{"items":[' + row + (b"," + row) * 59 + b"]}"),
        ("/api/items", b'{"items":[' + b"{}," * 5_000_000 + b"{}]}"),
        ("/api/items", b'{"items":[' + b'{"id":1},' * 19_000 + b"{}]}"),
        ("/api/search", b'{"features":[' + b'"x",' * 65_535 + b'"x"]}'),
        ("/api/search", b'{"features":[' + b"0.12345678901234567," * 65_535 + b'"x"]}'),
        ("/api/search", b'{"text":"' + b"a" * (16 << 20) + b'"}'),
    ]


@cache
def giant_filters() -> list[bytes]:
    """Return a search with as many values as a filter takes, and one with more."""
    filters = [{"year": {"in": list(range(-count, 0))}} for count in (10_000, 400_000)]
    return [json.dumps({"text": "red", "filter": filter_}).encode() for filter_ in filters]


@cache
def image_bombs() -> list[bytes]:
    """Return pictures of as many pixels as uploads may have, and of more, in a few kilobytes."""
    from PIL import Image

    bombs = []
    for kind, settings in (("PNG", {}), ("WEBP", {"lossless": True, "quality": 0}), ("GIF", {})):
        mode = "P" if kind == "GIF" else "RGBA"
        for size in ((3464, 3464), (7000, 7000)):
            out = io.BytesIO()
            Image.new(mode, size).save(out, kind, **settings)
            bombs.append(out.getvalue())
    return bombs


PREPARATIONS: dict[str, Callable[[], object]] = {
    "giant_json": giant_bodies,
    "giant_filter": giant_filters,
    "image_bomb": image_bombs,
}


async def repeat(client: Attacker, attack: Callable[[Attacker], Awaitable[None]]) -> None:
    """Repeat an attack until the process ends."""
    while True:
        with contextlib.suppress(OSError):
            await attack(client)
        await asyncio.sleep(0)


async def main(kind: str, port: int, clients: int) -> None:
    """Run clients of one kind until the standard input ends, as it does with the parent."""
    if kind in PREPARATIONS:
        PREPARATIONS[kind]()
    os.nice(19)
    if hasattr(os, "SCHED_IDLE"):
        os.sched_setscheduler(0, os.SCHED_IDLE, os.sched_param(0))
    sys.stdout.write("ready\n")
    sys.stdout.flush()
    block = 1 + list(KINDS).index(kind)
    attackers = [Attacker(port, f"127.{block}.0.{n + 1}", 100 * block + n) for n in range(clients)]
    running = asyncio.gather(*(repeat(attacker, KINDS[kind]) for attacker in attackers))
    await asyncio.to_thread(sys.stdin.read)
    running.cancel()


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
