# remove PARENT ACQUISITION OWNER
# Ends every process of the lease, then removes its directory, the marker last: what is interrupted can be
# done again. Says `ok`, or what is left: `left PID NAME` lines, `foreign`, `denied`.
name=$2 owner=$3
mark=LEASEHOLD_LEASE=$owner spare= dir= whose=absent
if [ -d "$1" ]; then
    enter "$1" || { echo parent; exit; }
    if [ -L "./$name" ]; then
        whose=foreign
    elif [ -d "./$name" ]; then
        if [ -L "./$name/.leasehold" ]; then
            whose=foreign
        elif [ -f "./$name/.leasehold/owner" ]; then
            IFS= read -r have <"./$name/.leasehold/owner"
            [ "$have" = "leasehold 1 $owner" ] && whose=ours || whose=foreign
        else
            whose=half
            for file in "./$name"/* "./$name"/.[!.]* "./$name"/..?* "./$name"/work/* "./$name"/work/.[!.]* "./$name"/work/..?*; do
                if [ -e "$file" ] || [ -L "$file" ]; then
                    case $file in
                        */.leasehold | "./$name/work") ;;
                        *) whose=foreign ;;
                    esac
                fi
            done
        fi
    elif [ -e "./$name" ]; then
        whose=foreign
    fi
    [ "$whose" = ours ] && dir=$PWD/$name
    [ "$dir" = "//$name" ] && dir=/$name
fi
round=0 quiet=0
while [ $quiet -lt 2 ] && [ $round -lt 25 ]; do
    round=$((round + 1))
    found=$(hunt)
    if [ -z "$found" ]; then
        quiet=$((quiet + 1))
        continue
    fi
    quiet=0
    # Stopped first, so that none can start another between being found and being ended.
    for word in $(printf '%s\n' "$found" | sed 's/ .*//'); do kill -s STOP "$word" 2>/dev/null; done
    for word in $(hunt | sed 's/ .*//'); do kill -s KILL "$word" 2>/dev/null; done
    [ $round -gt 5 ] && sleep 1
done
if [ $quiet -lt 2 ]; then
    printf '%s\n' "$found" | sed 's/^/left /'
    exit
fi
case $whose in
    absent) echo ok; exit ;;
    foreign) echo foreign; exit ;;
esac
cd -P "./$name" || { echo denied; exit; }
sweep() {
    rm -rf -- "$@" 2>/dev/null && return
    # Directories that their owner may not write or enter. Links are not followed.
    find "$@" -type d ! -perm -700 -exec chmod u+rwx {} \; 2>/dev/null
    rm -rf -- "$@"
}
for file in * .[!.]* ..?*; do
    if [ -e "$file" ] || [ -L "$file" ]; then
        [ "$file" = .leasehold ] || sweep "./$file" || { echo denied; exit; }
    fi
done
sweep ./.leasehold/x || { echo denied; exit; }
cd ..
rm -rf -- "./$name" || { echo denied; exit; }
[ -e "./$name" ] || [ -L "./$name" ] && echo denied || echo ok
