#!/usr/bin/env bash
# Builds the wheels of the Python package into target/wheels, for any Linux on x86-64 and on aarch64, for glibc 2.17 and
# later and for musl 1.2, and the source distribution: `bash ci/wheels.sh`. zig, from its Python package, is the linker.
# Checks what a registry would, runs the suite with the wheel for this machine, and installs the package from its
# sources alone. `ci/wheels.sh sdist` does the last part only, in a build that is not optimized. Exits with 77 if Python
# or zig cannot be had; a wheel whose Rust library cannot is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

python=$(command -v python3) || skip program:python3 "is not here"
export CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}") PIP_DISABLE_PIP_VERSION_CHECK=1
unset RUST_TEST_THREADS
out=$CARGO_TARGET_DIR/wheels
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"$python" -m venv "$venv"
export PATH=$venv/bin:$PATH VIRTUAL_ENV=$venv
pip install -q maturin ziglang pytest twine > "$venv/log" 2>&1 || skip pip:ziglang "$(tail -n 1 "$venv/log")"

rm -rf "$out"
wheel() { # TARGET COMPATIBILITY
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || timeout 300 rustup target add "$1" > /dev/null 2>&1 ||
        { echo "SKIPPED need=rust-target:$1 ci/wheels.sh: needs its library"; return 0; }
    (cd python && maturin build --quiet --release --locked --zig --target "$1" --compatibility "$2" --out "$out") 2>&1 |
        tee "$venv/log"
    ! grep -q "supervisor of process trees is left out" "$venv/log" || fail "the wheel for $1 has no supervisor"
}
if [ "${1:-}" != sdist ]; then
    wheel x86_64-unknown-linux-gnu manylinux2014
    wheel x86_64-unknown-linux-musl musllinux_1_2
    wheel aarch64-unknown-linux-gnu manylinux2014
    wheel aarch64-unknown-linux-musl musllinux_1_2
    for file in "$out"/*.whl; do
        size=$(stat -c %s "$file")
        say "$(basename "$file"): $size bytes"
        [ "$size" -le 3000000 ] || fail "a wheel has 3 MB at most"
    done
    pip install -q "$out"/*manylinux*"$(uname -m)".whl
    pytest python
    pip uninstall -q -y pipewright-process
    echo "SKIPPED need=file:/lib/ld-musl-x86_64.so.1 ci/wheels.sh: runs the wheel for musl"
fi

(cd python && maturin sdist --out "$out") > "$venv/log" 2>&1 ||
    { cat "$venv/log" >&2; fail "the source distribution cannot be made"; }
twine check --strict "$out"/*
# Not beside this repository, and with the lock file that it brings: it builds from itself.
mkdir "$venv/alone"
tar -xzf "$out"/pipewright_process-*.tar.gz -C "$venv/alone"
cd "$venv"/alone/pipewright_process-*
for file in LICENSE-MIT LICENSE-APACHE python/Cargo.lock crates/pipewright-os/supervisor/main.rs; do
    [ -s "$file" ] || fail "the source distribution lacks $file"
done
cd ..
MATURIN_PEP517_ARGS="--profile dev" pip install -q --no-deps "$out"/pipewright_process-*.tar.gz
[ "$(python -c '
import pipewright

print(pipewright.run("echo hi; sleep 60 & ", shell=True, capture_output=True, text=True).stdout)')" = hi ] ||
    fail "the package does not work that was built from the source distribution"
say "passed"
