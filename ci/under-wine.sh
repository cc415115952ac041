#!/usr/bin/env bash
# Cargo's runner for Windows programs: `under-wine.sh PROGRAM [ARGUMENT...]`, with WINEPREFIX set.
#
# The server of Wine 8 can crash. If a process is killed in its first moments (a job that ends while one of its members
# starts another), the server takes the handles that the process still sends for those of its first thread, which is
# gone. A program without its server neither exits nor prints anything. So this script watches the server. After a crash
# it kills the processes that are left, and runs the program again from its beginning, because a crash says nothing
# about the program. A program that fails is not run again.
#
# Also, one of a few thousand starts fails ("Internal error"): Wine needs a fixed page of memory (0x7ffe0000), and Linux
# sometimes puts the heap of Wine's loader there. So the script disables address randomization, if that is permitted.
set -uo pipefail

# A program that hangs is killed, so that the run ends. The longest program took seven minutes on two shared cores.
most_seconds=${PIPEWRIGHT_WIN_TIMEOUT:-900}

plain=()
setarch -R true 2> /dev/null && plain=(setarch -R)

# Prints the pids of this prefix's processes whose program's name matches the pattern.
of_prefix() {
    local process
    for process in /proc/[0-9]*; do
        [[ $(readlink "$process/exe") == */$1 ]] || continue
        tr '\0' '\n' < "$process/environ" | grep -qxF "WINEPREFIX=$WINEPREFIX" && echo "${process#/proc/}"
    done 2> /dev/null
}

for try in 1 2 3; do
    # Returns once programs can connect. With -p the server does not exit between two programs.
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
    echo "under-wine.sh: Wine's server crashed: running ${1##*/} again" >&2
done
echo "under-wine.sh: Wine's server crashed three times" >&2
exit 1
