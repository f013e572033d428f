#!/usr/bin/env bash
# setup.sh DIR: a virtual environment in DIR/venv with an SGLang that runs without a GPU, and a tiny model in DIR/model.
#
# SGLang's wheels ask for CUDA builds; its server runs on a CPU all the same when its requirements are named by hand and
# the CUDA extensions it imports but does not call there are replaced by empty ones (cpu_stubs.py). Torch must be a CPU
# build: from your index, or set SGLR_TORCH to a wheel. Takes 3 GB and some minutes.
set -euo pipefail
here=$(cd "$(dirname "$0")" && pwd)
root=$(cd "$here/../.." && pwd)
target=$1
pip="$target/venv/bin/pip -q --disable-pip-version-check"

if [ ! -x "$target/venv/bin/python" ]; then
  python3.11 -m venv "$target/venv"
fi
$pip install "${SGLR_TORCH:-torch==2.13.0}"
$pip install --no-deps sglang==0.5.23 smg-grpc-servicer==0.14.1 smg-grpc-proto==0.4.28 compressed-tensors==0.18.0
$pip install -r "$here/requirements.txt"
site=$("$target/venv/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
cp "$here/cpu_stubs.py" "$site/sitecustomize.py"
"$target/venv/bin/python" -c 'import torch; assert not torch.cuda.is_available(); print("torch", torch.__version__)'
SGLANG_USE_CPU_ENGINE=1 "$target/venv/bin/python" -c 'import sglang.srt.managers.scheduler, sglang.srt.entrypoints.grpc_server'
"$root/.venv/bin/python" "$root/scripts/fetch_tokenizers.py" --only qwen3
"$target/venv/bin/python" "$here/tiny_model.py" "$root/.cache/tokenizers/qwen3" "$target/model"
