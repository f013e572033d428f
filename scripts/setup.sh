#!/usr/bin/env bash
# Creates .venv from a lock file and installs the project into it.
#   scripts/setup.sh run    what the product needs to run
#   scripts/setup.sh dev    that, and what tests and checks need
# Every step prints what it does; steps that need the network are tried three times.
set -euo pipefail
cd "$(dirname "$0")/.."

kind=${1:?run or dev}
case "$kind" in
  run) lock=requirements.lock ;;
  dev) lock=requirements-dev.lock ;;
  *) echo "setup: '$kind' is neither run nor dev" >&2; exit 2 ;;
esac
say() { echo "setup: $*"; }

retry() {
  local try
  for try in 1 2 3; do
    "$@" && return 0
    say "failed (try $try of 3): $*"
    sleep $((try * 2))
  done
  return 1
}

# Installs Debian packages as root; tells which ones otherwise.
need_packages() {
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null; then
    say "installing $* (Debian packages)"
    retry apt-get update -qq
    retry env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq "$@" >/dev/null
  else
    echo "setup: $* missing; install with: sudo apt-get install -y $*" >&2
    exit 1
  fi
}

# The distribution's interpreter goes first: Debian builds it with profile-guided optimisation, and a
# request takes a tenth less CPU than with one that was built without (docs/performance.md).
find_python() {
  local name
  for name in ${PYTHON:-/usr/bin/python3 python3 python3.11 python3.12 python3.13}; do
    "$name" -c "import sys, $1
sys.exit(sys.version_info < (3, 11))" 2>/dev/null && { echo "$name"; return; }
  done
  return 1
}

# One that has venv, else one that lacks that package only.
python=$(find_python ensurepip,venv || find_python sys) || {
  need_packages python3 python3-venv
  python=$(find_python sys) || {
    echo "setup: no Python 3.11 or newer found; set PYTHON=/path/to/python3.11" >&2; exit 1; }
}

if [ ! -x .venv/bin/pip ]; then
  "$python" -c 'import ensurepip, venv' 2>/dev/null || need_packages python3-venv
  say "creating .venv with $("$python" --version)"
  rm -rf .venv
  "$python" -m venv .venv
fi
pip=(.venv/bin/python -m pip --disable-pip-version-check --quiet)

say "installing $lock (versions and hashes pinned)"
retry "${pip[@]}" install --require-hashes -r "$lock"
say "installing the project"
"${pip[@]}" install --no-deps --no-build-isolation -e .
touch ".venv/.$kind"
[ "$kind" = dev ] && touch .venv/.run
say "done"
