#!/usr/bin/env bash
# Gets the chart library that reports are drawn with, in the version that is kept here, and checks
# it against SHA256SUMS. For another version change it here, run with UPDATE=1 and read the diff.
# Needs npm.
set -euo pipefail
version=4.6.1
here=$(cd "$(dirname "$0")" && pwd)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
npm pack --silent "chart.js@$version" >/dev/null
tar -xzf "chart.js-$version.tgz" package/dist/chart.umd.min.js package/LICENSE.md
mv package/dist/chart.umd.min.js chart.umd.min.js
mv package/LICENSE.md LICENSE.chartjs.md
if [ "${UPDATE:-}" = 1 ]; then
    sha256sum "chart.js-$version.tgz" chart.umd.min.js LICENSE.chartjs.md >"$here/SHA256SUMS"
fi
sha256sum --check "$here/SHA256SUMS"
cp chart.umd.min.js LICENSE.chartjs.md "$here/"
