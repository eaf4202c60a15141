"""`colibri-edge verify`: reads a whole .colibri file and checks every checksum."""
from __future__ import annotations

from pathlib import Path

from colibri_edge.apps.common import ERROR, OK, Fail, mib

HELP = "check every checksum of a .colibri file"
EXAMPLES = """\
examples:
  colibri-edge verify model.colibri

Names each damaged tensor, with its layer and expert, and then ends with exit code 1. Needs a few megabytes of memory.
"""


def add_arguments(p) -> None:
    p.add_argument("model", metavar="MODEL", help="a .colibri file, or demo")


def main(args) -> int:
    from colibri_edge.convert.cache import resolve
    from colibri_edge.convert.progress import Bar
    from colibri_edge.file import ColibriFile

    path = Path(args.model)
    if path.is_dir() or path.suffix == ".gguf":
        raise Fail(f"{path} is no .colibri file, and only those hold checksums; convert it first: "
                   f"colibri-edge convert {path} {path.name.removesuffix('.gguf') or 'model'}.colibri", ERROR)
    bar = Bar(f"checking {path.name}")
    with ColibriFile(resolve(args.model)) as file:
        try:
            records = file.verify(bar)
        finally:
            bar.close()
        print(f"{file.path}: sound; {records} records, {mib(file.size)}")
    return OK
