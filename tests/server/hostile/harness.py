"""Runs one attack and judges what the server and its neighbours made of it."""

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
from neighbours import TIMED, Neighbours, Times
from processes import MEGABYTE, Launch, Server, Settings, anonymous_bytes

MAX_SLOWER = 10  # times the quiet time of the same run
# Two processors run the server, the neighbours and the attacker. A thread that waits for one gets
# it a few time slices later, and a 4-token request is half a dozen such waits.
FLOOR_SECONDS = 0.05
# No single request waits longer than this, or 10 times the longest of the quiet ones: a stall
# that is short against the attack moves neither the median nor the p90.
FLOOR_LONGEST_SECONDS = 3.0
MAX_MEMORY_LEFT = 100 * MEGABYTE
MAX_EXIT_SECONDS = 10
RESTING_SECONDS = 3
SETTLING_SECONDS = 10  # for memory to come back
QUIET_SECONDS = 0.8
MORE_PLAYS = 4
LEAST_SECONDS = 1.5  # of an attack, so that neighbours have times
ANY = frozenset({200, 400, 413, 429, 500, 503})


@dataclass
class Attack:
    name: str
    run: Callable[[Attacker], None]
    statuses: frozenset = ANY  # that its requests may get
    launch: Launch = field(default_factory=Launch)
    needs: str = ""  # an option without which there is nothing to test
    before: Callable[[Path, Launch], None] | None = None  # writes into the scratch folder first
    keys: tuple = ()  # of the server; the neighbours have the first
    attacker_has_key: bool = True
    max_seconds: float = 60
    peak: int = 0  # bytes that it may take meanwhile; 0: not judged
    times_judged: bool = True
    neighbours_judged: bool = True
    may_die: bool = False  # with a word about why, which `after` looks for
    once: bool = False  # not again for LEAST_SECONDS
    health_after: int = 200
    after: Callable[["Judgement", Server], None] | None = None  # looks at the server from outside
    in_sanitized: bool = True
    in_rounds: bool = True  # may share a server with others

    def shares_server(self) -> bool:
        return self.in_rounds and self.launch == Launch() and not (self.before or self.keys)


@dataclass
class Judgement:
    name: str
    failures: list = field(default_factory=list)
    notes: list = field(default_factory=list)
    statuses: Counter = field(default_factory=Counter)
    quiet: dict = field(default_factory=dict)
    loud: dict = field(default_factory=dict)
    start_bytes: int = 0
    peak_bytes: int = 0
    left_bytes: int = 0
    exit_seconds: float | None = None
    seconds: float = 0
    slow: list = field(default_factory=list)  # failures that are times of neighbours

    def only_slow(self) -> bool:
        return 0 < len(self.slow) == len(self.failures)

    def fail(self, what: str) -> None:
        self.failures.append(what)

    def judge_times(self) -> None:
        for name in TIMED:
            if name in self.quiet and name in self.loud:
                self.judge_times_of(name)

    def judge_times_of(self, name: str) -> None:
        quiet, loud = self.quiet[name], self.loud[name]
        for what, before, now, floor in (
                ("median", quiet.median(), loud.median(), FLOOR_SECONDS),
                ("p90", quiet.p90(), loud.p90(), FLOOR_SECONDS),
                ("longest", quiet.longest(), loud.longest(), FLOOR_LONGEST_SECONDS)):
            allowed = max(MAX_SLOWER * before, floor)
            if now > allowed:
                self.slow.append(f"neighbour {name}: {what} {1e3 * now:.0f} ms of {len(loud.seconds)} requests, "
                                 f"{1e3 * before:.1f} ms when quiet, at most {1e3 * allowed:.0f} ms")
                self.fail(self.slow[-1])

    def ratio(self, name: str) -> str:
        quiet, loud = self.quiet.get(name), self.loud.get(name)
        if not quiet or not loud or not loud.seconds:
            return "-"
        return f"{loud.median() / max(quiet.median(), 1e-4):.1f}/{loud.p90() / max(quiet.p90(), 1e-4):.1f}"


def assault(pipe, server: Server, attack: Attack, headers: dict) -> None:
    """The attacker's process."""
    os.nice(10)  # a client elsewhere would take no processor time from the server
    server.process.stdout = None
    attacker = Attacker(server, headers if attack.attacker_has_key else {"Content-Type": "application/json"})
    pipe.send("begun")
    end = time.monotonic() + LEAST_SECONDS
    try:
        attack.run(attacker)
        while not attack.once and time.monotonic() < end and not attacker.failures:
            attack.run(attacker)
    except Exception as error:  # of the attack's own code, or a server that is gone
        attacker.fail(f"{type(error).__name__}: {error}")
    pipe.send((dict(attacker.statuses), attacker.failures, attacker.notes))


