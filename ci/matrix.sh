#!/usr/bin/env bash
# Runs the checks that are too long for the gate, cell by cell: `bash ci/matrix.sh` runs the cells that have not passed
# on this commit, so that a run which was ended goes on. `ci/matrix.sh NAME` runs that cell alone, or else all cells
# whose names contain these words; `ci/matrix.sh --list` prints the names. The last result of each cell (day, commit,
# tests) goes to ci/matrix.tsv and to the table in docs/platforms.md. No run has had all cells yet: a cell without a row
# there has never run. A commit with a `+` had changes that were not committed: no later run counts on its results. The
# logs are in target/matrix.
#
# As in .ci/run, no signal is ignored.
[ "$(uname -s)" = Linux ] ||
    { echo "SKIPPED need=linux ci/matrix.sh: its machines, nodes and filesystems are those of Linux" >&2; exit 77; }
[ -n "${PIPEWRIGHT_GATE:-}" ] || PIPEWRIGHT_GATE=started exec env --default-signal=HUP,INT,QUIT bash "$0" "$@"
set -euo pipefail
set -m
cd "$(dirname "$0")/.."
export CARGO_TERM_COLOR=never CARGO_INCREMENTAL=0 RUST_BACKTRACE=1
export CARGO_PROFILE_DEV_DEBUG=line-tables-only
export RUST_TEST_THREADS=$((2 * $(nproc)))

results=$PWD/ci/matrix.tsv logs=$PWD/target/matrix
mkdir -p "$logs"
touch "$results"
# The last commit that changed more than the results.
others=(. ':!ci/matrix.tsv' ':!docs/platforms.md')
commit=$(git log -1 --format=%h --abbrev=10 -- "${others[@]}")
[ -z "$(git status --porcelain -- "${others[@]}")" ] || commit+=+
only=${1:-}
names=
[ "$only" = --list ] || names=$(bash "$0" --list)

# Notes the result of a cell, and writes the table anew.
note() { # CELL RESULT LOG
    local tests skipped
    # A log of lints has no tests, and a grep that finds nothing fails.
    tests=$({ grep -ahE '^test result: |[0-9]+ passed.* in [0-9.]+s' "$3" || true; } |
        sed -E 's/^.*[^0-9]([0-9]+) passed.*$/\1/' | awk '{sum += $1} END {print sum + 0}')
    skipped=$(grep -ac '^SKIPPED ' "$3") || true
    {
        # Without the cells that there were once.
        awk -F '\t' -v cell="$1" 'NR == FNR {names[$0]; next} $1 in names && $1 != cell' <(echo "$names") "$results"
        printf '%s\t%s\t%s\t%s\t%s\t%s\n' "$1" "$(date -u +%F)" "$commit" "$2" "$tests" "$skipped"
    } | sort > "$results.new"
    mv "$results.new" "$results"
    {
        sed '/^<!-- matrix: begin/q' docs/platforms.md
        printf '| cell of `ci/matrix.sh` | day | commit | result | tests | skips |\n|---|---|---|---|---|---|\n'
        awk -F '\t' '{printf "| %s | %s | `%s` | %s | %s | %s |\n", $1, $2, $3, $4, $5, $6}' "$results"
        sed -n '/^<!-- matrix: end/,$p' docs/platforms.md
    } > "$logs/platforms.md"
    cp "$logs/platforms.md" docs/platforms.md
}

# Returns true if the cell is to run. The name of one may be the beginning of another's.
is_chosen() { # NAME
    if grep -qxF -- "$only" <<< "$names"; then [ "$1" = "$only" ]; else [[ $1 == *"$only"* ]]; fi
}

# A run that is ended leaves no cell running.
running=
trap '[ -z "$running" ] || kill -- "-$running" 2> /dev/null; exit 130' HUP INT TERM

