"""Where answers go: stdout, journal, file, socket, webhook, MQTT.

Owns: one class a kind, with send(result); a failure is an exception, and the loop tries again. result: the dict that docs/service.md
lists. Every kind sends it whole or not at all; a file is renamed into its place. Refuses: following redirects of a webhook, answers
of it that are not 2xx.
"""
from __future__ import annotations

import os
import socket
import sys
import time
from string import Template

from colibri_edge.apps.service.spool import encode, write_atomic

JOURNAL = "/run/systemd/journal/socket"


def line(result: dict) -> bytes:
    """One line of JSON."""
    return encode(result) + b"\n"


class Stdout:
    """Past Python's buffer, which would keep what a full disk did not take and write it a second time."""

    def __init__(self, config, spec: dict):
        self.text = spec["format"] == "text"
        self.id: str | None = None      # of the result that `left` belongs to
        self.left = b""
        self.inside = False             # a line that is begun

    def send(self, result: dict) -> None:
        """Another try goes on where the last one stopped; a line that was begun and given up is ended first."""
        if not self.left or self.id != result["id"]:
            self.id = result["id"]
            self.left = b"\n" * self.inside + (result["text"].encode() + b"\n" if self.text else line(result))
        out = getattr(sys.stdout.buffer, "raw", sys.stdout.buffer)      # with PYTHONUNBUFFERED there is no buffer to pass
        while self.left:
            n = out.write(self.left)
            if n is None:
                raise BlockingIOError("its reader does not keep up")
            self.left = self.left[n:]
            self.inside = bool(self.left)


class Journal:
    """Sends to the journal's own socket, with the item's id as a field: journalctl COLIBRI_EDGE_ITEM=..."""

    def __init__(self, config, spec: dict):
        self.path = os.environ.get("COLIBRI_EDGE_JOURNAL", JOURNAL)

    def send(self, result: dict) -> None:
        text = line(result)[:-1]
        fields = b"SYSLOG_IDENTIFIER=colibri-edge\nPRIORITY=6\nCOLIBRI_EDGE_ITEM=" + result["id"].encode() + b"\nMESSAGE=" + text + b"\n"
        with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
            s.settimeout(5)
            s.sendto(fields, self.path)


class File:
    def __init__(self, config, spec: dict):
        self.path, self.config = Template(spec["path"]), config

    def send(self, result: dict) -> None:
        path = self.config.beside(self.path.safe_substitute(id=result["id"], date=time.strftime("%Y-%m-%d")))
        path.parent.mkdir(parents=True, exist_ok=True)
        write_atomic(path, line(result))


class Socket:
    """A Unix socket that something else listens at, stream or datagram."""

    def __init__(self, config, spec: dict):
        self.path = str(config.beside(spec["path"]))

    def send(self, result: dict) -> None:
        for kind in (socket.SOCK_STREAM, socket.SOCK_DGRAM):
            with socket.socket(socket.AF_UNIX, kind) as s:
                s.settimeout(5)
                try:
                    s.connect(self.path)
                except OSError as e:
                    import errno

                    if e.errno == errno.EPROTOTYPE and kind == socket.SOCK_STREAM:
                        continue
                    raise OSError(f"{self.path}: {e.strerror or e}") from None
                s.sendall(line(result))
                return


class Webhook:
    def __init__(self, config, spec: dict):
        import urllib.error
        import urllib.request

        class Stay(urllib.request.HTTPRedirectHandler):
            def redirect_request(self, *args):
                return None

        self.opener = urllib.request.build_opener(Stay)
        self.request, self.url, self.timeout = urllib.request.Request, spec["url"], spec["timeout"]
        self.error = urllib.error.HTTPError
        self.headers = {"Content-Type": "application/json"}
        if spec["token_file"]:
            self.headers["Authorization"] = "Bearer " + config.beside(spec["token_file"]).read_text().strip()

    def send(self, result: dict) -> None:
        request = self.request(self.url, line(result), {**self.headers, "Idempotency-Key": result["id"]}, method="POST")
        try:
            with self.opener.open(request, timeout=self.timeout) as answer:
                answer.read(1 << 16)
        except self.error as e:
            raise OSError(f"{self.url} answered {e.code} {e.reason}") from None


class Mqtt:
    def __init__(self, config, spec: dict):
        from colibri_edge.apps.service.mqtt import connect

        self.spec = spec
        self.client = connect(config, spec)
        self.client.loop_start()

    def send(self, result: dict) -> None:
        end = time.monotonic() + 10
        while not self.client.is_connected():       # the library would refuse the message, and yet publish it later on
            if time.monotonic() >= end:
                raise OSError(f"MQTT {self.spec['host']}: no connection in 10 s")
            time.sleep(0.05)
        sent = self.client.publish(self.spec["topic"], line(result)[:-1], self.spec["qos"], self.spec["retain"])
        sent.wait_for_publish(10)
        if not sent.is_published():
            raise OSError(f"MQTT {self.spec['host']}: no acknowledgement in 10 s")


KINDS = {"stdout": Stdout, "journal": Journal, "file": File, "socket": Socket, "webhook": Webhook, "mqtt": Mqtt}


def make(config) -> list:
    """The sinks of a config, ready to send."""
    return [KINDS[spec["kind"]](config, spec) for spec in config.sinks]
