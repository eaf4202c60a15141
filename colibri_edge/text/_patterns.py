"""Pre-tokenizer patterns at run time.

Owns: turning a pattern of the config into a function that cuts a string.
"""

from __future__ import annotations


def compile_patterns(config: dict) -> bytes:
    """Patterns of a config as programs for the C matcher (none yet)."""
    return b""


def finder(pattern: str, is_regex: bool):
    """A function text -> iterator of (start, end) of the matches, never empty ones."""
    if not is_regex:
        def find_plain(text: str):
            at = text.find(pattern)
            while at >= 0:
                yield at, at + len(pattern)
                at = text.find(pattern, at + len(pattern))
        return find_plain
    import regex

    version = regex.V1 if "&&" in pattern else regex.V0
    compiled = regex.compile(pattern, version | regex.MULTILINE)

    def find_regex(text: str):
        for m in compiled.finditer(text):
            if m.end() > m.start():
                yield m.span()

    return find_regex
