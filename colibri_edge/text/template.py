"""Chat templates: messages to prompt segments.

Owns: the sandboxed jinja2 environment, with the names that templates of the Hugging Face format expect, and the line between
markup (what the template writes) and data (what messages, tools and documents bring). Control tokens are to be found in
markup only, so that no text of a user can end a turn or forge one.
Refuses: to render without a template, and to hide what a template raises (:class:`TemplateError` with its message).

How data is told apart: characters of data that may begin or end a control token (such as ``<`` and ``>``) are replaced, one for
one, by private-use characters before rendering, and are put back afterwards, each as a segment of its own that is no markup.
Trimming, cutting, casing and tojson work on them as on the original. The result is compared with a rendering of the original
data; where they differ (the template looks at such characters itself), see :meth:`ChatTemplate.render`.
"""

from __future__ import annotations

import functools
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from datetime import datetime

__all__ = ["ChatTemplate", "TemplateError", "find_template"]

_ROLE = re.compile(r"[\w .-]{1,64}\Z")
_LITERAL = r"(?:'((?:[^'\\]|\\.)*)'|\"((?:[^\"\\]|\\.)*)\")"
_IN_LOGIC = re.compile(rf"(?:\b(?:split|rsplit|startswith|endswith|find|rfind|index|count|replace|partition|rpartition"
                       rf"|strip|lstrip|rstrip|removeprefix|removesuffix)\(\s*{_LITERAL})|(?:{_LITERAL}\s+(?:not\s+)?in\b)")
_ESCAPES = {"n": "\n", "t": "\t", "r": "\r", "\\": "\\", "'": "'", '"': '"'}


class TemplateError(ValueError):
    """The chat template is missing, broken, or refuses these messages (then the text is its own)."""


def find_template(config: Mapping[str, object], file_text: str | None = None) -> str | dict[str, str] | None:
    """The chat template of a tokenizer_config.json (parsed), or ``file_text``, the content of chat_template.jinja.

    Returns a string, a dict of named templates, or None where the model has none."""
    if file_text:
        return file_text
    found = config.get("chat_template")
    if isinstance(found, list):
        return {str(t["name"]): str(t["template"]) for t in found}
    if isinstance(found, dict):
        return {str(k): str(v) for k, v in found.items()}
    return found if isinstance(found, str) and found else None


@functools.cache
def _environment():
    import jinja2
    from jinja2.ext import Extension, loopcontrols
    from jinja2.sandbox import ImmutableSandboxedEnvironment

    class Generation(Extension):
        """{% generation %} marks the assistant's words for training; here its body stands as it is."""

        tags = {"generation"}

        def parse(self, parser):
            next(parser.stream)
            return parser.parse_statements(("name:endgeneration",), drop_needle=True)

    def raise_exception(message):
        raise TemplateError(str(message))

    def tojson(value, ensure_ascii=False, indent=None, separators=None, sort_keys=False):
        return json.dumps(value, ensure_ascii=ensure_ascii, indent=indent, separators=separators, sort_keys=sort_keys)

    env = ImmutableSandboxedEnvironment(trim_blocks=True, lstrip_blocks=True, extensions=[Generation, loopcontrols])
    env.filters["tojson"] = tojson
    env.globals["raise_exception"] = raise_exception
    env.globals["strftime_now"] = lambda form: datetime.now().strftime(form)
    return env, jinja2


@functools.lru_cache(maxsize=16)
def _compiled(source: str):
    env, jinja2 = _environment()
    try:
        return env.from_string(source)
    except jinja2.TemplateSyntaxError as e:
        raise TemplateError(f"the chat template does not parse: line {e.lineno}: {e.message}") from None


