#!/usr/bin/env python3
"""Makes goldens of production widths: what Hugging Face answers for weights that follow from a seed.

    python tools/make_wide_goldens.py --out tests/wide_goldens                # all models
    python tools/make_wide_goldens.py --out tests/wide_goldens --only gpt_oss
    python tools/make_wide_goldens.py --out tests/wide_goldens --check        # nothing is written; exit 1 if it differs
    python tools/make_wide_goldens.py --write gpt_oss FOLDER                  # its checkpoint and adapters, as files

Needs tools/goldens-requirements.txt in a virtual environment. tests/wide_goldens/README.md describes the result.
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
from goldens.compare import differences
from wide.catalog import MODELS, Model
from wide.maker import make, write_adapter, write_checkpoint

THREADS = 2


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    what = parser.add_mutually_exclusive_group(required=True)
    what.add_argument("--out", type=Path, help="the folder of the goldens")
    what.add_argument("--write", nargs=2, metavar=("NAME", "FOLDER"), help="the files of a model")
    parser.add_argument("--only", action="append", metavar="NAME", help="this model only (repeatable)")
    parser.add_argument("--check", action="store_true", help="make anew elsewhere and compare with --out")
    return parser.parse_args()


def _chosen(names: list[str] | None) -> list[Model]:
    known = {model.name: model for model in MODELS}
    unknown = set(names or []) - known.keys()
    if unknown:
        sys.exit(f"make_wide_goldens: no model {', '.join(sorted(unknown))}; there are {', '.join(known)}")
    return [known[name] for name in names] if names else MODELS


def _write(model: Model, folder: Path) -> None:
    write_checkpoint(model, folder)
    for adapter in model.adapters:
        write_adapter(model, adapter, folder / "adapters" / adapter.name)


def _agrees(model: Model, stored: Path) -> bool:
    with tempfile.TemporaryDirectory() as scratch:
        make(model, Path(scratch) / model.name)
        found = list(differences(stored / model.name, Path(scratch) / model.name))
    for line in found[:20]:
        print(f"{model.name}/{line}")
    return not found


def main() -> int:
    arguments = _arguments()
    warnings.filterwarnings("ignore")
    transformers.logging.set_verbosity_error()
    transformers.utils.logging.disable_progress_bar()
    torch.set_num_threads(THREADS)
    if arguments.write:
        name, folder = arguments.write
        _write(_chosen([name])[0], Path(folder))
        return 0
    same = True
    for model in _chosen(arguments.only):
        start = time.monotonic()
        if arguments.check:
            agrees = _agrees(model, arguments.out)
            same = same and agrees
            outcome = "agrees" if agrees else "DIFFERS"
        else:
            make(model, arguments.out / model.name)
            outcome = "made"
        print(f"{model.name}: {outcome} in {time.monotonic() - start:.0f} s", flush=True)
    return 0 if same else 1


if __name__ == "__main__":
    sys.exit(main())
