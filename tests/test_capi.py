"""The C API: from C and C++ programs without Python in their source."""

import ctypes
import os
import re
import shutil
import subprocess
import sys
import threading
from pathlib import Path

import numpy as np
import pytest
from test_block import make

from colibri_edge import MoEBlock, export_block
from colibri_edge._native import constants

ROOT = Path(__file__).resolve().parent.parent
EXAMPLES = ROOT / "docs" / "examples"
CC, CXX = shutil.which("cc"), shutil.which("c++")
MAX_BATCH = constants()["max_batch"]
BATCH = min(8, MAX_BATCH)
pytestmark = pytest.mark.skipif(not CC or sys.platform == "win32", reason="needs a C compiler and POSIX")


def config(*flags):
    p = subprocess.run(
        [sys.executable, "-m", "colibri_edge", "config", *flags], capture_output=True, text=True, check=False
    )
    if p.returncode and "no shared library" in p.stderr:
        pytest.skip(p.stderr.strip())
    assert p.returncode == 0, p.stderr
    return p.stdout.split()


@pytest.fixture(scope="module")
def flags():
    return config("--cflags", "--libs")


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """block.colibri (hidden 64) and big.colibri (hidden 256, both threads at work), and one with damaged experts."""
    folder = tmp_path_factory.mktemp("capi")
    d = make(1)
    export_block(d, folder / "block.colibri", top_k=2, activation="silu", renormalise=True)
    export_block(make(2, 256, 320, 16), folder / "big.colibri", top_k=2, activation="gelu_tanh", renormalise=False)
    d["w2"][:, 0, 0] = np.inf
    export_block(d, folder / "bad.colibri", top_k=2, activation="silu", renormalise=True)
    return folder


def build(flags, source, out, *extra, compiler=CC, language="c"):
    std = ["-std=c99"] if language == "c" else ["-x", "c++", "-std=c++11"]
    if not isinstance(source, Path):
        path = out.with_suffix(".c")
        path.write_text(source)
        source = path
    subprocess.run(
        [
            compiler,
            "-Wall",
            "-Wextra",
            "-Werror",
            *std,
            *extra,
            str(source),
            *(["-x", "none"] if language != "c" else []),
            *flags,
            "-o",
            str(out),
        ],
        check=True,
    )
    return out


def run(*command, **kw):
    p = subprocess.run([str(c) for c in command], capture_output=True, text=True, timeout=120, **kw)
    assert p.returncode == 0, p.stdout + p.stderr
    return p.stdout


@pytest.mark.parametrize(("compiler", "args"), [(CC, ["-std=c99"]), (CXX, ["-x", "c++", "-std=c++11"])])
def test_header_compiles_alone(compiler, args, tmp_path):
    if not compiler:
        pytest.skip("no C++ compiler")
    (tmp_path / "h.c").write_text("#include <colibri.h>\n")
    subprocess.run(
        [
            compiler,
            *args,
            "-Wall",
            "-Wextra",
            "-pedantic-errors",
            "-Werror",
            *config("--cflags"),
            "-c",
            "h.c",
            "-o",
            "h.o",
        ],
        cwd=tmp_path,
        check=True,
    )


def test_config_prints_one_line():
    from colibri_edge import __version__

    assert config("--version") == [__version__]
    p = subprocess.run(
        [sys.executable, "-m", "colibri_edge", "config", "--cflags", "--libs"], capture_output=True, text=True
    )
    assert p.stdout.count("\n") == 1 and p.stdout.startswith("-I") and "-lcolibri" in p.stdout


@pytest.mark.parametrize("language", ["c", "c++"])
@pytest.mark.parametrize("batch", sorted({1, min(3, MAX_BATCH), BATCH}))
def test_example_equals_python_bit_for_bit(language, batch, flags, folder, tmp_path):
    compiler = CC if language == "c" else CXX
    if not compiler:
        pytest.skip("no C++ compiler")
    exe = build(flags, EXAMPLES / "moe_block.c", tmp_path / "example", compiler=compiler, language=language)
    out = run(exe, folder / "big.colibri", batch, tmp_path / "out.f32")
    got = np.fromfile(tmp_path / "out.f32", np.float32).reshape(batch, 256)
    i = np.arange(batch * 256)
    x = (((i * 37 % 101) - 50).astype(np.float32) / np.float32(50)).reshape(batch, 256)
    assert np.array_equal(got, MoEBlock(folder / "big.colibri", max_batch=batch).forward(x))
    assert np.allclose([float(v) for v in out.split()], got[0, :8], rtol=1e-4)


