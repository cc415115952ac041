#!/usr/bin/env bash
# Changes the code that only decides, one place at a time, and runs its unit tests: `bash ci/mutants.sh AREA
# [SHARD/SHARDS]`. A change that no test notices is a failure, unless ci/mutants.txt explains it. The areas are below;
# without one, the script prints them. Installs cargo-mutants into a cache outside the repository; exits with 77 if that
# fails. The lists of the mutants are in target/mutants.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

# Sets the package, the files of an area and the tests that judge them.
area() {
    case $1 in
        stop-policy) package=pipewright tests=run::stop files=(crates/pipewright/src/run/stop.rs) ;;
        scheduler) package=pipewright-batch tests="scheduler:: batch::check::" \
            files=('crates/pipewright-batch/src/scheduler/*.rs') ;;
        journal) package=pipewright-batch tests=journal:: \
            files=(crates/pipewright-batch/src/journal/{ledger,past,read,writer}.rs) ;;
        progress) package=pipewright-disk tests='' files=(crates/pipewright-disk/src/progress.rs) ;;
        ring) package=pipewright-ipc tests="ring::tests:: ring::threads::each_side_sees" \
            files=(crates/pipewright-ipc/src/ring/mod.rs) ;;
        *) fail "no area is called $1; there are: stop-policy scheduler journal progress ring" ;;
    esac
}

[ $# != 0 ] || { echo "stop-policy scheduler journal progress ring"; exit; }
area "$1"
cache=$(realpath -m "${PIPEWRIGHT_MUTANTS_CACHE:-$HOME/.cache/pipewright-mutants-27.1.0}")
install_mutants() {
    [ -x "$cache/bin/cargo-mutants" ] || cargo install -q --locked --root "$cache" --version 27.1.0 cargo-mutants ||
        skip crates "cargo-mutants cannot be installed"
}
[ -x "$cache/bin/cargo-mutants" ] || alone install_mutants
export PATH=$cache/bin:$PATH CARGO_PROFILE_DEV_DEBUG=0 CARGO_INCREMENTAL=1

arguments=(--package "$package" --jobs 1 --timeout-multiplier 3 --minimum-test-timeout 60 --output \
    "target/mutants/$1${2:+-${2//\//-of-}}" --no-shuffle --colors never)
for file in "${files[@]}"; do arguments+=(--file "$file"); done
[ -z "${2:-}" ] || arguments+=(--shard "$2")
# A line is a regular expression for a mutant's name; the comment above it is the reason why no test can notice it.
while read -r explained; do arguments+=(--exclude-re "$explained"); done < <(grep -v '^#\|^$' ci/mutants.txt)
rm -rf "target/mutants/$1${2:+-${2//\//-of-}}"
mkdir -p target/mutants
# 3: no test missed a change, and some made the tests hang, which is noticed too.
cargo mutants "${arguments[@]}" --all-features --cargo-arg=--lib -- -- $tests || [ $? = 3 ]
