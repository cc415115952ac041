#!/usr/bin/env bash
# Runs the suites on other kernels and processors than this machine's (ci/vm.sh): `bash ci/kernels.sh` runs what the
# gate runs (a part of the suite of processes on the oldest kernel), `bash ci/kernels.sh built` does so with the suites
# that are built (ci/suites.sh), `bash ci/kernels.sh CELL...` runs cells of the matrix. What this machine cannot run is
# skipped, and the output says so. The logs are in target/kernels.
set -euo pipefail
cd "$(dirname "$0")/.."

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
logs=$target/kernels
mkdir -p "$logs"
cache=$logs
. ci/machine.sh
[ "$(uname -sm)" = "Linux x86_64" ] || skip linux-x86-64 "has the machines"

# Runs `cargo test` with these arguments, and prints lines of NAME PATH: the programs that it builds. Fails if the
# supervisor of process trees is left out, because then the tests of trees are skipped.
test_programs() {
    bash ci/with-hooks.sh test --locked --no-run --message-format=json "$@" | python3 -c '
import json, sys
for line in sys.stdin:
    artifact = json.loads(line)
    if artifact["reason"] == "build-script-executed" and "pipewright-os" in artifact["package_id"]:
        if "pipewright_supervisor" not in artifact["cfgs"]:
            sys.exit("the supervisor cannot be built for this target")
    if artifact.get("executable") and artifact["profile"]["test"]:
        print(artifact["target"]["name"], artifact["executable"])
'
}

# Builds the test programs for a target, or for this machine, and sets programs to lines of NAME PATH.
build() {
    local arguments=()
    [ -z "${1:-}" ] || arguments=(--target "$1")
    case ${1:-} in
        aarch64-*) export CARGO_TARGET_AARCH64_UNKNOWN_LINUX_MUSL_LINKER=rust-lld ;;
        # No musl of this processor comes with Rust: a static program with the C library of Debian.
        riscv64*)
            packages gcc-riscv64-linux-gnu libc6-dev-riscv64-cross
            export CARGO_TARGET_RISCV64GC_UNKNOWN_LINUX_GNU_LINKER=riscv64-linux-gnu-gcc
            export CARGO_TARGET_RISCV64GC_UNKNOWN_LINUX_GNU_RUSTFLAGS='-C target-feature=+crt-static' ;;
    esac
    [ -z "${1:-}" ] || [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] ||
        rustup target add "$1" > /dev/null 2>&1 ||
        skip "rust-target:$1" "needs its library"
    # For this machine, the gate has built the workspace.
    local packages=(--workspace)
    [ -z "${1:-}" ] || packages=(-p pipewright-os -p pipewright-tests)
    programs=$(test_programs "${arguments[@]}" "${packages[@]}" --lib --test process --test ipc --test disk)
}

# As build, with the test programs for the machine with spare disks.
build_with_log() {
    build
    programs+=$'\n'$(test_programs -p pipewright-batch --test power_cut)
}

# Runs a test program in a machine: suite [OPTION VALUE]... MACHINE PROGRAM [ARGUMENT]... The options are those of
# ci/vm.sh, the arguments are for the test harness. Prints the skipped tests and the result, and after a failure the end
# of the log.
suite() {
    local options=() machine name path log code=0
    while [[ $1 == -* ]]; do options+=("$1" "$2"); shift 2; done
    machine=$1 name=$2; shift 2
    path=$(awk -v name="$name" '$1 == name {print $2; exit}' <<< "$programs")
    log=$logs/$cell-$name.log
    bash ci/vm.sh "${options[@]}" "$machine" "${before:-}cd crates/pipewright-tests &&
        PIPEWRIGHT_TEST_SCALE=$scale RUST_TEST_THREADS=${threads:-6} RUST_BACKTRACE=1 \
            exec ${as:-} $path $*" > "$log" 2>&1 || code=$?
    grep -aE '^(SKIPPED|COUNTED) ' "$log" || true
    # The machine could not be had here: its line says why.
    [ "$code" != 77 ] || { printf '%s: %s: not run\n' "$cell" "$name"; return; }
    [ "$code" = 0 ] || tail -n 60 "$log"
    printf '%s: %s: exit code %s; %s\n' "$cell" "$name" "$code" "$(grep -a '^test result' "$log" | tail -n 1)"
    [ "$code" = 0 ] || status=1
}

