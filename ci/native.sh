#!/usr/bin/env bash
# Runs the suites on the machine at hand, whichever its system and processor are: `bash ci/native.sh`. On Linux and
# macOS with the test hooks, as the gate has them. The gate itself is for Linux on x86-64.
set -euo pipefail
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 CARGO_PROFILE_DEV_DEBUG=0 RUST_BACKTRACE=1 PROPTEST_CASES=64

case ${1:-} in
    # Windows has no scripts that are programs.
    '') case $(uname -s) in Linux | Darwin) run=(bash ci/with-hooks.sh) ;; *) run=(cargo) ;; esac ;;
    *) echo "usage: ci/native.sh" >&2; exit 2 ;;
esac
"${run[@]}" build --locked --workspace --bins
"${run[@]}" test --locked --workspace --lib --bins --tests --no-fail-fast
cargo run --locked -- doctor
