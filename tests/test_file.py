"""The reader of .colibri files: what it accepts, what it refuses, and what a refusal costs."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest
import tinymodels as tiny

from colibri_edge.convert import convert
from colibri_edge.crc32c import crc32c, crc32c_numpy
from colibri_edge.file import HEADER, MAGIC, MAGIC_ASCII, MAX_META, ColibriFile, FileError, format_version


@pytest.fixture(scope="module")
def model(tmp_path_factory):
    """A small qwen3_moe file with a dense first layer, in q8_0; its metadata is about 7 kB."""
    folder = tmp_path_factory.mktemp("file")
    config = tiny.moe_config(mlp_only_layers=[0])
    src = tiny.write_folder(folder / "src", config, tiny.moe_tensors(config))
    return convert(src, folder / "m.colibri", "q8_0").path


def parts(path) -> tuple[bytes, dict, bytes]:
    """(header, metadata, everything behind the metadata's room)"""
    data = Path(path).read_bytes()
    m = HEADER.unpack(data[:32])[4]
    return data[:32], json.loads(data[32:32 + m]), data[32 + m:]


def fit(meta: dict, room: int) -> bytes:
    """The metadata as compact JSON, filled up with spaces to the room that was reserved."""
    raw = json.dumps(meta, separators=(",", ":")).encode()
    return raw + b" " * max(0, room - len(raw))


def sign(path, raw: bytes, rest: bytes, flags: int = 1, mlen=None, flen=None, version: int = 2) -> Path:
    """A file with this metadata and right checksums."""
    flen = HEADER.size + len(raw) + len(rest) if flen is None else flen
    head = HEADER.pack(MAGIC, version, flags, 0, len(raw) if mlen is None else mlen, flen, crc32c(raw), 0)
    Path(path).write_bytes(head[:28] + crc32c(head[:28]).to_bytes(4, "little") + raw + rest)
    return path


def refused(path, match: str = ".") -> str:
    with pytest.raises(FileError, match=match) as e:
        ColibriFile(path)
    return str(e.value)


# -- what it accepts ---------------------------------------------------------------------------------------------------

def test_reads_what_the_writer_wrote(model):
    with ColibriFile(model) as f:
        assert f.verify() > 20
        assert f.topology["model_type"] == "qwen3_moe" and f.meta["quantisation"]["requested"] == "q8_0"
        t = f.tensor("layers.1.experts")
        assert (t.kind, t.count, t.shape) == ("experts", 12, (12, 24, 64)) and len(t.crc) == 12
        assert [p.name for p in t.parts] == ["gate_up", "down"] and t.part("gate_up").shape == (48, 64)
        assert t.offset % 65536 == 0 and t.stride % 4096 == 0
        assert len(f.view(t, 3)) == t.stride and f.view(t).readonly
        assert f.tensor("embed").offset % 4096 == 0 and f.tensor("output_norm").offset % 64 == 0
        assert f.tensor("layers.0.mlp").count == 1
        with pytest.raises(KeyError, match="no tensor 'nope'"):
            f.tensor("nope")
        with pytest.raises(IndexError):
            f.view(t, 12)


def test_ascii_magic_and_absent_checksums_are_accepted(model, tmp_path):
    head, meta, rest = parts(model)
    raw = fit(meta, HEADER.unpack(head)[4])
    head = HEADER.pack(MAGIC_ASCII, 2, 0, 0, len(raw), HEADER.size + len(raw) + len(rest), 0, 0)
    (tmp_path / "a.colibri").write_bytes(head + raw + rest)
    with ColibriFile(tmp_path / "a.colibri") as f:
        f.verify()


def test_fault_07_offsets_beyond_four_gib(model, tmp_path):
    """A tensor at 5 GiB of a sparse file."""
    head, meta, rest = parts(model)
    start = 32 + HEADER.unpack(head)[4]
    entry = meta["tensors"]["layers.1.experts"]
    old, length = entry["offset"], entry["length"]
    entry["offset"] = 5 << 30
    raw = fit(meta, start - 32)
    path = sign(tmp_path / "big.colibri", raw, rest[:old - start], flen=entry["offset"] + length)
    with open(path, "r+b") as f:
        f.truncate(entry["offset"] + length)
        f.seek(entry["offset"])
        f.write(rest[old - start:old - start + length])
    with ColibriFile(path) as big, ColibriFile(model) as small:
        assert big.size > 5 << 30
        for e in (0, 11):
            assert bytes(big.view("layers.1.experts", e)) == bytes(small.view("layers.1.experts", e))


# -- cut, extended, altered --------------------------------------------------------------------------------------------

def test_version_1_names_the_block_reader(tmp_path):
    (tmp_path / "b.colibri").write_bytes(MAGIC + bytes([1]) + bytes(23))
    assert format_version(tmp_path / "b.colibri") == 1
    refused(tmp_path / "b.colibri", "MoEBlock")


@pytest.mark.parametrize("data", [b"", b"GGUF" + bytes(60), MAGIC, MAGIC + b"\x03" + bytes(40), MAGIC + b"\x02" +
bytes(5),
                                  bytes(4096)])
def test_other_files_are_refused(tmp_path, data):
    (tmp_path / "x").write_bytes(data)
    refused(tmp_path / "x", "not a .colibri file|version 3|cut")


def test_cut_anywhere(model, tmp_path):
    data = model.read_bytes()
    rng = random.Random(0)
    for n in [*range(0, 40), *(rng.randrange(len(data)) for _ in range(40)), len(data) - 1]:
        (tmp_path / "c").write_bytes(data[:n])
        refused(tmp_path / "c")
    assert "cut" in refused(tmp_path / "c")


def test_extended(model, tmp_path):
    for extra in (1, 4096):
        (tmp_path / "e").write_bytes(model.read_bytes() + bytes(extra))
        refused(tmp_path / "e", "extended")


def test_every_bit_of_the_header(model, tmp_path):
    data = bytearray(model.read_bytes())
    for bit in range(256):
        data[bit // 8] ^= 1 << bit % 8
        (tmp_path / "h").write_bytes(data)
        refused(tmp_path / "h")
        data[bit // 8] ^= 1 << bit % 8


def test_bits_of_the_metadata(model, tmp_path):
    data = bytearray(model.read_bytes())
    n = HEADER.unpack(data[:32])[4]
    for at in random.Random(1).sample(range(32, 32 + n), 60):
        data[at] ^= 0x10
        (tmp_path / "m").write_bytes(data)
        refused(tmp_path / "m", "metadata checksum")
        data[at] ^= 0x10


def test_bits_of_every_record_and_of_the_padding_are_named(model, tmp_path):
    data = bytearray(model.read_bytes())
    with ColibriFile(model) as f:
        places = [(t.offset + i * t.stride + t.length // len(t.crc) // 2, f"{n} expert {i}" if len(t.crc) > 1 else n)
                  for n, t in f.tensors.items() for i in range(0, len(t.crc), 5)]
        places.append((f._data_start, "padding"))
    assert len(places) > 25
    for at, name in places:
        data[at] ^= 4
        (tmp_path / "r").write_bytes(data)
        with ColibriFile(tmp_path / "r") as f, pytest.raises(FileError, match="damaged") as e:
            f.verify()
        assert name in str(e.value)
        data[at] ^= 4


# -- hostile metadata --------------------------------------------------------------------------------------------------

HOSTILE = [-1, 0, 1, 7, 1.5, 1e308, 2**31, 2**32, 2**63, 2**64 - 1, 10**400, True, None, "x", "", [], [1], {}, {"a": 1}]


def numbers(node, path=()):
    """Paths of every value of the JSON tree that the reader has to believe, experts' checksums sampled."""
    for key, v in node.items() if isinstance(node, dict) else enumerate(node[:3] if len(node) > 3 else node):
        yield (*path, key)
        if isinstance(v, (dict, list)):
            yield from numbers(v, (*path, key))


def replaced(meta: dict, path, value) -> dict:
    meta = json.loads(json.dumps(meta))
    node = meta
    for key in path[:-1]:
        node = node[key]
    node[path[-1]] = value
    return meta


def test_hostile_values_never_get_past_the_reader(model, tmp_path):
    """Each value of topology and directory is replaced by each hostile one: FileError, or a sound file."""
    head, meta, rest = parts(model)
    room = HEADER.unpack(head)[4]
    slim = {**meta, "tensors": dict(meta["tensors"])}
    paths = [p for p in numbers(slim) if p[0] != "quantisation" and p[0] != "source"]
    rng = random.Random(2)
    tried = accepted = 0
    for path in paths:
        for value in rng.sample(HOSTILE, 4):
            bad = replaced(meta, path, value)
            if bad == meta:
                continue
            sign(tmp_path / "h", fit(bad, room), rest)
            tried += 1
            try:
                with ColibriFile(tmp_path / "h") as f:
                    accepted += 1
                    for t in f.tensors.values():                    # whatever is accepted lies inside the file
                        assert t.offset >= 0 and t.offset + t.length <= f.size
                        assert all(p.offset >= 0 and p.offset + p.length <= t.stride for p in t.parts)
            except FileError as e:
                assert len(str(e)) < 700
    assert tried > 1000 and accepted < tried // 8, (tried, accepted)


@pytest.mark.parametrize(("change", "match"), [
    (lambda m: m["tensors"].pop("embed"), "embed is missing"),
    (lambda m: m["tensors"].pop("layers.1.experts"), "layers.1.experts is missing"),
    (lambda m: m["tensors"].update(extra=m["tensors"]["embed"]), "'extra' is in the directory"),
    (lambda m: m["tensors"]["embed"].update(format="q9_z"), "format is 'q9_z', wanted one of"),
    (lambda m: m["tensors"]["embed"].update(offset=m["tensors"]["embed"]["offset"] + 1), "multiple of 4096"),
    (lambda m: m["tensors"]["embed"].update(offset=m["tensors"]["output"]["offset"]), "inside"),
    (lambda m: m["tensors"]["embed"].update(length=4096), "format and shape ask for"),
    (lambda m: m["tensors"]["embed"].update(shape=[320, 65]), r"wanted \[320, 64\]"),
    (lambda m: m["tensors"]["layers.1.router"].update(format="f16"), "wanted f32"),
    (lambda m: m["tensors"]["layers.1.experts"].update(count=13), "wanted 'experts' of 12"),
    (lambda m: m["tensors"]["layers.1.experts"].update(stride=2**40), "stride"),
    (lambda m: m["tensors"]["layers.1.experts"]["parts"].pop(), "parts are gate_up"),
    (lambda m: m["tensors"]["layers.1.experts"]["parts"][1].update(offset=64), "offset is 64"),
    (lambda m: m["topology"].update(hidden_size=2**70), "whole number"),
    (lambda m: m["topology"].update(surprise=1), "unknown setting 'surprise'"),
    (lambda m: m["topology"]["layers"][1]["ffn"].update(top_k=13), "top_k is 13"),
    (lambda m: m["topology"]["layers"][1]["ffn"].update(activation="mish"), "'mish', wanted one of"),
    (lambda m: m["topology"]["layers"].clear(), "no layers"),
    (lambda m: m.update(format="colibra"), "wanted 'colibri'"),
    (lambda m: m.update(version=2.0), "version 2.0"),
    (lambda m: m["generation"].update(eos_token_ids=[1, "2"]), "token ids"),
    (lambda m: m["generation"].update(top_q=1), "generation has an entry 'top_q'"),
    (lambda m: m["generation"].update(top_p=True), "wanted a number"),
])
def test_faults_are_named(model, tmp_path, change, match):
    head, meta, rest = parts(model)
    change(meta)
    sign(tmp_path / "h", fit(meta, HEADER.unpack(head)[4]), rest)
    refused(tmp_path / "h", match)


@pytest.mark.parametrize(("raw", "match"), [
    (b'{"a":1,"a":2}', "twice"), (b'{"a":NaN}', "NaN"), (b'{"a":-Infinity}', "Infinity"), (b"[]", "wanted an object"),
    (b"\xff\xfe{}", "not JSON"), (b'{"a":', "not JSON"), (b'{"a":' + b"9" * 5000 + b"}", "not JSON"),
    (b"  ", "not JSON"),
    (b"[" * 100_000, "nested|not JSON"), (b'{"a":' * 50_000 + b"1" + b"}" * 50_000, "nested"),
])
def test_hostile_json(tmp_path, raw, match):
    refused(sign(tmp_path / "j", raw, bytes(65536)), match)


COST = """
import re, sys, time
from colibri_edge.file import ColibriFile, FileError
import numpy, colibri_edge.topology
def peak():    # not ru_maxrss: that starts with the peak of the process that started this one
    return int(re.search(r"VmHWM:\\s+(\\d+)", open("/proc/self/status").read())[1])
before, start = peak(), time.perf_counter()
try:
    ColibriFile(sys.argv[1])
except FileError as e:
    text = str(e)[:90]
print(time.perf_counter() - start, (peak() - before) // 1024, text)
"""


@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="reads the peak from /proc")
@pytest.mark.parametrize(("name", "make"), [
    ("values", lambda: b"[" + b"{}," * (MAX_META // 3 - 2) + b"1]"),
    ("just under", lambda: b'{"a":[' + b"{}," * 250_000 + b'1],"b":"' + b"x" * (15 << 20) + b'"}'),
    ("wide text", lambda: '{"a":"\U0001f600'.encode() + b"x" * (15 << 20) + b'"}'),
    ("nested", lambda: b"[" * (MAX_META - 8)),
    ("announced length", lambda: b"{}"),
])
def test_a_refusal_is_cheap(tmp_path, name, make):
    """Under a second of work (three here: the machine is shared) and 256 MiB."""
    raw = make()
    sign(tmp_path / "x", raw, bytes(1 << 16), **({"mlen": 2**32 - 1} if name.startswith("announced") else {}))
    env = os.environ | {"PYTHONPATH": os.pathsep.join(p for p in sys.path if p)}
    out = subprocess.run([sys.executable, "-c", COST, str(tmp_path / "x")], capture_output=True, text=True, env=env)
    assert out.returncode == 0, out.stderr
    seconds, mib, text = out.stdout.split(" ", 2)
    print(f"{name}: {float(seconds):.2f} s, {mib} MiB: {text.strip()}")
    assert float(seconds) < 3 and int(mib) < 256


# -- checksums ---------------------------------------------------------------------------------------------------------

def test_crc32c_known_values():
    for f in (crc32c, crc32c_numpy):
        assert f(b"123456789") == 0xE3069283 and f(b"") == 0 and f(bytes(32)) == 0x8A9136AA


def test_crc32c_paths_agree_and_chain():
    data = np.random.default_rng(0).integers(0, 256, 3_000_017, dtype=np.uint8)
    whole = crc32c(data)
    assert whole == crc32c_numpy(data)
    for cut in (0, 1, 255, 1 << 20, (1 << 20) + 3, len(data) - 1):
        assert crc32c_numpy(data[cut:], crc32c_numpy(data[:cut])) == whole
        assert crc32c(data[cut:], crc32c(data[:cut])) == whole


def test_crc32c_rate():
    data = np.zeros(16 << 20, np.uint8)
    for f in (crc32c, crc32c_numpy):
        start = time.perf_counter()
        f(data)
        print(f"{f.__name__}: {data.nbytes / 1e6 / (time.perf_counter() - start):.0f} MB/s")


def test_huge_pages_take_a_mappings_place(tmp_path):
    """cl_huge_settle through Program.settle: same bytes at the same addresses, also for a reader that does not wait."""
    import sys
    import threading

    from colibri_edge import limits
    from colibri_edge.convert import synthetic
    from colibri_edge.engine import Program, Session
    from colibri_edge.file import ColibriFile

    path = tmp_path / "big.colibri"
    shape = dict(hidden=256, layers=2, heads=4, kv_heads=2, head_dim=64, experts=16, top_k=2, intermediate=512, vocab=4096)
    synthetic.write_random(path, synthetic.topology(**shape), "q8_0", seed=3)
    file = ColibriFile(path)
    program = Program(file, "map")
    session = Session(program, 64, 2)
    tokens = [(7 * i) % 4096 for i in range(24)]

    def logits():
        session.rewind(0)
        for t in tokens:
            session.feed((t,))
        return session.logits_view().tobytes()

    want, before = logits(), bytes(file.mapping())
    mover = threading.Thread(target=program.settle, args=(limits.huge_page_bytes(),))
    mover.start()
    while mover.is_alive():
        assert logits() == want
    assert logits() == want and bytes(file.mapping()) == before
    settles = sys.platform == "linux" and limits.huge_page_bytes() and file.size >= 2 * limits.huge_page_bytes()
    assert program.weights == ("ram" if settles else "map")
    assert not program.settle(limits.huge_page_bytes())     # nothing is left to move


def test_parts_of_a_record_out_of_order(model, tmp_path):
    """The reader takes them in the order of docs/format.md only: a bias at the record's first byte would look like none."""
    head, meta, rest = parts(model)
    room = HEADER.unpack(head)[4]
    given = meta["tensors"]["layers.1.experts"]["parts"]
    assert [p["name"] for p in given] == ["gate_up", "down"]
    for names, match in ((["up", "gate_bias"], "gate_bias and no gate"), (["down", "gate_up"], "in the order down, gate_up")):
        bad = json.loads(json.dumps(meta))
        entry = bad["tensors"]["layers.1.experts"]
        if "gate_bias" in names:
            up = given[0] | {"name": "up", "shape": [24, 64], "length": given[0]["length"] // 2}
            bias = {"name": "gate_bias", "format": "f32", "shape": [24], "offset": given[1]["offset"] + given[1]["length"], "length": 96}
            bias["offset"] += -bias["offset"] % 64
            entry["parts"] = [up, given[1], bias]
            if bias["offset"] + 96 > entry["stride"]:       # no room behind it: in the half that is free now
                bias["offset"] = up["length"] + -up["length"] % 64
                entry["parts"] = [up, bias, given[1]]
                match = "in the order up, gate_bias, down"
        else:
            size = given[1]["length"]
            entry["parts"] = [given[1] | {"offset": 0}, given[0] | {"offset": size + -size % 64}]
        refused(sign(tmp_path / "o", fit(bad, room), rest), match)


@pytest.mark.skipif(os.name != "posix", reason="a mapped file cannot be cut on Windows")
def test_a_cut_that_only_the_output_matrix_meets(model, tmp_path):
    """It stands last, so the layers compute and the logits do not."""
    from colibri_edge.model import Model

    head, meta, rest = parts(model)
    start = 32 + HEADER.unpack(head)[4]
    entry = meta["tensors"]["output"]
    matrix = rest[entry["offset"] - start:entry["offset"] - start + entry["length"]]
    end = start + len(rest)
    entry["offset"] = end + -end % 65536
    path = sign(tmp_path / "late.colibri", fit(meta, start - 32), rest + bytes(-end % 65536) + matrix)
    m, same = Model.load(path), Model.load(model)
    assert np.array_equal(m.logits([1, 2, 3]), same.logits([1, 2, 3]))
    os.truncate(path, entry["offset"])
    for call in (lambda: m.session.feed([4, 5]), lambda: m.session.all_logits([4], np.empty((1, m.program.vocab), np.float32))):
        with pytest.raises(FileError, match="was cut while it was in use"):
            call()
        assert m.session.pos == 3
