# put ROOT SUFFIX WITHIN: unpacks the tar on stdin beside, then moves each file to its place: it appears whole.
# Nothing is written through a link. Statuses: 127 without tar; else the reason is on stderr.
enter "$1" || exit 1
case $3,$PWD/ in
,*) ;;
*,*"$3"*) ;;
*)
    echo "$1 leads out of the lease's workspace through a link" >&2
    exit 1
    ;;
esac
command -v tar >/dev/null || { echo 'tar: not found' >&2; exit 127; }
beside=$PWD/.leasehold-$2
umask 077
mkdir "$beside" || exit 1
trap 'rm -rf "$beside"' EXIT
tar -xpof - -C "$beside" || exit 1
cd "$beside" || exit 1
find . -type d ! -perm -700 -exec chmod u+rwx {} \;
umask 022
find . -type d -exec sh -c '
    for d; do
        if [ -L "../$d" ]; then
            echo "$d is a link, and nothing is unpacked through one" >&2
            exit 1
        fi
        [ -d "../$d" ] || mkdir "../$d" || exit 1
    done' sh {} + || exit 1
find . ! -type d -exec sh -c '
    for f; do
        if [ -L "../$f" ]; then
            rm -f "../$f"
        elif [ -d "../$f" ]; then
            echo "$f is in the way: a directory" >&2
            exit 1
        fi
        mv -f "$f" "../$f" || exit 1
    done' sh {} + || exit 1
