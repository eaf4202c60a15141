"""The service's loop: one item after another, and what may interrupt it.

    signal --> wake-up socket --> watcher thread --> flags (stop, reload)      heart thread --> WATCHDOG=1 while the loop moves
    main thread: spool.next() --> Prompt.fill --> Model.chat, asked between chunks and tokens whether to go on --> sinks --> spool.done

Owns: deadlines, retries, giving back, pacing, the metrics of an item. The state of the fixed part of the prompt stays in the session:
each answer begins by rewinding to it. Refuses: to end with an item that is neither answered, recorded nor kept.

A pass through the model cannot be interrupted, and on a slow board one chunk may take longer than a stop may. The watcher therefore
ends the process itself when the loop has not done so in STOP_S: the item is on disk, so this is as good as giving it back.
"""
from __future__ import annotations

import contextlib
import json
import os
import signal
import socket
import threading
import time
from pathlib import Path

from colibri_edge.apps.common import ERROR, OK
from colibri_edge.apps.service import sinks, sources
from colibri_edge.apps.service.config import ConfigError, load
from colibri_edge.apps.service.prompt import Prompt
from colibri_edge.apps.service.report import Log, Metrics
from colibri_edge.apps.service.spool import Damaged, Spool
from colibri_edge.apps.service.systemd import Notify

STOP_S = 1.6                    # after a signal; TimeoutStopSec in the unit is larger
TRIES = (0.5, 2.0)              # seconds between deliveries of one answer
SENSOR_S = 1.0                  # between readings of the temperature
STOP, DEADLINE = "given back", "deadline"


class Failed(Exception):
    """The item has no answer to deliver; the text says why."""


