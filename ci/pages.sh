#!/usr/bin/env bash
# Checks the manual pages with mandoc. (The suite of the tool tries the completions in bash, zsh and fish.) Installs the
# package if it is missing. Exits with 77 if that is not possible. `ci/pages.sh TOOL` takes a tool that is built.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

command -v mandoc > /dev/null || packages mandoc

[ -n "${1:-}" ] || cargo build --locked
tool=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/pipewright}")
# Prints the subcommands of a command, as its help lists them.
subcommands() { "$tool" "$@" --help | sed -n '/^Commands:$/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' | grep -vx help; }

page=$(mktemp --suffix .1)
trap 'rm -f "$page"' EXIT
count=0
lint() {
    "$tool" man "$@" > "$page"
    mandoc -Tlint -Wall "$page" >&2 || fail "mandoc warns about the page of: pipewright $*"
    count=$((count + 1))
}
lint
for command in $(subcommands); do lint "$command"; done
for command in $(subcommands bench); do lint bench "$command"; done
say "mandoc has no warning for $count manual pages"
