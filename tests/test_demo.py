"""The demo model that ships in the package: small, sound, and right about commands it was not trained on."""
from __future__ import annotations

import importlib.util
import json
from pathlib import Path

import pytest

import colibri_edge
from colibri_edge.apps import cli

ROOT = Path(__file__).parent.parent
MODEL = Path(colibri_edge.__file__).parent / "demo" / "demo.colibri"
if not MODEL.is_file():
    pytest.skip("this build has no demo model", allow_module_level=True)


def test_ships_whole_and_small(capfd):
    assert MODEL.stat().st_size <= 10_000_000
    assert cli.main(["verify", "demo"]) == 0
    assert "sound" in capfd.readouterr().out


def test_first_command_of_the_readme(capfd):
    assert cli.main(["run", "demo", "-p", "dim the kitchen lamp to 30% at seven"]) == 0
    out, err = capfd.readouterr()
    assert err == ""
    call = json.loads(out)
    assert call["tool"] == "light.set" and call["arguments"]["brightness"] == 30 and call["arguments"]["room"] == "kitchen"


def test_held_out_commands():
    """At least 95 % exact (README has the figures of more draws)."""
    from colibri_edge.demo import task

    spec = importlib.util.spec_from_file_location("demo_exact", ROOT / "benchmarks" / "demo_exact.py")
    bench = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(bench)
    pairs = task.held_out(200, seed=1)
    wrong = bench.wrong_answers(colibri_edge.Model.load("demo"), pairs)
    assert len(wrong) <= 0.05 * len(pairs), wrong[:5]
