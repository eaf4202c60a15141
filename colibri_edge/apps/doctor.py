"""`colibri-edge doctor`: what of this machine costs speed or memory, and what to change.

Owns: the checks, one function each, over /proc and /sys (`root` points them elsewhere, for tests). Each gives a name, what was found,
"ok", "advice" or "unknown", and what to do. Refuses: to change anything, to fail where a system does not tell.
"""
from __future__ import annotations

import json
import os
import platform
import re
import tempfile
from collections.abc import Callable
from dataclasses import asdict, dataclass
from pathlib import Path

from colibri_edge.apps.common import OK, mib, table

HELP = "look at this machine: CPU, memory, disk, limits, and what to change"
EXAMPLES = """\
examples:
  colibri-edge doctor
  colibri-edge doctor --disk /mnt/ssd       the disk that models lie on (default: the working folder)
  colibri-edge doctor --json
"""
HOT = 80.0                  # degrees Celsius: boards throttle from 80 to 85
SLOW_DISK = 150e6           # bytes a second: an SD card; experts from there make a token slow
PROBE = 64 << 20


@dataclass(frozen=True, slots=True)
class Finding:
    """One check. state: "ok", "advice" (do says what to change) or "unknown" (this system does not tell)."""

    name: str
    found: str
    state: str = "ok"
    do: str = ""


def _read(path: Path) -> str | None:
    try:
        return path.read_text(errors="replace").strip()
    except OSError:
        return None


def _number(text: str | None) -> int | None:
    return int(text) if text is not None and re.fullmatch(r"-?\d+", text) else None


def _unknown(name: str) -> Finding:
    return Finding(name, "this system does not tell", "unknown")


def cpu(root: Path) -> Finding:
    """Model and cores."""
    info = _read(root / "proc/cpuinfo") or ""
    name = re.search(r"(?m)^(?:model name|Model|Hardware)\s*:\s*(.+)$", info)
    board = _read(root / "proc/device-tree/model") or ""
    text = board.strip("\0") or (name[1] if name else platform.processor() or platform.machine())
    return Finding("cpu", f"{text}, {os.cpu_count()} logical cores")


def isa(root: Path) -> Finding:
    """Which kernels run."""
    import colibri_edge

    have, used = colibri_edge.available_isas(), colibri_edge.isa()
    if used != have[-1]:
        return Finding("isa", f"{used}, but {have[-1]} would run", "advice", "unset COLIBRI_EDGE_ISA")
    if used == "scalar":
        return Finding("isa", "scalar: this CPU has none of the instruction sets that kernels were written for", "advice",
                       "expect a tenth of the speed; on x86-64 AVX2 is needed, on AArch64 a 64-bit system")
    return Finding("isa", used)


def threads(root: Path) -> Finding:
    """Threads against quota and affinity."""
    from colibri_edge import limits

    n, quota = limits.default_threads(), limits.cpu_quota_millicores(root / "sys/fs/cgroup", root / "proc/self/cgroup")
    if quota is not None and quota < 1000 * (os.cpu_count() or 1):
        return Finding("threads", f"{n}; the cgroup allows {quota / 1000:g} of {os.cpu_count()} cores", "advice",
                       "raise the CPU quota (systemd: CPUQuota=, containers: --cpus), or leave it and keep -t at its default")
    return Finding("threads", f"{n} pay here")


