"""The service under a supervisor that plays systemd's part, with the demo model: items, signals, crashes, failures, sources, sinks."""
from __future__ import annotations

import contextlib
import http.server
import json
import os
import random
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import jsonschema
import pytest
from supervisor import Client, Supervisor, until
from tinychat import write_folder

import colibri_edge
from colibri_edge.apps.service.loop import Pace
from colibri_edge.apps.service.report import Log, Metrics
from colibri_edge.demo import task
from colibri_edge.model import Model

SOCKET = '[source]\nkind = "socket"\npath = "items"\n'
DEMO = '[model]\nfile = "demo"\nctx = 512\n[answer]\nmax_tokens = 200\n'


@pytest.fixture
def supervisor(tmp_path):
    """supervisor(config, ...) -> a Supervisor whose service ends with the test."""
    made = []

    def make(config: str, **more) -> Supervisor:
        made.append(Supervisor(tmp_path, config, **more))
        return made[-1]

    yield make
    for s in made:
        s.close()


def metrics(path) -> dict[str, float]:
    """Values of a Prometheus textfile, checked line by line."""
    out = {}
    for line in path.read_text().splitlines():
        if not line.startswith("#"):
            name, value = line.rsplit(" ", 1)
            out[name.removeprefix("colibri_edge_")] = float(value)
    return out


@pytest.mark.parametrize("count", [20, pytest.param(200, marks=pytest.mark.big)])
def test_items_one_by_one(supervisor, tmp_path, count):
    """READY after loading, WATCHDOG all along, acknowledged and answered one by one, as Model.chat answers; HUP; TERM."""
    pairs = task.held_out(count, 7)
    (tmp_path / "schema.json").write_text(json.dumps(task.json_schema()))
    (tmp_path / "prompt.txt").write_text("${input}\n")
    s = supervisor(DEMO + 'schema = "schema.json"\ntemperature = 0\n[prompt]\nfile = "prompt.txt"\n' + SOCKET
                   + '[[sink]]\nkind = "file"\npath = "out/${id}.json"\n[log]\nformat = "json"\nmetrics = "m.prom"\nevery = "1s"\n')
    (tmp_path / "out").mkdir()
    s.start()
    client = Client(tmp_path / "items")
    model, results, begun = Model.load("demo", ctx=512), [], time.monotonic()
    for i in range(0, count, 20):
        for prompt, _ in pairs[i:i + 20]:
            client.send(prompt)
        accepted, done = [], []
        while len(done) < 20:
            what = client.read()
            (accepted if "accepted" in what else done).append(what)
        assert [d["id"] for d in done] == [a["accepted"] for a in accepted]
        results += done
    seconds = time.monotonic() - begun
    for result in results:
        assert json.loads((tmp_path / "out" / f"{result['id']}.json").read_text()) == result
        task.validate(result["text"])
        assert result["reply"] == json.loads(result["text"]) and result["cached_tokens"] > 0
    for (prompt, _), result in list(zip(pairs, results, strict=True))[:8]:
        answer = model.chat([{"role": "user", "content": prompt}], 200, schema=task.json_schema(), temperature=0)
        assert result["text"] == "".join(t.text for t in answer)
    assert s.waiting() == s.failed() == []
    beats = [t for t, state in s.said if state == "WATCHDOG=1"]
    assert len(beats) > seconds / s.watchdog_s
    assert max((b - a for a, b in zip(beats, beats[1:], strict=False)), default=0.0) < s.watchdog_s   # a quick run has one beat
    assert any(state.startswith("STATUS=working on ") for _, state in s.said)
    until(lambda: metrics(tmp_path / "m.prom")['items_total{result="answered"}'] == count)
    assert metrics(tmp_path / "m.prom")["resident_bytes"] > 1 << 20
    # HUP: the new prompt is in force; one that is wrong changes nothing
    (tmp_path / "prompt.txt").write_text("set the heating to 21 degrees${input}")
    s.said.clear()
    s.child.send_signal(signal.SIGHUP)
    s.wait("RELOADING=1")
    s.wait("READY=1")
    (tmp_path / "prompt.txt").write_text("${nonsense}")
    s.said.clear()
    s.child.send_signal(signal.SIGHUP)
    s.wait("READY=1")
    assert "reload refused" in s.logged() and "${nonsense}" in s.logged()
    client.send("!")
    assert "accepted" in client.read()
    assert client.read()["reply"] == {"tool": "climate.set", "arguments": {"temperature": 21}}
    assert s.stop() < 2
    s.wait("STOPPING=1")
    events = [json.loads(line) for line in s.logged().splitlines()]
    assert {"ready", "answered", "prompt reloaded", "ended"} <= {e["event"] for e in events}
    assert not (tmp_path / "items").exists()


