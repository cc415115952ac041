#!/usr/bin/env bash
# Builds each published crate from its package, as a registry would have it, and checks that the tool built from
# the packages holds trees: the supervisor's source is in a package too. Needs cargo 1.90; exits with 77 without.
set -euo pipefail
cd "$(dirname "$0")/.."

minor=$(cargo --version | sed -n 's/^cargo 1\.\([0-9]*\)\..*/\1/p')
[ "${minor:-0}" -ge 90 ] || { echo "SKIPPED the packages: cargo 1.90 is the first that builds those of a workspace" >&2; exit 77; }

target=${CARGO_TARGET_DIR:-target}/packages
# What the lock file names, and nothing newer.
cargo fetch --locked
# --allow-dirty: the gate runs on a clean clone anyway.
cargo package --workspace --exclude pipewright-tests --offline --locked --allow-dirty --target-dir "$target"

for package in "$target"/package/*.crate; do
    # No pipe into grep -q: it would end tar by SIGPIPE.
    files=$(tar -tzf "$package")
    for file in LICENSE-MIT LICENSE-APACHE README.md; do
        grep -q "/$file$" <<< "$files" || { echo "$package lacks $file" >&2; exit 1; }
    done
done
said=$("$target/debug/pipewright" doctor)
grep -E '^ *supervisor +yes' <<< "$said" || { echo "the packages lack the supervisor: $said" >&2; exit 1; }
