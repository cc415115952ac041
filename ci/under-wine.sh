#!/usr/bin/env bash
# Cargo's runner for programs of Windows: `under-wine.sh PROGRAM [ARGUMENT...]`, with WINEPREFIX set.
#
# The server of Wine 8 can crash: where a process is killed in its first moments (a job that ends while one of
# its members starts another), the handles that it still sends are taken for those of its first thread, which
# is gone. Nothing that has lost its server ends by itself, nor says anything. So the server is watched; when it
# has gone, what it has left is ended, and the program is run once more, from its beginning. That says nothing
# about the program: one that fails has failed.
#
# One of a few thousand starts fails as well ("Internal error"): Wine needs one certain page of memory
# (0x7ffe0000), and Linux now and then puts the heap of Wine's loader there. So addresses are not made random
# for it, where a program may ask for that.
set -uo pipefail

# A program that hangs is ended, so that the run ends. The longest has been seen to take seven minutes on two
# cores that others used as well.
most_seconds=${PIPEWRIGHT_WIN_TIMEOUT:-900}

plain=()
setarch -R true 2> /dev/null && plain=(setarch -R)

# The processes of this prefix whose program has a name of this pattern.
of_prefix() {
    local process
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/exe") == */$1 ]] || continue
        tr '\0' '\n' < "$process/environ" | grep -qxF "WINEPREFIX=$WINEPREFIX" && echo "${process#/proc/}"
    done 2> /dev/null
}

for try in 1 2 3; do
    # It returns when programs can connect. Nor may it end between two of them.
    "${plain[@]}" wineserver -p < /dev/null > /dev/null 2>&1
    server=$(of_prefix 'wineserver*')
    timeout --kill-after=10 "$most_seconds" "${plain[@]}" wine "$@" &
    program=$!
    {
        while kill -0 "$server"; do sleep 1; done
        kill "$program"
    } > /dev/null 2>&1 &
    watcher=$!
    wait "$program"
    code=$?
    if kill -0 "$server" 2> /dev/null; then
        kill "$watcher" 2> /dev/null
        wineserver -k > /dev/null 2>&1
        exit "$code"
    fi
    of_prefix 'wine64*' | xargs -r kill -KILL 2> /dev/null
    echo "under-wine.sh: Wine's server has crashed: ${1##*/} is run again" >&2
done
echo "under-wine.sh: Wine's server has crashed three times" >&2
exit 1
