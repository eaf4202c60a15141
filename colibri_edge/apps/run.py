"""`colibri-edge run`: one prompt in, one answer out.

Owns: where the prompt comes from, the streaming of the answer, the facts of `--json` and the table of `--timing`.
Only the answer (or the JSON object) goes to stdout. Ctrl-C ends the answer where it is.
"""
from __future__ import annotations

import json
import sys
import time

from colibri_edge.apps.common import (
    ERROR,
    INTERRUPTED,
    MAX_THREADS,
    MODEL_HELP,
    OK,
    USAGE,
    Fail,
    mib,
    not_empty,
    real,
    size,
    table,
    whole,
)

MAX_PROMPT = 16 << 20      # bytes read of a prompt: more than any context holds, and an end to `yes |` and /dev/zero

HELP = "answer a prompt"
EXAMPLES = """\
examples:
  colibri-edge run demo -p "turn on the porch light"
  colibri-edge run model.colibri -p "Write a haiku about rain" -n 64 --temp 0.7 --seed 1
  colibri-edge run model.gguf -f question.txt --ram 2GiB -t 4
  journalctl -n 50 | colibri-edge run model.colibri --system "Summarise this log in one line"
  colibri-edge run model.colibri -p "Which lamp?" --json-schema lamp.json
  colibri-edge run model.colibri --raw -p "Once upon a time" --json

Without -p and -f the prompt is read from standard input. Sampling that you do not set comes from the model's own
defaults, else the likeliest token is taken; --temp 0 always takes the likeliest. A prompt that begins with a dash and
holds no space is written --prompt=-x.
exit codes: 0 done, 1 error, 2 wrong usage, 130 interrupted
"""


def add_arguments(p) -> None:
    p.add_argument("model", metavar="MODEL", help=MODEL_HELP)
    _prompt_arguments(p.add_argument_group("prompt"))
    _answer_arguments(p.add_argument_group("answer"))
    _sampling_arguments(p.add_argument_group("sampling"))
    _machine_arguments(p.add_argument_group("machine"))


def _prompt_arguments(g) -> None:
    source = g.add_mutually_exclusive_group()
    source.add_argument("-p", "--prompt", metavar="TEXT", help="the prompt; - reads standard input")
    source.add_argument("-f", "--file", metavar="FILE",
                        help="read the prompt from a file (UTF-8; one line end at its end is left out)")
    g.add_argument("--system", metavar="TEXT",
                   help="instructions that go before the prompt, as the chat template's system message")
    g.add_argument("--raw", action="store_true",
                   help="continue the prompt as it stands, without the model's chat template")


def _answer_arguments(g) -> None:
    g.add_argument("-n", "--max-tokens", type=whole(1), metavar="N", default=256,
                   help="most tokens of the answer (default 256)")
    g.add_argument("--stop", action="append", type=not_empty, metavar="TEXT", default=[],
                   help="end the answer before this text; may be given again")
    g.add_argument("--json-schema", metavar="FILE",
                   help="the answer is JSON that this JSON schema admits, whatever the weights say (needs the extra `json`)")
    g.add_argument("--json", action="store_true",
                   help="print one JSON object when the answer is complete, with the text and the run's figures")
    g.add_argument("--trace", metavar="FILE", help="record which experts each token chose, for `colibri-edge trace`")
    g.add_argument("--timing", action="store_true", help="print where the time went, to standard error")


def _sampling_arguments(g) -> None:
    g.add_argument("--temp", type=real(0, 1e6, "a number of 0 or more"), metavar="T",
                   help="temperature: 0 takes the likeliest token")
    g.add_argument("--top-p", type=real(0, 1, "a number from 0 to 1"), metavar="P",
                   help="choose among the likeliest tokens that share this probability")
    g.add_argument("--top-k", type=whole(0), metavar="K", help="choose among the K likeliest tokens; 0: no limit")
    g.add_argument("--min-p", type=real(0, 1, "a number from 0 to 1"), metavar="P",
                   help="leave out tokens below this share of the likeliest one's probability")
    g.add_argument("--repeat-penalty", type=real(1e-6, 1e6, "a number above 0"), metavar="R",
                   help="make tokens that were used already less likely; 1: off")
    g.add_argument("--seed", type=whole(0, 2**64 - 1), metavar="S",
                   help="same seed and settings, same text, on every CPU")


