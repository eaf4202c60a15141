"""The demo task: a command to a house, as typed by a person, to a JSON tool call.

    dim the kitchen lamp to 30% at seven
    {"tool":"light.set","arguments":{"room":"kitchen","device":"lamp","brightness":30,"time":"07:00"}}

Two commands in one sentence give a JSON list of two calls; what no tool does gives {"error":"no such tool"}.  The
JSON has no spaces (a third fewer tokens than with them) and its arguments in the order of the tool table, so that
there is exactly one right answer.  Rules a reader has to know:
  * a time or a room belongs to its own clause ("close the blinds at 8 pm and turn off all the lights");
  * a bare hour is meant as it is written ("at seven" is 07:00, "at 7 pm" 19:00), and a day ("tomorrow") is dropped;
  * no room said, no room in the call; "all the lights" is room "all";
  * "dim" or "darker" without a figure is brightness 30, "brighter" 100, "halfway" 50; "warmer" is one degree.

Owns: the generator (seeded, pure Python), the split, `validate`.  Refuses: torch, tokenising.  The tool table and
the vocabulary are in words.py, the sentence patterns in phrases.py.

The split.  A held-out draw differs from everything in training in all of these:
  * phrasing: its sentence patterns stand in a list of their own; no expansion of one is an expansion of a training
    pattern.  Its prefixes, suffixes, noun phrases and joiners come from held-out lists too (the empty prefix and
    suffix are in both).
  * numbers (brightness, position, temperature, volume, thresholds, durations): every n >= 12 with n % 7 == 3 is held
    out, and so is n + 0.5; a held-out draw uses only these.  Numbers below 12 are too few to split, and a
    pattern's own constant ("darker") is no slot.
  * times: every time of day with (60 h + m) % 13 == 6 is held out (04:00, 17:00, ...); a held-out draw
    uses these.
  * pairings: a room together with a device, sensor kind, scene, mode, speed or music, and the verb and object of a
    reminder, where crc32("a/b") % 8 == 0; a held-out draw with such a pair uses these.
  * refusals: patterns as above, filled with held-out words.
A draw without any such slot ("lock the front door") is held out by its phrasing alone.  Typing slips occur in training
only, unless `typos=True`.

    python -m colibri_edge.demo.task --schema            # the tool table as a JSON schema, for run --json-schema
    python -m colibri_edge.demo.task --held-out 300      # jsonl: {"prompt": ..., "expected": ...}
"""

from __future__ import annotations

import argparse
import json
import random
import re
from dataclasses import dataclass, field
from functools import cache

from . import phrases as P
from . import words as W
from .clause import Clause, number_held, pair_held, time_held

__all__ = ["TOOLS", "Draw", "draw", "held_out", "json_schema", "number_held", "pair_held", "time_held", "training", "validate"]

NOUNS = ("device", "kind", "scene", "mode", "speed", "query")  # arguments that pair with a room in the split
TOOLS = W.TOOLS
_WEIGHTS = {
    "light.on": 2,
    "light.off": 2,
    "light.set": 3,
    "light.color": 1.5,
    "blind.set": 1.5,
    "climate.set": 2,
    "climate.mode": 1.5,
    "sensor.read": 2,
    "sensor.alert": 2,
    "timer.set": 2,
    "relay.run": 1.5,
    "reminder.set": 1.5,
    "media.play": 1.5,
    "device.status": 1.5,
}


@cache
def expand(pattern: str) -> tuple[str, ...]:
    """All sentences that the alternatives `[a|b]` of a pattern stand for; slots stay as they are."""
    match = re.search(r"\[([^\[\]]*)\]", pattern)
    if not match:
        return (" ".join(pattern.split()),)
    out = []
    for option in match.group(1).split("|"):
        out += expand(pattern[: match.start()] + option + pattern[match.end() :])
    return tuple(dict.fromkeys(out))


@dataclass
class Draw:
    """One example: the prompt, the calls, and the patterns it was made from."""

    prompt: str
    calls: list
    skeletons: list = field(default_factory=list)

    @property
    def expected(self) -> str:
        return json.dumps(self.calls if len(self.calls) > 1 else self.calls[0], separators=(",", ":"))


def _admissible(args: dict, held: bool) -> bool:
    room = args.get("room")
    if not room or room == "all":
        return True
    return all(pair_held(room, args[noun]) == held for noun in NOUNS if noun in args)


