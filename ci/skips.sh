#!/usr/bin/env bash
# Compares the skipped tests of a run of the gate with this machine: `bash ci/skips.sh LOG`. A test that cannot run
# prints `SKIPPED need=NEED TEST: detail`. Fails if the machine has what one needs, or if nobody knows that need, so
# that a test cannot stop running without anyone noticing. A new need gets a fact below. `bash ci/skips.sh --self-test`
# checks the script itself.
set -euo pipefail
cd "$(dirname "$0")/.."
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT

has() { command -v "$1" > /dev/null; }
works() { "$@" > /dev/null 2>&1; }
# Succeeds if a version is at least another: at_least WANTED FOUND.
at_least() { [ -n "$2" ] && printf '%s\n' "$1" "$2" | sort -VC; }
linux() { [ "$(uname -s)" = Linux ] && at_least "$1" "$(uname -r)"; }
version_of() { "$1" --version 2> /dev/null | grep -oE '[0-9]+(\.[0-9]+)+' | head -n 1; }
as_nobody() { if [ "$(id -u)" = 0 ]; then setpriv --reuid 65534 --regid 65534 --clear-groups "$@"; else "$@"; fi; }
# Succeeds if the archive of this machine's Debian has that release.
archive_has() {
    local site; site=$(apt-get indextargets --format '$(SITE) $(ORIGIN)' 'Created-By: Packages' |
        awk '$2 == "Debian" {print $1; exit}')
    [[ $1 != *-security ]] || site=${site%/debian}/debian-security
    [ -n "$site" ] && works /usr/lib/apt/apt-helper download-file "$site/dists/$1/InRelease" "$scratch/$1"
}

