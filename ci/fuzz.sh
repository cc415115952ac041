#!/usr/bin/env bash
# Fuzzes hosts with hostile workers, and workers of batches with hostile hosts, for SECONDS a target: `ci/fuzz.sh
# [SECONDS] [TARGET...]`. The stable compiler suffices for coverage counters; only a sanitizer would need nightly.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

command -v c++ > /dev/null || { echo "SKIPPED need=program:c++ ci/fuzz.sh: libFuzzer needs a C++ compiler" >&2; exit \
    77; }
seconds=${1:-20}
shift || true
[ $# != 0 ] || set -- batch frames handshake ring
# An explicit --target keeps the flags away from build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
counters="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="$counters --cfg fuzzing" cargo build --release --locked --target "$host"
for target in "$@"; do
    mkdir -p "target/corpus/$target"
    echo "fuzzing $target for $seconds s"
    # A run takes a millisecond, so one of 30 s hangs. The last lines of the output state the result.
    "target/$host/release/$target" "target/corpus/$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=1024 \
        -verbosity=0 -print_funcs=0 -print_final_stats=1 -artifact_prefix=target/
done
