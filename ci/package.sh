#!/usr/bin/env bash
# Builds each published crate from its package, as a registry would contain it. Checks that the tool built from the
# packages can supervise trees, because the supervisor's source has to be in a package too. `ci/package.sh files` checks
# the files of the packages, and builds nothing. Exits with 77 if cargo is older than 1.90.
set -euo pipefail
cd "$(dirname "$0")/.."

minor=$(cargo --version | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
[ "${minor:-0}" -ge 90 ] || { echo "SKIPPED need=version:cargo:1.90 ci/package.sh: builds the packages of a workspace" \
    >&2; exit 77; }

target=${CARGO_TARGET_DIR:-target}/packages
# Fetches the versions of the lock file, and none that are newer.
cargo fetch --locked
# Cargo unpacks the packages below its home, and would use those of an earlier run in this place again: a home of its
# own.
home=$(mktemp -d)
trap 'rm -rf "$home"' EXIT
shared=${CARGO_HOME:-$HOME/.cargo}
mkdir "$home/registry"
for file in config config.toml registry/index registry/cache; do
    [ ! -e "$shared/$file" ] || ln -s "$(realpath "$shared/$file")" "$home/$file"
done
export CARGO_HOME=$home
# --allow-dirty: the gate runs on a clean clone anyway.
verify=()
[ "${1:-}" != files ] || verify=(--no-verify)
cargo package --workspace --exclude pipewright-tests --exclude pipewright-test-macros --offline --locked --allow-dirty \
    --target-dir "$target" ${verify[@]+"${verify[@]}"}

for package in "$target"/package/*.crate; do
    # No pipe into grep -q: it would end tar by SIGPIPE.
    files=$(tar -tzf "$package")
    for file in LICENSE-MIT LICENSE-APACHE README.md; do
        grep -q "/$file$" <<< "$files" || { echo "$package lacks $file" >&2; exit 1; }
    done
    [[ $package != */pipewright-os-[0-9]* ]] || grep -q "/supervisor/main.rs$" <<< "$files" ||
        { echo "$package lacks the supervisor" >&2; exit 1; }
done
[ "${1:-}" != files ] || exit 0
report=$("$target/debug/pipewright" doctor)
grep -E '^ *supervisor +yes' <<< "$report" || { echo "the packages lack the supervisor: $report" >&2; exit 1; }
