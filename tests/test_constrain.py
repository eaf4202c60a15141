"""Answers with a JSON schema: they parse and validate, whatever the weights say and wherever the limit is.

The judge is the `jsonschema` package, which shares no code with the grammar.
"""
from __future__ import annotations

import json
import subprocess
import sys

import jsonschema
import pytest

from colibri_edge.apps import cli
from colibri_edge.demo import task
from colibri_edge.model import Model
from colibri_edge.text.constrain import SchemaError, grammar_of

CALL = {
    "type": "object", "properties": {"tool": {"enum": sorted(task.TOOLS)}, "arguments": {"type": "object"}},
    "required": ["tool", "arguments"], "additionalProperties": False,
}
# What a random model is asked for. Each has ends that a sampler does not find by itself: strings, digits, lists without limit.
SCHEMAS = {
    "text": {"type": "string"},
    "number": {"type": "number"},
    "list": {"type": "array", "items": {"type": "integer"}, "minItems": 3},
    "choice": {"anyOf": [{"const": "on"}, {"const": "off"}, {"type": "object", "required": ["percent"], "properties": {
        "percent": {"type": "integer", "minimum": 0, "maximum": 100}}, "additionalProperties": False}]},
    "nested": {"type": "object", "required": ["room", "readings"], "additionalProperties": False, "properties": {
        "room": {"type": "string", "minLength": 3}, "note": {"type": ["string", "null"]},
        "readings": {"type": "array", "minItems": 1, "items": {
            "type": "object", "required": ["at", "celsius"], "additionalProperties": False, "properties": {
                "at": {"type": "string", "pattern": "^[0-2][0-9]:[0-5][0-9]$"}, "celsius": {"type": "number"}}}}}},
    "tree": {"$ref": "#/$defs/node", "$defs": {"node": {"type": "object", "required": ["v"], "additionalProperties": False, "properties": {
        "v": {"type": "integer"}, "kids": {"type": "array", "items": {"$ref": "#/$defs/node"}}}}}},
    "anything": {},
}


@pytest.fixture(scope="module")
def demo():
    return Model.load("demo", ctx=512)


@pytest.fixture(scope="module")
def tiny(tiny_model):
    return Model.load(tiny_model)


def reply(model, schema, max_tokens: int, prompt: str = "turn on the lamp", **sampling):
    """A finished answer."""
    answer = model.chat([{"role": "user", "content": prompt}], max_tokens, schema=schema, **sampling)
    for _ in answer:
        pass
    return answer


@pytest.mark.parametrize("name", SCHEMAS)
def test_a_random_model_at_any_limit(tiny, name):
    """Random weights say nothing that is JSON: the grammar has to do it all, and to end in time."""
    schema = SCHEMAS[name]
    jsonschema.Draft202012Validator.check_schema(schema)
    done = 0
    for seed, limit in enumerate((8, 40, 100)):
        for temperature in (0.0, 1.5):
            try:
                answer = reply(tiny, schema, limit, temperature=temperature, seed=seed)
            except SchemaError as e:
                assert f"{limit} are allowed" in str(e)     # too little for the shortest reply
                continue
            assert answer.finish_reason == "stop" and len(answer.tokens) <= limit
            jsonschema.validate(json.loads(answer.text), schema)
            done += 1
    assert done >= 2


def test_the_context_ends_it_too(tiny_model):
    small = Model.load(tiny_model, ctx=70)
    answer = reply(small, SCHEMAS["text"], 1000, temperature=1.0, seed=1)
    assert answer.prompt_tokens + answer.completion_tokens <= small.session.ctx + 1 < 90
    assert isinstance(json.loads(answer.text), str)


def test_the_demo_model_says_the_same_where_it_was_right(demo):
    """The mask takes nothing from an answer that the schema admits."""
    for prompt, want in [p for p in task.held_out(60, 100) if p[1].startswith('{"tool"')][:8]:
        free = "".join(t.text for t in demo.chat([{"role": "user", "content": prompt}], 200, temperature=0))
        answer = reply(demo, CALL, 200, prompt, temperature=0)
        jsonschema.validate(json.loads(answer.text), CALL)
        if free == want:
            assert answer.text == want


