"""Wheels: what cross/wheel.py lets through and what not; the x86-64 wheel without compiler and on an old processor (pytest -m wheel).

Building a wheel takes some minutes and fetches zig once: these tests are marked `wheel`. The AArch64 wheel's test is marked arm64 too.
"""
from __future__ import annotations

import os
import re
import shutil
import struct
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from crosstools import ROOT, load

W = load("wheel")


def library(machine: int = 62, needed=("libc.so.6",), versions=("GLIBC_2.17",), runpath: str = "$ORIGIN") -> bytes:
    """An ELF file that holds nothing but what the loader reads."""
    text = b"\0"

    def put(s: str) -> int:
        nonlocal text
        at = len(text)
        text += s.encode() + b"\0"
        return at

    dynamic = b"".join(struct.pack("<qQ", 1, put(n)) for n in needed) + struct.pack("<qQ", 29, put(runpath)) + bytes(16)
    aux = b"".join(struct.pack("<IHHII", 0, 0, 2, put(v), 16) for v in versions)
    verneed = struct.pack("<HHIII", 1, len(versions), put("libc.so.6"), 16, 0) + aux
    at = [64]
    for part in (text, dynamic, verneed):
        at.append(at[-1] + len(part))
    sections = [(0,) * 10, (0, 3, 0, 0, at[0], len(text), 0, 0, 1, 0), (0, 6, 0, 0, at[1], len(dynamic), 1, 0, 8, 16),
                (0, 0x6ffffffe, 0, 0, at[2], len(verneed), 1, 1, 8, 0)]
    head = b"\x7fELF\x02\x01\x01" + bytes(9) + struct.pack("<HHIQQQIHHHHHH", 3, machine, 1, 0, 0, at[3], 0, 64, 0, 0, 64, len(sections), 0)
    return head + text + dynamic + verneed + b"".join(struct.pack("<IIQQQQIIQQ", *s) for s in sections)


def packed(folder: Path, name: str = "colibri_edge-0.1.0-cp311-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl", modules=None) -> Path:
    """A wheel with seven such modules."""
    site = folder / "site"
    for i in range(7):
        file = site / f"colibri_edge/m{i}.abi3.so"
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(library())
    for path, data in (modules or {}).items():
        (site / path).write_bytes(data)
    arch, glibc = re.search(r"manylinux_2_(\d+)_(\w+?)[.]", name)[2], re.search(r"manylinux_2_(\d+)", name)[1]
    return W.pack(ROOT, site, folder, arch, f"2.{glibc}")


def test_a_good_wheel(tmp_path):
    """Names, tags, metadata of pyproject.toml, the same bytes each time; readelf sees in the fake what the check sees."""
    wheel = packed(tmp_path)
    assert wheel.name == "colibri_edge-0.1.0-cp311-abi3-manylinux_2_17_x86_64.manylinux2014_x86_64.whl"
    assert W.check(wheel) == {"arch": "x86_64", "modules": 7, "glibc": (2, 17), "needed": {"libc.so.6"}}
    first = wheel.read_bytes()
    assert packed(tmp_path).read_bytes() == first
    with zipfile.ZipFile(wheel) as z:
        meta = z.read("colibri_edge-0.1.0.dist-info/METADATA").decode()
        assert "\nName: colibri-edge\n" in meta and "Requires-Dist: numpy" in meta and "Provides-Extra: json" in meta
        assert "colibri-edge = colibri_edge.apps.cli:main" in z.read("colibri_edge-0.1.0.dist-info/entry_points.txt").decode()
        assert "Tag: cp311-abi3-manylinux2014_x86_64" in z.read("colibri_edge-0.1.0.dist-info/WHEEL").decode()


@pytest.mark.parametrize(("modules", "says"), [
    ({"colibri_edge/m0.abi3.so": library(versions=("GLIBC_2.2.5", "GLIBC_2.34"))}, "uses GLIBC_2.34, newer than the tag's 2.17"),
    ({"colibri_edge/m0.abi3.so": library(machine=183)}, "ELF machine 183, wanted 62"),
    ({"colibri_edge/m0.abi3.so": library(needed=("libopenblas.so.0",))}, "needs libopenblas.so.0"),
    ({"colibri_edge/m0.abi3.so": library(runpath="$ORIGIN:/home/me/lib")}, "RUNPATH"),
    ({"colibri_edge/m0.abi3.so": b"\x7fELF\x01\x01" + bytes(99)}, "no 64-bit"),
    ({"colibri_edge/m0.cpython-311-x86_64-linux-gnu.so": library()}, "wanted the suffix .abi3.so"),
])
def test_what_the_check_finds(tmp_path, modules, says):
    with pytest.raises(W.WheelError, match=re.escape(says)):
        W.check(packed(tmp_path, modules=modules))
    done = subprocess.run([sys.executable, ROOT / "cross/wheel.py", "check", next(tmp_path.glob("*.whl"))], capture_output=True, text=True)
    assert done.returncode == 1 and says in done.stderr and done.stderr.count("\n") == 1


def test_a_library_of_the_wheel_may_be_needed(tmp_path):
    core = {"colibri_edge/libcore.so": library(), "colibri_edge/m0.abi3.so": library(needed=("libcore.so", "libc.so.6"))}
    assert W.check(packed(tmp_path, modules=core))["needed"] == {"libcore.so", "libc.so.6"}


