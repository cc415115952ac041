#!/usr/bin/env bash
# Checks that the published crates build with the compiler that Cargo.toml promises (rust-version). Uses that compiler
# from rustup if it is installed, otherwise that of ci/toolchain.sh, whose build scripts and macros the checks for
# Windows and macOS share. Exits with 77 if neither can be had.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/toolchain.sh

if rustup run "$version" rustc --version > /dev/null 2>&1; then
    export RUSTC; RUSTC=$(rustup which --toolchain "$version" rustc)
    built=${CARGO_TARGET_DIR:-target}/msrv
    "$RUSTC" --version | grep -q "^rustc $version\." || fail "$RUSTC is not $version"
else
    compiler
fi
# SQLite is not compiled: nothing is linked.
export LIBSQLITE3_SYS_USE_PKG_CONFIG=1 SQLITE3_LIB_DIR=/nonexistent
cargo check --locked --all-features --target-dir "$built" -p pipewright-os -p pipewright -p pipewright-disk -p \
    pipewright-ipc-macros \
    -p pipewright-ipc -p pipewright-bench -p pipewright-batch -p pipewright-cluster -p pipewright-cli
