#!/usr/bin/env python3
"""Makes the golden set: tiny random models and adapters with log-probabilities by Hugging Face transformers and PEFT.

    python tools/make_goldens.py --out tests/goldens            # all models
    python tools/make_goldens.py --out tests/goldens --only olmoe
    python tools/make_goldens.py --out tests/goldens --check    # nothing is written; exit 1 if something differs
    python tools/make_goldens.py --out tests/goldens --bf16     # how far Hugging Face's own bf16 is from its float32

Needs tools/goldens-requirements.txt in a virtual environment. tests/goldens/README.md describes the result.
"""

import argparse
import os
import sys
import tempfile
import time
import warnings
from pathlib import Path

os.environ["HF_HUB_OFFLINE"] = "1"

import torch
import transformers

from goldens.bf16 import deviations
from goldens.compare import differences
from goldens.models import MODELS
from goldens.spec import ModelSpec
from goldens.suite import make_model

# Sums in float32 depend on how they are split between threads.
THREADS = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--out", type=Path, required=True, help="the folder of the golden set")
    parser.add_argument("--only", action="append", metavar="NAME", help="this model only (repeatable)")
    parser.add_argument("--check", action="store_true", help="make anew elsewhere and compare with --out")
    parser.add_argument("--bf16", action="store_true", help="print what bf16 costs Hugging Face on the cases of --out")
    return parser.parse_args()


def _chosen(names: list[str] | None) -> list[ModelSpec]:
    known = {spec.name: spec for spec in MODELS}
    unknown = set(names or []) - known.keys()
    if unknown:
        sys.exit(f"make_goldens: no model {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else MODELS


def _quiet() -> None:
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()


def _check(spec: ModelSpec, stored: Path) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        made = Path(scratch) / spec.name
        make_model(spec, made)
        found = list(differences(stored / spec.name, made))
    for line in found[:20]:
        print(f"{spec.name}/{line}")
    if len(found) > 20:
        print(f"{spec.name}: and {len(found) - 20} more")
    return not found


def main() -> int:
    arguments = _arguments()
    _quiet()
    torch.set_num_threads(THREADS)
    torch.use_deterministic_algorithms(True)
    if arguments.bf16:
        for spec in _chosen(arguments.only):
            for case, mean in deviations(spec, arguments.out / spec.name):
                print(f"{spec.name}/{case}: {mean:.4f}")
        return 0
    same = True
    for spec in _chosen(arguments.only):
        start = time.monotonic()
        if arguments.check:
            agrees = _check(spec, arguments.out)
            same = same and agrees
            outcome = "agrees" if agrees else "DIFFERS"
        else:
            make_model(spec, arguments.out / spec.name)
            outcome = "made"
        print(f"{spec.name}: {outcome} in {time.monotonic() - start:.0f} s", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
