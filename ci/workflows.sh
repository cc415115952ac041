#!/usr/bin/env bash
# Lints the workflows with actionlint, and checks that each of their steps calls a script of ci/, which runs here too.
# Go brings actionlint, which is kept in a cache. Exits with 77 without Go.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PIPEWRIGHT_LINT_CACHE:-$HOME/.cache/pipewright-lint}
. ci/machine.sh

version=1.7.12
command -v python3 > /dev/null || skip program:python3 "reads the workflows"
steps=$(awk '/^ *(- )?run: / {sub(/^ *(- )?run: /, ""); print FILENAME ": " $0}' .github/workflows/*.yml)
! grep -vE ': bash (\.ci/run|ci/[a-z-]+\.sh)( |$)' <<< "$steps" || fail "these steps call no script of ci/"
while read -r script; do
    [ -e "$script" ] || fail "there is no $script"
done < <(grep -oE '(\.ci/run|ci/[a-z-]+\.sh)' <<< "$steps" | sort -u)

fetch_actionlint() {
    [ ! -d "$cache/actionlint-$version" ] || return 0
    say "building actionlint $version"
    GOBIN=$new/bin GOFLAGS=-modcacherw \
        go install "github.com/rhysd/actionlint/cmd/actionlint@v$version" > "$new/log" 2>&1 ||
        { tail -n 3 "$new/log" >&2; skip "go-module:github.com/rhysd/actionlint@v$version" "cannot be built"; }
    mv "$new/bin" "$cache/actionlint-$version"
}
if [ ! -d "$cache/actionlint-$version" ]; then
    command -v go > /dev/null || skip program:go "builds actionlint"
    alone fetch_actionlint
fi
"$cache/actionlint-$version/actionlint" -shellcheck= -pyflakes=
workflows=$(ls .github/workflows | wc -l) calls=$(wc -l <<< "$steps")
say "actionlint $version has no complaint about $workflows workflows, whose $calls steps call scripts of ci/"
