#!/bin/bash
# Build the API server and the controller manager that `make test-kube` runs against, from
# Debian's source package and with Debian's Go, and fetch etcd and kubectl beside them. With
# --node also what makes pods run, for `make e2e`: scheduler, kubelet, kube-proxy, containerd.
#
#   scripts/kube/build.sh [--node] [DIR]    DIR defaults to ~/.cache/sglr-kube; result in DIR/bin
#
# Installs nothing: packages are downloaded and unpacked under DIR, with package lists of its own.
# A second run with a finished DIR returns at once, and what --node built serves both. About five
# minutes on two idle cores, 2.5 GB while it runs, 250 MB afterwards (450 MB with --node). Needs
# apt with a Debian archive configured, and dpkg-dev.
set -euo pipefail

node=
if [ "${1:-}" = --node ]; then
  node=-node
  shift
fi
suite=bookworm # the newest suite whose source package still holds the servers
root=$(realpath -m "${1:-${SGLR_KUBE_CACHE:-$HOME/.cache/sglr-kube}}")
recipe=$(sha256sum "$0" | cut -c1-12)
finished="$root/bin/.built-$recipe$node"

mkdir -p "$root"
exec 9>"$root/.lock"
flock 9
if [ -e "$finished" ]; then
  exit 0
fi

work="$root/work"
rm -rf "$work" "$root/bin" "$root/unpacked"
mkdir -p "$work"/{lists/partial,archives/partial,debs,source,go,home} "$root/bin" "$root/unpacked"

log() { printf 'kube build: %s\n' "$*" >&2; }

