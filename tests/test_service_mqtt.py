"""MQTT in and out, against a broker of 60 lines that speaks what MQTT 3.1.1 asks of one subscriber (OASIS standard, chapter 3)."""
from __future__ import annotations

import json
import socket
import struct
import subprocess
import sys
import threading
import time

import pytest
from supervisor import Supervisor, until

CONNECT, CONNACK, PUBLISH, PUBACK, SUBSCRIBE, SUBACK, PINGREQ, PINGRESP = 1, 2, 3, 4, 8, 9, 12, 13


class Broker:
    """Sends `messages` to whoever subscribes, again until they are acknowledged; keeps what is published."""

    def __init__(self, messages: list[bytes], listening: bool = True):
        self.pending = dict(enumerate(messages, 1))
        self.acknowledged: list[int] = []
        self.published: list[tuple[str, bytes]] = []
        self.clients: list[bytes] = []
        self.listener = socket.socket()
        self.listener.bind(("127.0.0.1", 0))
        self.port = self.listener.getsockname()[1]
        if listening:
            self.listen()

    def listen(self) -> None:
        self.listener.listen()
        threading.Thread(target=self.accept, daemon=True).start()

    def accept(self) -> None:
        while True:
            connection, _ = self.listener.accept()
            threading.Thread(target=self.serve, args=(connection,), daemon=True).start()

    def serve(self, connection: socket.socket) -> None:
        f = connection.makefile("rb")

        def send(kind: int, body: bytes, flags: int = 0) -> None:
            size, n = b"", len(body)
            while True:
                n, low = divmod(n, 128)
                size += bytes([low | (128 if n else 0)])
                if not n:
                    break
            connection.sendall(bytes([kind << 4 | flags]) + size + body)

        while head := f.read(1):
            length = shift = 0
            while (b := f.read(1)[0]) & 128:
                length |= (b & 127) << shift
                shift += 7
            body = f.read(length | b << shift)
            kind, flags = head[0] >> 4, head[0] & 15
            if kind == CONNECT:
                self.clients.append(body)
                send(CONNACK, b"\0\0")
            elif kind == SUBSCRIBE:
                send(SUBACK, body[:2] + b"\1")
                for mid, message in list(self.pending.items()):
                    send(PUBLISH, b"\0\4cmds" + struct.pack(">H", mid) + message, 2)
            elif kind == PUBACK:
                mid = struct.unpack(">H", body[:2])[0]
                self.acknowledged.append(mid)
                self.pending.pop(mid, None)
            elif kind == PUBLISH:
                n = struct.unpack(">H", body[:2])[0]
                topic, rest = body[2:2 + n].decode(), body[2 + n:]
                if flags & 6:
                    send(PUBACK, rest[:2])
                    rest = rest[2:]
                self.published.append((topic, rest))
            elif kind == PINGREQ:
                send(PINGRESP, b"")


@pytest.fixture
def broker():
    return Broker([b"set the heating to 21 degrees", b"\xff\xfe", b"lock the front door"])


def test_messages_in_and_out(broker, tmp_path):
    """Each message is acknowledged when it is kept; the answers are published; user, password and client id are told."""
    (tmp_path / "password").write_text("geheim\n")
    s = Supervisor(tmp_path, f'[model]\nfile = "demo"\nctx = 256\n[source]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = {broker.port}\n'
                   'topic = "cmds"\nclient = "board-7"\nuser = "u"\npassword_file = "password"\n'
                   f'[[sink]]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = {broker.port}\ntopic = "answers"\n')
    try:
        s.start()
        until(lambda: len(broker.published) == 2)
        until(lambda: sorted(broker.acknowledged) == [1, 2, 3], 10)
        assert [t for t, _ in broker.published] == ["answers"] * 2
        assert ["climate.set" in p.decode() for _, p in broker.published] == [True, False]
        assert all(json.loads(p)["source"] == "mqtt" for _, p in broker.published)
        assert any(b"board-7" in c and b"geheim" in c for c in broker.clients)
        assert "0xff" in s.logged()
        until(lambda: s.waiting() == [])
        assert s.stop() < 2
    finally:
        s.close()


def test_a_broker_that_comes_late(tmp_path):
    """An answer waits for the connection, and is published once."""
    broker = Broker([], listening=False)
    (tmp_path / "service.toml").write_text('[model]\nfile = "demo"\nctx = 256\n[answer]\nmax_tokens = 1\n[source]\nkind = "stdin"\n'
                                           f'[[sink]]\nkind = "mqtt"\nhost = "127.0.0.1"\nport = {broker.port}\ntopic = "answers"\n')
    child = subprocess.Popen([sys.executable, "-m", "colibri_edge", "service", "--config", tmp_path / "service.toml"],
                             stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
    child.stdin.write("lock the front door\n")
    child.stdin.close()
    try:
        logged = ""
        while not logged.endswith("\n") or "ready " not in logged:
            logged += child.stderr.readline() or pytest.fail(logged)
        time.sleep(0.2)         # the answer is there, and waits
        broker.listen()
        logged += child.stderr.read()
        assert child.wait(timeout=60) == 0 and "failed" not in logged, logged
    finally:
        child.kill()
    assert [topic for topic, _ in broker.published] == ["answers"]


def test_without_the_library(tmp_path):
    (tmp_path / "service.toml").write_text('[model]\nfile = "demo"\n[source]\nkind = "stdin"\n[[sink]]\nkind = "mqtt"\ntopic = "x"\n')
    code = ("import sys\nsys.modules['paho'] = None\nfrom colibri_edge.apps.cli import main\n"
            f"sys.exit(main(['service', '--config', {str(tmp_path / 'service.toml')!r}]))")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, stdin=subprocess.DEVNULL)
    assert done.returncode == 1 and "pip install 'colibri-edge[mqtt]'" in done.stderr
