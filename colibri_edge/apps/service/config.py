"""service.toml: which keys there are, what they may hold, what is wrong with a file.

Owns: SECTIONS, the table of all keys; `load` applies it and finds every problem at once, each with its line. Refuses: unknown keys
(with the nearest known one), values of the wrong kind, files that are not there, combinations that cannot work.
"""
from __future__ import annotations

import math
import os
import re
import tomllib
from dataclasses import dataclass
from difflib import get_close_matches
from pathlib import Path


class ConfigError(Exception):
    """problems: one line each, `FILE:LINE: what was found, what is wanted`."""

    def __init__(self, problems: list[str]):
        super().__init__("\n".join(problems))
        self.problems = problems


# -- kinds of values: each takes what TOML gave and returns what the service uses, or raises ValueError(what is wanted) ---------


def text(value):
    if not isinstance(value, str) or not value:
        raise ValueError("a text")
    return value


def flag(value):
    if not isinstance(value, bool):
        raise ValueError("true or false")
    return value


def whole(low: int, high: int = 1 << 31):
    def check(value):
        if isinstance(value, bool) or not isinstance(value, int) or not low <= value <= high:
            raise ValueError(f"a whole number from {low} to {high}")
        return value
    return check


def real(low: float = -math.inf, high: float = math.inf):
    def check(value):
        if isinstance(value, bool) or not isinstance(value, int | float) or not low <= value <= high:
            raise ValueError("a number" + (f" from {low:g} to {high:g}" if math.isfinite(low) else ""))
        return float(value)
    return check


_UNITS = {"ms": 1e-3, "s": 1, "min": 60, "h": 3600, "d": 86400}


def seconds(value):
    """Seconds of 1.5, "250ms", "30s", "5min", "1h", "1d"."""
    if isinstance(value, int | float) and not isinstance(value, bool):
        value = f"{value}s"
    m = re.fullmatch(r"(\d+(?:\.\d+)?) ?(ms|s|min|h|d)", value) if isinstance(value, str) else None
    if not m or not 0 < float(m[1]) * _UNITS[m[2]] <= 1e8:
        raise ValueError('a time above 0, such as "30s", "5min" or "250ms"')
    return float(m[1]) * _UNITS[m[2]]


def size(value):
    from colibri_edge.limits import parse_bytes

    if not isinstance(value, str):
        raise ValueError('a size such as "2GiB"')
    try:
        return parse_bytes(value)
    except ValueError:
        raise ValueError('a size such as "2GiB"') from None


def choice(*words):
    def check(value):
        if value not in words:
            raise ValueError("one of " + ", ".join(map(repr, words)))
        return value
    return check


def texts(value):
    if not isinstance(value, list) or not all(isinstance(v, str) and v for v in value):
        raise ValueError("a list of texts")
    return value


def mode(value):
    if not isinstance(value, str) or not re.fullmatch(r"0?[0-7]{3}", value):
        raise ValueError('file permissions such as "660"')
    return int(value, 8)


class Required:
    """Marks a key without a default."""


MQTT = {"host": (text, "localhost"), "port": (whole(1, 65535), 1883), "user": (text, None), "password_file": (text, None),
        "tls": (flag, False), "client": (text, None), "topic": (text, Required), "qos": (whole(0, 2), 1)}
