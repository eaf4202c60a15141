"""What the service tells those who run it: log lines and a metrics file.

Owns: one line an event, on stderr, as text or JSON, with the priority that journald reads; the Prometheus textfile, written as a whole.
"""
from __future__ import annotations

import json
import os
import sys
import threading
import time
from pathlib import Path

LEVELS = {"debug": 7, "info": 6, "warning": 4, "error": 3}


class Log:
    """log(event, level, **facts): one line. format: "text" or "json"."""

    def __init__(self, format: str = "text", level: str = "info"):
        self.json, self.level = format == "json", LEVELS[level]
        self.prefix = "JOURNAL_STREAM" in os.environ
        self._lock = threading.Lock()

    def __call__(self, event: str, level: str = "info", **facts) -> None:
        number = LEVELS[level]
        if number > self.level:
            return
        facts = {k: round(v, 3) if isinstance(v, float) else v for k, v in facts.items() if v is not None}
        if self.json:
            line = json.dumps({"time": time.strftime("%Y-%m-%dT%H:%M:%S%z"), "level": level, "event": event, **facts}, ensure_ascii=False)
        else:
            line = " ".join([event, *(f"{k}={v if isinstance(v, int | float) else json.dumps(str(v), ensure_ascii=False)}"
                                      for k, v in facts.items())])
        with self._lock:
            try:
                sys.stderr.write(f"{f'<{number}>' if self.prefix else ''}{line}\n")
                sys.stderr.flush()
            except (OSError, ValueError):   # nobody reads it: no reason to stop
                pass


class Metrics:
    """Counters and gauges, written to a file in the Prometheus text format. path: None keeps them in memory only."""

    def __init__(self, path: Path | None, model: str):
        self.path = path
        self.model = model
        self.values = {f'items_total{{result="{r}"}}': 0 for r in ("answered", "failed", "given_back")}
        self.values |= {"tokens_total": 0, "prompt_tokens_total": 0, "prompt_tokens_kept_total": 0, "answer_seconds_sum": 0.0,
                        "answer_seconds_count": 0, "paced_seconds_total": 0.0}
        self.gauges: dict[str, float] = {}

    def add(self, name: str, value: float = 1) -> None:
        self.values[name] += value

    def items(self, result: str) -> None:
        self.add(f'items_total{{result="{result}"}}')

    def text(self) -> str:
        """The file's content."""
        from colibri_edge import __version__, limits

        rss = limits.rss_bytes()
        gauges = {**self.gauges, **({"resident_bytes": rss} if rss else {})}
        lines, seen = [], set()
        for values, kind in ((self.values, "counter"), (gauges, "gauge")):
            for name, value in values.items():
                base = name.split("{")[0]
                family = base.removesuffix("_sum").removesuffix("_count")
                if family not in seen:
                    seen.add(family)
                    lines.append(f"# TYPE colibri_edge_{family} {'summary' if family != base else kind}")
                lines.append(f"colibri_edge_{name} {round(value, 6)}")
        label = self.model.replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")
        lines += ["# TYPE colibri_edge_info gauge", f'colibri_edge_info{{version="{__version__}",model="{label}"}} 1']
        return "\n".join(lines) + "\n"

    def write(self) -> None:
        """Replaces the file. Not synced: it is worth nothing after a crash."""
        if self.path is None:
            return
        part = self.path.with_name(f".{self.path.name}.part")
        part.write_text(self.text(), encoding="utf-8")
        os.replace(part, self.path)
