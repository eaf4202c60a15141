"""The prompt of an item: a template with fields, filled from the item and from sensors.

Owns: the fields `${input}`, `${time}`, `${id}` and one for each [sensors.NAME]; `$$` is a dollar. A sensor is a file with a number or
a text, read for each item (`/sys/class/thermal/thermal_zone0/temp`, say). Refuses: unknown fields, when the file is checked; a sensor
that cannot be read and has no default fails the item.
"""
from __future__ import annotations

import difflib
import time
from string import Template

FIELDS = ("input", "time", "id")
SENSOR_BYTES = 4096


class PromptError(ValueError):
    """The template cannot be used. key: which key of [prompt] is wrong."""

    def __init__(self, message: str, key: str = "text"):
        super().__init__(message)
        self.key = key


class SensorError(ValueError):
    """A sensor could not be read and has no default."""


class Prompt:
    """A checked template. messages() or raw text, by the key raw of [prompt]."""

    def __init__(self, config):
        p = config.prompt
        self.sensors = config.sensors
        self.beside = config.beside
        self.raw = p["raw"]
        if p["text"] is not None and p["file"] is not None:
            raise PromptError("[prompt] has both text and file; keep one", "file")
        text, key = p["text"], "text"
        if p["file"] is not None:
            file, key = config.beside(p["file"]), "file"
            try:
                text = file.read_text("utf-8-sig").removesuffix("\n")
            except OSError as e:
                raise PromptError(f"{file}: {e.strerror}", key) from None
            except UnicodeDecodeError as e:
                raise PromptError(f"{file}: byte {e.start} is not UTF-8", key) from None
        if self.raw and p["system"] is not None:
            raise PromptError("system needs the chat template that raw leaves out; give one of them", "system")
        self.text = self._template("${input}" if text is None else text, key)
        self.system = self._template(p["system"], "system") if p["system"] is not None else None

    def _template(self, text: str, key: str) -> Template:
        template = Template(text)
        if not template.is_valid():
            at = next(m for m in template.pattern.finditer(text) if m["invalid"] is not None)
            raise PromptError(f"the template has a $ at character {at.start() + 1} that begins no field; write $$ for a dollar", key)
        known = (*FIELDS, *self.sensors)
        for name in template.get_identifiers():
            if name not in known:
                near = difflib.get_close_matches(name, known, 1)
                raise PromptError(f"the template has the field ${{{name}}}{f'; did you mean ${{{near[0]}}}?' if near else ''} (known are "
                                  f"{', '.join(known)}; write $$ for a dollar)", key)
        return template

    def fill(self, text: str, item_id: str, values: dict[str, str] | None = None):
        """What Model.chat (a list of messages) or Model.generate (a text, with raw) takes. values: sensors that were read already."""
        fields = {"input": text, "id": item_id, "time": time.strftime("%Y-%m-%d %H:%M:%S"), **(values or {})}
        used = {*self.text.get_identifiers(), *(self.system.get_identifiers() if self.system else ())}
        for name, sensor in self.sensors.items():
            if name in used and name not in fields:
                fields[name] = self.read(name, sensor)
        if self.raw:
            return self.text.substitute(fields)
        messages = [{"role": "user", "content": self.text.substitute(fields)}]
        if self.system:
            messages.insert(0, {"role": "system", "content": self.system.substitute(fields)})
        return messages

    def probes(self) -> list:
        """Two fillings that agree in nothing but the fixed part."""
        return [self.fill(mark * 3, mark, dict.fromkeys(self.sensors, mark) | {"time": mark}) for mark in ("0", "x")]

    def read(self, name: str, sensor: dict) -> str:
        """A sensor's value as text."""
        path = self.beside(sensor["file"])
        try:
            with open(path, "rb") as f:
                value = f.read(SENSOR_BYTES).decode().strip()
            if sensor["scale"] != 1.0 or sensor["digits"] is not None:
                number = float(value) * sensor["scale"]
                value = f"{number:.{sensor['digits']}f}" if sensor["digits"] is not None else f"{number:g}"
            return value
        except (OSError, ValueError) as e:
            if sensor["default"] is not None:
                return sensor["default"]
            reason = e.strerror if isinstance(e, OSError) else f"{e}"
            raise SensorError(f"sensor {name}: {path}: {reason}; give it a default if it may be absent") from None
