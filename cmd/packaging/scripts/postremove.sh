#!/bin/sh
# dpkg calls it with "remove" and, if that is wanted, with "purge"; rpm with how many versions stay.
# What is purged is the agent's own record of the node, which a kubelet does not read.
set -e
if [ "$1" = purge ]; then
    rm -rf "$DPKG_ROOT"/var/lib/kubelet/numalet_* "$DPKG_ROOT"/var/lib/kubelet/pods/*/numalet_*
    rmdir --ignore-fail-on-non-empty "$DPKG_ROOT/etc/systemd/system/numalet.service.d" 2>/dev/null || true
fi
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
case "$1" in
remove | purge | 0) systemctl daemon-reload ;;
esac
