#!/bin/sh
# dpkg calls it with `install` or `upgrade`, rpm with the number of installed versions.
set -e
settings=/etc/drydock-agent.env
# dpkg would ask about settings that were written before the first installation. They are put back in postinstall.sh.
if [ "$1" = install ] && [ -z "$2" ] && [ -e "$settings" ]; then
    mv "$settings" "$settings.kept"
fi
