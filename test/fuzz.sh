#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
for dir in $(go list -f '{{.Dir}}' ./...); do
    for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | awk '{print $2}'); do
        echo "== $target in ${dir#"$PWD"/}"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" "$dir"
    done
done
