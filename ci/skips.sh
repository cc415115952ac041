#!/usr/bin/env bash
# Prints the skipped tests of a run of the gate, by reason: `bash ci/skips.sh LOG`. Fails if one is not expected on this
# machine, so that a test cannot stop running without anyone noticing. A new reason is added to `expected`, with the
# condition under which it is true.
set -euo pipefail

[ $# = 1 ] && [ -r "$1" ] || { echo "usage: ci/skips.sh LOG" >&2; exit 2; }

root=$([ "$(id -u)" != 0 ] || echo yes)
IFS=.- read -r major minor _ < /proc/sys/kernel/osrelease 2> /dev/null || major=0 minor=0

# Succeeds on a kernel older than that version.
older_than() { [ "$major" -lt "$1" ] || { [ "$major" = "$1" ] && [ "$minor" -lt "$2" ]; }; }
has() { command -v "$1" > /dev/null; }
# Succeeds for a stage that leaves something out on purpose, and for a kernel that lacks it.
deprived() { [[ $stage == *" without "* || $stage == "Linux "* ]]; }

# Succeeds if a test may be skipped for that reason in this stage, on this machine.
expected() {
    local stage=$1 test=$2 reason=$3
    case $reason in
        # Builds without a facility, and older kernels.
        *"left out of this build"* | *"no pidfd"* | *"only held by pidfds" | *"opened as pidfds" | *"through pidfds" | \
            "without pidfds "* | *"waited for by a pidfd" | "this build has no "* | *"no io_uring"* | \
            "no shared memory here" | "shared memory: unsupported" | \
            *"neither a cgroup nor a supervisor" | "trees are not contained here" | 'the ring: Some("unsupported")' | \
            "this build forks" | "a read follows a poll here"* | "no call can be held here") deprived ;;
        *PIDFD_GET_INFO* | "this kernel does not keep the status of a reaped process") older_than 6 15 || deprived ;;
        # cgroups of the own user: a container may have none.
        "this machine has no cgroup") deprived || ! [ -w /sys/fs/cgroup/cgroup.procs ] ;;
        "no control group of version 1 can be joined") deprived || ! [ -w /sys/fs/cgroup/memory/cgroup.procs ] ;;
        # Limits of trees: not every machine has the controllers of cgroup v2, and a build without cgroups has none.
        *"memory.oom.group is a file of cgroup v2" | "no cgroup v2 with the controller memory is delegated to this process")
            deprived || ! grep -qsw memory /sys/fs/cgroup/cgroup.controllers ;;
        *" cannot be held: "* | "no memory controller is mounted"*)
            # Wine 8 accepts the limits of a job, and keeps none.
            deprived || [[ $stage == Windows*Wine* && $test == tree_limits_windows::* ]] ;;
        # Those machines give an ordinary user a cgroup, and run the suite as one.
        "a command cannot change its limit here") [ -z "$root" ] || deprived ;;
        "an ordinary user has a cgroup here" | "the other tests do this already") [[ $stage == "Linux "* ]] ;;
        # Tasks have a runtime beside them.
        "a runtime takes "* | "tasks wait by another call"*) [[ $stage == *async* ]] ;;
        # Programs that are not installed.
        "mkfs."*": No such file"* | *": mkfs."*": No such file"*) ! has mkfs.btrfs || ! has mkfs.xfs ;;
        *"bindfs: No such file"*) ! has bindfs ;;
        # The Python package: other event loops, and parts of Python itself.
        *" is not installed" | *": cannot be installed" | "needs Python 3.9" | "this Python has no "* | "the list of tests is that of Python "* | \
            "python::versions: there is no other Python "*) [[ $stage == *Python* ]] ;;
        "trees cannot end with this process here") deprived ;;
        *"python3"*) [[ $stage == Windows* ]] || ! has python3 ;;
        "ninja "*" is no client of a jobserver"* | "GNU Make "*" knows no FIFO"*) : ;;
        "no filesystem can be mounted here"*) ! unshare --user --mount --map-root-user true 2> /dev/null ;;
        "there is no bash-completion here") ! [ -e /usr/share/bash-completion/bash_completion ] ;;
        # Programs of Linux are not found by a program of Windows.
        "there is no "*" here")
            local program=${reason#there is no }
            [[ $stage == Windows* ]] || ! has "${program% here}" ;;
        "user-mode Linux cannot restore the registers of this processor "*) grep -qsw amx_tile /proc/cpuinfo ;;
        # A kernel, or a system in a folder, that the package archive did not have at that moment.
        "apt-get could not "* | "the source package of "*" cannot be had") : ;;
        "needs a Slurm cluster: "*) [[ $stage != *Slurm* ]] ;;
        # Rights of the user.
        *"needs root"* | *" need root" | "only root "* | *"by root only" | "this user may not "*)
            # Those machines run the suite of processes as an ordinary user.
            [ -z "$root" ] || [[ $stage == "Linux uml-"* ]] ;;
        "too little memory "*) [[ $stage == "Linux "* ]] ;;
        # A cell of ci/matrix.sh has a machine for it.
        "no user manager of systemd is for tests: "*) [[ $stage != "Linux systemd-"* ]] ;;
        "the memory of this machine is not for tests: "*) [[ $stage != "Linux full-"* ]] ;;
        # Rights of a container.
        *"overlay: "* | "tmpfs: "* | "fscrypt: "* | "no mount of our own"* | *"allows no mount namespace"*) ! unshare --mount true 2> /dev/null ;;
        "user namespaces cannot be had"*) ! unshare --user true 2> /dev/null ;;
        *" is ignored here, and stays so") : ;;
        "with one processor "* | "with emulated processors "*) [ "$(nproc)" = 1 ] || deprived ;;
        # Depends on what else happens meanwhile; the test tries several times.
        *"by root, on a quiet machine" | "its number is another's already" | "no thread waited: "* | "a hole is read by "*) : ;;
        # Disks that a test may overwrite: only virtual machines have them.
        "no spare disks: "*) [[ $stage != "Linux "*" disk"* ]] ;;
        # Depends on the filesystem of the target folder, and on what a mounted one can do.
        "fuse: Preallocate"*": cannot preallocate "*) : ;;
        "nothing has to be aligned here" | "there was room for all: "* | "no file in small pieces "* | "Btrfs has them "* | \
            *"direct I/O needs multiples of "*) : ;;
        *) [[ $stage == Windows* ]] && expected_under_wine "$test" "$reason" ;;
    esac
}

