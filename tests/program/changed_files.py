"""Files that change under `motley serve`: the model's while they are mapped, and an adapter's once it is out of memory.

changed_files.py MOTLEY GOLDEN
"""

import json
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))

import tiny_model  # noqa: E402

BODY = {"model": "tiny", "prompt": "a stone", "max_tokens": 4, "temperature": 0}


class Server:
    """A model folder of its own, served."""

    def __init__(self, motley: str, golden: Path, folder: Path, *options: str) -> None:
        self.model = folder / "tiny"
        tiny_model.make(golden, self.model)
        self.errors = (folder / "errors").open("w+")
        self.process = subprocess.Popen(
            [motley, "serve", str(self.model), "--port", "0", "--device", "cpu", "--compute", "f32",
             "--kv-memory", "4M", *options], stdout=subprocess.PIPE, stderr=self.errors, text=True)
        line = self.process.stdout.readline()
        assert line, f"no start: {self.said()}"
        self.url = line.split()[-1]

    def ask(self, path: str, body: dict | None = None) -> tuple[int, str, dict]:
        data = None if body is None else json.dumps(body).encode()
        try:
            with urllib.request.urlopen(urllib.request.Request(self.url + path, data=data), timeout=60) as answer:
                return answer.status, answer.read().decode(), dict(answer.headers)
        except urllib.error.HTTPError as error:
            return error.code, error.read().decode(), dict(error.headers)
        except OSError as error:
            return 0, repr(error), {}

    def said(self) -> str:
        self.errors.seek(0)
        return self.errors.read()

    def end(self) -> int:
        self.process.terminate()
        return self.process.wait(60)


def until(server: Server, path: str, status: int) -> str:
    """The watch looks about each second."""
    end = time.monotonic() + 60
    while time.monotonic() < end:
        found, text, _ = server.ask(path)
        if found == status:
            return text
        time.sleep(0.02)
    raise AssertionError(f"{path} never answered {status}: {server.said()}")


def cut_short(motley: str, golden: Path, folder: Path) -> None:
    server = Server(motley, golden, folder)
    weights = server.model / "model.safetensors"
    assert server.ask("/v1/completions", BODY)[0] == 200
    with weights.open("r+b") as file:
        file.truncate(4096)
    server.ask("/v1/completions", BODY)
    status = server.process.wait(60)
    last = server.said().splitlines()[-1]
    assert status == 1, (status, server.said())
    assert last.startswith("motley: a page of the file can't be read any more (" + str(weights)), last
    assert sum(line.startswith("motley:") for line in server.said().splitlines()) == 1


def written(motley: str, golden: Path, folder: Path) -> None:
    server = Server(motley, golden, folder)
    weights = server.model / "model.safetensors"
    assert server.ask("/health")[0] == 200
    content = weights.read_bytes()
    weights.write_bytes(content)
    text = until(server, "/health", 503)
    assert "model.safetensors" in text and str(folder) not in text, text
    assert server.ask("/v1/completions", BODY)[0] == 200, "it serves on until it is restarted"
    assert server.end() == 0
    assert server.said().count("files.changed_while_mapped") == 1, server.said()
    assert "files=mapped" in server.said()


def copied(motley: str, golden: Path, folder: Path) -> None:
    server = Server(motley, golden, folder, "--copy-weights")
    before = json.loads(server.ask("/v1/completions", BODY)[1])["choices"]
    weights = server.model / "model.safetensors"
    weights.write_bytes(b"")
    assert server.ask("/health")[0] == 200
    assert json.loads(server.ask("/v1/completions", BODY)[1])["choices"] == before
    assert server.end() == 0
    assert "files=copied" in server.said() and "files.changed" not in server.said()


def broken_adapter(motley: str, golden: Path, folder: Path) -> None:
    """Two adapters on memory for one."""
    adapters = folder / "tiny" / "adapters"
    server = Server(motley, golden, folder, "--adapter-memory", "256K",
                    "--adapter", f"first={adapters / 'experts'}", "--adapter", f"second={adapters / 'all_linear'}")
    for name in ("first", "second"):
        status, text, _ = server.ask("/v1/completions", BODY | {"model": name})
        assert status == 200, text
    weights = adapters / "experts" / "adapter_model.safetensors"
    content = weights.read_bytes()
    weights.unlink()
    for _ in range(2):
        status, text, headers = server.ask("/v1/completions", BODY | {"model": "first"})
        assert status == 503, (status, text)
        assert "'first'" in text and str(folder) not in text and "experts" not in text, text
        assert "Retry-After" in headers, headers
    assert "motley_adapters_broken 1" in server.ask("/metrics")[1]
    assert server.ask("/v1/completions", BODY | {"model": "second"})[0] == 200
    weights.write_bytes(content)
    assert server.ask("/v1/completions", BODY | {"model": "first"})[0] == 200
    page = server.ask("/metrics")[1]
    assert "motley_adapters_broken 0" in page and str(folder) not in page
    assert str(folder) not in server.ask("/v1/models")[1]
    assert server.end() == 0
    lines = [line for line in server.said().splitlines() if "engine.adapter_broken" in line]
    assert len(lines) == 1 and str(adapters / "experts") in lines[0], server.said()


def main() -> None:
    motley, golden = sys.argv[1], Path(sys.argv[2])
    for case in (cut_short, written, copied, broken_adapter):
        with tempfile.TemporaryDirectory() as folder:
            print(case.__name__, flush=True)
            case(motley, golden, Path(folder))


if __name__ == "__main__":
    main()
