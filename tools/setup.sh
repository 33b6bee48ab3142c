#!/usr/bin/env bash
# Installs what is missing: tools/setup.sh [build] [lint] [fuzz] [coverage] [python] [clients]
# Debian packages come with apt (as root or through sudo), PyPI packages into .venv, and with `build` the
# sources that the program is built from into .cache/packages. `clients` fills .cache/clients: one environment
# for each list of tools/packages/clients. Silent, quick and offline when all is there. MOTLEY_SKIP_SETUP=1 leaves everything to you.
set -euo pipefail
cd "$(dirname "$0")/.."
[ "${MOTLEY_SKIP_SETUP:-}" = 1 ] && exit 0

log=build/setup.log
mkdir -p build

fail() {
  printf 'set-up: %s\n' "$*" >&2
  exit 1
}

# Runs a command with its output in the log, and shows the log's end if it fails.
logged() {
  "$@" >>"$log" 2>&1 || {
    tail -n 15 "$log" >&2
    fail "'$*' failed; the whole output is in $log"
  }
}

as_root() {
  if [ "$(id -u)" = 0 ]; then
    "$@"
  else
    sudo "$@"
  fi
}

# "name version" lines of a list, without comments.
wanted() { sed -e 's/#.*//' -e '/^[[:space:]]*$/d' "$@"; }

install_debian() {
  local lists=() missing=() name version installed
  for list in "$@"; do lists+=("tools/packages/$list.txt"); done
  while read -r name version; do
    # A newer one than the pin is as good, and never replaced by an older.
    installed=$(dpkg-query -W -f '${db:Status-Abbrev}${Version}' "$name" 2>/dev/null || true)
    if [ "${installed#ii }" = "$installed" ] || ! dpkg --compare-versions "${installed#ii }" ge "$version"; then
      missing+=("$name=$version*")
    fi
  done < <(wanted "${lists[@]}")
  [ ${#missing[@]} = 0 ] && return

  printf 'set-up: installing from Debian: %s\n' "${missing[*]%%=*}"
  if [ "$(id -u)" != 0 ] && ! command -v sudo >/dev/null; then
    fail "these packages need root: run 'apt-get install ${missing[*]}' as root, then try again"
  fi
  local start=$SECONDS
  logged as_root apt-get update
  logged as_root env DEBIAN_FRONTEND=noninteractive \
    apt-get install -y --no-install-recommends "${missing[@]}"
  printf 'set-up: installed in %s s\n' $((SECONDS - start))
}

install_python() {
  local pins=tools/packages/python.txt stamp=.venv/pins.txt
  cmp -s "$pins" "$stamp" && return
  printf 'set-up: installing from PyPI into .venv: %s\n' "$(wanted "$pins" | sed 's/==.*//' | tr '\n' ' ')"
  local start=$SECONDS
  rm -rf .venv
  logged /usr/bin/python3 -m venv .venv
  logged .venv/bin/pip install --disable-pip-version-check --only-binary=:all: -r "$pins"
  cp "$pins" "$stamp"
  printf 'set-up: installed in %s s\n' $((SECONDS - start))
}

# pip asks a source distribution for its metadata before it hands it over, so it runs in an environment
# of its own, which goes away again.
install_sources() {
  local pins=tools/packages/sources.txt folder=.cache/packages name archive
  cmp -s "$pins" "$folder/pins.txt" && return
  name=$(wanted "$pins" | sed 's/==.*//')
  printf 'set-up: fetching sources from PyPI: %s\n' "$name"
  local start=$SECONDS
  rm -rf "$folder"
  mkdir -p "$folder"
  logged /usr/bin/python3 -m venv "$folder/pip"
  logged "$folder/pip/bin/pip" download --disable-pip-version-check --no-deps --no-binary "${name//$'\n'/,}" \
    --require-hashes -r "$pins" -d "$folder"
  for archive in "$folder"/*.tar.gz; do logged tar -xzf "$archive" -C "$folder"; done
  rm -rf "$folder/pip" "$folder"/*.tar.gz
  cp "$pins" "$folder/pins.txt"
  printf 'set-up: fetched in %s s\n' $((SECONDS - start))
}

# The lists conflict with one another, so each has an environment of its own. They are whole: --no-deps keeps out the rest.
install_clients() {
  local folder=.cache/clients list name start=$SECONDS
  for list in tools/packages/clients/*.txt; do
    name=$(basename "$list" .txt)
    cmp -s "$list" "$folder/$name/pins.txt" && continue
    printf 'set-up: installing from PyPI into %s: %s packages\n' "$folder/$name" "$(wanted "$list" | wc -l)"
    if ! cmp -s tools/packages/uv.txt "$folder/uv/pins.txt"; then
      rm -rf "$folder/uv"
      logged /usr/bin/python3 -m venv "$folder/uv"
      logged "$folder/uv/bin/pip" install --disable-pip-version-check --only-binary=:all: -r tools/packages/uv.txt
      cp tools/packages/uv.txt "$folder/uv/pins.txt"
    fi
    rm -rf "${folder:?}/$name"
    logged "$folder/uv/bin/uv" venv --python /usr/bin/python3 "$folder/$name"
    logged "$folder/uv/bin/uv" pip install --python "$folder/$name/bin/python" --no-deps -r "$list"
    cp "$list" "$folder/$name/pins.txt"
    printf 'set-up: installed in %s s\n' $((SECONDS - start))
    start=$SECONDS
  done
}

. /etc/os-release 2>/dev/null || true
if [ "${ID:-}:${VERSION_ID:-}" != debian:12 ] || ! command -v dpkg-query >/dev/null; then
  fail "this set-up is for Debian 12; elsewhere install what tools/packages/ lists by hand and set MOTLEY_SKIP_SETUP=1"
fi

debian=()
python=no
clients=no
sources=no
for part in "$@"; do
  case "$part" in
    python) python=yes ;;
    clients) clients=yes ;;
    build | lint | fuzz | coverage) debian+=("$part") ;;&
    build) sources=yes ;;
    lint | fuzz | coverage) ;;
    *) fail "unknown part '$part': use build, lint, fuzz, coverage, python, clients" ;;
  esac
done
[ ${#debian[@]} = 0 ] || install_debian "${debian[@]}"
[ "$python" = no ] || install_python
[ "$sources" = no ] || install_sources
[ "$clients" = no ] || install_clients
