"""Fill the slots of one sentence pattern, keeping to the side of the split that is asked for.

Owns: what is held out (`number_held`, `time_held`, `pair_held`), and the ways to say a room, a device, a number, a
duration, a time.  Refuses: whole sentences, JSON (task.py).
"""

from __future__ import annotations

import random
import re
import zlib

from . import phrases as P
from . import words as W

_ONES = ("zero", "one", "two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "eleven", "twelve") + (
    "thirteen",
    "fourteen",
    "fifteen",
    "sixteen",
    "seventeen",
    "eighteen",
    "nineteen",
)
_TENS = ("", "", "twenty", "thirty", "forty", "fifty", "sixty", "seventy", "eighty", "ninety")
_VALUES = {
    "temperature": (5, 35, ("degrees", "degrees", "", "°C")),
    "humidity": (20, 90, ("%", " percent", "")),
    "co2": (600, 1600, ("", " ppm")),
    "light level": (20, 900, ("", " lux")),
    "power": (100, 2000, (" watts", "")),
    "noise": (30, 95, (" decibels", "")),
    "pressure": (950, 1050, ("", " hectopascals")),
    "soil moisture": (10, 80, ("%", " percent", "")),
}


def number_held(n: float) -> bool:
    """True if the number is kept out of training."""
    return n >= 12 and int(n) % 7 == 3


def time_held(hour: int, minute: int) -> bool:
    """True if the time of day is kept out of training."""
    return (60 * hour + minute) % 13 == 6


def pair_held(a: str, b: str) -> bool:
    """True if the two are never seen together in training."""
    return zlib.crc32(f"{a}/{b}".encode()) % 8 == 0