@pytest.fixture
def long_model(tmp_path):
    """A model whose answers only the limit ends."""
    colibri_edge.convert(write_folder(tmp_path / "chat", context=1 << 17), tmp_path / "long.colibri", "q8_0")


def test_term_gives_the_item_back(supervisor, tmp_path, long_model):
    """In the middle of an answer and of a long prompt: under two seconds, the item accepted as before, the next process answers it."""
    config = '[model]\nfile = "long.colibri"\nctx = 90000\n[answer]\nmax_tokens = 80000\n' + SOCKET + (
        'max_bytes = 300000\n[[sink]]\nkind = "file"\npath = "${id}.json"\n')
    s = supervisor(config)
    for text in ("lamp", "ab" * 20000):
        s.start()
        client = Client(tmp_path / "items")
        client.send(text)
        item = client.read()["accepted"]
        s.wait(f"STATUS=working on {item}")
        time.sleep(0.3)
        assert s.stop() < 2
        assert s.waiting() == [item] and s.failed() == [] and "given back" in s.logged()
        if text == "lamp":
            s.config.write_text(config.replace("80000", "5"))
            s.start()
            until(lambda: s.waiting() == [])
            assert json.loads((tmp_path / f"{item}.json").read_text())["completion_tokens"] == 5
            s.stop()
            s.config.write_text(config)


@pytest.mark.parametrize("kills", [4, pytest.param(20, marks=pytest.mark.big)])
def test_kill_at_random_moments(supervisor, tmp_path, kills):
    """kill -9 again and again: every acknowledged item has its answer in the end, and no file is ever half there."""
    out = tmp_path / "out"
    out.mkdir()
    s = supervisor(DEMO.replace("200", "24") + SOCKET + '[queue]\nattempts = 50\n[[sink]]\nkind = "file"\npath = "out/${id}.json"\n')
    rng, acknowledged = random.Random(kills), []

    def whole() -> None:
        for file in out.glob("*.json"):
            assert json.loads(file.read_text())["id"] == file.stem
        for file in s.state.glob("*.item"):
            assert json.loads(file.read_text())["text"].startswith("turn on lamp ")

    for _ in range(kills):
        s.start()
        client = Client(tmp_path / "items")
        timer = threading.Timer(rng.uniform(0.02, 0.6), s.child.kill)
        timer.start()
        sent = 0
        try:
            while sent < 500:
                client.send(f"turn on lamp {len(acknowledged)}")
                sent += 1
                while (what := client.read()) and "accepted" not in what:
                    pass
                if what is None:
                    break
                acknowledged.append(what["accepted"])
        except (ConnectionError, OSError):
            pass
        client.close()
        timer.join()
        s.kill()
        whole()
    assert len(acknowledged) > kills
    s.start()
    until(lambda: s.waiting() == [], 120)
    s.stop()
    whole()
    assert {f.stem for f in out.glob("*.json")} >= set(acknowledged)
    assert s.failed() == [] and not list(s.state.glob(".*"))


