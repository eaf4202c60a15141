"""Where items come from: timer, stdin, FIFO, Unix socket, folder, MQTT.

Owns: one class a kind. start() begins a daemon thread that puts items into the spool; `ended` turns true when no more will come. An
item is acknowledged (an answer on the socket, PUBACK, a file moved to done/) only when the spool holds it or its answer is delivered.
Refuses: lines that are too long or no UTF-8: they are recorded as failed, and the source goes on.
"""
from __future__ import annotations

import contextlib
import fnmatch
import json
import os
import socket
import stat
import sys
import threading
import time

from colibri_edge.apps.service.spool import Full, Spool

CONNECTIONS = 64


class Source:
    """spec: the [source] table; refuse(text, source, reason): records an item that was not accepted."""

    def __init__(self, config, spool: Spool, log, refuse):
        self.config, self.spec, self.spool, self.log, self.refuse = config, config.source, spool, log, refuse
        self.kind = self.spec["kind"]
        self.ended = False
        self.stopping = threading.Event()

    def open(self) -> None:
        """Takes what can fail (paths, ports), before the service says that it is ready."""

    def start(self) -> None:
        threading.Thread(target=self._thread, name=f"source {self.kind}", daemon=True).start()

    def close(self) -> None:
        self.stopping.set()

    def finished(self, item) -> None:
        """An item of this source was answered or recorded as failed."""

    def _thread(self) -> None:
        try:
            self.run()
        except Exception as e:      # a source that ends is told, not hidden: the loop finishes what it has and exits with an error
            self.log("source failed", "error", source=self.kind, error=f"{type(e).__name__}: {e}")
            self.broken = e
        finally:
            self.ended = True
            self.spool.wake()

    broken: Exception | None = None

    def run(self) -> None:
        raise NotImplementedError

    def put(self, text: str, **more):
        """Puts an item, waiting while the queue is full: a pipe holds its writer, a broker its messages."""
        while not self.stopping.is_set():
            try:
                return self.spool.put(text, self.kind, **more)
            except Full:
                time.sleep(0.1)
        return None

    def line(self, raw: bytes, **more):
        """Puts a line; None where it is empty or was refused."""
        raw = raw.rstrip(b"\r\n")
        if not raw:
            return None
        if problem := self.problem(raw):
            self.refuse(raw[:200].decode("utf-8", "replace"), self.kind, problem)
            return None
        return self.put(raw.decode(), **more)

    def problem(self, raw: bytes) -> str | None:
        if len(raw) > self.spec["max_bytes"]:
            return f"more than {self.spec['max_bytes']} bytes (max_bytes in [source])"
        try:
            raw.decode()
        except UnicodeDecodeError as e:
            return f"byte {e.start} is 0x{raw[e.start]:02x}, which is not UTF-8"
        return None

    def lines(self, read) -> None:
        """Puts each line that read(n) brings until it returns b""; a line over max_bytes is dropped as it comes."""
        held, skip = b"", False
        while not self.stopping.is_set() and (more := read(65536)):
            *whole, held = (held + more).split(b"\n")
            for raw in whole:
                if not skip:
                    self.line(raw)
                skip = False
            if len(held) > self.spec["max_bytes"]:
                if not skip:
                    self.line(held)     # refused: too long
                held, skip = b"", True
        if held and not skip:
            self.line(held)


class Timer(Source):
    """A tick an item; ticks that pass while one is answered are left out."""

    def run(self) -> None:
        count, due = 0, time.monotonic()
        while not self.stopping.wait(max(0.0, due - time.monotonic())):
            if not len(self.spool):
                self.spool.put(time.strftime("%Y-%m-%d %H:%M:%S"), self.kind, keep=False)
                count += 1
            if count == self.spec["count"]:
                return
            due = max(due + self.spec["every"], time.monotonic())


class Stdin(Source):
    def run(self) -> None:
        if sys.stdin is not None:
            fd = sys.stdin.fileno()
            self.lines(lambda n: os.read(fd, n))


class Fifo(Source):
    """Made if absent. Opened for reading and writing, so that it does not end with its writers."""

    def open(self) -> None:
        path = self.config.beside(self.spec["path"])
        if not path.exists():
            os.mkfifo(path, 0o660)
        if not stat.S_ISFIFO(path.stat().st_mode):
            raise OSError(f"{path} is no FIFO; remove it or take another path")
        self.fd = os.open(path, os.O_RDWR)

    def run(self) -> None:
        self.lines(lambda n: os.read(self.fd, n))


