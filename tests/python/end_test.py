"""A server of motley.LLM ends with it, however that ends."""

import gc
import os
import signal
import stat
import subprocess
import sys
import threading
import unittest
from pathlib import Path

from harness import MODEL, OPTIONS, REPOSITORY, main, runs, until

import motley

START = f"""
import os, signal, sys, time
sys.path.insert(0, {str(REPOSITORY / "python")!r})
import motley
from motley.server_process import ServerProcess
OPTIONS = {({**OPTIONS, "program": str(OPTIONS["program"])})!r}
def show(*values):
    print(*values, flush=True)
def start():
    llm = motley.LLM({str(MODEL)!r}, **OPTIONS)
    show(llm._llm._server.pid, llm.url)
    return llm
"""


class Ends(unittest.TestCase):
    def script(self, body: str) -> tuple[subprocess.Popen, int, Path]:
        """A Python that has started a server: with the server's process and its socket's folder."""
        python = subprocess.Popen([sys.executable, "-c", START + body], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
        self.addCleanup(lambda: (python.kill(), python.wait(), python.stdout.close(), python.stderr.close()))
        line = python.stdout.readline()
        if not line:
            self.fail(python.stderr.read())
        pid, url = line.split()
        self.assertTrue(runs(int(pid)))
        return python, int(pid), Path(url.removeprefix("unix:")).parent

    def assert_ends(self, pid: int):
        until("the server's end", lambda: not runs(pid))

    def test_python_is_killed(self):
        python, pid, _ = self.script("llm = start(); time.sleep(1000)")
        python.kill()
        self.assert_ends(pid)

    def test_python_is_killed_while_it_generates(self):
        python, pid, _ = self.script("""
llm = start()
for piece in llm.stream("The sea", motley.SamplingParams(max_tokens=None, ignore_eos=True)):
    os.kill(os.getpid(), signal.SIGKILL)
""")
        self.assertEqual(python.wait(), -signal.SIGKILL)
        self.assert_ends(pid)

    def test_python_is_killed_while_the_model_is_loaded(self):
        python, pid, _ = self.script(f"""
OPTIONS.pop("program")
server = ServerProcess({str(MODEL)!r}, {{}}, OPTIONS, program={str(OPTIONS["program"])!r})
show(server.pid, server.url)
time.sleep(1000)
""")
        python.kill()
        self.assert_ends(pid)

    def test_python_is_killed_and_leaves_a_forked_child(self):
        python, pid, _ = self.script("""
llm = start()
if os.fork() == 0:
    show(os.getpid())
    time.sleep(1000)
time.sleep(1000)
""")
        child = int(python.stdout.readline())
        self.addCleanup(os.kill, child, signal.SIGKILL)
        python.kill()
        self.assert_ends(pid)
        self.assertTrue(runs(child))

    def test_a_forked_child_ends_nothing_and_says_what_to_do(self):
        python, pid, folder = self.script("""
llm = start()
child = os.fork()
if child == 0:
    try:
        llm.generate("a")
    except motley.MotleyError as error:
        show(error)
    llm.close()
    del llm
    sys.exit(0)  # with all that is done at the end of a process
os.waitpid(child, 0)
show(len(llm.generate("a")))
""")
        self.assertIn("make an LLM(url=...)", python.stdout.readline())
        self.assertEqual(python.stdout.readline(), "1\n")
        self.assertEqual((python.wait(), python.stderr.read()), (0, ""))
        self.assertFalse(runs(pid))

    def test_python_ends_without_a_close(self):
        for end, status in (("", 0), ("sys.exit(3)", 3), ("raise ValueError", 1)):
            python, pid, folder = self.script(f"llm = start()\n{end}")
            self.assertEqual(python.wait(), status)
            self.assertFalse(runs(pid), "Python waits for its end")
            self.assertFalse(folder.exists())

    def test_an_interrupt_ends_what_waits(self):
        python, pid, folder = self.script("""
with start() as llm:
    show("begins")
    while True:
        llm.generate(["The sea"] * 100, motley.SamplingParams(max_tokens=None, ignore_eos=True))
""")
        python.stdout.readline()
        python.send_signal(signal.SIGINT)
        self.assertEqual(python.wait(), -signal.SIGINT)
        self.assertFalse(runs(pid))
        self.assertFalse(folder.exists())

    def test_the_last_reference_goes(self):
        llm = motley.LLM(MODEL, **OPTIONS)
        pid = llm._llm._server.pid
        del llm
        until("the server's end", lambda: (gc.collect(), not runs(pid))[1])
        until("the end of its thread", lambda: not [each for each in threading.enumerate() if each.name == "motley"])

    def test_a_server_that_is_killed_is_named(self):
        with motley.LLM(MODEL, **OPTIONS) as llm:
            os.kill(llm._llm._server.pid, signal.SIGKILL)
            with self.assertRaisesRegex(motley.MotleyError, "has ended with status -9"):
                until("the request's failure", lambda: llm.generate("a", motley.SamplingParams(max_tokens=1)) and None)

    def test_only_its_user_can_reach_it(self):
        with motley.LLM(MODEL, **OPTIONS) as llm:
            folder = Path(llm.url.removeprefix("unix:")).parent
            self.assertEqual(stat.S_IMODE(folder.stat().st_mode), 0o700)


if __name__ == "__main__":
    main()
