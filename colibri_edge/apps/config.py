"""`colibri-edge config`: facts of this installation for build scripts."""
from __future__ import annotations

from colibri_edge.apps.common import OK, USAGE, Fail

HELP = "print facts of this installation for build scripts"
EXAMPLES = """\
examples:
  colibri-edge config --version
"""


def add_arguments(p) -> None:
    p.add_argument("--version", action="store_true", help="the version, as one line")


def main(args) -> int:
    from colibri_edge import __version__

    if not args.version:
        raise Fail("nothing was asked for; give --version", USAGE)
    print(__version__)
    return OK
