#!/usr/bin/env bash
# Installs the wheel with pip in a root that holds a small system with Python, and generates there:
# bare_root.sh MOTLEY REPOSITORY. Needs root, debootstrap and its archive; 77 where one is missing.
# BARE_ROOT names a root made before, which is copied; SUITE and MIRROR choose the system (Debian 12, its archive).
set -euo pipefail
motley=$(realpath "$1") repository=$(realpath "$2")
suite=${SUITE:-bookworm}
if [ "$(id -u)" != 0 ] || ! command -v debootstrap >/dev/null; then
  echo "bare_root: needs root and debootstrap"
  exit 77
fi
scratch=$(mktemp -d)
root=$scratch/root
finish() {
  umount -l "$root/proc" 2>/dev/null || true
  rm -rf "$scratch"
}
trap finish EXIT

if [ -n "${BARE_ROOT:-}" ]; then
  cp -a "$BARE_ROOT" "$root"
else
  mirror=${MIRROR:-$(grep -hs -m1 '^URIs:' /etc/apt/sources.list.d/*.sources | awk '{print $2}')}
  debootstrap --variant=minbase --include=python3,python3-pip "$suite" "$root" "$mirror" >"$scratch/log" 2>&1 || {
    tail -n 15 "$scratch/log"
    exit 77
  }
fi
python3 "$repository/tools/make_wheel.py" --program "$motley" --out "$root/root/wheel"
cp -r "$repository/models/demo" "$root/root/demo"
mount -t proc proc "$root/proc"
cat >"$root/root/use.py" <<'END'
import sys
import motley

assert not {"numpy", "torch", "peft"} & set(sys.modules)
with motley.LLM("/root/demo", {"jargon": "/root/demo/adapters/jargon"}, device="cpu", kv_memory="64M") as llm:
    params = motley.SamplingParams(temperature=0, ignore_eos=True)
    texts = [each.outputs[0].text for each in llm.generate(["The sea", "Money"], params, adapter=["jargon", None])]
    assert all(texts), texts
    print(sys.version.split()[0], texts)
END
env -i PATH=/usr/local/bin:/usr/sbin:/usr/bin:/bin HOME=/root LANG=C.UTF-8 "$(command -v chroot)" "$root" sh -ec '
  ldd --version | head -n 1
  pip install --help | grep -q break-system-packages && free=--break-system-packages || free=
  pip install --no-index --disable-pip-version-check $free /root/wheel/*.whl
  motley --version
  python3 /root/use.py
  pip uninstall -q -y $free motley
  test ! -e /usr/local/bin/motley'
