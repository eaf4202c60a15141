"""`colibri-edge service`: a loop that answers items with a fixed prompt, made for a systemd unit.

    sources.py  timer, stdin, FIFO, Unix socket, folder, MQTT    --> spool.py   accepted items, on disk until they are answered
    loop.py     prompt.py (template, sensors) -> model -> sinks.py   stdout, journal, file, socket, webhook, MQTT
    config.py   the TOML file and its check        report.py   logs, metrics        systemd.py   notify socket, unit, install

Owns: the command's options. Everything else is imported by main(): `colibri-edge --help` stays quick.
"""
from __future__ import annotations

import sys

from colibri_edge.apps.common import ERROR, OK, USAGE, Fail

HELP = "answer items in a loop, as a systemd service"
EXAMPLES = """\
examples:
  colibri-edge service --config service.toml --check    # what is wrong with the file, without loading the model
  colibri-edge service --config service.toml
  colibri-edge service --config /etc/colibri-edge/service.toml --install          # prints what to do
  sudo colibri-edge service --config /etc/colibri-edge/service.toml --install --yes

SIGTERM ends within two seconds, and the item in work is given back; SIGHUP reads the prompt anew. docs/service.md tells more.
"""


def add_arguments(p) -> None:
    p.add_argument("--config", metavar="FILE", required=True, help="a TOML file; configs/service.toml is one with comments")
    p.add_argument("--check", action="store_true", help="check the file and everything that it names, load nothing")
    p.add_argument("--install", action="store_true", help="print how to install the systemd unit for this file")
    p.add_argument("--yes", action="store_true", help="with --install: do it (as root)")


def main(args) -> int:
    from colibri_edge.apps.service.config import UNIT_FOLDERS, ConfigError, load

    if args.yes and not args.install:
        raise Fail("--yes belongs to --install; give both", USAGE)
    try:
        config = load(args.config, for_unit=args.check or args.install)
    except ConfigError as e:
        for line in e.problems:
            print(f"colibri-edge: error: {line}", file=sys.stderr)
        return ERROR
    if args.install:
        from colibri_edge.apps.service.systemd import install

        return install(config, do_it=args.yes)
    if args.check:
        print(f"{config.path}: good; {config.source['kind']} -> {', '.join(s['kind'] for s in config.sinks)}")
        if config.waits_for_unit:
            print(f"It needs {' or '.join(map(str, UNIT_FOLDERS))}, which the unit makes; by hand, make them and set folder in [queue].")
        return OK
    from colibri_edge.apps.service.loop import Service

    return Service(config).run()