ERRORS = r"""
#include <colibri.h>
#include <math.h>
#include <stdio.h>
#include <string.h>
static int failures;
static void want(int got, int code, const char *text) {
    if (got != code || !strstr(colibri_last_error(), text)) {
        failures++;
        printf("got %d, wanted %d; message: %s; wanted: %s\n", got, code, colibri_last_error(), text);
    }
}
int main(int argc, char **argv) {
    float in[64 * 3] = {0}, out[64 * 3];
    int max_batch = argc > 5 && argv[5][0] == '1' ? 1 : 2;
    (void)argc;
    want(colibri_forward(NULL, in, out, 1), -1, "the pointer is NULL");
    want(colibri_init_model(argv[3], 1) ? 0 : -1, -1,
         "bad magic: found 6e 6f 74 20 61 20 6d 6f, wanted c0 4c 31 42 52 31 00 00");
    want(colibri_init_model("no such file", 1) ? 0 : -1, -1, "no such file: cannot open: No such file");
    want(colibri_init_model(NULL, 1) ? 0 : -1, -1, "path is NULL");
    want(colibri_init_model(argv[1], 0) ? 0 : -1, -1, "max_batch 0; this build takes 1 to ");
    want(colibri_init_model(argv[1], 1000000) ? 0 : -1, -1, "max_batch 1000000; this build takes 1 to ");
    want(colibri_forward(NULL, in, out, 1), -1, "the pointer is NULL");
    colibri_model_t *m = colibri_init_model(argv[1], max_batch);
    if (!m) { printf("%s\n", colibri_last_error()); return 1; }
    if (colibri_hidden_size(m) != 64 || colibri_hidden_size(NULL) != -1) failures++;
    want(colibri_forward(m, NULL, NULL, 0), 0, "");
    want(colibri_forward(m, in, out, max_batch + 1), -1,
         max_batch == 2 ? "batch 3; this model was opened for 0 to 2"
                        : "batch 2; this model was opened for 0 to 1");
    want(colibri_forward(m, in, out, -1), -1, "batch -1; this model was opened for 0 to");
    want(colibri_forward(m, NULL, out, 1), -1, "batch 1 with a NULL input");
    want(colibri_forward(m, in, NULL, 1), -1, "batch 1 with a NULL output");
    want(colibri_forward(m, in, out, 1), 0, "");
    in[5] = NAN;
    want(colibri_forward(m, in, out, 1), -2, "routing: input token 0 holds a NaN or an infinity at 5");
    in[5] = 0.5f;
    want(colibri_forward(m, in, out, 1), 0, "");
    colibri_free(m);
    m = colibri_init_model(argv[2], 1);
    want(colibri_forward(m, in, out, 1), -3, "its output for token 0 is not finite");
    colibri_free(m);
    colibri_free(NULL);
    m = colibri_init_model(argv[4], 1); /* backslashes, not ASCII */
    if (!m) { printf("%s\n", colibri_last_error()); failures++; }
    colibri_free(m);
    want(colibri_session_open("no such model", 0, 0) ? 0 : -1, -1, "no such model");
    want(colibri_session_feed(NULL, NULL, 0), -1, "NULL");
    want(colibri_session_rewind(NULL, 0), -1, "NULL");
    if (colibri_session_logits(NULL)) failures++;
    if (colibri_session_vocab(NULL) != -1 || colibri_session_position(NULL) != -1) failures++;
    colibri_session_close(NULL);
    return failures;
}
"""


@pytest.fixture(scope="module")
def odd_names(folder):
    (folder / "model").write_text("not a model at all, and longer than thirty-two bytes")
    (folder / "Größe 模型").mkdir(exist_ok=True)
    shutil.copy(folder / "block.colibri", folder / "Größe 模型" / "bloß.colibri")
    return [
        folder / "block.colibri",
        folder / "bad.colibri",
        folder / "model",
        str(folder / "Größe 模型" / "bloß.colibri").replace("/", "\\"),
        "1" if MAX_BATCH == 1 else "2",
    ]


