"""Whole models: loading, logits, generation, chat.

Owns: what a user of a model file calls. One model instance holds one sequence and belongs to one thread at a time; a prompt that
begins as the last one did pays only for what is new, with the same bits as a cold start (docs/numerics.md).
Refuses: prompts longer than the context, sampling settings out of range, chat without a chat template.
"""
from __future__ import annotations

import threading
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from colibri_edge import budget, limits, usage
from colibri_edge.core.store import DEFAULT_POLICY, POLICIES
from colibri_edge.engine import Program, Session
from colibri_edge.file import ColibriFile

DEFAULT_CONTEXT = 4096
SETTLE_FROM = 64 << 20      # bytes of a file from which huge pages are worth the copy
SETTLE_SHARE = 0.75         # of the ceiling: anonymous memory cannot be dropped as a mapped file's pages can


@dataclass(frozen=True, slots=True)
class Token:
    """One generated token: its id and the text that became complete with it (may be empty)."""

    id: int
    text: str


class Generation(Iterator):
    """A running answer: iterate over its tokens; the facts stand in its attributes when it has ended.

    text (so far), tokens (ids), prompt_tokens, finish_reason ("stop", "length", None while it runs), ttft_s, prefill_s, decode_s.
    poll: a function that is called before each chunk of the prompt and each token; a text that it returns ends the answer there and
    becomes its finish_reason (a deadline, a client that left).
    """

    def __init__(self, model: Model, prompt: list[int], sampler, stream, max_tokens: int, constraint=None):
        self.prompt_tokens = len(prompt)
        self.cached_tokens = 0
        self.text = ""
        self.tokens: list[int] = []
        self.finish_reason: str | None = None
        self.ttft_s = self.prefill_s = self.decode_s = 0.0
        self.poll: Callable[[], str | None] | None = None
        self._steps = self._run(model, prompt, sampler, stream, max_tokens, constraint)

    def __next__(self) -> Token:
        return next(self._steps)

    @property
    def completion_tokens(self) -> int:
        """Tokens generated so far, an end token included."""
        return len(self.tokens)

    @property
    def prefill_tok_s(self) -> float:
        """Prompt tokens computed a second (those of the kept prefix not counted)."""
        return (self.prompt_tokens - self.cached_tokens) / self.prefill_s if self.prefill_s else 0.0

    @property
    def decode_tok_s(self) -> float:
        """Tokens a second after the first."""
        return (len(self.tokens) - 1) / self.decode_s if self.decode_s and len(self.tokens) > 1 else 0.0

    def _over(self) -> bool:
        """Asks poll; True where the answer ends here."""
        if self.poll is not None:
            self.finish_reason = self.poll()
        return self.finish_reason is not None

    def _run(self, model, prompt, sampler, stream, max_tokens, constraint):
        start = time.perf_counter()
        self.cached_tokens = model._prefill(prompt, self._over)
        self.prefill_s = time.perf_counter() - start
        if self.finish_reason is not None:
            return
        session, fed = model.session, model._fed
        logits = session.logits_view()
        sampler.accept(prompt)
        first = None
        while True:
            if constraint is None:
                token = sampler.sample(logits)
            else:
                token = constraint.sample(logits, sampler, min(max_tokens - len(self.tokens), session.ctx - session.pos + 1))
            now = time.perf_counter()
            if first is None:
                model.settle(wait=False)
            first = first or now
            self.ttft_s = first - start
            self.decode_s = now - first
            self.tokens.append(token)
            complete = constraint is not None and constraint.accept(token)
            text = stream.push(token)
            if complete:
                text += stream.finish("stop")
            elif constraint is not None and len(self.tokens) >= max_tokens:
                text += stream.finish("length")
            if stream.finish_reason is None and session.pos >= session.ctx:
                text += stream.finish("length")
            self.text += text
            self.finish_reason = stream.finish_reason
            yield Token(token, text)
            if self.finish_reason is not None:
                return
            if self._over():
                self.text += stream.finish(self.finish_reason)
                return
            if model._fed is not fed:       # whatever begins a sequence puts a list of its own there
                raise RuntimeError("the model has gone on with another sequence, so this answer cannot be taken up again; end one before "
                                   "the next, or give each its own model")
            session.feed((token,))
            model._fed.append(token)    # after feed: an interrupt between the two must leave _fed a prefix of the session


