#!/usr/bin/env bash
# Publishes what the scripts of a release have built: `bash ci/publish.sh github|crates|npm`. The Python package is
# published by an action, which the registry trusts. Each says what it would do, and does it with PUBLISH=yes alone, as
# .github/workflows/release.yml has it.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

target=${CARGO_TARGET_DIR:-target}
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
bash ci/version.sh
if [ "${PUBLISH:-}" = yes ]; then
    [ "${GITHUB_REF_NAME:-v$version}" = "v$version" ] || fail "the tag is $GITHUB_REF_NAME, and the version $version"
    grep -q '^repository = "h' Cargo.toml || fail "the address of the repository is not set: docs/releasing.md"
    does() { "$@"; }
else
    does() { say "would run: $*"; }
fi

case ${1:-} in
    github)
        # The section of this version in the changelog.
        notes=$(mktemp)
        trap 'rm -f "$notes"' EXIT
        awk -v version="$version" '/^## / {is_it = index($0, "## " version) == 1; next} is_it' CHANGELOG.md > "$notes"
        files=("$target"/release-archives/* "$target"/wheels/* "$target"/npm/*)
        existing=()
        for file in "${files[@]}"; do [ ! -f "$file" ] || existing+=("$file"); done
        [ ${#existing[@]} != 0 ] || fail "nothing was built"
        does gh release create "v$version" --verify-tag --title "$version" --notes-file "$notes" "${existing[@]}" ;;
    crates)
        # One after the other, each once those that it needs are there: cargo knows the order.
        does cargo publish --locked --workspace --exclude pipewright-tests --exclude pipewright-test-macros ;;
    npm)
        package=$(ls "$target"/npm/pipewright-worker-*.tgz 2> /dev/null) ||
            fail "there is no package: bash ci/npm.sh first"
        # The provenance comes from the workflow; by hand there is none.
        does npm publish "$([ -n "${GITHUB_ACTIONS:-}" ] && echo --provenance=true || echo --provenance=false)" \
            "$package" ;;
    *) echo "usage: ci/publish.sh github|crates|npm" >&2; exit 2 ;;
esac
