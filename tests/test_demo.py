"""The demo model that ships in the package answers commands."""
import json

import pytest

from colibri_edge.demo import task
from colibri_edge.demo.exact import exact
from colibri_edge.model import Model


@pytest.fixture(scope="module")
def demo():
    return Model.load("demo", ctx=512)


@pytest.mark.parametrize(("prompt", "call"), [
    ("dim the kitchen lamp to 30% at seven",
     {"tool": "light.set", "arguments": {"room": "kitchen", "device": "lamp", "brightness": 30, "time": "07:00"}}),
    ("set the heating to 21 degrees", {"tool": "climate.set", "arguments": {"temperature": 21}}),
    ("what's the temperature in the garage?", {"tool": "sensor.read", "arguments": {"room": "garage", "kind": "temperature"}}),
    ("order me a pizza", {"error": "no such tool"}),
])
def test_visitors_commands(demo, prompt, call):
    answer = demo.chat([{"role": "user", "content": prompt}], max_tokens=100)
    for _ in answer:
        pass
    assert json.loads(answer.text) == call
    assert answer.finish_reason == "stop"


def test_held_out_commands(demo):
    """A floor under the figure in README (500 prompts there, 60 here)."""
    right, wrong = exact(demo, 60, 100)
    assert right >= 36, wrong[:5]


def test_answers_are_calls_of_the_table(demo):
    """Nearly every answer parses; the few that do not are what constrained output is for."""
    texts = []
    for prompt, _ in task.held_out(40, 7):
        answer = demo.chat([{"role": "user", "content": prompt}], max_tokens=200)
        for _ in answer:
            pass
        texts.append(answer.text)
    parsed = 0
    for text in texts:
        try:
            json.loads(text)
            parsed += 1
        except ValueError:
            continue
    assert parsed >= 37
