#!/usr/bin/env bash
# Generates the Go code of our .proto files. Needs protoc (Debian: protobuf-compiler).
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
# What watch.proto imports, under the name that its Go package registers it with.
api=staging/src/k8s.io/kubelet/pkg/apis/podresources/v1
mkdir -p "$work/$api"
cat "$(go list -m -f '{{.Dir}}' k8s.io/kubelet)/pkg/apis/podresources/v1/api.proto" >"$work/$api/api.proto"
PATH=$work:$PATH protoc -I . -I "$work" \
    --go_out=paths=source_relative:. --go-grpc_out=paths=source_relative:. \
    agent/serving/podresources/watchv1/watch.proto deviceplugin/lifecyclev1/lifecycle.proto
