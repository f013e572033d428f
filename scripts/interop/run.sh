#!/usr/bin/env bash
# run.sh [DIR]: SGLang's HTTP server, the same SGLang behind the router over gRPC, and the comparison of the two.
# DIR (.cache/interop) is what setup.sh makes; each server has its log there. Ends what it started.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=$(mkdir -p "${1:-$root/.cache/interop}" && cd "${1:-$root/.cache/interop}" && pwd)
[ -f "$target/model/config.json" ] || "$here/setup.sh" "$target"

pids=()
end() { for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done; wait || true; }
trap end EXIT

free_port() { "$root/.venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

sglang() {  # PORT LOG [ARGS...]
  local port=$1 log=$2
  shift 2
  SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$target/venv/bin/python" -m sglang.launch_server \
    --model-path "$target/model" --served-model-name tiny --host 127.0.0.1 --port "$port" --device cpu \
    --attention-backend torch_native --sampling-backend pytorch --context-length 8192 --max-total-tokens 65536 \
    --max-running-requests 32 --disable-overlap-schedule --skip-server-warmup "$@" >"$target/$log" 2>&1 &
  pids+=($!)
}

until_ok() {  # URL LOG
  for _ in $(seq 300); do
    curl -fsS -o /dev/null "$1" 2>/dev/null && return
    sleep 1
  done
  echo "no answer from $1; see $target/$2" >&2
  tail -5 "$target/$2" >&2
  return 1
}

http=$(free_port) grpc=$(free_port) router=$(free_port)
sglang "$http" reference.log
until_ok "http://127.0.0.1:$http/health" reference.log
sglang "$grpc" worker.log --smg-grpc-mode
cat >"$target/backends.yaml" <<YAML
apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {name: tiny}
spec:
  model: {name: tiny}
  tokenizer: {path: $target/model}
  workers: {static: {endpoints: [{host: 127.0.0.1, port: $grpc}]}}
YAML
"$root/.venv/bin/sglr" serve -f "$target/backends.yaml" --port "$router" >"$target/router.log" 2>&1 &
pids+=($!)
until_ok "http://127.0.0.1:$router/readyz" worker.log
PYTHONPATH="$root/scripts" "$root/.venv/bin/python" -m interop.compare \
  --reference "http://127.0.0.1:$http" --router "http://127.0.0.1:$router"
