"""What the Windows wheel has to do under wine; cross/rig-windows runs it.

    windows_checks.py say FILE           on the Linux host: the demo model's answers and a block's output, as JSON
    windows_checks.py check FOLDER ISA   under wine: the same again, and what only Windows has. FOLDER holds host.json, golden.json,
                                         make_golden.py, moe_block.exe and whole_model.exe
"""
from __future__ import annotations

import hashlib
import json
import os
import platform
import shutil
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np

TEXTS = ("dim the kitchen lamp to 30% at seven", "set the heating to 21 degrees", "order me a pizza")
FAR = 5 << 30       # beyond what 32-bit offsets reach
BATCH, HIDDEN = 3, 64


def answers(path="demo") -> list:
    from colibri_edge import Model

    model = Model.load(path, ctx=256)
    out = []
    for text in TEXTS:
        a = model.chat([{"role": "user", "content": text}], 100, temperature=0)
        out.append(["".join(t.text for t in a), [int(t) for t in a.tokens], a.finish_reason])
    return out


def write_block(path) -> None:
    from colibri_edge import export_block

    def pattern(*shape):
        n = np.arange(np.prod(shape), dtype=np.int64)
        return (((n * 7919 % 1013) - 506) / 2048).astype(np.float32).reshape(shape)

    weights = {"router": pattern(HIDDEN, 12), "w1": pattern(12, HIDDEN, 96), "w2": pattern(12, 96, HIDDEN), "w3": pattern(12, HIDDEN, 96)}
    export_block(weights, path, top_k=2, activation="silu", renormalise=True)


def block_output(path) -> np.ndarray:
    """[BATCH][HIDDEN] for the input of docs/examples/moe_block.c."""
    from colibri_edge import MoEBlock

    x = ((np.arange(BATCH * HIDDEN) * 37 % 101 - 50).astype(np.float32) / np.float32(50)).reshape(BATCH, HIDDEN)
    return np.array(MoEBlock(path).forward(x))


def say(path: Path) -> None:
    block = path.with_name("host-block.colibri")
    write_block(block)
    path.write_text(json.dumps({"answers": answers(), "block": block_output(block).tolist(),
                                "block file": hashlib.sha256(block.read_bytes()).hexdigest()}))


# -- under wine ----------------------------------------------------------------------------------------------


def move_far(source: Path, target: Path) -> None:
    """The same model with everything behind its metadata moved up by FAR; the gap is a hole."""
    from colibri_edge.crc32c import crc32c
    from colibri_edge.file import HEADER

    data = source.read_bytes()
    magic, version, flags, zero, length, _, _, _ = HEADER.unpack(data[:HEADER.size])
    meta = json.loads(data[HEADER.size:HEADER.size + length])
    entries = [*meta["tensors"].values(), *([meta["tokenizer"]] if meta.get("tokenizer") else [])]
    first = min(e["offset"] for e in entries)
    for e in entries:
        e["offset"] += FAR
    raw = json.dumps(meta).encode()
    head = HEADER.pack(magic, version, flags, zero, len(raw), len(data) + FAR, crc32c(raw), 0)
    head = head[:28] + crc32c(head[:28]).to_bytes(4, "little")
    with open(target, "wb") as f:
        f.write(head + raw)
        f.seek(first + FAR)
        f.write(data[first:])


def logits(path, *how) -> bytes:
    """Of the last of some tokens; how: ("stream", slots) reads the experts from the file one by one."""
    from colibri_edge.engine import Program, Session
    from colibri_edge.file import ColibriFile

    session = Session(Program(ColibriFile(path), *how), 64, 2, "f16", 32)
    session.feed([263, 279, 260, 426, 350, 266, 282, 286])
    return bytes(np.array(session.logits_view()))


def run(*args: str, **kw) -> str:
    done = subprocess.run([*args], capture_output=True, stdin=subprocess.DEVNULL, timeout=300, **kw)
    assert done.returncode == 0, (args, done.returncode, done.stderr.decode(errors="replace")[-2000:])
    return done.stdout.decode()


def check_answers(box: Path, host: dict) -> str:
    got = answers()
    assert got == host["answers"], f"{got}\nand on the host\n{host['answers']}"
    said = run(sys.executable, "-m", "colibri_edge", "run", "demo", "-p", TEXTS[0], "--temp", "0")
    assert said.replace("\r\n", "\n") == host["answers"][0][0] + "\n", said
    return f"{len(got)} answers of the demo model, byte for byte those of the host; run demo"


def check_golden(box: Path, host: dict) -> str:
    return run(sys.executable, str(box / "make_golden.py"), "--check").strip().splitlines()[-1] + ": golden logits of x86-64 Linux"


def check_block(box: Path, host: dict) -> str:
    path = box / "block.colibri"
    write_block(path)
    assert hashlib.sha256(path.read_bytes()).hexdigest() == host["block file"]
    got, want = block_output(path), np.array(host["block"], np.float32)
    error = float(np.abs(got - want).max() / np.abs(want).max())
    assert error < 1e-5, error
    return f"the block: file equal, output within {error:.0e} of the host's"


def check_c_api(box: Path, host: dict) -> str:
    capi = Path(sys.executable).parent / "Lib/site-packages/colibri_edge/capi"
    env = {**os.environ, "PATH": f"{capi};{os.environ['PATH']}"}
    run(str(box / "moe_block.exe"), str(box / "block.colibri"), str(BATCH), str(box / "out.f32"), env=env)
    got = np.fromfile(box / "out.f32", np.float32).reshape(BATCH, HIDDEN)
    assert np.array_equal(got, block_output(box / "block.colibri"))
    import colibri_edge

    demo = Path(colibri_edge.__file__).parent / "demo/demo.colibri"
    tokens = run(str(box / "whole_model.exe"), str(demo), "8", "1", "2", "3", env=env).split()
    assert len(tokens) == 8 and all(t.isdigit() for t in tokens), tokens
    return "C API: a block from an .exe equals Python's, bit for bit; a whole model decodes"


