#!/usr/bin/env bash
# Measures the start of a program under a limit on memory, beside other ways to set one: `bash bench/limits.sh
# PIPEWRIGHT CHILD [ROUNDS]`. CHILD is a static program that does nothing (bench/c/exit0.c). Each round has 100 starts
# of each way. As root, where cgroups can be made. Prints a report in Markdown; a way that does not work here is left
# out.
set -euo pipefail
tool=$(realpath "$1") child=$(realpath "$2") rounds=${3:-7}
starts=100 group=pipewright-bench-$$
work=$(mktemp -d)
finish() {
    [ -z "${made:-}" ] || cgdelete -g "memory:$group" || :
    rm -rf "$work"
}
trap finish EXIT

names=(none ulimit prlimit tree measured memory all)
declare -A ways=(
    [none]="pipewright run --contain none"
    [ulimit]="sh -c 'ulimit -v': address space of each process"
    [prlimit]="prlimit --as: address space of each process"
    [tree]="pipewright run, tree contained"
    [measured]="pipewright run --pids 1000"
    [memory]="pipewright run --memory"
    [all]="pipewright run --memory --swap --cpus --pids"
)
none() { "$tool" run --contain none -- "$child"; }
ulimit() { sh -c 'ulimit -v 1000000; exec "$0"' "$child"; }
prlimit() { command prlimit --as=1000000000 "$child"; }
tree() { "$tool" run -- "$child"; }
measured() { "$tool" run --pids 1000 -- "$child"; }
memory() { "$tool" run --memory 64M -- "$child"; }
all() { "$tool" run --memory 64M --swap 0 --cpus 1 --pids 1000 -- "$child"; }
cgexec() { command cgexec -g "memory:$group" "$child"; }
systemd() { systemd-run --quiet --scope -p MemoryMax=64M -- "$child"; }
if command -v cgcreate > /dev/null && cgcreate -g "memory:$group" 2> /dev/null; then
    made=yes names+=(cgexec)
    ways[cgexec]="cgexec, in a group that was made before"
fi
if systemd 2> /dev/null; then
    names+=(systemd)
    ways[systemd]="systemd-run --scope -p MemoryMax"
fi

for ((round = 0; round < rounds; round++)); do
    for name in "${names[@]}"; do
        from=${EPOCHREALTIME/,/.}
        for ((start = 0; start < starts; start++)); do "$name"; done
        awk -v from="$from" -v to="${EPOCHREALTIME/,/.}" -v count=$starts 'BEGIN { print (to - from) / count * 1e6 }' \
            >> "$work/$name"
    done
done
summary() { sort -n | awk '{ a[NR] = $1 } END { printf "%.0f (%.0f..%.0f)", a[int((NR + 1) / 2)], a[1], a[NR] }'; }
echo "| start of a program that does nothing | µs, median (min..max) |"
echo "|---|--:|"
for name in "${names[@]}"; do echo "| \`${ways[$name]}\` | $(summary < "$work/$name") |"; done
