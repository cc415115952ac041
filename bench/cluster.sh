#!/usr/bin/env bash
# Measures batches on a Slurm cluster of four nodes on this machine, beside srun and a job array: `bash ci/slurm.sh bash
# bench/cluster.sh PIPEWRIGHT CHILD [ROUNDS]`. CHILD is a static program that does nothing (bench/c/exit0.c). Prints a
# report in Markdown.
#
# All nodes are this machine, so what is measured is the way of a job there and back, and not the work of four machines.
set -euo pipefail
tool=$(realpath "$1") child=$(realpath "$2") rounds=${3:-3}
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
cd "$work"
export XDG_CACHE_HOME=$work

now() { echo "${EPOCHREALTIME/,/.}"; }
# Prints the median, the least and the greatest of the numbers on stdin.
summary() { sort -n |
    awk -v format="${1:-%.0f}" \
    '{ a[NR] = $1 } END { printf format " (" format ".." format ")", a[int((NR + 1) / 2)], a[1], a[NR] }'; }
# Prints a field of the first or last event of a kind.
at() { grep -m1 "\"event\":\"$1\"" events | sed 's/.*"unix_seconds":\([0-9.]*\).*/\1/'; }
last() { grep "\"event\":\"$1\"" events | tail -n 1 | sed 's/.*"unix_seconds":\([0-9.]*\).*/\1/'; }
per_second() { awk -v count="$1" -v from="$2" -v to="$3" 'BEGIN { print count / (to - from) }'; }
idle() { until [ -z "$(squeue -h)" ] && [ "$(sinfo -h -o '%T %D')" = "idle 4" ]; do sleep 0.1; done; }

seq 10000 > list
for ((round = 0; round < rounds; round++)); do
    idle
    from=$(now)
    "$tool" batch --quiet --on slurm --nodes 4 --events events --log "log$round" --from list -- "$child"
    per_second 10000 "$(at started)" "$(last ended)" >> rate
    per_second 1 "$from" "$(at started)" | awk '{ print 1000 / $1 }' >> first
    idle
    salloc --quiet -N 4 --exclusive bash -c 'echo "$EPOCHREALTIME" > granted; exec "$@"' bash \
        "$tool" batch --quiet --on slurm --events events -- "$child" ::: x
    per_second 1 "$(tr , . < granted)" "$(at started)" | awk '{ print 1000 / $1 }' >> inside
    idle
    from=$(now)
    seq 200 | xargs -P 32 -I{} srun --quiet -N1 -n1 --exact -c1 "$child"
    per_second 200 "$from" "$(now)" >> srun
    idle
    from=$(now)
    sbatch --quiet --wait --array=1-400 --output=/dev/null --wrap "$child"
    per_second 400 "$from" "$(now)" >> array
    idle
    from=$(now)
    "$tool" batch --quiet --on slurm --nodes 1 --events events -- head -c 100000000 ::: /dev/zero > /dev/null
    per_second 100 "$(at started)" "$(last ended)" >> output
done
echo "| | median (min..max) |"
echo "|---|--:|"
echo "| 10,000 jobs that do nothing, 4 nodes x 8 slots, with a log | $(summary < rate) jobs/s |"
echo "| a command each by \`srun\`, 32 at once | $(summary < srun) jobs/s |"
echo "| a job array of 400 | $(summary < array) jobs/s |"
echo "| from the start of the tool to the first job, with the allocation | $(summary < first) ms |"
echo "| from the start of the tool to the first job, inside of an allocation | $(summary < inside) ms |"
echo "| 100 MB of output from one job | $(summary < output) MB/s |"

# The time from the loss of a node to the new start of its jobs.
idle
rm -f events
: > starts
"$tool" batch --quiet --on slurm --nodes 4 --events events -- sh -c \
    'echo >> starts; until [ -e end ]; do sleep 0.1; done' ::: $(seq 24) &
batch=$!
until [ "$(wc -l < starts)" = 24 ]; do sleep 0.05; done
lost=$(now)
"$PIPEWRIGHT_SLURM_NODE" lose n2
until [ "$(grep -c '"event":"started"' events)" -gt 24 ]; do sleep 0.05; done
again=$(grep '"event":"started"' events | sed -n 25p | sed 's/.*"unix_seconds":\([0-9.]*\).*/\1/')
touch end
wait $batch
"$PIPEWRIGHT_SLURM_NODE" start n2
echo "| from the loss of a node to the start of its jobs elsewhere | $(per_second 1 "$lost" "$again" |
    awk '{ printf "%.1f", 1 / $1 }') s |"

# The coordinator with a long queue, stopped after 20 s.
idle
seq 1000000 > million
"$tool" batch --quiet --on slurm --nodes 4 --log million.db --from million -- "$child" &
batch=$!
sleep 20
peak=$(awk '/VmHWM/ { print $2 }' "/proc/$batch/status")
cpu=$(awk '{ print ($14 + $15) / 100 }' "/proc/$batch/stat")
kill -TERM $batch
wait $batch || true
ended=$(sqlite3 million.db "select count(*) from attempts")
echo "| peak memory of the tool, with 1,000,000 jobs in a file, after 20 s and $ended jobs | $((peak / 1024)) MB |"
echo "| processor time of the tool a job, in the same run | $(awk -v cpu="$cpu" -v jobs="$ended" \
    'BEGIN { printf "%.0f", cpu / jobs * 1e6 }') µs |"
