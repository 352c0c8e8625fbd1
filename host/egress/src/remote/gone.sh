# gone PARENT ACQUISITION OWNER
# What is left of a lease: `left PID NAME` for each process, `dir` if the directory is there; then `end`.
mark=LEASEHOLD_LEASE=$3 spare= dir=
if [ -d "$1" ]; then
    enter "$1" || { echo parent; exit; }
    if [ -e "./$2" ] || [ -L "./$2" ]; then
        echo dir
    fi
    # Also what sits in it after it was removed.
    dir=$PWD/$2
    [ "$PWD" = / ] && dir=/$2
fi
hunt | sed 's/^/left /'
echo end
