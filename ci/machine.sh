# Sourced by scripts that install or unpack what this machine lacks. They set `cache` first: a folder outside the
# repository, whose contents are created under a temporary name and renamed once complete, under a lock. An aborted run,
# or two runs at once, therefore leave nothing incomplete that a later run would use.

say() { printf '%s: %s\n' "${0##*/}" "$1"; }
# A tool that this machine cannot provide is not a failure of the change: skip NEED DETAIL exits with 77, as other test
# programs do. ci/skips.sh has the needs.
skip() { printf 'SKIPPED need=%s ci/%s: %s\n' "$1" "${0##*/}" "$2"; exit 77; }
fail() { printf '%s: %s\n' "${0##*/}" "$1" >&2; exit 1; }

# Runs a function with exclusive access to the cache, and with a temporary folder ($new), which is removed afterwards.
alone() {
    mkdir -p "$cache"
    (
        flock -n 9 || { say "waiting for another run that fills $cache"; flock 9; }
        rm -rf "$cache"/new.*
        new=$cache/new.$$
        mkdir "$new"
        trap 'rm -rf "$new"' EXIT
        "$@"
    ) 9> "$cache/lock"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# Updates the package lists, once in a run: a new machine has old ones, or none.
apt_lists() {
    [ -z "${lists_are_new:-}" ] || return 0
    local try
    for try in 1 2 3; do
        # Another process may hold their lock.
        as_root apt-get update -qq && break || sleep 5
    done
    lists_are_new=1
}

# Installs those packages that are missing.
packages() {
    local missing=() package
    command -v dpkg-query > /dev/null || skip program:dpkg-query "needs a Debian with the packages $*"
    for package; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2> /dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} != 0 ] || return 0
    as_root true 2> /dev/null || skip root "run as root first: apt-get install --no-install-recommends ${missing[*]}"
    apt_lists
    for package in "${missing[@]}"; do
        apt-cache show "$package" > /dev/null 2>&1 || skip "package:$package" "this system has none"
    done
    say "installing ${missing[*]}"
    local log; log=$(mktemp)
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "${missing[@]}" > "$log" 2>&1 < /dev/null ||
        { tail -n 5 "$log" >&2; fail "apt-get could not install ${missing[*]}"; }
    rm -f "$log"
}
