"""Plays systemd's part for tests: starts the service with a notify socket and a watchdog, and listens to what it says."""
from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path


class Supervisor:
    """One folder with a config, in which the service is started again and again."""

    def __init__(self, folder: Path, config: str, watchdog_s: float = 1.0):
        self.folder, self.watchdog_s = folder, watchdog_s
        self.config = folder / "service.toml"
        self.config.write_text(config)
        self.state = folder / "state"
        self.state.mkdir(exist_ok=True)
        self.said: list[tuple[float, str]] = []
        self.child: subprocess.Popen | None = None
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        self.socket.bind(str(folder / "notify"))
        threading.Thread(target=self._listen, daemon=True).start()

    def _listen(self) -> None:
        with contextlib.suppress(OSError):
            while data := self.socket.recv(65536):
                self.said += [(time.monotonic(), state) for state in data.decode().split("\n")]

    def start(self, ready: bool = True, **how) -> subprocess.Popen:
        self.said.clear()
        env = {**os.environ, "NOTIFY_SOCKET": str(self.folder / "notify"), "WATCHDOG_USEC": str(int(self.watchdog_s * 1e6)),
               "STATE_DIRECTORY": str(self.state)}
        self.log = open(self.folder / "log", "ab")  # noqa: SIM115
        self.child = subprocess.Popen([sys.executable, "-m", "colibri_edge", "service", "--config", self.config], env=env,
                                      **{"stdin": subprocess.DEVNULL, "stdout": subprocess.DEVNULL, "stderr": self.log, **how})
        if ready:
            self.wait("READY=1")
        return self.child

    def wait(self, state: str, seconds: float = 60) -> None:
        """Waits until the service has said a state that begins so."""
        end = time.monotonic() + seconds
        while not any(s.startswith(state) for _, s in self.said):
            assert time.monotonic() < end, f"{state} did not come: {self.said} {self.logged()}"
            assert self.child.poll() is None or state == "STOPPING=1", f"ended: {self.logged()}"
            time.sleep(0.01)

    def stop(self) -> float:
        """TERM; returns the seconds until the process was gone."""
        start = time.monotonic()
        self.child.send_signal(signal.SIGTERM)
        code = self.child.wait(timeout=20)
        self.log.close()
        assert code == 0, self.logged()
        return time.monotonic() - start

    def kill(self) -> None:
        self.child.kill()
        self.child.wait()
        self.log.close()

    def close(self) -> None:
        if self.child and self.child.poll() is None:
            self.kill()
        self.socket.close()

    def logged(self) -> str:
        return (self.folder / "log").read_text("utf-8")

    def waiting(self) -> list[str]:
        """Ids of accepted items."""
        return sorted(p.name.split(".")[0] for p in self.state.glob("*.item"))

    def failed(self) -> list[dict]:
        return [json.loads(p.read_text("utf-8")) for p in sorted((self.state / "failed").glob("*.json"))]


class Client:
    """A sender at the service's socket: one JSON object a line comes back."""

    def __init__(self, path: Path, seconds: float = 60):
        self.socket = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        self.socket.settimeout(seconds)
        self.socket.connect(str(path))
        self.lines = self.socket.makefile("rb")

    def send(self, text: str | bytes) -> None:
        self.socket.sendall((text.encode() if isinstance(text, str) else text) + b"\n")

    def read(self) -> dict | None:
        line = self.lines.readline()
        return json.loads(line) if line.endswith(b"\n") else None

    def close(self) -> None:
        self.lines.close()
        self.socket.close()


def until(what, seconds: float = 60) -> None:
    """Waits until what() is true."""
    end = time.monotonic() + seconds
    while not what():
        assert time.monotonic() < end, "it did not happen"
        time.sleep(0.02)
