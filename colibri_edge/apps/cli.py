"""The command `colibri-edge`: its parser, its exit codes, its errors.

Owns: which commands exist (COMMANDS) and how anything that goes wrong ends. 0: done; 1: an error while running;
2: wrong usage; 130: interrupted. An error is one line on stderr that begins `colibri-edge: error:`; with
COLIBRI_EDGE_DEBUG=1 the traceback comes before it. A reader that closes the pipe ends the command quietly.
Refuses: abbreviated options, which would change their meaning when a new one is added.
"""
from __future__ import annotations

import argparse
import os
import sys
from importlib import import_module

from colibri_edge import __version__
from colibri_edge.apps.common import ERROR, INTERRUPTED, OK, USAGE, Fail

COMMANDS = ("run", "chat", "service", "bench", "convert", "info", "verify", "plan", "doctor", "trace", "config")

DESCRIPTION = """\
Run mixture-of-experts language models on small CPUs.

Try the model that comes with colibri-edge:

  colibri-edge run demo -p "dim the kitchen lamp to 30% at seven"
"""
EPILOG = "`colibri-edge COMMAND --help` tells more about a command and gives examples."


class Parser(argparse.ArgumentParser):
    """argparse with errors of one line."""

    def __init__(self, **kw):
        super().__init__(formatter_class=argparse.RawDescriptionHelpFormatter, allow_abbrev=False, **kw)

    def error(self, message: str):
        raise Fail(f"{message}; see `{self.prog} --help`", USAGE)


def parser(only: str | None = None) -> Parser:
    """The whole command line; with `only` just that command's part of it, which loads no other command's module."""
    top = Parser(prog="colibri-edge", description=DESCRIPTION, epilog=EPILOG)
    top.add_argument("--version", action="version", version=f"colibri-edge {__version__}")
    commands = top.add_subparsers(title="commands", metavar="COMMAND", dest="command", required=True)
    for name in COMMANDS if only is None else (only,):
        module = import_module(f"colibri_edge.apps.{name}")
        sub = commands.add_parser(name, help=module.HELP, description=module.HELP[0].upper() + module.HELP[1:],
                                  epilog=module.EXAMPLES)
        module.add_arguments(sub)
        sub.set_defaults(main=module.main)
    return top


def main(argv: list[str] | None = None) -> int:
    """Runs one command line (default: the process's) and returns the exit code."""
    for name in ("stdout", "stderr"):
        if getattr(sys, name) is None:      # started with the stream closed: what goes there is not wanted
            setattr(sys, name, open(os.devnull, "w"))  # noqa: SIM115 (open as long as the process)
        if hasattr(getattr(sys, name), "reconfigure"):
            getattr(sys, name).reconfigure(encoding="utf-8", errors="backslashreplace")
    try:
        argv = sys.argv[1:] if argv is None else argv
        args = parser(argv[0] if argv and argv[0] in COMMANDS else None).parse_args(argv)
        code = args.main(args)
        sys.stdout.flush()
        return code
    except SystemExit as e:             # --help and --version
        return _flushed(e.code or OK)
    except KeyboardInterrupt:
        return _flushed(INTERRUPTED)
    except BrokenPipeError:
        return _flushed(OK)
    except Fail as e:
        return _failed(str(e), e.code)
    except MemoryError as e:
        return _failed(f"not enough memory{f': {e}' if str(e) else ''}; take a smaller --ctx or a smaller model", ERROR)
    except OSError as e:
        text = f"{e.filename}: {e.strerror}" if e.filename and e.strerror else str(e) or type(e).__name__
        return _failed(text, ERROR)
    except ImportError as e:
        return _failed(f"{e}", ERROR)
    except Exception as e:
        return _failed(_explain(e), ERROR)


def _explain(e: Exception) -> str:
    """Our own errors speak for themselves; any other is a fault of the program and says so."""
    if isinstance(e, ValueError) or type(e).__module__.startswith("colibri_edge."):
        return str(e)
    return f"internal error, {type(e).__name__}: {e}; COLIBRI_EDGE_DEBUG=1 shows where; please report it"


def _failed(message: str, code: int) -> int:
    if os.environ.get("COLIBRI_EDGE_DEBUG", "0") not in ("", "0"):
        import traceback

        traceback.print_exc()
    _flushed(code)
    print(f"colibri-edge: error: {message}", file=sys.stderr)
    return code


def _flushed(code: int) -> int:
    """Flushes stdout. Where nobody reads it any more, what is left goes nowhere: the interpreter flushes once more."""
    try:
        sys.stdout.flush()
    except OSError as e:
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        if not isinstance(e, BrokenPipeError) and code == OK:
            return _failed(f"cannot write the output: {e.strerror}", ERROR)
    return code