# Succeeds if this machine has what is needed: a case for each need.
machine_has() {
    local name=${1#*:}
    case $1 in
        pidfd | supervisor | shared-memory | try-read | vfork | blocking-verbs | linux | unix) linux 5.4 ;;
        pidfd-info) linux 6.15 ;;
        kernel:*) linux "$name" ;;
        linux-x86-64) [ "$(uname -sm)" = "Linux x86_64" ] ;;
        no-amx) ! grep -qsw amx_tile /proc/cpuinfo ;;
        io-uring) linux 5.6 && ! grep -qsx 2 /proc/sys/kernel/io_uring_disabled ;;
        aio) [ -e /proc/sys/fs/aio-max-nr ] ;;
        seccomp-notify) grep -qsw user_notif /proc/sys/kernel/seccomp/actions_avail ;;
        cgroup) [ -n "$(find /sys/fs/cgroup -maxdepth 2 -name cgroup.procs -writable -print -quit 2> /dev/null)" ] ;;
        cgroup-v1) [ -w /sys/fs/cgroup/memory/cgroup.procs ] ;;
        cgroup-v2) [ -w /sys/fs/cgroup/cgroup.procs ] && grep -qsw memory /sys/fs/cgroup/cgroup.controllers ;;
        tree-limits) machine_has cgroup-v1 || machine_has cgroup-v2 ;;
        user-without-cgroup) ! as_nobody test -w /sys/fs/cgroup/cgroup.procs ;;
        public-target) as_nobody test -x "${CARGO_TARGET_DIR:-target}/debug" ;;
        root) [ "$(id -u)" = 0 ] ;;
        git-tag) [ -n "$(git tag)" ] ;;
        mount) works unshare --mount true || works unshare --user --map-root-user --mount true ;;
        userns) works unshare --user true ;;
        pidns) works unshare --pid --fork true ;;
        netns) machine_has root && has ip && works unshare --net true ;;
        filesystem:fscrypt) machine_has filesystem:ext4 && [ -e /sys/fs/ext4/features/encryption ] ;;
        filesystem:ext* | filesystem:xfs | filesystem:btrfs) has "mkfs.$name" &&
            { grep -qsw "$name" /proc/filesystems || works modprobe -n "$name"; } ;;
        filesystem:*) grep -qsw "$name" /proc/filesystems || works modprobe -n "$name" ;;
        program:*) has "$name" ;;
        version:*) at_least "${name#*:}" "$(version_of "${name%%:*}")" ;;
        file:*) [ -e "$name" ] ;;
        processors) [ "$(nproc 2> /dev/null || getconf _NPROCESSORS_ONLN)" -gt 1 ] &&
            [ "${PIPEWRIGHT_TEST_SCALE:-1}" -lt 10 ] ;;
        handles) (ulimit -Sn 5000) 2> /dev/null ;;
        # HUP, INT, QUIT and TERM.
        default-signals) ((!(0x$(awk '$1 == "SigIgn:" {print $2}' /proc/self/status) & 0x4007))) ;;
        block-device) [ -n "$(find /dev -maxdepth 1 -type b -print -quit)" ] ;;
        sanitizers) works cc -fsanitize=address,undefined -x c -o "$scratch/sanitized" - <<< "int main() {}" ;;
        unwinder-archive) [ -e "$(cc -print-file-name=libgcc_eh.a 2> /dev/null)" ] ;;
        python-module:*) works python3 -c "import $name" ;;
        python-until:*) at_least "$(version_of python3)" "$name.999" ;;
        other-python) [ "$(compgen -c python3. | grep -E '^python3\.[0-9]+$' | sort -u | wc -l)" -gt 1 ] ;;
        # What could not be installed is tried again.
        package:*) apt-cache madison "${name%%:*}" 2> /dev/null | awk -F'|' -v v="${name#"${name%%:*}"}" \
            'index($2, " " substr(v, 2)) == 1 {found = 1} END {exit !found}' ;;
        archive:*) archive_has "$name" ;;
        pip:*) works python3 -m pip download -q --no-deps -d "$scratch" "$name" ;;
        npm:*) works npm view "$name" version ;;
        crates) works cargo update --dry-run ;;
        go-module:*) works go list -m "$name" ;;
        rust-target:*) works rustup target add "$name" ;;
        nightly:*) rustup component list --toolchain nightly 2> /dev/null | grep -q "^$name.*(installed)" ;;
        # Made for a stage, which fails without them.
        c-workers | forced:*) true ;;
        # Only some stages have them, as the next function says. The last two are told by their number.
        slurm | net-python | spare-disks | spare-memory | systemd-user) false ;;
        windows | wine | macos | storage | luck) false ;;
        *) echo "no such need: $1" >&2 ;;
    esac
}