failed=() chosen=0
cell() { # NAME COMMAND...
    local name=$1 log=$logs/${1//[^A-Za-z0-9]/-}.log code=0 began=$SECONDS result=passed
    shift
    [ "$only" != --list ] || { echo "$name"; return; }
    is_chosen "$name" || return 0
    chosen=1
    [ -n "$only" ] || [[ $commit == *+ ]] ||
        ! awk -F '\t' -v cell="$name" -v commit="$commit" '$1 == cell && $3 == commit && $4 == "passed"' "$results" |
        grep -q . ||
        { printf '=== %s: has passed on this commit\n' "$name"; return; }
    printf '=== %s\n' "$name"
    # In the background, since bash ignores `set -e` in a command whose status is looked at.
    (set -e; "$@") > "$log" 2>&1 < /dev/null &
    running=$!
    wait "$running" || code=$?
    running=
    case $code in
        0) ;;
        77) result="could not run" ;;
        *)
            result=failed
            failed+=("$name")
            tail -n 40 "$log" ;;
    esac
    printf '    %s after %d s\n' "$result" "$((SECONDS - began))"
    note "$name" "$result" "$log"
}

tests() { bash ci/with-hooks.sh test --locked --workspace "$@"; }

for fallback in cgroup supervisor pidfd close_range clone3 rwf_nowait vmsplice vfork; do
    without() { PIPEWRIGHT_FORCE=$fallback tests --lib --test arguments --test process --no-fail-fast -- --skip \
        nothing_leaks::; }
    cell "the suite of processes without $fallback" without
done
all_without() { PIPEWRIGHT_FORCE=fallback tests --lib --tests; }
cell "all suites without any newer facility" all_without
no_uring() { PIPEWRIGHT_FORCE=io_uring tests --test disk; }
cell "the suite of files without io_uring" no_uring
no_memfd() { PIPEWRIGHT_FORCE=memfd tests --test ipc; }
cell "the suite of workers without memfd" no_memfd
async_workers() { PIPEWRIGHT_FORCE=async tests --test ipc; }
cell "the suite of workers through the async verbs" async_workers
# Counts also the threads of tokio's children. A separate run, because tokio's features would hide that ours are
# missing.
cell "the threads of idle children, beside those of tokio's" \
    cargo test --locked -p pipewright-tests --features peers --test process -- async_verbs::idle
# The long runs of what repeats to see rare orders of events, and of the nets, whose short ones are in the gate.
net() { PIPEWRIGHT_NET=all tests "$@"; }
cell "the suites: all rounds of what they repeat" net --lib --tests --no-fail-fast -- \
    --skip driver::tests::truth --skip workers_that_do_anything --skip random_children_are_seen
all_async() { PIPEWRIGHT_FORCE=async net --test process; }
cell "the suite of processes through the async verbs: all rounds" all_async
cell "workers that do anything: the long run" net --test peers
cell "random children beside what they write: 100,000 cases" net --test beside
batches() { PIPEWRIGHT_TEST_SEED=$(date +%s) PIPEWRIGHT_TEST_BATCHES=5000 tests --test cli -- equals::; }
cell "random batches beside xargs, GNU parallel and make: 5,000 each" batches
# The tool is one of its scenarios. Those of Python are in ci/python.sh net.
faults() { bash ci/with-hooks.sh build --locked --workspace --bins && net --test faults; }
cell "every call fails once: the long run" faults
faults_without_groups() { PIPEWRIGHT_FORCE=cgroup faults; }
cell "every call fails once: the long run without cgroups" faults_without_groups
cell "the log tells the truth: ten minutes of random batches" net --lib -- driver::tests::truth --nocapture
# Each change of a decision, one at a time, is noticed by a test.
for area in $(bash ci/mutants.sh); do cell "changed decisions: $area" bash ci/mutants.sh "$area"; done
cell "each feature of the libraries alone" bash ci/features.sh
bench_lints() { cargo clippy --workspace --all-targets --locked --target-dir target --manifest-path bench/Cargo.toml \
    -- -D warnings; }