class ChatTemplate:
    """The chat template of one model.

    ``source``: the template, or a dict of named ones ("default", "tool_use"); None raises :class:`TemplateError`.
    ``controls``: texts of all control tokens (:attr:`Tokenizer.control_texts`).
    ``tokens``: what the template sees as bos_token, eos_token and so on.
    """

    def __init__(self, source: str | Mapping[str, str] | None, controls: Iterable[str] = (),
                 tokens: Mapping[str, str] | None = None):
        if not source:
            raise TemplateError("this model has no chat template: give a raw prompt, or convert it with one")
        self._sources = dict(source) if isinstance(source, Mapping) else {"default": source}
        if "default" not in self._sources and len(self._sources) == 1:
            self._sources["default"] = next(iter(self._sources.values()))
        self._tokens = dict(tokens or {})
        self._controls = tuple(c for c in dict.fromkeys(controls) if c)
        ends = {c for t in self._controls for c in (t[0], t[-1])}
        self._danger = "".join(sorted(c for c in ends if not c.isalnum() and not c.isspace()))
        self._danger_set = frozenset(self._danger)
        odd = [t for t in self._controls if t[0] not in self._danger_set or t[-1] not in self._danger_set]
        self._odd = re.compile("|".join(map(re.escape, sorted(odd, key=len, reverse=True)))) if odd else None
        self._any = re.compile("|".join(map(re.escape, sorted(self._controls, key=len, reverse=True)))) \
            if self._controls else None

    @classmethod
    def for_tokenizer(cls, source, tokenizer, tokens: Mapping[str, str] | None = None) -> ChatTemplate:
        """A template with the control tokens, and bos_token and eos_token, of ``tokenizer``."""
        known = {}
        for name, id in (("bos_token", tokenizer.bos_id), ("eos_token", tokenizer.eos_id), ("pad_token", tokenizer.pad_id),
                         ("unk_token", tokenizer.unk_id)):
            if id is not None:
                known[name] = tokenizer.token_bytes(id).decode("utf-8", "replace")
        return cls(source, tokenizer.control_texts, {**known, **(tokens or {})})

    def _source(self, tools) -> str:
        name = "tool_use" if tools and "tool_use" in self._sources else "default"
        if name not in self._sources:
            raise TemplateError(f"the model has chat templates {sorted(self._sources)} and none is called 'default'")
        return self._sources[name]

    def render_text(self, messages: Sequence[Mapping], tools: Sequence[Mapping] | None = None,
                    add_generation_prompt: bool = True, **more) -> str:
        """The prompt as one string. Encode :meth:`render` instead: a string has lost what is markup."""
        _check(messages)
        data = dict(messages=list(messages), tools=tools or None, documents=more.pop("documents", None), **more)
        return self._run(self._source(tools), data, add_generation_prompt)

    def render(self, messages: Sequence[Mapping], tools: Sequence[Mapping] | None = None,
               add_generation_prompt: bool = True, **more) -> list[tuple[str, bool]]:
        """Segments (text, is_markup) for :meth:`Tokenizer.encode_segments`; joined they are the prompt.

        ``messages``: dicts with role and content; ``tools``: JSON schemas; ``more``: further names for the template
        (documents, enable_thinking, ...). Only the characters of data that could touch a control token's spelling are
        segments without markup. Where the template itself looks at such characters, spellings that stand in its own
        conditions (``'</think>' in content``) are first left to it, in the assistant's messages even those of control
        tokens; where it still comes out otherwise, and data spells a control token, the data stays opaque to the
        template: safety goes before such a condition.
        """
        _check(messages)
        source = self._source(tools)
        data = dict(messages=list(messages), tools=tools or None, documents=more.pop("documents", None), **more)
        plain = self._run(source, data, add_generation_prompt)
        strings = list(_strings(data))
        if not any(self._suspect(s) for s in strings):
            return [(plain, True)] if plain else []
        used = set().union(*map(set, strings))
        base = next((b for b in range(0xE000, 0xF800, 0x100) if not any(b <= ord(c) < b + 0x100 for c in used)), None)
        if base is None:
            raise TemplateError("the messages hold private-use characters of each block from U+E000 to U+F7FF, and one block has to be "
                                "free for what stands in for control tokens; leave some of them out")
        back = {chr(base + i): c for i, c in enumerate(self._marks(strings))}
        there = {c: m for m, c in back.items()}
        logic = _logic_literals(source)
        safe = [s for s in logic if not self._extends(s)]
        first = None
        for assistant in ([], logic):
            marked = self._mark_all(data, there, safe, assistant)
            text = _unescape(self._run(source, marked, add_generation_prompt), back)
            segments = _cut(text, back)
            if "".join(s for s, _ in segments) == plain:
                return segments
            first = first or segments
            if assistant == logic:
                break
        if self._any is None or not any(self._any.search(s) for s in strings):
            return [(plain, True)]
        return first

    def _run(self, source: str, data: dict, add_generation_prompt: bool) -> str:
        template = _compiled(source)
        jinja2 = _environment()[1]
        try:
            return template.render(**{**data, **self._tokens}, add_generation_prompt=add_generation_prompt)
        except TemplateError:
            raise
        except jinja2.TemplateError as e:
            raise TemplateError(f"the chat template failed: {e.message or type(e).__name__}") from None
        except (TypeError, ValueError, KeyError, AttributeError, ArithmeticError, RecursionError) as e:
            raise TemplateError(f"the chat template failed on these messages: {type(e).__name__}: {e}") from None

    def _suspect(self, text: str) -> bool:
        return not self._danger_set.isdisjoint(text) or (self._odd is not None and self._odd.search(text) is not None)

    def _marks(self, strings: Iterable[str]) -> str:
        """Characters that get a stand-in: ends of control tokens, and first characters of those with plain ends."""
        more = {m[0] for s in strings for m in (self._odd.findall(s) if self._odd else ())}
        return self._danger + "".join(sorted(more - self._danger_set))[:0x100 - len(self._danger)]

    def _extends(self, literal: str) -> bool:
        """Whether a control token could begin or end inside this literal."""
        return any(t.startswith(literal[i:]) or literal[i:].startswith(t) or t.endswith(literal[:i + 1])
                   for i in range(len(literal)) for t in self._controls if literal[i] in (t[0], t[-1]))

    def _mark_all(self, data: dict, there: dict[str, str], safe: list[str], assistant: list[str]) -> dict:
        keep = _one_of(safe)
        keep_more = _one_of([*safe, *assistant])
        out = {k: _map(v, lambda s: self._mark(s, there, keep)) for k, v in data.items() if k != "messages"}
        mark, mark_less = (functools.partial(self._mark, there=there, keep=k) for k in (keep, keep_more))
        out["messages"] = [_map(m, mark_less if m.get("role") == "assistant" else mark) for m in data["messages"]]
        return out

    def _mark(self, text: str, there: dict[str, str], keep) -> str:
        if not self._suspect(text):
            return text
        chars = [there[c] if c in self._danger_set else c for c in text]
        for m in self._odd.finditer(text) if self._odd else ():
            chars[m.start()] = there.get(text[m.start()], chars[m.start()])
        for m in keep.finditer(text) if keep else ():
            chars[m.start():m.end()] = text[m.start():m.end()]
        return "".join(chars)


