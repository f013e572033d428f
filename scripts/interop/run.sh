#!/usr/bin/env bash
# run.sh [DIR]: SGLang's HTTP server, itself and as a worker of the router; the same SGLang behind the router over gRPC;
# and the comparison of each with the first; then every family's grammar of calls; then
# what ends or hangs an engine, sent to another one through the router.
# DIR (.cache/interop) is what setup.sh makes; each server has its log there. Ends what it started.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=$(mkdir -p "${1:-$root/.cache/interop}" && cd "${1:-$root/.cache/interop}" && pwd)
[ -f "$target/model/config.json" ] || "$here/setup.sh" "$target"

pids=()
end() {
  for pid in "${pids[@]}"; do kill "$pid" 2>/dev/null || true; done
  wait || true
  pids=()
}
trap end EXIT

free_port() { "$root/.venv/bin/python" -c 'import socket; s = socket.socket(); s.bind(("127.0.0.1", 0)); print(s.getsockname()[1])'; }

sglang() {  # PORT LOG [ARGS...]
  local port=$1 log=$2
  shift 2
  SGLANG_USE_CPU_ENGINE=1 OMP_NUM_THREADS=1 HF_HUB_OFFLINE=1 "$target/venv/bin/python" -m sglang.launch_server \
    --model-path "$target/model" --served-model-name tiny --host 127.0.0.1 --port "$port" --device cpu \
    --attention-backend torch_native --sampling-backend pytorch --context-length 8192 --max-total-tokens 65536 \
    --disable-overlap-schedule --skip-server-warmup "$@" >"$target/$log" 2>&1 &
  pids+=($!)
}

router() {  # PORT WORKER LOG SPEC...
  local port=$1 worker=$2 log=$3 manifest=$target/${3%.log}.yaml
  shift 3
  cat >"$manifest" <<YAML
apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {name: tiny}
spec:
  model: {name: tiny}
  tokenizer: {path: $target/model}
  workers: {static: {endpoints: [{host: 127.0.0.1, port: $worker}]}}
YAML
  printf '  %s\n' "$@" >>"$manifest"
  "$root/.venv/bin/sglr" serve -f "$manifest" --port "$port" >"$target/$log" 2>&1 &
  pids+=($!)
}

forward() {  # PORT WORKER LOG
  local manifest=$target/${3%.log}.yaml
  cat >"$manifest" <<YAML
apiVersion: sglr.dev/v1alpha1
kind: SGLangBackend
metadata: {name: tiny}
spec:
  model: {name: tiny}
  workers: {protocol: HTTP, static: {endpoints: [{host: 127.0.0.1, port: $2}]}}
YAML
  "$root/.venv/bin/sglr" serve -f "$manifest" --port "$1" >"$target/$3" 2>&1 &
  pids+=($!)
}

until_ok() {  # URL LOG: of the process that was started last
  for _ in $(seq 300); do
    curl -fsS -o /dev/null "$1" 2>/dev/null && return
    kill -0 "${pids[-1]}" 2>/dev/null || break
    sleep 1
  done
  echo "no answer from $1; see $target/$2" >&2
  tail -5 "$target/$2" >&2
  return 1
}

http=$(free_port) forwarded=$(free_port) grpc=$(free_port) full=$(free_port) compared=$(free_port) shield=$(free_port)
plain=$(free_port)
sglang "$http" reference.log --max-running-requests 32
until_ok "http://127.0.0.1:$http/health" reference.log
# The same server as a worker of HTTP: what is relayed must be what it says itself.
forward "$forwarded" "$http" forwarded.log
until_ok "http://127.0.0.1:$forwarded/readyz" forwarded.log
failed=0
PYTHONPATH="$root/scripts" "$root/.venv/bin/python" -m interop.clients --server "http://127.0.0.1:$http" || failed=1
PYTHONPATH="$root/scripts" "$root/.venv/bin/python" -m interop.compare --forwarded \
  --reference "http://127.0.0.1:$http" --router "http://127.0.0.1:$forwarded" || failed=1
# SGLang makes up these two ports by adding to the first, which can lead out of the range of ports.
sglang "$grpc" worker.log --max-running-requests 32 --smg-grpc-mode \
  --grpc-port "$(free_port)" --smg-http-sidecar-port "$(free_port)"
router "$compared" "$grpc" router.log 'routing: {policy: RoundRobin}'
until_ok "http://127.0.0.1:$compared/readyz" worker.log
PYTHONPATH="$root/scripts" "$root/.venv/bin/python" -m interop.compare \
  --reference "http://127.0.0.1:$http" --router "http://127.0.0.1:$compared" || failed=1
# A router that hands on the text as it was generated: the grammars are read back by the script.
router "$plain" "$grpc" plain.log 'parsers: {toolCall: none, reasoning: none}'
until_ok "http://127.0.0.1:$plain/readyz" plain.log
PYTHONPATH="$root/scripts" "$root/.venv/bin/python" -m interop.tags --router "http://127.0.0.1:$plain" || failed=1
end

# A small engine, and a router that is told to send it more than it queues.
sglang "$full" full.log --max-running-requests 8 --max-queued-requests 8 --smg-grpc-mode \
  --grpc-port "$(free_port)" --smg-http-sidecar-port "$(free_port)"
engine=${pids[-1]}
router "$shield" "$full" shield.log 'admission: {maxInflightPerEndpoint: 200}' 'timeouts: {firstToken: 20s}'
until_ok "http://127.0.0.1:$shield/readyz" full.log
PYTHONPATH="$root/scripts" "$root/.venv/bin/python" -m interop.shield \
  --router "http://127.0.0.1:$shield" || failed=1
kill -0 "$engine" || { echo "the engine's process has ended; see $target/full.log" >&2; failed=1; }
exit $failed