def _machine_arguments(g) -> None:
    g.add_argument("-t", "--threads", type=whole(1, MAX_THREADS), metavar="N",
                   help="threads (default: the physical cores that this process may use)")
    g.add_argument("--ram", type=size, metavar="SIZE",
                   help="ceiling on memory, such as 2GiB or 512M: experts that do not fit are read from disk when needed; a "
                        "model of which too little fits is refused")
    g.add_argument("--policy", choices=("next", "lfu", "lru"), default="next",
                   help="which streamed expert leaves memory: the one that will be needed latest by its past (next, default), the one "
                        "used least often (lfu) or longest ago (lru)")
    g.add_argument("--prefetch", action="store_true", help="read experts that the next layer will probably choose; speed only")
    g.add_argument("--no-usage", action="store_true",
                   help="do not read or write MODEL.usage, which keeps how often streamed experts were used")
    g.add_argument("--ctx", type=whole(1, 1 << 30), metavar="N",
                   help="context: most tokens of prompt and answer (default: the model's own, at most 4096)")
    g.add_argument("--weights", choices=("auto", "map", "ram"), default="auto",
                   help="read the weights where the file is mapped (instant start), or copy them into huge pages first; auto (default): "
                        "mapped, moved into huge pages behind the first answer where memory allows, streamed where --ram is too little")
    g.add_argument("--kv", choices=("auto", "f32", "f16", "q8_0"), default="auto",
                   help="numbers kept for earlier tokens (default auto: f32 for float weights, f16 for quantised ones)")


def main(args) -> int:
    prompt = read_prompt(args)
    start = time.perf_counter()
    model, answer = _begin(args, prompt)
    load_s = time.perf_counter() - start
    out = _Output(None if args.json else sys.stdout)
    clock = _Clock(model.session)
    if args.trace:
        open(args.trace, "w").close()   # a folder that cannot be written to is found now, not after the answer
        model.session.start_trace(min(answer.prompt_tokens + args.max_tokens, model.session.ctx))
    interrupted = False
    try:
        for token in answer:
            clock.token()
            out.write(token.text)
    except KeyboardInterrupt:
        interrupted = True
    clock.end()
    out.end(answer.text)
    if args.trace:
        from colibri_edge import trace

        trace.write(args.trace, model.program.topology, answer.prompt_tokens, model.session.routing())
    if args.json:
        print(json.dumps(facts(model, answer, load_s, interrupted), ensure_ascii=False))
        sys.stdout.flush()
    if args.timing:
        print(clock.table(load_s, answer), file=sys.stderr)
        if model.program.weights == "stream":
            print(experts_line(model.stats()), file=sys.stderr)
    note_usage(model)
    if interrupted:
        return INTERRUPTED
    if args.json_schema is not None and answer.finish_reason != "stop":
        print(f"colibri-edge: {args.max_tokens} tokens did not hold a whole answer of the schema; what there is of it is no JSON: allow "
              "more (-n, --ctx)", file=sys.stderr)
        return ERROR
    return OK


def load(args):
    """The model of a command line that has _machine_arguments."""
    from colibri_edge.model import Model

    return Model.load(args.model, threads=args.threads, ram=args.ram, ctx=args.ctx, kv=args.kv, weights=args.weights, policy=args.policy,
                      prefetch=args.prefetch, learn=not args.no_usage)


def note_usage(model) -> None:
    """Saves how often experts were used, and says what was wrong with the file or could not be written."""
    for note in (model.usage_note, model.save_usage()):
        if note:
            print(f"colibri-edge: note: {note}", file=sys.stderr)


