#!/usr/bin/env python3
"""Packs an installed tree into a wheel, and checks a wheel against the rules of its platform tag.

    cross/wheel.py pack SOURCE SITE OUT ARCH [GLIBC]   SITE: the folder that holds colibri_edge/; ARCH: x86_64 or aarch64 with the glibc
                                                       that it needs, or win_amd64; prints the wheel's path
    cross/wheel.py check WHEEL                         names, machine, needed libraries, symbol versions, RUNPATH, RECORD

Owns: the wheel's file names, METADATA (from pyproject.toml), WHEEL and RECORD; the rules of PEP 599 and 600: which libraries a manylinux
wheel may need, and that no symbol is newer than the glibc of the tag; for Windows, which DLLs the system has. Refuses: a check that finds
no modules.
"""
from __future__ import annotations

import base64
import csv
import hashlib
import io
import os
import re
import struct
import sys
import tomllib
import zipfile
from pathlib import Path

#: What PEP 600's policy lets a wheel of ours expect of a system; nothing else of that list is used.
SYSTEM = {"libc.so.6", "libm.so.6", "libpthread.so.0", "libdl.so.2", "librt.so.1", "libgcc_s.so.1", "ld-linux-aarch64.so.1",
          "ld-linux-x86-64.so.2"}
MACHINES = {"x86_64": 62, "aarch64": 183, "win_amd64": 0x8664}
#: What every 64-bit Windows 10 has (api-ms-win-crt-* is its C runtime), and CPython's stable ABI.
WINDOWS = {"kernel32.dll", "python3.dll"}


class WheelError(Exception):
    """The wheel breaks a rule; the text says which file and which rule."""


# -- pack -----------------------------------------------------------------------------------------------------


def pack(source: Path, site: Path, out: Path, arch: str, glibc: str = "") -> Path:
    """Writes the wheel; returns its path. The same tree gives the same bytes."""
    from pyproject_metadata import StandardMetadata

    pyproject = tomllib.loads((source / "pyproject.toml").read_text())
    meta = StandardMetadata.from_pyproject(pyproject, source)
    name, version = meta.name.replace("-", "_"), str(meta.version)
    tags = [f"manylinux_{glibc.replace('.', '_')}_{arch}" if glibc else arch]
    if glibc == "2.17":
        tags.append(f"manylinux2014_{arch}")        # the same platform by its older name, which older installers know
    tag = f"cp311-abi3-{'.'.join(tags)}"
    info = f"{name}-{version}.dist-info"
    tree = [p for p in sorted(site.rglob("*")) if p.is_file() and "__pycache__" not in p.parts]
    files = {p.relative_to(site).as_posix(): p.read_bytes() for p in tree}
    files[f"{info}/METADATA"] = bytes(meta.as_rfc822())
    files[f"{info}/WHEEL"] = ("Wheel-Version: 1.0\nGenerator: colibri-edge cross/wheel.py\nRoot-Is-Purelib: false\n"
                              + "".join(f"Tag: cp311-abi3-{t}\n" for t in tags)).encode()
    files[f"{info}/entry_points.txt"] = ("[console_scripts]\n" + "".join(f"{k} = {v}\n" for k, v in meta.scripts.items())).encode()
    files[f"{info}/licenses/LICENSE"] = (source / "LICENSE").read_bytes()
    record = io.StringIO()
    rows = csv.writer(record, lineterminator="\n")
    for path, data in files.items():
        rows.writerow([path, _digest(data), len(data)])
    rows.writerow([f"{info}/RECORD", "", ""])
    files[f"{info}/RECORD"] = record.getvalue().encode()
    wheel = out / f"{name}-{version}-{tag}.whl"
    part = wheel.with_suffix(".part")
    with zipfile.ZipFile(part, "w", zipfile.ZIP_DEFLATED) as z:
        for path, data in files.items():
            entry = zipfile.ZipInfo(path, (2020, 1, 1, 0, 0, 0))
            entry.external_attr = (0o100755 if path.endswith((".so", ".pyd", ".dll")) else 0o100644) << 16
            entry.compress_type = zipfile.ZIP_DEFLATED
            z.writestr(entry, data)
    os.replace(part, wheel)
    return wheel