LINES = {"max_bytes": (whole(1, 1 << 24), 1 << 16)}
SOURCES = {
    "timer": {"every": (seconds, Required), "count": (whole(0), 0)},
    "stdin": LINES,
    "fifo": {"path": (text, Required), **LINES},
    "socket": {"path": (text, Required), "mode": (mode, 0o660), "reply": (flag, True), **LINES},
    "folder": {"path": (text, Required), "pattern": (text, "*"), "poll": (seconds, 1.0), **LINES},
    "mqtt": {**MQTT, **LINES},
}
SINKS = {
    "stdout": {"format": (choice("json", "text"), "json")},
    "journal": {},
    "file": {"path": (text, Required)},
    "socket": {"path": (text, Required)},
    "webhook": {"url": (text, Required), "timeout": (seconds, 10.0), "token_file": (text, None)},
    "mqtt": {**MQTT, "retain": (flag, False)},
}
SECTIONS = {
    "model": {"file": (text, Required), "ram": (size, None), "ctx": (whole(16), None), "threads": (whole(1, 256), None),
              "kv": (choice("auto", "f32", "f16", "q8_0"), "auto"), "chunk": (whole(1, 4096), None)},
    "prompt": {"text": (text, None), "file": (text, None), "system": (text, None), "raw": (flag, False)},
    "answer": {"max_tokens": (whole(1), 256), "deadline": (seconds, None), "schema": (text, None), "stop": (texts, []),
               "temperature": (real(0, 1e6), None), "top_p": (real(0, 1), None), "top_k": (whole(0), None), "min_p": (real(0, 1), None),
               "repetition_penalty": (real(1e-6, 1e6), None), "seed": (whole(0), None)},
    "queue": {"folder": (text, None), "limit": (whole(1, 1 << 20), 1000), "attempts": (whole(1, 1000), 5)},
    "pace": {"sensor": (text, None), "from": (real(-50, 150), 70.0), "to": (real(-50, 150), 80.0)},
    "log": {"format": (choice("text", "json"), "text"), "level": (choice("debug", "info", "warning", "error"), "info"),
            "metrics": (text, None), "every": (seconds, 15.0)},
    "watchdog": {"stall": (seconds, 120.0)},
}
SENSOR = {"file": (text, Required), "scale": (real(), 1.0), "digits": (whole(0, 9), None), "default": (text, None)}
TOP = (*SECTIONS, "source", "sink", "sensors")
UNIT_FOLDERS = Path("/run/colibri-edge"), Path("/var/lib/colibri-edge")     # what the unit makes: RuntimeDirectory, StateDirectory


@dataclass
class Config:
    """A checked file. Sections are dicts with every key of SECTIONS; schema holds the schema's text."""

    path: Path
    model: dict
    prompt: dict
    answer: dict
    queue: dict
    pace: dict
    log: dict
    watchdog: dict
    source: dict
    sinks: list[dict]
    sensors: dict[str, dict]
    schema: str | None = None
    waits_for_unit: bool = False    # needs a folder that only the unit makes

    def beside(self, name: str) -> Path:
        """A file named in the config: as it stands, or beside the config where it is relative."""
        return self.path.parent / name


def load(path: str | Path, for_unit: bool = False) -> Config:
    """Reads and checks a file. for_unit: what the unit makes before it starts counts as there. Raises ConfigError with every problem,
    OSError where it cannot be read."""
    path = Path(path).absolute()
    raw = path.read_bytes()
    try:
        source_text = raw.decode("utf-8-sig")
        data = tomllib.loads(source_text)
    except UnicodeDecodeError as e:
        raise ConfigError([f"{path}:{raw[:e.start].count(10) + 1}: byte 0x{raw[e.start]:02x} is not UTF-8"]) from None
    except tomllib.TOMLDecodeError as e:
        m = re.search(r" \(at line (\d+), column \d+\)$", str(e))
        raise ConfigError([f"{path}:{m[1]}: {str(e)[:m.start()]}" if m else f"{path}: {e}"]) from None
    return _Checker(path, source_text, data, for_unit).check()


