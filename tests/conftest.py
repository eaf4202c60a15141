"""Fixtures that several test files share."""
from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

import pytest

# The installed package is tested: neither `python -m pytest` here nor a child process may find the sources instead, which
# hold no compiled modules. (An editable install is found all the same.)
ROOT = Path(__file__).parent.parent
sys.path[:] = [p for p in sys.path if Path(p or ".").resolve() != ROOT]
os.environ["PYTHONSAFEPATH"] = "1"
# The environment's programs (meson, ninja, cython) are found though it is not activated.
os.environ["PATH"] = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])

# Ctrl-C is tested: what a shell starts with & has it switched off, and would hand that on.
if signal.getsignal(signal.SIGINT) is signal.SIG_IGN:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.fixture(scope="session")
def tiny_folder(tmp_path_factory):
    """A Hugging Face folder with a tiny chat model (tests/tinychat.py)."""
    from tinychat import write_folder

    return write_folder(tmp_path_factory.mktemp("tiny") / "chat")


@pytest.fixture(scope="session")
def tiny_model(tiny_folder):
    """The same model as a .colibri file, q8_0."""
    from colibri_edge import convert

    convert(tiny_folder, tiny_folder.parent / "chat.colibri", "q8_0")
    return tiny_folder.parent / "chat.colibri"
