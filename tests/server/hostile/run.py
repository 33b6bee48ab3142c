"""Clients that mean harm, one attack after the other, on a server that others use meanwhile.

run.py MOTLEY MODEL [--only NAME]... [--quick] [--jobs N] [--timed [--rounds N]] [--sanitized] [--list]

Of each attack: its requests get one of the statuses that are right for it, the server lives, its neighbours get the answers
that they get alone, what the server accounts stays within its limits and is given back, and the server ends with status 0
after SIGTERM while the attack goes on, and its helpers with it.

With --timed, on a machine without other work: neighbours get their answers in at most 10 times their quiet time, resident
memory comes back, and the exit takes at most 10 s.
"""

import argparse
import multiprocessing
import resource
import sys
import tempfile
import time
from concurrent.futures import ProcessPoolExecutor
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parent.parent))

import attacks_addresses  # noqa: E402
import attacks_bodies  # noqa: E402
import attacks_files  # noqa: E402
import attacks_grammars  # noqa: E402
import attacks_memory  # noqa: E402
import attacks_trainers  # noqa: E402
import attacks_transport  # noqa: E402
import timed  # noqa: E402
from harness import TIMES_HEADER, Judgement, print_verdict, run_attack  # noqa: E402
from processes import Settings  # noqa: E402

ATTACKS = [*attacks_grammars.ATTACKS, *attacks_bodies.ATTACKS, *attacks_transport.ATTACKS,
           *attacks_files.ATTACKS, *attacks_memory.ATTACKS, *attacks_addresses.ATTACKS, *attacks_trainers.ATTACKS]


def chosen(options, settings: Settings) -> list:
    wanted = options.only or [attack.name for attack in ATTACKS]
    attacks = [attack for attack in ATTACKS if attack.name in wanted]
    if unknown := set(options.only) - {attack.name for attack in ATTACKS}:
        sys.exit(f"no attack is called {', '.join(sorted(unknown))}; --list names them")
    if settings.sanitized:
        attacks = [attack for attack in attacks if attack.in_sanitized]
    for attack in attacks:
        if attack.needs and attack.needs not in settings.known_options:
            print(f"{attack.name}: left out, the program has no {attack.needs}")
    return [attack for attack in attacks if not attack.needs or attack.needs in settings.known_options]


def play(settings: Settings, name: str) -> Judgement:
    return run_attack(settings, next(attack for attack in ATTACKS if attack.name == name))


def run_untimed(settings: Settings, attacks: list, jobs: int) -> list[Judgement]:
    """Several at once, each in a process of its own with its own server."""
    verdicts = []
    with ProcessPoolExecutor(jobs, multiprocessing.get_context("fork")) as pool:
        for verdict in pool.map(play, [settings] * len(attacks), [attack.name for attack in attacks]):
            print_verdict(verdict, timed=False)
            verdicts.append(verdict)
    return verdicts


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("motley", type=lambda path: Path(path).resolve())
    parser.add_argument("model", type=lambda path: Path(path).resolve())
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="fewer requests of each attack")
    parser.add_argument("--jobs", type=int, default=3, help="attacks at once, each on its own server; with --timed one")
    parser.add_argument("--timed", action="store_true", help="judges times and resident memory, too")
    parser.add_argument("--rounds", type=int, default=0, help="with --timed: all on one server, so often")
    parser.add_argument("--sanitized", action="store_true",
                        help="a build that is slow: fewer attacks, no limits of time and memory")
    parser.add_argument("--list", action="store_true")
    options = parser.parse_args()
    if options.list:
        print("\n".join(attack.name for attack in ATTACKS))
        return 0
    max_files = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    resource.setrlimit(resource.RLIMIT_NOFILE, (max_files, max_files))
    with tempfile.TemporaryDirectory() as scratch:
        settings = Settings(options.motley, options.model, Path(scratch), options.sanitized, options.quick, options.timed)
        attacks, began = chosen(options, settings), time.monotonic()
        if options.timed:
            print(TIMES_HEADER)
            verdicts = timed.run_rounds(settings, attacks, options.rounds) if options.rounds else timed.run_timed(settings, attacks)
        else:
            verdicts = run_untimed(settings, attacks, options.jobs)
        failed = [verdict.name for verdict in verdicts if verdict.failures]
        print(f"{len(verdicts) - len(failed)} of {len(verdicts)} held in {time.monotonic() - began:.0f} s"
              + (f"; not: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
