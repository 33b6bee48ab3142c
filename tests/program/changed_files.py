"""Files that change under `motley serve`: the model's while they are mapped, and an adapter's once it is out of memory.

changed_files.py MOTLEY GOLDEN
"""

import json
import sys
import tempfile
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "server"))

import tiny_model  # noqa: E402
from server_process import ServerProcess, until  # noqa: E402

BODY = {"model": "tiny", "prompt": "a stone", "max_tokens": 4, "temperature": 0}


class Server(ServerProcess):
    """A model folder of its own, served."""

    def __init__(self, motley: str, golden: Path, folder: Path, *options: str) -> None:
        self.model = folder / "tiny"
        tiny_model.make(golden, self.model)
        super().__init__(motley, self.model, "--device", "cpu", "--compute", "f32", "--kv-memory", "4M", *options)

    def text_once(self, path: str, status: int) -> str:
        """The answer once it has that status: the watch looks about each second."""
        def answered() -> str | None:
            found, text, _ = self.ask(path)
            return text if found == status else None

        return until(f"status {status} of {path}", answered, self.last_lines)


def cut_short(motley: str, golden: Path, folder: Path) -> None:
    server = Server(motley, golden, folder)
    weights = server.model / "model.safetensors"
    assert server.ask("/v1/completions", BODY)[0] == 200
    with weights.open("r+b") as file:
        file.truncate(4096)
    server.ask("/v1/completions", BODY)
    status = server.wait("its weights were cut")
    last = server.lines().splitlines()[-1]
    assert status == 1, (status, server.lines())
    assert last.startswith("motley: a page of the file can't be read any more (" + str(weights)), last
    assert sum(line.startswith("motley:") for line in server.lines().splitlines()) == 1


def written(motley: str, golden: Path, folder: Path) -> None:
    server = Server(motley, golden, folder)
    weights = server.model / "model.safetensors"
    assert server.ask("/health")[0] == 200
    content = weights.read_bytes()
    weights.write_bytes(content)
    text = server.text_once("/health", 503)
    assert "model.safetensors" in text and str(folder) not in text, text
    assert server.ask("/v1/completions", BODY)[0] == 200, "it serves on until it is restarted"
    assert server.end() == 0
    assert server.lines().count("files.changed_while_mapped") == 1, server.lines()
    assert "files=mapped" in server.lines()


def copied(motley: str, golden: Path, folder: Path) -> None:
    server = Server(motley, golden, folder, "--copy-weights")
    before = json.loads(server.ask("/v1/completions", BODY)[1])["choices"]
    weights = server.model / "model.safetensors"
    weights.write_bytes(b"")
    assert server.ask("/health")[0] == 200
    assert json.loads(server.ask("/v1/completions", BODY)[1])["choices"] == before
    assert server.end() == 0
    assert "files=copied" in server.lines() and "files.changed" not in server.lines()


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
    lines = [line for line in server.lines().splitlines() if "engine.adapter_broken" in line]
    assert len(lines) == 1 and str(adapters / "experts") in lines[0], server.lines()


def main() -> None:
    motley, golden = sys.argv[1], Path(sys.argv[2])
    for case in (cut_short, written, copied, broken_adapter):
        with tempfile.TemporaryDirectory() as folder:
            print(case.__name__, flush=True)
            case(motley, golden, Path(folder))


if __name__ == "__main__":
    main()
