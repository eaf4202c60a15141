"""What the service and systemd say to each other, and how the unit is installed.

Owns: the notify socket (sd_notify), the unit file as configs/colibri-edge.service gives it, with the paths and the memory limit of
this installation. Refuses: to change the system without --yes.
"""
from __future__ import annotations

import os
import re
import shutil
import socket
import subprocess
import sys
from importlib.resources import files
from pathlib import Path

from colibri_edge.apps.common import ERROR, OK, Fail

UNIT = Path("/etc/systemd/system/colibri-edge.service")


class Notify:
    """notify("READY=1", ...): sends to the socket that systemd names, or nowhere."""

    def __init__(self):
        self.path = os.environ.pop("NOTIFY_SOCKET", None)       # not for programs that we start
        usec, pid = os.environ.get("WATCHDOG_USEC", ""), os.environ.get("WATCHDOG_PID")
        self.watchdog_s = int(usec) / 1e6 if usec.isdigit() and pid in (None, str(os.getpid())) else 0.0

    def __call__(self, *states: str) -> None:
        if not self.path:
            return
        try:
            with socket.socket(socket.AF_UNIX, socket.SOCK_DGRAM) as s:
                s.settimeout(1)
                s.sendto("\n".join(states).encode(), ("\0" + self.path[1:]) if self.path[0] == "@" else self.path)
        except OSError:         # systemd is not there any more: the work goes on
            pass


def unit_template() -> str:
    """The text of configs/colibri-edge.service."""
    return files("colibri_edge.apps.service").joinpath("colibri-edge.service").read_text("utf-8")


def _quoted(path) -> str:
    """A path as a word of a command line in a unit (systemd.service(5), "Command lines")."""
    text = str(path)
    if re.fullmatch(r"[\w./@:+,=-]+", text):
        return text
    for c, escape in (("\\", "\\\\"), ('"', '\\"'), ("%", "%%"), ("$", "$$")):
        text = text.replace(c, escape)
    return f'"{text}"'


def unit(config) -> str:
    """The unit for a config: its command, its paths, its memory limit."""
    command = shutil.which("colibri-edge", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)]))
    if command is None:
        raise Fail("the command colibri-edge is not on PATH; install the package, then run this command again")
    text = unit_template()
    start = f"{_quoted(command)} service --config {_quoted(config.path)}"
    for key, value in (("ExecStart", start), ("ExecStartPre", f"{start} --check")):
        text = re.sub(rf"(?m)^{key}=.*$", lambda _, k=key, v=value: f"{k}={v}", text)
    if config.model["ram"]:
        text = re.sub(r"(?m)^MemoryMax=.*$", f"MemoryMax={config.model['ram'] >> 20}M", text)
    else:
        text = re.sub(r"(?m)^MemoryMax=.*$", "# MemoryMax: set ram in [model], then install again", text)
    if any(s["kind"] in ("webhook", "mqtt") for s in [config.source, *config.sinks]):
        text = re.sub(r"(?m)^PrivateNetwork=.*$", "PrivateNetwork=no", text)
        text = re.sub(r"(?m)^IPAddressDeny=.*\n", "", text)
        text = re.sub(r"(?m)^RestrictAddressFamilies=.*$", "RestrictAddressFamilies=AF_UNIX AF_INET AF_INET6", text)
    return text


def install(config, do_it: bool) -> int:
    """Prints the unit and the commands; with do_it writes the one and runs the others."""
    text = unit(config)
    commands = [["systemctl", "daemon-reload"], ["systemctl", "enable", "--now", UNIT.name]]
    home = [p for p in (config.path, config.beside(config.model["file"])) if str(p).startswith(("/home/", "/root/"))]
    if home:
        print(f"note: {home[0]} lies under a home, which the unit cannot see (ProtectHome); move it to /etc/colibri-edge or "
              "/var/lib/colibri-edge-models", file=sys.stderr)
    if not do_it:
        print(f"# write to {UNIT}:\n\n{text}\n# then, as root:")
        for c in commands:
            print(" ".join(c))
        print(f"# or let it be done: sudo {sys.argv[0] or 'colibri-edge'} service --config {config.path} --install --yes")
        return OK
    if not shutil.which("systemctl"):
        raise Fail("systemctl is not there: this system is not run by systemd; start `colibri-edge service --config FILE` from your own "
                   "supervisor")
    UNIT.write_text(text)
    print(f"wrote {UNIT}")
    for c in commands:
        done = subprocess.run(c, check=False)
        print(f"{' '.join(c)}: {'done' if done.returncode == 0 else f'exit code {done.returncode}'}")
        if done.returncode:
            return ERROR
    return OK
