"""Runs the commands of docs/guide/serving.md and compares what they print, and docs/guide/supported.md with the program.

    guide_test.py MOTLEY REPOSITORY
"""

import os
import pathlib
import re
import shlex
import subprocess
import sys
import tempfile

sys.path.insert(0, str(pathlib.Path(__file__).resolve().parent.parent / "server"))

from server_process import ServerProcess  # noqa: E402

SERVER = "http://127.0.0.1:8000"
COMMAND_SECONDS = 300  # of one that computes


def commands(page: str) -> list[tuple[str, str]]:
    """Every command of the page's console blocks, and what it prints."""
    found: list[tuple[str, str]] = []
    for block in re.findall(r"^```console\n(.*?)^```$", page, flags=re.DOTALL | re.MULTILINE):
        for part in re.split(r"^\$ ", block, flags=re.MULTILINE)[1:]:
            command, _, printed = part.partition("\n")
            found.append((command, printed))
    return found


def matches(wanted: str, printed: str) -> bool:
    """A line of dots stands for any lines, dots within a line for anything on it."""
    pattern = ""
    for line in wanted.splitlines():
        if line == "...":
            pattern += r"(?:.*\n)*?"
        else:
            pattern += ".*?".join(re.escape(part) for part in line.split("...")) + r"\n"
    return re.fullmatch(pattern, printed if printed.endswith("\n") or not printed else printed + "\n") is not None


class Guide:
    def __init__(self, motley: pathlib.Path, repository: pathlib.Path, folder: pathlib.Path) -> None:
        (folder / "models").symlink_to(repository / "models")
        self.motley, self.folder = motley, folder
        self.environment = os.environ | {"PATH": f"{motley.parent}:{os.environ['PATH']}"}
        self.server: ServerProcess | None = None
        self.address = ""

    def start(self, command: str) -> str:
        """A server goes on until the next one; its first line is what it prints."""
        if self.end() != 0:
            return "(the server before it failed)"
        model, *options = shlex.split(command)[2:]
        try:
            self.server = ServerProcess(self.motley, model, *options, "--device", "cpu", cwd=self.folder)
        except RuntimeError as error:
            return str(error)
        self.address = self.server.url
        return self.server.first_line.replace(self.address, SERVER)

    def run(self, command: str) -> str:
        if command.startswith("motley serve"):
            return self.start(command)
        done = subprocess.run(
            ["bash", "-c", command.replace(SERVER, self.address)],
            cwd=self.folder, env=self.environment, capture_output=True, text=True, timeout=COMMAND_SECONDS,
        )
        if done.returncode != 0:
            return f"{done.stdout}(status {done.returncode})\n{done.stderr}"
        return done.stdout

    def end(self) -> int:
        if self.server is None:
            return 0
        server, self.server = self.server, None
        status = server.end()
        server.close()
        return status


def run_guide(motley: pathlib.Path, repository: pathlib.Path) -> list[str]:
    wrong = []
    page = (repository / "docs/guide/serving.md").read_text()
    found = commands(page)
    with tempfile.TemporaryDirectory() as folder:
        guide = Guide(motley, repository, pathlib.Path(folder))
        try:
            for command, wanted in found:
                printed = guide.run(command)
                if not matches(wanted, printed):
                    wrong.append(f"$ {command}\nthe guide says:\n{wanted}\nand it prints:\n{printed}")
        finally:
            status = guide.end()
        if status != 0:
            wrong.append(f"the server ends with status {status}")
    if len(found) < 8:
        wrong.append(f"only {len(found)} commands in the guide")
    return wrong


def sections(text: str) -> dict[str, str]:
    return {part.partition("\n")[0]: part.partition("\n")[2].strip() for part in text.split("### ")[1:]}


def compare_tables(motley: pathlib.Path, repository: pathlib.Path) -> list[str]:
    printed = subprocess.run([motley, "inspect", "--supported"], capture_output=True, text=True, check=True).stdout
    page, program = sections((repository / "docs/guide/supported.md").read_text()), sections(printed)
    wrong = [] if page.keys() == program.keys() else [f"supported.md has {[*page]}, and the program {[*program]}"]
    for heading, table in program.items():
        # A build without CUDA knows nothing of a GPU's backends.
        if "no CUDA" not in table and page.get(heading) != table:
            wrong.append(f"supported.md, {heading!r}: take over what motley inspect --supported prints:\n{table}")
    return wrong


def main() -> int:
    motley, repository = (pathlib.Path(word).resolve() for word in sys.argv[1:3])
    wrong = compare_tables(motley, repository) + run_guide(motley, repository)
    for each in wrong:
        print(each)
    return 1 if wrong else 0


if __name__ == "__main__":
    sys.exit(main())
