"""Accepted items: on disk from the moment they are acknowledged until their answer is delivered.

Owns: the files of the queue folder, `ID.N.item` (N: how often a process began it), `failed/ID.json`, `file.json` (the same count of a file
in work, for the folder source), `lock`. An item is a small JSON file, written under another name, synced and renamed, so that it is there
as a whole or not at all. Refuses: a folder that another process uses, more items than the limit. Without a folder items live in memory
and end with the process.
"""
from __future__ import annotations

import contextlib
import json
import os
import threading
import time
from collections import deque
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path


class Full(Exception):
    """The queue holds as many items as it may."""


class Damaged(Exception):
    """An item's file is gone or is none of ours; item: the item."""

    def __init__(self, item, reason: Exception):
        super().__init__(f"its file in the queue cannot be used: {type(reason).__name__}: {reason}")
        self.item = item


@dataclass
class Item:
    """id: sorts by time; text: what came, None until it is read; reply: tells the sender, where it still listens; path: an item of the
    folder source, which is its own queue; was: which() of that file when it was read."""

    id: str
    text: str | None = None
    source: str = ""
    reply: Callable[[dict], None] | None = None
    path: Path | None = None
    was: tuple | None = None
    attempts: int = 0
    begun: float = field(default=0.0, repr=False)


def which(s: os.stat_result) -> tuple:
    """Tells a file from another that took its name, and from itself with another text."""
    return s.st_dev, s.st_ino, s.st_mtime_ns, s.st_size


def encode(what: dict) -> bytes:
    """JSON in which every text survives: a lone surrogate (of a file name that is no UTF-8, of an escape in a reply) becomes its escape."""
    return json.dumps(what, ensure_ascii=False).encode(errors="backslashreplace")


def write_atomic(path: Path, data: bytes) -> None:
    """Writes a file that is there as a whole or not at all, also after a power cut."""
    part = path.with_name(f".{path.name}.part")
    fd = os.open(part, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o644)
    try:
        with os.fdopen(fd, "wb") as f:
            f.write(data)
            f.flush()
            os.fsync(f.fileno())
        os.replace(part, path)
    except BaseException:
        with contextlib.suppress(OSError):
            os.unlink(part)
        raise
    sync_folder(path.parent)


def sync_folder(folder: Path) -> None:
    """Makes renames in a folder last."""
    if os.name != "posix":
        return
    fd = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(fd)
    finally:
        os.close(fd)


