#!/bin/sh
# Builds the real servers the tests run against, pinned by go.mod beside this file, and prints the
# folder they are in. A folder once built is used again: its name is the hash of everything
# that decides its content.
#
#   bin=$(test/tools/build.sh)
set -eu

cd "$(dirname "$0")"
key=$(cat go.mod go.sum build.sh | sha256sum | cut -c1-16)
cache=${XDG_CACHE_HOME:-$HOME/.cache}/numalet/tools
bin=$cache/$key/bin

say() { echo "tools: $*" >&2; }

mkdir -p "$cache"
exec 9>"$cache/lock"
flock -n 9 || { # another build is under way, and then nothing is left to do
	say "waiting for another build, up to 2 minutes"
	flock 9
}

if [ ! -d "$bin" ]; then
	containerd=github.com/containerd/containerd/v2
	version=$(go list -m -f '{{.Version}}' $containerd)
	new=$(mktemp -d "$cache/new.XXXXXX")
	trap 'rm -rf "$new"' EXIT
	trap 'exit 130' INT TERM HUP
	chmod 755 "$new"
	say "containerd $version is downloaded and built, once: about 2 minutes on two cores"
	began=$(date +%s)
	for cmd in containerd containerd-shim-runc-v2 ctr; do
		say "building $cmd"
		CGO_ENABLED=0 GOFLAGS= nice go build -trimpath -buildvcs=false \
			-tags no_btrfs,no_zfs,no_devmapper \
			-ldflags "-s -w -X $containerd/version.Version=$version" \
			-o "$new/bin/" $containerd/cmd/$cmd
	done
	mv "$new" "$cache/$key"
	trap - EXIT
	say "built into $bin in $(($(date +%s) - began)) s"
fi
echo "$bin"
