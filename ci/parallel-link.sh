#!/usr/bin/env bash
# Runs a stand-in for a parallel link on a machine that is too small for it: 20 jobs of 256 MiB each, on an emulated
# machine with 1 GiB, 2 processors and no swap. Prints the times of one job at a time, of all at once with `mem`, and of
# all at once without it, each with the number of processes that the kernel killed for lack of memory. Fails if the jobs
# with `mem` did not all succeed, or if the kernel killed one. `bash ci/parallel-link.sh [MACHINE]`; exits with 77 if
# this machine cannot run it.
set -euo pipefail
cd "$(dirname "$0")/.."
machine=${1:-newest}
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
cargo build --locked --quiet -p pipewright-cli
cargo build --locked --quiet -p pipewright-tests --bin puppet

bash ci/vm.sh -m 1024 -c 2 -t 900 "$machine" "
swapoff -a
cd /tmp
kills() { awk '\$1 == \"oom_kill\" {print \$2}' /proc/vmstat; }
jobs() { for i in \$(seq 20); do
    echo '{\"argv\":[\"$target/debug/puppet\",\"allocate=256\",\"burn=1000\"],\"id\":\"'\$i'\"'\$1'}'; done; }
run() {
    name=\$1 mem=\$2; shift 2
    jobs \"\$mem\" > jobs.jsonl
    before=\$(kills) start=\$(date +%s%N) code=0
    $target/debug/pipewright batch --jsonl --from jobs.jsonl --progress none \"\$@\" > out 2> err || code=\$?
    millis=\$(((\$(date +%s%N) - start) / 1000000)) killed=\$((\$(kills) - before))
    echo \"\$name: exit code \$code, \$millis ms, killed \$killed; \$(tail -n 1 err)\"
}
run 'one at a time' ',\"mem\":\"300M\"' -j1
run 'twenty at once with mem' ',\"mem\":\"300M\"' -j20
ok=\$((code == 0 && killed == 0))
run 'twenty at once without mem' '' -j20
[ \$ok = 1 ]
"
