# state PARENT ACQUISITION OWNER ID
# What became of a command: `exited N`, `signalled NAME`, `running`, `not-started`, `unknown WHY`, `foreign`.
id=$4
mark=LEASEHOLD_EXECUTION=$id dir= spare=
cd -P -- "$1/$2/.leasehold/x" 2>/dev/null || { echo 'unknown the workspace is gone'; exit; }
IFS= read -r have <../owner
[ "$have" = "leasehold 1 $3" ] || { echo foreign; exit; }
tell() {
    # Without its gate it has not begun, whatever its supervisor wrote.
    { read -r gate && [ "$gate" = go ]; } 2>/dev/null <"$id.go" || return 0
    { read -r pid start boot && read -r how number rest; } 2>/dev/null <"$id.run" || return 0
    # The last word shows that the line is whole.
    [ "$rest" = end ] || return 0
    [ "$how" = signal ] && echo "signalled $(kill -l "$number")" || echo "exited $number"
    exit
}
tell
set -C
try=0
while [ ! -s "$id.run" ]; do
    # Nobody has claimed it: claim it ourselves, and it can never begin.
    if echo tomb 2>/dev/null >"$id.run"; then
        echo not-started
        exit
    fi
    try=$((try + 1))
    if [ $try -gt 3 ]; then
        # Somebody died between claiming and writing, or the disk is full: with the gate closed it cannot begin.
        # Only a supervisor that has written opens the gate, so whoever closed it was one of us.
        [ -e "$id.go" ] || echo tomb 2>/dev/null >"$id.go"
        [ -e "$id.go" ] && echo not-started || echo 'unknown the record cannot be written'
        exit
    fi
    sleep 1
done
read -r pid start boot <"$id.run"
if [ "$pid" = tomb ]; then
    echo not-started
    exit
fi
# Claimed and not past the gate: about to begin, or dead. Closing the gate decides which.
[ -e "$id.go" ] || echo tomb 2>/dev/null >"$id.go"
read -r gate 2>/dev/null <"$id.go"
if [ "$gate" = tomb ]; then
    echo not-started
    exit
fi
read -r now </proc/sys/kernel/random/boot_id
if [ "$boot" != "$now" ]; then
    echo 'unknown the target was restarted'
    exit
fi
if IFS= read -r stat 2>/dev/null <"/proc/$pid/stat"; then
    set -- ${stat##*) }
    if [ "${20}" = "$start" ] && [ "$1" != Z ]; then
        echo running
        exit
    fi
fi
if [ -n "$(hunt)" ]; then
    echo running
    exit
fi
tell
echo 'unknown its supervisor was ended and left no record'
