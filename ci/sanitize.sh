#!/usr/bin/env bash
# The ring and its memory under Miri, and under a thread sanitizer: `ci/sanitize.sh [miri|thread]...`, both if none is
# named. They see one process, so both sides are threads there, over memory of their own (pipewright_plain_memory).
# Needs `rustup toolchain install nightly -c miri,rust-src`; what is missing is SKIPPED, aloud, and the script ends with 77.
set -euo pipefail
cd "$(dirname "$0")/.."

has() { rustup component list --toolchain nightly 2> /dev/null | grep -q "^$1.*(installed)"; }

# Both sides of the ring; and what is written is what is seen, and nothing outside of it.
os=(reader_sees_written_data ranges_outside_the_data_are_refused)
skipped=0
[ $# != 0 ] || set -- miri thread
for checker in "$@"; do
    case $checker in
        miri)
            has miri || { echo "SKIPPED Miri: no nightly toolchain has it" >&2; skipped=77; continue; }
            # The sockets whose numbers the handles are.
            run=(env MIRIFLAGS="-Zmiri-disable-isolation" cargo +nightly miri test --target-dir target/miri)
            ;;
        thread)
            has rust-src || { echo "SKIPPED the thread sanitizer: no nightly toolchain has rust-src" >&2; skipped=77; continue; }
            # The standard library is built again, or what its locks order would not be seen.
            run=(env RUSTFLAGS="-Zsanitizer=thread --cfg pipewright_plain_memory" cargo +nightly test -Zbuild-std
                --target "$(rustc -vV | sed -n 's/^host: //p')" --target-dir target/thread)
            ;;
        *) echo "sanitize.sh: $checker is not known" >&2; exit 2 ;;
    esac
    echo "=== $checker"
    "${run[@]}" --locked -p pipewright-os --lib -- "${os[@]}"
    "${run[@]}" --locked -p pipewright-ipc --lib -- ring::threads
done
exit "$skipped"
