# Looks at the machine for a probe. Changes nothing: every line below only reads.
# $1 is the directory of the workspaces. Says one `key value` a line.

LC_ALL=C
export LC_ALL

say() {
    printf '%s %s\n' "$1" "$2"
}

say platform "$(uname -sm 2>/dev/null)"
say account "$(id -u 2>/dev/null) $(id -un 2>/dev/null)"

for tool in awk cat chmod df find grep id kill ls mkdir mv rm sed sleep tr uname; do
    command -v "$tool" >/dev/null 2>&1 || say missing "$tool"
done
[ -r "/proc/$$/environ" ] && [ -r "/proc/$$/stat" ] || say missing /proc
command -v stty >/dev/null 2>&1 || say lacks stty

# The directory, or the nearest one above it that exists.
base=$1
if [ -L "$1" ]; then
    say path symlink
elif [ -d "$1" ]; then
    say path directory
elif [ -e "$1" ]; then
    say path other
else
    say path missing
    while [ "$base" != / ] && [ ! -e "$base" ] && [ ! -L "$base" ]; do
        base=${base%/*}
        base=${base:-/}
    done
    [ -d "$base" ] || say blocked "$base"
fi
say base "$base"
[ -w "$base" ] && say may write
[ -x "$base" ] && say may enter
[ -r "$base" ] && say may list

say free "$(df -Pk "$base" 2>/dev/null | awk 'NR == 2 { print $4 }')"

# How the file system there is mounted: the longest mount point that the directory is below, the last of equals.
real=$(cd "$base" 2>/dev/null && pwd -P)
say mount "$(awk -v at="${real:-$base}" '
    { gsub(/\\040/, " ", $2)
      point = ($2 == "/") ? "/" : $2 "/"
      if (index(at "/", point) == 1 && length(point) >= longest) { longest = length(point); options = $4 } }
    END { print options }' /proc/self/mounts 2>/dev/null)"
