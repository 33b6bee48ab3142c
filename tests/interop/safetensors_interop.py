"""Our safetensors against the format's own library: safetensors_interop.py MOTLEY COPY_PROGRAM

A file that the library writes is read by motley inspect; our writer's copy of it is read by the library
and holds the same tensors, bit for bit.
"""

import json
import pathlib
import subprocess
import sys
import tempfile

import ml_dtypes
import numpy
import safetensors
import safetensors.numpy

NAMES = {"float32": "F32", "float16": "F16", "bfloat16": "BF16", "float8_e4m3fn": "F8_E4M3", "float8_e5m2": "F8_E5M2",
         "int64": "I64", "int32": "I32", "int16": "I16", "int8": "I8", "uint8": "U8", "bool": "BOOL"}


def sample_tensors() -> dict[str, numpy.ndarray]:
    random = numpy.random.default_rng(7)
    tensors = {}
    for at, name in enumerate(NAMES):
        dtype = numpy.dtype(getattr(ml_dtypes, name, name))
        for shape in [(), (0,), (3,), (5, at + 1), (2, 3, 7)]:
            values = random.integers(0, 2, shape) if name == "bool" else random.standard_normal(shape) * 8
            tensors[f"{name}.{'x'.join(map(str, shape))}"] = numpy.asarray(values).astype(dtype)
    return tensors


def main() -> None:
    motley, copy = sys.argv[1:]
    tensors = sample_tensors()
    with tempfile.TemporaryDirectory() as folder:
        theirs = pathlib.Path(folder) / "theirs.safetensors"
        ours = pathlib.Path(folder) / "ours.safetensors"
        safetensors.numpy.save_file(tensors, theirs, metadata={"format": "np"})
        report = json.loads(subprocess.run([motley, "inspect", "--json", theirs], capture_output=True, check=True).stdout)
        listed = {each["name"]: (each["dtype"], tuple(each["shape"])) for each in report["tensors"]}
        expected = {name: (NAMES[str(tensor.dtype)], tensor.shape) for name, tensor in tensors.items()}
        assert listed == expected, (listed, expected)

        subprocess.run([copy, theirs, ours], check=True)
        # The library's own parser, below its numpy layer, which lacks 8-bit floats.
        copied = dict(safetensors.deserialize(ours.read_bytes()))
        assert copied.keys() == tensors.keys(), copied.keys() ^ tensors.keys()
        for name, tensor in tensors.items():
            found = copied[name]
            assert (found["dtype"], tuple(found["shape"])) == expected[name], (name, found)
            assert bytes(found["data"]) == tensor.tobytes(), name
    print(f"{len(tensors)} tensors of {len(NAMES)} types, read and written alike")


main()
