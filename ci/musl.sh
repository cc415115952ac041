#!/usr/bin/env bash
# Builds for Linux with a static musl, as for Alpine, and runs the suite of processes there; then those parts that start
# trees once more without clone3, because musl's `clone` function cannot do what that run needs; then the tool.
# `ci/musl.sh smoke` builds and runs examples of the library alone. Installs the target's library with rustup. Exits
# with 77 if that fails.
set -euo pipefail
cd "$(dirname "$0")/.."

target=x86_64-unknown-linux-musl
cache=$(realpath -m "${PIPEWRIGHT_VM_CACHE:-$HOME/.cache/pipewright-machines}")
. ci/machine.sh
. ci/vm/kernels.sh
. ci/musl-compiler.sh
[ "$(uname -sm)" = "Linux x86_64" ] || skip linux-x86-64 "runs $target"
library=$(rustc --print sysroot)/lib/rustlib/$target/lib
[ -d "$library" ] || ! command -v rustup > /dev/null || rustup target add "$target" || true
[ -d "$library" ] || skip "rust-target:$target" "needs its library"

# A separate target folder.
export CARGO_TARGET_DIR=${CARGO_TARGET_DIR:-target}/musl
is_static() { ! grep -aq 'NEEDED\|program interpreter' < <(readelf -ld "$1") || fail "$1 is not static"; }
# A left out supervisor is only a warning of the build, but an error here.
log=$(mktemp)
trap 'rm -f "$log"' EXIT
build() {
    cargo build --locked --target "$target" "$@" 2>&1 | tee "$log"
    ! grep -q "supervisor of process trees is left out" "$log" || fail "the build has no supervisor"
}

if [ "${1:-}" = smoke ]; then
    examples=(capture lifetime run runner stopping)
    build -p pipewright "${examples[@]/#/--example=}"
    for example in "${examples[@]}"; do
        is_static "$CARGO_TARGET_DIR/$target/debug/examples/$example"
        # No build but that of the tests has their switches: in such a build, this name is a panic.
        PIPEWRIGHT_FORCE=nonsense "$CARGO_TARGET_DIR/$target/debug/examples/$example" ||
            fail "the example $example exited with $?"
    done
    exit
fi
build -p pipewright-os
suite=(test --locked --target "$target" -p pipewright-tests --test process)
bash ci/with-hooks.sh "${suite[@]}"
PIPEWRIGHT_FORCE=clone3 bash ci/with-hooks.sh "${suite[@]}" -- trees parent_exit:: refused

musl_compiler "$target"
build -p pipewright-cli
tool=$CARGO_TARGET_DIR/$target/debug/pipewright
is_static "$tool"
grep -E '^ *supervisor +yes' <<< "$("$tool" doctor)" || fail "the tool has no supervisor"
code=0
output=$(PIPEWRIGHT_FORCE=nonsense "$tool" run --timeout 1s --report - -- sh -c 'sleep 60 & echo hi; sleep 60') ||
    code=$?
[ "$code" = 124 ] && grep -q '"containment":"[cs]' <<< "$output" ||
    fail "the tool exited with $code and printed: $output"
[ "$(seq 100 | "$tool" batch -k --progress none -- echo | tail -n 1)" = 100 ] || fail "a batch has no output"
