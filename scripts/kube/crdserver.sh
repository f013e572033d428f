#!/bin/bash
# Build a current server of custom resources (apiextensions-apiserver), which evaluates CEL rules
# and validates strictly, from Debian unstable's packages of Go sources and its Go.
#
#   scripts/kube/crdserver.sh [DIR]    DIR defaults to ~/.cache/sglr-kube; result in DIR/crd
#
# scripts/kube/cluster.py puts it behind the older API server of build.sh. Installs nothing: packages
# are downloaded and unpacked under DIR, with package lists of its own. At once when DIR/crd is
# finished; else about six minutes on two idle cores and 3 GB while it runs. Unstable cannot be
# pinned, so this may fail one day: the caller says so and goes on without.
set -euo pipefail

root=$(realpath -m "${1:-${SGLR_KUBE_CACHE:-$HOME/.cache/sglr-kube}}")
recipe=$(sha256sum "$0" | cut -c1-12)
finished="$root/crd/.built-$recipe"
subject=golang-k8s-apiextensions-apiserver-dev

mkdir -p "$root"
exec 9>"$root/.lock-crd"
flock 9
if [ -e "$finished" ]; then
  exit 0
fi

work="$root/work-crd"
rm -rf "$work" "$root/crd"
mkdir -p "$work"/{lists/partial,archives/partial,debs,unpacked,home} "$root/crd"

log() { printf 'crd server build: [%s s] %s\n' "$SECONDS" "$*" >&2; }

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
Types: deb
URIs: $uri
Suites: sid
Components: main
Signed-By: /usr/share/keyrings/debian-archive-keyring.gpg
SOURCES

debian() {
  local program=$1
  shift
  "$program" -q \
    -o Dir::Etc::sourcelist="$work/debian.sources" -o Dir::Etc::sourceparts=- \
    -o Dir::State::Lists="$work/lists" -o Dir::State::status="$work/nothing-installed" \
    -o Dir::Cache="$work" -o APT::Sandbox::User=root -o Acquire::Languages=none \
    -o Acquire::Retries=3 "$@"
}

log "fetching sources and Go"
: >"$work/nothing-installed"
debian apt-get update >/dev/null
# What the server's sources import, and what that imports, as the packages themselves say.
needed() {
  debian apt-cache depends --recurse --no-recommends --no-suggests --no-conflicts --no-breaks \
    --no-replaces --no-enhances "$subject" | grep -oE '^golang-[a-z0-9.+-]+-dev$' | LC_ALL=C sort -u
}
real() { # of names, those that are packages and not only provided by some
  debian apt-cache show --no-all-versions "$@" 2>/dev/null | awk '/^Package:/ {print $2}' | LC_ALL=C sort -u
}
mapfile -t sources < <(needed)
mapfile -t sources < <(real "${sources[@]}")
compiler=$(debian apt-cache depends golang-go | grep -oE 'golang-1\.[0-9]+-go' | head -1)
log "${#sources[@]} packages of sources, $compiler"
(cd "$work/debs" && debian apt-get download "$compiler" "${compiler%-go}-src" "${sources[@]}" >/dev/null)
for deb in "$work"/debs/*.deb; do
  dpkg -x "$deb" "$work/unpacked"
done
version=$(find "$work/debs" -name "${subject}_*" | sed -E 's/.*_0\.([0-9.]+).*/1.\1/')

export GOROOT="$work/unpacked/usr/lib/${compiler%-go}" GOPATH="$work/unpacked/usr/share/gocode"
GOROOT=${GOROOT/golang-/go-}
export GOCACHE="$work/gocache" HOME="$work/home" PATH="$GOROOT/bin:$PATH"
export GO111MODULE=off GOPROXY=off GOFLAGS= CGO_ENABLED=0 GOTOOLCHAIN=local
log "compiling apiextensions-apiserver $version"
symbols="-s -w"
package=k8s.io/component-base/version
symbols+=" -X $package.gitVersion=v$version -X $package.gitMajor=1"
symbols+=" -X $package.gitMinor=$(cut -d. -f2 <<<"$version") -X $package.gitTreeState=archive"
cd "$GOPATH/src/k8s.io/apiextensions-apiserver"
nice go build -gcflags=all=-dwarf=false -ldflags "$symbols" \
  -o "$root/crd/apiextensions-apiserver" .

chmod -R u+w "$work"
rm -rf "$work"
echo "$version" >"$root/crd/version"
touch "$finished"
log "finished in $root/crd"