class Spool:
    """The queue. put() from any thread, next() and the rest from the loop's."""

    def __init__(self, folder: Path | None, limit: int, attempts: int):
        self.folder, self.limit, self.attempts = folder, limit, attempts
        self._queue: deque[Item] = deque()
        self._have = threading.Condition()
        self._count = 0
        self._lock = None
        if folder is not None:
            self._open()

    def _open(self) -> None:
        (self.folder / "failed").mkdir(parents=True, exist_ok=True)
        self._lock = open(self.folder / "lock", "a+")  # noqa: SIM115 (held as long as the process)
        if os.name == "posix":
            import fcntl

            try:
                fcntl.flock(self._lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except OSError:
                raise OSError(f"{self.folder} is in use by another colibri-edge service; give each its own folder in [queue]") from None
        for part in [*self.folder.glob(".*.part"), *(self.folder / "failed").glob(".*.part")]:
            part.unlink()           # never renamed, so never acknowledged
        for file in sorted(self.folder.glob("*.item")):
            name, _, attempts = file.stem.rpartition(".")
            if name and attempts.isdigit():
                self._queue.append(Item(name, attempts=int(attempts)))

    def __len__(self) -> int:
        return len(self._queue)

    def new_id(self) -> str:
        """An id that sorts after the earlier ones of this clock and is unique whatever the clock does."""
        self._count += 1
        return f"{time.time_ns() // 1000:016d}-{self._count % 10000:04d}-{os.urandom(3).hex()}"

    def put(self, text: str | None, source: str, reply=None, path: Path | None = None, keep: bool = True, over: bool = False) -> Item:
        """Accepts an item: when this returns, it survives a crash (with a folder). over: also past the limit. Raises Full, OSError; then
        nothing was accepted."""
        with self._have:
            if len(self._queue) >= self.limit and not over:
                raise Full(f"{len(self._queue)} items wait, and {self.limit} may; try again later")
            item = Item(self.new_id(), text, source, reply, path)
        if self.folder is not None and keep and path is None:
            try:
                write_atomic(self._file(item), encode({"text": text, "source": source}))
            except BaseException:
                with contextlib.suppress(OSError):
                    os.unlink(self._file(item))     # renamed, but the folder could not be synced
                raise
            item.text = None        # read again when its turn comes
        with self._have:
            self._queue.append(item)
            self._have.notify()
        return item

    def wake(self) -> None:
        """Lets next() return."""
        with self._have:
            self._have.notify_all()

    def next(self, seconds: float) -> Item | None:
        """The oldest item, begun; None after that time or a wake(). Raises Damaged; OSError where the disk fails: the item keeps its
        place."""
        with self._have:
            if not self._queue:
                self._have.wait(seconds)
            if not self._queue:
                return None
            item = self._queue.popleft()
        if item.text is None and item.path is None:
            try:
                self._begin(item)
            except (FileNotFoundError, ValueError, KeyError, TypeError) as e:
                raise Damaged(item, e) from None
            except OSError:
                with self._have:
                    self._queue.appendleft(item)
                raise
        return item

    def _begin(self, item: Item) -> None:
        data = json.loads(self._file(item).read_bytes())
        text, source = data["text"], data["source"]
        self._rename(item, item.attempts + 1)
        item.text, item.source = text, source       # not before: what has a text counts as begun

    def _rename(self, item: Item, attempts: int) -> None:
        os.rename(self._file(item), self.folder / f"{item.id}.{attempts}.item")
        item.attempts = attempts

    def begin_file(self, item: Item) -> None:
        """Counts the beginnings of an item of the folder source, which has no name of ours to count them in. One is in work at a time, so
        one note serves."""
        try:
            note = json.loads((self.folder / "file.json").read_bytes()) if self.folder is not None else {}
        except (OSError, ValueError):
            note = {}
        same = isinstance(note, dict) and note.get("path") == str(item.path) and note.get("was") == list(item.was)
        self._note(item, note["attempts"] + 1 if same and isinstance(note.get("attempts"), int) else 1)

    def _note(self, item: Item, attempts: int) -> None:
        item.attempts = attempts
        if self.folder is None:
            return
        with contextlib.suppress(OSError):      # without it the item is answered all the same
            if attempts:
                write_atomic(self.folder / "file.json", encode({"path": str(item.path), "was": item.was, "attempts": attempts}))
            else:
                os.unlink(self.folder / "file.json")

    def not_to_blame(self, item: Item) -> None:
        """This process ends, and not because of the item in its hands."""
        if item.path is not None:
            self._note(item, max(0, item.attempts - 1))
        elif self._on_disk(item):
            self._rename(item, max(0, item.attempts - 1))

    def worn_out(self, item: Item) -> bool:
        """Whether processes have begun an item so often that it is to blame for their end."""
        return item.attempts > self.attempts

    def give_back(self, item: Item) -> None:
        """The item was not answered and keeps its place, for the next process."""
        self.not_to_blame(item)
        with self._have:
            self._queue.appendleft(item)

    def done(self, item: Item) -> None:
        """The answer was delivered. Raises OSError; FileNotFoundError where a file is gone that its sender may take away."""
        if item.path is not None:
            self._note(item, 0)
            self._move(item, "done")
        elif self._on_disk(item):
            os.unlink(self._file(item))

    def failed(self, item: Item, record: dict) -> None:
        """Keeps a record of a failure in failed/ and takes the item off the queue. Raises OSError."""
        if self.folder is not None:
            write_atomic(self.folder / "failed" / f"{item.id}.json", encode(record))
        if item.path is not None:
            self._note(item, 0)
            with contextlib.suppress(FileNotFoundError):    # its sender took it away
                self._move(item, "failed")
        elif self._on_disk(item):
            os.unlink(self._file(item))

    def _on_disk(self, item: Item) -> bool:
        return self.folder is not None and self._file(item).exists()

    def _file(self, item: Item) -> Path:
        return self.folder / f"{item.id}.{item.attempts}.item"

    @staticmethod
    def _move(item: Item, where: str) -> None:
        if item.was is not None and which(os.stat(item.path)) != item.was:
            return          # its sender put another in its place: an item of its own, which waits there
        to = item.path.parent / where
        to.mkdir(exist_ok=True)
        target = to / item.path.name
        if target.exists():
            target = to / f"{item.id}-{item.path.name}"
        os.replace(item.path, target)
        sync_folder(to)
