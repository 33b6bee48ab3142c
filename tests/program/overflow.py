"""An adapter with finite factors that overflow: its requests fail and name it, and nothing else changes.

overflow.py MOTLEY GOLDEN
"""

import json
import struct
import subprocess
import sys
import tempfile
from pathlib import Path

from changed_files import BODY, Server


def overflow(folder: Path) -> None:
    """Sets every number of an adapter to 4e37."""
    path = folder / "adapter_model.safetensors"
    content = path.read_bytes()
    begin = 8 + struct.unpack("<Q", content[:8])[0]
    assert set(tensor["dtype"] for name, tensor in json.loads(content[8:begin]).items()
               if name != "__metadata__") == {"F32"}
    path.write_bytes(content[:begin] + struct.pack("<f", 4e37) * ((len(content) - begin) // 4))


def served(motley: str, golden: Path, folder: Path) -> None:
    server = Server(motley, golden, folder, "--adapter", f"good={folder / 'tiny/adapters/experts'}",
                    "--allow-adapter-loading", "--adapter-root", str(folder / "tiny/adapters"))
    overflow(server.model / "adapters/attention")
    status, text, _ = server.ask("/v1/load_lora_adapter", {"lora_name": "wild", "lora_path": "attention"})
    assert status == 200, text
    kept = [BODY, BODY | {"model": "good", "logprobs": 3}, BODY | {"echo": True, "logprobs": 1}]

    def answers() -> list:
        return [json.loads(server.ask("/v1/completions", body)[1])["choices"] for body in kept]

    before = answers()
    wild = BODY | {"model": "wild"}
    for body in (wild, wild | {"n": 3}, wild | {"stream": True}, wild | {"temperature": 1, "logprobs": 5},
                 wild | {"echo": True, "logprobs": 1, "max_tokens": 0},
                 BODY | {"adapters": [{"name": "good", "scale": 0.5}, {"name": "wild", "scale": 1}]}):
        status, text, _ = server.ask("/v1/completions", body)
        assert status == 500, (body, status, text)
        error = json.loads(text)["error"]
        assert error["type"] == "server_error" and error["code"] == "non_finite_logits", error
        assert "'wild'" in error["message"], error
        assert answers() == before
    page = server.ask("/metrics")[1]
    assert 'motley_non_finite_logits_total{adapter=""} 0' in page, page
    assert 'motley_non_finite_logits_total{adapter="wild"} 6' in page, page
    assert 'motley_non_finite_logits_total{adapter="good"} 1' in page, page
    assert server.ask("/health")[0] == 200
    assert server.end() == 0
    lines = [line for line in server.lines().splitlines() if "engine.non_finite_logits" in line]
    # The mix is the first that fails by the other adapter.
    assert len(lines) == 2 and "'wild'" in lines[0], server.lines()


def scored(motley: str, golden: Path, folder: Path) -> None:
    """Of the folder that was served."""
    model, lines = folder / "tiny", folder / "lines.jsonl"
    lines.write_text('{"token_ids": [5, 6, 7]}\n{"token_ids": [5, 6, 7], "adapter": "wild"}\n')
    done = subprocess.run([motley, "score", str(model), "--device", "cpu", "--adapter",
                           f"wild={model / 'adapters/attention'}", "--input", str(lines), "--output",
                           str(folder / "scores.jsonl")], capture_output=True, text=True)
    assert done.returncode == 1, done
    assert done.stderr.splitlines()[-1].startswith("motley: the logits of 'wild' are not finite (line 2)"), done.stderr
    assert not (folder / "scores.jsonl").exists()


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        for case in (served, scored):
            print(case.__name__, flush=True)
            case(sys.argv[1], Path(sys.argv[2]), Path(folder))


main()
