#!/usr/bin/env bash
# Checks that everything compiles for macOS (aarch64-apple-darwin), with its lints. It links and runs nothing, which
# would need a Mac. `bash ci/macos.sh lints` checks the products with all features alone, and no tests. Other arguments
# go to cargo and replace `--workspace`: `bash ci/macos.sh -p pipewright-os`. Exits with 77 if the tools cannot be
# installed on this machine.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/toolchain.sh

target=aarch64-apple-darwin
compiler
library "$target" 0

# SQLite is not compiled: that needs Apple's headers, and nothing is linked here.
export LIBSQLITE3_SYS_USE_PKG_CONFIG=1 SQLITE3_LIB_DIR=/nonexistent
options=(--locked --target "$target" --target-dir "$built" --lib --bins)
only_lints=
if [ "${1:-}" = lints ]; then
    only_lints=yes
    shift
else
    options+=(--tests)
fi
[ $# != 0 ] || set -- --workspace
# Once with default and once with all features: the code must not depend on an item that only a feature adds.
[ -n "$only_lints" ] || cargo check "${options[@]}" "$@"
clippy "${options[@]}" --all-features "$@"
say "$target compiles without a warning of clippy"
echo "SKIPPED need=macos ci/macos.sh: links and runs it"
