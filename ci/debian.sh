#!/usr/bin/env bash
# Installs the Debian package of ci/release.sh in a clean Debian that has nothing else, and runs the README's main
# command there:
# `bash ci/debian.sh`. lintian looks at the package. Exits with 77 if no Debian can be had here.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release-archives
package=$(ls "$out"/pipewright_*_amd64.deb 2> /dev/null) || fail "there is no package: bash ci/release.sh first"
[ "$(uname -m)" = x86_64 ] || skip linux-x86-64 "installs the package"
packages debootstrap lintian
as_root true 2> /dev/null || skip root "installs a Debian"
# A static program is what it is meant to be; the address of the maintainer is the owner's to set (ci/deb.sh).
tags=statically-linked-binary,shared-library-lacks-prerequisites
tags+=,bogus-mail-host,bogus-mail-host-in-debian-changelog,initial-upload-closes-no-bugs
lintian --allow-root --fail-on error --suppress-tags "$tags" "$package"

cache=$(realpath -m "${PIPEWRIGHT_VM_CACHE:-$HOME/.cache/pipewright-machines}")
base=$cache/debian-minbase-1
make_base() {
    [ ! -d "$base" ] || return 0
    say "fetching a Debian"
    local mirror
    mirror=$(apt-get indextargets --format '$(SITE) $(ORIGIN)' 'Created-By: Packages' |
        awk '$2 == "Debian" && $1 !~ /security/ {print $1; exit}')
    as_root debootstrap --variant=minbase bookworm "$new/base" ${mirror:+"$mirror"} > "$new/log" 2>&1 ||
        { tail -n 3 "$new/log" >&2; skip archive:bookworm "a Debian cannot be fetched"; }
    mv "$new/base" "$base"
}
[ -d "$base" ] || alone make_base

root=$(mktemp -d)
trap 'as_root rm -rf "$root"' EXIT
as_root cp -a "$base/." "$root/"
cp "$package" "$root/tmp/pipewright.deb"
cp README.md "$root/tmp/"
# Its own processes, and nothing of this machine's.
inside() {
    as_root unshare --pid --fork --kill-child --mount sh -c 'mount -t proc none "$1/proc" && exec chroot "$@"' \
        sh "$root" "$@"
}
inside dpkg -i /tmp/pipewright.deb
command=$(sed -n '/^```sh$/,/^```$/p' README.md | sed -n 's/^cargo run -- run /pipewright run /p' | head -n 1)
[ -n "$command" ] || fail "the README has no main command"
code=0
output=$(inside bash -c "$command") || code=$?
[ "$code" = 124 ] && [ "$(head -n 1 <<< "$output")" = hi ] && grep -q '"outcome":"timed_out"' <<< "$output" ||
    fail "the README's main command exited with $code and printed: $output"
[ "$(inside pipewright batch --progress none -- echo ::: a b | sort)" = $'a\nb' ] ||
    fail "a batch prints something else"
inside test -s /usr/share/man/man1/pipewright-run.1.gz
inside bash -c '. /usr/share/bash-completion/completions/pipewright && complete -p pipewright'
inside dpkg -r pipewright
! inside test -e /usr/bin/pipewright || fail "the package leaves its tool behind"
say "the package is installed, works and is removed"