def _digest(data: bytes) -> str:
    return "sha256=" + base64.urlsafe_b64encode(hashlib.sha256(data).digest()).decode().rstrip("=")


# -- check ----------------------------------------------------------------------------------------------------


def check(wheel: Path) -> dict:
    """Raises WheelError; returns what was found: modules, glibc (newest version used), needed."""
    m = re.fullmatch(r"(\w+)-([\w.]+)-cp311-abi3-(win_amd64|(?:manylinux_\d+_\d+_\w+|manylinux2014_\w+)(?:\.manylinux\w+)*)\.whl",
                     wheel.name)
    if not m:
        raise WheelError(f"{wheel.name}: wanted NAME-VERSION-cp311-abi3-manylinux_X_Y_ARCH.whl or -win_amd64.whl")
    windows = m[3] == "win_amd64"
    arch = m[3] if windows else m[3].split("_", 3)[-1].split(".")[0]
    floor = min((tuple(map(int, t)) for t in re.findall(r"manylinux_(\d+)_(\d+)_", m[3])), default=(0, 0))
    found = {"arch": arch, "modules": 0, "glibc": (0, 0), "needed": set()}
    with zipfile.ZipFile(wheel) as z:
        names = z.namelist()
        _check_record(z, names, f"{m[1]}-{m[2]}.dist-info/")
        inside = {Path(n).name for n in names if n.endswith((".so", ".dll"))}
        for name in names:
            if windows and name.endswith((".pyd", ".dll")):
                _check_dll(name, z.read(name), inside, found)
            elif ".so" in Path(name).name:
                _check_library(name, z.read(name), arch, floor, inside, found)
    if found["modules"] < 5:
        raise WheelError(f"{wheel.name} has {found['modules']} extension modules, wanted at least 5")
    return found


def _check_record(z: zipfile.ZipFile, names: list[str], info: str) -> None:
    rows = {r[0]: r[1] for r in csv.reader(io.StringIO(z.read(info + "RECORD").decode()))}
    if set(rows) != set(names):
        raise WheelError(f"RECORD and archive differ: {sorted(set(rows) ^ set(names))[:5]}")
    for name, digest in rows.items():
        if not name.endswith("/RECORD") and digest != _digest(z.read(name)):
            raise WheelError(f"{name}: its digest is not that of RECORD")


def _check_library(name: str, data: bytes, arch: str, floor: tuple, inside: set[str], found: dict) -> None:
    elf = Elf(data)
    if elf.machine != MACHINES[arch]:
        raise WheelError(f"{name}: ELF machine {elf.machine}, wanted {MACHINES[arch]} ({arch})")
    plain = Path(name).name.startswith("lib")
    if not plain and not name.endswith(".abi3.so"):
        raise WheelError(f"{name}: wanted the suffix .abi3.so")
    found["modules"] += not plain
    for library in elf.needed:
        if library not in SYSTEM | inside:
            raise WheelError(f"{name} needs {library}, which no system of the tag promises and the wheel does not hold")
    for version in elf.versions:
        if m := re.fullmatch(r"GLIBC_(\d+)\.(\d+)(?:\.\d+)?", version):
            number = int(m[1]), int(m[2])
            if number > floor:
                raise WheelError(f"{name} uses {version}, newer than the tag's {floor[0]}.{floor[1]}")
            found["glibc"] = max(found["glibc"], number)
    for path in elf.runpath:
        if not all(p == "$ORIGIN" or p.startswith("$ORIGIN/") for p in path.split(":")):
            raise WheelError(f"{name}: RUNPATH {path!r}, wanted $ORIGIN alone")
    found["needed"] |= elf.needed


