#!/usr/bin/env bash
# Builds a runc that puts network interfaces into containers, as Debian's does not yet, pinned by the
# go.mod in runc/, and prints the folder it is in. It takes a C compiler and libseccomp. Once built it
# is used again: the folder's name is the hash of everything that decides its content.
set -euo pipefail
cd "$(dirname "$0")/runc"
key=$(cat go.mod go.sum ../runc.sh | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet/runc
bin=$cache/$key

mkdir -p "$cache"
exec 9>"$cache/lock"
flock 9 # another build may be under way, and then nothing is left to do
if [ ! -e "$bin/runc" ]; then
    new=$(mktemp -d "$cache/new.XXXXXX")
    trap 'rm -rf "$new"' EXIT
    trap 'exit 130' INT TERM HUP
    echo "runc: downloaded and built, once: about a minute" >&2
    CGO_ENABLED=1 GOFLAGS='' nice go build -trimpath -buildvcs=false -tags seccomp -ldflags '-s -w' \
        -o "$new/runc" github.com/opencontainers/runc >&2
    chmod 755 "$new"
    mv "$new" "$bin"
    trap - EXIT
fi
echo "$bin"
