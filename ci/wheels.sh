#!/usr/bin/env bash
# Builds the wheels of the Python package for any Linux on x86-64, for glibc 2.17 and later and for musl 1.2, into
# target/wheels, and runs the suite with the first one: `bash ci/wheels.sh`. zig, from its Python package, is the
# linker. Exits with 77 if Python, zig or the library of a target cannot be had.
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
pip install -q maturin ziglang pytest > "$venv/log" 2>&1 || skip pip:ziglang "$(tail -n 1 "$venv/log")"

rm -rf "$out"
wheel() { # TARGET COMPATIBILITY
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || rustup target add "$1" > /dev/null 2>&1 ||
        skip "rust-target:$1" "needs its library"
    (cd python && maturin build --quiet --release --locked --zig --target "$1" --compatibility "$2" --out "$out") 2>&1 \
        | tee "$venv/log"
    ! grep -q "supervisor of process trees is left out" "$venv/log" || fail "the wheel for $1 has no supervisor"
}
wheel x86_64-unknown-linux-gnu manylinux2014
wheel x86_64-unknown-linux-musl musllinux_1_2
for file in "$out"/*.whl; do
    size=$(stat -c %s "$file")
    say "$(basename "$file"): $size bytes"
    [ "$size" -le 3000000 ] || fail "a wheel has 3 MB at most"
done

pip install -q "$out"/*manylinux*.whl
pytest python
say "passed"
echo "SKIPPED need=file:/lib/ld-musl-x86_64.so.1 ci/wheels.sh: runs the wheel for musl"