def governor(root: Path) -> Finding:
    """The frequency governor of the fastest cores."""
    found = {t for p in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_governor") if (t := _read(p))}
    if not found:
        return _unknown("governor")
    slow = found & {"powersave", "ondemand", "conservative"}
    drivers = {t for p in (root / "sys/devices/system/cpu").glob("cpu[0-9]*/cpufreq/scaling_driver") if (t := _read(p))}
    if slow and not (slow == {"powersave"} and drivers & {"intel_pstate", "amd-pstate-epp"}):   # there powersave scales up at once
        return Finding("governor", ", ".join(sorted(found)), "advice",
                       "echo performance | sudo tee /sys/devices/system/cpu/cpu*/cpufreq/scaling_governor")
    return Finding("governor", ", ".join(sorted(found)))


def temperature(root: Path) -> Finding:
    """The hottest zone, and throttling that a Raspberry Pi reports."""
    zones = [n / 1000 for p in (root / "sys/class/thermal").glob("thermal_zone*/temp") if (n := _number(_read(p))) and 0 < n < 200_000]
    throttled = _read(root / "sys/devices/platform/soc/soc:firmware/get_throttled")
    bits = int(throttled, 16) if throttled and re.fullmatch(r"(0x)?[0-9a-fA-F]+", throttled) else 0
    if bits & 0x50005:
        why = "the supply is too weak" if bits & 0x10001 else "it is too hot"
        return Finding("temperature", f"throttled, {why}" + (f"; {max(zones):.0f} C" if zones else ""), "advice",
                       "use the board's own power supply" if bits & 0x10001 else "add a heat sink or a fan")
    if not zones:
        return _unknown("temperature")
    if max(zones) >= HOT:
        return Finding("temperature", f"{max(zones):.0f} C", "advice", "add a heat sink or a fan: from here on the clock falls")
    return Finding("temperature", f"{max(zones):.0f} C")


def memory(root: Path) -> Finding:
    """What can be taken without swapping or being killed."""
    from colibri_edge import limits

    cgroups, proc = root / "sys/fs/cgroup", root / "proc/self/cgroup"
    free, limit = limits.available_bytes(cgroups, proc, root / "proc/meminfo"), limits.memory_limit_bytes(cgroups, proc)
    if free is None:
        return _unknown("memory")
    text = f"{mib(free)} free" + (f", the cgroup's limit is {mib(limit)}" if limit is not None else "")
    if free < 512 << 20:
        return Finding("memory", text, "advice", "raise the limit (systemd: MemoryMax=, containers: --memory) or stop other programs")
    return Finding("memory", text)


def swap(root: Path) -> Finding:
    """Swap on a disk makes a token wait for pages that a smaller --ram would not have used."""
    lines = (_read(root / "proc/swaps") or "").splitlines()[1:]
    if _read(root / "proc/swaps") is None:
        return _unknown("swap")
    disks = [line.split()[0] for line in lines if line.split() and not line.startswith("/dev/zram")]
    if not disks:
        return Finding("swap", "none on a disk")
    swappiness = _number(_read(root / "proc/sys/vm/swappiness"))
    text = f"on {', '.join(disks)}" + (f", swappiness {swappiness}" if swappiness is not None else "")
    if swappiness is not None and swappiness > 10:
        return Finding("swap", text, "advice", "sudo sysctl vm.swappiness=1, and give --ram: streamed experts are faster than swapped ones")
    return Finding("swap", text)


def page_size(root: Path) -> Finding:
    """The kernel's page size: files work with 4, 16 and 64 KiB."""
    n = os.sysconf("SC_PAGE_SIZE") if hasattr(os, "sysconf") else 4096
    if n > 65536:
        return Finding("page size", mib(n), "advice", "use a kernel with pages of 4, 16 or 64 KiB")
    return Finding("page size", mib(n))


def huge_pages(root: Path) -> Finding:
    """Transparent huge pages: decode from them is 1.1 to 1.6 times as fast."""
    text = _read(root / "sys/kernel/mm/transparent_hugepage/enabled")
    chosen = re.search(r"\[(\w+)\]", text or "")
    if not chosen:
        return _unknown("huge pages")
    if chosen[1] == "never":
        return Finding("huge pages", "never", "advice", "echo madvise | sudo tee /sys/kernel/mm/transparent_hugepage/enabled")
    return Finding("huge pages", chosen[1])


def limits_of_process(root: Path) -> Finding:
    """Limits of the process: address space and open files."""
    try:
        import resource
    except ImportError:
        return _unknown("limits")
    space = resource.getrlimit(resource.RLIMIT_AS)[0]
    if space != resource.RLIM_INFINITY:
        return Finding("limits", f"address space limited to {mib(space)}", "advice",
                       "ulimit -v unlimited: model files are mapped, and a mapping takes address space, not memory")
    return Finding("limits", "no limit on address space")


def disk(folder: Path) -> Finding:
    """Rate of random reads of 2 MiB past the page cache, from a file made for it."""
    from colibri_edge import _native

    try:
        with tempfile.NamedTemporaryFile(dir=folder, prefix=".colibri-edge-probe-") as f:
            block = os.urandom(1 << 20)
            for _ in range(PROBE >> 20):
                f.write(block)
            f.flush()
            os.fsync(f.fileno())
            rate = _native.probe_disk(f.name, 0, PROBE, 2 << 20, 64, 8)
    except OSError as e:
        return Finding("disk", f"{folder}: {e.strerror}", "unknown", "name a folder that can be written to: --disk FOLDER")
    text = f"{folder}: {rate / 1e6:.0f} MB/s in random reads of 2 MiB"
    if rate < SLOW_DISK:
        return Finding("disk", text, "advice", "keep models on an SSD (USB 3 or NVMe), not on an SD card")
    return Finding("disk", text)


CHECKS: tuple[Callable[[Path], Finding], ...] = (
    cpu, isa, threads, governor, temperature, memory, swap, page_size, huge_pages, limits_of_process)


def add_arguments(p) -> None:
    p.add_argument("--disk", type=Path, default=Path("."), metavar="FOLDER", help="where models lie; 64 MiB are written there and removed")
    p.add_argument("--json", action="store_true", help="print one JSON object")


def examine(root: Path = Path("/"), folder: Path = Path(".")) -> list[Finding]:
    """All findings of a machine whose /proc and /sys lie under root."""
    return [*(check(root) for check in CHECKS), disk(folder.resolve())]


def main(args) -> int:
    found = examine(folder=args.disk)
    if args.json:
        print(json.dumps({"findings": [asdict(f) for f in found]}))
        return OK
    marks = {"ok": "ok", "advice": "CHANGE", "unknown": "?"}
    print(table([(marks[f.state], f.name, f.found) for f in found], left=3))
    todo = [f"{f.name}: {f.do}" for f in found if f.state == "advice"]
    print("\nto change:\n  " + "\n  ".join(todo) if todo else "\nnothing to change")
    return OK
