"""Runs the Python of docs/guide/python.md, one block after the other, and compares what it prints with the text that follows."""

import contextlib
import io
import os
import re
import sys
import tempfile
import unittest
from pathlib import Path

from harness import MOTLEY, REPOSITORY, main

sys.path.insert(0, str(REPOSITORY / "tests/demo"))

from guide_test import matches  # noqa: E402

BLOCK = re.compile(r"^```python\n(.*?)^```$(?:\n\n```text\n(.*?)^```$)?", re.DOTALL | re.MULTILINE)


class Guide(unittest.TestCase):
    def test_the_code_prints_what_the_page_says(self):
        page = (REPOSITORY / "docs/guide/python.md").read_text()
        names: dict = {"__name__": "page"}
        with tempfile.TemporaryDirectory() as folder:
            Path(folder, "models").symlink_to(REPOSITORY / "models")
            os.environ["PATH"] = f"{MOTLEY.parent}:{os.environ['PATH']}"
            os.chdir(folder)
            blocks = BLOCK.findall(page)
            for code, wanted in blocks:
                with contextlib.redirect_stdout(io.StringIO()) as printed:
                    exec(compile(code, "python.md", "exec"), names)
                self.assertTrue(matches(wanted, printed.getvalue()), f"{code}\nprints:\n{printed.getvalue()}")
            os.chdir("/")
        self.assertGreaterEqual(len(blocks), 7)


if __name__ == "__main__":
    main()
