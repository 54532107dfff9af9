#!/usr/bin/env bash
# Installs programs with their units, manual pages and completions, or removes them again.
#
#   cmd/packaging/install.sh install|uninstall DESTDIR PREFIX BIN MANUAL PROGRAM...
#
# BIN has the programs (numalet, numalet-lab, numalet-gpu), MANUAL their manual pages. All goes below
# DESTDIR/PREFIX. It starts, stops and enables no service.
set -euo pipefail
shopt -s nullglob
cd "$(dirname "$0")/../.."
what=$1 destdir=$2 prefix=$3 bin=$4 manual=$5
shift 5
made=$(mktemp -d)
trap 'rm -rf "$made"' EXIT

put() { # MODE FILE PLACE
    local at=$destdir$prefix/$3
    if [ "$what" = uninstall ]; then
        rm -f "$at"
    else
        install -D -m "$1" "$2" "$at"
    fi
}

# completions are the program's own words for a shell.
completions() { # PROGRAM
    local shell place
    for shell in bash:share/bash-completion/completions/$1 zsh:share/zsh/site-functions/_$1 \
        fish:share/fish/vendor_completions.d/$1.fish; do
        place=${shell#*:}
        if [ "$what" = install ]; then
            "$bin/$1" completion "${shell%%:*}" >"$made/completion"
        fi
        put 644 "$made/completion" "$place"
    done
}

manual_pages() { # PROGRAM: its own and those of its commands, which no other program's begin with
    local page from=$manual
    if [ "$what" = uninstall ]; then
        from=$destdir$prefix/share/man/man1
    fi
    for page in "$from/$1".1* "$from/$1"-*.1*; do
        page=${page%.gz}
        case $1:$(basename "$page") in
        numalet:numalet-lab[.-]* | numalet:numalet-gpu[.-]*) ;;
        *)
            if [ "$what" = install ]; then
                gzip -9nc "$page" >"$made/page"
            fi
            put 644 "$made/page" "share/man/man1/$(basename "$page").gz"
            ;;
        esac
    done
}

units() {
    local unit
    for unit in numalet.service 10-kubeadm.conf; do
        sed "s|@PREFIX@|$prefix|g" "cmd/packaging/systemd/$unit" >"$made/$unit"
    done
    put 644 "$made/numalet.service" lib/systemd/system/numalet.service
    put 644 "$made/10-kubeadm.conf" lib/systemd/system/numalet.service.d/10-kubeadm.conf
    if [ "$what" = uninstall ]; then
        rmdir "$destdir$prefix/lib/systemd/system/numalet.service.d" 2>/dev/null || true
    fi
}

for program; do
    put 755 "$bin/$program" "bin/$program"
    put 644 LICENSE "share/doc/$program/LICENSE"
    put 644 CHANGELOG.md "share/doc/$program/CHANGELOG.md"
    completions "$program"
    manual_pages "$program"
    if [ "$program" = numalet ]; then
        units
    fi
    if [ "$what" = uninstall ]; then
        rmdir "$destdir$prefix/share/doc/$program" 2>/dev/null || true
    fi
done
