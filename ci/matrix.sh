#!/usr/bin/env bash
# Runs the checks that are too long for the gate: the suites without each single facility of the kernel, on all kernels and
# processors of ci/kernels.sh, and under a newer Wine; all published crates of ci/ported.sh; and the archives of a release.
# Takes about two hours on 2 cores. docs/platforms.md has the day of its last complete run. With an argument, only the cells
# whose name contains it run.
#
# As in .ci/run, no signal is ignored.
[ -n "${PIPEWRIGHT_GATE:-}" ] || PIPEWRIGHT_GATE=started exec env --default-signal=HUP,INT,QUIT bash "$0" "$@"
set -euo pipefail
set -m
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 RUST_BACKTRACE=1
export RUST_TEST_THREADS=$((2 * $(nproc)))

began=$SECONDS
stage() { printf '\n=== %s (%d s)\n' "$1" "$((SECONDS - began))"; }

# Runs a cell of the matrix. If it fails, the others still run.
failed=()
only=${1:-}
cell() {
    local name=$1
    shift
    [[ $name == *"$only"* ]] || return 0
    stage "$name"
    "$@" || failed+=("$name")
}

for fallback in cgroup supervisor pidfd close_range clone3 rwf_nowait vmsplice vfork; do
    cell "the suite of processes without $fallback" \
        env PIPEWRIGHT_FORCE="$fallback" bash ci/with-hooks.sh test --locked \
        -p pipewright-os -p pipewright-tests --lib --test arguments --test process --no-fail-fast \
        -- --skip nothing_leaks::
done
cell "all suites without any newer facility" \
    env PIPEWRIGHT_FORCE=fallback bash ci/with-hooks.sh test --locked -p pipewright-os -p pipewright-tests --lib --tests
cell "the suite of files without io_uring" \
    env PIPEWRIGHT_FORCE=io_uring bash ci/with-hooks.sh test --locked -p pipewright-tests --test disk
cell "the suite of workers without memfd" \
    env PIPEWRIGHT_FORCE=memfd bash ci/with-hooks.sh test --locked -p pipewright-tests --test ipc
cell "the suite of workers through the async verbs" \
    env PIPEWRIGHT_FORCE=async bash ci/with-hooks.sh test --locked -p pipewright-tests --test ipc
# Counts also the threads of tokio's children. A separate run, because tokio's features would hide that ours are missing.
cell "the threads of idle children, beside those of tokio's" \
    cargo test --locked -p pipewright-tests --features peers --test process -- idle_children::idle
visibly_skipped() { "$@" || [ $? = 77 ]; }
fuzz_lints() { RUSTFLAGS="--cfg fuzzing" cargo clippy --locked --manifest-path fuzz/Cargo.toml -- -D warnings; }
cell "the fuzz targets: lints" fuzz_lints
cell "the fuzz targets: a minute each" visibly_skipped bash ci/fuzz.sh 60
cell "the packages, built" visibly_skipped bash ci/package.sh
cell "other kernels and processors" visibly_skipped bash ci/kernels.sh all
cell "processes in a static program (musl)" visibly_skipped bash ci/musl.sh
# Wine's server does all the work, and crashes more often the more it has to do.
newer_wine() { env -u RUST_TEST_THREADS PIPEWRIGHT_WINE=trixie bash ci/windows.sh; }
this_wine() { env -u RUST_TEST_THREADS bash ci/windows.sh; }
cell "Windows: the suites and the tool under Wine" visibly_skipped this_wine
cell "Windows: the suites and the tool under Wine 10" visibly_skipped newer_wine
slurm_of_a_user() {
    # The user of the cluster compiles nothing, and runs what is there.
    cargo test --locked -p pipewright-cli --test cli --no-run
    bash ci/slurm.sh --user "$(ls -t target/debug/deps/cli-* | grep -v '\.d$' | head -n 1)" slurm
}
cell "Slurm: the cluster of an ordinary user" visibly_skipped slurm_of_a_user
cell "macOS: types and lints, with each set of features" visibly_skipped bash ci/macos.sh
cell "the archives of a release" visibly_skipped bash ci/release.sh
cell "the Python package with the oldest and the newest Python" visibly_skipped bash ci/python.sh all
cell "the wheels of the Python package" visibly_skipped bash ci/wheels.sh
cell "published crates with pipewright::process in place of std" visibly_skipped bash ci/ported.sh
stage "done"
[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
