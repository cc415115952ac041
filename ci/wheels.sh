#!/usr/bin/env bash
# Builds the wheels of the Python package into target/wheels, for any Linux on x86-64 and on aarch64, for glibc 2.17 and
# later and for musl 1.2, and the source distribution: `bash ci/wheels.sh`. zig, from its Python package, is the linker.
# Checks what a registry would. Installs the wheels for this machine's processor and the source distribution, each in an
# environment that has nothing else, and tries them there; for musl with a Python that is compiled for it. `ci/wheels.sh
# sdist` makes and tries the source distribution only, in a build that is not optimized. Exits with 77 if Python or zig
# cannot be had; a wheel whose Rust library cannot is left out.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=$(realpath -m "${PIPEWRIGHT_VM_CACHE:-$HOME/.cache/pipewright-machines}")
. ci/machine.sh
. ci/vm/kernels.sh
. ci/musl-python.sh

python=$(command -v python3) || skip program:python3 "is not here"
export CARGO_TARGET_DIR=$(realpath -m "${CARGO_TARGET_DIR:-target}") PIP_DISABLE_PIP_VERSION_CHECK=1
unset RUST_TEST_THREADS VIRTUAL_ENV
out=$CARGO_TARGET_DIR/wheels
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
"$python" -m venv "$scratch/tools"
tools=$scratch/tools/bin
"$tools/pip" install -q maturin ziglang twine > "$scratch/log" 2>&1 ||
    skip pip:ziglang "$(tail -n 1 "$scratch/log")"

rm -rf "$out"
TIMEFORMAT='%U %S'
wheel() { # TARGET COMPATIBILITY
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || timeout 300 rustup target add "$1" > /dev/null 2>&1 ||
        { echo "SKIPPED need=rust-target:$1 ci/wheels.sh: needs its library"; return 0; }
    # zig is a module of this Python.
    { time (cd python && PATH=$tools:$PATH maturin build --quiet --release --locked --zig --target "$1" \
        --compatibility "$2" --out "$out" > "$scratch/log" 2>&1); } 2> "$scratch/times" ||
        { cat "$scratch/log" >&2; fail "the wheel for $1 does not build"; }
    ! grep -q "supervisor of process trees is left out" "$scratch/log" || fail "the wheel for $1 has no supervisor"
    local file size
    file=$(ls "$out"/*"${2%%linux*}linux"*"${1%%-*}.whl")
    size=$(stat -c %s "$file")
    say "$(basename "$file"): $size bytes, $(awk '{print int($1 + $2)}' "$scratch/times") s of the processors"
    [ "$size" -le 3000000 ] || fail "a wheel has 3 MB at most"
}

# Tries an installed package away from this repository: a program of the README, a tree that a command leaves behind,
# and a part of the suite.
try() { # PYTHON
    local folder; folder=$(mktemp -d -p "$scratch")
    cp python/tests/{conftest,helpers,test_drop_in,test_errors}.py "$folder"
    printf 'all:\n\t@echo built\n' > "$folder/Makefile"
    awk '/^```$/ && found {exit} found; /^```python$/ {found = 1}' python/README.md > "$folder/program.py"
    grep -q "import pipewright" "$folder/program.py" || fail "the README of the package has no program"
    cd "$folder"
    "$1" program.py
    [ "$("$1" -c '
import pipewright

print(pipewright.run("echo hi; sleep 60 & ", shell=True, capture_output=True, text=True).stdout)')" = hi ] ||
        fail "the installed package does not work"
    "$1" -m pytest -q -p no:cacheprovider .
    cd "$OLDPWD"
}

# Makes an environment that has pytest and what its arguments name.
environment() { # NAME WHAT...
    "$python" -m venv "$scratch/$1"
    "$scratch/$1/bin/pip" install -q pytest "${@:2}"
}

try_musl() {
    local environment=$scratch/musl
    musl_python
    "$musl_python" -m venv --without-pip "$environment"
    # The pip of this machine's Python, which looks for what that one can use.
    "$tools/pip" install -q --target "$environment/lib/python3.11/site-packages" --platform musllinux_1_2_x86_64 \
        --python-version 3.11 --only-binary :all: pytest "$out"/*musllinux*x86_64.whl
    say "trying the wheel for musl"
    try "$environment/bin/python"
}

if [ "${1:-}" != sdist ]; then
    wheel x86_64-unknown-linux-gnu manylinux2014
    wheel x86_64-unknown-linux-musl musllinux_1_2
    wheel aarch64-unknown-linux-gnu manylinux2014
    wheel aarch64-unknown-linux-musl musllinux_1_2
    say "trying the wheel for glibc"
    environment glibc "$out"/*manylinux*"$(uname -m)".whl
    try "$scratch/glibc/bin/python"
    if [ "$(uname -m)" = x86_64 ] && [ -e "$(ls "$out"/*musllinux*x86_64.whl)" ]; then
        # In the background, since bash ignores `set -e` in a command whose status is looked at.
        code=0
        try_musl & wait $! || code=$?
        [ "$code" = 0 ] || [ "$code" = 77 ] || exit "$code"
    fi
fi

(cd python && "$tools/maturin" sdist --out "$out") > "$scratch/log" 2>&1 ||
    { cat "$scratch/log" >&2; fail "the source distribution cannot be made"; }
"$tools/twine" check --strict "$out"/*
# Not beside this repository, and with the lock file that it brings: it builds from itself.
mkdir "$scratch/alone"
tar -xzf "$out"/pipewright_process-*.tar.gz -C "$scratch/alone"
for file in LICENSE-MIT LICENSE-APACHE python/Cargo.lock crates/pipewright-os/supervisor/main.rs; do
    [ -s "$(echo "$scratch"/alone/pipewright_process-*)/$file" ] || fail "the source distribution lacks $file"
done
say "trying the source distribution"
MATURIN_PEP517_ARGS="--profile dev" environment sdist "$out"/pipewright_process-*.tar.gz
try "$scratch/sdist/bin/python"
say "passed"