cell "the benchmarks: lints" bench_lints
fuzz_lints() { RUSTFLAGS="--cfg fuzzing" cargo clippy --locked --manifest-path fuzz/Cargo.toml -- -D warnings; }
cell "the fuzz targets: lints" fuzz_lints
cell "the fuzz targets: a minute each" bash ci/fuzz.sh 60
cell "the worker in C in front of a hostile host: two minutes" bash ci/clients.sh 120 "$(date +%s)00000"
cell "the packages, built" bash ci/package.sh
cell "the dependencies, by cargo-deny" bash ci/deny.sh all
for machine in uml-5.10 uml-6.1 5.10 6.1 6.12 newest power-cut disk-ext4 disk-xfs disk-btrfs full-newest full-5.10 \
    systemd-6.1 \
    systemd-newest arm64-6.1 riscv64; do
    cell "Linux $machine" bash ci/kernels.sh "$machine"
done
cell "processes in a static program (musl)" bash ci/musl.sh
# Wine's server does all the work, and crashes more often the more it has to do.
newer_wine() { env -u RUST_TEST_THREADS PIPEWRIGHT_WINE=trixie bash ci/windows.sh; }
this_wine() { env -u RUST_TEST_THREADS bash ci/windows.sh; }
cell "Windows: the suites and the tool under Wine" this_wine
cell "Windows: the suites and the tool under Wine 10" newer_wine
slurm() { bash ci/suites.sh build && bash ci/slurm.sh bash -c \
    'bash ci/suites.sh pipewright-cluster slurm && bash ci/suites.sh cli slurm'; }
cell "Slurm: all tests beside a cluster" slurm
slurm_of_a_user() {
    # The user of the cluster compiles nothing, and runs what is there.
    cargo test --locked -p pipewright-cli --test cli --no-run
    bash ci/slurm.sh --user "$(ls -t target/debug/deps/cli-* | grep -v '\.d$' | head -n 1)" slurm
}
cell "Slurm: the cluster of an ordinary user" slurm_of_a_user
cell "macOS: types and lints, with each set of features" bash ci/macos.sh
cell "the archives of a release" bash ci/release.sh
cell "the Debian package, in a clean Debian" bash ci/debian.sh
cell "the image of a container, as the whole of a root" bash ci/container.sh
cell "the Python package with the oldest and the newest Python" bash ci/python.sh all
cell "the Python package: every call fails once, and 100,000 random cases beside subprocess" bash ci/python.sh net
cell "the npm package of the workers in Node" bash ci/npm.sh
cell "the wheels of the Python package" bash ci/wheels.sh
cell "the site, in a browser" bash ci/site.sh
cell "the pages of bench, disk and batch, in a browser, with axe" bash ci/reports.sh
# As docs.rs builds it: with the features that an item needs, which the stable compiler cannot show.
docs_rs() {
    rustup component list --toolchain nightly 2> /dev/null | grep -q "^rustc.*(installed)" ||
        { echo "SKIPPED need=nightly:rustc ci/matrix.sh: shows the features of items"; return 77; }
    RUSTDOCFLAGS="--cfg docsrs -D warnings" cargo +nightly doc --locked --no-deps --all-features --workspace \
        --exclude pipewright-tests --exclude pipewright-test-macros --target-dir target/docs-rs
    grep -q "Available on .*crate feature" target/docs-rs/doc/pipewright/struct.Command.html
}
cell "the reference of the libraries, as docs.rs shows it" docs_rs
cell "published crates with pipewright::process in place of std" bash ci/ported.sh
[ "$only" != --list ] || exit 0
[ "$chosen" = 1 ] || { printf 'no cell has these words in its name: %s\n' "$only" >&2; exit 2; }
[ ${#failed[@]} = 0 ] || { printf 'FAILED: %s\n' "${failed[@]}" >&2; exit 1; }
