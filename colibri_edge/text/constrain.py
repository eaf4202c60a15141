"""Answers that must be JSON of a given schema: which tokens may come next, and how to end in time.

Owns: the schema's check, the mask over the logits, the plan that closes the text before its tokens run out. The grammar itself is
worked out by the `llguidance` library (extra `json`), which is imported with the first schema. Refuses: schemas with keywords that
the library cannot enforce (an answer that merely looks right is no answer), stop strings (they would cut the text).

A schema rarely bounds a text: strings, numbers and lists may go on for ever, and a small model's do. So a plan is kept: a run of
tokens that ends the text from where it is, found by preferring tokens that close something. Once the next token would leave less
room than its plan needs, the plan of the token before it is followed to the end. A token may open any amount (a key with all that it
requires), so plans are looked for early too, and left out only inside a text that may end at any place, far from the limit.
"""
from __future__ import annotations

import functools
import json

import numpy as np

#: At most one space, or a line end and some indentation, wherever JSON allows white space: none of it can go on for ever.
WHITE_SPACE = {"whitespace_flexible": True, "whitespace_pattern": r" ?|\n {0,32}"}
CLOSING = b'}]":,0123456789'        # bytes that bring a JSON text to its end, the best first
QUOTE, BACKSLASH = b'"\\'
OUTSIDE, INSIDE, ESCAPED = range(3)  # of a string
PLAN_LIMIT = 2048                   # tokens after which a search for an end is given up


class SchemaError(ValueError):
    """The schema is not JSON, not a JSON schema, asks for what cannot be enforced, or does not fit the tokens allowed."""


def _library():
    try:
        import llguidance
    except ImportError:
        raise ImportError("a JSON schema needs the package 'llguidance': pip install 'colibri-edge[json]'") from None
    return llguidance


def grammar_of(schema: dict | bool | str) -> str:
    """The library's grammar for a schema (JSON text, or the object itself). Raises SchemaError, or ImportError without the library."""
    if isinstance(schema, str):
        try:
            schema = json.loads(schema)
        except (ValueError, RecursionError) as e:
            raise SchemaError(f"the schema is not JSON: {e}") from None
    if not isinstance(schema, dict | bool):
        raise SchemaError(f"the schema is {json.dumps(schema)[:40]}, wanted a JSON object such as {{\"type\": \"object\"}}")
    if schema is False:
        raise SchemaError("the schema is false, which nothing satisfies")
    return _grammar(json.dumps({} if schema is True else schema))


@functools.lru_cache(8)
def _grammar(schema: str) -> str:
    matcher = _library().LLMatcher
    try:
        grammar = matcher.grammar_from_json_schema(schema, WHITE_SPACE)
        problem = matcher.validate_grammar(grammar)
    except (ValueError, TypeError) as e:
        problem = str(e)
    if problem:
        raise SchemaError(f"the schema cannot be used: {' '.join(problem.split())}")
    return grammar


class Vocabulary:
    """A model's tokens as the library wants them, made once for a model. rows: rows of the output matrix, [rows] logits."""

    def __init__(self, tokenizer, rows: int, eos_ids: tuple[int, ...]):
        if not eos_ids:
            raise ValueError("the model has no end token, so an answer with a schema would never end")
        self.rows = rows
        self.eos = eos_ids[0]
        self.eos_token_id, self.bos_token_id = self.eos, None       # these four: what the library reads
        special = {*tokenizer.special_ids, *eos_ids}
        self.tokens = [b"" if i in special else tokenizer.token_bytes(i) for i in range(min(rows, tokenizer.vocab_size))]
        self.tokens += [b""] * (rows - len(self.tokens))
        self.special_token_ids = sorted(i for i in special if i < rows)
        self._encode = tokenizer.encode
        if not any(self.tokens):
            raise ValueError("this model's tokenizer does not tell the bytes of its tokens, so a schema cannot be enforced with it")
        library = _library()
        inside = self._closers(b'"')
        self.closers = (self._closers(CLOSING), inside, inside)    # by place
        # where nothing can be closed: as much text at once as there is, and white space last, which brings no end nearer
        self.worth = np.array([1 + len(t) if t.strip() else len(t) > 0 for t in self.tokens], np.int32)
        self.library = library.LLTokenizer(library.TokenizerWrapper(self))
        self.matcher = functools.lru_cache(8)(self._matcher)

    def _matcher(self, grammar: str):
        """A matcher at the beginning of a text; compiling a large schema takes a tenth of a second, copying it does not."""
        matcher = _library().LLMatcher(self.library, grammar)
        if matcher.is_error():
            raise SchemaError(f"the schema cannot be used: {matcher.get_error()}")
        return matcher

    def __call__(self, text: bytes | str) -> list[int]:
        return self._encode(text, add_special=False)

    def _closers(self, marks: bytes) -> np.ndarray:
        """int64[n]: the end token, then the tokens made of marks, by their first mark; of these, longer ones first."""
        found = [(marks.index(t[0]), -len(t), i) for i, t in enumerate(self.tokens) if t and t[0] in marks and not t.strip(CLOSING)]
        return np.array([self.eos, *(i for *_, i in sorted(found))], np.int64)

    def place(self, place: int, token: int) -> int:
        """Where a text stands after a token, if it stood at place before it: OUTSIDE or INSIDE a string, or after a backslash."""
        for c in self.tokens[token]:
            if place == OUTSIDE:
                place = INSIDE if c == QUOTE else OUTSIDE
            elif place == ESCAPED:
                place = INSIDE
            elif c == QUOTE:
                place = OUTSIDE
            elif c == BACKSLASH:
                place = ESCAPED
        return place