# Succeeds for what Wine lacks and Windows has, and for what Windows lacks.
expected_under_wine() {
    case $2 in
        *"Windows has no "* | "Windows "* | *Wine* | *"is for Unix only" | "this system takes them" | "no console" | \
            *"Ctrl-Break" | "no list of handles: "* | "the doc tests: "*) : ;;
        *) return 1 ;;
    esac
}

# Prints each skipped test as STAGE, TEST and REASON, separated by tabs.
skipped() {
    awk '
        /^=== / { sub(/^=== /, ""); sub(/ \([0-9]+ s\)$/, ""); stage = $0; next }
        match($0, /SKIPPED /) {
            text = substr($0, RSTART + RLENGTH)
            at = index(text, ": ")
            print stage "\t" (at ? substr(text, 1, at - 1) : "") "\t" (at ? substr(text, at + 2) : text)
        }' "$1" | sed 's|"/[^"]*/|"|g'
}

unexpected=()
while IFS=$'\t' read -r stage test reason; do
    expected "$stage" "$test" "$reason" || unexpected+=("$stage: $test: $reason")
done < <(skipped "$1")

echo "skipped tests, by reason:"
skipped "$1" | cut -f 3 | cut -c 1-150 | sort | uniq -c | sort -rn
[ ${#unexpected[@]} = 0 ] || { printf 'skipped without an expected reason: %s\n' "${unexpected[@]}" >&2; exit 1; }
