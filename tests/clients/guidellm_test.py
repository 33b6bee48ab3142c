"""guidellm: a short run."""

import json
import os
import subprocess
import sys
from pathlib import Path

from harness import ClientTest, main


class GuideLlm(ClientTest):
    def benchmark(self, command):
        folder = self.scratch / f"run{len(list(self.scratch.iterdir()))}"
        folder.mkdir()
        done = subprocess.run(
            ["bash", "-ec", command], cwd=folder, capture_output=True, text=True,
            env=os.environ | {"PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
                              "GUIDELLM__DEFAULT_RESULTS_DIR": str(folder)})
        self.assertEqual(done.returncode, 0, done.stderr[-3000:] + done.stdout[-3000:])
        report, = folder.rglob("*.json")
        benchmark, = json.loads(report.read_text())["benchmarks"]
        return benchmark

    def assert_whole(self, benchmark, requests, tokens):
        totals = benchmark["metrics"]["request_totals"]
        self.assertEqual((totals["successful"], totals["errored"]), (requests, 0))
        for request in benchmark["requests"]["successful"]:
            self.assertEqual(request["output_tokens"], tokens)

    def test_the_page(self):
        self.assert_whole(self.benchmark(self.blocks("GuideLLM", "sh")[0]), 8, 16)

    def test_other_routes(self):
        command = self.blocks("GuideLLM", "sh")[0]
        for route in ("/v1/completions", "/v1/responses"):
            with self.subTest(route=route):
                self.assert_whole(self.benchmark(command.replace(
                    "kind=openai_http,", f"kind=openai_http,request_format={route},")), 8, 16)


if __name__ == "__main__":
    main()
