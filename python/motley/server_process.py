"""A server that belongs to this process: `motley serve` on a Unix socket that only this user can reach."""

from __future__ import annotations

import collections
import os
import pathlib
import shutil
import subprocess
import tempfile
import threading
import weakref
from collections.abc import Mapping
from typing import Any, TextIO

from .errors import StartError
from .program import find_program

LOG_LINES = 200  # that are kept for the message of a failure
END_SECONDS = 60.0  # for the server to end, before it is killed
LOG_SECONDS = 5.0  # for the last lines of its log, which a process that it started may keep open
LONGEST_PATH = 100  # of a Unix socket; the system's limit is 107 bytes

_inputs: weakref.WeakSet[Any] = weakref.WeakSet()


def _close_inputs() -> None:
    """In a forked child: the server ends with its parent, however long the child lives."""
    for stream in _inputs:
        stream.close()


os.register_at_fork(after_in_child=_close_inputs)


def option_words(options: Mapping[str, Any]) -> list[str]:
    """Options of `serve`: `kv_memory="4G"` is `--kv-memory 4G`, True is the option alone, a list repeats it."""
    words: list[str] = []
    for name, value in options.items():
        flag = "--" + name.replace("_", "-")
        for each in value if isinstance(value, (list, tuple)) else [value]:
            if each is True:
                words.append(flag)
            elif each is not None and each is not False:
                words += [flag, str(each)]
    return words


def socket_folder() -> str:
    """A fresh folder that only this user may enter, with a path short enough for a socket in it."""
    folder = tempfile.mkdtemp(prefix="motley-")
    if len(os.fsencode(folder)) > LONGEST_PATH - len("/socket"):
        os.rmdir(folder)
        folder = tempfile.mkdtemp(prefix="motley-", dir="/tmp")
    return folder


class ServerProcess:
    """Starts at once; when it answers is for its clients to find out.

    It ends with `close()`, with the garbage collection of this object, and with this process, however that ends: the server
    watches the pipe of which this process holds the other end.
    """

    def __init__(self, model: str | os.PathLike[str], adapters: Mapping[str, Any], options: Mapping[str, Any], *,
                 program: str | os.PathLike[str] | None = None, log: TextIO | None = None) -> None:
        self._lines: collections.deque[str] = collections.deque(maxlen=LOG_LINES)
        command = [find_program(program), "serve", os.fspath(model)]
        for name, path in adapters.items():
            command += ["--adapter", f"{name}={os.fspath(path)}"]
        folder = socket_folder()
        self.url = f"unix:{folder}/socket"
        command += ["--listen", self.url, "--end-with-stdin", *option_words(options)]
        try:
            self._process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE,
                                             encoding="utf-8", errors="replace", start_new_session=True)
        except OSError as error:
            shutil.rmtree(folder, ignore_errors=True)
            raise StartError(f"can't start {command[0]}: {error.strerror}") from error
        _inputs.add(self._process.stdin)
        self._reader = threading.Thread(target=_read_log, args=(self._process.stderr, self._lines, log), daemon=True)
        self._reader.start()
        self._end = weakref.finalize(self, _end, os.getpid(), self._process, self._reader, pathlib.Path(folder))

    @property
    def pid(self) -> int:
        return self._process.pid

    def describe_end(self, patience: float = 0.0) -> str | None:
        """Why the server has ended, in its words; None: it has not, within so many seconds."""
        try:
            status = self._process.wait(patience)
        except subprocess.TimeoutExpired:
            return None
        self._reader.join(LOG_SECONDS)
        said = [line for line in self._lines if line.startswith("motley: ")]
        if said:
            return said[-1].removeprefix("motley: ").strip()
        return f"the server has ended with status {status}\n{''.join(self._lines)[-2000:]}".strip()

    def close(self) -> None:
        self._end()


def _read_log(stream: TextIO, lines: collections.deque[str], log: TextIO | None) -> None:
    with stream:
        for line in stream:
            lines.append(line)
            if log is not None:
                log.write(line)


def _end(owner: int, process: subprocess.Popen[str], reader: threading.Thread, folder: pathlib.Path) -> None:
    if os.getpid() != owner:  # a forked child, whose objects are copies
        return
    process.terminate()
    try:
        process.wait(END_SECONDS)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    reader.join(LOG_SECONDS)
    if process.stdin is not None:
        process.stdin.close()
    shutil.rmtree(folder, ignore_errors=True)