def check_paths(box: Path, host: dict) -> str:
    import colibri_edge

    demo = Path(colibri_edge.__file__).parent / "demo/demo.colibri"
    folder = box / "Gerät für Öl, naïve café Ω"
    folder.mkdir(exist_ok=True)
    model = folder / "Modell Ä.colibri"
    model.write_bytes(demo.read_bytes())
    (folder / "block ß.colibri").write_bytes((box / "block.colibri").read_bytes())
    for path in (str(model), str(model).replace("\\", "/")):
        assert logits(path) == logits(path, "stream", 4) == logits(demo), path
    assert np.array_equal(block_output(str(folder / "block ß.colibri")), block_output(box / "block.colibri"))
    return "a path with umlauts, spaces and either separator: mapped, streamed and as a block"


def check_far(box: Path, host: dict) -> str:
    import colibri_edge
    from colibri_edge.file import ColibriFile

    far = box / "far.colibri"
    move_far(Path(colibri_edge.__file__).parent / "demo/demo.colibri", far)
    with ColibriFile(far) as f:
        assert f.size > FAR
    assert answers(far) == host["answers"]
    near = logits(Path(colibri_edge.__file__).parent / "demo/demo.colibri")
    assert logits(far) == logits(far, "stream", 4) == near
    far.unlink()
    return f"a sparse file of {FAR >> 30} GiB, its tensors behind the hole: the same answers, the same logits mapped and streamed"


def check_stop(box: Path, host: dict) -> str:
    """In a console of its own: the rig's output is a pipe, and events reach only what shares a console."""
    return run(sys.executable, __file__, "stop", str(box), creationflags=subprocess.CREATE_NO_WINDOW).strip()


def stop(box: Path) -> str:
    """Ctrl-Break, which stands for TERM: the process ends within 2 s. Wine 8 has no Ctrl-Break (its server answers "not implemented", its C
    runtime knows no SIGBREAK), so there it is Ctrl-C, which the service treats alike; that reaches this process too, and no new group."""
    import ctypes

    wine = hasattr(ctypes.windll.ntdll, "wine_get_version")
    event, name = (signal.CTRL_C_EVENT, "Ctrl-C") if wine else (signal.CTRL_BREAK_EVENT, "Ctrl-Break")
    if wine:
        signal.signal(signal.SIGINT, lambda *_: None)
    box = box / "service"
    shutil.rmtree(box, ignore_errors=True)
    for folder in (box, box / "in", box / "queue"):
        folder.mkdir()
    (box / "service.toml").write_text(
        '[model]\nfile = "demo"\nctx = 256\n[source]\nkind = "folder"\npath = "in"\npoll = "100ms"\n[queue]\nfolder = "queue"\n'
        '[[sink]]\nkind = "file"\npath = "${id}.json"\n', encoding="utf-8")
    log = open(box / "service.log", "wb")   # noqa: SIM115  the child writes it
    command = [sys.executable, "-m", "colibri_edge", "service", "--config", str(box / "service.toml")]
    child = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=log, cwd=box,
                             creationflags=0 if wine else subprocess.CREATE_NEW_PROCESS_GROUP)
    try:
        def wait_for(word: str) -> None:
            end = time.monotonic() + 60
            while word not in (text := (box / "service.log").read_text(errors="replace")):
                assert child.poll() is None and time.monotonic() < end, f"no {word!r} in\n{text}"
                time.sleep(0.1)

        wait_for("ready")
        (box / "in/part").write_text(TEXTS[1])
        (box / "in/part").rename(box / "in/1.txt")
        wait_for("answered")
        start = time.monotonic()
        os.kill(0 if wine else child.pid, event)
        code = child.wait(30)
        took = time.monotonic() - start
    finally:
        child.kill()
        log.close()
    text = (box / "service.log").read_text(errors="replace")
    assert code == 0 and took < 2, f"exit {code} after {took:.1f} s:\n{text}"
    written, = box.glob("*.json")
    assert "climate.set" in json.loads(written.read_text(encoding="utf-8"))["text"], written.read_text(encoding="utf-8")
    return f"service: an item from a folder answered; {name} ends it in {took:.1f} s"


CHECKS = (check_answers, check_golden, check_block, check_c_api, check_paths, check_far, check_stop)


def check(box: Path, want: str) -> int:
    from colibri_edge import engine, isa

    assert sys.platform == "win32" and engine.__file__.endswith(".pyd"), engine.__file__
    assert isa() == want, f"{isa()} was chosen, {want} is wanted"
    print(f"{platform.platform()}, Python {platform.python_version()}: import, {want}", flush=True)
    host = json.loads((box / "host.json").read_text())
    failed = 0
    for one in CHECKS:
        try:
            print(one(box, host), flush=True)
        except Exception as e:      # noqa: BLE001 each check reports, the rest still runs
            failed += 1
            print(f"FAILED {one.__name__}: {type(e).__name__}: {e}", flush=True)
    print(f"{len(CHECKS) - failed} passed, {failed} failed")
    return failed != 0


if __name__ == "__main__":
    if sys.argv[1] == "say":
        say(Path(sys.argv[2]))
    elif sys.argv[1] == "stop":
        print(stop(Path(sys.argv[2])))
    else:
        sys.exit(check(Path(sys.argv[2]), sys.argv[3]))
