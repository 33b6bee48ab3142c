#!/usr/bin/env python3
"""What the start log says of a GPU's memory, against what the GPU has less of: within 2 %.

    memory_test.py MOTLEY
"""

import re
import subprocess
import sys

PARTS = ("weight_bytes", "scratch_bytes", "graph_bytes", "adapter_bytes", "kv_bytes", "state_bytes")


def main():
    if len(sys.argv) != 2:
        sys.exit(__doc__.strip())
    run = subprocess.run(
        [sys.argv[1], "bench", "--shape", "olmoe", "--layers", "4", "--device", "cuda", "--adapters", "2",
         "--adapter-memory", "1G", "--kv-memory", "8G", "--concurrency", "2", "--requests", "4",
         "--prompt-tokens", "16-32", "--output-tokens", "4-8"],
        capture_output=True, text=True, check=False)
    line = re.search(r"engine\.memory .*", run.stderr + run.stdout)
    if run.returncode != 0 or line is None:
        sys.exit(f"the load failed with status {run.returncode}:\n{run.stderr}")
    told = {name: int(value) for name, value in re.findall(r"(\w+_bytes)=(\d+)", line[0])}
    parts = sum(told[name] for name in PARTS)
    taken = told["device_bytes"]
    print(f"told: {parts / 1e9:.3f} GB ({', '.join(f'{name} {told[name]}' for name in PARTS)}); "
          f"the GPU has {taken / 1e9:.3f} GB less")
    if abs(taken - parts) > 0.02 * taken:
        sys.exit("these differ by more than 2 %")


if __name__ == "__main__":
    main()
