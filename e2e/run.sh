#!/usr/bin/env bash
# The end-to-end suite.
#
#   e2e/run.sh [PYTEST ARGUMENTS]         on a throw-away cluster on this machine; root, no Docker
#   e2e/run.sh --kind [PYTEST ARGUMENTS]  on kind, where Docker, kind, kubectl and helm are; written
#                                         with the same care, but not run yet: no Docker was at hand
#
# SGLR_E2E_IMAGE=FILE.tar takes an image that is built already. Everything that is slow to make
# is kept in ~/.cache: the cluster's programs, kubectl and helm, and the image but for the project.
# Seconds measured on two cores: image 53 to 96 (15 from the cache), cluster and loading 30 to 75,
# the 23 scenarios 520 to 590, ending 15; building the programs for the first time 230.
set -euo pipefail
cd "$(dirname "$0")/.."

provider=node
if [ "${1:-}" = --kind ]; then
  provider=kind
  shift
fi
cache=${SGLR_KUBE_CACHE:-$HOME/.cache/sglr-kube}
mkdir -p "$cache"
work=$(mktemp -d "${TMPDIR:-/tmp}/sglr-e2e-XXXXXX")
echo $$ >"$work/owner"
# What kind takes, in the README as well, where no name is given.
export KIND_CLUSTER_NAME=sglr-e2e
child=""
began=$SECONDS

# What runs has a process group of its own, and ends with this script: bash would leave it behind.
set -m
phase() {
  local begin=$SECONDS name=$1 code=0
  shift
  echo "== $name"
  "$@" 9>&- </dev/null &
  child=$!
  wait "$child" || code=$?
  child=""
  echo "== $name took $((SECONDS - begin)) s"
  return "$code"
}

finish() {
  local code=$?
  trap - EXIT
  trap "" INT TERM HUP
  if [ -n "$child" ]; then
    kill -TERM -- "-$child" 2>/dev/null || true
    wait "$child" || true
  fi
  echo "== ending"
  remove_cluster "$work" || code=1
  rm -rf "$work"
  echo "== all took $((SECONDS - began)) s, ending with status $code"
  exit "$code"
}
trap finish EXIT
trap "exit 130" INT
trap "exit 143" TERM HUP

remove_cluster() {
  case "$provider" in
    node) if [ -d "$1/cluster" ]; then .venv/bin/python scripts/kube/node.py down "$1/cluster"; fi ;;
    kind) if [ -e "$1/kubeconfig" ]; then kind delete cluster --name "$KIND_CLUSTER_NAME"; fi ;;
  esac
}

# A run that was killed could not end what it had started.
remove_leftovers() {
  local folder owner
  for folder in "${TMPDIR:-/tmp}"/sglr-e2e-*; do
    owner=$(cat "$folder/owner" 2>/dev/null || true)
    if [ -n "$owner" ] && ! kill -0 "$owner" 2>/dev/null; then
      remove_cluster "$folder"
      rm -rf "$folder"
    fi
  done
}

# The README's own commands, in a folder that looks like the checkout and is thrown away.
readme() {
  local root=$PWD
  mkdir -p "$work/checkout"
  ln -sfn "$root"/* "$root/.venv" "$work/checkout"
  (cd "$work/checkout" && "$root/.venv/bin/python" "$root/e2e/readme.py" "$@")
}

build_image() {
  if [ -n "${SGLR_E2E_IMAGE:-}" ]; then
    mkdir -p "$work/checkout"
    ln -s "$(realpath "$SGLR_E2E_IMAGE")" "$work/checkout/sglr.tar"
  else
    SGLR_IMAGE_CACHE="$cache" readme .venv/bin/python
  fi
}

case "$provider" in
  node)
    if [ "$(id -u)" != 0 ]; then
      echo "A node of a cluster needs root: run this as root, or make e2e-kind where Docker is." >&2
      exit 1
    fi
    # Pods and Services have the same addresses in every cluster: one at a time.
    exec 9>"$cache/.lock-e2e"
    flock --wait 1800 9 || { echo "another end-to-end run goes on" >&2; exit 1; }
    phase "leftovers" remove_leftovers
    phase "cluster's programs" scripts/kube/thrice.sh scripts/kube/build.sh --node "$cache"
    phase "kubectl and helm" scripts/kube/thrice.sh scripts/kube/clients.sh "$cache/clients"
    export PATH="$cache/clients:$PATH"
    phase "image" build_image
    phase "cluster" .venv/bin/python scripts/kube/node.py up "$work/cluster"
    export KUBECONFIG="$work/cluster/kubeconfig"
    export SGLR_E2E_INSIDE="$PWD/.venv/bin/python $PWD/scripts/kube/node.py enter $work/cluster"
    export SGLR_E2E_NODE=$SGLR_E2E_INSIDE
    readme_inside() {
      (cd "$work/checkout" && $SGLR_E2E_INSIDE "$OLDPWD/.venv/bin/python" "$OLDPWD/e2e/readme.py" "$@")
    }
    phase "image to the node" readme_inside ctr
    # Helm 4 applies on the server's side, and this API server refuses CRDs with newer fields so.
    export SGLR_E2E_HELM_FLAGS="--server-side=false" SGLR_E2E_APPLY_FLAGS="--validate=false"
    ;;
  kind)
    export KUBECONFIG="$work/kubeconfig"
    phase "image" build_image
    phase "cluster" kind create cluster --name "$KIND_CLUSTER_NAME" --wait 120s
    export SGLR_E2E_NODE="docker exec $KIND_CLUSTER_NAME-control-plane"
    phase "image to the node" readme kind
    ;;
esac

# Not pyproject.toml's own suite: its deadline of 20 s a test is too short for a rollout, and
# threads of the load end after the test that watches them.
phase "scenarios" .venv/bin/python -m pytest e2e -o "pythonpath=e2e" -o "timeout=420" -p no:cacheprovider -s -x "$@"
