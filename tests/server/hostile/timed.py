"""What only a machine without other work can judge: the times of neighbours, resident memory, the seconds of an exit.

The machine's own noise is measured first: what neighbours wait where nothing attacks, but other processes compute.
"""

import multiprocessing
import os
import time
from dataclasses import dataclass

from harness import Attack, Judgement, Match, print_verdict, run_attack
from neighbours import TIMED, Times
from processes import MEGABYTE, Launch, Settings, anonymous_bytes

MAX_SLOWER = 10  # times the quiet time of the same run
# Two processors run the server, the neighbours and the attacker. A thread that waits for one gets
# it a few time slices later, and a 4-token request is half a dozen such waits.
FLOOR_SECONDS = 0.05
# No single request waits longer than this, or 10 times the longest of the quiet ones: a stall
# that is short against the attack moves neither the median nor the p90.
FLOOR_LONGEST_SECONDS = 3.0
# What the machine adds by itself, with as much again.
NOISE_FACTOR = 2
NOISE_WINDOWS = 5
MAX_MEMORY_LEFT = 100 * MEGABYTE
MAX_EXIT_SECONDS = 10
RESTING_SECONDS = 3
SETTLING_SECONDS = 10  # for memory to come back
QUIET_SECONDS = 0.8
MORE_PLAYS = 4


@dataclass
class Floors:
    """Seconds that no neighbour's time is held against."""
    median: float = FLOOR_SECONDS
    p90: float = FLOOR_SECONDS
    longest: float = FLOOR_LONGEST_SECONDS


FLOORS = Floors()


class TimedMatch(Match):
    least_seconds = 1.5  # so that neighbours have times
    look_seconds = 0.02

    def prepare(self) -> None:
        time.sleep(self.settings.patience(QUIET_SECONDS))
        self.quiet = self.neighbours.times()
        self.start_bytes = self.server.memory()

    def begin(self, attack: Attack) -> Judgement:
        return Judgement(attack.name, quiet=self.quiet, start_bytes=self.start_bytes)

    def limit(self, attack: Attack) -> float:
        return self.settings.patience(attack.max_seconds)

    def look(self, verdict: Judgement) -> None:
        verdict.peak_bytes = max(verdict.peak_bytes, self.server.memory())

    def judge_more(self, attack: Attack, verdict: Judgement) -> None:
        super().judge_more(attack, verdict)
        if self.settings.sanitized:
            return
        if attack.neighbours_judged and attack.times_judged:
            judge_times(verdict)
        self.judge_memory(attack, verdict)

    def judge_memory(self, attack: Attack, verdict: Judgement) -> None:
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
        super().end_under_attack(attack, verdict)
        if verdict.exit_seconds > self.settings.patience(MAX_EXIT_SECONDS):
            verdict.fail(f"the exit took {verdict.exit_seconds:.0f} s after SIGTERM, at most {MAX_EXIT_SECONDS} s")


def judge_times(verdict: Judgement) -> None:
    for name in TIMED:
        if name not in verdict.quiet or name not in verdict.loud:
            continue
        quiet, loud = verdict.quiet[name], verdict.loud[name]
        for what, before, now, floor in (
                ("median", quiet.median(), loud.median(), FLOORS.median),
                ("p90", quiet.p90(), loud.p90(), FLOORS.p90),
                ("longest", quiet.longest(), loud.longest(), FLOORS.longest)):
            allowed = max(MAX_SLOWER * before, floor)
            if now > allowed:
                verdict.slow.append(f"neighbour {name}: {what} {1e3 * now:.0f} ms of {len(loud.seconds)} requests, "
                                    f"{1e3 * before:.1f} ms when quiet, at most {1e3 * allowed:.0f} ms")
                verdict.fail(verdict.slow[-1])


def compute() -> None:
    """As an attacker's process: at its priority, without an end."""
    os.nice(10)
    while True:
        pass


def measure_noise(settings: Settings, attack: Attack) -> Floors:
    """The floors of this machine: the worst windows of neighbours without an attack, next to a process that computes on each
    processor."""
    context = multiprocessing.get_context("fork")
    others = [context.Process(target=compute, daemon=True) for _ in settings.processors]
    match = TimedMatch(settings, attack, settings.scratch / "noise")
    floors = Floors()
    try:
        for each in others:
            each.start()
        for _ in range(NOISE_WINDOWS):
            time.sleep(QUIET_SECONDS)
            for times in (times for name, times in match.neighbours.times().items() if name in TIMED):
                floors.median = max(floors.median, NOISE_FACTOR * times.median())
                floors.p90 = max(floors.p90, NOISE_FACTOR * times.p90())
                floors.longest = max(floors.longest, NOISE_FACTOR * times.longest())
    finally:
        for each in others:
            each.kill()
            each.join()
        match.close()
    return floors


def run_longer(settings: Settings, attack: Attack, first: Judgement) -> Judgement:
    """An attack lasts a second or two, and a machine that is shared takes as much from either side.
    One that slowed its neighbours is played MORE_PLAYS times more, and the times of all plays, the
    first too, are judged together."""
    verdicts = [first] + [run_attack(settings, attack, TimedMatch) for _ in range(MORE_PLAYS)]
    total = verdicts[-1]
    total.failures = [each for verdict in verdicts for each in verdict.failures if each not in verdict.slow]
    total.quiet, total.loud = (
        {name: Times.together(getattr(verdict, when).get(name, Times()) for verdict in verdicts)
         for name in TIMED} for when in ("quiet", "loud"))
    total.slow = []
    judge_times(total)
    return total


def run_timed(settings: Settings, attacks: list[Attack]) -> list[Judgement]:
    """One attack after the other, each with a server of its own."""
    global FLOORS
    if not settings.sanitized:
        FLOORS = measure_noise(settings, Attack("noise", lambda attacker: None, frozenset(), launch=Launch()))
    print(f"neighbours: at most {MAX_SLOWER} times the quiet ones, or median {1e3 * FLOORS.median:.0f} ms, "
          f"p90 {1e3 * FLOORS.p90:.0f} ms, longest {1e3 * FLOORS.longest:.0f} ms")
    verdicts = []
    for attack in attacks:
        verdict = run_attack(settings, attack, TimedMatch)
        print_verdict(verdict, timed=True)
        if verdict.only_slow():
            verdict = run_longer(settings, attack, verdict)
            print_verdict(verdict, timed=True)
        verdicts.append(verdict)
    return verdicts


def run_rounds(settings: Settings, attacks: list[Attack], rounds: int) -> list[Judgement]:
    """All attacks on one server, round after round: its memory stays flat."""
    shared = [attack for attack in attacks if attack.shares_server()]
    match = TimedMatch(settings, shared[0], settings.scratch / "rounds")
    first_bytes = match.start_bytes
    verdicts, levels = [], []
    try:
        for number in range(rounds):
            for attack in shared:
                verdict = match.play(attack)
                verdict.name = f"{number + 1}. {attack.name}"
                verdicts.append(verdict)
                print_verdict(verdict, timed=True)
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
        total.exit_seconds, problem = match.server.end()
        if problem:
            total.fail(problem)
        print_verdict(total, timed=True)
        return verdicts + [total]
    finally:
        match.close()