def _call(tool: str, args: dict) -> dict:
    if "pct" in args:
        args["brightness" if tool == "light.set" else "position"] = args["pct"]
    if tool.startswith("light.") and tool != "light.scene":
        args.setdefault("device", "light")
    names = [name.rstrip("?") for name, _ in TOOLS[tool]]
    return {"tool": tool, "arguments": {name: args[name] for name in names if name in args}}


@cache
def skeletons(tool: str, held: bool) -> tuple[tuple[str, tuple[str, ...], dict], ...]:
    """(pattern, expansions, fixed arguments) of a tool, or of the refusals for the tool ""."""
    table = P.PATTERNS[tool][held] if tool else P.REFUSALS[held]
    pairs = ((p, {}) if isinstance(p, str) else p for p in table)
    return tuple((p, expand(p), fixed) for p, fixed in pairs)


def _clause(rng: random.Random, held: bool, tool: str) -> tuple[str, str, dict, str]:
    """(kind, text, call, skeleton) with kind one of "", "?", "!"."""
    while True:
        pattern, options, fixed = rng.choice(skeletons(tool, held))
        skeleton = rng.choice(options)
        kind, body = (skeleton[0], skeleton[1:]) if skeleton[0] in "?!" else ("", skeleton)
        clause = Clause(rng, held)
        if tool:
            clause.args["tool"] = tool
        text = clause.fill(body)
        args = {**clause.args, **fixed}
        if not tool:
            return kind, text, dict(P.REFUSAL), skeleton
        takes_time = any(name == "time?" for name, _ in TOOLS[tool]) and tool not in ("reminder.set", "alarm.cancel")
        if (
            takes_time
            and rng.random() < 0.3
            and (kind != "?" or re.search("should|want|like|has to|have to|can go", body))
        ):
            late = Clause(rng, held)
            at = late.slot_at()
            args["time"] = late.args["time"]
            text = f"{at}, {text}" if rng.random() < 0.2 else f"{text} {at}"
        call = _call(tool, args)
        if _admissible(call["arguments"], held):
            return kind, text, call, skeleton


_SHARED = (
    (
        "{v} the {d} in the {r} and the {s}",
        "{v} the {d} in the {r} and in the {s}",
        "{v} the {r} and {s} {d}",
        "{v} the {d} in {r} and {s}",
        "{v} the {r} {d} and the {s} {d}",
        "{v} both the {r} and the {s} {d}",
        "in the {r} and the {s} {v} the {d}",
        "{v} the {d} in both the {r} and the {s}",
        "{v} the {r} {d} as well as the {s} {d}",
        "{v} the {d} in the {r} and also in the {s}",
        "in both the {r} and the {s} {v} the {d}",
    ),
    (
        "{v} the {d} both in the {r} and the {s}",
        "{v} the {r} {d} and also the {s} {d}",
        "in the {r} and in the {s} {v} the {d}",
    ),
)
_SHARED_DEVICES = (
    (
        "{v} the {d} and the {e}",
        "{v} the {d} and the {e} in the {r}",
        "{v} the {r} {d} and {e}",
        "{v} the {d} and {e} in the {r}",
        "{v} both the {d} and the {e} in the {r}",
        "in the {r} {v} the {d} and the {e}",
        "{v} {d} and {e}",
        "{v} the {r} {d} and the {e}",
        "{v} the {r} {d} and the {e} too",
        "{v} the {r} {d} as well as the {e}",
        "{v} the {r} {d} plus the {e}",
        "{v} both the {r} {d} and the {e}",
        "in the {r} {v} the {d} as well as the {e}",
    ),
    ("{v} the {r} {d} and also the {e}", "{v} both the {r} {d} and {e}", "in the {r} {v} both the {d} and the {e}"),
)
_SHARED_VERBS = {
    "turn on": "on",
    "switch on": "on",
    "turn off": "off",
    "switch off": "off",
    "open": "open",
    "close": "close",
    "lower": "close",
    "raise": "open",
}


