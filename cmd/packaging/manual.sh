#!/usr/bin/env bash
# Writes the manual pages of all programs and their commands to a folder, from the commands themselves.
set -euo pipefail
cd "$(dirname "$0")/../.."
to=$1
export SOURCE_DATE_EPOCH=${SOURCE_DATE_EPOCH:-$(git log -1 --format=%ct)}
export CGO_ENABLED=0 GOFLAGS=-trimpath
mkdir -p "$to"
tools=$(mktemp -d)
trap 'rm -rf "$tools"' EXIT
build=$(git describe --tags --always --abbrev=12 --dirty)
go build -tags manual -ldflags "-s -w -X github.com/numalet/numalet/internal/version.build=$build" -o "$tools/" ./cmd/numalet ./cmd/numalet-lab ./cmd/numalet-gpu
for program in numalet numalet-lab numalet-gpu; do
    # What a page says of the machine is the same on all: its home and its name.
    HOME=/root "$tools/$program" manual "$to"
done
