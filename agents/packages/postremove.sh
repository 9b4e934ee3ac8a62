#!/bin/sh
# dpkg calls it with `remove`, `purge`, `upgrade` or `abort-install`, rpm with the number of versions that remain.
# Removal keeps settings, hooks and state; purging removes the state, too. rpm knows no purge.
set -e
settings=/etc/drydock-agent.env
case "$1" in
remove | 0)
    rm -rf /opt/drydock-agent /opt/drydock-agent.d
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
    ;;
purge)
    rm -rf /var/lib/drydock-agent /var/lib/private/drydock-agent
    ;;
abort-install)
    if [ -e "$settings.kept" ]; then mv -f "$settings.kept" "$settings"; fi
    ;;
esac
