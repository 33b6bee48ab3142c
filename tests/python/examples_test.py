"""The examples that need nothing but the package; of the notebook's plot only that it is drawn."""

import json
import os
import subprocess
import sys
import tempfile
import types
import unittest
from pathlib import Path
from unittest import mock

from harness import ADAPTERS, MODEL, MOTLEY, REPOSITORY, main

EXAMPLES = REPOSITORY / "examples"


class Examples(unittest.TestCase):
    def setUp(self):
        path = mock.patch.dict(os.environ, {"PATH": f"{MOTLEY.parent}:{os.environ['PATH']}",
                                            "PYTHONPATH": str(REPOSITORY / "python")})
        path.start()
        self.addCleanup(path.stop)

    def test_a_file_is_scored(self):
        with tempfile.TemporaryDirectory() as folder:
            lines = Path(folder, "lines.txt")
            lines.write_text("software: (noun) the parts of a computer that can't be kicked\n\nThe sea\n")
            done = subprocess.run([sys.executable, EXAMPLES / "score_file.py", "--model", MODEL, "--adapter",
                                   ADAPTERS / "jargon", "--device", "cpu", lines], capture_output=True, text=True, check=False)
        self.assertEqual(done.returncode, 0, done.stderr)
        first, second = map(json.loads, done.stdout.splitlines())
        self.assertEqual(second["text"], "The sea")
        self.assertAlmostEqual(first["gain_a_token"], (first["adapter"] - first["base"]) / (first["tokens"] - 1))
        self.assertIn("2 lines, mean gain", done.stderr)

    def test_the_notebook_finds_each_adapters_own_texts(self):
        notebook = json.loads((EXAMPLES / "compare_adapters.ipynb").read_text())
        plot = mock.MagicMock()
        plot.subplots.return_value = (mock.MagicMock(), mock.MagicMock())
        modules = {"matplotlib": types.SimpleNamespace(pyplot=plot), "matplotlib.pyplot": plot}
        names: dict = {"__name__": "notebook"}
        before = os.getcwd()
        os.chdir(REPOSITORY)
        self.addCleanup(os.chdir, before)
        with mock.patch.dict(sys.modules, modules):
            for cell in notebook["cells"]:
                if cell["cell_type"] == "code":
                    exec(compile("".join(cell["source"]), "compare_adapters.ipynb", "exec"), names)
        plot.show.assert_called_once()
        gains = dict(zip(names["ADAPTERS"], names["gains"], strict=True))
        for column, kind in enumerate(names["KINDS"]):
            best = max(gains, key=lambda adapter: gains[adapter][column])
            self.assertTrue(gains[best][column] < 0.5 if kind == "base" else best == kind, (kind, gains))


if __name__ == "__main__":
    main()
