"""Programs of cross/ as modules."""
from __future__ import annotations

import importlib.util
from pathlib import Path
from types import ModuleType

import pytest

ROOT = Path(__file__).resolve().parents[1]


def load(name: str) -> ModuleType:
    """cross/NAME.py; where the sources are not there, the importing test file is skipped."""
    path = ROOT / "cross" / f"{name}.py"
    if not path.exists():
        pytest.skip("needs a checkout", allow_module_level=True)
    spec = importlib.util.spec_from_file_location(f"cross_{name}", path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module
