#!/usr/bin/env bash
# Makes the release twice, from two clones in different folders, with another umask, time zone and hour,
# and compares all bytes. What is not committed is not looked at.
set -euo pipefail
cd "$(dirname "$0")/../.."
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
git clone -q . "$work/one"
git clone -q . "$work/another folder"
(umask 022 && TZ=UTC "$work/one/cmd/packaging/dist.sh" "$work/a")
find "$work/another folder" -not -path '*/.git/*' -exec touch -d '2001-02-03 04:05' {} +
(umask 077 && TZ=Asia/Tokyo "$work/another folder/cmd/packaging/dist.sh" "$work/b")
diff -r "$work/a" "$work/b"
echo "both releases have the same bytes:"
cat "$work/a/SHA256SUMS"
