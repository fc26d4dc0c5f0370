"""A Milvus server that nobody else can reach, for benchmarks and tests.

The server of the package ``milvus`` listens on every interface, whatever one sets. So it is only started in a network
of its own that has nothing but loopback: `in_own_network` begins a program anew in one, and

    python benchmarks/_standalone.py COMMAND...

runs a command there. That takes Linux, and root or the right to make user namespaces.
"""

import fcntl
import os
import shutil
import socket
import struct
import subprocess
import sys
import time
import urllib.request
from contextlib import suppress
from pathlib import Path
from types import TracebackType
from typing import Any, Self

USER, PASSWORD = "root", "Milvus"  # those of a fresh server


def is_own_network() -> bool:
    """Whether there is no interface but loopback."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def in_own_network(command: list[str] | None = None) -> None:
    """Begin this program, or a command, anew in a network with nothing but loopback; go on if this is one."""
    if not is_own_network():
        unshare = shutil.which("unshare")
        if unshare is None:
            raise SystemExit(
                "a network of its own takes the program 'unshare' (Linux, package util-linux)"
            )
        rights = [] if os.geteuid() == 0 else ["--map-root-user"]
        again = [
            sys.executable,
            str(Path(__file__).resolve()),
            *(command or [sys.executable, *sys.argv]),
        ]
        os.execv(unshare, ["unshare", "--net", *rights, *again])
    _raise_loopback()
    if command is not None:
        os.execvp(command[0], command)


def _raise_loopback() -> None:
    """What ``ip link set lo up`` does."""
    get, set_, up = 0x8913, 0x8914, 1  # SIOCGIFFLAGS, SIOCSIFFLAGS, IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, get, request))
        if not flags & up:
            fcntl.ioctl(any_socket, set_, struct.pack("16sh14x", b"lo", flags | up))


class Standalone:
    """A Milvus server in a process of its own, that ends when the block does, or this process.

    Args:
        folder: Where it keeps its data; it finds them again when it is started once more.
        guarded: Whether it asks for a password.
        settings: Further settings by their path in its file, such as ``{"proxy.maxTaskNum": 64}``.
    """

    def __init__(
        self, folder: Path, *, guarded: bool = True, settings: dict[str, Any] | None = None
    ) -> None:
        self.folder = folder
        self.settings = {
            "common.security.authorizationEnabled": str(guarded).lower(),
            **(settings or {}),
        }
        self.port = self.health = 0
        self.program = ""
        self.process: subprocess.Popen[bytes] | None = None

    def start(self) -> Self:
        """Start it, for the first time or again where it was, and wait until it answers."""
        if not is_own_network():
            raise RuntimeError(
                "the server would listen on every interface; begin the program with in_own_network()"
            )
        if not self.program:
            self._prepare()
        self.process = self._run()
        self._wait()
        return self

    def _prepare(self) -> None:
        """Unpack the server, and choose its ports."""
        from milvus import MilvusServer, _initialize_data_files

        server = MilvusServer(wait_for_started=False)
        server.set_base_dir(str(self.folder))
        for path, value in self.settings.items():
            server.config.set(path, value)
        server.config.resolve()
        _initialize_data_files(str(self.folder))
        self.port = server.listen_port
        self.health, reserved = server.config.resolve_port(9091)
        reserved.close()
        self.program = str(server.get_milvus_executable_path())

    def _run(self) -> "subprocess.Popen[bytes]":
        told = {
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(self.health),
            "MILVUS_RUN_DIR": str(self.folder / "run"),
            "LD_LIBRARY_PATH": str(Path(self.program).parent),
        }
        with open(self.folder / "logs" / "output.log", "ab") as log:
            return subprocess.Popen(
                # The kernel ends it when whoever started it is gone, however that came.
                ["setpriv", "--pdeathsig", "KILL", self.program, "run", "standalone"],
                env=os.environ | told,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def _wait(self, seconds: float = 120.0) -> None:
        """Until the server says that it is well."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(
                    f"the Milvus server ended at once; see {self.folder}/logs/output.log"
                )
            if self._is_well():
                return
            time.sleep(0.1)
        raise RuntimeError(f"the Milvus server did not come up within {seconds:.0f} s")

    def _is_well(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.health}/healthz", timeout=5
            ) as answer:
                return b"OK" in answer.read()
        except OSError:
            return False

    def address(self, name: str, *, port: int = 0, options: str = "") -> str:
        """The address of a collection on it, through another port perhaps."""
        credentials = (
            f"{USER}:{PASSWORD}@"
            if "true" in self.settings["common.security.authorizationEnabled"]
            else ""
        )
        return f"milvus://{credentials}127.0.0.1:{port or self.port}/{name}{options}"

    def kill(self) -> None:
        """End it as a power cut would: nothing is written any more."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """End it in good order, or else at once."""
        if self.process is not None:
            self.process.terminate()
            with suppress(subprocess.TimeoutExpired):
                self.process.wait(10)
            self.kill()

    def __enter__(self) -> Self:
        return self.start()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        trace: TracebackType | None,
    ) -> None:
        self.stop()


def cpu_seconds(group: int) -> float:
    """Processor seconds of all processes of a group so far."""
    total, tick = 0.0, os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = stat.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended
            continue
        if int(values[2]) == group:
            total += (int(values[11]) + int(values[12])) / tick
    return total


if __name__ == "__main__":
    in_own_network(sys.argv[1:])
