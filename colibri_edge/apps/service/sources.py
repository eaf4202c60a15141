"""Where items come from: timer, stdin, FIFO, Unix socket, folder, MQTT.

Owns: one class a kind. start() begins a daemon thread that puts items into the spool; `ended` turns true when no more will come. An
item is acknowledged (an answer on the socket, PUBACK, a file moved to done/) only when the spool holds it or its answer is delivered.
Refuses: lines that are too long or no UTF-8: they are recorded as failed, and the source goes on.
"""
from __future__ import annotations

import contextlib
import fnmatch
import os
import select
import socket
import stat
import sys
import threading
import time

from colibri_edge.apps.service.spool import Full, Spool, encode, which

CONNECTIONS = 64
PATIENCE_S = 30.0               # with a sender at the socket who reads nothing
BEHIND = 1 << 20                # bytes that such a one may leave unread
RETRY_S = 1.0                   # between attempts to keep an item that the disk does not take
CLOSE_S = 1.0                   # for the line that a pipe's thread has in hand


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
        self.thread = threading.Thread(target=self._thread, name=f"source {self.kind}", daemon=True)
        self.thread.start()

    def stop(self) -> None:
        """Nothing more is to be accepted. From any thread, as soon as a signal says so."""
        self.stopping.set()

    def close(self) -> None:
        self.stop()

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
    thread: threading.Thread | None = None

    def run(self) -> None:
        raise NotImplementedError

    def put(self, text: str, **more):
        """Puts an item, waiting while the queue or its disk is full: a pipe holds its writer, a broker its messages. None at a stop."""
        told = False
        while not self.stopping.is_set():
            try:
                return self.spool.put(text, self.kind, **more)
            except Full:
                self.stopping.wait(0.1)
            except OSError as e:
                if not told:
                    self.log("item not kept, trying on", "error", source=self.kind, error=str(e))
                told = True
                self.stopping.wait(RETRY_S)
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


class Timer(Source):
    """A tick an item; ticks that pass while one is answered are left out."""

    def run(self) -> None:
        count, due = 0, time.monotonic()
        while not self.stopping.wait(max(0.0, due - time.monotonic())):
            if not len(self.spool):
                self.spool.put(time.strftime("%Y-%m-%d %H:%M:%S"), self.kind, keep=False)
                count += 1
            if self.spec["count"] and count >= self.spec["count"]:
                return
            due = max(due + self.spec["every"], time.monotonic())


class Pipe(Source):
    """A line an item. What is read is in no pipe any more, so it is read byte by byte and no further than one line: the next one when
    that one is kept. A byte costs 4 to 5 us, a token of its answer a thousand times that."""

    fd: int
    poll = None                 # none on Windows: there a stop may lose a line that has just begun

    def __init__(self, *args):
        super().__init__(*args)
        self.bell = socket.socketpair()         # ends the wait for a byte

    def stop(self) -> None:
        super().stop()
        self.bell[1].send(b"!")

    def close(self) -> None:
        super().close()
        if self.thread:
            self.thread.join(CLOSE_S if self.poll else 0.1)

    def run(self) -> None:
        if hasattr(select, "poll"):
            self.poll = select.poll()
            for fd in (self.fd, self.bell[0].fileno()):
                self.poll.register(fd, select.POLLIN)
        held, most = bytearray(), self.spec["max_bytes"] + 2        # \r, and one that shows that it is too long
        while byte := self.byte(0 < len(held) < most):
            if byte == b"\n":
                self.line(bytes(held))
                held.clear()
            elif len(held) < most:
                held += byte
            else:
                held[-1:] = b"-"                # too long, whatever its end is
        if held and self.stopping.is_set():
            self.log("stopped inside a line; its begin is an item", "warning", source=self.kind, bytes=len(held))
        self.line(bytes(held))

    def byte(self, inside: bool) -> bytes:
        """The next byte; b"" at the end and at a stop, which takes nothing more but the rest of a line, if that is there."""
        while True:
            stop = self.stopping.is_set()
            there = any(fd == self.fd for fd, _ in self.poll.poll(0 if stop else None)) if self.poll else not stop
            if stop and not (inside and there):
                return b""
            if there:
                return os.read(self.fd, 1)

    def put(self, text: str, **more):
        """At a stop the line in hand is kept whatever the limit."""
        item = super().put(text, **more)
        if item is None:
            try:
                item = self.spool.put(text, self.kind, over=True, **more)
            except OSError as e:
                self.log("line lost", "error", source=self.kind, error=str(e), text=text)
        return item


