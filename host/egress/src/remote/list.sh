# list PARENT
# Every directory with the name of an acquisition that has this host's marker, or was left before it got one.
# For each: `dir PATH`, then `mark LINE` for each line of the marker.
enter "$1" || { echo parent; exit; }
for name in [a-z]*; do
    case $name in
        *[!a-z0-9-]*) continue ;;
    esac
    [ -d "./$name/.leasehold" ] && [ ! -L "./$name" ] && [ ! -L "./$name/.leasehold" ] || continue
    echo "dir $PWD/$name"
    [ -f "./$name/.leasehold/owner" ] && [ -r "./$name/.leasehold/owner" ] || continue
    while IFS= read -r line; do
        printf 'mark %s\n' "$line"
    done <"./$name/.leasehold/owner"
done
echo end
