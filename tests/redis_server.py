"""Real redis-servers for tests, on ports of their own, ended by their process ids."""

from __future__ import annotations

import shutil
import signal
import socket
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from e2e.stack import free_ports

REDIS = shutil.which("redis-server") or "redis-server"
READY_S = 10.0


def free_port() -> int:
    return free_ports(1)[0]


@dataclass
class RedisServer:
    """Keeps nothing on disk but what its mode needs. `settings` go to its command line."""

    directory: Path
    settings: tuple[str, ...] = ()
    port: int = field(default_factory=free_port)
    process: subprocess.Popen[bytes] | None = None

    @property
    def url(self) -> str:
        return f"redis://127.0.0.1:{self.port}"

    def start(self) -> RedisServer:
        self.directory.mkdir(parents=True, exist_ok=True)
        keep_nothing = ("--save", "", "--appendonly", "no", "--dir", str(self.directory))
        argv = (REDIS, *self.settings, "--port", str(self.port), "--bind", "127.0.0.1", *keep_nothing)
        with (self.directory / "redis.log").open("ab") as log:
            self.process = subprocess.Popen(argv, stdout=log, stderr=log, stdin=subprocess.DEVNULL)
        self._until_ready()
        return self

    def freeze(self) -> None:
        self._signal(signal.SIGSTOP)

    def thaw(self) -> None:
        self._signal(signal.SIGCONT)

    def kill(self) -> None:
        """-9, and gone when this returns."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def command(self, *words: str) -> str:
        """The first bytes of the answer, as the protocol has them."""
        with socket.create_connection(("127.0.0.1", self.port), timeout=5) as connection:
            parts = [f"${len(word.encode())}\r\n{word}\r\n" for word in words]
            connection.sendall(f"*{len(words)}\r\n{''.join(parts)}".encode())
            return connection.recv(65_536).decode(errors="replace")

    def _signal(self, number: signal.Signals) -> None:
        assert self.process is not None
        self.process.send_signal(number)

    def _until_ready(self) -> None:
        deadline = time.monotonic() + READY_S
        while True:
            try:
                self.command("PING")
            except OSError:
                assert time.monotonic() < deadline, (self.directory / "redis.log").read_text()
                time.sleep(0.02)
            else:
                return