class Service:
    """One process of `colibri-edge service`. run() returns the exit code."""

    def __init__(self, config):
        self.config = config
        self.log = Log(config.log["format"], config.log["level"])
        self.notify = Notify()
        self.metrics = Metrics(config.beside(config.log["metrics"]) if config.log["metrics"] else None, config.model["file"])
        self.stopping = self.reloading = False
        self.item = None                    # in work
        self.moved = time.monotonic()       # when the loop last did something
        self.written = 0.0
        self.ready = False
        self.pace = Pace(config, self.log, self.metrics)

    # -- begin and end -------------------------------------------------------------------------------------------

    def run(self) -> int:
        self.watch_signals()
        folder = self.config.queue["folder"]
        if folder is None:
            folder = os.environ.get("STATE_DIRECTORY", "").split(":")[0] or None
        self.spool = Spool(self.config.beside(folder) if folder else None, self.config.queue["limit"], self.config.queue["attempts"])
        if len(self.spool):
            self.log("items kept from before", count=len(self.spool))
        self.source = sources.make(self.config, self.spool, self.log, self.refuse)
        self.prompt = Prompt(self.config)
        self.sinks = sinks.make(self.config)
        self.source.open()
        self.load()
        self.source.start()
        threading.Thread(target=self.heart, name="heart", daemon=True).start()
        self.ready = True
        self.notify("READY=1", f"STATUS=waiting for items ({self.source.kind})")
        self.log("ready", source=self.source.kind, sinks=",".join(s["kind"] for s in self.config.sinks), ctx=self.model.session.ctx,
                 threads=self.model.session.threads, fixed_tokens=self.fixed)
        self.report(0)
        try:
            self.loop()
        finally:
            self.source.close()
        self.ready = False
        self.notify("STOPPING=1", "STATUS=ending")
        self.report(0)
        self.log("ended", waiting=len(self.spool))
        return ERROR if self.source.broken else OK

    def load(self) -> None:
        from colibri_edge.model import Model

        self.notify("STATUS=loading the model")
        m, start = self.config.model, time.perf_counter()
        name = m["file"] if m["file"] == "demo" else self.config.beside(m["file"])
        self.model = Model.load(name, threads=m["threads"], ram=m["ram"], ctx=m["ctx"], kv=m["kv"], chunk=m["chunk"])
        self.sampling = {k: self.config.answer[k] for k in ("temperature", "top_p", "top_k", "min_p", "repetition_penalty", "seed")}
        self.sampling["stop"] = self.config.answer["stop"]
        self.prime()
        self.log("model loaded", model=str(name), seconds=time.perf_counter() - start)

    def prime(self) -> None:
        """Computes the fixed part of the prompt, so that no item pays for it."""
        a, b = (self.tokens(filled) for filled in self.prompt.probes())
        same = next((i for i, (x, y) in enumerate(zip(a, b, strict=False)) if x != y), min(len(a), len(b)))
        self.fixed = same
        if same:
            self.model.prime(a[:same])

    def tokens(self, filled) -> list[int]:
        if isinstance(filled, str):
            return self.model.tokenizer.encode(filled, add_special=True)
        return self.model.chat_tokens(filled)

    def watch_signals(self) -> None:
        """Signals reach a thread of their own, also while the main thread is inside the model."""
        reader, writer = socket.socketpair()
        writer.setblocking(False)
        signal.set_wakeup_fd(writer.fileno(), warn_on_full_buffer=False)
        self._wakeup = reader, writer
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGBREAK"):     # BREAK: Ctrl-Break and a closed console, on Windows
            if hasattr(signal, name):
                signal.signal(getattr(signal, name), lambda *_: None)

        def watch() -> None:
            while data := reader.recv(64):
                for number in data:
                    self.signalled(number)

        threading.Thread(target=watch, name="signals", daemon=True).start()

    def signalled(self, number: int) -> None:
        if number == getattr(signal, "SIGHUP", None):
            self.reloading = True
            self.wake()
        elif number in (signal.SIGTERM, signal.SIGINT, getattr(signal, "SIGBREAK", signal.SIGTERM)):
            if self.stopping:
                return
            self.stopping = True
            threading.Thread(target=self.end_anyway, daemon=True).start()
            if hasattr(self, "source"):
                self.source.stop()      # at once: what it has in hand is on disk before end_anyway
            self.wake()
            self.notify("STOPPING=1", "STATUS=ending")

    def wake(self) -> None:
        if hasattr(self, "spool"):
            self.spool.wake()

    def end_anyway(self) -> None:
        time.sleep(STOP_S)
        last = threading.Thread(target=self.last_words, daemon=True)
        last.start()
        last.join(0.2)          # whatever they meet, such as a log that nobody reads
        os._exit(OK)

    def last_words(self) -> None:
        with contextlib.suppress(OSError):
            if self.item is not None:
                self.spool.not_to_blame(self.item)
        self.log("ended inside a pass; the item in work stays accepted", "warning" if self.ready else "info")
        if hasattr(self, "source"):
            self.source.close()

    def heart(self) -> None:
        """WATCHDOG=1 as long as the loop moves: a pass that hangs is to be restarted, a slow one is not."""
        if not self.notify.watchdog_s:
            return
        while True:
            if time.monotonic() - self.moved < self.config.watchdog["stall"]:
                self.notify("WATCHDOG=1")
            time.sleep(self.notify.watchdog_s / 3)

    # -- the loop ------------------------------------------------------------------------------------------------

    def loop(self) -> None:
        while not self.stopping:
            self.moved = time.monotonic()
            if self.reloading:
                self.reload()
            try:
                item = self.spool.next(min(1.0, self.config.log["every"]))
            except Damaged as e:
                self.fail(e.item, e, 0.0)
                continue
            except OSError as e:        # too many open files, a full disk: the item waits for better times
                self.log("queue unreadable, trying on", "error", error=str(e))
                self.sleep(sources.RETRY_S)
                continue
            if item is not None:
                self.item = item
                self.work(item)
                self.item = None
            elif self.source.ended and not len(self.spool):
                return
            self.report(self.config.log["every"])

    def work(self, item) -> None:
        """Answers one item and delivers, or gives it back, or records why not."""
        start = time.monotonic()
        try:
            if item.path is not None:
                self.source.read(item)
                self.spool.begin_file(item)
            if self.spool.worn_out(item):
                raise Failed(f"the service ended {item.attempts - 1} times while it worked on this item")
            result = self.answer(item, start)
            if result is not None:
                self.deliver(item, result)
        except Stopped:
            result = None
        except Exception as e:      # whatever it is, it is this item's: the next one has its chance
            self.fail(item, e, time.monotonic() - start)
            return
        if result is None:
            try:
                self.spool.give_back(item)
            except OSError as e:        # its file stays, with one attempt more
                self.log("not given back", "error", item=item.id, error=str(e))
                return
            self.metrics.items("given_back")
            self.log("given back", item=item.id)
            return
        self.settle(item, "not taken off the queue", self.spool.done)
        self.metrics.items("answered")
        self.metrics.add("answer_seconds_count")
        self.metrics.add("answer_seconds_sum", result["seconds"])
        self.log("answered", item=item.id, seconds=result["seconds"], tokens=result["completion_tokens"],
                 kept=result["cached_tokens"], finish=result["finish_reason"])
        if item.reply:
            item.reply(result)

    def answer(self, item, start: float) -> dict | None:
        """The result to deliver; None where the service is to stop. Raises Failed and what the model raises."""
        a = self.config.answer
        self.notify(f"STATUS=working on {item.id}, {len(self.spool)} waiting")
        filled = self.prompt.fill(item.text, item.id)
        begin = self.model.generate if isinstance(filled, str) else self.model.chat
        generation = begin(filled, a["max_tokens"], schema=self.config.schema, **self.sampling)
        end = start + a["deadline"] if a["deadline"] else None

        def over() -> str | None:
            if self.stopping:
                return STOP
            return DEADLINE if end is not None and time.monotonic() >= end else None

        def poll() -> str | None:
            self.moved = time.monotonic()
            return over() or (over() if self.pace.rest(over) else None)

        generation.poll = poll
        self.pace.before = None     # the time since the last item was no work
        for _ in generation:
            pass
        self.metrics.add("tokens_total", generation.completion_tokens)
        self.metrics.add("prompt_tokens_total", generation.prompt_tokens)
        self.metrics.add("prompt_tokens_kept_total", generation.cached_tokens)
        if generation.finish_reason == STOP:
            return None
        if generation.finish_reason == DEADLINE:
            raise Failed(f"not answered in {a['deadline']:g} s (deadline in [answer]); {generation.completion_tokens} tokens were there")
        result = {"id": item.id, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "source": item.source, "text": generation.text,
                  "finish_reason": generation.finish_reason, "prompt_tokens": generation.prompt_tokens,
                  "cached_tokens": generation.cached_tokens, "completion_tokens": generation.completion_tokens,
                  "seconds": round(time.monotonic() - start, 6)}
        if self.config.schema is not None:
            if generation.finish_reason != "stop":
                raise Failed(f"{a['max_tokens']} tokens did not hold a whole reply (max_tokens in [answer])")
            result["reply"] = json.loads(generation.text)
        return result

    def deliver(self, item, result: dict) -> None:
        """Sends to every sink, each again where it fails. Raises Failed when one does not take it."""
        for spec, sink in zip(self.config.sinks, self.sinks, strict=True):
            for pause in (*TRIES, None):
                self.moved = time.monotonic()
                try:
                    sink.send(result)
                    break
                except BrokenPipeError as e:
                    if spec["kind"] == "stdout":    # nobody reads the output any more, and nobody will: end as other commands do
                        self.stopping = True
                        raise Stopped from e
                    problem = e
                except Exception as e:      # the libraries of webhooks and MQTT have their own
                    problem = e
                if pause is None:
                    raise Failed(f"sink {spec['kind']}: {why(problem)}; the answer was {result['text']!r}")
                self.log("sink failed, trying again", "warning", sink=spec["kind"], item=item.id, error=why(problem))
                if self.sleep(pause):
                    raise Stopped

    def settle(self, item, event: str, how, *more) -> None:
        """Takes an item off the queue. What goes wrong with its files is told and ends nothing."""
        try:
            how(item, *more)
        except (OSError, ValueError) as e:
            self.log(event, "error", item=item.id, error=str(e))
            if item.path is not None and not isinstance(e, FileNotFoundError):
                return          # it lies there still: its name stays known, or it would be answered again and again
        self.source.finished(item)

    def fail(self, item, e: Exception, seconds: float) -> None:
        reason = why(e)
        self.metrics.items("failed")
        self.log("failed", "error", item=item.id, error=reason, seconds=seconds)
        record = {"id": item.id, "time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "source": item.source, "input": item.text,
                  "file": item.path.name if item.path else None, "error": reason}
        self.settle(item, "failure not recorded", self.spool.failed, record)
        if item.reply:
            item.reply({"id": item.id, "error": reason})

    def refuse(self, text: str, source: str, reason: str) -> None:
        """Records what a source did not accept. Called from its thread."""
        self.metrics.items("failed")
        self.log("refused", "warning", source=source, error=reason, begins=text[:80])

    def sleep(self, seconds: float) -> bool:
        """Sleeps in small pieces; True where the service is to stop."""
        end = time.monotonic() + seconds
        while not self.stopping and (left := end - time.monotonic()) > 0:
            time.sleep(min(left, 0.1))
        return self.stopping

    def reload(self) -> None:
        """Reads the config's prompt, sensors and schema anew; a file that is wrong leaves the old ones in force."""
        self.reloading = False
        self.notify(f"RELOADING=1\nMONOTONIC_USEC={time.monotonic_ns() // 1000}")
        try:
            new = load(self.config.path)
            prompt = Prompt(new)
            old = self.config.prompt, self.config.sensors, self.config.schema, self.prompt
            self.config.prompt, self.config.sensors, self.config.schema, self.prompt = new.prompt, new.sensors, new.schema, prompt
            try:
                self.prime()
            except Exception:
                self.config.prompt, self.config.sensors, self.config.schema, self.prompt = old
                self.prime()
                raise
            self.log("prompt reloaded", fixed_tokens=self.fixed)
        except ConfigError as e:
            for problem in e.problems:
                self.log("reload refused", "error", error=problem)
        except Exception as e:      # whatever it is, the service goes on as it was
            self.log("reload refused", "error", error=why(e))
        self.notify("READY=1", f"STATUS=waiting for items ({self.source.kind})")

    def report(self, every: float) -> None:
        """Writes the metrics, at most once in `every` seconds."""
        now = time.monotonic()
        if now - self.written < every:
            return
        self.written = now
        self.metrics.gauges |= {"queue_length": len(self.spool), "ready": int(self.ready), "fixed_prompt_tokens": self.fixed}
        self.pace.measure()
        try:
            self.metrics.write()
        except OSError as e:
            self.log("metrics not written", "warning", error=str(e))