class SocketSource(Source):
    """A line an item; each is answered with {"accepted": ID} or {"refused": why}, and with its result when it is there."""

    def open(self) -> None:
        path = self.path = self.config.beside(self.spec["path"])
        self.listener = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
        if path.exists():
            if not stat.S_ISSOCK(path.stat().st_mode):
                raise OSError(f"{path} is no socket; remove it or take another path")
            with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as probe, contextlib.suppress(ConnectionRefusedError):
                probe.connect(str(path))
                raise OSError(f"{path}: another process listens there")
            path.unlink()
        self.listener.bind(str(path))
        os.chmod(path, self.spec["mode"])
        self.listener.listen(16)
        self.slots = threading.Semaphore(CONNECTIONS)

    def close(self) -> None:
        super().close()
        with contextlib.suppress(OSError):
            self.path.unlink()

    def run(self) -> None:
        while not self.stopping.is_set():
            connection, _ = self.listener.accept()
            self.slots.acquire()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        lock = threading.Lock()

        def say(what: dict) -> None:
            with lock, contextlib.suppress(OSError):
                connection.sendall(json.dumps(what, ensure_ascii=False).encode() + b"\n")

        how = socket.SHUT_RD        # a sender that has ended still gets its results
        try:
            with contextlib.suppress(OSError), connection.makefile("rb") as f:
                while raw := f.readline(self.spec["max_bytes"] + 2):
                    if not self.answer(raw, say):
                        how = socket.SHUT_RDWR
                        break
        finally:
            with contextlib.suppress(OSError):
                connection.shutdown(how)
            self.slots.release()

    def answer(self, raw: bytes, say) -> bool:
        """Accepts or refuses one line; False where the connection cannot go on."""
        cut = not raw.endswith(b"\n") and len(raw) > self.spec["max_bytes"]
        raw = raw.rstrip(b"\r\n")
        if not raw:
            return True
        if problem := self.problem(raw):
            self.refuse(raw[:200].decode("utf-8", "replace"), self.kind, problem)
            say({"refused": problem})
            return not cut
        try:
            held = _After()
            item = self.spool.put(raw.decode(), self.kind, reply=held)
        except (Full, OSError) as e:
            say({"refused": str(e)})
            return True
        say({"accepted": item.id})
        held.ready(say if self.spec["reply"] else None)
        return True


class _After:
    """A reply that comes after the acknowledgement, however quick the answer was."""

    def __init__(self):
        self.event = threading.Event()
        self.say = None

    def ready(self, say) -> None:
        self.say = say
        self.event.set()

    def __call__(self, what: dict) -> None:
        self.event.wait(5)
        if self.say:
            self.say(what)


class Folder(Source):
    """Files whose names match; each is moved to done/ or failed/ beside it. Names that begin with a dot are left alone: write under
    such a name, then rename. The file is its own queue, so nothing is lost while it lies there."""

    def open(self) -> None:
        self.folder = self.config.beside(self.spec["path"])
        os.listdir(self.folder)
        self.known: set[str] = set()

    def run(self) -> None:
        while True:
            present = set()
            for entry in sorted(os.scandir(self.folder), key=lambda e: e.name):
                if entry.name.startswith(".") or not fnmatch.fnmatch(entry.name, self.spec["pattern"]) or not entry.is_file():
                    continue
                present.add(entry.name)
                if entry.name not in self.known and self.put(None, path=self.folder / entry.name) is not None:
                    self.known.add(entry.name)
            self.known &= present
            if self.stopping.wait(self.spec["poll"]):
                return

    def finished(self, item) -> None:
        if item.path is not None:
            self.known.discard(item.path.name)      # the name is free again

    def read(self, path) -> str:
        """An item's text. Raises ValueError, OSError."""
        with open(path, "rb") as f:
            raw = f.read(self.spec["max_bytes"] + 1)
        if problem := self.problem(raw):
            raise ValueError(problem)
        return raw.decode().strip()


class MqttSource(Source):
    """Messages of a topic, acknowledged to the broker when the spool holds them."""

    def open(self) -> None:
        from colibri_edge.apps.service.mqtt import connect

        self.client = connect(self.config, {**self.spec, "client": self.spec["client"] or f"colibri-edge-{socket.gethostname()}"},
                              clean_session=False, manual_ack=True)
        self.client.on_connect = self.connected
        self.client.on_message = self.message

    def connected(self, client, userdata, flags, reason, properties) -> None:
        self.log("mqtt connected", host=self.spec["host"], reason=str(reason))
        client.subscribe(self.spec["topic"], self.spec["qos"])

    def message(self, client, userdata, message) -> None:
        self.line(message.payload)
        if not self.stopping.is_set():
            client.ack(message.mid, message.qos)

    def run(self) -> None:
        self.client.loop_forever(retry_first_connection=True)

    def close(self) -> None:
        super().close()
        self.client.disconnect()


KINDS = {"timer": Timer, "stdin": Stdin, "fifo": Fifo, "socket": SocketSource, "folder": Folder, "mqtt": MqttSource}


def make(config, spool: Spool, log, refuse) -> Source:
    """The source of a config, not yet opened."""
    return KINDS[config.source["kind"]](config, spool, log, refuse)
