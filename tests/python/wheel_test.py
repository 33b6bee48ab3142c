"""The wheel: what is in it, and that pip installs it: wheel_test.py MOTLEY REPOSITORY

Run by a Python whose virtual environment has pip; needs no network.
"""

import base64
import csv
import hashlib
import os
import re
import subprocess
import sys
import tempfile
import unittest
import zipfile
from pathlib import Path

MOTLEY, REPOSITORY = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
MODEL = REPOSITORY / "models/demo"

USE = f"""
import motley
with motley.LLM({str(MODEL)!r}, device="cpu", kv_memory="64M") as llm:
    print(len(llm.generate("The sea", motley.SamplingParams(max_tokens=3, ignore_eos=True))[0].outputs[0].token_ids))
    print(motley.__file__, llm._llm._server._process.args[0])
"""


def run(*words, **how) -> str:
    done = subprocess.run([str(word) for word in words], capture_output=True, text=True, check=False, **how)
    if done.returncode != 0:
        raise AssertionError(f"{words}: status {done.returncode}: {done.stdout}{done.stderr}")
    return done.stdout


def make(folder: Path, program: Path = MOTLEY) -> Path:
    run(sys.executable, REPOSITORY / "tools/make_wheel.py", "--program", program, "--out", folder)
    (path,) = folder.glob("*.whl")
    return path


class Wheel(unittest.TestCase):
    @classmethod
    def setUpClass(cls):
        cls.scratch = tempfile.TemporaryDirectory()
        cls.addClassCleanup(cls.scratch.cleanup)
        cls.wheel = make(Path(cls.scratch.name) / "wheel")

    def test_its_name_says_which_glibc_it_needs(self):
        tag = re.fullmatch(r"motley-[\d.]+-py3-none-(manylinux_2_(\d+)_x86_64)\.whl", self.wheel.name)
        self.assertLessEqual(int(tag[2]), 34)
        with zipfile.ZipFile(self.wheel) as archive:
            (name,) = [name for name in archive.namelist() if name.endswith("/WHEEL")]
            self.assertIn(f"Tag: py3-none-{tag[1]}\n", archive.read(name).decode())

    def test_its_record_is_right(self):
        with zipfile.ZipFile(self.wheel) as archive:
            names = archive.namelist()
            self.assertEqual(len(names), len(set(names)))
            (record,) = [name for name in names if name.endswith("/RECORD")]
            rows = {name: (digest, size) for name, digest, size in csv.reader(archive.read(record).decode().splitlines())}
            self.assertEqual(rows.keys(), set(names))
            for name in set(names) - {record}:
                content = archive.read(name)
                digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).decode().rstrip("=")
                self.assertEqual(rows[name], (f"sha256={digest}", str(len(content))))
            sources = {f"motley/{path.name}" for path in (REPOSITORY / "python/motley").glob("*.py")}
            self.assertLessEqual(sources | {"motley/py.typed", "motley/bin/motley"}, set(names))

    def test_the_same_files_give_the_same_bytes(self):
        self.assertEqual(make(Path(self.scratch.name) / "again").read_bytes(), self.wheel.read_bytes())

    def test_what_is_no_program_is_refused(self):
        other = Path(self.scratch.name) / "text"
        other.write_text("no program")
        with self.assertRaises(AssertionError):
            make(Path(self.scratch.name) / "other", other)

    def test_pip_installs_it(self):
        place = Path(self.scratch.name) / "environment"
        run(sys.executable, "-m", "venv", "--without-pip", place)
        python = place / "bin/python"
        run(sys.executable, "-m", "pip", "--python", python, "install", "--disable-pip-version-check", "--no-index", self.wheel)
        # Nothing of this machine's but the environment.
        bare = {"PATH": f"{place}/bin:/usr/bin:/bin", "HOME": self.scratch.name, "TMPDIR": tempfile.gettempdir()}
        version = run(MOTLEY, "--version")
        self.assertEqual(run(place / "bin/motley", "--version", env=bare), version)
        self.assertEqual(run(python, "-m", "motley", "--version", env=bare), version)
        count, places = run(python, "-I", "-c", USE, env=bare).splitlines()
        self.assertEqual(count, "3")
        for path in places.split():
            self.assertTrue(path.startswith(f"{place}{os.sep}"), path)
        failed = subprocess.run([place / "bin/motley", "srve"], env=bare, capture_output=True, text=True, check=False)
        self.assertEqual(failed.returncode, 2)
        self.assertIn("serve", failed.stderr)


if __name__ == "__main__":
    unittest.main()