def say_words(n: int, rng: random.Random) -> str:
    """An integer below 1000 in words."""
    if n < 20:
        return _ONES[n]
    if n < 100:
        return _TENS[n // 10] + (rng.choice("- ") + _ONES[n % 10] if n % 10 else "")
    return _ONES[n // 100] + " hundred" + (rng.choice((" ", " and ")) + say_words(n % 100, rng) if n % 100 else "")


class Clause:
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
        room = self.rng.choice(list(W.ROOMS))
        self.args["room"] = room
        return room, self.rng.choice(W.ROOMS[room])

    def slot_room(self) -> str:
        return self._pick_room()[1]

    def slot_inroom(self) -> str:
        room, said = self._pick_room()
        return ("on the " if room in W.ON_ROOMS else "in the ") + said

    def device(self, table: dict, key: str = "device", plural=None) -> str:
        names = list(table)
        name = names[0] if table is W.LIGHTS and self.rng.random() < 0.4 else self.rng.choice(names)
        forms = [f for pair in table[name] for i, f in enumerate(pair) if f and plural in (None, bool(i))]
        if not forms:
            return self.device(table, key, plural)
        self.args[key] = name
        return self.rng.choice(forms)

    def noun_phrase(self, table: dict, plural=None) -> str:
        rng = self.rng
        if plural is not False and table in (W.LIGHTS, W.BLINDS) and rng.random() < 0.12:
            every = rng.choice(
                (
                    "all the {d}",
                    "all {d}",
                    "all the {d} in the house",
                    "the {d} everywhere",
                    "every one of the {d}",
                    "all the {d} {in}",
                    "all of the {d} {in}",
                    "all {r} {d}",
                )
            )
            noun = self.device(table, plural=True)
            self.args["room"] = "all"
        else:
            every = rng.choice(P.NPS[self.held])
            noun = self.device(table, plural=plural)
        if "{in}" in every:
            every = every.replace("{in}", self.slot_inroom())
        elif "{r}" in every:
            every = every.replace("{r}", self.slot_room())
        return every.replace("{d}", noun)

    def slot_light(self):
        return self.noun_phrase(W.LIGHTS)

    def slot_blind(self):
        return self.noun_phrase(W.BLINDS)

    def slot_relay(self):
        return self.noun_phrase(W.RELAYS)

    def _any(self, plural=None):
        return self.noun_phrase(self.rng.choice((W.LIGHTS, W.BLINDS, W.RELAYS, W.RELAYS)), plural)

    slot_any, slot_any1 = _any, lambda self: self._any(False)

    def slot_sdev(self):
        return "the " + self.device(self.rng.choice((W.LIGHTS, W.RELAYS, W.RELAYS)), plural=False)

    def slot_pdev(self):
        return "the " + self.device(self.rng.choice((W.LIGHTS, W.BLINDS)), plural=True)

    def slot_anyn(self):
        return self.noun_phrase(self.rng.choice((W.LIGHTS, W.BLINDS)), True)

    def slot_ldev(self):
        return "the " + self.device(W.LIGHTS)

    def slot_bdev(self):
        return "the " + self.device(W.BLINDS)

    def slot_rdev(self):
        return "the " + self.device(W.RELAYS)

    def slot_door(self):
        door = self.rng.choice(list(W.DOORS))
        self.args["door"] = door
        if door == "all":
            return self.rng.choice(("all doors", "all the doors", "the doors", "every door", "all of the doors"))
        return self.rng.choice(("the ", "the ", "the ", "my ")) + self.rng.choice(W.DOORS[door])

    # Words of a list.
    def _word(self, key: str, table, only=None) -> str:
        name = self.rng.choice([n for n in (only or table)])
        self.args[key] = name
        return self.rng.choice(table[name]) if isinstance(table, dict) else name

    def slot_color(self):
        return self._word("color", W.COLORS)

    def slot_scene(self):
        return self._word("scene", W.SCENES)

    def slot_mode(self):
        return self._word("mode", W.MODES, [m for m in W.MODES if m != "off"])

    def slot_speed(self):
        return self._word("speed", W.SPEEDS)

    def slot_music(self):
        return self._word("query", W.MUSIC)

    def slot_mass(self):
        return self._word("query", W.MUSIC, [m for m in W.MUSIC if not re.match(r"(the|my|an?) ", m)])

    def slot_genre(self):
        return self._word("query", W.MUSIC, [m for m in W.MUSIC[:14] if " " not in m])

    def slot_label(self):
        return self._word("label", W.LABELS)

    def slot_period(self):
        return self._word("period", W.PERIODS)

    def slot_arm(self):
        return self._word("mode", W.SECURITY)

    def slot_level(self):
        return self._word("kind", W.KINDS, W.LEVEL_KINDS)

    def slot_num(self):
        return self._word("kind", W.KINDS, W.NUMERIC_KINDS)

    def slot_event(self):
        return self._word("kind", W.KINDS, W.EVENT_KINDS)

    def slot_task(self):
        while True:
            verb, thing = self.rng.choice(W.TASK_VERBS), self.rng.choice(W.TASK_OBJECTS)
            if thing in W.PEOPLE and verb not in ("call", "feed", "look after", "check", "pick up"):
                continue
            if pair_held(verb, thing) == self.held and (verb != "call" or thing in W.PEOPLE):
                self.args["task"] = f"{verb} {thing}"
                return self.args["task"]

    # Numbers.
    def _number(self, low: int, high: int) -> int:
        rng = self.rng
        while True:
            n = rng.randint(low, high)
            if not self.held and rng.random() < 0.2:
                n = n // 5 * 5
            if n >= low and number_held(n) == (self.held and high >= 17):
                return n

    def _say(self, n, p_words: float = 0.3) -> str:
        if isinstance(n, int) and n < 1000 and self.rng.random() < p_words:
            return say_words(n, self.rng)
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
        fixed = {
            "half an hour": (30, "minutes"),
            "an hour and a half": (90, "minutes"),
            "an hour": (1, "hours"),
            "a quarter of an hour": (15, "minutes"),
            "a minute": (1, "minutes"),
            "half a minute": (30, "seconds"),
        }
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
            minute = (
                0
                if kind < 0.45
                else 30
                if kind < 0.58
                else rng.choice((15, 45))
                if kind < (0.7 if self.held else 0.76)  # "quarter to two" is the hardest to learn
                else 5 * rng.randrange(12)
                if kind < 0.88
                else rng.randrange(60)
            )
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
        if rng.random() < 0.06:
            if 3 <= hour < 12 and rng.random() < 0.5:
                return "tomorrow morning at " + self._h12(hour, minute)
            return "tomorrow at " + self._clock(hour, minute)
        return "at " + self._clock(hour, minute)

    def _h12(self, h: int, minute: int) -> str:
        """A time on the twelve-hour face, h in 1..12, without am or pm."""
        rng = self.rng
        hour = rng.choice((str(h), say_words(h, rng)))
        if minute == 0:
            return rng.choice((hour, hour, hour + " o'clock"))
        forms = [f"{h}:{minute:02d}", f"{h}:{minute:02d}"]
        following = h % 12 + 1
        if minute in (15, 45):
            quarter = rng.choice(("quarter", "a quarter"))
            forms += [
                f"{quarter} past {hour}"
                if minute == 15
                else f"{quarter} to {rng.choice((str(following), say_words(following, rng)))}"
            ] * 2
        if minute == 30:
            forms += [f"half past {hour}"] * 2
        if minute % 5 == 0 and minute % 15:
            gap = minute if minute < 30 else 60 - minute
            said = rng.choice((str(gap), say_words(gap, rng)))
            forms.append(f"{said} past {hour}" if minute < 30 else f"{said} to {say_words(following, rng)}")
        if minute % 5 == 0:
            forms.append(say_words(h, rng) + (" oh " if minute < 10 else " ") + say_words(minute, rng))
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
            said = say_words(hour, rng)
            return said + (" o'clock" if minute == 0 else (" oh " if minute < 10 else " ") + say_words(minute, rng))
        # "quarter to twelve am" is 23:45 or 11:45: a time before the hour takes the half day of the time itself.
        if rng.random() < 0.6:
            face = face.replace(" o'clock", "")
            half = ("am", "a.m.") if hour < 12 else ("pm", "p.m.")
            gap = "" if face[-1].isdigit() and rng.random() < 0.5 else " "
            return face + gap + half[rng.random() < 0.15]
        if hour < 12:
            return face + (" in the morning" if hour >= 3 else " at night")
        return face + (" in the afternoon" if hour < 18 else " in the evening" if hour < 22 else " at night")