def test_every_error_code_with_its_message(flags, odd_names, tmp_path):
    run(build(flags, ERRORS, tmp_path / "errors", "-Wno-unused-result"), *odd_names)


def test_a_library_without_python_says_so(flags, tmp_path):
    """libcolibri alone in a folder: no environment, no package."""
    lib = next(Path(f[2:]) for f in flags if f.startswith("-L"))
    shutil.copy(lib / "libcolibri.so", tmp_path / "libcolibri.so")
    source = r'''
#include <colibri.h>
#include <stdio.h>
int main(void) {
    if (colibri_init_model("x", 1)) return 1;
    puts(colibri_last_error());
    return 0;
}
'''
    exe = build([flags[0], f"-L{tmp_path}", "-lcolibri", f"-Wl,-rpath,{tmp_path}"], source, tmp_path / "alone")
    text = run(exe, env={k: v for k, v in os.environ.items() if not k.startswith("PYTHON")})
    assert "no shared library of Python" in text or "cannot import colibri_edge.capi._capi" in text


# Counts what is asked of the allocator and of the kernel while `counting`.
COUNTER = r"""
#define _GNU_SOURCE
#include <colibri.h>
#include <dlfcn.h>
#include <errno.h>
#include <pthread.h>
#include <stdio.h>
#include <stdlib.h>
#include <string.h>
#include <sys/mman.h>
extern void *__libc_malloc(size_t);
extern void *__libc_calloc(size_t, size_t);
extern void *__libc_realloc(void *, size_t);
extern void *__libc_memalign(size_t, size_t);
static volatile int counting;
static volatile long calls;
#define COUNT() do { if (counting) __sync_fetch_and_add(&calls, 1); } while (0)
void *malloc(size_t n) { COUNT(); return __libc_malloc(n); }
void *calloc(size_t n, size_t m) { COUNT(); return __libc_calloc(n, m); }
void *realloc(void *p, size_t n) { COUNT(); return __libc_realloc(p, n); }
void *memalign(size_t a, size_t n) { COUNT(); return __libc_memalign(a, n); }
void *aligned_alloc(size_t a, size_t n) { COUNT(); return __libc_memalign(a, n); }
int posix_memalign(void **p, size_t a, size_t n) { COUNT(); *p = __libc_memalign(a, n); return *p ? 0 : ENOMEM; }
void *mmap(void *p, size_t n, int prot, int flags, int fd, off_t at) {
    static void *(*next)(void *, size_t, int, int, int, off_t);
    COUNT();
    if (!next) { void *f = dlsym(RTLD_NEXT, "mmap"); memcpy(&next, &f, sizeof f); }
    return next(p, n, prot, flags, fd, at);
}
enum { FORWARDS = 10000, HIDDEN = 64 };
static const char *path;
static int batch;
static pthread_barrier_t gate;
static float result[2][HIDDEN * 64];
static void *worker(void *arg) {
    int id = (int)(size_t)arg;
    static float in[2][HIDDEN * 64];
    colibri_model_t *m = colibri_init_model(path, batch);
    if (!m) { printf("%s\n", colibri_last_error()); exit(1); }
    for (int i = 0; i < HIDDEN * batch; i++) in[id][i] = (float)((i * 37 % 101) - 50) / 50.0f;
    pthread_barrier_wait(&gate);
    if (id == 0) counting = 1;
    pthread_barrier_wait(&gate);
    for (int i = 0; i < FORWARDS; i++)
        if (colibri_forward(m, in[id], result[id], 1 + i % batch)) { printf("%s\n", colibri_last_error()); exit(1); }
    if (colibri_forward(m, in[id], result[id], batch)) exit(1);
    pthread_barrier_wait(&gate);
    if (id == 0) counting = 0;
    pthread_barrier_wait(&gate);
    colibri_free(m);
    return NULL;
}
int main(int argc, char **argv) {
    pthread_t t[2];
    path = argv[1];
    batch = atoi(argv[2]);
    (void)argc;
    pthread_barrier_init(&gate, NULL, 2);
    for (size_t i = 0; i < 2; i++) pthread_create(&t[i], NULL, worker, (void *)i);
    for (size_t i = 0; i < 2; i++) pthread_join(t[i], NULL);
    int differ = memcmp(result[0], result[1], sizeof(float) * HIDDEN * (size_t)batch);
    printf("%ld calls, %s\n", (long)calls, differ ? "different" : "equal");
    return 0;
}
"""


