# enter DIRECTORY: goes there, links resolved; says why not in words that every shell's `cd` leaves out.
enter() {
    cd -P -- "$1" 2>/dev/null && return
    if [ -d "$1" ]; then
        echo "$1: Permission denied" >&2
    elif [ -e "$1" ]; then
        echo "$1: Not a directory" >&2
    else
        echo "$1: No such file or directory" >&2
    fi
    return 1
}
