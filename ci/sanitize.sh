#!/usr/bin/env bash
# Checks the ring and its memory under Miri and under a thread sanitizer: `ci/sanitize.sh [miri|thread]...`, by default
# both. They see only one process, so both sides are threads there, over private memory (pipewright_plain_memory).
# Needs `rustup toolchain install nightly -c miri,rust-src`. Missing parts print SKIPPED, and the script exits with 77.
set -euo pipefail
cd "$(dirname "$0")/.."

has() { rustup component list --toolchain nightly 2> /dev/null | grep -q "^$1.*(installed)"; }

# Tests that the reader sees the written data, and that ranges outside of the data are refused.
os=(reader_sees_written_data ranges_outside_the_data_are_refused)
skipped=0
[ $# != 0 ] || set -- miri thread
for checker in "$@"; do
    case $checker in
        miri)
            has miri || { echo "SKIPPED need=nightly:miri ci/sanitize.sh: no nightly toolchain contains it" \
                >&2; skipped=77; continue; }
            # Disables isolation for the sockets whose numbers the handles have.
            run=(env MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --target-dir target/miri)
            ;;
        thread)
            has rust-src || { echo "SKIPPED need=nightly:rust-src ci/sanitize.sh: no nightly toolchain contains it" \
                >&2; skipped=77; continue; }
            # Builds the standard library too, or the sanitizer would not see the ordering by its locks.
            run=(env RUSTFLAGS="-Zsanitizer=thread --cfg pipewright_plain_memory" cargo +nightly test -Zbuild-std
                --target "$(rustc -vV | sed -n 's/^host: //p')" --target-dir target/thread)
            ;;
        *) echo "sanitize.sh: unknown checker $checker" >&2; exit 2 ;;
    esac
    echo "=== $checker"
    "${run[@]}" --locked -p pipewright-os --lib -- "${os[@]}"
    "${run[@]}" --locked -p pipewright-ipc --lib -- ring::threads
done
exit "$skipped"