def _shared(rng: random.Random, held: bool) -> tuple[str, list, str]:
    """One verb for two rooms, or for two devices: (text, two calls, skeleton)."""
    while True:
        verb, action = rng.choice(list(_SHARED_VERBS.items()))
        group = "blind" if action in ("open", "close") else rng.choice(("light", "light", "relay"))
        tables = {"blind": W.BLINDS, "light": W.LIGHTS, "relay": W.RELAYS}
        first, second = Clause(rng, held), Clause(rng, held)
        rooms = rng.random() < 0.5
        skeleton = rng.choice((_SHARED if rooms else _SHARED_DEVICES)[held])
        said = {"v": verb, "d": first.device(tables[group])}
        said["r"] = first.slot_room() if "{r}" in skeleton else ""
        groups = [group, group]
        if rooms:
            said["s"] = second.slot_room()
            second.args["device"] = first.args["device"]
        else:
            if group != "blind":
                groups[1] = rng.choice(("light", "relay"))
            said["e"] = second.device(tables[groups[1]])
            second.args.update({"room": first.args["room"]} if said["r"] else {})
        calls = [_call(f"{g}.{action}", c.args) for g, c in zip(groups, (first, second), strict=True)]
        if calls[0] != calls[1] and all(_admissible(c["arguments"], held) for c in calls):
            return skeleton.format(**said), calls, skeleton


def _typo(text: str, rng: random.Random) -> str:
    spots = [m.start() for m in re.finditer(r"(?<=[a-z])[a-z](?=[a-z])", text)]
    if not spots:
        return text
    i, kind = rng.choice(spots), rng.randrange(3)
    if kind == 0:
        return text[:i] + text[i + 1 :]
    if kind == 1:
        return text[:i] + text[i] + text[i:]
    return text[:i] + text[i + 1] + text[i] + text[i + 2 :]


def _finish(text: str, kind: str, rng: random.Random, typos: float, held: bool) -> str:
    """Case, punctuation and typing slips; capitals are oftener in training, where they have to be learned."""
    if rng.random() < typos and "remind" not in text:
        text = _typo(text, rng)
        if rng.random() < 0.2:
            text = _typo(text, rng)
    case = rng.random()
    if case < 0.3:
        text = text[0].upper() + text[1:]
        text = re.sub(r"([.;] )([a-z])", lambda m: m[1] + (m[2].upper() if m[1][0] == "." else m[2]), text)
        text = re.sub(r"\bi('|\b)", r"I\1", text)
    elif case < (0.33 if held else 0.38):
        text = text.upper()
    elif case < (0.36 if held else 0.45):
        text = text.title().replace("'S", "'s").replace("'M", "'m")
    if rng.random() < 0.4:
        asks = kind == "?" and re.match(
            r"(?i)(what|how|is|are|did|do|can|could|has|have|when|why|who|where|will|which)\b", text
        )
        text = text.rstrip(".?!") + ("?" if asks and rng.random() < 0.9 else rng.choice("...!"))
    if rng.random() < 0.1:
        text = text.replace("'", "") if rng.random() < 0.6 else text.replace(", ", " ")
    return text


def _wrap(text: str, kind: str, rng: random.Random, held: bool) -> str:
    if kind == "!":
        return text + (
            rng.choice((" please", ", please", " now", " thanks")) if not held and rng.random() < 0.2 else ""
        )
    prefix = rng.choice((P.ASK_PREFIXES if kind == "?" else P.PREFIXES)[held])
    if re.match(r"(at|tonight|tomorrow|this evening|in|on|for|if|when) ", text):
        prefix = ""
    return prefix + text + (rng.choice(P.SUFFIXES[held]) if kind != "?" else "")


def draw(rng: random.Random, held: bool = False, typos: float = 0.0) -> Draw:
    """One example of the training or of the held-out set."""
    names = list(TOOLS)
    weights = [_WEIGHTS.get(t, 1) for t in names]

    def pick(refusals: float) -> str:
        return "" if rng.random() < refusals else rng.choices(names, weights)[0]

    shape = rng.random()
    if shape < 0.78:
        kind, text, call, skeleton = _clause(rng, held, pick(0.13))
        return Draw(_finish(_wrap(text, kind, rng, held), kind, rng, typos, held), [call], [skeleton])
    if shape < 0.84:
        text, calls, skeleton = _shared(rng, held)
        return Draw(_finish(_wrap(text, "", rng, held), "", rng, typos, held), calls, [skeleton])
    kind, text, call, skeleton = _clause(rng, held, pick(0.03))
    _, text2, call2, skeleton2 = _clause(rng, held, pick(0.03))
    joined = text + rng.choice(P.JOINERS[held]) + text2
    return Draw(_finish(_wrap(joined, kind, rng, held), kind, rng, typos, held), [call, call2], [skeleton, skeleton2])


