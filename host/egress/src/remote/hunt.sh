# hunt: prints `PID NAME` of every process that belongs to $mark (VARIABLE=VALUE of an environment) or sits in $dir.
# A process belongs if the mark stands in its environment, if its directory, root, program or an open file lies
# in $dir, if it descends from one that belongs, or shares the session of one that carries the mark.
# Neither this shell, its ancestors and session, nor process $spare are ever among them.
# Links are listed with -q and stat files are read under their names: no name of a process or a file can
# forge a line.
hunt() {
    {
        if printf 'a\0b\n' | grep -qF b 2>/dev/null; then
            grep -lF -e "$mark" /proc/[0-9]*/environ 2>/dev/null
        else
            ls -d /proc/[0-9]*/environ 2>/dev/null
        fi | while IFS= read -r file; do
            tr '\0' '\n' 2>/dev/null <"$file" | grep -qxF -e "$mark" 2>/dev/null && echo "mark $file"
        done
        if [ -n "$dir" ]; then
            ls -ldq /proc/[0-9]*/cwd /proc/[0-9]*/root /proc/[0-9]*/exe 2>/dev/null
            ls -lq /proc/[0-9]*/fd 2>/dev/null
        fi
        grep '' /dev/null /proc/[0-9]*/stat 2>/dev/null
    } 2>/dev/null | LEASEHOLD_DIR=$dir awk -v me=$$ -v spare="$spare" '
        BEGIN { dir = ENVIRON["LEASEHOLD_DIR"] }
        function id(path) { sub(/^\/proc\//, "", path); sub(/\/.*/, "", path); return path }
        /^mark \/proc\/[0-9]+\/environ$/ { marked[id($2)] = 1; next }
        /^\/proc\/[0-9]+\/stat:/ { p = id($0); sub(/^[^:]*:/, ""); stat[p] = stat[p] $0; next }
        /^\/proc\/[0-9]+\/fd:$/ { at = id($0); next }
        dir != "" && (i = index($0, " -> ")) {
            to = substr($0, i + 4)
            from = substr($0, 1, i - 1)
            if (from ~ /\/proc\/[0-9]+\/(cwd|root|exe)$/) { sub(/.* \/proc\//, "/proc/", from); p = id(from) } else p = at
            if (to == dir || to == dir " (deleted)" || index(to, dir "/") == 1) inside[p] = 1
        }
        END {
            for (p in stat) {
                s = stat[p]
                name[p] = substr(s, index(s, "(") + 1)
                sub(/\)[^)]*$/, "", name[p])
                sub(/^.*\) /, "", s)
                split(s, f, " ")
                if (f[1] == "Z" || f[1] == "X") continue
                live[p] = 1; parent[p] = f[2]; session[p] = f[4]
            }
            never[0] = 1; never[1] = 1
            if (spare != "") never[spare] = 1
            for (p = me; p in parent && !(p in never); p = parent[p]) never[p] = 1
            for (p in live) if (session[p] == session[me]) never[p] = 1
            for (p in live) if (!(p in never)) {
                if (p in marked) { hit[p] = 1; from_mark[session[p]] = 1 }
                if (p in inside) hit[p] = 1
            }
            if (spare != "" && spare in live) hit[spare] = 1
            do {
                more = 0
                for (p in live) if (!(p in hit) && !(p in never))
                    if ((parent[p] in hit) || (session[p] in from_mark)) { hit[p] = 1; more = 1 }
            } while (more)
            for (p in hit) if (!(p in never)) print p, name[p]
        }'
}

# Whether there is a /proc to hunt in.
[ -r /proc/self/stat ] && [ -r "/proc/$$/environ" ] || { echo platform; exit; }
