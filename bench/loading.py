#!/usr/bin/env python3
"""How fast a checkpoint is ready, and what memory that takes, beside the machine's memory copying speed.

    python3 bench/loading.py MOTLEY CHECKPOINT [ROUNDS]

The checkpoint's files are read once first, so that they are in the page cache (tools/make_checkpoint.py writes some).
A round is one `motley score` of one line: its own figure of loading, and the most anonymous memory (what it made) and
mapped file pages that the process held. Linux only.
"""

import json
import re
import subprocess
import sys
import tempfile
import threading
import time
from pathlib import Path


def copying_speed() -> float:
    """GB/s of one thread that copies 1 GB: the best of three."""
    source, target = bytearray(1 << 30), bytearray(1 << 30)
    best = 0.0
    for _ in range(3):
        start = time.monotonic()
        memoryview(target)[:] = source
        best = max(best, len(source) / (time.monotonic() - start) / 1e9)
    return best


def filling_speed() -> float:
    """GB/s of one thread that copies 1 GB to memory that is new, which the system clears first: the best of three."""
    source = bytearray(b"1") * (1 << 30)
    best = 0.0
    for _ in range(3):
        start = time.monotonic()
        target = bytes(source)
        best = max(best, len(target) / (time.monotonic() - start) / 1e9)
        del target
    return best


class Peaks:
    """The largest RssAnon and RssFile of a process while it runs, in bytes."""

    def __init__(self, pid: int):
        self.anonymous = self.file = 0
        self._path = Path(f"/proc/{pid}/status")
        self._ended = False
        self._thread = threading.Thread(target=self._watch)
        self._thread.start()

    def _watch(self) -> None:
        while not self._ended:
            try:
                fields = dict(re.findall(r"(RssAnon|RssFile):\s+(\d+) kB", self._path.read_text()))
            except OSError:
                return
            self.anonymous = max(self.anonymous, int(fields.get("RssAnon", 0)) * 1024)
            self.file = max(self.file, int(fields.get("RssFile", 0)) * 1024)
            time.sleep(0.01)

    def stop(self) -> None:
        self._ended = True
        self._thread.join()


def main() -> int:
    if len(sys.argv) not in (3, 4):
        print(__doc__, file=sys.stderr)
        return 2
    motley, checkpoint = sys.argv[1], Path(sys.argv[2])
    files = sorted(checkpoint.glob("*.safetensors"))
    size = sum(file.stat().st_size for file in files)
    for file in files:
        with file.open("rb") as stream:
            while stream.read(1 << 26):
                pass
    print(
        f"{size / 1e9:.1f} GB in {len(files)} files; one thread copies {copying_speed():.1f} GB/s, "
        f"to new memory {filling_speed():.1f}"
    )
    with tempfile.NamedTemporaryFile("w", suffix=".jsonl") as lines, tempfile.NamedTemporaryFile() as scores:
        lines.write(json.dumps({"token_ids": [1, 2, 3]}) + "\n")
        lines.flush()
        for _ in range(int(sys.argv[3]) if len(sys.argv) == 4 else 3):
            command = [motley, "score", str(checkpoint), "--input", lines.name, "--output", scores.name]
            process = subprocess.Popen([*command, "--device", "cpu"], stdout=subprocess.DEVNULL, stderr=subprocess.PIPE, text=True)
            peaks = Peaks(process.pid)
            log = process.stderr.read()
            peaks.stop()
            if process.wait() != 0:
                print(log, file=sys.stderr)
                return 1
            loaded = re.search(r"model\.loaded .*?seconds=([\d.]+)", log)
            seconds = float(loaded[1])
            print(
                f"ready in {seconds:.2f} s, {size / seconds / 1e9:.1f} GB/s; "
                f"made {peaks.anonymous / 1e9:.2f} GB, mapped {peaks.file / 1e9:.2f} GB"
            )
    return 0


if __name__ == "__main__":
    sys.exit(main())
