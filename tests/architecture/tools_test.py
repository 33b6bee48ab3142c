#!/usr/bin/env python3
"""The tools that decide what the gate builds, checks and reports, on trees and programs made here: tools_test.py ROOT"""

import pathlib
import shutil
import subprocess
import sys
import tempfile
import unittest

ROOT = pathlib.Path(sys.argv.pop(1)).resolve()


def run(*words, cwd=None):
    return subprocess.run([str(word) for word in words], cwd=cwd, capture_output=True, text=True)


class Folder(unittest.TestCase):
    def setUp(self):
        folder = tempfile.TemporaryDirectory()
        self.addCleanup(folder.cleanup)
        self.folder = pathlib.Path(folder.name).resolve()

    def write(self, name, text):
        path = self.folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)
        return path


class RunShard(Folder):
    """A program that prints as GoogleTest does."""

    def shard(self, body, *options):
        program = self.write("some_tests", "#!/bin/sh\n" + body)
        program.chmod(0o755)
        return run(ROOT / "tools/run_shard.py", "--times", self.folder / "times", *options, program)

    RUN = "echo '[ RUN      ] A.B'\n"

    def test_drops_the_output_of_tests_that_pass(self):
        done = self.shard(self.RUN + "echo words\necho '[       OK ] A.B (12 ms)'\n")
        self.assertEqual((done.returncode, done.stdout), (0, "some_tests: 1 tests passed in 0.0 s\n"))
        self.assertEqual((self.folder / "times/some_tests.0.json").read_text(), '{"A.B": 12}')

    def test_leaves_out_what_is_listed_as_slow(self):
        slow = self.write("slow.txt", "# why\nA.B\nC.D\n")
        body = self.RUN + 'echo "$@"\n' + "echo '[  FAILED  ] A.B (12 ms)'\nexit 1\n"
        self.assertIn(" --gtest_filter=-A.B:*/A.B/*:C.D:*/C.D/*\n", self.shard(body, "--slow", slow).stdout)
        models = self.write("models.txt", "*/awq\n")
        self.assertIn(" --gtest_filter=-A.B:*/A.B/*:C.D:*/C.D/*:*/awq\n",
                      self.shard(body, "--slow", slow, "--slow", models).stdout)

    def test_shows_a_test_that_fails(self):
        done = self.shard(self.RUN + "echo a differs from b\necho '[  FAILED  ] A.B (12 ms)'\n"
                          "echo '[  FAILED  ] A.B'\nexit 1\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("a differs from b", done.stdout)
        self.assertIn("1 of 1 tests failed\n  A.B", done.stdout)

    def test_reads_parameters_of_a_failed_test(self):
        done = self.shard("echo '[ RUN      ] A.B/0'\n"
                          "echo '[  FAILED  ] A.B/0, where GetParam() = \"(x)\" (3 ms)'\nexit 1\n")
        self.assertIn("1 of 1 tests failed\n  A.B/0", done.stdout)

    def test_names_a_test_that_ends_the_program(self):
        done = self.shard(self.RUN + "echo last words\nkill -SEGV $$\n")
        self.assertEqual(done.returncode, 1)
        self.assertIn("last words", done.stdout)
        self.assertIn("ended by signal SIGSEGV in A.B", done.stdout)

    def test_names_a_test_that_hangs(self):
        done = self.shard(self.RUN + "exec sleep 1000\n", "--hang", "0.2")
        self.assertEqual(done.returncode, 1)
        self.assertIn("A.B did not end in 0 s: it hangs", done.stdout)

    def test_a_program_without_tests_fails(self):
        self.assertEqual(self.shard("exit 0\n").returncode, 1)

    def test_gives_the_program_its_shard(self):
        done = self.shard(self.RUN + "echo \"$GTEST_SHARD_INDEX of $GTEST_TOTAL_SHARDS\"\nkill -ABRT $$\n",
                          "--shard", "2", "--of", "5")
        self.assertIn("2 of 5", done.stdout)


class SlowestTests(Folder):
    """What ctest and the shards left in a build."""

    def test_of_cases_and_commands_with_what_comes_near_its_limit(self):
        self.write("CTestTestfile.cmake", "add_test(far true)\nadd_test(near true)\nadd_test(some_tests.1of1 true)\n"
                   "set_tests_properties(far near PROPERTIES TIMEOUT 10)\n")
        self.write("tests.xml", '<testsuite><testcase name="far" time="4.9"/><testcase name="near" time="5.1"/>'
                   '<testcase name="some_tests.1of1" time="901"/></testsuite>')
        self.write("test_times/some_tests.0.json", '{"A.B": 400000, "A.C": 500000, "A.D": 1000}')
        done = run(ROOT / "tools/slowest_tests.py", self.folder)
        self.assertEqual(done.stdout.splitlines(), [
            "3 cases and 2 commands; the slowest, in seconds:",
            "   500.0  some_tests A.C", "   400.0  some_tests A.B", "     5.1  near", "     4.9  far", "     1.0  some_tests A.D",
            "warning: some_tests A.C took 500 s of the 900 s that it may take",
            "warning: near took 5 s of the 10 s that it may take"])


class Together(Folder):
    def groups(self, most, *texts):
        paths = [self.write(f"{i}.cc", text) for i, text in enumerate(texts)]
        return run(sys.executable, ROOT / "tools/together.py", most, *paths).stdout.split()

    def test_files_that_declare_one_name_are_apart(self):
        self.assertEqual(self.groups(9, "struct A {};\n", "int f() {}\n", "class A final : B {};\n", "int g() {}\n"),
                         ["0", "0", "1", "0"])

    def test_a_group_has_at_most_so_many(self):
        self.assertEqual(self.groups(2, "int a;\n", "int b;\n", "int c;\n"), ["0", "0", "1"])


class Changed(Folder):
    """A repository with the tools, whose tree passed, and then changes."""

    def setUp(self):
        super().setUp()
        (self.folder / "tools").mkdir()
        for name in ("changed.py", "changed_cuda.py", "lint.py", "together.py"):
            shutil.copy(ROOT / "tools" / name, self.folder / "tools" / name)
        self.write("src/base/error.h", "#pragma once\n")
        self.write("src/base/error.cc", '#include "base/error.h"\n')
        self.write("src/kernels/cuda/a.cuh", '#pragma once\n#include "kernels/cuda/b.cuh"\n')
        self.write("src/kernels/cuda/b.cuh", "#pragma once\n")
        self.write("src/kernels/cuda/a.cu", '#include "kernels/cuda/a.cuh"\n')
        self.write("src/kernels/cuda/c.cu", "int c;\n")
        self.write("tests/gpu/a_test.cc", '#include "base/error.h"\n')
        self.git("init", "-q")
        self.commit("files")
        self.write(".ci/whole/cuda", "passed\n")
        self.commit("passed")

    def git(self, *words):
        done = run("git", "-c", "user.name=a", "-c", "user.email=a@example.org", *words, cwd=self.folder)
        self.assertEqual(done.returncode, 0, done.stderr)

    def commit(self, why):
        self.git("add", "-A")
        self.git("commit", "-q", "-m", why)

    def cuda(self):
        done = run(sys.executable, self.folder / "tools/changed_cuda.py")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.split()

    def tidy(self):
        """What clang-tidy reads; all where that can't be said."""
        done = run(sys.executable, "-c", "import lint; files = lint.wanted_files(lint.code_files(lint.ROOT))\n"
                   "print(*sorted(map(str, ['all'] if files is None else files)))", cwd=self.folder / "tools")
        self.assertEqual(done.returncode, 0, done.stderr)
        return done.stdout.replace(f"{self.folder}/", "").split()

    def test_clang_tidy_reads_what_changed_and_what_includes_it(self):
        self.assertEqual(self.tidy(), ["all"], "nothing says that a whole run passed")
        self.write(".ci/whole/tidy", "passed\n")
        self.commit("passed")
        self.assertEqual(self.tidy(), [])
        self.write("src/base/error.cc", '#include "base/error.h"\nint e;\n')
        self.assertEqual(self.tidy(), ["src/base/error.cc"])
        self.write("src/base/error.h", "#pragma once\nint f;\n")
        self.assertEqual(self.tidy(), ["src/base/error.cc", "tests/gpu/a_test.cc"])
        self.write(".clang-tidy", "Checks: '*'\n")
        self.assertEqual(self.tidy(), ["all"])

    def test_nothing_changed(self):
        self.assertEqual(self.cuda(), [])

    def test_a_source_itself_committed_or_not(self):
        self.write("src/kernels/cuda/c.cu", "int d;\n")
        self.assertEqual(self.cuda(), ["src/kernels/cuda/c.cu"])
        self.commit("change")
        self.assertEqual(self.cuda(), ["src/kernels/cuda/c.cu"])

    def test_a_header_of_a_header(self):
        self.write("src/kernels/cuda/b.cuh", "#pragma once\nint b;\n")
        self.assertEqual(self.cuda(), ["src/kernels/cuda/a.cu"])

    def test_a_host_header_where_a_file_names_it(self):
        self.write("src/base/error.h", "#pragma once\nint e;\n")
        self.assertEqual(self.cuda(), ["tests/gpu/a_test.cc"])

    def test_a_new_source(self):
        self.write("src/kernels/cuda/d.cu", "int d;\n")
        self.assertEqual(self.cuda(), ["src/kernels/cuda/d.cu"])

    def test_a_new_record_is_a_new_begin(self):
        self.write("src/kernels/cuda/c.cu", "int d;\n")
        self.write(".ci/whole/cuda", "passed again\n")
        self.commit("change")
        self.assertEqual(self.cuda(), [])

    def test_without_a_record_everything_counts(self):
        self.git("rm", "-q", ".ci/whole/cuda")
        self.commit("no record")
        self.git("checkout", "-q", "--orphan", "other")
        self.commit("one commit")
        self.assertEqual(len(self.cuda()), 3)


if __name__ == "__main__":
    unittest.main()
