"""`colibri-edge config`: facts of this installation for build scripts.

Owns: compiler and linker flags for programs that use include/colibri.h, and embed.cfg, by which libcolibri finds this
Python when it does not lie in the environment it belongs to (a development install). Refuses: flags that would
not work, with the reason.
"""

from __future__ import annotations

import os
import sys
import sysconfig
from pathlib import Path

from colibri_edge.apps.common import OK, USAGE, Fail

HELP = "print facts of this installation for build scripts"
EXAMPLES = """\
examples:
  colibri-edge config --version
  cc main.c $(colibri-edge config --cflags --libs)
"""


def add_arguments(p) -> None:
    p.add_argument("--version", action="store_true", help="the version, as one line")
    p.add_argument("--cflags", action="store_true", help="compiler flags for colibri.h")
    p.add_argument("--libs", action="store_true", help="linker flags for libcolibri")


def main(args) -> int:
    from colibri_edge import __version__

    if not (args.version or args.cflags or args.libs):
        raise Fail("nothing was asked for; give --version, --cflags or --libs", USAGE)
    if args.version:
        print(__version__)
    flags = ([cflags()] if args.cflags else []) + ([libs()] if args.libs else [])
    if flags:
        print(" ".join(flags))
    return OK


def cflags() -> str:
    """-I of the folder that holds colibri.h."""
    import colibri_edge

    package = Path(colibri_edge.__file__).resolve().parent
    for folder in (package / "include", package.parent / "include"):  # installed; a source tree
        if (folder / "colibri.h").is_file():
            return f"-I{folder}"
    raise Fail(
        f"colibri.h is neither in {package / 'include'} nor in {package.parent / 'include'}: the installation is not "
        "whole"
    )


def libs() -> str:
    """What links a program with libcolibri and lets it be found at run time."""
    folder = _library_folder()
    place = python_library()
    if _derived_environment(folder) is None:
        _write_embed(folder, place)
    if os.name == "nt":
        return f'"{folder / "colibri.lib"}"'
    return f"-L{folder} -lcolibri -Wl,-rpath,{folder}"


def python_library() -> Path:
    """The shared library of this Python; Fail where it has none."""
    if os.name == "nt":
        return Path(sys.base_prefix) / "python3.dll"
    names = {sysconfig.get_config_var(v) for v in ("INSTSONAME", "LDLIBRARY")}
    folders = {
        sysconfig.get_config_var("LIBDIR"),
        str(Path(sys.base_prefix) / "lib"),
        sysconfig.get_config_var("LIBPL"),
    }
    if sysconfig.get_config_var("MULTIARCH"):
        folders.add(f"/usr/lib/{sysconfig.get_config_var('MULTIARCH')}")
    for folder in sorted(filter(None, folders)):
        for name in sorted(filter(None, names), key=len, reverse=True):
            path = Path(folder) / name
            if (".so" in name or name.endswith(".dylib")) and path.is_file():
                return path
    version = "{}.{}".format(*sys.version_info)
    raise Fail(
        f"this Python ({sys.executable}) has no shared library libpython{version}.so, which C programs need; install "
        f"libpython{version} (Debian) or use a Python built with --enable-shared"
    )


def _library_folder() -> Path:
    from colibri_edge.capi import _capi

    folder = Path(_capi.__file__).resolve().parent
    for built in (folder, *(p / "colibri_edge" / "capi" for p in folder.parents)):
        if any(
            (built / name).exists() for name in ("libcolibri.so", "libcolibri.dylib", "colibri.dll", "libcolibri.dll")
        ):
            return built
    raise Fail(f"libcolibri is not beside {_capi.__file__}: the installation is not whole")


def _derived_environment(folder: Path) -> Path | None:
    """The environment above the library, when it is the running one."""
    return next((p for p in folder.parents if p.samefile(sys.prefix)), None)


def _write_embed(folder: Path, library: Path) -> None:
    text = f"executable={sys.executable}\nlibrary={library}\nversion={sys.version_info[0]}.{sys.version_info[1]}\n"
    path = folder / "embed.cfg"
    try:
        if not path.is_file() or path.read_text(encoding="utf-8") != text:
            path.write_text(text, encoding="utf-8")
    except OSError as e:
        raise Fail(f"cannot write {path}, by which libcolibri finds {sys.executable}: {e}") from None
