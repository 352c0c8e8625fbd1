# Starts a command: enters the directory $1, then becomes the program $2 with the arguments after it.
# No shell reads the command. What keeps it from running is told on standard error: 127, there is no such
# program; 126, it cannot be run or the directory cannot be entered.
# A variable of the command's own must pass through unchanged: the names here begin with _lh.

_lh() {
    printf 'leasehold: %s\n' "$2" >&2
    exit "$1"
}

cd "$1" 2>/dev/null || {
    [ -d "$1" ] && _lh 126 "$1: the directory cannot be entered"
    _lh 126 "$1: there is no such directory"
}
shift

case $1 in
'') _lh 127 "the program's name is empty" ;;
*/*) _lhp=$1 ;;
*)
    # The first that can be run; else the first that is there, to be told why it cannot.
    _lhp=
    _lhr=$PATH:
    while [ "$_lhr" ]; do
        _lhd=${_lhr%%:*}
        _lhr=${_lhr#*:}
        _lhd=${_lhd:-.}/$1
        [ -f "$_lhd" ] || continue
        if [ -x "$_lhd" ]; then
            _lhp=$_lhd
            break
        fi
        _lhp=${_lhp:-$_lhd}
    done
    [ "$_lhp" ] || _lh 127 "$1: there is no such program in PATH ($PATH)"
    ;;
esac

[ -e "$_lhp" ] || _lh 127 "$_lhp: there is no such file"
[ -d "$_lhp" ] && _lh 126 "$_lhp: it is a directory"
[ -x "$_lhp" ] || _lh 126 "$_lhp: it is not executable"

# A name with a dash in front would be an option of exec in some shells.
case $1 in
-*)
    shift
    set -- "$_lhp" "$@"
    ;;
esac
exec "$@"