class _Checker:
    def __init__(self, path: Path, source_text: str, data: dict, for_unit: bool):
        self.path, self.data, self.for_unit = path, data, for_unit
        self.lines = _lines(source_text)
        self.problems: list[tuple[int, str]] = []

    def bad(self, where: tuple, message: str) -> None:
        while where and where not in self.lines:
            where = where[:-1]
        line = self.lines.get(where, 0)
        self.problems.append((line, f"{self.path}{f':{line}' if line else ''}: {message}"))

    def check(self) -> Config:
        for name in self.data:
            if name not in TOP:
                self.bad((name,), f"unknown section [{name}]{_near(name, TOP)}")
        found = {name: self.table((name,), self.data.get(name, {}), spec) for name, spec in SECTIONS.items()}
        source = self.kind(("source",), self.data.get("source", {}), SOURCES)
        sinks = self.data.get("sink", [{"kind": "stdout"}])
        if not isinstance(sinks, list) or not all(isinstance(s, dict) for s in sinks):
            self.bad(("sink",), "sink is one table, wanted [[sink]] with double brackets, once for each sink")
            sinks = []
        sinks = [self.kind(("sink", i), s, SINKS) for i, s in enumerate(sinks)]
        sensors = self.data.get("sensors", {})
        if not isinstance(sensors, dict):
            self.bad(("sensors",), "sensors is no table, wanted [sensors.NAME]")
            sensors = {}
        sensors = {n: self.table(("sensors", n), s, SENSOR) for n, s in sensors.items()}
        config = Config(self.path, **found, source=source, sinks=sinks, sensors=sensors)
        if not self.problems:
            self.together(config)
        if self.problems:
            raise ConfigError([message for _, message in sorted(self.problems)])
        return config

    def kind(self, where: tuple, given, kinds: dict) -> dict:
        """A table whose key `kind` says which other keys it has."""
        name = "[source]" if where == ("source",) else "[[sink]]"
        wanted = ", ".join(kinds)
        kind = given.get("kind") if isinstance(given, dict) else None
        if not isinstance(kind, str) or kind not in kinds:
            near = _near(kind, kinds) if isinstance(kind, str) else ""
            self.bad((*where, "kind"), f"kind of {name} is {kind!r}, wanted one of {wanted}{near}" if kind is not None
                     else f"{name} has no kind, wanted one of {wanted}")
            return {"kind": kind}
        rest = {k: v for k, v in given.items() if k != "kind"}
        return {"kind": kind, **self.table(where, rest, kinds[kind], f"{name} {kind}", ("kind",))}

    def table(self, where: tuple, given, spec: dict, name: str | None = None, more: tuple = ()) -> dict:
        name = name or f"[{'.'.join(map(str, where))}]"
        if not isinstance(given, dict):
            self.bad(where, f"{name} is {given!r}, wanted a table")
            return {}
        out = {}
        for key in given:
            if key not in spec:
                self.bad((*where, key), f"unknown key {key!r} in {name}{_near(key, (*spec, *more))}")
        for key, (check, default) in spec.items():
            if key not in given:
                if default is Required:
                    self.bad(where, f"{name} lacks the key {key!r}")
                out[key] = default
                continue
            try:
                out[key] = check(given[key])
            except ValueError as e:
                self.bad((*where, key), f"{key} in {name} is {given[key]!r}, wanted {e}")
        return out

    def together(self, c: Config) -> None:
        """What no single key can show."""
        from colibri_edge.apps.service.prompt import Prompt, PromptError

        try:
            Prompt(c)
        except PromptError as e:
            self.bad(("prompt", e.key), str(e))
        if c.answer["schema"]:
            self.schema(c)
        file = c.model["file"]
        if file != "demo" and not c.beside(file).exists():
            self.bad(("model", "file"), f"model file {c.beside(file)} is not there")
        if c.pace["from"] >= c.pace["to"]:
            self.bad(("pace", "to"), f"pace to is {c.pace['to']:g}, wanted more than from, which is {c.pace['from']:g}")
        folder = c.queue["folder"] or os.environ.get("STATE_DIRECTORY")
        if c.source["kind"] in ("socket", "mqtt") and not folder:
            if self.for_unit:
                c.waits_for_unit = True
            else:
                self.bad(("queue", "folder"), f"a {c.source['kind']} source acknowledges what it accepts, so it needs a folder to keep it "
                         "in: set folder in [queue], or StateDirectory= in the unit")
        paths = [(("source", "path"), c.source.get("path"))]
        paths += [(("sink", i, "path"), s.get("path")) for i, s in enumerate(c.sinks)]
        for where, path in paths:
            parent = c.beside(path).parent if path else None
            if not parent or "$" in str(parent) or parent.is_dir():
                continue
            if self.for_unit and parent in UNIT_FOLDERS:
                c.waits_for_unit = True
            else:
                self.bad(where, f"folder {parent} is not there")
        if c.source["kind"] == "folder" and not c.beside(c.source["path"]).is_dir():
            self.bad(("source", "path"), f"{c.beside(c.source['path'])} is no folder")
        for i, s in enumerate(c.sinks):
            if s["kind"] == "file":
                names = set(re.findall(r"\$\{(\w+)\}", s["path"]))
                if wrong := sorted(names - {"id", "date"}):
                    self.bad(("sink", i, "path"), f"path of a file sink holds ${{{wrong[0]}}}, wanted ${{id}} or ${{date}}")
            if s["kind"] == "webhook" and not re.match(r"https?://[^/]", s["url"]):
                self.bad(("sink", i, "url"), f"url is {s['url']!r}, wanted one that begins with http:// or https://")
        for where, part in [(("source",), c.source), *((("sink", i), s) for i, s in enumerate(c.sinks))]:
            for key in ("password_file", "token_file"):
                if part.get(key) and not c.beside(part[key]).is_file():
                    self.bad((*where, key), f"{key} {c.beside(part[key])} is not there")

    def schema(self, c: Config) -> None:
        from colibri_edge.text.constrain import SchemaError, grammar_of

        file = c.beside(c.answer["schema"])
        if c.answer["stop"]:
            self.bad(("answer", "stop"), "stop would cut the JSON that schema asks for; leave one of them out")
        try:
            c.schema = file.read_text("utf-8")
            grammar_of(c.schema)
        except (SchemaError, UnicodeDecodeError) as e:
            self.bad(("answer", "schema"), f"{file}: {e}")
        except OSError as e:
            self.bad(("answer", "schema"), f"{file}: {e.strerror}")
        except ImportError as e:
            self.bad(("answer", "schema"), str(e))


