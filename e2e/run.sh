#!/usr/bin/env bash
# The end-to-end suite.
#
#   e2e/run.sh [PYTEST ARGUMENTS]         on a throw-away cluster on this machine; root, no Docker
#   e2e/run.sh --kind [PYTEST ARGUMENTS]  on kind, where Docker, kind, kubectl and helm are
#
# SGLR_E2E_IMAGE=FILE.tar takes an image that is built already. Everything that is slow to make
# is kept in ~/.cache: the cluster's programs, kubectl and helm.
set -euo pipefail
cd "$(dirname "$0")/.."

provider=node
if [ "${1:-}" = --kind ]; then
  provider=kind
  shift
fi
cache=${SGLR_KUBE_CACHE:-$HOME/.cache/sglr-kube}
work=$(mktemp -d "${TMPDIR:-/tmp}/sglr-e2e-XXXXXX")
image=${SGLR_E2E_IMAGE:-$work/sglr.tar}

phase() {
  local begin=$SECONDS name=$1
  shift
  echo "== $name"
  "$@"
  echo "== $name took $((SECONDS - begin)) s"
}

build_image() {
  [ -e "$image" ] || .venv/bin/python scripts/build_image.py --output "$image"
}

case "$provider" in
  node)
    finish() {
      .venv/bin/python scripts/kube/node.py down "$work/cluster" || true
      rm -rf "$work"
    }
    trap finish EXIT
    phase "cluster's programs" scripts/kube/build.sh --node "$cache"
    phase "kubectl and helm" scripts/kube/clients.sh "$cache/clients"
    export PATH="$cache/clients:$PATH"
    phase "image" build_image
    phase "cluster" .venv/bin/python scripts/kube/node.py up "$work/cluster"
    export KUBECONFIG="$work/cluster/kubeconfig"
    phase "image to the node" .venv/bin/python scripts/kube/node.py load "$work/cluster" "$image"
    # Helm 4 applies on the server's side, and this API server refuses CRDs with newer fields so.
    export SGLR_E2E_HELM_FLAGS="--server-side=false"
    ;;
  kind)
    name=sglr-e2e
    finish() {
      kind delete cluster --name "$name"
      rm -rf "$work"
    }
    export KUBECONFIG="$work/kubeconfig"
    phase "image" build_image
    trap finish EXIT
    phase "cluster" kind create cluster --name "$name" --wait 120s
    phase "image to the node" kind load image-archive "$image" --name "$name"
    ;;
esac

# Not pyproject.toml's own suite: its deadline of 20 s a test is too short for a rollout, and
# threads of the load end after the test that watches them.
phase "scenarios" .venv/bin/python -m pytest e2e -o "pythonpath=e2e" -o "timeout=420" -p no:cacheprovider -s -x "$@"
