#!/bin/sh
# dpkg calls it with `remove` or `upgrade`, rpm with the number of versions that remain.
set -e
case "$1" in
remove | 0)
    if command -v systemctl >/dev/null; then
        if [ -d /run/systemd/system ]; then systemctl stop drydock-agent || true; fi
        systemctl --quiet disable drydock-agent 2>/dev/null || true
    fi
    ;;
esac