def _begin(args, prompt: str):
    """The loaded model and its answer, not yet begun."""
    schema = read_schema(args.json_schema) if args.json_schema is not None else None
    if schema is not None and args.stop:
        raise Fail("--stop would cut the JSON that --json-schema asks for; leave one of them out", USAGE)
    model = load(args)
    options = dict(stop=args.stop, temperature=args.temp, top_p=args.top_p, top_k=args.top_k, min_p=args.min_p,
                   repetition_penalty=args.repeat_penalty, seed=args.seed, schema=schema)
    if args.raw:
        return model, model.generate(prompt, args.max_tokens, **options)
    if not model.file.meta.get("chat_template"):
        raise Fail(f"{model.file.path} has no chat template, so it cannot be asked; give --raw to let it continue the "
                   "prompt as it stands")
    messages = [{"role": "user", "content": prompt}]
    if args.system is not None:
        messages.insert(0, {"role": "system", "content": args.system})
    return model, model.chat(messages, args.max_tokens, **options)


def read_schema(path: str) -> str:
    """The text of a JSON schema, checked before a model is loaded. Raises Fail with the file's name."""
    from colibri_edge.text.constrain import SchemaError, grammar_of

    with open(path, "rb") as f:
        text = _decode(f.read(MAX_PROMPT + 1), path)
    try:
        grammar_of(text)
    except SchemaError as e:
        raise Fail(f"{path}: {e}") from None
    return text


def read_prompt(args) -> str:
    """The prompt of -p, -f or standard input, checked."""
    if args.raw and args.system is not None:
        raise Fail("--system needs the chat template that --raw leaves out; give one of them", USAGE)
    if args.prompt is not None and args.prompt != "-":
        text, where = args.prompt, "-p"
        for name, value in (("-p", text), ("--system", args.system or "")):
            if any("\ud800" <= c <= "\udfff" for c in value):
                raise Fail(f"{name} is not UTF-8 text; set the terminal to UTF-8, or use -f with a UTF-8 file", USAGE)
    elif args.file is not None:
        with open(args.file, "rb") as f:
            text, where = _decode(f.read(MAX_PROMPT + 1), args.file), args.file
    else:
        if args.prompt is None and sys.stdin is not None and sys.stdin.isatty():
            raise Fail("no prompt; give one with -p TEXT or -f FILE, or pipe it in", USAGE)
        where = "standard input"
        text = _decode(sys.stdin.buffer.read(MAX_PROMPT + 1) if sys.stdin is not None else b"", where)
    if not text:
        raise Fail(f"the prompt ({where}) is empty; give at least one character", USAGE)
    return text


def _decode(raw: bytes, where: str) -> str:
    if len(raw) > MAX_PROMPT:
        raise Fail(f"{where} has more than {MAX_PROMPT >> 20} MiB; shorten it")
    try:
        text = raw.decode("utf-8-sig")
    except UnicodeDecodeError as e:
        raise Fail(f"{where}: byte {e.start} is 0x{raw[e.start]:02x}, which is not UTF-8; convert the text to UTF-8 "
                   "first", ERROR) from None
    return text[:-2] if text.endswith("\r\n") else text[:-1] if text.endswith("\n") else text


class _Output:
    """The answer on its way to stdout. On a terminal no control character but line end and tab is let through."""

    def __init__(self, stream):
        self.stream = stream
        self.shown = 0
        self.last = "\n"
        self.quiet = None
        if stream is not None and stream.isatty():
            self.quiet = dict.fromkeys([*range(9), *range(11, 32), *range(127, 160)])

    def write(self, text: str) -> None:
        self.shown += len(text)
        if self.stream is None or not text:
            return
        self.last = text[-1]
        self.stream.write(text.translate(self.quiet) if self.quiet else text)
        self.stream.flush()

    def end(self, whole: str) -> None:
        """Shows what an interruption held up, and ends the line."""
        self.write(whole[self.shown:])
        if self.last != "\n":
            self.write("\n")


