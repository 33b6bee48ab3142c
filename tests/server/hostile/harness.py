"""Runs one attack and judges what the server and its neighbours made of it: statuses, life, answers, accounts, the exit.

Nothing here judges by the clock or by resident memory (timed.py does).
"""

import multiprocessing
import os
import shutil
import sys
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Callable

from attacker import Attacker
from neighbours import REQUESTS, TIMED, Neighbours, Times
from processes import MEGABYTE, Launch, Server, Settings

from server_process import WAIT_SECONDS, until

ATTACK_SECONDS = 400  # an attack that lasts longer hangs
RIGHT_ANSWERS = 3  # of each neighbour after an attack
# What the server counts as held, and gives back when requests have ended.
HELD = ("motley_request_memory_bytes", "motley_http_body_bytes", "motley_sequences_running", "motley_sequences_waiting",
        "motley_kv_pages_used", "motley_grammars_queued", "motley_push_memory_bytes")
USED, LIMIT = "motley_request_memory_bytes", "motley_request_memory_limit_bytes"


@dataclass
class Attack:
    name: str
    run: Callable[[Attacker], None]
    statuses: frozenset  # that its requests may get
    launch: Launch = field(default_factory=Launch)
    needs: str = ""  # an option without which there is nothing to test
    # Before the server starts: writes into the scratch folder, and adds to how it is launched.
    before: Callable[[Path, Launch, bool], None] | None = None
    keys: tuple = ()  # of the server; the neighbours have the first
    attacker_has_key: bool = True
    neighbours_judged: bool = True
    may_die: bool = False  # with a word about why, which `after` looks for
    once: bool = False  # not again for LEAST_SECONDS
    health_after: int = 200
    after: Callable[["Judgement", Server], None] | None = None  # looks at the server from outside
    in_sanitized: bool = True
    # With --timed:
    max_seconds: float = 60
    peak: int = 0  # bytes that it may take meanwhile; 0: not judged
    times_judged: bool = True
    in_rounds: bool = True  # may share a server with others

    def shares_server(self) -> bool:
        return self.in_rounds and self.launch == Launch() and not (self.before or self.keys)


@dataclass
class Judgement:
    name: str
    failures: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    statuses: Counter = field(default_factory=Counter)
    loud: dict = field(default_factory=dict)  # what neighbours saw during the attack
    seconds: float = 0
    # With --timed:
    quiet: dict = field(default_factory=dict)
    start_bytes: int = 0
    peak_bytes: int = 0
    left_bytes: int = 0
    exit_seconds: float | None = None
    slow: list = field(default_factory=list)  # failures that are times of neighbours

    def only_slow(self) -> bool:
        return 0 < len(self.slow) == len(self.failures)

    def fail(self, what: str) -> None:
        self.failures.append(what)

    def ratio(self, name: str) -> str:
        quiet, loud = self.quiet.get(name), self.loud.get(name)
        if not quiet or not loud or not loud.seconds:
            return "-"
        return f"{loud.median() / max(quiet.median(), 1e-4):.1f}/{loud.p90() / max(quiet.p90(), 1e-4):.1f}"


def assault(pipe, server: Server, attack: Attack, headers: dict, least_seconds: float) -> None:
    """The attacker's process."""
    os.nice(10)  # a client elsewhere would take no processor time from the server
    server.process.stdout = None
    attacker = Attacker(server, headers if attack.attacker_has_key else {"Content-Type": "application/json"})
    pipe.send("begun")
    end = time.monotonic() + least_seconds
    try:
        attack.run(attacker)
        while not attack.once and time.monotonic() < end and not attacker.failures:
            attack.run(attacker)
    except Exception as error:  # of the attack's own code, or a server that is gone
        attacker.fail(f"{type(error).__name__}: {error}")
    pipe.send((dict(attacker.statuses), attacker.failures, attacker.notes))


class Assault:
    def __init__(self, server: Server, attack: Attack, headers: dict, least_seconds: float = 0):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=assault, args=(theirs, server, attack, headers, least_seconds), daemon=True)
        self.process.start()
        theirs.close()
        self.pipe.recv()

    def report(self, seconds: float):
        """None where it goes on."""
        try:
            return self.pipe.recv() if self.pipe.poll(seconds) else None
        except EOFError:
            return {}, ["the attack's process ended"], []

    def close(self) -> None:
        self.process.kill()
        self.process.join()


