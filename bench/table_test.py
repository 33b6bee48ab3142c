#!/usr/bin/env python3
"""What bench/table.py makes of measurements, with a program in place of `motley` and of `nvidia-smi`: table_test.py"""

import json
import os
import pathlib
import subprocess
import sys
import tempfile
import unittest

HERE = pathlib.Path(__file__).resolve().parent
sys.path.insert(0, str(HERE))

import table  # noqa: E402

# Prints what the cases of its options take, 1 ms for each sequence or prompt, times SPEED[n] in its n-th run.
MOTLEY = f"#!{sys.executable} -IS" + """
import json, os, pathlib, sys
words = dict(zip(sys.argv, sys.argv[1:]))
count = pathlib.Path(__file__).with_name("runs.txt")
runs = len(count.read_text().splitlines()) if count.is_file() else 0
with count.open("a") as file:
    file.write(" ".join(sys.argv[1:]) + "\\n")
speed = json.loads(os.environ["SPEED"])
factor = speed[min(runs, len(speed) - 1)]
def case(phase, sequences, tokens, adapters):
    print(json.dumps({"phase": phase, "sequences": sequences, "tokens": tokens, "adapters": adapters,
                      "step_seconds": 1e-3 * sequences * factor * (1.25 if adapters else 1), "over_floor": 2 * factor}))
for adapters in map(int, words["--adapters"].split(",")):
    if words["--batch"] != "none":
        for batch in map(int, words["--batch"].split(",")):
            if adapters <= batch:
                case("decode", batch, 1, adapters)
    if words["--prefill"] != "none":
        case("prefill", 8, 1024, adapters)
"""
NVIDIA_SMI = "#!/bin/sh\necho 'NVIDIA H900 80GB, 580.1'\n"


class Judging(unittest.TestCase):
    def test_counts_what_moved_by_more_than_the_limit(self):
        self.assertEqual([table.judge([now], [100.0]).mark for now in (101.9, 102.1, 98.1, 97.9)],
                         ["", "SLOWER", "", "faster"])

    def test_compares_the_best_of_repeats(self):
        self.assertEqual(table.judge([103.0, 101.5], [100.0]), (101.5 / 100 - 1, ""))
        self.assertEqual(table.judge([103.0, 103.1], [101.0, 100.0]).mark, "SLOWER")

    def test_what_scatters_is_noisy(self):
        self.assertEqual(table.judge([104.0, 107.0], [100.0]).mark, "noisy")
        self.assertEqual(table.judge([104.0], [100.0, 103.0]).mark, "noisy")
        self.assertEqual(table.judge([100.0, 103.0], [100.0]).mark, "noisy")

    def test_what_moves_by_more_than_twice_its_scatter_is_not_noisy(self):
        self.assertEqual(table.judge([107.0, 110.1], [100.0]).mark, "SLOWER")
        self.assertEqual(table.judge([90.0, 93.0], [100.0]).mark, "faster")

    def test_sees_that_the_card_itself_is_slower(self):
        stored = {name: table.Line([4.0], 2.0) for name in "abc"}
        now = {name: table.Line([ms], 2.0) for name, ms in (("a", 4.4), ("b", 4.4), ("d", 9.0))}
        self.assertAlmostEqual(table.floors_moved(now, stored), 0.1)

    def test_a_missing_line_fails_and_a_new_one_does_not(self):
        lines = {name: table.Line([1.0], 2.0) for name in ("a", "b")}
        self.assertEqual(table.failures({"a": lines["a"]}, lines), ["b"])
        self.assertEqual(table.failures(lines, {"a": lines["a"]}), [])


class Lines(unittest.TestCase):
    def test_keeps_all_times_and_the_ratio_of_the_best(self):
        line = table.Line()
        for ms, over in ((5.0, 2.5), (4.0, 2.0), (6.0, 3.0)):
            line.add(ms, over)
        self.assertEqual((line.ms, line.best, line.over), ([5.0, 4.0, 6.0], 4.0, 2.0))

    def test_no_two_cases_have_one_name(self):
        names = [group.line(case) for group in table.GROUPS for case in table.cases_of(group)]
        self.assertEqual(len(names), len(set(names)))

    def test_what_a_line_is_a_part_of_is_measured(self):
        names = {group.line(case) for group in table.GROUPS for case in table.cases_of(group)}
        bases = {table.base_of(group, case) for group in table.GROUPS for case in table.cases_of(group)} - {""}
        self.assertEqual(bases - names, set())


