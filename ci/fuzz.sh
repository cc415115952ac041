#!/usr/bin/env bash
# What a hostile worker can send, searched for so many seconds a target: `ci/fuzz.sh [SECONDS] [TARGET...]`.
# With the stable compiler: its coverage counters need no other, only a sanitizer would.
set -euo pipefail
cd "$(dirname "$0")/../fuzz"

command -v c++ > /dev/null || { echo "SKIPPED fuzzing: libFuzzer needs a C++ compiler" >&2; exit 77; }
seconds=${1:-20}
shift || true
[ $# != 0 ] || set -- frames handshake ring
# A target of its own: the flags are not for build scripts.
host=$(rustc -vV | sed -n 's/^host: //p')
counters="-Cpasses=sancov-module -Cllvm-args=-sanitizer-coverage-level=4 \
    -Cllvm-args=-sanitizer-coverage-inline-8bit-counters -Cllvm-args=-sanitizer-coverage-pc-table \
    -Cllvm-args=-sanitizer-coverage-trace-compares"
RUSTFLAGS="$counters --cfg fuzzing" cargo build --release --locked --target "$host"
for target in "$@"; do
    mkdir -p "target/corpus/$target"
    echo "fuzzing $target for $seconds s"
    # A run takes a millisecond; one that takes so long hangs. What it ends with is in the last lines.
    "target/$host/release/$target" "target/corpus/$target" -max_total_time="$seconds" -timeout=30 -rss_limit_mb=1024 \
        -verbosity=0 -print_funcs=0 -print_final_stats=1 -artifact_prefix=target/
done
