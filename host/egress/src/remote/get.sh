# get ROOT PATH: writes a tar of PATH to stdout, links on the way to it and at its end followed. A directory is `.` in
# it; a file has its own name, which the host changes to the one that was asked for.
# Statuses: 3 where PATH really lies outside ROOT, 4 where it has no content, 127 without tar.
enter "$1" || exit 1
root=$PWD
command -v tar >/dev/null || { echo 'tar: not found' >&2; exit 127; }
name=.
if [ -d "$2" ]; then
    enter "$2" || exit 1
else
    enter "${2%/*}/" || exit 1
    name=${2##*/}
    if [ ! -e "./$name" ]; then
        [ -L "./$name" ] && echo "$2 is a link to something that is not there (No such file)" >&2 ||
            echo "$2: No such file or directory" >&2
        exit 1
    fi
    if [ -L "./$name" ]; then
        real=$(readlink -f "./$name") || exit 1
        enter "${real%/*}/" || exit 1
        name=${real##*/}
    fi
fi
case $PWD/ in
    "${root%/}"/*) ;;
    *) exit 3 ;;
esac
[ "$name" = . ] || [ -f "./$name" ] || exit 4
exec tar -cf - "./$name"
