"""Kernels: the check program (every instruction set against scalar), formats against the Python table, checksums, exp, sincos."""
import os
import shutil
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from colibri_edge import _native
from colibri_edge.topology import FORMATS

ROOT = Path(__file__).parent.parent


def test_both_format_tables_agree():
    native = {name: row[:3] for name, row in _native.formats().items()}
    assert native == {name: (f.id, f.k, f.block_bytes) for name, f in FORMATS.items()}


def test_crc32c_known_values():
    assert _native.crc32c(b"123456789") == 0xE3069283           # the check value of the CRC catalogue
    assert _native.crc32c(bytes(32)) == 0x8A9136AA              # RFC 3720, B.4
    assert _native.crc32c(b"\xff" * 32) == 0x62A8AB43
    assert _native.crc32c(bytes(range(32))) == 0x46DD794E


@pytest.mark.parametrize("n", [0, 1, 7, 8, 4095, 12287, 12288, 12289, 24576, 100_003])
def test_crc32c_in_pieces(n):
    data = np.random.default_rng(n).integers(0, 256, n, dtype=np.uint8).tobytes()
    whole = _native.crc32c(data)
    for cut in {0, 1, n // 3, n // 2, max(n - 1, 0)}:
        assert _native.crc32c(data[cut:], _native.crc32c(data[:cut])) == whole
    if n:
        assert _native.crc32c(data) != _native.crc32c(bytes([data[0] ^ 1]) + data[1:])


def test_check_program(tmp_path):
    """Builds tests/check/check_kernels.c with the project's own build and runs it."""
    tools = {**os.environ, "PATH": os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")])}
    build = tmp_path / "build"
    for command in (["meson", "setup", str(build), str(ROOT), "-Dbuildtype=release"],
                    ["ninja", "-C", str(build), "tests/check/check_kernels"], [str(build / "tests/check/check_kernels")]):
        tool = shutil.which(command[0], path=tools["PATH"])
        assert tool, f"{command[0]} is not installed; pip install meson ninja cython"
        done = subprocess.run([tool, *command[1:]], env=tools, capture_output=True, text=True)
        assert done.returncode == 0, done.stdout + done.stderr
    assert done.stdout.strip().endswith(" 0 failed")