# Succeeds if a test may be skipped in that stage: expected STAGE NEED.
expected() {
    local there='' # What may be missing there, as a pattern.
    case "${1,,}/$2" in
        # What a stage is there for.
        *slurm*/slurm | python/net-python | "linux systemd-"*/systemd-user | "linux full-"*/spare-memory) return 1 ;;
        "linux disk-"*/spare-disks | "linux power-cut"*/spare-disks) return 1 ;;
        *async*/*) there='forced:async' ;;
        # Without one facility, some others are of no use.
        *" without "*/* | fallbacks/*)
            there='forced:.*|pidfd.*|try-read|io-uring|shared-memory|cgroup.*|tree-limits|supervisor' ;;
        # Another kernel, with a processor that is slow or emulated, where some suites run as an ordinary user.
        "linux "*/*)
            there='pidfd-info|kernel:.*|io-uring|aio|seccomp-notify|cgroup.*|tree-limits|user-without-cgroup|root|mount'
            there+='|userns|pidns|netns|filesystem:.*|program:.*|file:.*|processors|handles|block-device' ;;
        windows*/*) there='unix|linux|program:.*|version:.*|file:/proc/.*' ;;
    esac
    [[ $2 =~ ^($there)$ ]] || ! machine_has "$2"
}

# Fails if a skip of the log is not expected. Prints the number of skips by need, and those of luck by test.
judge() {
    local stage need test detail bad=()
    local -A known=()
    # STAGE, NEED, TEST and DETAIL, separated by a character that no line has.
    while IFS=$'\037' read -r stage need test detail; do
        [ -n "${known["$stage/$need"]:-}" ] || { expected "$stage" "$need" && known["$stage/$need"]=yes ||
            known["$stage/$need"]=no; }
        [ "${known["$stage/$need"]}" = yes ] || bad+=("$stage: need=$need: $test: $detail")
    done < <(skips "$1")
    echo "skipped, by need:"
    skips "$1" | awk -F'\037' '
        { key = $2 ~ /^(luck|storage)$/ ? $2 " " $3 : $2 }
        !count[key]++ { first[key] = substr($4, 1, 90) }
        END { for (key in count) printf "%5d %s: %s\n", count[key], key, first[key] }' | sort -rn
    [ ${#bad[@]} = 0 ] || { printf 'not expected to be skipped: %s\n' "${bad[@]}" >&2; return 1; }
}

skips() {
    awk -v OFS='\037' '
        { sub(/\r$/, "") }
        /^=== / { sub(/^=== /, ""); sub(/ \([0-9]+ s\)$/, ""); stage = $0; next }
        match($0, /SKIPPED[ :]/) {
            text = substr($0, RSTART + RLENGTH); need = "none"
            if (match(text, /^need=[^ ]+ /)) { need = substr(text, 6, RLENGTH - 6); text = substr(text, RLENGTH + 1) }
            at = index(text, ": ")
            print stage, need, substr(text, 1, at ? at - 1 : 0), at ? substr(text, at + 2) : text
        }' "$1"
}

# Judges one skip in a stage: is yes|no STAGE NEED.
is() {
    printf '=== %s (1 s)\nSKIPPED need=%s a::test: why\n' "$2" "$3" > "$log"
    local found=no
    ! judge "$log" > "$log.out" 2>&1 || found=yes
    [ "$found" = "$1" ] || { echo "skips.sh: $3 in '$2': expected: $found" >&2; cat "$log.out" >&2; failed=yes; }
}

self_test() {
    local log=$scratch/log failed='' word
    # Has, has not, never, only there; on purpose; elsewhere.
    is no tests program:sh; is yes tests program:no-such-program; is yes tests luck; is no tests no-such-need; is no \
        tests none
    is no tests file:/; is no tests version:bash:3.0; is yes tests version:bash:99.0; is yes tests kernel:99.0; is no \
        tests kernel:4.0
    is yes tests slurm; is no slurm slurm; is yes faults net-python; is no python net-python; is yes "Linux 6.1" \
        systemd-user; is no "Linux systemd-6.1" systemd-user
    is yes async forced:async; is no async forced:pidfd; is no tests forced:async
    is yes fallbacks forced:pidfd; is yes "all suites without any" supervisor; is no tests supervisor
    is yes "Linux uml-5.10" kernel:5.12; is no "Linux uml-5.10" supervisor; is yes windows unix; is no "Windows: Wine" \
        c-workers
    printf 'SKIPPED: of no type\n' > "$log"
    ! judge "$log" > "$log.out" 2>&1 || { echo "skips.sh: a skip needs a type" >&2; failed=yes; }
    # Every need of the sources has a fact.
    for word in $(sed -n '/fmt::Display for Need/,/match NAMES/p' crates/pipewright-os/src/base/skipped.rs |
        grep -oP '"\K[a-z0-9-]+:?') \
        $(grep -hoP '(echo "SKIPPED need=|(\|\||;|\)|^) *skip "?|\bskip\(f?")\K[a-z0-9-]+(?=[: ",])(:(?! ))?' \
            ci/[^s]*.sh ci/s[^k]*.sh \
            ci/vm/*.sh python/tests/*.py); do
        grep -qP "^        ([^)]* )?\Q$word\E[^ |]*( \||\))" ci/skips.sh ||
            { echo "skips.sh: no fact for the need $word" >&2; failed=yes; }
    done
    [ -z "$failed" ]
}

case ${1:-} in
    --self-test) self_test ;;
    *) [ $# = 1 ] && [ -r "$1" ] || { echo "usage: ci/skips.sh LOG" >&2; exit 2; }; judge "$1" ;;
esac
