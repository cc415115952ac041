#!/usr/bin/env bash
# Builds for Linux with a static musl, as for Alpine, and runs the suite of processes there; then those parts that start
# trees once more without clone3, because musl's `clone` function cannot do what that run needs. `ci/musl.sh trees` runs those
# parts alone.
# Installs the target's library with rustup. Exits with 77 if that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-unknown-linux-musl
skip() { printf 'SKIPPED %s: %s\n' "${0##*/}" "$1"; exit 77; }
[ "$(uname -sm)" = "Linux x86_64" ] || skip "$target runs on Linux on x86-64"
library=$(rustc --print sysroot)/lib/rustlib/$target/lib
[ -d "$library" ] || ! command -v rustup > /dev/null || rustup target add "$target" || true
[ -d "$library" ] || skip "needs the library of $target: rustup target add $target"

# A separate target folder. A left out supervisor is only a warning of the build, but an error here.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/musl
suite=(--locked --target "$target" -p pipewright-tests --test process)
log=$(mktemp)
trap 'rm -f "$log"' EXIT
cargo build --locked --target "$target" -p pipewright-os 2>&1 | tee "$log"
! grep -q "supervisor of process trees is left out" "$log" || { echo "the build has no supervisor" >&2; exit 1; }
[ "${1:-}" = trees ] || cargo test "${suite[@]}"
PIPEWRIGHT_FORCE=clone3 bash ci/with-hooks.sh test "${suite[@]}" -- trees parent_exit:: refused
