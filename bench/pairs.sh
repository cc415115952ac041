#!/usr/bin/env bash
# Compares two builds of `calls` in interleaved pairs: `bash bench/pairs.sh NEW OLD [PAIRS]`. Prints the median of the
# ratios NEW to OLD of each figure, with an interval of 95 % for it. Copy both programs with `cp` first: the place of a
# file in the page cache counts. Items run on one processor: on two, the system places the threads now so and now so,
# for either build.
set -euo pipefail
new=$1 old=$2 pairs=${3:-30}
echo "| figure | pairs | microseconds | ratio, interval of 95 % |"
echo "|---|--:|--:|--:|"
while read -r figure count on; do
    for ((pair = 0; pair < pairs; pair++)); do
        # The order changes, so that neither is always the second.
        if ((pair % 2)); then first=$($on "$new" "$figure" "$count") second=$($on "$old" "$figure" "$count")
        else second=$($on "$old" "$figure" "$count") first=$($on "$new" "$figure" "$count"); fi
        awk -v new="$first" -v old="$second" -v count="$count" \
            'BEGIN { printf "%.4f %.3f\n", new / old, new / count * 1e6 }'
    done | sort -n | awk -v figure="$figure" '
        { ratio[NR] = $1; sum += $2 }
        END {
            # The interval of the median by ranks: n/2 -+ 0.98 sqrt(n).
            off = 0.98 * sqrt(NR); low = int(NR / 2 - off); high = int(NR / 2 + off + 1.5)
            if (low < 1) low = 1
            if (high > NR) high = NR
            printf "| %s | %d | %.2f | %.3f [%.3f, %.3f] |\n", \
                figure, NR, sum / NR, ratio[int((NR + 1) / 2)], ratio[low], ratio[high]
        }'
done << 'end'
start 20 env
call 10000 env
mib 400 env
typed 10000 env
to-worker 100000 taskset -c 1
from-worker 100000 taskset -c 1
end