class _Clock:
    """Where the time went: before the first token (prefill), after it (decode), each by the engine's stages."""

    def __init__(self, session):
        self.session = session
        self.wall = [time.perf_counter()]
        self.stages = [session.timing()]
        self.layers = [session.layer_timing()]

    def _mark(self) -> None:
        self.wall.append(time.perf_counter())
        self.stages.append(self.session.timing())
        self.layers.append(self.session.layer_timing())

    def token(self) -> None:
        if len(self.wall) == 1:
            self._mark()

    def end(self) -> None:
        self._mark()
        if len(self.wall) == 2:         # no token came
            self._mark()

    def table(self, load_s: float, answer) -> str:
        """Seconds; each column adds up to its last line, the time on the wall. Then the layers, in milliseconds of the whole run."""
        walls = [self.wall[1] - self.wall[0], self.wall[2] - self.wall[1]]
        before, first, after = self.stages
        rows = [(name, first[name] - before[name], after[name] - first[name]) for name in before]
        rows = [r for r in rows if r[1] or r[2]]
        routing = [sum(r[i] for r in rows if r[0] in ("router", "dispatch")) / (w or 1.0) for i, w in enumerate(walls, 1)]
        rows.append(("sampling, text, output", *(w - sum(r[i] for r in rows) for i, w in enumerate(walls, 1))))
        rows.append(("sum", *walls))
        total = sum(walls) or 1.0
        lines = [("stage", "prefill s", "decode s", "share")]
        lines += [(n, f"{a:.4f}", f"{b:.4f}", f"{(a + b) / total:.1%}") for n, a, b in rows]
        return (f"{table(lines)}\nrouting and dispatch: {routing[0]:.1%} of prefill, {routing[1]:.1%} of decode\n\n{self._layers()}\n"
                f"load {load_s:.3f} s; {answer.prompt_tokens} prompt tokens at "
                f"{answer.prefill_tok_s:.1f} a second; {answer.completion_tokens} answer tokens at "
                f"{answer.decode_tok_s:.1f} a second; {self.session.threads} threads; weights {self.session.program.weights}")

    def _layers(self) -> str:
        spent = [{k: 1e3 * (last[k] - start[k]) for k in last} for start, last in zip(self.layers[0], self.layers[2], strict=True)]
        names = [k for k in spent[0] if any(layer[k] >= 0.005 for layer in spent)]
        lines = [("layer", *(f"{n} ms" for n in names), "sum ms")]
        lines += [(str(i), *(f"{layer[n]:.2f}" for n in names), f"{sum(layer.values()):.2f}") for i, layer in enumerate(spent)]
        return table(lines)


def experts_line(s: dict) -> str:
    """What streaming did, for --timing."""
    uses = s["expert_hits"] + s["expert_misses"]
    ahead = f", {s['guesses_used']} of {s['guesses']} reads ahead were right" if s["guesses"] else ""
    return (f"experts: {s['slots']} in memory, {s['expert_hits']} of {uses} uses found there, {mib(s['bytes_read'])} read"
            f"{' past the page cache' if s['direct'] else ''}, waited {s['wait_s']:.3f} s{ahead}")


def facts(model, answer, load_s: float, interrupted: bool) -> dict:
    """The object of --json. expert_hits and expert_misses count uses of routed experts per pass: found in memory, or read.
    wait_s: seconds that threads waited for reads, summed over threads."""
    from colibri_edge import isa, limits

    stats = model.stats()
    return {
        "text": answer.text, "tokens": answer.tokens, "prompt_tokens": answer.prompt_tokens,
        "completion_tokens": answer.completion_tokens,
        "finish_reason": "interrupted" if interrupted else answer.finish_reason,
        "load_s": round(load_s, 6), "ttft_s": round(answer.ttft_s, 6),
        "prefill_tok_s": round(answer.prefill_tok_s, 3), "decode_tok_s": round(answer.decode_tok_s, 3),
        "peak_rss_bytes": limits.peak_rss_bytes(),
        "expert_hits": stats["expert_hits"], "expert_misses": stats["expert_misses"], "bytes_read": stats["bytes_read"],
        "wait_s": round(stats["wait_s"], 6),
        "threads": model.session.threads, "isa": isa(),
    }