def test_an_optional_part_that_is_long_to_end(tiny):
    """The shortest answer is {}, and one key opens twenty others: whether there is room for that is asked before it is begun."""
    names = [f"key_{i:02}" for i in range(20)]
    more = {"type": "object", "properties": dict.fromkeys(names, {"type": "string"}), "required": names, "additionalProperties": False}
    schema = {"type": "object", "properties": {"note": {"type": "string"}, "more": more}, "additionalProperties": False}
    for seed in range(12):
        for limit in (60, 120, 260):
            answer = reply(tiny, schema, limit, temperature=1.5, seed=seed)
            assert answer.finish_reason == "stop", answer.text
            jsonschema.validate(json.loads(answer.text), schema)


def test_literals_take_no_white_space(tiny):
    """A plan writes them, not the white space that may stand before them and has the lower ids."""
    names = "abcdefgh"
    schema = {"type": "object", "properties": dict.fromkeys(names, {"type": "boolean"}), "required": list(names),
              "additionalProperties": False}
    answer = reply(tiny, schema, 110, temperature=0.0)
    assert set(json.loads(answer.text)) == set(names) and answer.finish_reason == "stop"


def test_streamed_text_is_the_whole(tiny):
    answer = tiny.generate("x", 140, schema=SCHEMAS["nested"], temperature=1.0, seed=3)
    assert "".join(t.text for t in answer) == answer.text
    json.loads(answer.text)
    again = tiny.generate("x", 140, schema=SCHEMAS["nested"], temperature=1.0, seed=3)
    assert [t.id for t in again] == answer.tokens


@pytest.mark.parametrize(("schema", "says"), [
    ("{", "not JSON"), ("[" * 100000, "not JSON"), ("[]", "wanted a JSON object"), ('{"type": "colour"}', "Invalid type: colour"),
    ('{"$ref": "http://example.org/x"}', "example.org"), ('{"type": "array", "uniqueItems": true}', "uniqueItems"),
    ("false", "nothing satisfies"), ('{"type": "integer", "minimum": 5, "maximum": 1}', "Unsatisfiable"),
    ('{"type": "string", "pattern": "(?=a)b"}', "look-ahead"),
])
def test_a_bad_schema_is_refused(schema, says, tmp_path, capfd):
    with pytest.raises(SchemaError, match="schema") as e:
        grammar_of(schema)
    assert says in str(e.value) and "\n" not in str(e.value)
    file = tmp_path / "schema.json"
    file.write_text(schema)
    assert cli.main(["run", "demo", "-p", "x", "--json-schema", str(file)]) == 1
    out, err = capfd.readouterr()
    assert out == "" and err.startswith(f"colibri-edge: error: {file}: ") and says in err and err.count("\n") == 1


def test_command_line(tmp_path, capfd):
    file = tmp_path / "schema.json"
    file.write_text(json.dumps(CALL))
    assert cli.main(["run", "demo", "-p", "set the heating to 21 degrees", "--json-schema", str(file)]) == 0
    assert json.loads(capfd.readouterr().out) == {"tool": "climate.set", "arguments": {"temperature": 21}}
    assert cli.main(["run", "demo", "-p", "x", "--json-schema", str(file), "--stop", "}"]) == 2
    assert "--stop" in capfd.readouterr().err
    assert cli.main(["run", "demo", "-p", "x", "--json-schema", str(tmp_path / "none.json")]) == 1
    assert "none.json" in capfd.readouterr().err


def test_an_answer_that_found_no_end_is_an_error(tmp_path, capfd):
    """Its text is printed, but nobody takes it for JSON."""
    file = tmp_path / "schema.json"
    file.write_text(json.dumps({"type": "string", "pattern": "^(lamp)*z{50}$"}))
    assert cli.main(["run", "demo", "-p", "x", "--json-schema", str(file), "-n", "20"]) == 1
    out, err = capfd.readouterr()
    with pytest.raises(ValueError):
        json.loads(out)
    assert err.startswith("colibri-edge: 20 tokens did not hold a whole answer") and err.count("\n") == 1


def test_without_the_library(tmp_path):
    """A clear error, and nothing of it is imported before a schema is given."""
    code = ("import sys\nfrom colibri_edge.model import Model\nm = Model.load('demo', ctx=64)\n"
            "next(m.generate('x', 2))\nassert 'llguidance' not in sys.modules\nsys.modules['llguidance'] = None\n"
            "try:\n    m.generate('x', 9, schema={})\nexcept ImportError as e:\n    print(e)")
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert "pip install 'colibri-edge[json]'" in done.stdout
