# make PARENT ACQUISITION OWNER [KEY=VALUE]...
# Makes the lease's directory, or completes one that a crash left half-made. The marker `owner` is written
# last and by rename: a directory with it is whole. Says on stdout: `ok PATH`, or a word for what is wrong.
umask 077
parent=$1 name=$2 owner=$3
shift 3
enter "$parent" || { echo parent; exit; }
[ -L "./$name" ] && { echo symlink; exit; }
if ! mkdir "./$name" 2>/dev/null; then
    [ -e "./$name" ] || { mkdir "./$name"; echo denied; exit; }
    [ -d "./$name" ] && [ -O "./$name" ] || { echo foreign; exit; }
fi
cd -P "./$name" || { echo denied; exit; }
mark="leasehold 1 $owner"
for label; do
    mark=$mark$LEASEHOLD_N$label
done
if [ -L .leasehold ] || [ -L .leasehold/owner ]; then
    echo foreign
    exit
fi
if [ -f .leasehold/owner ]; then
    have=$(cat .leasehold/owner)
    [ "$have" = "$mark" ] && echo "ok $PWD/work" || echo foreign
    exit
fi
for file in * .[!.]* ..?* work/* work/.[!.]* work/..?*; do
    if [ -e "$file" ] || [ -L "$file" ]; then
        case $file in
            .leasehold) ;;
            work) [ -L work ] && { echo foreign; exit; } ;;
            *) echo foreign; exit ;;
        esac
    fi
done
mkdir -p .leasehold/x work || { echo denied; exit; }
# The supervisor needs an awk whose system() tells an exit status from a death by signal. Some do not.
awk=-
for try in mawk gawk awk original-awk nawk; do
    try=$(command -v "$try" 2>/dev/null) || continue
    case $try in
        /*) ;;
        *) continue ;;
    esac
    if "$try" 'BEGIN { exit !(system("exit 7") == 7 && system("kill -9 $$") == 265 && system("exit 137") == 137 && system("exit 255") == 255) }' </dev/null >/dev/null 2>&1; then
        awk=$try
        break
    fi
done
setsid=$(command -v setsid 2>/dev/null) && "$setsid" true </dev/null >/dev/null 2>&1 || setsid=-
env=$(command -v env 2>/dev/null) && "$env" --default-signal=HUP,INT,QUIT true </dev/null >/dev/null 2>&1 || env=-
# What a shell's own printf leaves out of its message, cat says: why nothing can be written.
unwritten() {
    printf x | cat >.leasehold/why
    echo denied
    exit
}
printf '%s\n' "$awk" "$setsid" "$env" >.leasehold/tools || unwritten
printf '%s\n' "$mark" >.leasehold/owner.new || unwritten
have=$(cat .leasehold/owner.new)
[ "$have" = "$mark" ] || unwritten
mv -f .leasehold/owner.new .leasehold/owner || { echo denied; exit; }
echo "ok $PWD/work"