def _check_dll(name: str, data: bytes, inside: set[str], found: dict) -> None:
    pe = Pe(data)
    if pe.machine != MACHINES["win_amd64"]:
        raise WheelError(f"{name}: PE machine {pe.machine:#x}, wanted {MACHINES['win_amd64']:#x} (win_amd64)")
    found["modules"] += name.endswith(".pyd")
    for library in pe.needed:
        if library.lower() not in WINDOWS | {n.lower() for n in inside} and not library.lower().startswith("api-ms-win-crt-"):
            raise WheelError(f"{name} needs {library}, which Windows does not bring and the wheel does not hold")
    found["needed"] |= pe.needed


class Pe:
    """What the loader reads of a 64-bit DLL: machine, needed."""

    def __init__(self, data: bytes):
        at, = struct.unpack_from("<I", data, 60) if data[:2] == b"MZ" else (0,)
        if not at or data[at:at + 4] != b"PE\0\0" or data[at + 24:at + 26] != b"\x0b\x02":
            raise WheelError("no 64-bit PE file")
        self.machine, sections = struct.unpack_from("<HH", data, at + 4)
        size, = struct.unpack_from("<H", data, at + 20)
        table = [struct.unpack_from("<8sIIII", data, at + 24 + size + 40 * i) for i in range(sections)]

        def place(rva: int) -> int:
            return next(rva - start + raw for _, virtual, start, length, raw in table if start <= rva < start + max(virtual, length))

        self.needed = set()
        imports, = struct.unpack_from("<I", data, at + 24 + 112 + 8)
        while imports:
            name, = struct.unpack_from("<I", data, place(imports) + 12)
            if not name:
                break
            start = place(name)
            self.needed.add(data[start:data.index(0, start)].decode())
            imports += 20


class Elf:
    """What the loader reads of a 64-bit little-endian library: machine, needed, versions, runpath."""

    def __init__(self, data: bytes):
        if data[:6] != b"\x7fELF\x02\x01":
            raise WheelError("no 64-bit little-endian ELF file")
        self.data = data
        self.machine, = struct.unpack_from("<H", data, 18)
        at, = struct.unpack_from("<Q", data, 40)
        size, count, _ = struct.unpack_from("<HHH", data, 58)
        self.sections = [struct.unpack_from("<IIQQQQIIQQ", data, at + i * size) for i in range(count)]
        self.needed, self.runpath, self.versions = set(), set(), set()
        for _, kind, _, _, offset, length, link, info, _, _ in self.sections:
            if kind == 6:           # SHT_DYNAMIC
                for i in range(offset, offset + length, 16):
                    tag, value = struct.unpack_from("<qQ", data, i)
                    if tag == 1:
                        self.needed.add(self._text(link, value))
                    elif tag in (15, 29):
                        self.runpath.add(self._text(link, value))
            elif kind == 0x6ffffffe:  # SHT_GNU_verneed
                self._versions(offset, link, info)

    def _text(self, section: int, at: int) -> str:
        start = self.sections[section][4] + at
        return self.data[start:self.data.index(0, start)].decode()

    def _versions(self, offset: int, link: int, count: int) -> None:
        for _ in range(count):
            _, number, _, aux, following = struct.unpack_from("<HHIII", self.data, offset)
            at = offset + aux
            for _ in range(number):
                _, _, _, name, more = struct.unpack_from("<IHHII", self.data, at)
                self.versions.add(self._text(link, name))
                at += more
            offset += following


def main(argv: list[str]) -> int:
    if len(argv) in (5, 6) and argv[0] == "pack":
        print(pack(*map(Path, argv[1:4]), *argv[4:]))
        return 0
    if len(argv) == 2 and argv[0] == "check":
        try:
            f = check(Path(argv[1]))
        except WheelError as e:
            print(f"wheel.py: error: {e}", file=sys.stderr)
            return 1
        glibc = "" if f["arch"] == "win_amd64" else f"glibc {f['glibc'][0]}.{f['glibc'][1]}, "
        print(f"{Path(argv[1]).name}: {f['modules']} modules, {glibc}needs {', '.join(sorted(f['needed']))}")
        return 0
    print(__doc__, file=sys.stderr)
    return 2


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
