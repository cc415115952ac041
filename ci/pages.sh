#!/usr/bin/env bash
# Checks the manual pages with mandoc, and tries the completions in bash, zsh and fish. Installs the packages
# that are missing. Exits with 77 if that is not possible.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/toolchain.sh

missing=()
for program in mandoc zsh fish; do command -v "$program" > /dev/null || missing+=("$program"); done
[ -e /usr/share/bash-completion/bash_completion ] || missing+=(bash-completion)
[ ${#missing[@]} = 0 ] || packages "${missing[@]}"

cargo build --locked -p pipewright-cli
tool=$(realpath "${CARGO_TARGET_DIR:-target}/debug/pipewright")
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

cargo test --locked --workspace --test cli -- completions --nocapture
