"""This checkout cross-built for AArch64, under the emulator: cross/rig-arm64 step by step (pytest -m arm64).

Cache folder: $COLIBRI_EDGE_RIG, default in the user's cache. A first run fetches about 60 MB and takes some minutes.
"""
from __future__ import annotations

import json
import re
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
NEEDS = ["aarch64-linux-gnu-gcc", "aarch64-linux-gnu-objdump", "qemu-aarch64-static", "apt-get", "dpkg-deb", "flock"]
MISSING = [x for x in NEEDS if not shutil.which(x)]

pytestmark = [pytest.mark.arm64,
              pytest.mark.skipif(bool(MISSING), reason=f"not installed: {', '.join(MISSING)}"),
              pytest.mark.skipif(not (ROOT / "cross/rig-arm64").exists(), reason="needs a checkout")]


def rig(*args: str) -> str:
    """Standard output of one step."""
    p = subprocess.run([ROOT / "cross/rig-arm64", *args], capture_output=True, text=True)
    assert p.returncode == 0, p.stdout[-4000:] + p.stderr[-4000:]
    return p.stdout


@pytest.fixture(scope="module", autouse=True)
def built():
    """The installed cross build."""
    rig("build")


def test_elf_suffix_and_instructions():
    """FAULTS 27 and 29: machine, suffix, import, and the choice of kernels on each processor."""
    out = rig("elf")
    assert "cortex-a72: import, neon" in out
    assert "cortex-a76: import, dotprod" in out
    assert re.search(r"elf: \d+ AArch64 files", out)
    assert re.search(r"instructions: \d+ sdot, \d+ crc32c, none elsewhere", out)


def test_every_kernel_equals_the_scalar_one():
    out = rig("kernels")
    counts = re.findall(r"(\d+) passed, 0 failed", out)
    assert len(counts) == 2
    assert int(counts[0]) < int(counts[1]), "the A76 has to check neon and dotprod"


def test_golden_logits_equal_those_of_x86():
    """26 hashes each: neon on the A72, dotprod on the A76, neon on the A76, scalar."""
    want = len(json.loads((ROOT / "tests/golden/golden.json").read_text()))
    assert re.findall(r"(\d+) passed, 0 failed", rig("golden")) == [str(want)] * 4


def test_the_check_finds_a_foreign_instruction(tmp_path):
    """The look for instructions that a Cortex-A72 lacks is no blind one."""
    script = (ROOT / "cross/rig-arm64").read_text()
    functions = re.search(r"^newer=.*?^\}\n", script, re.M | re.S).group(0)
    code = {"sdot v0.4s, v1.16b, v2.16b": True, "sdot v0.4s, v1.16b, v2.4b[1]": True, "crc32cx w0, w1, x2": True,
            "ldadd w0, w1, [x2]": True, "casal w0, w1, [x2]": True, "fmla v0.8h, v1.8h, v2.8h": True, "aese v0.16b, v1.16b": True,
            "smlal v0.8h, v1.8b, v2.8b": False, "fcvtl v0.4s, v1.4h": False, "fmla v0.4s, v1.4s, v2.4s": False,
            "add v0.8h, v1.8h, v2.8h": False, "ldp q0, q1, [x0]": False, "ldaxr w0, [x1]": False, "csel x0, x1, x2, eq": False}
    for i, (line, foreign) in enumerate(code.items()):
        (tmp_path / f"{i}.s").write_text(f".arch armv8.2-a+dotprod+fp16+crypto+crc\n{line}\n")
        subprocess.run(["aarch64-linux-gnu-gcc", "-c", f"{i}.s", "-o", f"{i}.o"], cwd=tmp_path, check=True)
        out = subprocess.run(["bash", "-c", functions + f"foreign {i}.o"], cwd=tmp_path, capture_output=True, text=True, check=True)
        assert bool(out.stdout) == foreign, line
