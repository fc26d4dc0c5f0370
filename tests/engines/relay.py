"""A TCP relay to a server that can be cut, slowed down, or encrypted."""

import asyncio
import ssl
import threading
from asyncio import StreamReader, StreamWriter
from contextlib import suppress
from types import TracebackType
from typing import Self

_PIECE = 4096


class Relay:
    """Forwards connections to a port of this machine, in its own thread.

    Args:
        port: Port of the server.
        tls: Encrypts the client's side.
    """

    def __init__(self, port: int, tls: ssl.SSLContext | None = None) -> None:
        self.port = 0
        self.rate = float("inf")  # bytes per second of a connection
        self.passed = 0  # bytes so far
        self._target = port
        self._tls = tls
        self._is_cut = False
        self._writers: set[StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self._loop.run_forever, daemon=True)

    def cut(self) -> None:
        """Close all connections, and every new one immediately."""
        self._is_cut = True
        for writer in list(self._writers):
            self._loop.call_soon_threadsafe(writer.transport.abort)

    def restore(self) -> None:
        """Accept connections again."""
        self._is_cut = False

    async def _listen(self) -> int:
        self._server = await asyncio.start_server(self._connect, "127.0.0.1", 0, ssl=self._tls)
        return int(self._server.sockets[0].getsockname()[1])

    async def _connect(self, reader: StreamReader, writer: StreamWriter) -> None:
        if self._is_cut:
            writer.transport.abort()
            return
        try:
            source, target = await asyncio.open_connection("127.0.0.1", self._target)
        except OSError:  # the server is down
            writer.transport.abort()
            return
        self._writers |= {writer, target}
        await asyncio.gather(self._pump(reader, target), self._pump(source, writer))
        self._writers -= {writer, target}

    async def _pump(self, source: StreamReader, target: StreamWriter) -> None:
        with suppress(OSError):
            while piece := await source.read(_PIECE):
                await asyncio.sleep(len(piece) / self.rate)
                self.passed += len(piece)
                target.write(piece)
                await target.drain()
        target.close()

    def __enter__(self) -> Self:
        self._thread.start()
        self.port = asyncio.run_coroutine_threadsafe(self._listen(), self._loop).result(10)
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.cut()
        asyncio.run_coroutine_threadsafe(self._end(), self._loop).result(10)
        self._loop.call_soon_threadsafe(self._loop.stop)
        self._thread.join(10)
        self._loop.close()

    async def _end(self) -> None:
        self._server.close()
        ours = asyncio.current_task()
        tasks = [task for task in asyncio.all_tasks() if task is not ours]
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
