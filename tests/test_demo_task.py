"""The split of the demo task: nothing held out is ever seen in training, and every answer fits the tool table."""

import json
import random
import re

import pytest

pytest.importorskip("colibri_edge.demo", reason="this build does not install the demo")
from colibri_edge.demo import phrases, task, words  # noqa: E402

N = 50_000


@pytest.fixture(scope="module")
def draws():
    return list(task.training(N, seed=7))


@pytest.fixture(scope="module")
def held():
    rng = random.Random(3)
    return [task.draw(rng, True) for _ in range(5_000)]


def numbers(call):
    return [v for k, v in call.get("arguments", {}).items() if isinstance(v, (int, float))]


def pairs(call):
    args = call.get("arguments", {})
    if args.get("room", "all") != "all":
        yield from ((args["room"], args[noun]) for noun in task.NOUNS if noun in args)
    if "task" in args:
        yield next((v, args["task"][len(v) + 1 :]) for v in words.TASK_VERBS if args["task"].startswith(v + " "))


def bare(text):
    return re.sub(r"[^a-z0-9%:]+", " ", text.lower()).strip()


def test_every_tool_has_patterns():
    assert set(phrases.PATTERNS) == set(task.TOOLS)
    assert len(task.TOOLS) >= 30


@pytest.mark.parametrize("tool", [*task.TOOLS, ""])
def test_no_pattern_is_in_both_lists(tool):
    every = {bare(s) for t in [*task.TOOLS, ""] for _, options, _ in task.skeletons(t, False) for s in options}
    mine = {bare(s) for _, options, _ in task.skeletons(tool, True) for s in options}
    assert mine and not mine & every


def test_phrases_are_in_their_own_lists():
    """A wrapper among the words (it happened) teaches nonsense: words have neither slots nor spaces at the ends."""
    for name, lists in phrases.REFUSAL_WORDS.items():
        assert len(lists) == 2
        assert all(w == w.strip(" ,.;") and "{" not in w for w in lists[0] + lists[1]), name
    for lists in (phrases.PREFIXES, phrases.ASK_PREFIXES):
        assert all(w == "" or w.endswith(" ") for w in lists[0] + lists[1])
    assert all(w == "" or w[0] in " ," for w in phrases.SUFFIXES[0] + phrases.SUFFIXES[1])
    assert all("{d}" in w for w in phrases.NPS[0] + phrases.NPS[1])
    assert all(w[-1] == " " for w in phrases.JOINERS[0] + phrases.JOINERS[1])


def test_held_out_values_never_occur_in_training(draws):
    for d in draws:
        for call in d.calls:
            assert not any(map(task.number_held, numbers(call))), d
            time = call.get("arguments", {}).get("time")
            assert not time or not task.time_held(*map(int, time.split(":"))), d
            assert not any(task.pair_held(a, b) for a, b in pairs(call)), d


def test_held_out_draws_use_held_out_values(held):
    slots = re.compile(r"\{(pct|temp|value|vol|durn?)\??\}")
    for d in held:
        said = [bool(slots.search(s)) for s in d.skeletons] * 2  # a number that no slot gave is the pattern's own
        for call, has_number in zip(d.calls, said, strict=False):
            args = call.get("arguments", {})
            keys = ("brightness", "position", "temperature", "level", "value", "duration") if has_number else ()
            assert all(task.number_held(args[k]) for k in keys if k in args), d
            time = args.get("time")
            assert not time or task.time_held(*map(int, time.split(":"))), d
            assert all(task.pair_held(a, b) for a, b in pairs(call)), d


def test_no_prompt_and_no_skeleton_is_shared(draws, held):
    assert not {bare(d.prompt) for d in draws} & {bare(d.prompt) for d in held}
    assert not {s for d in draws for s in d.skeletons} & {s for d in held for s in d.skeletons}


def test_answers_are_valid_calls(draws, held):
    for d in draws + held:
        assert task.validate(d.expected)
        assert d.expected == json.dumps(json.loads(d.expected), separators=(",", ":"))


def test_held_out_words_are_known(draws, held):
    known = {w for d in draws for w in bare(d.prompt).split()}
    known |= {w for table in phrases.REFUSAL_WORDS.values() for entry in table[1] for w in bare(entry).split()}
    refusal = {w for s in phrases.REFUSALS[1] for w in bare(s).split()}
    number = re.compile(r"[\d:%]|pm$|am$")
    unknown = {w for d in held for w in bare(d.prompt).split() if w not in known and not number.search(w)} - refusal
    assert not unknown


def test_seeded():
    assert task.held_out(50, 1) == task.held_out(50, 1) != task.held_out(50, 2)
    assert [d.prompt for d in task.training(20, 5)] == [d.prompt for d in task.training(20, 5)]


@pytest.mark.parametrize(
    "answer",
    [
        '{"tool": "light.fly", "arguments": {}}',
        '{"tool": "light.on", "arguments": {"room": "moon"}}',
        '{"tool": "light.set", "arguments": {"device": "lamp", "brightness": 130}}',
        '{"error": "what"}',
    ],
)
def test_validate_refuses(answer):
    with pytest.raises(ValueError):
        task.validate(answer)


def test_the_schema_is_the_tool_table(held):
    """json_schema and validate agree: on every right answer, and on answers with one thing wrong."""
    import jsonschema
    schema = jsonschema.Draft202012Validator(task.json_schema())
    schema.check_schema(task.json_schema())
    for d in held[:400]:
        assert schema.is_valid(json.loads(d.expected)), d.expected
    bad = [{"tool": "light.on"}, {"tool": "light.on", "arguments": {"room": "kitchen"}}, {"tool": "none", "arguments": {}},
           {"tool": "light.set", "arguments": {"device": "lamp", "brightness": 101}}, {"error": "other"}, "text", 3, None,
           {"tool": "alarm.set", "arguments": {"time": "24:00"}}, {"tool": "vacuum.dock", "arguments": {"room": "kitchen"}},
           {"tool": "security.disarm", "arguments": {}, "more": 1}]
    for call in bad:
        assert not schema.is_valid(call), call
        with pytest.raises((ValueError, TypeError)):
            task.validate(json.dumps(call))
