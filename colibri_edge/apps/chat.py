"""`colibri-edge chat`: a conversation on a terminal.

Owns: the history, what is dropped of it when the context is full, the words that begin with a slash. An answer is streamed;
Ctrl-C stops the answer and keeps what was said. Standard input may be a pipe: then each line is a turn and no marks are printed.
Refuses: models without a chat template.
"""
from __future__ import annotations

import contextlib
import sys
import time

from colibri_edge.apps import run
from colibri_edge.apps.common import MODEL_HELP, OK, Fail, mib, whole

HELP = "talk with a model on the terminal"
EXAMPLES = """\
examples:
  colibri-edge chat demo
  colibri-edge chat model.colibri --system "Answer in one sentence" --temp 0.7
  printf 'Name a bird\\nAnd another\\n' | colibri-edge chat model.colibri

/help lists what can be typed beside text. Ctrl-C stops an answer, not the conversation; Ctrl-D or /quit ends it.
"""
COMMANDS = """\
/reset   forget the conversation (the system message stays)
/stats   figures of the last answer and of the conversation
/help    this list
/quit    end (also Ctrl-D)
A line that ends with a backslash goes on in the next one. A first slash of your own is written //."""
RESERVE = 64        # tokens of the context that are left for an answer before old turns are dropped


def add_arguments(p) -> None:
    p.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    p.add_argument("--system", metavar="TEXT", help="instructions that go before the conversation")
    p.add_argument("-n", "--max-tokens", type=whole(1), metavar="N", default=1024, help="most tokens of an answer (default 1024)")
    run._sampling_arguments(p.add_argument_group("sampling"))
    run._machine_arguments(p.add_argument_group("machine"))


def main(args) -> int:
    model = run.load(args)
    if not model.file.meta.get("chat_template"):
        raise Fail(f"{model.file.path} has no chat template, so there is nothing to talk with; continue a text with run --raw")
    sampling = dict(temperature=args.temp, top_p=args.top_p, top_k=args.top_k, min_p=args.min_p,
                    repetition_penalty=args.repeat_penalty, seed=args.seed)
    talk = Conversation(model, args.system, args.max_tokens, sampling)
    terminal = sys.stdin is not None and sys.stdin.isatty()
    if terminal:
        print(f"{model.file.path.name}, context {model.session.ctx} tokens; /help for help, Ctrl-D ends", file=sys.stderr)
    while (line := _read(terminal)) is not None:
        if not line.strip():
            continue
        if line.startswith("/") and not line.startswith("//"):
            word = line.split()[0]
            if word == "/quit":
                break
            print(talk.command(word), file=sys.stderr)
            continue
        talk.answer(line.removeprefix("/") if line.startswith("//") else line)
    run.note_usage(model)
    return OK


def _read(terminal: bool) -> str | None:
    """One turn of the user, or None at the end. Ctrl-C at the prompt throws the line away."""
    if terminal:
        with contextlib.suppress(ImportError):
            import readline  # noqa: F401 (arrow keys and the lines typed before)
    lines: list[str] = []
    while True:
        try:
            line = input("> " if sys.stdout.isatty() and not lines else "") if terminal else _piped()
        except KeyboardInterrupt:
            if not terminal:
                raise
            print("\n(Ctrl-D or /quit ends)", file=sys.stderr)
            lines = []
            continue
        except EOFError:
            if terminal:
                print(file=sys.stderr)
            return "\n".join(lines) if lines else None
        if not line.endswith("\\"):
            return "\n".join([*lines, line])
        lines.append(line[:-1])


def _piped() -> str:
    raw = sys.stdin.buffer.readline(run.MAX_PROMPT + 1) if sys.stdin is not None else b""
    if not raw:
        raise EOFError
    return run._decode(raw, "standard input")


class Conversation:
    """The turns so far and the model that takes part. system: text that always comes first, or None."""

    def __init__(self, model, system: str | None, max_tokens: int, sampling: dict):
        self.model, self.max_tokens, self.sampling = model, max_tokens, sampling
        self.system = [{"role": "system", "content": system}] if system is not None else []
        self.turns: list[dict] = []         # user and assistant by turns
        self.last = None                    # the last Generation
        self.dropped = 0                    # turns that the context had no room for
        self.tokens = 0

    def answer(self, text: str) -> None:
        """Streams the answer to stdout and puts both turns into the history."""
        self.turns.append({"role": "user", "content": text})
        try:
            self._make_room()
            generation = self.model.chat([*self.system, *self.turns], self.max_tokens, **self.sampling)
        except ValueError as e:     # too long by itself, or the template refuses it: the conversation goes on without it
            self.turns.pop()
            print(f"colibri-edge: {e}", file=sys.stderr)
            return
        out = run._Output(sys.stdout)
        start = time.perf_counter()
        try:
            for token in generation:
                out.write(token.text)
        except KeyboardInterrupt:
            generation.finish_reason = "interrupted"
        out.end(generation.text)
        self.last, self.seconds = generation, time.perf_counter() - start
        self.tokens += generation.completion_tokens
        self.turns.append({"role": "assistant", "content": generation.text})

    def _make_room(self) -> None:
        """Drops the oldest exchanges until prompt and an answer fit the context."""
        before = len(self.turns)
        while len(self.turns) > 1:
            need = len(self.model.chat_tokens([*self.system, *self.turns]))
            if need + min(RESERVE, self.max_tokens) <= self.model.session.ctx:
                break
            del self.turns[:2]
        if len(self.turns) < before:
            self.dropped += before - len(self.turns)
            print(f"(the context is full: the {before - len(self.turns)} oldest turns were forgotten)", file=sys.stderr)

    def command(self, word: str) -> str:
        """What a word with a slash does; returns the text to show."""
        if word == "/help":
            return COMMANDS
        if word == "/reset":
            self.turns.clear()
            self.dropped = 0
            self.model.reset()
            return "(forgotten)"
        if word == "/stats":
            return self.stats()
        from difflib import get_close_matches

        near = get_close_matches(word, ["/help", "/reset", "/stats", "/quit"], 1)
        return f"{word[:40]} is no command{f'; did you mean {near[0]}?' if near else ''} (/help lists them)"

    def stats(self) -> str:
        """Figures for people."""
        from colibri_edge import limits

        session, g = self.model.session, self.last
        lines = []
        if g is not None:
            lines.append(f"last answer: {g.prompt_tokens} prompt tokens, {g.cached_tokens} of them kept from before, first token after "
                         f"{g.ttft_s:.2f} s; {g.completion_tokens} tokens in {self.seconds:.2f} s, {g.decode_tok_s:.1f} a second "
                         f"({g.finish_reason})")
        used = self.model.stats()
        lines.append(f"conversation: {len(self.turns)} turns, {self.dropped} forgotten, {self.tokens} tokens said; context "
                     f"{session.pos} of {session.ctx}")
        lines.append(f"memory {mib(limits.rss_bytes() or limits.peak_rss_bytes())} now, {mib(limits.peak_rss_bytes())} at most; experts: "
                     f"{used['expert_hits']} uses from memory, {used['expert_misses']} from disk; {session.threads} threads")
        return "\n".join(lines)