def _near(word: str, known) -> str:
    found = get_close_matches(word, list(known), 1, 0.5)
    return f"; did you mean {found[0]!r}?" if found else f"; known are {', '.join(known)}"


def _lines(source_text: str) -> dict[tuple, int]:
    """Line of each table and key, by its path; a list of tables counts from 0. Texts over several lines are passed over."""
    out: dict[tuple, int] = {}
    table: tuple = ()
    counts: dict[tuple, int] = {}
    closing = None
    for number, line in enumerate(source_text.splitlines(), 1):
        if closing:
            if closing in line:
                closing = None
            continue
        if m := re.match(r"\s*\[\[\s*([^\]]+?)\s*\]\]", line):
            name = _keys(m[1])
            counts[name] = counts.get(name, -1) + 1
            table = (*name, counts[name])
            out.setdefault(name, number)
            out[table] = number
        elif m := re.match(r"\s*\[\s*([^\]]+?)\s*\]", line):
            table = _keys(m[1])
            for i in range(1, len(table) + 1):
                out.setdefault(table[:i], number)
        elif m := re.match(r"""\s*((?:[\w-]+|"[^"]*"|'[^']*')(?:\s*\.\s*(?:[\w-]+|"[^"]*"|'[^']*'))*)\s*=(.*)""", line):
            out.setdefault((*table, *_keys(m[1])), number)
            for quotes in ('"' * 3, "'" * 3):
                if m[2].count(quotes) % 2:
                    closing = quotes
    return out


def _keys(dotted: str) -> tuple:
    return tuple(part.strip().strip("\"'") for part in dotted.split("."))
