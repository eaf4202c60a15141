"""cross/msvc.py: the C of this project holds nothing that Visual Studio's compiler refuses, and the check is no blind one."""
from __future__ import annotations

import pytest
from crosstools import ROOT, load

msvc = load("msvc")


def test_own_c():
    """tests/check/bench_delta.c is not built on Windows."""
    files = [*ROOT.glob("colibri_edge/csrc/**/*.[ch]"), *ROOT.glob("colibri_edge/capi/*.[ch]"), *ROOT.glob("include/**/*.h"),
             *ROOT.glob("docs/examples/*.c"), ROOT / "tests/check/check_kernels.c", ROOT / "tests/check/bench_kernels.c"]
    assert len(files) > 50
    assert [b for f in files for b in msvc.check(f.relative_to(ROOT).as_posix(), f.read_text())] == []


@pytest.mark.parametrize("line", [
    "static int x __attribute__((unused));", "n = __builtin_ctz(m);", "__asm__ volatile(\"pause\");", "int y = ({ 1; });", "case 1 ... 3:",
    "a = b ?: c;", "void f(int a[static 4]);", "long n = 0;", "unsigned long n;", "ssize_t n;", "off_t at;", "#include <unistd.h>",
    "printf(\"%ld\", n);", "#if defined(_WIN32)\nlong n;\n#endif", "#ifdef __GNUC__\n#else\nlong n;\n#endif", "#if FOO\nlong n;\n#endif",
    "#if defined(_MSC_VER) && _MSC_VER >= 1900\nlong n;\n#endif", "#if !defined(_WIN32)\n#else\nlong n;\n#endif",
    "#define M(x) \\\n    __builtin_expect(x, 1)",
])
def test_refused(line):
    assert len(msvc.check("a.c", line)) == 1


@pytest.mark.parametrize("text", [
    "long long n; unsigned long long m; long double d;", "/* long, __attribute__ */ int n; // ssize_t", "puts(\"long __asm__ ? :\");",
    "#if defined(__GNUC__)\nlong n;\n#endif", "#ifndef _WIN32\nssize_t n;\n#endif", "#if !defined(_WIN32)\noff_t n;\n#else\nint n;\n#endif",
    "#if defined(_MSC_VER)\n#elif FOO\nlong n;\n#endif", "#if defined(__aarch64__) || defined(_M_ARM64)\nlong n;\n#endif",
    "#ifdef _WIN32\n#ifdef __GNUC__\nlong n;\n#endif\n#endif", "int along, longer;", "#if 0\nlong n;\n#endif",
])
def test_accepted(text):
    assert msvc.check("a.c", text) == []


def test_generated_c_may_use_long_but_no_extension():
    assert msvc.check("x.pyx.c", "long n;") == []
    assert len(msvc.check("x.pyx.c", "int n __attribute__((unused));")) == 1
