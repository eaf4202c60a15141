"""What this process may use: CPU quota and memory limit of its cgroup (v1 and v2, parents included).

Owns: reading /proc/self/cgroup and the control files. Refuses: guessing where they are absent (returns None).
"""
from __future__ import annotations

import os
import re
import sys
from pathlib import Path

_ROOT = Path("/sys/fs/cgroup")


def _read(path: Path) -> str | None:
    try:
        return path.read_text().strip()
    except OSError:
        return None


def _folders(controller: str, root: Path, proc: Path):
    """Folders of this process's cgroup for the controller, from its own up to the root: (version, folder)."""
    for line in (_read(proc) or "").splitlines():
        if line.count(":") < 2:
            continue
        _, names, path = line.split(":", 2)
        if names == "":
            bases = [(2, root), (2, root / "unified")]
        elif controller in names.split(","):
            bases = [(1, root / controller), (1, root / names)]
        else:
            continue
        for version, base in bases:
            folder = base / path.lstrip("/")
            while True:
                if folder.is_dir():
                    yield version, folder
                if folder == base or base not in folder.parents:
                    break
                folder = folder.parent


def cpu_quota_millicores(root: Path = _ROOT, proc: Path = Path("/proc/self/cgroup")) -> int | None:
    """The least CPU quota of the cgroup and its parents, in thousandths of a core; None without one."""
    found = []
    for version, folder in _folders("cpu", root, proc):
        if version == 2:
            fields = (_read(folder / "cpu.max") or "max").split()
            quota, period = fields[0], fields[1] if len(fields) > 1 else "100000"
        else:
            quota, period = _read(folder / "cpu.cfs_quota_us") or "-1", _read(folder / "cpu.cfs_period_us") or "100000"
        if quota.isdigit() and period.isdigit() and int(period) > 0:
            found.append(max(1, int(quota) * 1000 // int(period)))
    return min(found, default=None)


def default_threads() -> int:
    """Threads that pay: the least of affinity mask, CPU quota and the physical cores of the fastest cluster."""
    from colibri_edge import _native

    return _native.default_threads(cpu_quota_millicores() or 0)


def huge_page_bytes(folder: Path = Path("/sys/kernel/mm/transparent_hugepage")) -> int:
    """Size of a huge page that the system gives where a program asks for it; 0 where it gives none."""
    if "[never]" in (_read(folder / "enabled") or "[never]"):
        return 0
    size = _read(folder / "hpage_pmd_size") or ""
    return int(size) if size.isdigit() and int(size) & (int(size) - 1) == 0 else 0


def memory_limit_bytes(root: Path = _ROOT, proc: Path = Path("/proc/self/cgroup")) -> int | None:
    """The least memory limit of the cgroup and its parents, in bytes; None without one ("max" and v1's huge number mean none)."""
    found = []
    for version, folder in _folders("memory", root, proc):
        text = _read(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")) or ""
        if text.isdigit() and int(text) < 1 << 60:
            found.append(int(text))
    return min(found, default=None)


def available_bytes(root: Path = _ROOT, proc: Path = Path("/proc/self/cgroup"), meminfo: Path = Path("/proc/meminfo")) -> int | None:
    """Memory this process can still take without swapping or being killed: the least of the system's available memory and, for its
    cgroup and each parent, limit minus use plus what the kernel can reclaim of it (inactive page cache). None where nobody tells."""
    if sys.platform == "win32":
        import psutil

        return psutil.virtual_memory().available
    found = []
    for line in (_read(meminfo) or "").splitlines():
        if line.startswith("MemAvailable:"):
            found.append(int(line.split()[1]) * 1024)
    for version, folder in _folders("memory", root, proc):
        limit = _read(folder / ("memory.max" if version == 2 else "memory.limit_in_bytes")) or ""
        used = _read(folder / ("memory.current" if version == 2 else "memory.usage_in_bytes")) or ""
        if not limit.isdigit() or not used.isdigit() or int(limit) >= 1 << 60:
            continue
        cache = re.findall(r"^(?:total_)?inactive_file (\d+)$", _read(folder / "memory.stat") or "", re.M)  # v1: own, and with children
        found.append(max(0, int(limit) - int(used) + max(map(int, cache), default=0)))
    return min(found, default=None)


def rss_bytes() -> int | None:
    """Memory that this process holds now, in bytes; None where the system does not tell."""
    if sys.platform == "win32":
        import psutil

        return psutil.Process().memory_info().rss
    fields = (_read(Path("/proc/self/statm")) or "").split()
    return int(fields[1]) * os.sysconf("SC_PAGE_SIZE") if len(fields) > 1 else None


def parse_bytes(text: str | int) -> int:
    """Bytes of "2GiB", "512M", "1.5 GB" or a plain number; K, M, G, T are powers of 1024, KB, MB, GB, TB of 1000."""
    if isinstance(text, int):
        return text
    units = {"": 1, "b": 1}
    for i, u in enumerate("kmgt", 1):
        units[u] = units[u + "ib"] = 1024 ** i
        units[u + "b"] = 1000 ** i
    s = text.strip().lower()
    number = s.rstrip("abcdefghijklmnopqrstuvwxyz ")
    unit = s[len(number):].strip()
    try:
        value = float(number) * units[unit]
    except (ValueError, KeyError):
        raise ValueError(f"memory size is {text!r}, wanted a number with a unit, such as 2GiB or 512M") from None
    if not 0 < value < 1 << 60:
        raise ValueError(f"memory size is {text!r}, wanted more than 0 and less than 1 EiB")
    return int(value)


def peak_rss_bytes() -> int:
    """Highest resident set of this program so far, in bytes.

    Linux: VmHWM, since getrusage keeps the peak of whatever the process was before exec (a shell, a test runner).
    """
    for line in (_read(Path("/proc/self/status")) or "").splitlines():
        if line.startswith("VmHWM:"):
            return int(line.split()[1]) * 1024
    try:
        import resource
    except ImportError:  # Windows
        import psutil

        return psutil.Process().memory_info().peak_wset
    scale = 1 if os.uname().sysname == "Darwin" else 1024
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * scale
