"""From what a user names to a `.colibri` file: the file itself, or a conversion made once and kept.

Owns: `resolve(model)`. A `.gguf` file or a folder is converted beside itself, or, where that folder is not writable or has a file of
that name that is not such a conversion, into the user's cache folder; the conversion is used again while the source's files have the
same sizes and times and the converter has the same version, which a small JSON file beside it records.
Refuses: names that are neither. "demo" is the model that ships in the package.
"""

from __future__ import annotations

import json
import os
import sys
from pathlib import Path

from ..file import FileError, format_version
from . import VERSION, convert
from .gguf import parts_of
from .progress import Bar
from .source import ConvertError

STAMP = 1            # raise it when the converter's output changes


def cache_folder() -> Path:
    """The user's cache folder for conversions; COLIBRI_EDGE_CACHE overrides it."""
    if os.environ.get("COLIBRI_EDGE_CACHE"):
        return Path(os.environ["COLIBRI_EDGE_CACHE"])
    if sys.platform == "win32":
        base = Path(os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local")
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "colibri-edge"


def source_files(src: Path) -> list[Path]:
    """The files a conversion depends on."""
    if src.is_dir():
        flash_moe = [*src.glob("model_weights.bin"), *src.glob("packed_experts*/*.bin")]
        return sorted(flash_moe + [p for p in src.iterdir() if p.suffix in (".json", ".safetensors", ".jinja", ".model", ".txt")
                                   and p.is_file()])
    return [p for p in parts_of(src) if p.exists()]


def stamp(src: Path, quant: str | None) -> dict:
    """What must be the same for a conversion to be used again."""
    def name(p: Path) -> str:
        return p.name if p.parent == src or src.is_file() else f"{p.parent.name}/{p.name}"

    return {"converter": VERSION, "stamp": STAMP, "quant": quant,
            "files": {name(p): [p.stat().st_size, p.stat().st_mtime_ns] for p in source_files(src)}}


def _target(src: Path, quant: str | None) -> str:
    stem = src.resolve().name
    stem = stem[:-5] if stem.endswith(".gguf") else stem
    return f"{stem}{'.' + quant if quant else ''}.colibri"


def _fresh(path: Path, want: dict) -> bool:
    note = path.with_name(path.name + ".json")
    try:
        return path.is_file() and json.loads(note.read_text("utf-8")) == want and format_version(path) == 2
    except (OSError, ValueError, FileError):
        return False


def _ours(path: Path) -> bool:
    """Whether a conversion may be put there: nothing is, or one that has our note; not a file that somebody made with `convert`."""
    return not path.exists() or path.with_name(path.name + ".json").exists()


def resolve(model: str | os.PathLike, quant: str | None = None, progress=None) -> Path:
    """The `.colibri` file of a model: a path as it is, a conversion of a .gguf file or folder, or "demo".

    quant: format for weights stored as floats (convert()). progress: None draws a bar on a terminal.
    Raises ConvertError or FileError.
    """
    if str(model) == "demo" and not Path("demo").exists():
        path = Path(__file__).parent.parent / "demo" / "demo.colibri"
        if not path.is_file():
            raise ConvertError(f"{path} is missing: this installation has no demo model; name a model file instead")
        return path
    src = Path(model).expanduser()
    if not src.exists():
        raise ConvertError(f"{src} does not exist; wanted a .colibri or .gguf file, a Hugging Face folder, or demo")
    if not (src.is_file() or src.is_dir()):
        raise ConvertError(f"{src} is neither a file nor a folder; wanted a .colibri or .gguf file, a Hugging Face "
                           "folder, or demo")
    if src.is_file() and src.suffix != ".gguf":
        format_version(src)
        return src
    want = stamp(src, quant)
    beside = src.resolve().parent
    import hashlib  # for folders that are not writable: not at each start

    key = hashlib.sha256(str(src.resolve()).encode()).hexdigest()[:12]
    places = [beside / _target(src, quant), cache_folder() / key / _target(src, quant)]
    for path in places:
        if _fresh(path, want):
            return path
    path = places[0] if os.access(beside, os.W_OK) and _ours(places[0]) else places[1]
    path.parent.mkdir(parents=True, exist_ok=True)
    bar = progress or Bar(f"converting {src.name}")
    try:
        convert(src, path, quant, bar)
    finally:
        if isinstance(bar, Bar):
            bar.close()
    path.with_name(path.name + ".json").write_text(json.dumps(want), "utf-8")
    return path
