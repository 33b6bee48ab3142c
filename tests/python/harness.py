"""The package from the repository's folder, over a demo model on the CPU.

A test is run as NAME_test.py MOTLEY REPOSITORY [unittest's own arguments].
"""

import sys
import time
import unittest
from pathlib import Path

import ml_dtypes
import numpy as np
import safetensors

MOTLEY, REPOSITORY = (Path(sys.argv.pop(1)).resolve() for _ in range(2))
MODEL = REPOSITORY / "models/demo"
ADAPTERS = MODEL / "adapters"
# In float32, whose answers are the same wherever they are computed.
OPTIONS = {"device": "cpu", "compute": "f32", "kv_memory": "64M", "adapter_memory": "64M", "program": MOTLEY}
WAIT_SECONDS = 60  # of an event; a bound this long only turns a hang into words

sys.path.insert(0, str(REPOSITORY / "python"))


def read_tensors(body: bytes) -> dict[str, np.ndarray]:
    """A file of tensors, by the format's own library."""
    types = {"F64": "f8", "F32": "f4", "F16": "f2", "BF16": ml_dtypes.bfloat16, "I64": "i8", "I32": "i4", "I16": "i2",
             "I8": "i1", "U8": "u1", "BOOL": "?"}
    return {name: np.frombuffer(bytes(value["data"]), types[value["dtype"]]).reshape(value["shape"])
            for name, value in safetensors.deserialize(body)}


def until(what: str, holds):
    """The first value of `holds()` that is true."""
    end = time.monotonic() + WAIT_SECONDS
    while not (value := holds()):
        if time.monotonic() > end:
            raise AssertionError(f"waited {WAIT_SECONDS} s for {what}")
        time.sleep(0.02)
    return value


def runs(pid: int) -> bool:
    """Whether there is such a process that has not ended: one that no parent has waited for yet has."""
    try:
        state = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0]
    except (FileNotFoundError, ProcessLookupError):
        return False
    return state not in "ZX"


main = unittest.main
