"""The demo task: a command to a house, as typed by a person, to a JSON tool call.

    dim the kitchen lamp to 30% at seven
    {"tool": "light.set", "arguments": {"room": "kitchen", "device": "lamp", "brightness": 30, "time": "07:00"}}

Two commands in one sentence give a JSON list of two calls; what no tool does gives {"error": "no such tool"}.  The
JSON is `json.dumps` of Python with its default separators, arguments in the order of the tool table, so that there is
exactly one right answer.  Rules a reader has to know: a time belongs to its own clause; a bare hour is meant as it is
written ("at seven" is 07:00, "at 7 pm" 19:00); no room said, no room in the call; "all the lights" is room "all".

Owns: the generator (seeded, pure Python), the split, `validate`.  Refuses: torch, tokenising.  Words and sentence
patterns are in phrases.py.

The split.  A held-out draw differs from everything in training in all of these:
  * phrasing: its sentence patterns stand in a list of their own; no expansion of one is an expansion of a training
    pattern.  Its prefixes, suffixes, noun phrases and joiners come from held-out lists too (the empty prefix and suffix
    are in both).
  * numbers (brightness, position, temperature, volume, thresholds, durations): every n >= 12 with n % 7 == 3 is held
    out, and so is n + 0.5; a held-out draw uses only these.  Numbers below 12 are too few to split.
  * times: every time of day with (60 h + m) % 13 == 6 is held out (04:00, 17:00, 06:18 ...); a held-out draw uses these.
  * pairings: a room together with a device, sensor kind, scene, mode, speed or music, and the verb and object of a
    reminder, where crc32("a/b") % 8 == 0; a held-out draw with such a pair uses these.
  * refusals: patterns as above, filled with held-out words.
A draw without any such slot ("lock the front door") is held out by its phrasing alone.  Typing slips occur in training
only, unless `typos=True`.

    python -m colibri_edge.demo.task --held-out 300      # jsonl: {"prompt": ..., "expected": ...}
"""

from __future__ import annotations

import argparse
import json
import random
import re
import zlib
from dataclasses import dataclass, field
from functools import cache

from . import phrases as P

NOUNS = ("device", "kind", "scene", "mode", "speed", "query")  # arguments that pair with a room in the split
TOOLS = P.TOOLS
_WEIGHTS = {"light.on": 2, "light.off": 2, "light.set": 3, "light.color": 1.5, "blind.set": 1.5, "climate.set": 2,
            "climate.mode": 1.5, "sensor.read": 2, "sensor.alert": 2, "timer.set": 2, "relay.run": 1.5, "reminder.set": 1.5,
            "media.play": 1.5, "device.status": 1.5}
_ONES = ("zero one two three four five six seven eight nine ten eleven twelve thirteen fourteen fifteen sixteen "
         "seventeen eighteen nineteen").split()
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES = {"temperature": (5, 35, ("degrees", "degrees", "", "°C")), "humidity": (20, 90, ("%", " percent", "")),
           "co2": (600, 1600, ("", " ppm")), "light level": (20, 900, ("", " lux")), "power": (100, 2000, (" watts", "")),
           "noise": (30, 95, (" decibels", "")), "pressure": (950, 1050, ("", " hectopascals")),
           "soil moisture": (10, 80, ("%", " percent", ""))}


def number_held(n: float) -> bool:
    """True if the number is kept out of training."""
    return n >= 12 and int(n) % 7 == 3


def time_held(hour: int, minute: int) -> bool:
    """True if the time of day is kept out of training."""
    return (60 * hour + minute) % 13 == 6


def pair_held(a: str, b: str) -> bool:
    """True if the two are never seen together in training."""
    return zlib.crc32(f"{a}/{b}".encode()) % 8 == 0


