"""Sources and the queue without a model, the test in the loop's place: pipes at a stop, disks that are full, senders who do not read."""
from __future__ import annotations

import contextlib
import errno
import fcntl
import json
import os
import socket
import struct
import sys
import termios
import threading
from types import SimpleNamespace

import pytest
from supervisor import Client, until

from colibri_edge.apps.service import sinks, sources
from colibri_edge.apps.service import spool as spool_module
from colibri_edge.apps.service.spool import Spool, encode


class Log(list):
    """What was logged: (event, facts)."""

    def __call__(self, event: str, level: str = "info", **facts) -> None:
        self.append((event, facts))

    def events(self) -> list[str]:
        return [event for event, _ in self]


@pytest.fixture
def log():
    return Log()


@pytest.fixture
def make(tmp_path, log):
    """make(kind, spool, ...) -> a source that is stopped with the test."""
    made = []

    def source(kind: str, spool: Spool, **spec) -> sources.Source:
        config = SimpleNamespace(source={"kind": kind, "max_bytes": 1000, **spec}, beside=lambda name: tmp_path / name)
        made.append(sources.make(config, spool, log, lambda text, source, reason: log("refused", error=reason)))
        return made[-1]

    yield source
    for s in made:
        s.close()


@pytest.fixture
def pipe(monkeypatch):
    """The standard input: .put(bytes), .end(), .left() bytes that nobody has read."""
    reader, writer = os.pipe()
    monkeypatch.setattr(sys, "stdin", open(reader, closefd=False))  # noqa: SIM115
    ends = [reader, writer]

    def left() -> int:
        return struct.unpack("i", fcntl.ioctl(reader, termios.FIONREAD, b"\0" * 4))[0]

    yield SimpleNamespace(put=lambda raw: os.write(writer, raw), end=lambda: os.close(ends.pop()), left=left)
    for fd in ends:
        os.close(fd)


def kept(folder) -> list[str]:
    """The items of a queue folder, in their order."""
    return [json.loads(f.read_text())["text"] for f in sorted(folder.glob("*.item"))]


def test_a_stop_with_lines_in_the_pipe(make, pipe, tmp_path):
    """The queue holds 10 of 500 lines: each is answered, once and in order, by the process after the next."""
    wanted, answered = [f"line {i}" for i in range(500)], []
    pipe.put("".join(f"{line}\n" for line in wanted).encode())
    for last in (False, False, True):
        spool = Spool(tmp_path / "queue", 10, 5)
        source = make("stdin", spool)
        if last:
            pipe.end()
        source.start()
        while last and not (source.ended and not len(spool)):
            if item := spool.next(0.1):
                answered.append(item.text)
                spool.done(item)
        until(lambda spool=spool, last=last: last or len(spool) >= 10)
        source.close()
        assert not source.thread.is_alive() and (last or 10 <= len(spool) <= 12)     # over the limit by the lines that were in hand
        assert kept(tmp_path / "queue") == ([] if last else wanted[:len(spool)])
        spool._lock.close()
    assert answered == wanted


def test_a_stop_inside_a_line(make, pipe, tmp_path, log):
    """What was read of a line is an item; the rest of it is read where it is there, and nothing after it."""
    spool = Spool(tmp_path / "queue", 10, 5)
    source = make("stdin", spool)
    source.start()
    pipe.put(b"one\ntwo, thr")
    until(lambda: not pipe.left() and len(spool) == 1)
    source.close()
    assert kept(tmp_path / "queue") == ["one", "two, thr"] and "stopped inside a line; its begin is an item" in log.events()

    source = make("stdin", spool)
    byte = source.byte

    def stop_at_v(inside: bool) -> bytes:
        b = byte(inside)
        if b == b"v":
            source.stop()
        return b

    source.byte = stop_at_v
    pipe.put(b"four\nfive\nsix\n")
    source.start()
    source.thread.join(60)
    assert kept(tmp_path / "queue")[2:] == ["four", "five"] and pipe.left() == len(b"six\n")


