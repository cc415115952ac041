#!/usr/bin/env bash
# Compares two builds of the tool by jobs a second on nodes, such as one that encrypts its connections with one that
# does not, in interleaved pairs: `bash bench/encrypted.sh ONE OTHER CHILD [PAIRS [JOBS]]`. CHILD is a static program
# that does nothing (bench/c/exit0.c). Prints the median of the ratios ONE to OTHER, and an interval of 95 % for it.
#
# Two ways to a node: `--via`, the stdio of a command, which is not encrypted by the tool, and TCP, which is. The node
# of the second is this machine, in a cluster of Slurm: `bash ci/slurm.sh bash bench/encrypted.sh ...`. Without a
# cluster it is left out. A record is a write, so small jobs, many at once, show its price best: they are those of a
# batch that does nothing else.
set -euo pipefail
one=$(realpath "$1") other=$(realpath "$2") child=$(realpath "$3") pairs=${4:-30} jobs=${5:-5000}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME=$work
seq "$jobs" > list

idle() { [ "$1" = via ] || until [ -z "$(squeue -h)" ] && [ "$(sinfo -h -o '%T %D')" = "idle 4" ]; do sleep 0.1; done; }
# Prints the jobs a second of a batch, from the first start to the last end: rate TOOL WAY.
rate() {
    local way=(--via 'sh -c '\''exec "$@"'\'' sh' -j 8 --worker-path "$1")
    [ "$2" = via ] || way=(--on slurm --nodes 1 -j 8 --worker-path "$1")
    idle "$2"
    "$1" batch --quiet "${way[@]}" --events events --from list -- "$child"
    awk -v jobs="$jobs" 'match($0, /"unix_seconds":[0-9.]+/) {
            at = substr($0, RSTART + 15, RLENGTH - 15)
            if (/"event":"started"/ && !from) from = at
            if (/"event":"ended"/) to = at
        } END { printf "%.1f\n", jobs / (to - from) }' events
}

ways=(via)
[ -z "${SLURM_CONF:-}" ] || ways+=(slurm)
echo "| way | pairs | jobs/s | ratio, interval of 95 % |"
echo "|---|--:|--:|--:|"
for way in "${ways[@]}"; do
    : > ratios; : > rates
    rate "$one" "$way" > /dev/null
    for ((pair = 0; pair < pairs; pair++)); do
        # The order changes, so that neither is always the second.
        if ((pair % 2)); then first=$(rate "$one" "$way") second=$(rate "$other" "$way"); else \
            second=$(rate "$other" "$way") first=$(rate "$one" "$way"); fi
        echo "$first" >> rates
        awk -v one="$first" -v other="$second" 'BEGIN { printf "%.4f\n", one / other }' >> ratios
    done
    # The interval of the median by ranks: n/2 -+ 0.98 sqrt(n).
    sort -n ratios | awk -v way="$way" -v rate="$(sort -n rates |
        awk '{ a[NR] = $1 } END { print int(a[int((NR + 1) / 2)]) }')" '
        { a[NR] = $1 }
        END {
            off = 0.98 * sqrt(NR); low = int(NR / 2 - off); high = int(NR / 2 + off + 1.5)
            if (low < 1) low = 1
            if (high > NR) high = NR
            printf "| %s | %d | %d | %.3f [%.3f, %.3f] |\n", way, NR, rate, a[int((NR + 1) / 2)], a[low], a[high]
        }'
done
