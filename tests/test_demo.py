"""The demo model that ships in the package answers commands."""
import json
from pathlib import Path

import pytest

from colibri_edge import convert
from colibri_edge.demo import task
from colibri_edge.model import Model

WEIGHTS = Path(__file__).parents[1] / "models" / "demo"


@pytest.fixture(scope="module")
def demo():
    return Model.load("demo", ctx=512)


def answer(model, prompt):
    """(text, finish reason), greedy."""
    a = model.chat([{"role": "user", "content": prompt}], max_tokens=200, temperature=0.0)
    for _ in a:
        pass
    return a.text, a.finish_reason


@pytest.mark.parametrize(("prompt", "call"), [
    ("dim the kitchen lamp to 30% at seven",
     {"tool": "light.set", "arguments": {"room": "kitchen", "device": "lamp", "brightness": 30, "time": "07:00"}}),
    ("set the heating to 21 degrees", {"tool": "climate.set", "arguments": {"temperature": 21}}),
    ("what's the temperature in the garage?", {"tool": "sensor.read", "arguments": {"room": "garage", "kind": "temperature"}}),
    ("order me a pizza", {"error": "no such tool"}),
])
def test_visitors_commands(demo, prompt, call):
    text, reason = answer(demo, prompt)
    assert json.loads(text) == call
    assert reason == "stop"


def test_held_out_commands(demo):
    """A floor under the figure in README, which benchmarks/demo_exact.py measures on more prompts."""
    pairs = task.held_out(60, 100)
    wrong = [(p, want, got) for p, want in pairs if (got := answer(demo, p)[0]) != want]
    assert len(wrong) <= 4, wrong[:5]
    broken = 0
    for _, _, got in wrong:
        try:
            json.loads(got)
        except ValueError:
            broken += 1
    assert broken <= 3      # nearly every answer parses, wrong ones too


def test_ships_its_published_weights(demo, tmp_path):
    """So that the README's figures of other widths are of the model that ships."""
    convert(WEIGHTS, tmp_path / "demo.colibri", "q4_0")
    assert (tmp_path / "demo.colibri").read_bytes() == demo.file.path.read_bytes()