class Constraint:
    """The state of one answer. For each token: sample(logits, sampler, left), then accept(id) -> whether the text is complete."""

    def __init__(self, vocabulary: Vocabulary, grammar: str):
        self.vocabulary = vocabulary
        self._matcher = vocabulary.matcher(grammar).deep_copy()
        self._plan: list[int] | None = None     # ends the text from here; None: not looked for
        self._forced: list[int] = []            # the plan that is being followed
        self._place = OUTSIDE
        self._longest = 0                       # longest plan so far
        self._bounded = True                    # an end was found whenever one was looked for

    def begin(self, max_tokens: int) -> None:
        """Looks for a first end. Raises SchemaError where max_tokens cannot hold it."""
        self._plan = self._find(self._matcher, self._place)
        self._bounded = self._plan is not None
        if self._bounded and len(self._plan) > max_tokens:
            raise SchemaError(f"an answer of this schema takes some {len(self._plan)} tokens, and {max_tokens} are allowed; "
                              "allow more (max_tokens, ctx) or make the schema smaller")

    def sample(self, logits: np.ndarray, sampler, left: int) -> int:
        """One id. logits: float32 [rows] IN OUT, those of tokens that may not come next become -inf. left: tokens until the limit."""
        if self._forced:
            return self._forced.pop(0)
        allowed = self._mask(self._matcher)
        logits[~allowed] = -np.inf
        token = sampler.sample(logits)
        if self._plan and token == self._plan[0]:
            del self._plan[0]
            return token
        place = self.vocabulary.place(self._place, token)
        ends = self._place == INSIDE == place and allowed[self.vocabulary.closers[INSIDE]].any()
        if not self._bounded or (ends and left > 4 * self._longest + 64):
            self._plan = None
            return token
        ahead = self._matcher.deep_copy()
        ahead.consume_token(token)
        plan = self._find(ahead, place)
        if plan is not None and len(plan) < left:
            self._plan = plan
            return token
        if self._plan is None:
            self._plan = self._find(self._matcher, self._place)
        if not self._plan:
            self._bounded = False
            return token
        self._forced = self._plan
        return self._forced.pop(0)

    def accept(self, token: int) -> bool:
        """Takes the id that sample() gave; True when the text is complete (its end token, or nothing can follow)."""
        self._take(token)
        return self._matcher.is_stopped()

    def _take(self, token: int) -> None:
        self._place = self.vocabulary.place(self._place, token)
        if not self._matcher.consume_token(token):
            raise RuntimeError(f"the grammar refused token {token} that it had allowed: {self._matcher.get_error()}")

    def _mask(self, matcher) -> np.ndarray:
        """bool [rows]: tokens that may come next."""
        bits = np.frombuffer(matcher.compute_bitmask(), np.uint8)
        return np.unpackbits(bits, count=self.vocabulary.rows, bitorder="little").view(bool)

    def _find(self, matcher, place: int) -> list[int] | None:
        """Tokens that end the text from the state of matcher and place, or None where the search gave up."""
        matcher, worth = matcher.deep_copy(), self.vocabulary.worth
        plan: list[int] = []
        while not matcher.is_stopped():
            allowed = self._mask(matcher)
            closers = self.vocabulary.closers[place]
            hits = closers[allowed[closers]]
            token = int(hits[0]) if len(hits) else int((allowed * worth).argmax())
            if len(plan) == PLAN_LIMIT or not allowed[token]:
                return None
            matcher.consume_token(token)
            place = self.vocabulary.place(place, token)
            plan.append(token)
        self._longest = max(self._longest, len(plan))
        return plan