def test_failures_are_recorded_and_the_loop_goes_on(supervisor, tmp_path):
    """A deadline, a prompt that is too long, bytes that are no text, a sensor that goes away."""
    (tmp_path / "temp").write_text("21")
    s = supervisor('[model]\nfile = "demo"\nctx = 128\n[answer]\nmax_tokens = 200\ndeadline = "30s"\n[prompt]\ntext = "${input} ${t}"\n'
                   '[sensors.t]\nfile = "temp"\n' + SOCKET + "max_bytes = 2000\n")
    s.start()
    client = Client(tmp_path / "items")

    def ask(text) -> dict:
        client.send(text)
        what = client.read()
        return client.read() if "accepted" in what else what

    assert "text" in ask("turn on the lamp")
    assert "the context 128" in ask("x y " * 300)["error"]
    assert "0xff" in ask(b"\xff\xfe")["refused"]
    (tmp_path / "temp").unlink()
    assert "sensor t" in ask("turn on the lamp")["error"]
    (tmp_path / "temp").write_text("22")
    assert "text" in ask("turn on the lamp")
    assert [f["input"] is not None and f["error"] != "" for f in s.failed()] == [True, True]
    client.send("z" * 3000)
    assert "max_bytes" in client.read()["refused"]
    assert client.read() is None                # a line that never ends has no next one
    client = Client(tmp_path / "items")
    assert "text" in ask("turn on the lamp")
    s.config.write_text(s.config.read_text().replace("30s", "1ms"))
    s.stop()
    s.start()
    client = Client(tmp_path / "items")
    assert "deadline" in ask("turn on the lamp")["error"]
    assert s.child.poll() is None and s.waiting() == []


def test_an_item_that_kills_is_put_aside(supervisor, tmp_path):
    """Begun by more processes than `attempts`: recorded as failed; the next one is answered."""
    s = supervisor(DEMO + SOCKET + "[queue]\nattempts = 3\n")
    s.state.mkdir(exist_ok=True)
    (s.state / "1-a.3.item").write_text(json.dumps({"text": "bad", "source": "socket"}))
    (s.state / "2-b.0.item").write_text(json.dumps({"text": "good", "source": "socket"}))
    (s.state / "0-c.0.item").write_text("{")
    (s.state / "0-d.0.item").write_text("[]")
    (s.state / ".3-d.0.item.part").write_text("{")
    s.start()
    until(lambda: s.failed() and not (s.state / "2-b.0.item").exists() and not (s.state / "2-b.1.item").exists())
    failed = {f["id"]: f["error"] for f in s.failed()}
    assert set(failed) == {"0-c", "0-d", "1-a"} and "ended 3 times" in failed["1-a"]
    assert "cannot be used: JSONDecodeError" in failed["0-c"] and "cannot be used: TypeError" in failed["0-d"]
    assert not list(s.state.glob("*.item")) and not list(s.state.glob(".*.part"))


def test_a_file_that_kills_is_put_aside(supervisor, tmp_path):
    """Items of the folder source are counted too, and a TERM is not held against them."""
    (tmp_path / "box").mkdir()
    (tmp_path / "box/a").write_text("turn on the lamp")
    s = supervisor(DEMO + '[source]\nkind = "folder"\npath = "box"\npoll = "20ms"\n[queue]\nattempts = 2\n')
    was = os.stat(tmp_path / "box/a")
    note = {"path": str(tmp_path / "box/a"), "was": [was.st_dev, was.st_ino, was.st_mtime_ns, was.st_size], "attempts": 2}
    (s.state / "file.json").write_text(json.dumps(note | {"was": [0, 0, 0, 0]}))       # another file of that name
    s.start()
    until(lambda: (tmp_path / "box/done/a").exists())
    s.stop()
    assert not (s.state / "file.json").exists()
    os.replace(tmp_path / "box/done/a", tmp_path / "box/a")
    (s.state / "file.json").write_text(json.dumps(note))
    s.start()
    until(lambda: (tmp_path / "box/failed/a").exists())
    until(lambda: not (s.state / "file.json").exists())
    assert "ended 2 times" in s.failed()[0]["error"]