@pytest.mark.skipif(not sys.platform.startswith("linux"), reason="counts through glibc")
@pytest.mark.parametrize("batch", sorted({1, min(3, MAX_BATCH), BATCH}))
def test_two_threads_ten_thousand_forwards_without_allocation(batch, flags, folder, tmp_path):
    """Two instances at once, every batch from 1 up; with 8, groups of four and more go to the BLAS."""
    exe = build(flags, COUNTER, tmp_path / "count", "-pthread", "-ldl", "-fno-builtin", "-std=gnu99")
    assert run(exe, folder / "block.colibri", batch) == "0 calls, equal\n"


HOLD = r"""
#include <colibri.h>
#include <pthread.h>
static float in[64], out[2][64];
static int codes[2];
static void *worker(void *arg) {
    int id = (int)(size_t)arg;
    colibri_model_t *m = colibri_init_model(PATH, 1); /* not the first: needs no Python either */
    if (!m) return (void *)1;
    for (int i = 0; i < 10000; i++) codes[id] |= colibri_forward(m, in, out[id], 1);
    colibri_free(m);
    return NULL;
}
/* Called by Python with its lock held: if a forward wanted that lock, this would never end. */
int run_two(void) {
    pthread_t t[2];
    void *r[2];
    for (size_t i = 0; i < 2; i++) pthread_create(&t[i], NULL, worker, (void *)i);
    for (size_t i = 0; i < 2; i++) pthread_join(t[i], &r[i]);
    return r[0] || r[1] || codes[0] || codes[1];
}
"""


def test_the_gil_is_not_taken(flags, folder, tmp_path):
    lib = build(flags, HOLD, tmp_path / "hold.so", "-shared", "-fPIC", "-pthread", f'-DPATH="{folder}/block.colibri"')
    code = f"""
import ctypes
c = ctypes.CDLL({str(lib)!r})
c.colibri_init_model.restype = ctypes.c_void_p
first = c.colibri_init_model({str(folder / "block.colibri")!r}.encode(), 1)
assert first, "the first call brings up what is needed, in the running interpreter"
assert ctypes.PyDLL({str(lib)!r}).run_two() == 0
"""
    run(sys.executable, "-c", code)


def test_python_counts_on_during_forwards(folder):
    block = MoEBlock(folder / "big.colibri", max_batch=BATCH)
    x = np.ones((BATCH, 256), np.float32)
    done, count = threading.Event(), 0

    def work():
        for _ in range(300):
            block.forward(x)
        done.set()

    t = threading.Thread(target=work)
    t.start()
    while not done.is_set():
        count += 1
    t.join()
    assert count > 300


@pytest.mark.skipif(not shutil.which("valgrind"), reason="needs valgrind")
def test_valgrind_finds_nothing_of_ours(flags, folder, tmp_path):
    exe = build(flags, EXAMPLES / "moe_block.c", tmp_path / "example", "-g")
    batch = min(2, MAX_BATCH)
    p = subprocess.run(
        [
            "valgrind",
            "--leak-check=full",
            "--show-leak-kinds=definite,possible",
            "--num-callers=30",
            str(exe),
            str(folder / "block.colibri"),
            str(batch),
            str(tmp_path / "o"),
        ],
        capture_output=True,
        text=True,
        timeout=300,
        env={**os.environ, "PYTHONMALLOC": "malloc", "COLIBRI_EDGE_ISA": "scalar"},
    )
    assert p.returncode == 0, p.stderr[-2000:]
    ours, kind = [], ""
    for line in p.stderr.splitlines():
        text = line.split("== ")[-1].strip()
        if text.startswith(("Invalid", "Conditional", "Use of", "Syscall")) or "definitely lost in" in text:
            kind = text
        elif (
            kind and text.startswith(("at ", "by ")) and "vgpreload" not in text
        ):  # the innermost frame that is no allocator's
            if any(n in text for n in ("libcolibri", ".abi3.so", "moe_block.c")):
                ours.append(f"{kind}: {text}")
            kind = ""
    assert "ERROR SUMMARY" in p.stderr and not ours, ours


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """A random whole model: 12 experts, top 3."""
    if constants()["max_top_k"] < 3 or constants()["max_experts"] < 12:
        pytest.skip("this build is pinned to smaller models")
    sys.path.insert(0, str(ROOT / "tests" / "golden"))
    import make_golden

    return make_golden.write_model(tmp_path_factory.mktemp("whole"), "q4_0")


