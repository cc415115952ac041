#!/usr/bin/env bash
# Checks that everything compiles for macOS (aarch64-apple-darwin), with its lints. Nothing is linked, and
# nothing runs: for that a Mac is needed. Arguments go to cargo in place of the whole workspace:
# `bash ci/macos.sh -p pipewright-os`. Exits with 77 where the machine cannot have what is needed.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/toolchain.sh

target=aarch64-apple-darwin
compiler
library "$target" 0

[ $# != 0 ] || set -- --workspace
what=(--locked --target "$target" --target-dir "$built" --lib --bins --tests)
# Once as it comes and once with all features: what a feature adds must not be what the rest needs.
cargo check "${what[@]}" "$@"
clippy "${what[@]}" --all-features "$@"
say "$target compiles, and clippy has nothing to say (SKIPPED: linking and running, which take a Mac)"