def test_lines_that_are_too_long(make, pipe, log):
    spool = Spool(None, 100, 5)
    source = make("stdin", spool, max_bytes=5)
    pipe.put(b"12345\r\n123456\n\r\n12345\r\r\r678\n" + b"7" * 5000 + b"\nabc")
    pipe.end()
    source.run()
    assert [spool.next(0).text for _ in range(len(spool))] == ["12345", "abc"]
    assert log.events() == ["refused"] * 3 and all("5 bytes" in facts["error"] for _, facts in log)


def test_a_disk_that_is_full(make, pipe, tmp_path, log, monkeypatch):
    """Lines wait for room, in order, and that is logged once; one that found none until the stop stands in the log."""
    room, write, tries = threading.Event(), spool_module.write_atomic, []

    def write_atomic(path, data: bytes) -> None:
        tries.append(path)
        if not room.is_set():
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        write(path, data)

    monkeypatch.setattr(spool_module, "write_atomic", write_atomic)
    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    spool = Spool(tmp_path / "queue", 10, 5)
    source = make("stdin", spool)
    source.start()
    pipe.put(b"one\ntwo\nthree\n")
    until(lambda: len(tries) > 3)
    assert len(spool) == 0 and pipe.left() == len(b"two\nthree\n")
    room.set()
    until(lambda: len(spool) == 3)
    assert kept(tmp_path / "queue") == ["one", "two", "three"] and log.events() == ["item not kept, trying on"]
    room.clear()
    tries.clear()
    pipe.put(b"four\nfive\n")
    until(lambda: tries)
    source.close()
    assert log.events()[1:] == ["item not kept, trying on", "line lost"] and log[-1][1]["text"] == "four"
    assert pipe.left() == len(b"five\n") and len(spool) == 3 and len(list((tmp_path / "queue").iterdir())) == 3 + 2     # lock, failed/


def test_what_was_refused_is_not_kept(tmp_path, monkeypatch):
    """The file is there, but its folder cannot be synced: the sender is told that it was not accepted, so it is not."""
    spool = Spool(tmp_path / "queue", 10, 5)

    def sync_folder(folder) -> None:
        raise OSError(errno.EIO, os.strerror(errno.EIO))

    monkeypatch.setattr(spool_module, "sync_folder", sync_folder)
    with pytest.raises(OSError):
        spool.put("text", "socket")
    assert len(spool) == 0 and kept(tmp_path / "queue") == []


def test_every_text_survives():
    what = {"file": os.fsdecode(b"caf\xe9"), "reply": json.loads('"\\ud800"'), "text": "é\U0001f600\n\\ud800"}
    assert json.loads(encode(what)) == what


