#!/usr/bin/env bash
# Runs the suites on other kernels than this machine's (ci/vm.sh): `bash ci/kernels.sh` what the gate runs, `bash
# ci/kernels.sh all` everything. Exits with 77 if this machine cannot run such a machine.
#
# The gate: the suites of processes, workers and the platform crate on user-mode Linux 5.10 and 6.1, and the short list in
# qemu on the oldest and on the newest kernel. The rest: each suite as root and as an ordinary user, the disk suite on
# three filesystems, and the short list on every kernel.
set -euo pipefail
cd "$(dirname "$0")/.."

[ "$(uname -sm)" = "Linux x86_64" ] || { echo "SKIPPED kernels.sh: the machines are for Linux on x86-64"; exit 77; }
logs=$(realpath -m "${CARGO_TARGET_DIR:-target}")/kernels
mkdir -p "$logs"

# Builds the test programs, and prints the path of each: NAME PATH.
build() {
    cargo test --locked --no-run --message-format=json -p pipewright-os -p pipewright-tests --lib --test process --test ipc \
        --test disk -p pipewright-cli --bin pipewright | python3 -c '
import json, sys
for line in sys.stdin:
    artifact = json.loads(line)
    if artifact.get("executable") and artifact["profile"]["test"]:
        print(artifact["target"]["name"], artifact["executable"])
'
}
programs=$(build)
cargo build --locked -p pipewright-cli
program() { awk -v name="$1" '$1 == name {print $2; exit}' <<< "$programs"; }

# Runs a test program in a machine: suite [OPTION VALUE]... MACHINE NAME [ARGUMENT]... The options are those of ci/vm.sh,
# the arguments are for the test harness. Prints the result and, after a failure, the end of the log.
suite() {
    local options=() machine name log code=0
    while [[ $1 == -* ]]; do options+=("$1" "$2"); shift 2; done
    machine=$1 name=$2; shift 2
    log=$logs/$machine-$name$(printf '%s' "${options[@]/#-/-}").log
    bash ci/vm.sh "${options[@]}" "$machine" "cd crates/pipewright-tests &&
        PIPEWRIGHT_TEST_SCALE=$scale RUST_TEST_THREADS=2 exec $(program "$name") $*" > "$log" 2>&1 || code=$?
    [ "$code" = 0 ] || { tail -n 40 "$log"; failed=1; }
    printf '%s, %s: exit code %s; %s\n' "$machine" "$name ${options[*]}" "$code" "$(grep '^test result' "$log" | tail -n 1)"
}

# User-mode Linux has one processor, and each of its system calls takes several of this machine's.
suites() {
    local scale=5 failed=
    suite -t 900 -u 1000 "$1" process
    suite -t 600 "$1" ipc
    suite -t 600 "$1" pipewright_os
    [ -z "$failed" ]
}

# The tests that an emulated processor finishes in minutes: starts, trees, waits without newer calls.
short_list() {
    local scale=20 failed=
    suite -t 900 "$1" process parent_exit:: environment:: inheritance:: stopping:: process_handle::
    suite -t 600 "$1" ipc ring started_as_worker no_handshake
    [ -z "$failed" ]
}

failed=()
cells() {
    local function=$1 machine pids=() names=()
    shift
    for machine; do "$function" "$machine" & pids+=($!) names+=("$function $machine"); done
    for i in "${!pids[@]}"; do wait "${pids[i]}" || failed+=("${names[i]}"); done
}

cells suites uml-5.10 uml-6.1
cells short_list 5.10 newest
if [ "${1:-}" = all ]; then
    cells short_list 6.1 6.12
    for filesystem in ext4 xfs btrfs; do
        (scale=20 failed=; suite -t 1800 -f "$filesystem" 6.1 disk; [ -z "$failed" ]) || failed+=("disk on $filesystem")
    done
fi
[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
