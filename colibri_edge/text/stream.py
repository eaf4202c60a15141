"""Stop strings and finish reasons over streamed text.

Owns: the hold-back that keeps any part of a stop string from being shown. Refuses: empty stop strings (ValueError).
"""

from __future__ import annotations

from collections.abc import Iterable

STOP, LENGTH = "stop", "length"


class StopStrings:
    """Cuts a text that arrives in pieces at the first of some stop strings.

    push(text) gives what may be shown now; ``stopped`` turns true once a stop string is complete, and nothing comes
    after it. The longest end of the text that could begin a stop string is held back; flush() gives it up.
    Where several stop strings would match, the one that starts first counts, then the longest.
    """

    def __init__(self, stops: Iterable[str] = ()):
        self.stops = tuple(dict.fromkeys([stops] if isinstance(stops, str) else stops))
        for s in self.stops:
            if not isinstance(s, str) or not s:
                raise ValueError(f"stop string {s!r}: wanted a string of at least one character")
        self.stopped = False
        self.matched: str | None = None  #: the stop string that was met
        self._held = ""

    def push(self, text: str) -> str:
        if self.stopped or not text:
            return ""
        if not self.stops:
            return text
        text = self._held + text
        hits = [(at, -len(s), s) for s in self.stops if (at := text.find(s)) >= 0]
        hold = self._partial(text)
        if hits and min(hits)[0] <= hold:
            at, _, self.matched = min(hits)
            self.stopped, self._held = True, ""
            return text[:at]
        # a longer stop string that began before a complete one is waited for
        self._held = text[hold:]
        return text[:hold]

    def flush(self) -> str:
        """The held text, at the end of generation."""
        if self.stopped:
            return ""
        text, self._held = self._held, ""
        hits = [(at, -len(s), s) for s in self.stops if (at := text.find(s)) >= 0]
        if hits:
            at, _, self.matched = min(hits)
            self.stopped = True
            return text[:at]
        return text

    def _partial(self, text: str) -> int:
        """Where the longest proper beginning of a stop string that ends the text starts; len(text) if none."""
        best = len(text)
        for s in self.stops:
            for at in range(max(0, len(text) - len(s) + 1), best):
                if s.startswith(text[at:]):
                    best = at
                    break
        return best


class TextStream:
    """Ids in, text out, with a reason at the end.

    ``decoder``: :meth:`Tokenizer.stream`. ``eos_ids``: ids that end the text and are not shown. ``max_tokens``: None for
    no limit. push(id) gives the text to show; once ``finish_reason`` is "stop" or "length" no more ids are taken, and
    all text has been given.
    """

    def __init__(self, decoder, stops: Iterable[str] = (), eos_ids: Iterable[int] = (), max_tokens: int | None = None):
        self._decoder, self._stops, self._eos = decoder, StopStrings(stops), frozenset(eos_ids)
        self._left = max_tokens
        self.tokens = 0  #: ids taken, the end id included
        self.finish_reason: str | None = None

    def push(self, id: int) -> str:
        if self.finish_reason is not None:
            raise ValueError(f"the text has ended ({self.finish_reason}): no more tokens are taken")
        self.tokens += 1
        if id in self._eos:
            return self.finish(STOP)
        text = self._stops.push(self._decoder.push(id))
        if not self._stops.stopped:
            pending = getattr(self._decoder, "pending", "")
            if pending and self._stops.stops and self._would_stop(pending):
                text += self._stops.push(self._decoder.flush())
        if self._stops.stopped:
            self.finish_reason = STOP
        elif self._left is not None and self.tokens >= self._left:
            return text + self.finish(LENGTH)
        return text

    def finish(self, reason: str = LENGTH) -> str:
        """Ends the text from outside (an end id, a limit, a cancel) and gives what was held back."""
        if self.finish_reason is not None:
            return ""
        text = self._stops.push(self._decoder.flush()) + self._stops.flush()
        self.finish_reason = STOP if self._stops.stopped else reason
        return text

    def _would_stop(self, pending: str) -> bool:
        text = self._stops._held + pending
        return "\ufffd" not in pending and any(s in text for s in self._stops.stops)