def _check(messages) -> None:
    if isinstance(messages, (str, bytes)) or not isinstance(messages, Sequence):
        raise ValueError(f"messages is {type(messages).__name__}: wanted a list of {{'role': ..., 'content': ...}}")
    for i, m in enumerate(messages):
        if not isinstance(m, Mapping):
            raise ValueError(f"messages[{i}] is {type(m).__name__}: wanted {{'role': ..., 'content': ...}}")
        role = m.get("role")
        if not isinstance(role, str) or not _ROLE.match(role):
            raise ValueError(f"messages[{i}] has role {role!r}: wanted a plain word such as 'user'")


def _strings(value) -> Iterable[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping):
        for k, v in value.items():
            yield from _strings(k)
            yield from _strings(v)
    elif isinstance(value, (list, tuple)):
        for v in value:
            yield from _strings(v)


def _map(value, f):
    if isinstance(value, str):
        return f(value)
    if isinstance(value, Mapping):
        return {f(k) if isinstance(k, str) else k: _map(v, f) for k, v in value.items()}
    if isinstance(value, (list, tuple)):
        return [_map(v, f) for v in value]
    return value


def _one_of(texts: Iterable[str]):
    texts = sorted({t for t in texts if t}, key=len, reverse=True)
    return re.compile("|".join(map(re.escape, texts))) if texts else None


def _logic_literals(source: str) -> list[str]:
    """String constants the template compares data with."""
    found = {next((g for g in m.groups() if g), "") for m in _IN_LOGIC.finditer(source)}
    return [re.sub(r"\\(.)", lambda m: _ESCAPES.get(m[1], m[0]), s) for s in sorted(found) if s]


def _unescape(text: str, back: dict[str, str]) -> str:
    """tojson(ensure_ascii=True) writes a stand-in as an escape and the original as itself."""
    for mark in back:
        text = text.replace(f"\\u{ord(mark):04x}", mark)
    return text


def _cut(text: str, back: dict[str, str]) -> list[tuple[str, bool]]:
    out: list[tuple[str, bool]] = []
    for part in re.split(f"([{re.escape(''.join(back))}]+)", text):
        if part:
            marked = part[0] in back
            out.append(("".join(map(back.__getitem__, part)) if marked else part, not marked))
    return out
