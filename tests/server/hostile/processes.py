"""The server under attack as a process: its start, its memory, its end."""

import ctypes
import fcntl
import http.client
import os
import resource
import signal
import subprocess
import time
from dataclasses import dataclass, field
from pathlib import Path

from server_process import WAIT_SECONDS, ServerProcess, until

MEGABYTE = 1 << 20
SET_PIPE_SIZE = getattr(fcntl, "F_SETPIPE_SZ", 1031)
PARENT_DIES = 1  # PR_SET_PDEATHSIG
NEW_MOUNTS, PRIVATE = 0x20000, 0x44000  # CLONE_NEWNS, MS_REC | MS_PRIVATE
LIBC = ctypes.CDLL(None, use_errno=True)


@dataclass
class Settings:
    """What one run of the suite works with."""
    motley: Path
    model: Path
    scratch: Path
    sanitized: bool = False
    quick: bool = False
    timed: bool = False  # the machine has no other work: times and resident memory are judged
    known_options: frozenset = frozenset()
    processors: tuple = ()

    def __post_init__(self):
        usage = subprocess.run([self.motley, "serve", "--help"], capture_output=True, text=True)
        self.known_options = frozenset(
            word for word in usage.stdout.split() if word.startswith("--"))
        # The suite promises its limits on two processors.
        self.processors = tuple(sorted(os.sched_getaffinity(0))[-2:])

    def patience(self, seconds: float) -> float:
        """A limit in seconds, longer for builds that sanitizers slow down."""
        return seconds * 6 if self.sanitized else seconds


def anonymous_bytes(pid: int) -> int:
    """RssAnon, what forked processes share counted in parts."""
    try:
        rollup = Path(f"/proc/{pid}/smaps_rollup").read_text()
        return int(rollup[rollup.index("Pss_Anon:"):].split(None, 2)[1]) << 10
    except (OSError, ValueError):
        return 0  # it has ended


def is_running(pid: int) -> bool:
    try:
        return "Z" not in Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False


def descendants(pid: int) -> list[int]:
    """The process and all that it has started, and those have."""
    found, tasks = [pid], Path(f"/proc/{pid}/task")
    try:
        lists = [(task / "children").read_text() for task in tasks.iterdir()]
    except (FileNotFoundError, ProcessLookupError):
        return found
    for child in {int(word) for text in lists for word in text.split()}:
        found += descendants(child)
    return found


def mount_disk(folder: Path, size: int) -> None:
    """A disk that this process and its children see."""
    if LIBC.unshare(NEW_MOUNTS) or LIBC.mount(None, b"/", None, PRIVATE, None) or \
            LIBC.mount(b"small", str(folder).encode(), b"tmpfs", 0, f"size={size}".encode()):
        raise OSError(ctypes.get_errno(), "a small disk could not be mounted")


@dataclass
class Launch:
    """How a server is started for an attack."""
    options: tuple = ()
    optional: tuple = ()  # (option, value): given where the program knows the option
    memory_limit: int = 0  # of address space, in bytes
    log_pipe: bool = False  # standard error is a pipe that is read when the attack reads it
    adapters: tuple = ("cynic", "jargon")
    extra: dict = field(default_factory=dict)  # an option's value that depends on the scratch folder
    small_disk: tuple = ()  # (folder, bytes): a disk of its own for the server alone, which ends with it


class Server(ServerProcess):
    def __init__(self, settings: Settings, launch: Launch, folder: Path):
        self.settings, self.folder = settings, folder
        self.log_reader = log_writer = None
        if launch.log_pipe:
            self.log_reader, log_writer = os.pipe()
            fcntl.fcntl(log_writer, SET_PIPE_SIZE, 8192)  # full after a few dozen lines
        options = ["--device", "cpu", "--compute", "f32", "--name", "base", *launch.options]
        for name in launch.adapters:
            options += ["--adapter", f"{name}={folder}/adapters/{name}"]
        for option, value in launch.optional:
            if option in settings.known_options:
                options += [option] + ([value] if value else [])

        def prepare():
            LIBC.prctl(PARENT_DIES, signal.SIGKILL)
            os.sched_setaffinity(0, settings.processors)
            if launch.small_disk:
                mount_disk(*launch.small_disk)
            if launch.memory_limit:
                resource.setrlimit(resource.RLIMIT_AS, (launch.memory_limit, launch.memory_limit))

        super().__init__(settings.motley, folder / "model", *options, stderr=log_writer, before=prepare)
        if log_writer is not None:
            os.close(log_writer)

    def log_text(self) -> str:
        return "" if self.log_reader is not None else self.lines()

    def memory(self) -> int:
        """Anonymous memory of the server and of its helpers."""
        return sum(anonymous_bytes(pid) for pid in descendants(self.pid))

    def get(self, path: str, seconds: float = WAIT_SECONDS, headers: dict = {}) -> tuple[int, str]:
        """The status, 0 where no answer came, and the body."""
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=seconds,
                                                source_address=("127.0.0.3", 0))
        try:
            connection.request("GET", path, headers=headers)
            response = connection.getresponse()
            return response.status, response.read().decode()
        except (OSError, http.client.HTTPException) as error:
            return 0, f"{type(error).__name__}: {error}"
        finally:
            connection.close()

    def end(self) -> tuple[float, str]:
        """SIGTERM: the seconds that the exit took, and what was wrong with it."""
        helpers, began = descendants(self.pid)[1:], time.monotonic()
        try:
            status = super().end()
            took = time.monotonic() - began
            # They look every few milliseconds whether the server is still there.
            until("the end of the server's helpers", lambda: not any(is_running(pid) for pid in helpers),
                  lambda: [pid for pid in helpers if is_running(pid)])
        except AssertionError as error:
            return time.monotonic() - began, str(error)
        return took, "" if status == 0 else f"exit status {status} after SIGTERM"

    def close(self) -> None:
        super().close()
        if self.log_reader is not None:
            os.close(self.log_reader)
            self.log_reader = None