def test_stdin_to_every_sink(tmp_path):
    """A pipe in; stdout, file, both kinds of socket, webhook (refuses, then speaks no HTTP) and journal out; ends with the input."""
    got: dict[str, list] = {"hook": [], "stream": [], "datagram": [], "journal": []}

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got["hook"].append((self.headers["Authorization"], body))
            if len(got["hook"]) == 2:
                self.wfile.write(b"no HTTP\r\n")
                return
            self.send_response(503 if len(got["hook"]) == 1 else 204)
            self.end_headers()

        def log_message(self, *args):
            pass

    hook = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    stream = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    stream.bind(str(tmp_path / "stream"))
    stream.listen()

    def accept():
        while True:
            with stream.accept()[0] as c, c.makefile("rb") as f:
                got["stream"].append(f.read())

    threading.Thread(target=accept, daemon=True).start()
    for name in ("datagram", "journal"):
        s = socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM)
        s.bind(str(tmp_path / name))

        def receive(s=s, name=name):
            while True:
                got[name].append(s.recv(65536))

        threading.Thread(target=receive, daemon=True).start()
    (tmp_path / "token").write_text("secret\n")
    (tmp_path / "service.toml").write_text(DEMO + '[source]\nkind = "stdin"\n[[sink]]\nkind = "stdout"\n[[sink]]\nkind = "file"\n'
        'path = "last.json"\n[[sink]]\nkind = "socket"\npath = "stream"\n[[sink]]\nkind = "socket"\npath = "datagram"\n[[sink]]\n'
        f'kind = "webhook"\nurl = "http://127.0.0.1:{hook.server_port}/x"\ntoken_file = "token"\n[[sink]]\nkind = "journal"\n')
    done = subprocess.run([sys.executable, "-m", "colibri_edge", "service", "--config", tmp_path / "service.toml"], capture_output=True,
                          input="set the heating to 21 degrees\n\nlock the front door\n\xff\n".encode("latin-1"), timeout=120,
                          env={**os.environ, "COLIBRI_EDGE_JOURNAL": str(tmp_path / "journal")})
    hook.shutdown()
    assert done.returncode == 0, done.stderr
    lines = done.stdout.splitlines(keepends=True)
    assert [json.loads(json.loads(x)["text"])["tool"] for x in lines] == ["climate.set", "lock.lock"]
    until(lambda: len(got["journal"]) == len(got["datagram"]) == len(got["stream"]) == 2, 5)
    assert got["stream"] == got["datagram"] == lines and (tmp_path / "last.json").read_bytes() == lines[1]
    assert got["hook"] == [("Bearer secret", lines[0])] * 3 + [("Bearer secret", lines[1])]
    assert all(b"\nMESSAGE=" + line == j[j.index(b"\nMESSAGE="):] for line, j in zip(lines, got["journal"], strict=True))
    assert b"sink failed, trying again" in done.stderr and b"0xff" in done.stderr


def test_fifo_and_folder_and_timer(supervisor, tmp_path):
    """Each finite or stopped by TERM; a file is moved to done/ when its answer is delivered, a bad one to failed/."""
    box = tmp_path / "box"
    box.mkdir()
    for name, raw in (("a.txt", b"lock the front door\n"), ("b.txt", b"\xff"), (".c.txt", b"hidden"), ("d.log", b"other")):
        (box / name).write_bytes(raw)
    s = supervisor(DEMO + '[source]\nkind = "folder"\npath = "box"\npattern = "*.txt"\npoll = "50ms"\n')
    with open(tmp_path / "out", "wb") as out:
        s.start(stdout=out)
    until(lambda: (box / "done/a.txt").exists() and (box / "failed/b.txt").exists())
    (box / "a.txt").write_bytes(b"lock the front door\n")           # the same name again
    until(lambda: len(list((box / "done").iterdir())) == 2)
    s.stop()
    assert sorted(p.name for p in box.iterdir()) == [".c.txt", "d.log", "done", "failed"]
    lines = [json.loads(x) for x in (tmp_path / "out").read_text().splitlines()]
    assert len(lines) == 2 and "lock.lock" in lines[0]["text"] and "0xff" in s.failed()[0]["error"]

    s.config.write_text(DEMO + '[source]\nkind = "fifo"\npath = "pipe"\n[[sink]]\nkind = "file"\npath = "pipe.json"\n')
    s.start()
    for text in ("lock the front door", "set the heating to 21 degrees"):       # a writer each
        (tmp_path / "pipe.json").unlink(missing_ok=True)
        with open(tmp_path / "pipe", "w") as f:
            f.write(text + "\n")
        until((tmp_path / "pipe.json").exists)
    assert "climate.set" in (tmp_path / "pipe.json").read_text()
    s.stop()

    s.config.write_text(DEMO + '[prompt]\ntext = "lock the front door"\n[source]\nkind = "timer"\nevery = "10ms"\ncount = 3\n'
                        '[[sink]]\nkind = "stdout"\nformat = "text"\n')
    with open(tmp_path / "out", "wb") as out:
        s.start(stdout=out)
    assert s.child.wait(timeout=60) == 0
    assert (tmp_path / "out").read_text().splitlines() == ['{"tool":"lock.lock","arguments":{"door":"front door"}}'] * 3


