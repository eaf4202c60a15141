"""What the process may use: quotas and limits of cgroups v1 and v2 with their parents, sizes, threads."""
from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from colibri_edge import limits


@pytest.fixture
def tree(tmp_path):
    """tree(cgroup lines, {path: content}) -> keyword arguments that point limits at a made-up machine."""

    def make(lines: list[str], files: dict[str, str]) -> dict[str, Path]:
        root = tmp_path / "cgroup"
        root.mkdir()
        for name, content in files.items():
            path = root / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(content + "\n")
        (tmp_path / "proc").write_text("\n".join(lines) + "\n")
        return {"root": root, "proc": tmp_path / "proc"}

    return make


APP = "system.slice/app.service"
DOCKER = "memory/docker/abc/memory.limit_in_bytes"
HUGE = "9223372036854771712"
V2 = [f"0::/{APP}"]
V1 = ["5:memory:/docker/abc", "4:cpu,cpuacct:/docker/abc", "1:name=systemd:/x", "0::/docker/abc"]


def v1_quota(folder: str, quota: str, period: str = "100000") -> dict[str, str]:
    return {f"{folder}/cpu.cfs_quota_us": quota, f"{folder}/cpu.cfs_period_us": period}


@pytest.mark.parametrize("lines, files, cores, memory", [
    (V2, {f"{APP}/cpu.max": "150000 100000", f"{APP}/memory.max": "1000"}, 1500, 1000),
    (V2, {f"{APP}/cpu.max": "max 100000", f"{APP}/memory.max": "max"}, None, None),
    # the parent is tighter than the group itself
    (V2, {f"{APP}/cpu.max": "400000 100000", "system.slice/cpu.max": "50000 100000",
          f"{APP}/memory.max": "max", "system.slice/memory.max": "2048"}, 500, 2048),
    # the group itself is tighter than its parent, the root has no limit files
    (V2, {f"{APP}/cpu.max": "20000 100000", "system.slice/cpu.max": "max"}, 200, None),
    # only the controller's own folder on a hybrid machine
    (V2, {f"unified/{APP}/memory.max": "77"}, None, 77),
    # a container sees its own group as the root
    (["0::/"], {"cpu.max": "250000 100000", "memory.max": "536870912"}, 2500, 512 << 20),
    (["0::/../other"], {"cpu.max": "100000 100000"}, 1000, None),
    (V1, {DOCKER: "4096", **v1_quota("cpu/docker/abc", "50000")}, 500, 4096),
    (V1, {DOCKER: HUGE, **v1_quota("cpu/docker/abc", "-1")}, None, None),
    (V1, {DOCKER: HUGE, "memory/docker/memory.limit_in_bytes": "12345",
          **v1_quota("cpu,cpuacct/docker/abc", "300000")}, 3000, 12345),
    # the group's folder is not visible (bind-mounted as the root of a container)
    (V1, {"memory/memory.limit_in_bytes": "999", **v1_quota("cpu", "100000")}, 1000, 999),
    # odd contents are no limits
    (V2, {f"{APP}/cpu.max": "", f"{APP}/memory.max": "soon"}, None, None),
    (V2, {f"{APP}/cpu.max": "50000 0"}, None, None),
    (["", "nonsense", "0::/a"], {"a/memory.max": "5"}, None, 5),
    ([], {"memory.max": "5"}, None, None),
])
def test_cgroups(tree, lines, files, cores, memory):
    where = tree(lines, files)
    assert limits.cpu_quota_millicores(**where) == cores
    assert limits.memory_limit_bytes(**where) == memory


def test_no_cgroups_at_all(tmp_path):
    where = {"root": tmp_path / "none", "proc": tmp_path / "none either"}
    assert limits.cpu_quota_millicores(**where) is None
    assert limits.memory_limit_bytes(**where) is None


def test_threads_obey_quota_and_affinity():
    from colibri_edge import _native

    assert _native.default_threads(500) == 1            # half a core: one thread
    assert _native.default_threads(1) == 1
    assert 1 <= _native.default_threads(10**6) <= len(os.sched_getaffinity(0))
    one = min(os.sched_getaffinity(0))
    code = (f"import os; os.sched_setaffinity(0, {{{one}}})\n"
            "from colibri_edge import limits; print(limits.default_threads())")
    assert subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout == "1\n"


@pytest.mark.parametrize("text, value", [
    ("2GiB", 2 << 30), ("512M", 512 << 20), ("1.5 GB", 1_500_000_000), ("1k", 1024), ("64", 64), ("3 tib", 3 << 40),
    (12, 12), ("10b", 10),
])
def test_sizes(text, value):
    assert limits.parse_bytes(text) == value


@pytest.mark.parametrize("text", ["", "GiB", "0", "-1", "1e99", "nan", "inf", "2 lots", "1 GiB GiB", "1,5G"])
def test_wrong_sizes(text):
    with pytest.raises(ValueError, match="memory size is"):
        limits.parse_bytes(text)


def test_peak_rss():
    code = ("from colibri_edge.limits import peak_rss_bytes as peak\n"
            "before = peak(); block = bytearray(b'x') * (64 << 20); print(peak() - before)")
    grown = int(subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stdout)
    assert 48 << 20 < grown < 96 << 20
