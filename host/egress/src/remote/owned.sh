# owned PARENT ACQUISITION
# Whose the directory is: `absent`, `foreign`, or the marker's lines as `mark LINE`; then `end`.
if [ ! -d "$1" ]; then
    echo absent
    echo end
    exit
fi
enter "$1" || { echo parent; exit; }
if [ ! -e "./$2" ] && [ ! -L "./$2" ]; then
    echo absent
elif [ -L "./$2" ] || [ -L "./$2/.leasehold" ] || [ ! -f "./$2/.leasehold/owner" ]; then
    echo foreign
else
    while IFS= read -r line; do
        printf 'mark %s\n' "$line"
    done <"./$2/.leasehold/owner"
fi
echo end