class Model:
    """A loaded model. Make one with :meth:`load`."""

    def __init__(self, file: ColibriFile, program: Program, session: Session):
        self.file = file
        self.program = program
        self.session = session
        self._fed: list[int] = []
        self._settles = False
        self._usage: usage.Usage | None = None
        self._saved_tokens = 0
        self._tokenizer = None
        self._template = None
        self._vocabulary = None

    @classmethod
    def load(cls, path, *, threads: int | None = None, ram: str | int | None = None, ctx: int | None = None, kv: str = "auto",
             chunk: int | None = None, weights: str = "auto", policy: str = DEFAULT_POLICY, prefetch: bool = False,
             learn: bool = True, progress=None) -> Model:
        """Opens MODEL: a .colibri file, a .gguf file (also split), a Hugging Face or MLX folder, a flash-moe folder, or "demo".

        threads: default, the physical cores that this process may use. ram: ceiling in bytes or such as "2GiB"; a model that does
        not fit is refused before anything is loaded. ctx: positions, default the smaller of 4,096 and the model's own.
        kv: "f32", "f16", "q8_0" (half the memory of f16), or "auto": float32 for float weights, float16 for quantised ones.
        chunk: tokens of one prefill pass (default: 256, and 512 where experts are streamed and the buffers are worth it).
        weights: "map" (instant start), "ram" (copied into huge pages first) or "auto": where all of it fits the ceiling, mapped at
        first and, with memory to spare, moved into huge pages behind the first answer (settle); else the routed experts are streamed
        from disk. Without ram= the ceiling is the memory that is free, cgroup limits included; "map" and "ram" heed a ram= that is given.
        policy: which expert leaves memory, "next", "lfu" or "lru" (core/store); prefetch: read what the next layer will probably
        choose; learn: begin with the counts of `MODEL.usage` where that file is there (see save_usage). These three change speed,
        never results.
        Raises FileError or ConvertError (both are ValueErrors), ValueError or OSError, each with what to do.
        """
        from colibri_edge.convert.cache import resolve

        file = ColibriFile(resolve(str(path), progress=progress) if progress else resolve(str(path)))
        program = Program(file, "map")
        if threads is not None and threads < 1:
            raise ValueError(f"threads is {threads}, wanted at least 1")
        if chunk is not None and chunk < 1:
            raise ValueError(f"chunk is {chunk}, wanted at least 1")
        ctx = min(DEFAULT_CONTEXT, program.context) if ctx is None else ctx
        if not 1 <= ctx <= program.context:
            raise ValueError(f"ctx is {ctx}, wanted 1 to {program.context}, the context that the model was made for")
        if kv == "auto":
            kv = default_kv(program)
        elif kv not in ("f32", "f16", "q8_0"):
            raise ValueError(f"kv is {kv!r}, wanted 'auto', 'f32', 'f16' or 'q8_0'")
        if policy not in POLICIES:
            raise ValueError(f"policy is {policy!r}, wanted one of {', '.join(POLICIES)}")
        if weights not in ("auto", "map", "ram"):
            raise ValueError(f"weights is {weights!r}, wanted 'auto', 'map' or 'ram'")
        threads = threads or limits.default_threads()
        ceiling = limits.parse_bytes(ram) if ram is not None else limits.available_bytes()
        settles = False
        if ceiling is not None and (weights == "auto" or ram is not None):
            placed = budget.place(file, program, ctx=ctx, kv=kv, chunk=chunk, threads=threads, ram=ceiling)
            if placed.weights == "stream" and weights != "auto":
                whole = sum(budget.need(file, program, ctx, kv, placed.chunk, threads).values())
                raise ValueError(f"weights={weights!r} holds all experts in memory, which takes {whole} bytes, more than ram={ceiling}; "
                                 "leave weights at 'auto', which reads from disk what does not fit")
            chunk = placed.chunk
            settles = weights == "auto" and placed.weights == "map" and SETTLE_FROM <= file.size <= SETTLE_SHARE * ceiling
            if placed.weights == "stream":
                program = Program(file, "stream", placed.slots, policy, embed_rows=placed.embed_rows)
        if weights == "ram":
            program = Program(file, "ram")
        program.verify_resident()
        model = cls(file, program, Session(program, ctx, threads, kv, chunk or budget.PREFILL_CHUNK, prefetch=prefetch))
        model._settles = settles
        if program.weights == "stream" and learn:
            model._learn()
        return model

    def _learn(self) -> None:
        """Begins with what earlier runs asked for."""
        self._usage = usage.read(usage.beside(self.file.path), [len(c) for c in self.program.store.counts()])
        if self._usage.counts is not None:
            self.program.store.learn(self._usage.counts, self._usage.tokens)

    @property
    def usage_note(self) -> str | None:
        """Why the usage file was left aside; None where it was not."""
        return self._usage.note if self._usage else None

    def save_usage(self) -> str | None:
        """Adds this run's counts of experts to `MODEL.usage`, the file that the next streamed run begins with: whole or not at all. Only
        where experts are streamed and were learned from. Returns a note where it cannot be written, else None; never raises for that."""
        store = self.program.store
        if self.program.weights != "stream" or self._usage is None or store.tokens == self._saved_tokens:
            return None
        path = usage.beside(self.file.path)
        now = usage.merge(self._usage, store.counts(), store.tokens)
        self._saved_tokens = store.tokens
        return usage.write(path, now)

    @property
    def tokenizer(self):
        """The model's tokenizer (colibri_edge.text.tokenizer.Tokenizer)."""
        if self._tokenizer is None:
            from colibri_edge.text.tokenizer import Tokenizer

            view = self.file.tokenizer_view()
            if view is None:
                raise ValueError(f"{self.file.path} holds no tokenizer; convert from a source that has one, or use token ids")
            self._tokenizer = Tokenizer(view)
        return self._tokenizer

    @property
    def eos_ids(self) -> tuple[int, ...]:
        """All token ids that end an answer: the generation defaults' and the tokenizer's."""
        listed = self.file.meta.get("generation", {}).get("eos_token_ids", [])
        own = self.tokenizer.eos_ids if self.file.tokenizer_view() is not None else ()
        return tuple(dict.fromkeys([*listed, *own]))

    def logits(self, tokens: Sequence[int]) -> np.ndarray:
        """Teacher-forced logits from a fresh state: tokens (T,) -> float32 (T, vocab)."""
        ids = np.asarray(tokens, dtype=np.int64)
        self.reset()
        out = np.empty((len(ids), self.program.vocab), np.float32)
        if len(ids):
            self.session.all_logits(ids, out)
        self._fed = ids.tolist()
        return out

    def stats(self) -> dict:
        """Uses of routed experts found in memory and read from disk, reads ahead of need, bytes read, seconds that threads waited
        (core/store)."""
        return self.program.store.stats()

    def settle(self, wait: bool = True) -> None:
        """Moves mapped weights into huge pages where "auto" found memory for it: decode then runs at the memory's rate, not at that of
        page tables. An answer does this by itself after its first token, in a thread; with wait, it is done on return. Once only."""
        if not self._settles:
            return
        self._settles = False
        huge = limits.huge_page_bytes()
        if wait:
            self.program.settle(huge)
        else:
            threading.Thread(target=self.program.settle, args=(huge,), name="huge pages", daemon=True).start()

    def reset(self) -> None:
        """Forgets the sequence."""
        self._fed = []      # before the session: where the way back fails or is interrupted, it is the longer of both
        self.session.rewind(0)

    def generate(self, prompt: str | Sequence[int], max_tokens: int = 256, *, stop: Iterable[str] = (),
                 schema: dict | bool | str | None = None, **sampling) -> Generation:
        """Continues a raw prompt (text, tokenised by the tokenizer's own rule, or token ids).

        sampling: temperature, top_k, top_p, min_p, repetition_penalty, seed; what is not given comes from the model's generation
        defaults, else greedy. Yields Token objects; see Generation. Raises ValueError for an empty prompt or wrong settings.

        schema: a JSON schema (object, or its text). The answer is then JSON that the schema admits, whatever the weights say, and
        ends inside max_tokens; SchemaError where the schema is wrong or needs more. Needs the extra `json` (text/constrain.py).
        """
        ids = self.tokenizer.encode(prompt, add_special=True) if isinstance(prompt, str) else list(prompt)
        return self._start(ids, max_tokens, stop, sampling, schema)

    def chat(self, messages: Sequence[dict], max_tokens: int = 1024, *, tools: Sequence[dict] | None = None,
             stop: Iterable[str] = (), schema: dict | bool | str | None = None, **sampling) -> Generation:
        """Answers a conversation through the model's chat template. Raises TemplateError where there is none or it refuses.

        schema and sampling: as in generate().
        """
        return self._start(self.chat_tokens(messages, tools=tools), max_tokens, stop, sampling, schema)

    def chat_tokens(self, messages: Sequence[dict], tools: Sequence[dict] | None = None) -> list[int]:
        """The token ids of a conversation with the generation prompt; control tokens come from template markup only."""
        if self._template is None:
            from colibri_edge.text.template import ChatTemplate

            self._template = ChatTemplate.for_tokenizer(self.file.meta.get("chat_template"), self.tokenizer)
        return self.tokenizer.encode_segments(self._template.render(messages, tools=tools, add_generation_prompt=True))

    def _start(self, ids: list[int], max_tokens: int, stop, sampling: dict, schema=None) -> Generation:
        from colibri_edge.core.sampler import Sampler
        from colibri_edge.text.stream import TextStream

        if not ids:
            raise ValueError("the prompt is empty and the tokenizer adds no start token; give at least one token")
        if isinstance(max_tokens, bool) or not isinstance(max_tokens, int) or max_tokens < 1:
            raise ValueError(f"max_tokens is {max_tokens!r}, wanted a whole number of at least 1")
        if len(ids) > self.session.ctx:
            raise ValueError(f"the prompt has {len(ids)} tokens, the context {self.session.ctx}; "
                             "shorten it or load with a larger ctx")
        self.session.check_ids(ids)
        defaults = {k: v for k, v in self.file.meta.get("generation", {}).items() if k != "eos_token_ids"}
        settings = {**defaults, **{k: v for k, v in sampling.items() if v is not None}}
        has_text = self.file.tokenizer_view() is not None
        banned = self.tokenizer.banned(self.program.vocab) if has_text else None
        sampler = Sampler(self.program.vocab, banned=banned, **settings)
        if not has_text:
            raise ValueError(f"{self.file.path} holds no tokenizer, so no text can be generated; use logits()")
        constraint = None
        if schema is not None:
            stop = tuple(stop)
            if stop:
                raise ValueError("stop strings and a schema cannot go together: a stop string would cut the JSON; leave one out")
            constraint = self._constraint(schema, min(max_tokens, self.session.ctx - len(ids) + 1))
        stream = TextStream(self.tokenizer.stream(skip_special=True), stop, self.eos_ids, None if constraint else max_tokens)
        return Generation(self, ids, sampler, stream, max_tokens, constraint)

    def _constraint(self, schema, max_tokens: int):
        from colibri_edge.text.constrain import Constraint, Vocabulary, grammar_of

        grammar = grammar_of(schema)
        if self._vocabulary is None:
            self._vocabulary = Vocabulary(self.tokenizer, self.program.vocab, self.eos_ids)
        constraint = Constraint(self._vocabulary, grammar)
        constraint.begin(max_tokens)
        return constraint

    def prime(self, tokens: Sequence[int]) -> None:
        """Computes the state of a prompt's beginning ahead: an answer whose prompt begins with these tokens pays for the rest only. With a
        recurrent state too the way back to it stays free, until a prompt begins otherwise."""
        ids = self.session.check_ids(tokens).tolist()
        if len(ids) >= self.session.ctx:
            raise ValueError(f"{len(ids)} tokens leave no room in the context of {self.session.ctx}; load with a larger ctx")
        if ids and self._fed[:len(ids)] == ids:
            self._fed = ids
            self.session.rewind(len(ids))
        elif ids:
            self._prefill(ids)
        self.session.checkpoint(keep=True)

    def _prefill(self, ids: list[int], over=lambda: False) -> int:
        """Brings the session to the end of ids, keeping the common prefix; returns its length. At least the last token is fed.
        over: asked before each chunk; True ends it there, with the session at the end of a chunk."""
        same = 0
        for a, b in zip(self._fed, ids[:-1], strict=False):
            if a != b:
                break
            same += 1
        self._fed = ids[:same]
        self.session.rewind(same)
        at, last = same, len(ids) - 1
        while at < len(ids) and not over():    # chunk by chunk, so that an interrupt waits for one at most
            end = min(at + self.session.chunk, len(ids))
            if self.session.recurrent and at < last:    # the same prompt again, or one that goes on from it: a checkpoint makes it cheap
                end = min(end, last)
            self.session.feed(ids[at:end], end == len(ids))
            self._fed += ids[at:end]
            at = end
            if at == last:
                self.session.checkpoint()
        return same

    def save_session(self, path) -> int:
        """Writes the sequence so far (prompt and answer, as computed) to a file; returns its bytes. load_session() goes on from it, with
        the same bits, on any machine that has the same model file."""
        return self.session.save(path)

    def load_session(self, path) -> None:
        """Goes on from a saved sequence; a prompt that begins with its tokens pays only for the rest. Raises FileError where the file is
        another model's or damaged."""
        self._fed = []
        self.session.load(path)
        self._fed = self.session.tokens()


def default_kv(program: Program) -> str:
    """Type of the KV cache for "auto": float32 for float weights, float16 for quantised ones."""
    return "f32" if program.float_weights else "f16"
