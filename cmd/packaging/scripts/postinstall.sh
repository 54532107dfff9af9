#!/bin/sh
# dpkg calls it with "configure" and the version before, if there was one; rpm with how many versions
# are installed by then. An upgrade restarts an agent that runs; pods go on. A first installation
# starts nothing: a kubelet may run on the node.
set -e
[ -z "$DPKG_ROOT" ] && [ -d /run/systemd/system ] || exit 0
systemctl daemon-reload
case "$1:$2" in
configure:?* | 2:*) systemctl try-restart numalet.service ;;
esac