def why(e: Exception) -> str:
    """What an exception says, with its name where the text alone may say little."""
    return str(e) if isinstance(e, (Failed, ValueError, OSError)) else f"{type(e).__name__}: {e}"


class Stopped(Exception):
    """The service is to stop, and the item is not done."""


class Pace:
    """Rests between tokens where the board is hot: none below `from`, and from there on a growing share of the time, at `to` three
    quarters of it. A sensor that is absent is told once and then left alone."""

    def __init__(self, config, log, metrics):
        p = config.pace
        self.path: Path | None = config.beside(p["sensor"]) if p["sensor"] else None
        self.low, self.high = p["from"], p["to"]
        self.log, self.metrics = log, metrics
        self.celsius: float | None = None
        self.looked = -1e9
        self.before: float | None = None
        self.hot = False

    def measure(self) -> None:
        """Reads the sensor, at most once a second. The kernel's files hold thousandths of a degree."""
        now = time.monotonic()
        if self.path is None or now - self.looked < SENSOR_S:
            return
        self.looked = now
        try:
            value = float(self.path.read_text())
            self.celsius = value / 1000 if abs(value) > 200 else value
            self.metrics.gauges["temperature_celsius"] = self.celsius
        except (OSError, ValueError) as e:
            self.log("no temperature, so no pacing", "warning", sensor=str(self.path), error=str(e))
            self.path = self.celsius = None

    def share(self) -> float:
        """Part of the time to rest, 0 to 0.75."""
        if self.celsius is None:
            return 0.0
        return 0.75 * min(1.0, max(0.0, (self.celsius - self.low) / (self.high - self.low)))

    def rest(self, stop) -> bool:
        """Called between tokens: rests in proportion to the work since the last call. True where stop() turned true."""
        self.measure()
        share = self.share()
        if (share > 0) != self.hot:
            self.hot = share > 0
            self.log("pacing begins" if self.hot else "pacing ends", celsius=self.celsius)
        now = time.monotonic()
        if share and self.before is not None:
            end = now + min(10.0, (now - self.before) * share / (1 - share))
            self.metrics.add("paced_seconds_total", end - now)
            while (left := end - time.monotonic()) > 0:
                if stop():
                    return True
                time.sleep(min(left, 0.1))
        self.before = time.monotonic()
        return False


