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

# Runs a test program in a machine, with these arguments for the harness: suite [OPTION]... MACHINE NAME [ARGUMENT]...
suite() {
    local options=() machine name log
    while [[ $1 == -* ]]; do options+=("$1" "$2"); shift 2; done
    machine=$1 name=$2; shift 2
    log=$logs/$machine-$name${options[*]:+-${options[*]//[ -]/}}.log
    bash ci/vm.sh "${options[@]}" "$machine" "cd crates/pipewright-tests &&
        PIPEWRIGHT_TEST_SCALE=$scale RUST_TEST_THREADS=${threads:-2} exec $(program "$name") $*" > "$log" 2>&1 ||
        { failed+=("$log"); tail -n 40 "$log"; }
    printf '%s, %s: %s\n' "$machine" "$name ${options[*]}" "$(grep '^test result' "$log" | tail -n 1)"
}