def test_term_with_lines_on_stdin(supervisor, tmp_path, long_model):
    """500 lines, of which the queue may hold 10: TERM keeps what was read, the next process answers each once, from the same pipe."""
    out = tmp_path / "out"
    out.mkdir()
    config = ('[model]\nfile = "long.colibri"\nctx = 90000\n[answer]\nmax_tokens = 80000\n[source]\nkind = "stdin"\n[queue]\nlimit = 10\n'
              '[[sink]]\nkind = "file"\npath = "out/${id}.json"\n')
    s = supervisor(config)
    reader, writer = os.pipe()
    os.write(writer, b"".join(b"lamp %03d\n" % i for i in range(500)))
    s.start(stdin=reader)
    until(lambda: len(s.waiting()) == 11)           # one is in work; another may be in hand
    assert s.stop() < 2
    waiting = s.waiting()
    texts = [json.loads(f.read_text())["text"] for f in sorted(s.state.glob("*.item"))]
    assert 11 <= len(texts) <= 12 and texts == [f"lamp {i:03d}" for i in range(len(texts))]
    os.close(writer)
    s.config.write_text(config.replace("80000", "1"))
    s.start(stdin=reader)
    os.close(reader)
    assert s.child.wait(timeout=120) == 0
    answered = sorted(f.stem for f in out.glob("*.json"))
    assert len(answered) == 500 and answered[:len(waiting)] == waiting
    assert s.waiting() == s.failed() == []


def test_a_sender_who_never_reads(supervisor, tmp_path):
    """Others are served, its items are answered, and TERM ends in time."""
    out = tmp_path / "out"
    out.mkdir()
    s = supervisor(DEMO.replace("200", "1") + SOCKET + '[[sink]]\nkind = "file"\npath = "out/${id}.json"\n')
    s.start()
    deaf, sent = Client(tmp_path / "items", 1), 0
    with contextlib.suppress(TimeoutError):
        while sent < 5000:
            deaf.send(f"turn on lamp {sent}")
            sent += 1
    until(lambda: len(list(out.glob("*.json"))) > 50)
    client = Client(tmp_path / "items")
    for _ in range(2):
        client.send("turn on the lamp")
        item = client.read()["accepted"]
        assert client.read()["id"] == item and (out / f"{item}.json").exists()
    assert s.stop() < 2
    assert s.failed() == []