# The short list, which an emulated processor finishes in minutes: trees, limits, stops and waits, starts, the ring,
# io_uring. short_list MACHINE [MODULE OF THE SUITE OF PROCESSES]...
short_list() {
    local scale=${scale:-20} machine=$1
    shift
    suite -t 900 -u "${user:-0}" "$machine" process parent_exit:: process_handle:: stopping:: environment:: \
        inheritance:: tree_limits "$@"
    suite -t 600 -u "${user:-0}" "$machine" ipc whole_and_in_order:: started_as_worker::
}

# Prints the fastest machine with that kernel. User-mode Linux cannot restore the registers of a processor with AMX:
# there the emulator takes its place, so that no check is left out.
fastest() { if grep -qsw amx_tile /proc/cpuinfo; then echo "$1"; else echo "uml-$1"; fi; }

# Prints the factor for the limits and delays of tests in a machine.
slowness() { case $1 in uml-*) echo 5 ;; *) echo 20 ;; esac; }

# User-mode Linux has one processor, and each of its system calls takes several of this machine's.
cell_uml() {
    local scale=5
    suite -t 1200 -u 1000 "$1" process
    # The workers in other languages need a compiler that writes, and interpreters that start slowly there.
    suite -t 600 "$1" ipc --skip clients::
    suite -t 600 "$1" pipewright_os
}

run_cell() {
    local cell=$1 status=0
    case $cell in
        smoke)
            local scale; scale=$(slowness "$oldest")
            suite -t 600 -u 1000 "$oldest" process parent_exit:: trees:: timeouts:: environment:: ;;
        uml-*) cell_uml "$cell" ;;
        disk-*) scale=20 suite -t 1800 -f "${cell#disk-}" -d 96M -d 512M 6.1 disk ;;
        # Without swap, so that it is soon full.
        full-*)
            local scale=20 before='swapoff -a; export PIPEWRIGHT_TEST_FILL_MEMORY=yes; '
            suite -m 1024 -t 600 "${cell#full-}" process tree_limits::kills:: ;;
        # As an ordinary user in a scope of systemd's, as a terminal has it.
        systemd-*)
            # One test at a time: they use one manager, which has 2 s for an answer.
            local scale=20 threads=1 before='. ci/vm/user-manager.sh; '
            local as='setpriv --reuid 1000 --regid 1000 --clear-groups --'
            as+=' systemd-run --user --scope --unit=terminal.scope --'
            suite -t 900 "${cell#systemd-}" process tree_limits_systemd:: ;;
        power-cut)
            local scale machine; machine=$(fastest 6.1); scale=$(slowness "$machine")
            suite -t 1200 -d 96M -d 512M "$machine" disk power_cut::
            suite -t 1200 -d 96M -d 512M "$machine" power_cut ;;
        # The supervisor is compiled for these processors, and its slots start commands by a call in assembly.
        arm64-* | riscv64) short_list "$cell" tree_slot:: ;;
        *) short_list "$cell" ;;
    esac
    return "$status"
}

# Runs cells at once, since each machine mostly uses one processor.
failed=()
cells() {
    local pids=() cell i
    for cell; do (run_cell "$cell") > "$logs/$cell.out" 2>&1 & pids+=($!); done
    i=0
    for cell; do
        wait "${pids[i]}" || failed+=("$cell")
        i=$((i + 1))
        # The summary of skipped tests at the end of the gate knows the cell by this line.
        printf '=== Linux %s (0 s)\n' "$cell"
        cat "$logs/$cell.out"
    done
}

oldest=$(fastest 5.10)
case ${1:-gate} in
    gate | built)
        # Of the whole workspace: no other package is compiled for this.
        [ "${1:-}" = built ] || bash ci/suites.sh build
        programs=$(cut -f 1,3 --output-delimiter=' ' "$target/suites")
        cells smoke ;;
    *)
        case $1 in
            arm64-*) build aarch64-unknown-linux-musl ;;
            riscv64*) build riscv64gc-unknown-linux-gnu ;;
            power-cut) build_with_log ;;
            *) build ;;
        esac
        cells "$@" ;;
esac
[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