class Groups(unittest.TestCase):
    GROUP = table.Group("a", "--shape tiny", (1, 8, 64), ("8x1024",), (0, 1, 4))

    def test_has_no_case_with_more_adapters_than_sequences(self):
        sizes = [(case.size, case.adapters) for case in table.cases_of(self.GROUP)]
        self.assertEqual(sizes, [("1", 0), ("1", 1), ("8", 0), ("8", 1), ("8", 4), ("64", 0), ("64", 1), ("64", 4),
                                 ("8x1024", 0), ("8x1024", 1), ("8x1024", 4)])

    def test_is_repeated_with_memory_laid_out_as_before(self):
        some = self.GROUP.only([table.Case("1", 1)])
        self.assertEqual((some.batches, some.prompts, some.adapters), ((1, 64), (), (0, 1, 4)))
        some = self.GROUP.only([table.Case("8x1024", 0)])
        self.assertEqual((some.batches, some.prompts, some.adapters), ((), ("8x1024",), (0, 4)))

    def test_becomes_smaller_where_memory_ends(self):
        self.assertEqual(self.GROUP.smaller("error: 4 adapters take 9 GB, and 1 GB are left").adapters, (0, 1))
        self.assertEqual(self.GROUP.smaller("keys and values of 64 sequences take 9 GB").batches, (1, 8))
        self.assertIsNone(self.GROUP.smaller("the weights take 60 GB, and 1 GB are left"))


class Runs(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name)
        for name, text in (("motley", MOTLEY), ("nvidia-smi", NVIDIA_SMI)):
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o755)

    def table(self, *options, speed=(1.0,)):
        """Runs the script; its commands' n-th takes speed[n] times as long, later ones the last's."""
        (self.folder / "runs.txt").unlink(missing_ok=True)
        return subprocess.run(
            [sys.executable, HERE / "table.py", self.folder / "motley", *options], capture_output=True, text=True,
            env={**os.environ, "PATH": f"{self.folder}:{os.environ['PATH']}", "SPEED": json.dumps(speed)})

    def stored(self, **changed):
        path = self.folder / "stored.json"
        self.assertEqual(self.table("--output", path, "--commit", "abc").returncode, 0)
        return path

    def test_writes_a_table_that_can_be_compared(self):
        path = self.stored()
        written = json.loads(path.read_text())
        self.assertEqual((written["card"], written["driver"], written["commit"]), ("NVIDIA H900 80GB", "580.1", "abc"))
        self.assertEqual(written["lines"]["bf16, 48 layers: decode 8, 4 adapters"], {"ms": [10.0], "over": 2.0})
        done = self.table("--compare", path)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn("0 slower, 0 faster, 0 noisy, 0 missing", done.stdout)
        self.assertRegex(done.stdout, r"decode 8, 4 adapters +10\.000 +2\.00 +80 % kept +10\.000 +\+0\.0 %")
        self.assertRegex(done.stdout, r"batch-invariant\n +decode 1 +1\.000 +2\.00 +1\.00 times")

    def test_measures_what_moved_once_more(self):
        path = self.stored()
        groups = len(table.GROUPS)
        done = self.table("--compare", path, speed=[1.03] + [1.0] * groups)
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertEqual(len((self.folder / "runs.txt").read_text().splitlines()), groups + 1)
        self.assertIn("0 slower, 0 faster, 31 noisy", done.stdout)
        done = self.table("--compare", path, speed=[1.1] + [1.0] * (groups - 1) + [1.1])
        self.assertEqual(done.returncode, 1, done.stdout + done.stderr)
        self.assertIn("31 slower, 0 faster, 0 noisy", done.stdout)

    def test_faster_is_no_failure(self):
        done = self.table("--compare", self.stored(), speed=[0.9])
        self.assertEqual(done.returncode, 0, done.stdout + done.stderr)
        self.assertIn(" 0 slower, ", done.stdout)
        self.assertNotIn(" 0 faster, ", done.stdout)

    def test_begins_nothing_when_the_time_is_over(self):
        done = self.table("--compare", self.stored(), "--seconds", "0")
        self.assertEqual(done.returncode, 1)
        self.assertIn("bf16, 48 layers: no time is left", done.stderr)
        self.assertRegex(done.stdout, r"decode 1 +-  MISSING")

    def test_refuses_the_table_of_another_card(self):
        path = self.stored()
        path.write_text(path.read_text().replace("H900", "H901"))
        done = self.table("--compare", path)
        self.assertIn("measured on NVIDIA H901 80GB, and this is NVIDIA H900 80GB", done.stderr)
        self.assertEqual(done.returncode, 1)

    def test_refuses_what_is_no_table(self):
        path = self.folder / "other.json"
        path.write_text("[]")
        self.assertIn("no table", self.table("--compare", path).stderr)


if __name__ == "__main__":
    unittest.main()
