# supervise NONCE PARENT ACQUISITION OWNER ID TTY BOOTSTRAP
# Becomes the supervisor of one command. Claims the id, then runs BOOTSTRAP as its child, which reads the
# command itself from the same stdin. The first line on stdout is NONCE and a word: `ok`, or why nothing runs.
# The record: ID.run (claimed: pid, start time, boot; later a second line, how it ended) and ID.go (the gate: from here on
# it runs). The end goes behind the claim, into the same block: it has room there when the disk is full.
nonce=$1 id=$5 tty=$6 boot=$7
say() {
    # Nobody may hear it any more: that must not end the supervisor of what has passed the gate.
    trap '' PIPE
    printf '%s %s\n' "$nonce" "$1"
    [ -n "$tty" ] || printf '%s\n' "$nonce" >&2
    trap - PIPE
}
no() {
    say "$1"
    exit 125
}
[ -d "$2/$3" ] && [ ! -L "$2/$3" ] || no gone
cd -P -- "$2/$3" 2>/dev/null || no gone
export LEASEHOLD_WORK="$PWD/work"
IFS= read -r have 2>/dev/null <.leasehold/owner && [ "$have" = "leasehold 1 $4" ] || no foreign
{ read -r awk && read -r setsid && read -r env; } 2>/dev/null <.leasehold/tools || no gone
[ -d work ] || mkdir work 2>/dev/null
cd .leasehold/x 2>/dev/null || no gone
IFS= read -r stat 2>/dev/null <"/proc/$$/stat" || no platform
read -r now </proc/sys/kernel/random/boot_id
export LEASEHOLD_LEASE="$4" LEASEHOLD_EXECUTION="$id"
set -- ${stat##*) }
set -C
if ! echo "$$ ${20} $now" 2>/dev/null >"$id.run"; then
    [ -s "$id.run" ] && no exists || no full
fi
echo go 2>/dev/null >"$id.go" || no exists
set +C
run="/bin/sh -c '$boot'"
if [ -z "$tty" ]; then
    [ "$setsid" = - ] || run="$setsid $run"
elif [ "$env" != - ]; then
    # The terminal's signals are the command's, not its supervisor's; a hang-up must not lose the record.
    trap '' HUP INT QUIT
    run="$env --default-signal=HUP,INT,QUIT $run"
else
    awk=-
    trap : HUP INT QUIT
fi
say ok
if [ "$awk" = - ]; then
    # No awk here tells a death by signal: 128 and the signal is all that is known.
    eval "$run"
    code=$?
    echo "exit $code end" >>"$id.run"
    exit $code
fi
exec "$awk" -v run="exec $run" -v id="$id" -v me=$$ 'BEGIN {
    code = system(run)
    if (code > 511) code -= 256
    how = code > 255 ? "signal " (code - 256) : "exit " code
    print how " end" >>(id ".run")
    close(id ".run")
    if (code > 255) {
        print "kill -" (code - 256) " " me | "/bin/sh"
        close("/bin/sh")
        exit code - 128
    }
    exit code
}'
