"""An isolated Milvus server for benchmarks and tests.

The server of the package ``milvus`` listens on every interface, regardless of its settings.
Therefore it only runs in a network namespace that has nothing but loopback: `in_own_network`
restarts the program in one, and

    python benchmarks/_standalone.py COMMAND...

runs a command there. This needs Linux, and root or the right to create user namespaces.
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

USER = "root"  # the default credentials of a new server
PASSWORD = "Milvus"


def is_own_network() -> bool:
    """Return whether loopback is the only network interface."""
    return [name for _, name in socket.if_nameindex()] == ["lo"]


def in_own_network(command: list[str] | None = None) -> None:
    """Restart this program, or run a command, in a network namespace with loopback only.

    Returns if the process already runs in one and no command is given.
    """
    if not is_own_network():
        unshare = shutil.which("unshare")
        if unshare is None:
            raise SystemExit(
                "a network namespace needs the program 'unshare' (Linux, package util-linux)"
            )
        rights = [] if os.geteuid() == 0 else ["--map-root-user"]
        restart = [
            sys.executable,
            str(Path(__file__).resolve()),
            *(command or [sys.executable, *sys.argv]),
        ]
        os.execv(unshare, ["unshare", "--net", *rights, *restart])
    _raise_loopback()
    if command is not None:
        os.execvp(command[0], command)


def _raise_loopback() -> None:
    """Do what ``ip link set lo up`` does."""
    get = 0x8913  # SIOCGIFFLAGS
    set_ = 0x8914  # SIOCSIFFLAGS
    up = 1  # IFF_UP
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as any_socket:
        request = struct.pack("16sh14x", b"lo", 0)
        (flags,) = struct.unpack("16xh14x", fcntl.ioctl(any_socket, get, request))
        if not flags & up:
            fcntl.ioctl(any_socket, set_, struct.pack("16sh14x", b"lo", flags | up))


class Standalone:
    """A Milvus server in a subprocess, which ends with the block or with this process.

    Args:
        folder: Folder for its data, which survives a restart.
        guarded: Whether the server requires a password.
        settings: Further settings by their path in its configuration file, such as
            ``{"proxy.maxTaskNum": 64}``.
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
        """Start or restart the server, and wait until it answers."""
        if not is_own_network():
            raise RuntimeError(
                "the server would listen on every interface; call in_own_network() first"
            )
        if not self.program:
            self._prepare()
        self.process = self._run()
        self._wait()
        return self

    def _prepare(self) -> None:
        """Unpack the server and choose its ports."""
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
        environment = {
            "DEPLOY_MODE": "STANDALONE",
            "METRICS_PORT": str(self.health),
            "MILVUS_RUN_DIR": str(self.folder / "run"),
            "LD_LIBRARY_PATH": str(Path(self.program).parent),
        }
        with open(self.folder / "logs" / "output.log", "ab") as log:
            return subprocess.Popen(
                # The kernel kills the server when this process ends, for whatever reason.
                ["setpriv", "--pdeathsig", "KILL", self.program, "run", "standalone"],
                env=os.environ | environment,
                cwd=self.folder,
                stdout=log,
                stderr=log,
            )

    def _wait(self, seconds: float = 120.0) -> None:
        """Wait until the server reports that it is healthy."""
        end = time.monotonic() + seconds
        while time.monotonic() < end:
            if self.process is None or self.process.poll() is not None:
                raise RuntimeError(f"the Milvus server exited; see {self.folder}/logs/output.log")
            if self._is_healthy():
                return
            time.sleep(0.1)
        raise RuntimeError(f"the Milvus server did not start within {seconds:.0f} s")

    def _is_healthy(self) -> bool:
        try:
            with urllib.request.urlopen(
                f"http://127.0.0.1:{self.health}/healthz", timeout=5
            ) as response:
                return b"OK" in response.read()
        except OSError:
            return False

    def address(self, name: str, *, port: int = 0, options: str = "") -> str:
        """Return the URI of a collection on the server, optionally through another port."""
        credentials = (
            f"{USER}:{PASSWORD}@"
            if "true" in self.settings["common.security.authorizationEnabled"]
            else ""
        )
        return f"milvus://{credentials}127.0.0.1:{port or self.port}/{name}{options}"

    def kill(self) -> None:
        """Kill the server without letting it write anything, like a power failure."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def stop(self) -> None:
        """Stop the server gracefully, or kill it after 10 s."""
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
    """Return the CPU seconds of all processes of a process group so far."""
    total = 0.0
    tick = os.sysconf("SC_CLK_TCK")
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            values = stat.read_text().rpartition(")")[2].split()
        except OSError:  # the process has ended
            continue
        if int(values[2]) == group:
            total += (int(values[11]) + int(values[12])) / tick
    return total


if __name__ == "__main__":
    in_own_network(sys.argv[1:])