# The first Debian archive in this machine's own apt configuration, in either file format.
archive() {
  {
    cat /etc/apt/sources.list.d/*.sources 2>/dev/null | awk '/^URIs:/ {for (i = 2; i <= NF; i++) print $i}'
    cat /etc/apt/sources.list /etc/apt/sources.list.d/*.list 2>/dev/null |
      sed 's/\[[^]]*\]//' | awk '$1 == "deb" {print $2}'
  } | grep -m1 -E '/debian/?$' || true
}

uri=$(archive)
if [ -z "$uri" ]; then
  log "no Debian archive is configured in /etc/apt"
  exit 1
fi
cat >"$work/debian.sources" <<SOURCES
Types: deb deb-src
URIs: $uri
Suites: $suite
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES

debian() {
  apt-get -qq \
    -o Dir::Etc::sourcelist="$work/debian.sources" -o Dir::Etc::sourceparts=- \
    -o Dir::State::Lists="$work/lists" -o Dir::Cache="$work" \
    -o APT::Sandbox::User=root -o Acquire::Languages=none "$@"
}

log "fetching sources, Go, etcd and kubectl"
debian update
packages=(golang-1.19-go golang-1.19-src golang-github-modern-go-reflect2-dev etcd-server kubernetes-client)
commands=(./cmd/kube-apiserver ./cmd/kube-controller-manager)
if [ -n "$node" ]; then
  packages+=(containerd runc containernetworking-plugins iptables conntrack libip4tc2 libip6tc2
    libxtables12 libnftnl11 libmnl0 libnfnetlink0 libnetfilter-conntrack3)
  commands+=(./cmd/kube-scheduler ./cmd/kube-proxy ./cmd/kubelet)
fi
(cd "$work/debs" && debian download "${packages[@]}")
(cd "$work/source" && debian source --download-only kubernetes && dpkg-source --no-check -x kubernetes_*.dsc tree >/dev/null)
for deb in "$work"/debs/*.deb; do
  dpkg -x "$deb" "$root/unpacked"
done

export GOROOT="$root/unpacked/usr/lib/go-1.19" GOPATH="$work/go" GOCACHE="$work/gocache" HOME="$work/home"
export PATH="$GOROOT/bin:$PATH" CGO_ENABLED=0 GOPROXY=off GOFLAGS=
export GO111MODULE=off # module mode refuses this tree's go.mod ("updates to go.mod needed")
tree="$GOPATH/src/k8s.io/kubernetes"
mkdir -p "$(dirname "$tree")"
mv "$work/source/tree" "$tree"
cd "$tree"

# The vendored reflect2 reads the runtime's map iterator as it was before Go 1.18 and crashes the
# server at the first custom resource; Debian packages the fixed release.
rm -rf vendor/github.com/modern-go/reflect2
cp -r "$root/unpacked/usr/share/gocode/src/github.com/modern-go/reflect2" vendor/github.com/modern-go/

# The OpenAPI definitions are generated, and not part of the source package.
log "generating OpenAPI definitions"
nice go build -o "$work/openapi-gen" ./vendor/k8s.io/kube-openapi/cmd/openapi-gen
annotated=$(
  {
    find pkg cmd plugin -name '*.go' -not -path '*/testdata/*'
    find -L vendor/k8s.io -name '*.go' \
      -not -path 'vendor/k8s.io/code-generator/*' -not -path 'vendor/k8s.io/sample-apiserver/*'
  } | xargs grep -lE '^// *\+k8s:openapi-gen=' | xargs -n1 dirname | LC_ALL=C sort -u |
    sed 's#^#k8s.io/kubernetes/#' | paste -sd,
)
"$work/openapi-gen" --logtostderr -i "$annotated" -p k8s.io/kubernetes/pkg/generated/openapi \
  -O zz_generated.openapi -h hack/boilerplate/boilerplate.generatego.txt -r "$work/violations"

version=$(sed -n 's/^Version: .*really\([0-9.]*\)-.*/\1/p' "$work"/source/kubernetes_*.dsc | head -1)
version=${version:-1.20.2}
symbols="-s -w"
for package in k8s.io/kubernetes/vendor/k8s.io/component-base/version k8s.io/kubernetes/vendor/k8s.io/client-go/pkg/version; do
  symbols+=" -X $package.gitVersion=v$version -X $package.gitMajor=1 -X $package.gitMinor=20"
  symbols+=" -X $package.gitTreeState=archive -X $package.buildDate=1970-01-01T00:00:00Z"
done
log "compiling Kubernetes $version"
nice go build -tags "providerless dockerless nokmem" -gcflags=all=-dwarf=false -ldflags "$symbols" \
  -o "$root/bin/" "${commands[@]}"

cp "$root/unpacked/usr/bin/etcd" "$root/unpacked/usr/bin/kubectl" "$root/bin/"
if [ -n "$node" ]; then
  for program in containerd containerd-shim-runc-v2 ctr; do
    cp "$root/unpacked/usr/bin/$program" "$root/bin/"
  done
  cp "$root/unpacked/usr/sbin/runc" "$root/bin/"
  cp -r "$root/unpacked/usr/lib/cni" "$root/bin/cni"

  # iptables and conntrack run from here, with their own libraries.
  libraries=$(basename "$(dirname "$root"/unpacked/usr/lib/*-linux-gnu/xtables)")
  mkdir "$root/bin/net"
  cp -r "$root/unpacked/usr/lib/$libraries" "$root/bin/net/lib"
  cp "$root/unpacked/usr/sbin/xtables-nft-multi" "$root/unpacked/usr/sbin/conntrack" "$root/bin/net/"
  program() { # name, then the command it stands for
    local name=$1
    shift
    printf '#!/bin/sh\nhere=$(dirname "$(readlink -f "$0")")/net\nexport LD_LIBRARY_PATH="$here/lib" XTABLES_LIBDIR="$here/lib/xtables"\nexec "$here/%s" %s"$@"\n' \
      "$1" "${2:+$2 }" >"$root/bin/$name"
    chmod +x "$root/bin/$name"
  }
  for table in iptables ip6tables; do
    for verb in "" -save -restore; do
      program "$table$verb" xtables-nft-multi "$table$verb"
    done
  done
  program conntrack conntrack

  # The process that holds a pod's namespaces, reaps what the pod leaves and ends on request.
  mkdir -p "$GOPATH/src/pause"
  cat >"$GOPATH/src/pause/main.go" <<'GO'
package main

import (
	"os"
	"os/signal"
	"syscall"
)

func main() {
	signals := make(chan os.Signal, 16)
	signal.Notify(signals, syscall.SIGINT, syscall.SIGTERM, syscall.SIGCHLD)
	for received := range signals {
		if received != syscall.SIGCHLD {
			os.Exit(0)
		}
		for {
			if pid, err := syscall.Wait4(-1, nil, syscall.WNOHANG, nil); pid <= 0 || err != nil {
				break
			}
		}
	}
}
GO
  go build -ldflags "-s -w" -o "$root/bin/pause" pause
fi
chmod -R u+w "$work"
rm -rf "$work" "$root/unpacked"
"$root/bin/kube-apiserver" --version >&2
touch "$root/bin/.built-$recipe" "$finished"
log "finished in $root/bin"
