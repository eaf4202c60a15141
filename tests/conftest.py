"""Fixtures that several test files share."""
from __future__ import annotations

import pytest


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
