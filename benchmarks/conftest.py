"""What a stored result holds of its machine: enough to judge a comparison, no host name and no single rounds."""
from __future__ import annotations

import sys
from pathlib import Path

# The installed package is measured, not the sources here, which hold no compiled modules.
ROOT = Path(__file__).resolve().parent.parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]


def pytest_benchmark_update_machine_info(config, machine_info):
    from colibri_edge import show_config

    for key in ("node", "release", "python_build"):
        machine_info.pop(key, None)
    cpu = machine_info.get("cpu", {})
    machine_info["cpu"] = {k: cpu[k] for k in ("arch", "brand_raw", "count") if k in cpu}
    build = show_config()
    machine_info["colibri_edge"] = {k: build[k] for k in ("version", "isa", "default_threads")}


def pytest_benchmark_update_json(config, benchmarks, output_json):
    output_json["commit_info"] = {k: output_json["commit_info"].get(k) for k in ("id", "time", "dirty")}
    for b in output_json["benchmarks"]:
        b["stats"].pop("data", None)
        b.pop("options", None)
