#!/usr/bin/env python3
"""Writes the wheel of the Python package: tools/make_wheel.py --program build/release/motley --out build/release/wheel

The wheel holds python/motley and the stripped program. Nothing in it is compiled for a Python, so one file serves each
Python on x86-64 Linux whose glibc the program starts with; the wheel's tag says which (PEP 600). The same files give the
same bytes.
"""

import argparse
import base64
import hashlib
import pathlib
import platform
import re
import subprocess
import sys
import tempfile
import zipfile

ROOT = pathlib.Path(__file__).resolve().parent.parent
NEWEST_GLIBC = (2, 34)  # of RHEL 9; Ubuntu 22.04 has 2.35
OLDEST_PYTHON = "3.10"
TIME = (1980, 1, 1, 0, 0, 0)  # of all files
COMMAND = "motley.program:main"


def project_version() -> str:
    text = (ROOT / "CMakeLists.txt").read_text()
    return re.search(r"project\(motley VERSION ([\d.]+)", text)[1]


def needed_glibc(program: pathlib.Path) -> tuple[int, int]:
    """The newest version of glibc that one of the program's symbols is of."""
    symbols = subprocess.run(["readelf", "--dyn-syms", "--wide", program], capture_output=True, text=True, check=True).stdout
    versions = [(int(major), int(minor)) for major, minor in re.findall(r"@GLIBC_(\d+)\.(\d+)", symbols)]
    if not versions:
        raise SystemExit(f"make_wheel: {program} has no symbols of glibc: name the program that was built")
    return max(versions)


def platform_tag(program: pathlib.Path) -> str:
    major, minor = needed_glibc(program)
    if (major, minor) > NEWEST_GLIBC:
        raise SystemExit(f"make_wheel: {program} needs glibc {major}.{minor}, newer than {'.'.join(map(str, NEWEST_GLIBC))}: "
                         "the test architecture.ProgramNeedsOnlyGlibc names the symbols")
    return f"manylinux_{major}_{minor}_{platform.machine()}"


def stripped(program: pathlib.Path) -> bytes:
    with tempfile.TemporaryDirectory() as folder:
        file = pathlib.Path(folder) / "motley"
        subprocess.run(["strip", "-o", file, program], check=True)
        return file.read_bytes()


def package_files(program: pathlib.Path) -> dict[str, bytes]:
    package = ROOT / "python"
    names = sorted([*package.glob("motley/*.py"), package / "motley/py.typed"])
    files = {str(path.relative_to(package)): path.read_bytes() for path in names}
    return files | {"motley/bin/motley": stripped(program)}


def metadata_files(version: str, tag: str) -> dict[str, bytes]:
    metadata = (f"Metadata-Version: 2.1\nName: motley\nVersion: {version}\n"
                "Summary: An inference server for Mixture-of-Experts models with many LoRA adapters, and its Python module\n"
                f"License: Apache-2.0\nLicense-File: LICENSE\nRequires-Python: >={OLDEST_PYTHON}\n"
                "Classifier: Operating System :: POSIX :: Linux\nClassifier: Typing :: Typed\n")
    wheel = f"Wheel-Version: 1.0\nGenerator: motley tools/make_wheel.py\nRoot-Is-Purelib: false\nTag: py3-none-{tag}\n"
    return {"METADATA": metadata.encode(), "WHEEL": wheel.encode(),
            "entry_points.txt": f"[console_scripts]\nmotley = {COMMAND}\n".encode(),
            "LICENSE": (ROOT / "LICENSE").read_bytes()}


def record_of(files: dict[str, bytes], name: str) -> bytes:
    lines = [f"{path},sha256={base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b'=').decode()},{len(content)}"
             for path, content in files.items()]
    return "\n".join([*lines, f"{name},,", ""]).encode()


def write_wheel(program: pathlib.Path, folder: pathlib.Path) -> pathlib.Path:
    version, tag = project_version(), platform_tag(program)
    information = f"motley-{version}.dist-info"
    files = package_files(program)
    files |= {f"{information}/{name}": content for name, content in metadata_files(version, tag).items()}
    files[f"{information}/RECORD"] = record_of(files, f"{information}/RECORD")
    folder.mkdir(parents=True, exist_ok=True)
    path = folder / f"motley-{version}-py3-none-{tag}.whl"
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in files.items():
            entry = zipfile.ZipInfo(name, TIME)
            entry.compress_type = zipfile.ZIP_DEFLATED
            entry.external_attr = (0o100755 if name == "motley/bin/motley" else 0o100644) << 16
            archive.writestr(entry, content)
    return path


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--program", type=pathlib.Path, required=True)
    parser.add_argument("--out", type=pathlib.Path, required=True, help="the folder to write to")
    options = parser.parse_args()
    path = write_wheel(options.program, options.out)
    print(f"{path}: {path.stat().st_size / 2**20:.1f} MiB")
    return 0


if __name__ == "__main__":
    sys.exit(main())