def test_whole_model_equals_python(flags, whole, tmp_path):
    from colibri_edge import Model

    model = Model.load(whole)
    tokens = [1, 2, 3]
    for _ in range(5):
        tokens.append(int(np.argmax(model.logits(tokens)[-1])))
    exe = build(flags, EXAMPLES / "whole_model.c", tmp_path / "whole")
    assert [int(t) for t in run(exe, whole, 5, 1, 2, 3).split()] == tokens[3:]


def library(flags) -> ctypes.CDLL:
    """libcolibri, with the session functions' types."""
    c = ctypes.CDLL(str(next(Path(f[2:]) for f in flags if f.startswith("-L")) / "libcolibri.so"))
    c.colibri_session_open.restype = c.colibri_session_logits.restype = ctypes.c_void_p
    c.colibri_last_error.restype = ctypes.c_char_p
    return c


def test_session_functions(flags, whole):
    """Feed, rewind, errors; logits bit for bit as Model.logits gives them."""
    from colibri_edge import Model

    model = Model.load(whole, ctx=16)
    want = model.logits([1, 2, 3, 4])
    c = library(flags)
    s = ctypes.c_void_p(c.colibri_session_open(os.fsencode(whole), 16, 1))
    assert s.value, c.colibri_last_error()
    assert c.colibri_session_logits(s) is None and b"no token has been fed" in c.colibri_last_error()
    vocab = c.colibri_session_vocab(s)
    assert vocab == want.shape[1]

    def feed(*tokens):
        return c.colibri_session_feed(s, (ctypes.c_int32 * len(tokens))(*tokens), len(tokens))

    def logits():
        return np.ctypeslib.as_array(ctypes.cast(c.colibri_session_logits(s), ctypes.POINTER(ctypes.c_float)), (vocab,))

    assert feed(1, 2, 3) == 0 and np.array_equal(logits(), want[2])
    assert feed(4) == 0 and np.array_equal(logits(), want[3]) and c.colibri_session_position(s) == 4
    assert c.colibri_session_rewind(s, 5) == -1 and b"position 5, wanted 0 to 4" in c.colibri_last_error()
    assert c.colibri_session_rewind(s, 1) == 0 and feed(2, 3, 4) == 0 and np.array_equal(logits(), want[3])
    assert feed(vocab) == -1 and f"token 0 is {vocab}, outside the vocabulary".encode() in c.colibri_last_error()
    assert feed(*range(13)) == -1 and b"4 + 13 tokens do not fit the context of 16" in c.colibri_last_error()
    assert c.colibri_session_position(s) == 4
    c.colibri_session_close(s)


def test_a_session_says_which_record_is_damaged(flags, whole, tmp_path):
    """The code is that of colibri.h, the message names layer and expert, the position is what it was."""
    from colibri_edge.file import ColibriFile

    data = bytearray(Path(whole).read_bytes())
    with ColibriFile(whole) as f:
        stack = [t for name, t in f.tensors.items() if name.endswith(".experts")][-1]
    for e in range(stack.count):
        data[stack.offset + e * stack.stride + 7] ^= 1
    bad = tmp_path / "bad.colibri"
    bad.write_bytes(data)
    c = library(flags)
    s = ctypes.c_void_p(c.colibri_session_open(os.fsencode(bad), 16, 1))
    assert s.value, c.colibri_last_error()
    assert c.colibri_session_feed(s, (ctypes.c_int32 * 2)(1, 2), 2) == -3
    assert re.search(rb"layer \d+, expert \d+ is damaged", c.colibri_last_error()), c.colibri_last_error()
    assert c.colibri_session_position(s) == 0
    c.colibri_session_close(s)