def test_files_that_go_and_names_that_are_no_text(supervisor, tmp_path):
    """A file that its sender takes away while it is answered, a failure of a name in Latin-1, a file that cannot be moved: the next one."""
    box, name = tmp_path / "box", os.fsdecode(b"caf\xe9.txt")
    box.mkdir()
    for file in ("a.txt", name, "z.txt"):
        (box / file).write_bytes(b"\xff" if file == name else b"lock the front door")
    got = []

    class Hook(http.server.BaseHTTPRequestHandler):
        def do_POST(self):
            got.append(json.loads(self.rfile.read(int(self.headers["Content-Length"])))["id"])
            (box / "a.txt").unlink(missing_ok=True)
            self.send_response(204)
            self.end_headers()

        def log_message(self, *args):
            pass

    hook = http.server.HTTPServer(("127.0.0.1", 0), Hook)
    threading.Thread(target=hook.serve_forever, daemon=True).start()
    s = supervisor(DEMO.replace("200", "1") + '[source]\nkind = "folder"\npath = "box"\npattern = "*.txt"\npoll = "20ms"\n'
                   f'[[sink]]\nkind = "webhook"\nurl = "http://127.0.0.1:{hook.server_port}/"\n')
    s.start()
    until((box / "done/z.txt").exists)
    assert sorted(os.listdir(box)) == ["done", "failed"] and os.listdir(box / "failed") == [name]
    assert [f["file"] for f in s.failed()] == [name] and "0xff" in s.failed()[0]["error"] and len(got) == 2
    assert s.logged().count("not taken off the queue") == 1
    (box / "done").rename(tmp_path / "done")
    (box / "done").write_text("in the way")
    (box / "y.txt").write_bytes(b"lock the front door")
    until(lambda: s.logged().count("not taken off the queue") == 2)
    time.sleep(0.3)                                 # many looks at the folder
    assert len(got) == len(set(got)) == 3 and (box / "y.txt").exists()
    assert s.stop() < 2
    hook.shutdown()


def test_two_services_do_not_share_a_folder(supervisor, tmp_path):
    s = supervisor(DEMO + SOCKET)
    s.start()
    other = subprocess.run([sys.executable, "-m", "colibri_edge", "service", "--config", s.config], capture_output=True, text=True,
                           env={**os.environ, "STATE_DIRECTORY": str(s.state)})
    assert other.returncode == 1 and "in use by another" in other.stderr and other.stderr.count("\n") == 1


def test_pacing(tmp_path):
    """None when cool, more when hotter, three quarters at most; logged; a sensor that goes away ends it."""
    class Config:
        pace = {"sensor": "t", "from": 70.0, "to": 80.0}
        model = {"file": "x"}

        def beside(self, name):
            return tmp_path / name

    shares = []
    for text in ("60000", "70000", "75000", "80000", "95000", "75.5"):
        (tmp_path / "t").write_text(text)
        m = Metrics(tmp_path / "m.prom", "x")
        pace = Pace(Config(), Log(level="error"), m)
        pace.measure()
        shares.append(round(pace.share(), 3))
    assert shares == [0, 0, 0.375, 0.75, 0.75, 0.413]
    (tmp_path / "t").write_text("80000")
    pace = Pace(Config(), Log(level="error"), m)
    pace.rest(lambda: False)
    time.sleep(0.05)
    start = time.monotonic()
    assert not pace.rest(lambda: False)
    assert m.values["paced_seconds_total"] >= 0.15 and time.monotonic() - start >= 0.15     # three times the work before it
    assert pace.rest(lambda: True)
    pace.before = None                                                  # as at each item: what came before was no work
    time.sleep(0.05)
    rested = m.values["paced_seconds_total"]
    assert not pace.rest(lambda: False) and m.values["paced_seconds_total"] == rested
    (tmp_path / "t").unlink()
    pace.looked = -1e9
    assert not pace.rest(lambda: False) and pace.share() == 0
    m.write()
    assert metrics(tmp_path / "m.prom")["temperature_celsius"] == 80


@pytest.mark.big
def test_memory_after_two_thousand_items(supervisor, tmp_path):
    """Resident memory after 2,000 items and after 200: within 1 %."""
    schema = {"type": "object", "properties": {"on": {"type": "boolean"}}, "required": ["on"], "additionalProperties": False}
    (tmp_path / "schema.json").write_text(json.dumps(schema))
    s = supervisor(DEMO + 'schema = "schema.json"\n' + SOCKET + '[log]\nmetrics = "m.prom"\n[[sink]]\nkind = "file"\npath = "last.json"\n')
    s.start()
    client = Client(tmp_path / "items")
    pairs = task.held_out(200, 3)
    seen = {}
    for i in range(2000):
        client.send(pairs[i % 200][0])
        assert "accepted" in client.read()
        jsonschema.validate(client.read()["reply"], schema)
        if i + 1 in (200, 2000):
            seen[i + 1] = int(Path(f"/proc/{s.child.pid}/statm").read_text().split()[1])
    assert abs(seen[2000] - seen[200]) <= seen[200] / 100, seen