def training(n: int, seed: int = 0, typos: float = 0.05):
    """Yield n training draws."""
    rng = random.Random(seed)
    for _ in range(n):
        yield draw(rng, False, typos)


def held_out(n: int, seed: int = 0, typos: bool = False) -> list[tuple[str, str]]:
    """n distinct held-out pairs (prompt, expected answer)."""
    rng, out = random.Random(f"held-out {seed}"), {}
    while len(out) < n:
        example = draw(rng, True, 1.0 if typos else 0.0)
        out.setdefault(example.prompt, example.expected)
    return list(out.items())


def _fits(value, kind) -> bool:
    if kind == "room":
        return value == "all" or value in W.ROOMS
    if kind == "time":
        return isinstance(value, str) and bool(re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value))
    if kind == "text":
        return isinstance(value, str) and bool(value)
    if isinstance(kind, tuple) and isinstance(kind[0], int):
        return isinstance(value, (int, float)) and kind[0] <= value <= kind[1]
    return value in kind


def json_schema() -> dict:
    """The tool table as a JSON schema: what `validate` takes, one call or a list of two or more."""

    def kind_schema(kind) -> dict:
        if kind == "room":
            return {"enum": [*W.ROOMS, "all"]}
        if kind == "time":
            return {"type": "string", "pattern": "^([01][0-9]|2[0-3]):[0-5][0-9]$"}
        if kind == "text":
            return {"type": "string", "minLength": 1, "maxLength": 80}
        if isinstance(kind, tuple) and isinstance(kind[0], int):
            return {"type": "number", "minimum": kind[0], "maximum": kind[1]}
        return {"enum": list(dict.fromkeys(kind))}

    def closed(properties: dict, required: list) -> dict:
        return {"type": "object", "properties": properties, "required": required, "additionalProperties": False}

    calls = [closed({k: {"const": v} for k, v in P.REFUSAL.items()}, list(P.REFUSAL))]
    for tool, table in TOOLS.items():
        arguments = closed({name.rstrip("?"): kind_schema(kind) for name, kind in table}, [n for n, _ in table if not n.endswith("?")])
        calls.append(closed({"tool": {"const": tool}, "arguments": arguments}, ["tool", "arguments"]))
    call = {"anyOf": [{"$ref": f"#/$defs/{i}"} for i in range(len(calls))]}
    return {"anyOf": [call, {"type": "array", "items": call, "minItems": 2, "maxItems": 4}],
            "$defs": {str(i): c for i, c in enumerate(calls)}}


def validate(answer: str) -> list:
    """The calls in an answer; ValueError, saying what is wrong, if it is not one that the tool table allows."""
    parsed = json.loads(answer)
    calls = parsed if isinstance(parsed, list) else [parsed]
    for call in calls:
        if call == P.REFUSAL:
            continue
        if not isinstance(call, dict) or set(call) != {"tool", "arguments"} or call["tool"] not in TOOLS:
            raise ValueError(f"not a call of a tool in the table: {call!r}")
        table = {name.rstrip("?"): kind for name, kind in TOOLS[call["tool"]]}
        missing = [name for name, _ in TOOLS[call["tool"]] if not name.endswith("?") and name not in call["arguments"]]
        if missing:
            raise ValueError(f"{call['tool']} lacks {missing}: {call!r}")
        for name, value in call["arguments"].items():
            if name not in table or not _fits(value, table[name]):
                raise ValueError(f"{call['tool']} does not take {name}={value!r}")
    return calls


def main(argv=None) -> None:
    parser = argparse.ArgumentParser(prog="python -m colibri_edge.demo.task", description="Print examples as jsonl.")
    group = parser.add_mutually_exclusive_group(required=True)
    group.add_argument("--schema", action="store_true", help="the tool table as a JSON schema")
    group.add_argument("--held-out", type=int, metavar="N")
    group.add_argument("--train", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--typos", action="store_true", help="one or two typing slips in each held-out prompt")
    args = parser.parse_args(argv)
    if args.schema:
        print(json.dumps(json_schema()))
        return
    pairs = (
        held_out(args.held_out, args.seed, args.typos)
        if args.held_out
        else [(d.prompt, d.expected) for d in training(args.train, args.seed)]
    )
    for prompt, expected in pairs:
        print(json.dumps({"prompt": prompt, "expected": expected}))


if __name__ == "__main__":
    main()
