# signal PARENT ACQUISITION OWNER ID SIGNAL
# Sends it to everything that the command started, never to its supervisor. Says `ok` or `none`.
mark=LEASEHOLD_EXECUTION=$4 dir= spare=
run=$1/$2/.leasehold/x/$4.run
if [ -s "$run" ]; then
    read -r pid start boot <"$run"
    if IFS= read -r stat 2>/dev/null <"/proc/$pid/stat"; then
        signal=$5
        set -- ${stat##*) }
        [ "${20}" = "$start" ] && spare=$pid
        set -- '' '' '' '' "$signal"
    fi
fi
round=0 any=none
while [ $round -lt 20 ]; do
    round=$((round + 1))
    found=$(hunt | sed 's/ .*//')
    [ -n "$found" ] || break
    any=ok
    if [ "$5" != KILL ]; then
        for pid in $found; do kill -s "$5" "$pid" 2>/dev/null; done
        # What is stopped takes nothing else: it is woken, as a terminal would.
        case $5 in
            TERM | HUP) for pid in $found; do kill -s CONT "$pid" 2>/dev/null; done ;;
        esac
        break
    fi
    for pid in $found; do kill -s STOP "$pid" 2>/dev/null; done
    for pid in $(hunt | sed 's/ .*//'); do kill -s KILL "$pid" 2>/dev/null; done
    [ $round -gt 5 ] && sleep 1
done
echo $any