class Assault:
    def __init__(self, server: Server, attack: Attack, headers: dict):
        context = multiprocessing.get_context("fork")
        self.pipe, theirs = context.Pipe()
        self.process = context.Process(target=assault, args=(theirs, server, attack, headers),
                                       daemon=True)
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

    def __init__(self, settings: Settings, attack: Attack, folder: Path):
        self.settings, self.folder = settings, folder
        folder.mkdir()
        shutil.copytree(settings.model, folder / "model", ignore=shutil.ignore_patterns("adapters"))
        shutil.copytree(settings.model / "adapters", folder / "adapters")
        options, optional = list(attack.launch.options), list(attack.launch.optional)
        options += ["--allow-adapter-loading", "--adapter-root", folder / "adapters"]
        optional.append(("--drain-timeout", "3"))
        launch = Launch(**{**attack.launch.__dict__, "options": tuple(options), "optional": tuple(optional)})
        self.headers = {"Content-Type": "application/json"}
        if attack.keys:
            (folder / "keys").write_text("\n".join(attack.keys) + "\n")
            launch.options += ("--api-key-file", folder / "keys")
            self.headers["Authorization"] = f"Bearer {attack.keys[0]}"
        if attack.before is not None:
            attack.before(folder, launch)
        self.server, self.neighbours = Server(settings, launch, folder), None
        try:
            self.neighbours = Neighbours(self.server.port, self.headers)
            time.sleep(settings.patience(QUIET_SECONDS))
            self.quiet = self.neighbours.times()
            self.start_bytes = self.server.memory()
        except BaseException:
            self.close()
            raise

    def play(self, attack: Attack) -> Judgement:
        verdict = Judgement(attack.name, quiet=self.quiet, start_bytes=self.start_bytes)
        began = time.monotonic()
        self.neighbours.times()
        fight = Assault(self.server, attack, self.headers)
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
        end, report = time.monotonic() + self.settings.patience(attack.max_seconds), None
        while report is None and time.monotonic() < end and self.server.alive():
            report = fight.report(0.02)
            verdict.peak_bytes = max(verdict.peak_bytes, self.server.memory())
        return report

    def judge_server(self, attack: Attack, verdict: Judgement) -> None:
        if not self.server.alive():
            if not attack.may_die:
                verdict.failures = [f"the server died (status {self.server.process.returncode})"]
            return
        status, body = self.server.get("/health", self.settings.patience(5))
        if status != attack.health_after:
            verdict.fail(f"/health afterwards: {status} {body[:100]}")
        if attack.neighbours_judged:
            self.judge_neighbours(attack, verdict)
        if not attack.may_die:
            self.judge_recovery(verdict)
        self.judge_memory(attack, verdict)

    def judge_neighbours(self, attack: Attack, verdict: Judgement) -> None:
        if attack.times_judged and not self.settings.sanitized:
            verdict.judge_times()
        for name, times in verdict.loud.items():
            if times.wrong:
                verdict.fail(f"neighbour {name}: {len(times.wrong)} of {len(times.seconds)} answers wrong, "
                             f"first: {times.wrong[0][:160]}")

    def judge_recovery(self, verdict: Judgement) -> None:
        """After the attack the neighbours get the answers that they got before it."""
        self.neighbours.times()  # may hold what was asked during the attack
        end, seen = time.monotonic() + self.settings.patience(10), dict.fromkeys(verdict.loud, 0)
        while min(seen.values()) < 3:
            if time.monotonic() > end:
                verdict.fail(f"neighbours get no answers after the attack: {seen}")
                return
            time.sleep(0.05)
            for name, times in self.neighbours.times().items():
                right = times.finished - len(times.wrong)
                if seen[name] > 0 and times.wrong:
                    verdict.fail(f"neighbour {name} after the attack: {times.wrong[0][:160]}")
                    return
                seen[name] += right

    def judge_memory(self, attack: Attack, verdict: Judgement) -> None:
        if self.settings.sanitized:
            return
        if attack.peak and verdict.peak_bytes - verdict.start_bytes > attack.peak:
            verdict.fail(f"{(verdict.peak_bytes - verdict.start_bytes) // MEGABYTE} MB on top, "
                         f"at most {attack.peak // MEGABYTE} MB")
        # Memory goes back where the server rests.
        self.neighbours.ask("rest")
        end = time.monotonic() + SETTLING_SECONDS
        while (left := self.server.memory()) > verdict.start_bytes + MAX_MEMORY_LEFT:
            if time.monotonic() > end:
                own = anonymous_bytes(self.server.pid)
                verdict.fail(f"{(left - verdict.start_bytes) // MEGABYTE} MB are not given back: the server has "
                             f"{own // MEGABYTE} MB, its helpers {(left - own) // MEGABYTE} MB")
                break
            time.sleep(0.05)
        verdict.left_bytes = left
        self.neighbours.ask("wake")

    def resting_bytes(self) -> int:
        """The least that it takes in a while without requests."""
        self.neighbours.ask("rest")
        seen, end = [], time.monotonic() + RESTING_SECONDS
        while time.monotonic() < end:
            time.sleep(0.1)
            seen.append(self.server.memory())
        self.neighbours.ask("wake")
        return min(seen)

    def end_under_attack(self, attack: Attack, verdict: Judgement) -> None:
        """The exit while the attack goes on."""
        fight = Assault(self.server, attack, self.headers)
        report = fight.report(0.3)
        verdict.exit_seconds, problem = self.server.end(self.settings.patience(MAX_EXIT_SECONDS))
        fight.close()
        if problem:
            verdict.fail(problem + ("" if report is None else " (the attack was over)"))

    def close(self) -> None:
        if self.neighbours is not None:
            self.neighbours.close()
        self.server.close()
        shutil.rmtree(self.folder, ignore_errors=True)