@cache
def expand(pattern: str) -> tuple[str, ...]:
    """All sentences that the alternatives `[a|b]` of a pattern stand for; slots stay as they are."""
    match = re.search(r"\[([^\[\]]*)\]", pattern)
    if not match:
        return (" ".join(pattern.split()),)
    out = []
    for option in match.group(1).split("|"):
        out += expand(pattern[: match.start()] + option + pattern[match.end():])
    return tuple(dict.fromkeys(out))


def words(n: int, rng: random.Random) -> str:
    """An integer below 1000 in words."""
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (rng.choice("- ") + _ONES[n % 10] if n % 10 else "")
    return _ONES[n // 100] + " hundred" + (rng.choice((" ", " and ")) + words(n % 100, rng) if n % 100 else "")


@dataclass
class Draw:
    """One example: the prompt, the calls, and the patterns it was made from."""

    prompt: str
    calls: list
    skeletons: list = field(default_factory=list)

    @property
    def expected(self) -> str:
        return json.dumps(self.calls if len(self.calls) > 1 else self.calls[0])


class _Clause:
    """Fills one pattern.  `args` collects the arguments as the slots are drawn, from left to right."""

    def __init__(self, rng: random.Random, held: bool):
        self.rng, self.held, self.args = rng, held, {}

    def fill(self, pattern: str) -> str:
        return " ".join(re.sub(r"\{(\w+)(\??)\}", self._slot, pattern).split())

    def _slot(self, match: re.Match) -> str:
        name, optional = match.groups()
        if optional:
            return self.slot_inroom() if self.rng.random() < 0.6 else ""
        if name in P.REFUSAL_WORDS and "tool" not in self.args:
            return self.rng.choice(P.REFUSAL_WORDS[name][self.held])
        return getattr(self, "slot_" + name)()

    # Rooms and noun phrases.
    def _pick_room(self) -> tuple[str, str]:
        room = self.rng.choice(list(P.ROOMS))
        self.args["room"] = room
        return room, self.rng.choice(P.ROOMS[room])

    def slot_room(self) -> str:
        return self._pick_room()[1]

    def slot_inroom(self) -> str:
        room, said = self._pick_room()
        return ("on the " if room in P.ON_ROOMS else "in the ") + said

    def _device(self, table: dict, key: str = "device", plural=None) -> str:
        names = list(table)
        name = names[0] if table is P.LIGHTS and self.rng.random() < 0.4 else self.rng.choice(names)
        forms = [f for pair in table[name] for i, f in enumerate(pair) if f and plural in (None, bool(i))]
        if not forms:
            return self._device(table, key, plural)
        self.args[key] = name
        return self.rng.choice(forms)

    def _np(self, table: dict, plural=None) -> str:
        rng = self.rng
        if plural is not False and table in (P.LIGHTS, P.BLINDS) and rng.random() < 0.12:
            every = rng.choice(("all the {d}", "all {d}", "all the {d} in the house", "the {d} everywhere", "every one of the {d}",
                                "all the {d} {in}", "all of the {d} {in}", "all {r} {d}"))
            noun = self._device(table, plural=True)
            self.args["room"] = "all"
        else:
            every = rng.choice(P.NPS[self.held])
            noun = self._device(table, plural=plural)
        if "{in}" in every:
            every = every.replace("{in}", self.slot_inroom())
        elif "{r}" in every:
            every = every.replace("{r}", self.slot_room())
        return every.replace("{d}", noun)

    def slot_light(self):
        return self._np(P.LIGHTS)

    def slot_blind(self):
        return self._np(P.BLINDS)

    def slot_relay(self):
        return self._np(P.RELAYS)

    def _any(self, plural=None):
        return self._np(self.rng.choice((P.LIGHTS, P.BLINDS, P.RELAYS, P.RELAYS)), plural)

    slot_any, slot_any1 = _any, lambda self: self._any(False)

    def slot_anyn(self):
        return self._np(self.rng.choice((P.LIGHTS, P.BLINDS)), True)

    def slot_ldev(self):
        return "the " + self._device(P.LIGHTS)

    def slot_bdev(self):
        return "the " + self._device(P.BLINDS)

    def slot_rdev(self):
        return "the " + self._device(P.RELAYS)

    def slot_door(self):
        door = self.rng.choice(list(P.DOORS))
        self.args["door"] = door
        return self.rng.choice(("the ", "the ", "the ", "my ")) + self.rng.choice(P.DOORS[door])

    # Words of a list.
    def _word(self, key: str, table, only=None) -> str:
        name = self.rng.choice([n for n in (only or table)])
        self.args[key] = name
        return self.rng.choice(table[name]) if isinstance(table, dict) else name

    def slot_color(self):
        return self._word("color", P.COLORS)

    def slot_scene(self):
        return self._word("scene", P.SCENES)

    def slot_mode(self):
        return self._word("mode", P.MODES, [m for m in P.MODES if m != "off"])

    def slot_speed(self):
        return self._word("speed", P.SPEEDS)

    def slot_music(self):
        return self._word("query", P.MUSIC)

    def slot_mass(self):
        return self._word("query", P.MUSIC, [m for m in P.MUSIC if not re.match(r"(the|my|an?) ", m)])

    def slot_genre(self):
        return self._word("query", P.MUSIC, [m for m in P.MUSIC[:14] if " " not in m])

    def slot_label(self):
        return self._word("label", P.LABELS)

    def slot_period(self):
        return self._word("period", P.PERIODS)

    def slot_arm(self):
        return self._word("mode", P.SECURITY)

    def slot_level(self):
        return self._word("kind", P.KINDS, P.LEVEL_KINDS)

    def slot_num(self):
        return self._word("kind", P.KINDS, P.NUMERIC_KINDS)

    def slot_event(self):
        return self._word("kind", P.KINDS, P.EVENT_KINDS)

    def slot_task(self):
        while True:
            verb, thing = self.rng.choice(P.TASK_VERBS), self.rng.choice(P.TASK_OBJECTS)
            if pair_held(verb, thing) == self.held:
                self.args["task"] = f"{verb} {thing}"
                return self.args["task"]

    # Numbers.
    def _number(self, low: int, high: int) -> int:
        rng = self.rng
        while True:
            n = rng.randint(low, high)
            if not self.held and rng.random() < 0.4:
                n = n // 5 * 5
            if n >= low and number_held(n) == (self.held and high >= 17):
                return n

    def _say(self, n, p_words: float = 0.3) -> str:
        if isinstance(n, int) and n < 1000 and self.rng.random() < p_words:
            return words(n, self.rng)
        return str(n)

    def _percent(self, key: str, bare: float) -> str:
        n = self._number(1, 100)
        self.args[key] = n
        said = self._say(n)
        if self.rng.random() < bare:
            return said
        return said + (self.rng.choice(("%", "%", "%", " %", " percent")) if said[0].isdigit() else " percent")

    def slot_pct(self):
        return self._percent("pct", 0.12)

    def slot_vol(self):
        return self._percent("level", 0.6)

    def _degrees(self, n) -> str:
        said = self._say(n)
        ends = (" degrees", " degrees", " degrees", "", " degrees celsius")
        return said + self.rng.choice((*ends, "°", "°C", " °C", " C") if said[0].isdigit() else ends)

    def slot_temp(self):
        n = self._number(10, 30)
        if self.rng.random() < 0.15:
            n += 0.5
        self.args["temperature"] = n
        return self._degrees(n)

    def slot_deg(self):
        n = self.rng.choice((1, 1, 2, 2, 2, 3, 3, 4, 5))
        self.args["degrees"] = n
        return self.rng.choice(("a", "one", "1")) + " degree" if n == 1 else self._say(n, 0.5) + " degrees"

    def slot_value(self):
        kind = self.args["kind"]
        low, high, units = _VALUES[kind]
        n = self._number(low, high)
        if n > 100 and not self.held and self.rng.random() < 0.6:
            n = n // 50 * 50 if not number_held(n // 50 * 50) else n
        self.args["value"] = n
        if kind == "temperature":
            return self._degrees(n)
        said, unit = self._say(n, 0.2 if n <= 100 or n % 50 == 0 else 0), self.rng.choice(units)
        return said + (" percent" if unit == "%" and not said[0].isdigit() else unit)

    def _duration(self) -> tuple[int, str]:
        unit = self.rng.choice(("minutes", "minutes", "minutes", "seconds", "hours"))
        if self.held and unit == "hours":
            unit = "minutes"
        n = self._number(*{"minutes": (1, 90), "seconds": (5, 90), "hours": (1, 11)}[unit])
        self.args.update(duration=n, unit=unit)
        return n, unit

    def slot_dur(self):
        fixed = {"half an hour": (30, "minutes"), "an hour and a half": (90, "minutes"), "an hour": (1, "hours"),
                 "a quarter of an hour": (15, "minutes"), "a minute": (1, "minutes"), "half a minute": (30, "seconds")}
        if not self.held and self.rng.random() < 0.12:
            said = self.rng.choice(list(fixed))
            self.args["duration"], self.args["unit"] = fixed[said]
            return said
        n, unit = self._duration()
        said = self._say(n)
        if unit == "minutes" and self.rng.random() < 0.1:
            return said + " min"
        if unit == "seconds" and self.rng.random() < 0.1:
            return said + " sec"
        return f"{said} {unit[:-1] if n == 1 else unit}"

    def slot_durn(self):
        n, unit = self._duration()
        return self._say(n) + self.rng.choice(" -") + unit[:-1]

    # Times.
    def _time(self) -> tuple[int, int]:
        rng = self.rng
        while True:
            kind = rng.random()
            minute = 0 if kind < 0.45 else 30 if kind < 0.58 else rng.choice((15, 45)) if kind < 0.7 else \
                5 * rng.randrange(12) if kind < 0.88 else rng.randrange(60)
            hour = rng.randrange(24)
            if time_held(hour, minute) == self.held:
                self.args["time"] = f"{hour:02d}:{minute:02d}"
                return hour, minute

    def slot_clock(self):
        return self._clock(*self._time())

    def slot_at(self):
        hour, minute = self._time()
        rng = self.rng
        if hour >= 18 and rng.random() < 0.12:
            h12 = hour - 12
            lead = rng.choice(("tonight at ", "this evening at "))
            return lead + self._h12(h12, minute)
        return "at " + self._clock(hour, minute)

    def _h12(self, h: int, minute: int) -> str:
        """A time on the twelve-hour face, h in 1..12, without am or pm."""
        rng = self.rng
        hour = rng.choice((str(h), words(h, rng)))
        if minute == 0:
            return rng.choice((hour, hour, hour + " o'clock"))
        forms = [f"{h}:{minute:02d}", f"{h}:{minute:02d}"]
        following = h % 12 + 1
        if minute in (15, 45):
            quarter = rng.choice(("quarter", "a quarter"))
            forms += [f"{quarter} past {hour}" if minute == 15 else f"{quarter} to {rng.choice((str(following), words(following, rng)))}"] * 2
        if minute == 30:
            forms += [f"half past {hour}"] * 2
        if minute % 5 == 0 and minute % 15:
            gap = minute if minute < 30 else 60 - minute
            said = rng.choice((str(gap), words(gap, rng)))
            forms.append(f"{said} past {hour}" if minute < 30 else f"{said} to {words(following, rng)}")
        if minute % 5 == 0:
            forms.append(words(h, rng) + (" oh " if minute < 10 else " ") + words(minute, rng))
        return rng.choice(forms)

    def _clock(self, hour: int, minute: int) -> str:
        rng = self.rng
        if minute == 0 and hour in (0, 12) and rng.random() < 0.6:
            return "noon" if hour else "midnight"
        if rng.random() < 0.25 or (hour == 0 and rng.random() < 0.5):
            return rng.choice((f"{hour}:{minute:02d}", f"{hour:02d}:{minute:02d}"))
        if 1 <= hour <= 12 and rng.random() < 0.45:
            return self._h12(hour, minute)
        face = self._h12((hour - 1) % 12 + 1, minute)
        if hour > 12 and minute % 5 == 0 and rng.random() < 0.08:
            said = words(hour, rng)
            return said + (" o'clock" if minute == 0 else (" oh " if minute < 10 else " ") + words(minute, rng))
        # "quarter to twelve am" is 23:45 or 11:45: a time before the hour takes the half day of the time itself.
        if rng.random() < 0.6:
            face = face.replace(" o'clock", "")
            half = ("am", "a.m.") if hour < 12 else ("pm", "p.m.")
            gap = "" if face[-1].isdigit() and rng.random() < 0.5 else " "
            return face + gap + half[rng.random() < 0.15]
        if hour < 12:
            return face + (" in the morning" if hour >= 3 else " at night")
        return face + (" in the afternoon" if hour < 18 else " in the evening" if hour < 22 else " at night")


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
        clause = _Clause(rng, held)
        if tool:
            clause.args["tool"] = tool
        text = clause.fill(body)
        args = {**clause.args, **fixed}
        if not tool:
            return kind, text, dict(P.REFUSAL), skeleton
        takes_time = any(name == "time?" for name, _ in TOOLS[tool]) and tool not in ("reminder.set", "alarm.cancel")
        if takes_time and rng.random() < 0.3 and (kind != "?" or re.search("should|want|like|has to|have to|can go", body)):
            late = _Clause(rng, held)
            at = late.slot_at()
            args["time"] = late.args["time"]
            text = f"{at}, {text}" if rng.random() < 0.2 else f"{text} {at}"
        call = _call(tool, args)
        if _admissible(call["arguments"], held):
            return kind, text, call, skeleton


_SHARED = (
    ("{v} the {d} in the {r} and the {s}", "{v} the {d} in the {r} and in the {s}", "{v} the {r} and {s} {d}", "{v} the {d} in {r} and {s}",
     "{v} the {r} {d} and the {s} {d}", "{v} both the {r} and the {s} {d}", "in the {r} and the {s} {v} the {d}"),
    ("{v} the {d} both in the {r} and the {s}", "{v} the {r} {d} and also the {s} {d}", "in the {r} and in the {s} {v} the {d}"),
)
_SHARED_DEVICES = (
    ("{v} the {d} and the {e}", "{v} the {d} and the {e} in the {r}", "{v} the {r} {d} and {e}", "{v} the {d} and {e} in the {r}", "{v} both the {d} and the {e} in the {r}",
     "in the {r} {v} the {d} and the {e}", "{v} {d} and {e}"),
    ("{v} the {r} {d} and also the {e}", "{v} both the {r} {d} and {e}", "in the {r} {v} both the {d} and the {e}"),
)
_SHARED_VERBS = {"turn on": "on", "switch on": "on", "turn off": "off", "switch off": "off", "open": "open", "close": "close", "lower": "close", "raise": "open"}


def _shared(rng: random.Random, held: bool) -> tuple[str, list, str]:
    """One verb for two rooms, or for two devices: (text, two calls, skeleton)."""
    while True:
        verb, action = rng.choice(list(_SHARED_VERBS.items()))
        group = "blind" if action in ("open", "close") else rng.choice(("light", "light", "relay"))
        tables = {"blind": P.BLINDS, "light": P.LIGHTS, "relay": P.RELAYS}
        first, second = _Clause(rng, held), _Clause(rng, held)
        rooms = rng.random() < 0.5
        skeleton = rng.choice((_SHARED if rooms else _SHARED_DEVICES)[held])
        said = {"v": verb, "d": first._device(tables[group])}
        said["r"] = first.slot_room() if "{r}" in skeleton else ""
        groups = [group, group]
        if rooms:
            said["s"] = second.slot_room()
            second.args["device"] = first.args["device"]
        else:
            if group != "blind":
                groups[1] = rng.choice(("light", "relay"))
            said["e"] = second._device(tables[groups[1]])
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
        return text[:i] + text[i + 1:]
    if kind == 1:
        return text[:i] + text[i] + text[i:]
    return text[:i] + text[i + 1] + text[i] + text[i + 2:]


def _finish(text: str, kind: str, rng: random.Random, typos: float) -> str:
    """Case, punctuation and typing slips."""
    if rng.random() < typos and "remind" not in text:
        text = _typo(text, rng)
        if rng.random() < 0.2:
            text = _typo(text, rng)
    case = rng.random()
    if case < 0.3:
        text = text[0].upper() + text[1:]
        text = re.sub(r"([.;] )([a-z])", lambda m: m[1] + (m[2].upper() if m[1][0] == "." else m[2]), text)
        text = re.sub(r"\bi('|\b)", r"I\1", text)
    elif case < 0.33:
        text = text.upper()
    elif case < 0.36:
        text = text.title().replace("'S", "'s").replace("'M", "'m")
    if rng.random() < 0.4:
        asks = kind == "?" and re.match(r"(?i)(what|how|is|are|did|do|can|could|has|have|when|why|who|where|will|which)\b", text)
        text = text.rstrip(".?!") + ("?" if asks and rng.random() < 0.9 else rng.choice("...!"))
    if rng.random() < 0.1:
        text = text.replace("'", "") if rng.random() < 0.6 else text.replace(", ", " ")
    return text


def _wrap(text: str, kind: str, rng: random.Random, held: bool) -> str:
    if kind == "!":
        return text
    prefix = rng.choice((P.ASK_PREFIXES if kind == "?" else P.PREFIXES)[held])
    if re.match(r"(at|tonight|this evening|in|on|for|if|when) ", text):
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
        kind, text, call, skeleton = _clause(rng, held, pick(0.11))
        return Draw(_finish(_wrap(text, kind, rng, held), kind, rng, typos), [call], [skeleton])
    if shape < 0.84:
        text, calls, skeleton = _shared(rng, held)
        return Draw(_finish(_wrap(text, "", rng, held), "", rng, typos), calls, [skeleton])
    kind, text, call, skeleton = _clause(rng, held, pick(0.03))
    _, text2, call2, skeleton2 = _clause(rng, held, pick(0.03))
    joined = text + rng.choice(P.JOINERS[held]) + text2
    return Draw(_finish(_wrap(joined, kind, rng, held), kind, rng, typos), [call, call2], [skeleton, skeleton2])


def training(n: int, seed: int = 0, typos: float = 0.08):
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
        return value == "all" or value in P.ROOMS
    if kind == "time":
        return isinstance(value, str) and bool(re.fullmatch(r"([01]\d|2[0-3]):[0-5]\d", value))
    if kind == "text":
        return isinstance(value, str) and bool(value)
    if isinstance(kind, tuple) and isinstance(kind[0], int):
        return isinstance(value, (int, float)) and kind[0] <= value <= kind[1]
    return value in kind


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
    group.add_argument("--held-out", type=int, metavar="N")
    group.add_argument("--train", type=int, metavar="N")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--typos", action="store_true", help="one or two typing slips in each held-out prompt")
    args = parser.parse_args(argv)
    pairs = held_out(args.held_out, args.seed, args.typos) if args.held_out else \
        [(d.prompt, d.expected) for d in training(args.train, args.seed)]
    for prompt, expected in pairs:
        print(json.dumps({"prompt": prompt, "expected": expected}))


if __name__ == "__main__":
    main()
