"""`colibri-edge convert`: a Hugging Face, MLX or flash-moe folder, a GGUF or a .colibri file becomes one .colibri file."""
from __future__ import annotations

from pathlib import Path

from colibri_edge.apps.common import OK, USAGE, Fail, mib, table

HELP = "make a .colibri file of a Hugging Face, MLX or flash-moe folder, a GGUF file or another .colibri file"
EXAMPLES = """\
examples:
  colibri-edge convert ./OLMoE-1B-7B olmoe.colibri --quant q4_0
  colibri-edge convert model-00001-of-00003.gguf model.colibri
  colibri-edge convert model.colibri small.colibri --quant q2 --calibrate sample.txt

Weights that are quantised already (GGUF, MLX, MXFP4) keep their blocks bit for bit; --quant applies to weights stored as
floats. --quant q2 also puts routed experts into 2 bits that are quantised already. Embedding and output matrix get a finer
format from q4_0 on down. Routers and norms stay float32. Memory stays small
whatever the model's size (but for --calibrate). The target is written under a temporary name and put in place when it is complete.
"""
WEIGHED = ("q2", "q4_a")
QUANTS = ("f32", "f16", "bf16", "q8_0", "q4_0", "q4_k", "q6_k", "q4_a", "mxfp4", "q2")


def add_arguments(p) -> None:
    p.add_argument("src", metavar="SRC",
                   help="a Hugging Face, MLX or flash-moe folder, a .gguf file (any part of a split one) or a .colibri file")
    p.add_argument("dst", metavar="DST", help="the .colibri file to write")
    p.add_argument("--quant", choices=QUANTS, metavar="T",
                   help=f"format for weights stored as floats: {', '.join(QUANTS)} (default: as they are)")
    p.add_argument("--calibrate", metavar="FILE",
                   help="with --quant q2 or q4_a, a text of at least 256 tokens: prints the KL divergence of the logits on it from the "
                        "source's, and weighs the columns of the experts by their activations where that brings it down; loads and runs "
                        "the model, and needs disk for up to three more files beside DST meanwhile")


def main(args) -> int:
    from colibri_edge.convert import convert
    from colibri_edge.convert.progress import Bar

    check_target(Path(args.dst))
    text = calibration_text(args)
    bar = Bar(f"converting {Path(args.src).name}")
    found = None
    try:
        if text is None:
            report = convert(args.src, args.dst, args.quant, bar)
        else:
            from colibri_edge.apps.calibrate import calibrate

            found = calibrate(Path(args.src), Path(args.dst), args.quant, text, bar)
            report = found.report
    finally:
        bar.close()
    print(f"{args.dst}: {report.model_type}, {report.weights / 1e6:.1f} M weights at {report.bits_per_weight:.2f} "
          f"bits, {mib(report.bytes_written)} in {report.seconds:.1f} s")
    rows = [(was, now, str(n)) for was, became in report.became.items() for now, n in became.items()]
    print(table([("source", "stored as", "tensors"), *rows], left=2, indent="  "))
    rows = [(kind, f"{n / 1e6:.2f} M", f"{bits:.2f}") for kind, (n, bits) in report.classes.items()]
    print(table([("weights of", "number", "bits each"), *rows], left=1, indent="  "))
    if not report.tokenizer:
        print("  The source has no tokenizer: the model takes and gives token ids only.")
    if found:
        print(f"  KL divergence from the source over {found.tokens} tokens: {found.plain:.5f} nats, {found.weighted:.5f} with "
              f"columns weighed by activations; {'the latter' if found.pays else 'the former'} was kept.")
    return OK


def calibration_text(args) -> str | None:
    """The text of --calibrate, or None without it."""
    if args.calibrate is None:
        return None
    if args.quant not in WEIGHED:
        raise Fail(f"--calibrate weighs affine experts only; give --quant {' or '.join(WEIGHED)} with it", USAGE)
    path = Path(args.calibrate)
    if not path.is_file():
        raise Fail(f"{path} is no file; wanted a text to calibrate with")
    return path.read_text(encoding="utf-8", errors="replace")


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
