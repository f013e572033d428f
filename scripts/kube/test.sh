#!/bin/bash
# Run the tests that need a real API server; build what they need first, where it is not built yet.
#
#   scripts/kube/test.sh [PYTEST ARGUMENTS]
#
# Everything that is slow to make is kept in ~/.cache/sglr-kube (SGLR_KUBE_CACHE), outside of the
# repository. Each phase says how long it took; what is fetched is tried three times. Without the
# server of custom resources the run goes on, and says how many CEL rules nobody checked.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${SGLR_KUBE_CACHE:-$HOME/.cache/sglr-kube}

phase() {
  local begin=$SECONDS code=0 name=$1
  shift
  echo "== $name"
  "$@" || code=$?
  echo "== $name took $((SECONDS - begin)) s"
  return "$code"
}

phase "API server" scripts/kube/thrice.sh scripts/kube/build.sh "$cache"
phase "server of custom resources" scripts/kube/thrice.sh scripts/kube/crdserver.sh "$cache" ||
  echo "no server of custom resources: CEL rules are checked by cel-python alone"
SGLR_KUBE_BIN="$cache/bin" phase "tests" .venv/bin/pytest tests/kube --durations=5 "$@"