class Match:
    """A server, its neighbours, and the attacks on it."""

    least_seconds = 0.0  # of an attack
    look_seconds = 0.1  # between two looks at the server during it

    def __init__(self, settings: Settings, attack: Attack, folder: Path):
        self.settings, self.folder = settings, folder
        folder.mkdir()
        shutil.copytree(settings.model, folder / "model", ignore=shutil.ignore_patterns("adapters"))
        shutil.copytree(settings.model / "adapters", folder / "adapters")
        options, optional = list(attack.launch.options), list(attack.launch.optional)
        options += ["--allow-adapter-loading", "--adapter-root", folder / "adapters"]
        optional.append(("--drain-timeout", "3" if settings.timed else "1"))
        launch = Launch(**{**attack.launch.__dict__, "options": tuple(options), "optional": tuple(optional)})
        self.headers = {"Content-Type": "application/json"}
        if attack.keys:
            (folder / "keys").write_text("\n".join(attack.keys) + "\n")
            launch.options += ("--api-key-file", folder / "keys")
            self.headers["Authorization"] = f"Bearer {attack.keys[0]}"
        if attack.before is not None:
            attack.before(folder, launch, settings.timed)
        self.server, self.neighbours = Server(settings, launch, folder), None
        try:
            self.files_before = self.server.held()["files"]
            self.neighbours = Neighbours(self.server.port, self.headers)
            self.prepare()
        except BaseException:
            self.close()
            raise

    # What timed.py adds to.

    def prepare(self) -> None:
        """Once the neighbours are there."""

    def begin(self, attack: Attack) -> Judgement:
        return Judgement(attack.name)

    def look(self, verdict: Judgement) -> None:
        """Again and again during the attack: what is accounted stays within its limit."""
        accounts = self.accounts()
        if not verdict.failures and accounts and accounts[USED] > accounts[LIMIT]:
            verdict.fail(f"{accounts[USED]:.0f} bytes are accounted, {accounts[LIMIT]:.0f} are allowed")

    def judge_more(self, attack: Attack, verdict: Judgement) -> None:
        """After the attack, of a server that lives: what is accounted is given back where the server rests."""
        def left() -> dict[str, float]:
            accounts = self.accounts()
            return {name: accounts.get(name) for name in HELD if accounts.get(name) != 0}

        self.neighbours.ask("rest")
        try:
            until("the server's accounts to be empty", lambda: not left(), left)
            # Neighbours keep their connections.
            most = self.files_before + len(REQUESTS)
            until(f"at most {most} open files", lambda: self.server.held()["files"] <= most, self.server.held)
        except AssertionError as error:
            verdict.fail(str(error))
        self.neighbours.ask("wake")

    def limit(self, attack: Attack) -> float:
        return ATTACK_SECONDS

    # The same for all.

    def accounts(self) -> dict[str, float]:
        """The metrics; none where no answer came."""
        status, text = self.server.get("/metrics", headers=self.headers)
        lines = [line.rsplit(" ", 1) for line in text.splitlines() if line and not line.startswith("#")]
        return {name: float(value) for name, value in lines} if status == 200 else {}

    def play(self, attack: Attack) -> Judgement:
        verdict = self.begin(attack)
        began = time.monotonic()
        self.neighbours.times()
        fight = Assault(self.server, attack, self.headers, self.least_seconds)
        report = self.wait(fight, attack, verdict)
        verdict.seconds = time.monotonic() - began
        fight.close()
        verdict.loud = self.neighbours.times()
        if report is None and self.server.alive():
            verdict.fail(f"requests of the attack still without an answer after {verdict.seconds:.0f} s")
        elif report is not None:
            verdict.statuses, failures, verdict.notes = Counter(report[0]), report[1], report[2]
            verdict.failures += failures
            odd = {status: count for status, count in report[0].items() if status not in attack.statuses}
            if odd:
                verdict.fail(f"statuses {odd} (0: no answer) are not among {sorted(attack.statuses, key=str)}")
        if attack.after is not None:
            attack.after(verdict, self.server)
        self.judge_server(attack, verdict)
        return verdict

    def wait(self, fight: Assault, attack: Attack, verdict: Judgement):
        end, report = time.monotonic() + self.limit(attack), None
        while report is None and time.monotonic() < end and self.server.alive():
            report = fight.report(self.look_seconds)
            self.look(verdict)
        return report

    def judge_server(self, attack: Attack, verdict: Judgement) -> None:
        if not self.server.alive():
            if not attack.may_die:
                verdict.failures = [f"the server died (status {self.server.process.returncode})"]
            return
        status, body = self.server.get("/health", WAIT_SECONDS)
        if status != attack.health_after:
            verdict.fail(f"/health afterwards: {status} {body[:100]}")
        if attack.neighbours_judged:
            for name, times in verdict.loud.items():
                if times.wrong:
                    verdict.fail(f"neighbour {name}: {len(times.wrong)} of {len(times.seconds)} answers wrong, "
                                 f"first: {times.wrong[0][:160]}")
        if attack.may_die:
            return
        self.judge_recovery(verdict)
        self.judge_more(attack, verdict)

    def judge_recovery(self, verdict: Judgement) -> None:
        """After the attack the neighbours get the answers that they got before it."""
        self.neighbours.times()  # may hold what was asked during the attack
        seen, wrong = dict.fromkeys(verdict.loud, 0), []

        def all_answered() -> bool:
            for name, times in self.neighbours.times().items():
                # The first may have been asked during the attack, too.
                if seen[name] > 0 and times.wrong:
                    wrong.append(f"neighbour {name} after the attack: {times.wrong[0][:160]}")
                seen[name] += times.finished - len(times.wrong)
            return bool(wrong) or min(seen.values()) >= RIGHT_ANSWERS

        try:
            until("right answers of all neighbours after the attack", all_answered, lambda: seen)
        except AssertionError as error:
            wrong.append(str(error))
        verdict.failures += wrong

    def end_under_attack(self, attack: Attack, verdict: Judgement) -> None:
        """The exit while the attack goes on."""
        fight = Assault(self.server, attack, self.headers)
        report = fight.report(0.3)
        verdict.exit_seconds, problem = self.server.end()
        fight.close()
        if problem:
            verdict.fail(problem + ("" if report is None else " (the attack was over)"))

    def close(self) -> None:
        if self.neighbours is not None:
            self.neighbours.close()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_attack(settings: Settings, attack: Attack, kind: type[Match] = Match) -> Judgement:
    match = None
    try:
        times_before = len(list(settings.scratch.glob(f"{attack.name}.*")))
        match = kind(settings, attack, settings.scratch / f"{attack.name}.{times_before}")
        verdict = match.play(attack)
        if match.server.alive():
            match.end_under_attack(attack, verdict)
        if verdict.failures:
            verdict.notes += last_lines(match.server.log_text())
        return verdict
    except (AssertionError, RuntimeError) as error:
        return Judgement(attack.name, failures=[str(error)])
    finally:
        if match is not None:
            match.close()


