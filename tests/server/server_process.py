"""`motley serve` as a process, on a port of the kernel's choice."""

import subprocess
import tempfile
from pathlib import Path


# Of a small golden, whose answers are the same wherever they are computed.
SMALL = ("--device", "cpu", "--compute", "f32", "--kv-memory", "16M", "--adapter-memory", "16M")


class ServerProcess:
    """What it logs goes to a file."""

    def __init__(self, motley: Path, folder: Path, *options: str):
        self.log = tempfile.NamedTemporaryFile("w")
        self.process = subprocess.Popen(
            [motley, "serve", folder, "--port", "0", *options], stdout=subprocess.PIPE, stderr=self.log, text=True)
        line = self.process.stdout.readline()
        if " at " not in line:
            raise RuntimeError(f"the server did not start: {line!r}\n{self.lines()}")
        self.port = int(line.rsplit(":", 1)[1])

    def lines(self) -> str:
        return Path(self.log.name).read_text()

    def close(self) -> None:
        self.process.kill()
        self.process.wait()
        self.process.stdout.close()
        self.log.close()
