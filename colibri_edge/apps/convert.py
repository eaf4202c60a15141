"""`colibri-edge convert`: a Hugging Face folder or a GGUF file becomes one .colibri file."""
from __future__ import annotations

from pathlib import Path

from colibri_edge.apps.common import OK, Fail, mib, table

HELP = "make a .colibri file of a Hugging Face folder or a GGUF file"
EXAMPLES = """\
examples:
  colibri-edge convert ./OLMoE-1B-7B olmoe.colibri --quant q4_0
  colibri-edge convert model-00001-of-00003.gguf model.colibri

Weights that are quantised already (GGUF) keep their blocks bit for bit; --quant applies to weights stored as floats.
Embedding and output matrix get a finer format with q4_0 and q4_k. Routers and norms stay float32. Memory stays small
whatever the model's size. The target is written under a temporary name and put in place when it is complete.
"""
QUANTS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k")


def add_arguments(p) -> None:
    p.add_argument("src", metavar="SRC",
                   help="a Hugging Face folder (config.json, safetensors), or a .gguf file, any part of a split one")
    p.add_argument("dst", metavar="DST", help="the .colibri file to write")
    p.add_argument("--quant", choices=QUANTS, metavar="T",
                   help=f"format for weights stored as floats: {', '.join(QUANTS)} (default: as they are)")


def main(args) -> int:
    from colibri_edge.convert import convert
    from colibri_edge.convert.progress import Bar

    check_target(Path(args.dst))
    bar = Bar(f"converting {Path(args.src).name}")
    try:
        report = convert(args.src, args.dst, args.quant, bar)
    finally:
        bar.close()
    print(f"{report.path}: {report.model_type}, {report.weights / 1e6:.1f} M weights at {report.bits_per_weight:.2f} "
          f"bits, {mib(report.bytes_written)} in {report.seconds:.1f} s")
    rows = [(was, now, str(n)) for was, became in report.became.items() for now, n in became.items()]
    print(table([("source", "stored as", "tensors"), *rows], left=2, indent="  "))
    if not report.tokenizer:
        print("  The source has no tokenizer: the model takes and gives token ids only.")
    return OK


def check_target(dst: Path) -> None:
    """Refuses to write over anything that is no .colibri file."""
    from colibri_edge.file import FileError, format_version

    if dst.is_dir():
        raise Fail(f"{dst} is a folder; name the file to write, such as {dst / 'model.colibri'}")
    if not dst.parent.is_dir():
        raise Fail(f"{dst.parent} is no folder; make it first, or name another target")
    if dst.exists():
        if not dst.is_file():
            raise Fail(f"{dst} is no regular file; name another target")
        if dst.stat().st_size:
            try:
                format_version(dst)
            except FileError:
                raise Fail(f"{dst} exists and is no .colibri file; remove it or name another target") from None
