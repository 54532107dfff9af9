#!/usr/bin/env bash
# Generates the Go code of lifecycle.proto. Needs protoc (Debian: protobuf-compiler).
set -euo pipefail
cd "$(dirname "$0")/../.."
command -v protoc >/dev/null || {
    echo "protoc is missing: apt-get install protobuf-compiler" >&2
    exit 1
}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
GOBIN=$work go install google.golang.org/protobuf/cmd/protoc-gen-go@v1.36.11
GOBIN=$work go install google.golang.org/grpc/cmd/protoc-gen-go-grpc@v1.6.2
PATH=$work:$PATH protoc -I . \
    --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. \
    deviceplugin/lifecyclev1/lifecycle.proto
