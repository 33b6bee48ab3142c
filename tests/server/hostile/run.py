"""Clients that mean harm, one attack after the other, on a server that others use meanwhile.

run.py MOTLEY MODEL [--only NAME]... [--quick] [--rounds N] [--sanitized] [--list]

Of each attack: the server lives, its neighbours get their answers in at most 10 times their quiet
time, its memory comes back, and it ends within 10 s of SIGTERM while the attack goes on.
"""

import argparse
import resource
import sys
import tempfile
import time
from pathlib import Path

import attacks_bodies
import attacks_files
import attacks_grammars
import attacks_memory
import attacks_transport
from harness import FLOOR_SECONDS, HEADER, MAX_SLOWER, print_verdict, run_attack, run_longer, run_rounds
from processes import Settings

ATTACKS = [*attacks_grammars.ATTACKS, *attacks_bodies.ATTACKS, *attacks_transport.ATTACKS,
           *attacks_files.ATTACKS, *attacks_memory.ATTACKS]


def chosen(options, settings: Settings) -> list:
    attacks = [attack for attack in ATTACKS if not options.only or attack.name in options.only]
    if unknown := set(options.only) - {attack.name for attack in ATTACKS}:
        sys.exit(f"no attack is called {', '.join(sorted(unknown))}; --list names them")
    if settings.sanitized:
        attacks = [attack for attack in attacks if attack.in_sanitized]
    for attack in attacks:
        if attack.needs and attack.needs not in settings.known_options:
            print(f"{attack.name}: left out, the program has no {attack.needs}")
    return [attack for attack in attacks if not attack.needs or attack.needs in settings.known_options]


def main() -> int:
    parser = argparse.ArgumentParser()
    parser.add_argument("motley", type=lambda path: Path(path).resolve())
    parser.add_argument("model", type=lambda path: Path(path).resolve())
    parser.add_argument("--only", action="append", default=[], metavar="NAME")
    parser.add_argument("--quick", action="store_true", help="fewer requests of each attack")
    parser.add_argument("--rounds", type=int, default=0, help="all on one server, so often")
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
        settings = Settings(options.motley, options.model, Path(scratch), options.sanitized, options.quick)
        attacks, began = chosen(options, settings), time.monotonic()
        print(f"neighbours: median and p90 at most {MAX_SLOWER} times the quiet ones, "
              f"or {1e3 * FLOOR_SECONDS:.0f} ms\n{HEADER}")
        if options.rounds:
            verdicts = run_rounds(settings, attacks, options.rounds)
            print_verdict(verdicts[-1])
        else:
            verdicts = []
            for attack in attacks:
                verdict = run_attack(settings, attack)
                print_verdict(verdict)
                if verdict.only_slow():
                    verdict = run_longer(settings, attack, verdict)
                    print_verdict(verdict)
                verdicts.append(verdict)
        failed = [verdict.name for verdict in verdicts if verdict.failures]
        print(f"{len(verdicts) - len(failed)} of {len(verdicts)} held in {time.monotonic() - began:.0f} s"
              + (f"; not: {', '.join(failed)}" if failed else ""))
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
