"""The thread pool's guided runs: every chunk once, long runs first, none longer than asked for."""
import ctypes
from pathlib import Path

import pytest

from colibri_edge import _native


@pytest.fixture(scope="module")
def core():
    folder = Path(_native.__file__).parent
    lib = ctypes.CDLL(str(next(p for p in folder.iterdir() if "colibri_core" in p.name and p.suffix in (".so", ".dll"))))
    lib.cl_pool_new.restype = ctypes.c_void_p
    lib.cl_pool_free.argtypes = [ctypes.c_void_p]
    return lib


TASK = ctypes.CFUNCTYPE(None, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32, ctypes.c_int32)


def guided(core, pool, n: int, longest: int) -> list[tuple[int, int, int]]:
    """(first, last, worker) of every run over n chunks, in the order of the chunks."""
    runs = []
    core.cl_pool_run_guided.argtypes = [ctypes.c_void_p, TASK, ctypes.c_void_p, ctypes.c_int32, ctypes.c_int32]
    core.cl_pool_run_guided(pool, TASK(lambda _, *run: runs.append(run)), None, n, longest)
    return sorted(runs)


@pytest.mark.parametrize("threads", [1, 2, 5])
def test_guided_runs(core, threads):
    pool = core.cl_pool_new(threads)
    try:
        for n in (0, 1, 2, 3, 17, 400):
            for longest in {1, 7, max(n, 1)}:
                runs = guided(core, pool, n, longest)
                assert all(1 <= last - first <= longest and 0 <= worker < threads for first, last, worker in runs)
                assert [c for first, last, _ in runs for c in range(first, last)] == list(range(n))
                if threads > 1 and n == longest == 400:
                    sizes = [last - first for first, last, _ in runs]
                    assert sizes == sorted(sizes, reverse=True) and sizes[0] == 400 // (2 * threads) and sizes[-1] == 1
    finally:
        core.cl_pool_free(pool)
