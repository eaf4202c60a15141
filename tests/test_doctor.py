"""`colibri-edge doctor` on made-up machines: trees of /proc and /sys."""
from __future__ import annotations

import json
from pathlib import Path

import pytest

from colibri_edge.apps import cli, doctor

CPUFREQ = "sys/devices/system/cpu/cpu0/cpufreq"
HUGE = "sys/kernel/mm/transparent_hugepage/enabled"
SWAPS = "Filename Type Size Used Priority\n"


@pytest.fixture
def machine(tmp_path):
    """machine({path: content}) -> the root of a tree with these files."""

    def make(files: dict[str, str]) -> Path:
        for name, text in files.items():
            path = tmp_path / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(text)
        return tmp_path

    return make


@pytest.mark.parametrize(("check", "files", "state", "words"), [
    ("governor", {}, "unknown", ""),
    ("governor", {f"{CPUFREQ}/scaling_governor": "performance\n"}, "ok", "performance"),
    ("governor", {f"{CPUFREQ}/scaling_governor": "ondemand\n"}, "advice", "echo performance"),
    ("governor", {f"{CPUFREQ}/scaling_governor": "powersave\n", f"{CPUFREQ}/scaling_driver": "intel_pstate\n"}, "ok", "powersave"),
    ("governor", {f"{CPUFREQ}/scaling_governor": "powersave\n", f"{CPUFREQ}/scaling_driver": "cpufreq-dt\n"}, "advice", "powersave"),
    ("temperature", {}, "unknown", ""),
    ("temperature", {"sys/class/thermal/thermal_zone0/temp": "54321\n", "sys/class/thermal/thermal_zone1/temp": "-40000\n"}, "ok", "54 C"),
    ("temperature", {"sys/class/thermal/thermal_zone0/temp": "82000\n"}, "advice", "fan"),
    ("temperature", {"sys/class/thermal/thermal_zone0/temp": "broken\n"}, "unknown", ""),
    ("temperature", {"sys/devices/platform/soc/soc:firmware/get_throttled": "50005\n"}, "advice", "power supply"),
    ("temperature", {"sys/devices/platform/soc/soc:firmware/get_throttled": "40004\n"}, "advice", "too hot"),
    ("memory", {"proc/meminfo": "MemAvailable: 4000000 kB\n"}, "ok", "3.8 GiB free"),
    ("memory", {"proc/meminfo": "MemAvailable: 4000000 kB\n", "proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/memory.max": "268435456\n",
                "sys/fs/cgroup/a/memory.current": "0\n"}, "advice", "256.0 MiB free, the cgroup's limit is 256.0 MiB"),
    ("memory", {}, "unknown", ""),
    ("swap", {}, "unknown", ""),
    ("swap", {"proc/swaps": SWAPS}, "ok", "none"),
    ("swap", {"proc/swaps": SWAPS + "/dev/zram0 partition 9 0 100\n", "proc/sys/vm/swappiness": "180\n"}, "ok", "none"),
    ("swap", {"proc/swaps": SWAPS + "/dev/mmcblk0p3 partition 9 0 -2\n", "proc/sys/vm/swappiness": "60\n"}, "advice", "swappiness=1"),
    ("swap", {"proc/swaps": SWAPS + "/swapfile file 9 0 -2\n", "proc/sys/vm/swappiness": "1\n"}, "ok", "/swapfile"),
    ("huge_pages", {}, "unknown", ""),
    ("huge_pages", {HUGE: "always [madvise] never\n"}, "ok", "madvise"),
    ("huge_pages", {HUGE: "always madvise [never]\n"}, "advice", "echo madvise"),
    ("cpu", {"proc/cpuinfo": "processor: 0\nmodel name\t: Fast One\n"}, "ok", "Fast One"),
    ("cpu", {"proc/cpuinfo": "processor: 0\n", "proc/device-tree/model": "Raspberry Pi 5 Model B\0"}, "ok", "Raspberry Pi 5 Model B,"),
    ("threads", {"proc/self/cgroup": "0::/a\n", "sys/fs/cgroup/a/cpu.max": "50000 100000\n"}, "advice", "allows 0.5 of"),
    ("threads", {}, "ok", "pay here"),
])
def test_checks(machine, check, files, state, words):
    f = getattr(doctor, check)(machine(files))
    assert f.state == state, f
    assert words in f"{f.found} {f.do}"
    assert bool(f.do) is (state == "advice")


def test_every_check_lives_on_an_empty_machine(tmp_path):
    found = doctor.examine(tmp_path, tmp_path)
    assert len(found) == len(doctor.CHECKS) + 1 and len({f.name for f in found}) == len(found)
    assert list(tmp_path.iterdir()) == []


def test_disk(tmp_path, monkeypatch):
    from colibri_edge import _native

    assert "MB/s" in doctor.disk(tmp_path).found
    monkeypatch.setattr(_native, "probe_disk", lambda *a: 40e6)
    assert doctor.disk(tmp_path).state == "advice" and "SSD" in doctor.disk(tmp_path).do
    gone = doctor.disk(tmp_path / "nowhere")
    assert gone.state == "unknown" and "No such file" in gone.found


def test_the_command(tmp_path, capsys):
    assert cli.main(["doctor", "--disk", str(tmp_path), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)["findings"]
    assert {"cpu", "isa", "threads", "governor", "temperature", "memory", "swap", "page size", "huge pages", "limits", "disk"} == {
        f["name"] for f in found}
    assert cli.main(["doctor", "--disk", str(tmp_path)]) == 0
    out = capsys.readouterr().out
    assert "to change" in out
    assert all(f["name"] in out for f in found)
