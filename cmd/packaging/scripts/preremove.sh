#!/bin/sh
# dpkg calls it with "remove", or "upgrade" if another version follows; rpm with how many versions stay.
# The pods of an agent that stops go on, for the kubelet to take over.
set -e
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
case "$1" in
remove | 0) systemctl disable --now numalet.service ;;
esac
