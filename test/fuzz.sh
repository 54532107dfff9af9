#!/usr/bin/env bash
# Runs every fuzz target of the module for the given time each (10s). With a second argument, N, the
# N smallest inputs that reached something new are kept in the target's testdata/fuzz, where every
# run of the tests tries them.
set -euo pipefail
cd "$(dirname "$0")/.."
time=${1:-10s}
keep=${2:-0}
cache=$(go env GOCACHE)/fuzz

keep_inputs() { # PACKAGE DIR TARGET
    local found=$cache/$1/$3 kept=$2/testdata/fuzz/$3
    [ -d "$found" ] || return 0
    mkdir -p "$kept"
    find "$found" -type f -size -4k -printf "%s %p\n" | sort -n |
        awk -v n="$keep" "NR <= n { print \$2 }" |
        xargs -r cp -t "$kept"
}

while read -r package dir; do
    for target in $(grep -hoE '^func Fuzz[A-Za-z0-9_]+' "$dir"/*_test.go 2>/dev/null | awk '{print $2}'); do
        echo "== $target in ${dir#"$PWD"/}"
        go test -run '^$' -fuzz "^$target\$" -fuzztime "$time" -fuzzminimizetime 10x "$dir"
        if [ "$keep" -gt 0 ]; then
            keep_inputs "$package" "$dir" "$target"
        fi
    done
done < <(go list -f '{{.ImportPath}} {{.Dir}}' ./...)
