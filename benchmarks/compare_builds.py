"""Two installations of colibri-edge on the same block file, A B A B: is a pinned build as fast as the generic one?

    python benchmarks/compare_builds.py PYTHON_A PYTHON_B block.colibri [--batches 1,2,4] [--rounds 6]

Each round starts both interpreters in turn; each opens the file and adds up the processor time of the fastest third of
its forwards, on one thread, so that other load on the machine disturbs little. Printed is, for every batch, the median
over the rounds of time B / time A: under 1, B is faster.
"""
import argparse
import json
import subprocess
from statistics import median

INNER = """
import json, sys, time
import numpy as np
from colibri_edge import MoEBlock
path, batches = sys.argv[1], json.loads(sys.argv[2])
out = {}
for n in batches:
    block, times = MoEBlock(path, max_batch=n, threads=1), []
    rng = np.random.default_rng(0)
    many = max(1, 2_000_000 // block.hidden_size // block.intermediate_size)
    for i in range(24):
        x = rng.standard_normal((n, block.hidden_size), dtype=np.float32)
        t = time.process_time()
        for _ in range(many):
            block.forward(x)
        times.append(time.process_time() - t)
    out[n] = sum(sorted(times[4:])[:8])
print(json.dumps(out))
"""


def main():
    p = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    p.add_argument("pythons", nargs=2)
    p.add_argument("file")
    p.add_argument("--batches", default="1,2,4")
    p.add_argument("--rounds", type=int, default=6)
    a = p.parse_args()
    batches = [int(b) for b in a.batches.split(",")]
    ratios = {str(n): [] for n in batches}
    for _ in range(a.rounds):
        one, two = (
            json.loads(subprocess.check_output([py, "-P", "-c", INNER, a.file, json.dumps(batches)]))
            for py in a.pythons
        )
        for n in ratios:
            ratios[n].append(two[n] / one[n])
    for n, r in ratios.items():
        print(f"batch {n}: B takes {median(r):.3f} of A's time ({min(r):.3f} to {max(r):.3f})")


if __name__ == "__main__":
    main()