def run_attack(settings: Settings, attack: Attack) -> Judgement:
    match = None
    try:
        times_before = len(list(settings.scratch.glob(f"{attack.name}.*")))
        match = Match(settings, attack, settings.scratch / f"{attack.name}.{times_before}")
        verdict = match.play(attack)
        if match.server.alive():
            match.end_under_attack(attack, verdict)
        if verdict.failures:
            verdict.notes += last_lines(match.server.log_text())
        return verdict
    except RuntimeError as error:
        return Judgement(attack.name, failures=[str(error)])
    finally:
        if match is not None:
            match.close()


def run_longer(settings: Settings, attack: Attack, first: Judgement) -> Judgement:
    """An attack lasts a second or two, and a machine that is shared takes as much from either side.
    One that slowed its neighbours is played MORE_PLAYS times more, and the times of all plays, the
    first too, are judged together."""
    verdicts = [first] + [run_attack(settings, attack) for _ in range(MORE_PLAYS)]
    total = verdicts[-1]
    total.failures = [each for verdict in verdicts for each in verdict.failures if each not in verdict.slow]
    total.quiet, total.loud = (
        {name: Times.together(getattr(verdict, when).get(name, Times()) for verdict in verdicts)
         for name in TIMED} for when in ("quiet", "loud"))
    total.slow = []
    total.judge_times()
    return total


def last_lines(log: str) -> list[str]:
    lines = [line for line in log.splitlines() if " http.re" not in line]
    return ["log: " + line[:200] for line in lines[-3:]]


def run_rounds(settings: Settings, attacks: list[Attack], rounds: int) -> list[Judgement]:
    """All attacks on one server, round after round: its memory stays flat."""
    shared = [attack for attack in attacks if attack.shares_server()]
    match = Match(settings, shared[0], settings.scratch / "rounds")
    first_bytes = match.start_bytes
    verdicts, levels = [], []
    try:
        for number in range(rounds):
            for attack in shared:
                verdict = match.play(attack)
                verdict.name = f"{number + 1}. {attack.name}"
                verdicts.append(verdict)
                print_verdict(verdict)
                if not match.server.alive():
                    return verdicts
                # What --kv-memory and --adapter-memory allow is touched little by little and stays.
                match.start_bytes = max(match.start_bytes, verdict.left_bytes)
            levels.append(match.resting_bytes())
        total = Judgement("rounds", start_bytes=first_bytes, left_bytes=levels[-1],
                          peak_bytes=max(levels))
        total.notes.append("MB after each round: " + " ".join(str(each // MEGABYTE) for each in levels))
        # The first rounds fill caches up to their bounds; the last ones add nothing.
        growth = max(levels[rounds // 2:]) - max(levels[:rounds // 2 + 1])
        if not settings.sanitized and growth > 16 * MEGABYTE:
            total.fail(f"{growth // MEGABYTE} MB more in the later rounds")
        total.exit_seconds, problem = match.server.end(settings.patience(MAX_EXIT_SECONDS))
        if problem:
            total.fail(problem)
        return verdicts + [total]
    finally:
        match.close()


HEADER = (f"{'attack':26} {'':4} {'s':>5} {'base':>10} {'adapter':>10} {'guided':>10} {'longest ms':>10} "
          f"{'start MB':>8} {'peak':>5} {'left':>5} {'exit s':>6}  statuses")


def print_verdict(verdict: Judgement) -> None:
    quiet_ms = verdict.quiet.get("base", Times()).median() * 1e3
    longest_ms = max([each.longest() for name, each in verdict.loud.items() if name in TIMED], default=0) * 1e3
    exit_text = "-" if verdict.exit_seconds is None else f"{verdict.exit_seconds:.1f}"
    statuses = " ".join(f"{status or 'none'}:{count}" for status, count in sorted(verdict.statuses.items(), key=str))
    print(f"{verdict.name:26} {'FAIL' if verdict.failures else 'ok':4} {verdict.seconds:5.1f} "
          f"{verdict.ratio('base'):>10} {verdict.ratio('adapter'):>10} {verdict.ratio('guided'):>10} "
          f"{longest_ms:10.0f} {verdict.start_bytes // MEGABYTE:8} {verdict.peak_bytes // MEGABYTE:5} "
          f"{verdict.left_bytes // MEGABYTE:5} {exit_text:>6}  {statuses}  (quiet {quiet_ms:.1f} ms)")
    for failure in verdict.failures:
        print(f"    - {failure}")
    for note in verdict.notes:
        print(f"      {note}")
    sys.stdout.flush()
