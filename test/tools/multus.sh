#!/usr/bin/env bash
# Builds Multus, the network plugin that gives pods several networks, pinned by the go.mod in multus/,
# and prints the folder it is in. Once built it is used again: the folder's name is the hash of
# everything that decides its content.
set -euo pipefail
cd "$(dirname "$0")/multus"
key=$(cat go.mod go.sum ../multus.sh | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet/multus
bin=$cache/$key

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # another build may be under way, and then nothing is left to do
if [ ! -e "$bin/multus" ]; then
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    echo "multus: downloaded and built, once: seconds where the servers are built, two minutes else" >&2
    CGO_ENABLED=0 GOFLAGS='' nice go build -trimpath -buildvcs=false -ldflags '-s -w' \
        -o "$new/multus" gopkg.in/k8snetworkplumbingwg/multus-cni.v4/cmd/multus >&2
    chmod 755 "$new"
    mv "$new" "$bin"
    trap - EXIT
fi
echo "$bin"
