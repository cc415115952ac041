#!/usr/bin/env bash
# Runs a shell command in a virtual machine with another kernel, or another processor, and with this machine's files:
# `bash ci/vm.sh [-u UID] [-m MIB] [-c CPUS] [-t SECONDS] [-f FILESYSTEM] [-d DISK]... [-k SECONDS] MACHINE COMMAND`, as
# in `bash ci/vm.sh uml-5.10 'uname -r'`. Prints the command's output and exits with its status, 125 if the machine
# ended without one, 124 after the time limit, and 77 if this machine cannot run it.
#
# The guest sees the root of this machine read-only, this checkout and its target folder included. /tmp is an empty disk
# of 8 GiB with ext4 or the named filesystem (xfs, btrfs), /run and /dev/shm are in memory, cgroup v2 is mounted and
# delegated to the user, and 1 GiB is swap. There is no network but the loopback. Names without a way of running are
# emulated by qemu, at a tenth of the speed; uml-* is user-mode Linux, an ordinary process with one processor, which is
# as fast as this machine but for system calls. -d adds a disk: an empty one of that size, or a file, which keeps what
# the guest writes. The guest finds their names in PIPEWRIGHT_TEST_DISKS, separated by colons. -k cuts the machine's
# power that many seconds after its first output, and exits with 137: disks that are files keep what the guest had
# written to them, and lose what was in its memory.
set -euo pipefail
cd "$(dirname "$0")/.."

cache=$(realpath -m "${PIPEWRIGHT_VM_CACHE:-$HOME/.cache/pipewright-machines}")
# Increase this whenever the contents of the cache, or the way to make them, change.
recipe=2
. ci/machine.sh
. ci/vm/kernels.sh
. ci/vm/uml.sh
. ci/vm/qemu.sh

uid=0 mib=2048 cpus=2 seconds=900 filesystem=ext4 disks=() cut_after=
while getopts u:m:c:t:f:d:k: option; do
    case $option in
        u) uid=$OPTARG ;; m) mib=$OPTARG ;; c) cpus=$OPTARG ;; t) seconds=$OPTARG ;; f) filesystem=$OPTARG ;; d) \
            disks+=("$OPTARG") ;;
        k) cut_after=$OPTARG ;;
        *) exit 2 ;;
    esac
done
shift $((OPTIND - 1))
[ $# = 2 ] || fail "usage: ci/vm.sh [OPTION]... MACHINE COMMAND"
machine=$1 command=$2
describe_machine "$machine"
kernel=$cache/$machine-$recipe
target=$(realpath -m "${CARGO_TARGET_DIR:-target}")

"prepare_$way"
[ -d "$kernel" ] || alone fetch_kernel

# The folder of this run: what the guest's first process reads and writes.
run=$(mktemp -d)
processes=()
finish() {
    for process in "${processes[@]}"; do kill "$process" 2> /dev/null || true; done
    rm -rf "$run"
}
trap finish EXIT
printf '%s\n' "$command" > "$run/command"
: > "$run/output"
truncate -s 8G "$run/disk"
case $filesystem in
    ext4) mke2fs -q -t ext4 -E lazy_itable_init=1,lazy_journal_init=1 "$run/disk" ;;
    xfs) packages xfsprogs; mkfs.xfs -q "$run/disk" ;;
    btrfs) packages btrfs-progs; mkfs.btrfs -q "$run/disk" ;;
    *) fail "no filesystem is called $filesystem; there are: ext4 xfs btrfs" ;;
esac
truncate -s 1G "$run/swap"
chmod 600 "$run/swap"
mkswap "$run/swap" > /dev/null 2>&1

# The spare disks: files. The guest's first two are those for /tmp and for swap.
letter() { printf '%s' "cdefghij" | cut -c $(($1 + 1)); }
spare_disks() {
    local i names=()
    for i in "${!disks[@]}"; do names+=("/dev/$1$(letter "$i")"); done
    (IFS=:; echo "${names[*]}")
}
for i in "${!disks[@]}"; do
    case ${disks[i]} in
        */*) [ -f "${disks[i]}" ] || fail "no file ${disks[i]}" ;;
        *) truncate -s "${disks[i]}" "$run/disk-$i"; disks[i]=$run/disk-$i ;;
    esac
done

# Starts the machine in the background; its process is $guest.
"start_$way"
tail -q -f -s 0.2 --pid="$guest" "$run/output" &
[ -z "$cut_after" ] || {
    until [ -s "$run/output" ] || ! kill -0 "$guest" 2> /dev/null; do sleep 0.05; done
    sleep "$cut_after"
    # timeout(1) leads a process group, in which the machine is.
    kill -KILL -- "-$guest" 2> /dev/null && wait "$guest" 2> /dev/null || true
    exit 137
}
code=0
wait "$guest" || code=$?
wait $! || true
status=$(cat "$run/status" 2> /dev/null || true)
[ -n "$status" ] || {
    [ "$code" != 124 ] || { say "$machine did not end within $seconds s"; exit 124; }
    tail -n 30 "$run/console" >&2
    say "$machine ended without a status"
    exit 125
}
exit "$status"
