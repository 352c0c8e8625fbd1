# get ROOT PATH: writes a tar of PATH to stdout. Statuses: 3 where PATH really lies outside ROOT, 127 without tar.
enter "$1" || exit 1
root=$PWD
command -v tar >/dev/null || { echo 'tar: not found' >&2; exit 127; }
if [ -d "$2" ]; then
    enter "$2" || exit 1
    place=$PWD name=.
    if [ "$place" != "$root" ]; then
        name=${PWD##*/}
        cd ..
    fi
else
    cd -P -- "${2%/*}/" || exit 1
    place=$PWD name=${2##*/}
    [ -e "./$name" ] || [ -L "./$name" ] || { echo "$2: No such file or directory" >&2; exit 1; }
fi
case $place/ in
    "${root%/}"/*) ;;
    *) exit 3 ;;
esac
exec tar -cf - "./$name"
