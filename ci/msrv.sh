#!/usr/bin/env bash
# Checks that the published crates build with the compiler that Cargo.toml promises (rust-version).
# Uses that compiler from rustup if it is installed, otherwise from Debian's package of exactly that version.
# The package is unpacked into a cache folder outside the repository; apart from libllvm19, nothing is installed.
set -euo pipefail
cd "$(dirname "$0")/.."

version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
cache=${PIPEWRIGHT_MSRV_CACHE:-$HOME/.cache/pipewright-msrv-$version}

if rustup run "$version" rustc --version > /dev/null 2>&1; then
    export RUSTC; RUSTC=$(rustup which --toolchain "$version" rustc)
else
    rustc=$cache/tc/usr/bin/rustc
    if [ ! -x "$rustc" ]; then
        command -v apt-get > /dev/null || { echo "Rust $version is needed: rustup toolchain install $version" >&2; exit 1; }
        sudo=; [ "$(id -u)" = 0 ] || sudo=sudo
        $sudo apt-get update -qq
        $sudo apt-get install -y -qq --no-install-recommends libllvm19 > /dev/null
        package=$(apt-cache madison rustc-web | awk -v v="$version." '$3 ~ "^" v {print $3; exit}')
        [ -n "$package" ] || { echo "no package contains Rust $version: rustup toolchain install $version" >&2; exit 1; }
        mkdir -p "$cache"
        (cd "$cache" && apt-get download -qq "rustc-web=$package" "libstd-rust-web-dev=$package" \
            "libstd-rust-web-$version=$package" 2> /dev/null)
        for deb in "$cache"/*.deb; do dpkg -x "$deb" "$cache/tc"; done
    fi
    export LD_LIBRARY_PATH=$cache/tc/usr/lib/x86_64-linux-gnu RUSTC=$rustc
fi

"$RUSTC" --version | grep -q "^rustc $version\." || { "$RUSTC" --version; echo "expected Rust $version" >&2; exit 1; }
cargo check --locked --all-features --target-dir target/msrv -p pipewright-os -p pipewright -p pipewright-disk -p pipewright-ipc-macros -p pipewright-ipc -p pipewright-bench -p pipewright-batch -p pipewright-cli