def test_a_changed_file_is_found(tmp_path):
    wheel = packed(tmp_path)
    bad = tmp_path / "x" / wheel.name
    bad.parent.mkdir()
    with zipfile.ZipFile(wheel) as z, zipfile.ZipFile(bad, "w") as out:
        for n in z.namelist():
            out.writestr(n, z.read(n) + (b"\n" if n.endswith("METADATA") else b""))
    with pytest.raises(W.WheelError, match="METADATA: its digest"):
        W.check(bad)


@pytest.mark.parametrize("preset", ["pi4", "pi5", "rk3588", "x86-64-v3", "windows-msvc"])
def test_presets_name_options_that_exist(preset):
    """Every option of a preset is one of meson.options, with a value that it may have."""
    import configparser

    ini = configparser.ConfigParser()
    ini.read(ROOT / f"configs/build/{preset}.ini")
    options = dict(re.findall(r"option\('(\w+)', type: '(\w+)'", (ROOT / "meson.options").read_text()))
    given = dict(ini["project options"])
    assert given and set(given) <= set(options)
    for name, value in given.items():
        assert (value in ("'enabled'", "'disabled'", "'auto'")) if options[name] == "feature" else int(value) > 0


# -- whole wheels ---------------------------------------------------------------------------------------------

BUILD = pytest.mark.skipif(os.uname().machine != "x86_64" or not shutil.which("gcc"), reason="needs an x86-64 host with gcc")


def build(arch: str, folder: Path) -> Path:
    done = subprocess.run([ROOT / "cross/build-wheel", "--out", folder, arch], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr[-4000:]
    return Path(done.stdout.splitlines()[-1])


@pytest.fixture(scope="module")
def installed(tmp_path_factory) -> tuple[Path, Path]:
    """The x86-64 wheel, and a Python with it in an environment whose PATH has no compiler."""
    folder = tmp_path_factory.mktemp("wheel")
    wheel = build("x86_64", folder)
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    empty = folder / "path"
    empty.mkdir()
    subprocess.run([folder / "venv/bin/pip", "install", "-q", "--only-binary=:all:", wheel], check=True,
                   env={"PATH": str(empty), "HOME": str(folder), **{k: v for k, v in os.environ.items() if k.startswith("PIP_")}})
    return wheel, folder / "venv/bin/python"


DIM = ["-m", "colibri_edge", "run", "demo", "-p", "dim the kitchen lamp to 30% at seven", "--temp", "0"]
DIMMED = '{"tool":"light.set","arguments":{"room":"kitchen","device":"lamp","brightness":30,"time":"07:00"}}\n'


@pytest.mark.wheel
@BUILD
def test_x86_wheel_without_a_compiler(installed, tmp_path):
    """auditwheel agrees with the tag; the demo answers the same with the best kernels, the plain ones, and as a Nehalem (no AVX)."""
    wheel, python = installed
    show = subprocess.run([sys.executable, "-m", "auditwheel", "show", wheel], capture_output=True, text=True, check=True).stdout
    assert re.search(r'tag:\s+"manylinux_2_(5|12|17)_x86_64"', " ".join(show.split())), show
    run = dict(cwd=tmp_path, capture_output=True, text=True, check=True)
    env = {"PATH": "", "HOME": str(tmp_path)}
    assert subprocess.run([python, *DIM], env=env, **run).stdout == DIMMED
    assert subprocess.run([python, *DIM], env={**env, "COLIBRI_EDGE_ISA": "scalar"}, **run).stdout == DIMMED
    old = ["qemu-x86_64-static", "-cpu", "Nehalem", python]
    assert subprocess.run([*old, "-c", "import colibri_edge; print(colibri_edge.isa())"], env={**env, "PATH": os.environ["PATH"]},
                          **run).stdout == "scalar\n"
    assert subprocess.run([*old, *DIM], env={**env, "PATH": os.environ["PATH"]}, **run).stdout == DIMMED


@pytest.mark.wheel
@pytest.mark.arm64
@BUILD
def test_aarch64_wheel_under_the_rig(tmp_path):
    """One command builds it, one runs it: both processors, demo answers byte for byte, golden logits, glibc 2.17."""
    wheel = build("aarch64", tmp_path)
    assert W.check(wheel)["arch"] == "aarch64" and W.check(wheel)["glibc"] <= (2, 31)
    done = subprocess.run([ROOT / "cross/rig-arm64", "wheel", wheel], capture_output=True, text=True,
                          env={**os.environ, "PYTHON": sys.executable})
    assert done.returncode == 0, done.stderr[-4000:]
    for text in ("cortex-a72: import, neon", "cortex-a76: import, dotprod", "cortex-a72: 3 answers", "cortex-a76: 3 answers"):
        assert text in done.stdout


@pytest.mark.wheel
@BUILD
@pytest.mark.skipif(not Path("/lib/systemd/systemd").exists() or os.geteuid(), reason="needs systemd and root")
def test_real_systemd_starts_the_service(installed):
    """The unit as it ships, under systemd as process 1 of namespaces: ready, item, reload, watchdog, kill and restart, sandbox, stop."""
    done = subprocess.run([ROOT / "cross/rig-systemd", installed[0]], capture_output=True, text=True, timeout=300,
                          env={**os.environ, "PIP_PYTHON": str(installed[1])})
    assert done.returncode == 0, done.stdout + done.stderr[-3000:]
    for text in ("READY: waiting for items", "an item: accepted", "reload (HUP): done", "watchdog of 3 s: fed", "kill -9: restarted",
                 "sandbox:", "stop: "):
        assert text in done.stdout