def last_lines(log: str) -> list[str]:
    lines = [line for line in log.splitlines() if " http.re" not in line]
    return ["log: " + line[:200] for line in lines[-3:]]


def print_verdict(verdict: Judgement, timed: bool) -> None:
    statuses = " ".join(f"{status or 'none'}:{count}" for status, count in sorted(verdict.statuses.items(), key=str))
    answers = sum(each.finished for each in verdict.loud.values())
    figures = times_of(verdict) if timed else f"{answers:5} answers of neighbours"
    print(f"{verdict.name:26} {'FAIL' if verdict.failures else 'ok':4} {verdict.seconds:5.1f} {figures}  {statuses}")
    for failure in verdict.failures:
        print(f"    - {failure}")
    for note in verdict.notes:
        print(f"      {note}")
    sys.stdout.flush()


TIMES_HEADER = (f"{'attack':26} {'':4} {'s':>5} {'base':>10} {'adapter':>10} {'guided':>10} {'longest ms':>10} "
                f"{'start MB':>8} {'peak':>5} {'left':>5} {'exit s':>6}  quiet ms, statuses")


def times_of(verdict: Judgement) -> str:
    longest_ms = max([each.longest() for name, each in verdict.loud.items() if name in TIMED], default=0) * 1e3
    exit_text = "-" if verdict.exit_seconds is None else f"{verdict.exit_seconds:.1f}"
    return (f"{verdict.ratio('base'):>10} {verdict.ratio('adapter'):>10} {verdict.ratio('guided'):>10} "
            f"{longest_ms:10.0f} {verdict.start_bytes // MEGABYTE:8} {verdict.peak_bytes // MEGABYTE:5} "
            f"{verdict.left_bytes // MEGABYTE:5} {exit_text:>6}  {verdict.quiet.get('base', Times()).median() * 1e3:.1f}")
