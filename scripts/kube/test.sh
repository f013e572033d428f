#!/bin/bash
# Run the tests that need a real API server; build it first where it is not built yet.
set -euo pipefail
cd "$(dirname "$0")/../.."
cache=${SGLR_KUBE_CACHE:-$HOME/.cache/sglr-kube}
scripts/kube/build.sh "$cache"
SGLR_KUBE_BIN="$cache/bin" exec .venv/bin/pytest tests/kube "$@"
