#!/bin/sh
# dpkg calls it with `configure`, or `triggered` after an upgrade of Python; rpm with the number of installed versions.
# Builds the environment of the agent from the wheels of the package, without an index, and then replaces the one in
# use: whatever fails, the agent that runs continues to run.
set -e
umask 022
python=@PYTHON@
home=/opt/drydock-agent
place=/opt/drydock-agent.d
settings=/etc/drydock-agent.env
unit=drydock-agent.service

case "$1" in
triggered)
    if "$home/bin/drydock-agent" --version >/dev/null 2>&1; then exit 0; fi
    ;;
configure | [0-9]*) ;;
*) exit 0 ;;
esac

if [ -e "$settings.kept" ]; then mv -f "$settings.kept" "$settings"; fi
is_new=
[ -e "$home" ] || is_new=yes

new=$(mktemp -d "$place/env.XXXXXX")
trap 'rm -rf "$new"' EXIT
chmod 755 "$new"
unset PYTHONHOME PYTHONPATH
"$python" -m venv "$new"
(
    cd "$place/wheels"
    PIP_CONFIG_FILE=/dev/null "$new/bin/pip" --isolated --disable-pip-version-check install --quiet --no-cache-dir \
        --no-index --find-links . --require-hashes -r requirements.txt
)
"$new/bin/drydock-agent" --version >/dev/null
trap - EXIT

# The install command makes a folder of it.
if [ -d "$home" ] && [ ! -L "$home" ]; then mv "$home" "$place/env.command"; fi
rm -f "$place/next"
ln -s "drydock-agent.d/${new##*/}" "$place/next"
mv -T "$place/next" "$home"
if command -v restorecon >/dev/null; then restorecon -R "$place" "$home"; fi

if command -v systemctl >/dev/null; then
    if [ -d /run/systemd/system ]; then systemctl daemon-reload; fi
    # The unit of the install command would hide the same one of the package.
    if cmp -s "/etc/systemd/system/$unit" "/usr/lib/systemd/system/$unit"; then
        is_enabled=$(systemctl is-enabled "$unit" 2>/dev/null || true)
        rm "/etc/systemd/system/$unit"
        if [ "$is_enabled" = enabled ]; then systemctl --quiet reenable "$unit"; fi
    fi
    is_set=
    if grep -q '^DRYDOCK_FLEET_URL=.' "$settings"; then is_set=yes; fi
    if [ "$is_new" ] && [ "$is_set" ]; then systemctl --quiet enable "$unit" || true; fi
    if [ "$is_new" ] && [ ! "$is_set" ]; then
        echo "Write the settings to $settings, then run: systemctl enable --now drydock-agent"
    elif [ -d /run/systemd/system ]; then
        verb=try-restart
        if [ "$is_new" ]; then verb=start; fi
        systemctl "$verb" "$unit" || echo "The agent did not start: journalctl --unit drydock-agent" >&2
    fi
fi

for each in "$place"/env.*; do
    [ "$each" = "$new" ] || rm -rf "$each"
done