@pytest.fixture
def listening(make):
    """(source, spool, answer): a socket source; answer(size) plays the loop until no item waits and returns how many it answered."""
    spool = Spool(None, 100000, 5)
    source = make("socket", spool, path="items", mode=0o600, reply=True)
    source.open()
    source.start()

    def answer(size: int) -> int:
        count = []

        def loop() -> None:
            while item := spool.next(0.3):
                item.reply({"id": item.id, "text": item.text * (size // len(item.text))})
                count.append(item)

        thread = threading.Thread(target=loop, daemon=True)
        thread.start()
        thread.join(60)
        assert not thread.is_alive(), f"the loop waits for a reader after {len(count)} answers"
        return len(count)

    return source, spool, answer


def flood(client: Client, count: int) -> int:
    """Sends lines until there are so many, or nobody takes one."""
    client.socket.settimeout(0.5)
    for i in range(count):
        try:
            client.send(f"line {i:06d}")
        except OSError:
            return i
    return count


def test_a_sender_who_never_reads(listening, tmp_path, log, monkeypatch):
    """The loop goes on, others are served, and after a while the connection is cut off."""
    source, spool, answer = listening
    deaf, other = Client(tmp_path / "items"), Client(tmp_path / "items")
    assert 50 < flood(deaf, 100000) < 100000        # who does not read is not read either
    assert answer(200) > 50
    for _ in range(2):
        other.send("a line")
        item = other.read()["accepted"]
        assert answer(200) >= 1
        assert other.read() == {"id": item, "text": "a line" * 33}
    assert "connection cut off" not in log.events()
    monkeypatch.setattr(sources, "PATIENCE_S", 0.2)
    until(lambda: "connection cut off" in log.events())
    with contextlib.suppress(TimeoutError):
        while deaf.read():
            pass
    other.send("a line")
    assert other.read()["accepted"]
    answer(200)                                     # also what had been sent before the cut
    assert other.read()["text"] and log.events() == ["connection cut off"]


def test_a_sender_who_leaves_too_much(listening, tmp_path, log, monkeypatch):
    """More than BEHIND bytes: cut off at once, and the loop goes on."""
    source, spool, answer = listening
    monkeypatch.setattr(sources, "BEHIND", 10000)
    deaf = Client(tmp_path / "items")
    for i in range(20):
        deaf.send(f"line {i:06d}")
        assert deaf.read()["accepted"]
    assert answer(1 << 20) == 20                    # each more than the kernel takes
    assert log.events() == ["connection cut off"]


def test_a_sender_who_reads_late(listening, tmp_path, log):
    """Sends more than the kernel keeps before it reads: everything comes, whole and in order."""
    source, spool, answer = listening
    late = Client(tmp_path / "items")
    sender = threading.Thread(target=lambda: [late.send(f"line {i:06d}") for i in range(1000)], daemon=True)
    sender.start()
    got = answer(500)
    accepted, done = [], []
    while len(done) < got:
        what = late.read()
        (accepted if "accepted" in what else done).append(what)
    reader = threading.Thread(target=lambda: [(accepted if "accepted" in (what := late.read()) else done).append(what)
                                              for _ in range(2000 - len(accepted) - len(done))], daemon=True)
    reader.start()
    until(lambda: answer(500) >= 0 and len(done) == 1000)
    reader.join(60)
    sender.join(60)
    assert [d["id"] for d in done] == [a["accepted"] for a in accepted] and len(done) == 1000
    assert [d["text"][:11] for d in done] == [f"line {i:06d}" for i in range(1000)] and log == []


def test_a_sender_who_goes(listening, tmp_path, log):
    """Lines of a sender who closed at once are items all the same."""
    source, spool, answer = listening
    client = Client(tmp_path / "items")
    client.send("one\ntwo\nthree")
    client.close()
    until(lambda: len(spool) == 3)
    assert answer(10) == 3 and log == []


def test_too_many_open_files(listening, tmp_path, log, monkeypatch):
    """A connection that cannot be accepted does not end the source."""
    source, spool, answer = listening
    monkeypatch.setattr(sources, "RETRY_S", 0.01)
    accept, fails = source.listener.accept, [OSError(errno.EMFILE, os.strerror(errno.EMFILE)) for _ in range(3)]

    class Listener:
        def accept(self) -> tuple[socket.socket, object]:
            if fails:
                raise fails.pop()
            return accept()

    source.listener = Listener()
    for _ in range(2):                              # the first is taken by an accept() that was begun before
        client = Client(tmp_path / "items")
        client.send("line")
        assert client.read()["accepted"]
    assert log.events() == ["connection not accepted"] * 3 and not source.ended


def test_a_file_that_was_answered_while_the_queue_was_full(make, tmp_path, log):
    """The list of files is older than the answer: the file is not put again."""
    box = tmp_path / "box"
    box.mkdir()
    spool = Spool(None, 1, 5)
    source = make("folder", spool, path="box", pattern="*", poll=0.01)
    source.open()
    (box / "z").write_text("last")
    source.start()
    until(lambda: len(spool) == 1)
    for name in "ab":
        (box / name).write_text(name)
    until(lambda: "a" in source.known)              # put() waits, with a list that has z in it
    names = []
    while item := spool.next(2.0):
        names.append(item.path.name)
        source.read(item)
        assert item.text
        spool.done(item)
        source.finished(item)
    assert names == ["z", "a", "b"]


def test_a_file_in_the_place_of_another(make, tmp_path):
    """Renamed over one that is being answered: it stays, and its turn comes."""
    (tmp_path / "box").mkdir()
    spool = Spool(None, 9, 5)
    source = make("folder", spool, path="box", pattern="*", poll=0.01)
    source.open()
    (tmp_path / "box/a").write_text("first")
    source.start()
    texts = []
    for text in ("second", None):
        item = spool.next(9.0)
        source.read(item)
        texts.append(item.text)
        if text:
            (tmp_path / "box/.new").write_text(text)
            os.replace(tmp_path / "box/.new", tmp_path / "box/a")
        spool.done(item)
        source.finished(item)
    assert texts == ["first", "second"] and (tmp_path / "box/done/a").read_text() == "second" and not (tmp_path / "box/a").exists()


def test_output_on_a_full_disk(monkeypatch):
    """Each line once and whole, in spite of tries in between; one that is given up in its middle ends there."""
    out, room = bytearray(), [5]

    def write(data: bytes) -> int:
        n = min(len(data), room[0])
        if not n:
            raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))
        room[0] -= n
        out.extend(data[:n])
        return n

    monkeypatch.setattr(sys, "stdout", SimpleNamespace(buffer=SimpleNamespace(raw=SimpleNamespace(write=write))))
    sink = sinks.Stdout(None, {"format": "text"})
    tries = [("1", "one line", 0), ("1", "one line", 2), ("1", "one line", 10), ("2", "given up", 0), ("3", "", 0), ("4", "last", 100)]
    for item, text, more in tries:
        room[0] += more
        with contextlib.suppress(OSError):
            sink.send({"id": item, "text": text})
    assert bytes(out) == b"one line\ngiven up\nlast\n"


def test_a_timer_without_an_end(make):
    """Items from before hold the first tick back; they do not end it."""
    spool = Spool(None, 9, 5)
    spool.put("from before", "socket")
    source = make("timer", spool, every=0.02, count=0)
    source.start()
    spool.next(1.0)
    assert spool.next(5.0).source == "timer" and not source.ended


def test_a_disk_that_fails_for_a_while(tmp_path, monkeypatch):
    """The item keeps its place; one whose file is gone is said to be damaged."""
    spool = Spool(tmp_path, 9, 5)
    for text in ("first", "second", "third"):
        spool.put(text, "socket")
    rename, fails = os.rename, [OSError(errno.ENOSPC, "full")]

    def failing(*args) -> None:
        if fails:
            raise fails.pop()
        rename(*args)

    monkeypatch.setattr(os, "rename", failing)
    with pytest.raises(OSError, match="full"):
        spool.next(0.0)
    assert spool.next(0.0).text == "first"
    min(tmp_path.glob("*.0.item")).unlink()
    with pytest.raises(spool_module.Damaged, match="FileNotFoundError"):
        spool.next(0.0)
    assert spool.next(0.0).text == "third"


def test_an_item_is_not_to_blame_for_a_stop(tmp_path):
    (tmp_path / "box").mkdir()
    (tmp_path / "box/a").write_text("text")
    spool = Spool(tmp_path / "queue", 9, 5)
    spool.put("kept", "socket")
    item = spool.next(0.0)
    assert item.attempts == 1 and list((tmp_path / "queue").glob("*.1.item"))
    spool.not_to_blame(item)
    assert list((tmp_path / "queue").glob("*.0.item")) and not list((tmp_path / "queue").glob("*.1.item"))
    file = spool_module.Item("x", path=tmp_path / "box/a", was=(1, 2, 3, 4))
    for want in (1, 2):
        spool.begin_file(file)
        assert file.attempts == want
    spool.not_to_blame(file)
    spool.begin_file(file)
    assert file.attempts == 2
    spool.done(spool_module.Item("x", path=tmp_path / "box/a"))
    spool.begin_file(file)
    assert file.attempts == 1
