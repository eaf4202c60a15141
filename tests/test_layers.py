"""Imports go one way: apps -> text, model -> engine -> core -> (pxd) -> include <- csrc.

Reads the sources of every .py, .pyx, .pxd, .c, .h and .inc file; nothing is imported.
"""
from __future__ import annotations

import ast
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
PKG = ROOT / "colibri_edge"

# Part of the package -> the parts it may import. "" is the package itself (lazy exports only). A part that is not here
# is an error: add a row, and no arrow that points up.
FILES = {"crc32c", "topology", "file", "limits", "session_file"}
ALLOWED = {
    "_native": set(),
    "core": {"_native", "file"},               # file: for its error
    "engine": {"core", "_native", "file", "session_file"},
    "session_file": {"crc32c", "topology"},
    "crc32c": {"_native"},
    "topology": set(),
    "file": {"crc32c", "topology"},
    "limits": {"_native"},
    "usage": set(),
    "trace": set(),
    "text": {"core", "_native"},
    "families": {"topology", "convert"},       # two halves of one job: convert asks for names, families give its rows
    "convert": {"families", "text", "_native", *FILES},
    "blockfile": {"convert", "_native", *FILES},
    "block": {"blockfile", "core", "_native", "convert", *FILES},
    "capi": {"", "budget", "usage", "block", "model", "engine", "core", "_native", "convert", *FILES},
    "budget": {"engine", "core", "_native", *FILES},
    "model": {"budget", "usage", "engine", "core", "text", "convert", "_native", *FILES},
    "apps": {"", "model", "budget", "usage", "trace",
             "block", "blockfile", "capi", "engine", "core", "text", "convert", "families", "_native", *FILES},
    "demo": {"", "model", "text", "convert", "engine", "topology"},
    "__main__": {"apps"},
    "": {"model", "block", "convert", "limits", "_native"},
}
# What `from colibri_edge import ...` may name without naming a part.
EXPORTS = {"*", "", "__version__", "show_config", "isa", "available_isas", "Model", "MoEBlock", "Generation", "Token"}
# The token path: what must not know of files of other formats, of families or of applications.
TOKEN_PATH = ("_native", "core", "engine", "text")


def part(path: Path) -> str:
    """The part of the package that a file belongs to."""
    name = path.relative_to(PKG).parts[0].split(".")[0]
    return "" if name == "__init__" else name


def imported(path: Path) -> set[str]:
    """Full names of what a .py, .pyx or .pxd file imports of colibri_edge."""
    package = ("colibri_edge", *path.relative_to(PKG).parts[:-1])
    found: set[str] = set()
    for module, dots, names in statements(path):
        base = module
        if dots:
            base = ".".join((*package[:len(package) - dots + 1], *filter(None, [module])))
        found |= {f"{base}.{n}" for n in names} if base == "colibri_edge" else {base}
    return {f for f in found if f.split(".")[0] == "colibri_edge"}


def statements(path: Path):
    """(module, leading dots, names) of each import and cimport."""
    text = path.read_text("utf-8")
    if path.suffix == ".py":
        for node in ast.walk(ast.parse(text)):
            if isinstance(node, ast.Import):
                yield from ((a.name, 0, ["*"]) for a in node.names)
            elif isinstance(node, ast.ImportFrom):
                yield node.module or "", node.level, [a.name for a in node.names]
        return
    text = re.sub(r"(?s)\(([^()]*)\)", lambda m: " ".join(m[1].split()), re.sub(r"#[^\n]*", "", text))
    for m in re.finditer(r"(?m)^[ \t]*from[ \t]+(\.*)([\w.]*)[ \t]+c?import[ \t]+([^\n]+)", text):
        yield m[2], len(m[1]), [n.split()[0] for n in m[3].split(",") if n.strip()]
    for m in re.finditer(r"(?m)^[ \t]*c?import[ \t]+([\w., ]+)", text):
        yield from ((n.split()[0], 0, ["*"]) for n in m[1].split(",") if n.strip())


SOURCES = sorted(p for p in PKG.rglob("*") if p.suffix in (".py", ".pyx", ".pxd") and "csrc" not in p.parts)


@pytest.mark.parametrize("path", SOURCES, ids=lambda p: str(p.relative_to(PKG)))
def test_imports_go_one_way(path):
    own = part(path)
    assert own in ALLOWED, f"{path.name} is a part of the package that tests/test_layers.py does not know"
    for name in imported(path):
        other = (name.split(".") + [""])[1]
        if other in EXPORTS:
            other = ""
        assert other == own or other in ALLOWED[own], f"{path.relative_to(ROOT)} imports {name}"


def test_token_path_is_clean():
    for own in TOKEN_PATH:
        assert not ALLOWED[own] & {"apps", "families", "convert", "model"}


C_SOURCES = sorted(p for d in (PKG / "csrc", ROOT / "include") for p in d.rglob("*")
                   if p.suffix in (".c", ".h", ".inc", ".in"))


@pytest.mark.parametrize("path", C_SOURCES, ids=lambda p: str(p.relative_to(ROOT)))
def test_c_knows_nothing_of_python(path):
    text = path.read_text("utf-8")
    inside = (ROOT / "include") in path.parents
    for kind, name in re.findall(r'(?m)^[ \t]*#[ \t]*include[ \t]*([<"])([^>"]+)[>"]', text):
        assert "python" not in name.lower() and "numpy" not in name.lower(), f"{path.name} includes {name}"
        if kind == '"' and inside:
            assert name.startswith("colibri/") or name == "colibri.h", f"public header {path.name} includes {name}"
        if kind == '"' and not inside:
            here = (path.parent / name).resolve()
            known = name.startswith("colibri") or (here.is_file() and (PKG / "csrc") in here.parents) \
                or (PKG / "csrc" / name).is_file()
            assert known, f"{path.relative_to(ROOT)} includes {name}"


@pytest.mark.parametrize("path", [p for p in SOURCES if p.suffix != ".py"], ids=lambda p: str(p.relative_to(PKG)))
def test_cython_takes_c_from_include(path):
    for name in re.findall(r'cdef extern from "([^"]+)"', path.read_text("utf-8")):
        assert name == "colibri.h" or (name.startswith("colibri/") and (ROOT / "include" / name).is_file()) \
            or (ROOT / "include" / f"{name}.in").is_file() or name in ("math.h", "string.h", "Python.h"), name
