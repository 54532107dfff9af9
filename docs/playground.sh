#!/usr/bin/env bash
# Draws docs/playground.svg: what the playground shows once its pods have settled.
#   make build && docs/playground.sh
set -euo pipefail
cd "$(dirname "$0")/.."
${NUMALET:-bin/numalet} playground --once </dev/null 2>/dev/null |
    sed -E 's|/tmp/numalet-[0-9]+|/tmp/numalet|g; s|127\.0\.0\.1:[0-9]+|127.0.0.1:37715|g' |
    awk '
    { if (length($0) > 112 && !/─/) $0 = substr($0, 1, 109) "..."
      shown = $0; gsub(/─/, "-", shown); if (length(shown) > wide) wide = length(shown)
      gsub(/&/, "\\&amp;"); gsub(/</, "\\&lt;"); gsub(/>/, "\\&gt;"); line[NR] = $0 }
    END {
        width = wide * 7.8 + 32; height = NR * 18 + 32
        printf "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"%d\" height=\"%d\" viewBox=\"0 0 %d %d\" role=\"img\">\n", width, height, width, height
        printf "<title>The playground of numalet</title>\n<rect width=\"100%%\" height=\"100%%\" rx=\"8\" fill=\"#14181f\"/>\n"
        printf "<g font-family=\"ui-monospace, DejaVu Sans Mono, Menlo, Consolas, monospace\" font-size=\"13\" fill=\"#d8dee9\" xml:space=\"preserve\">\n"
        for (i = 1; i <= NR; i++) {
            colour = ""
            if (line[i] ~ / Running /) colour = " fill=\"#8fd18f\""
            if (line[i] ~ / Pending /) colour = " fill=\"#e5c76b\""
            if (line[i] ~ / Failed /) colour = " fill=\"#e08080\""
            if (line[i] ~ /^free:/) colour = " fill=\"#88b4e7\""
            printf "<text x=\"16\" y=\"%d\"%s>%s</text>\n", 16 + i * 18, colour, line[i]
        }
        print "</g>\n</svg>"
    }' >docs/playground.svg