class Stdin(Pipe):
    def run(self) -> None:
        if sys.stdin is not None:
            self.fd = sys.stdin.fileno()
            super().run()


class Fifo(Pipe):
    """Made if absent. Opened for reading and writing, so that it does not end with its writers."""

    def open(self) -> None:
        path = self.config.beside(self.spec["path"])
        if not path.exists():
            os.mkfifo(path, 0o660)
        if not stat.S_ISFIFO(path.stat().st_mode):
            raise OSError(f"{path} is no FIFO; remove it or take another path")
        self.fd = os.open(path, os.O_RDWR)


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
            try:
                connection, _ = self.listener.accept()
            except OSError as e:        # too many open files, say: there will be fewer
                self.log("connection not accepted", "warning", error=str(e))
                self.stopping.wait(RETRY_S)
                continue
            self.slots.acquire()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        say = _Say(connection, self.log)
        how = socket.SHUT_RD        # a sender that has ended still gets its results
        try:
            with contextlib.suppress(OSError), connection.makefile("rb") as f:
                while raw := f.readline(self.spec["max_bytes"] + 2):
                    more = self.answer(raw, say)
                    say.wait()          # who does not read is not read either
                    if not more:
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


class _Say:
    """Tells one sender, in order. The loop waits for no reader: what the kernel does not take at once is sent on by a thread, and a
    sender who reads nothing for PATIENCE_S or leaves more than BEHIND bytes is cut off. Its items are answered all the same."""

    def __init__(self, connection: socket.socket, log):
        self.connection, self.log = connection, log
        self.changed = threading.Condition()
        self.left = bytearray()         # a thread is at it while there is something
        self.deaf = False

    def __call__(self, what: dict) -> None:
        with self.changed:
            if self.deaf:
                return
            behind = bool(self.left)
            self.left += encode(what) + b"\n"
            if not behind:
                self.send()
                if self.left:
                    try:
                        threading.Thread(target=self.send_on, daemon=True).start()
                    except RuntimeError as e:       # no more threads
                        self.cut(str(e))
            elif len(self.left) > BEHIND:
                self.cut(f"{len(self.left)} bytes were not read")

    def send(self) -> int:
        """Gives the kernel what it takes at once."""
        try:
            n = self.connection.send(self.left, socket.MSG_DONTWAIT)
        except BlockingIOError:
            return 0
        except OSError:                 # the sender is gone, as it may; its lines that are here still count
            self.deaf, n = True, len(self.left)
        del self.left[:n]
        return n

    def send_on(self) -> None:
        last = time.monotonic()
        with self.changed:
            while self.left:
                if self.send():
                    last = time.monotonic()
                elif time.monotonic() - last > PATIENCE_S:
                    self.cut(f"nothing was read in {PATIENCE_S:g} s")
                else:
                    self.changed.wait(0.05)
            self.changed.notify_all()

    def cut(self, reason: str) -> None:
        self.log("connection cut off", "warning", error=reason)
        self.deaf = True
        self.left.clear()
        with contextlib.suppress(OSError):
            self.connection.shutdown(socket.SHUT_RDWR)
        self.changed.notify_all()

    def wait(self) -> None:
        """Until nothing is left to send."""
        with self.changed:
            self.changed.wait_for(lambda: not self.left)


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
                if entry.name.startswith(".") or not fnmatch.fnmatch(entry.name, self.spec["pattern"]):
                    continue
                present.add(entry.name)
                # in this order, and not entry.is_file(), which remembers: while put() waited, this one may have been answered and moved
                if entry.name not in self.known and os.path.isfile(entry):
                    self.known.add(entry.name)      # before the loop can be done with it
                    self.put(None, path=self.folder / entry.name)
            self.known &= present
            if self.stopping.wait(self.spec["poll"]):
                return

    def finished(self, item) -> None:
        if item.path is not None:
            self.known.discard(item.path.name)      # the name is free again

    def read(self, item) -> None:
        """Puts an item's text into it. Raises ValueError, OSError."""
        with open(item.path, "rb") as f:
            item.source, item.was = self.kind, which(os.fstat(f.fileno()))
            raw = f.read(self.spec["max_bytes"] + 1)
        if problem := self.problem(raw):
            raise ValueError(problem)
        item.text = raw.decode().strip()


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
