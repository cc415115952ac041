#!/usr/bin/env bash
# Builds everything for Windows (x86_64-pc-windows-gnu) and runs the suites and the tool under Wine. That checks
# behaviour, never speed. Arguments go to `cargo test`, and then nothing else runs: `bash ci/windows.sh -p pipewright-os
# --lib pipe::`. `ci/windows.sh smoke` lints everything, and runs the unit tests of the crate of the systems alone,
# without the tool. Exits with 77 if the tools cannot be installed on this machine. PIPEWRIGHT_WINE=trixie takes the
# Wine of that release of Debian instead of this machine's.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/toolchain.sh

target=x86_64-pc-windows-gnu
packages gcc-mingw-w64-x86-64
if [ -n "${PIPEWRIGHT_WINE:-}" ]; then
    . ci/newer-wine.sh
    newer_wine "$PIPEWRIGHT_WINE" "$@"
else
    packages wine64 wine
fi
compiler
library "$target" 3

# Disables windows and dialogues, which no one would close. Otherwise Wine would ask to install Mono and Gecko, start a
# debugger after a crash, and write menus into the home folder.
unset DISPLAY WAYLAND_DISPLAY WINESERVER WINELOADER
export WINEPREFIX=$cache/prefix-${PIPEWRIGHT_WINE:+$PIPEWRIGHT_WINE-}$recipe WINEARCH=win64 WINEDEBUG=-all
export WINEDLLOVERRIDES='mscoree,mshtml=;winemenubuilder.exe=;winedbg.exe='

# Creates the prefix. Adds a DLL that Wine 8 lacks and from which Rust's library takes its random numbers.
make_prefix() {
    [ ! -d "$WINEPREFIX" ] || return 0
    say "creating a Wine prefix"
    cat > "$new/prng.c" <<- 'end'
	#include <windows.h>
	BOOLEAN NTAPI SystemFunction036(PVOID, ULONG);
	__declspec(dllexport) BOOL WINAPI ProcessPrng(PBYTE to, SIZE_T length) {
	    return SystemFunction036(to, (ULONG)length);
	}
	end
    x86_64-w64-mingw32-gcc -shared -O1 -o "$new/bcryptprimitives.dll" "$new/prng.c" -ladvapi32
    local place=$WINEPREFIX
    (
        export WINEPREFIX=$new/prefix
        trap 'wineserver -k || true' EXIT
        # The server must not inherit our lock or our output, or it would keep us waiting.
        timeout 180 wine wineboot --init < /dev/null > "$new/log" 2>&1 9>&- &&
            timeout 60 wine reg add 'HKCU\Software\Wine\Drivers' /v Graphics /d null /f < /dev/null >> "$new/log" 2>&1 \
                9>&- &&
            timeout 60 wineserver -w ||
            { cat "$new/log" >&2; fail "Wine could not create a prefix"; }
        [ -d "$WINEPREFIX/drive_c/windows/system32" ] || fail "Wine created a prefix without system32"
    )
    mv "$new/bcryptprimitives.dll" "$new/prefix/drive_c/windows/system32/"
    mv "$new/prefix" "$place"
}
[ -d "$WINEPREFIX" ] || alone make_prefix

# One run at a time, because a run kills every process of the prefix at its end.
exec 8> "$cache/prefix.lock"
flock -n 8 || { say "waiting for another run under Wine"; flock 8; }

# A process started by a program under Wine may outlive it and hold its output open. So all output goes through `cat`,
# which is only waited for once the prefix has ended. It also means that the output is never a terminal, from which Wine
# would make a console: a developer's run behaves like the gate's.
exec > >(exec cat 8>&-) 2>&1
printer=$!
end_wine() { timeout --kill-after=5 60 wineserver -k > /dev/null 2>&1 8>&- || true; }

# Looks for the processes that hold the pipe to the printer, without this shell and the printer: all are descendants
# of this shell, since the pipe has no name. The end of a server does not end programs that wait for something else.
find_holders() {
    local file pid last=$printer
    holders=()
    for file in /proc/[0-9]*/fd/*; do
        [ "$file" -ef "/proc/$$/fd/1" ] || continue
        pid=${file#/proc/} pid=${pid%%/*}
        [ "$pid" = $$ ] || [ "$pid" = "$printer" ] || [ "$pid" = "$last" ] || holders+=("$pid")
        last=$pid
    done
}
finish() {
    local pid tries
    end_wine
    for tries in {1..10}; do
        find_holders
        [ ${#holders[@]} != 0 ] || break
        sleep 1
    done
    for pid in "${holders[@]}"; do
        say "ended what outlived Wine: $pid $(tr '\0' ' ' < "/proc/$pid/cmdline")" || true
        kill -KILL "$pid" || true
    done
    exec > /dev/null 2>&1
    for tries in {1..60}; do
        # Gone, and its number may be another process's.
        kill -0 "$printer" || return 0
        sleep 1
    done
    kill "$printer" || true
}
trap finish EXIT
end_wine
# The numbers of processes begin anew with each server, and a run that was killed leaves files named after them.
find "$WINEPREFIX"/drive_c/users -mindepth 2 -path '*/Temp/*' -delete

export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_LINKER=x86_64-w64-mingw32-gcc
export CARGO_TARGET_X86_64_PC_WINDOWS_GNU_RUNNER="bash $PWD/ci/under-wine.sh"
# Wine reads a program's whole file at each start: with debug information, a start took twice as long.
export CARGO_PROFILE_DEV_DEBUG=0 CARGO_PROFILE_DEV_STRIP=debuginfo
# The puppet needs no console; see crates/pipewright-tests/build.rs.
export PIPEWRIGHT_UNDER_WINE=1
options=(--locked --target "$target" --target-dir "$built")

# The workers in C, for the suite of `clients`: no compiler runs under Wine.
export PIPEWRIGHT_C_WORKERS=$built/c-workers
mkdir -p "$PIPEWRIGHT_C_WORKERS"
for source in tests/worker examples/reverse examples/sum; do
    x86_64-w64-mingw32-gcc -std=c99 -g -O1 -Wall -Wextra -Wpedantic -Werror -I clients/c "clients/c/$source.c" \
        -o "$PIPEWRIGHT_C_WORKERS/${source##*/}.exe" || fail "clients/c/$source.c does not compile for Windows"
done

# Replaces the exit code of a failed program: if a test exits with 77, it was not skipped.
tests() { cargo test "${options[@]}" "$@" < /dev/null 8>&- || fail "the tests for $target failed"; }

# Runs a suite of the workspace in parts: after a crash of Wine's server, only its part runs again.
in_parts() { # SUITE PARTS
    local suite=$1 parts=$2 names part first last
    names=$(cargo test "${options[@]}" --workspace --test "$suite" -- --list --format terse < /dev/null 8>&-) ||
        fail "the suite $suite cannot be listed"
    mapfile -t names < <(tr -d '\r' <<< "$names" | sed -n 's/: test$//p' | grep -vxF "$with_peers")
    [ ${#names[@]} != 0 ] || fail "the suite $suite has no tests"
    for ((part = 0; part < parts; part++)); do
        first=$((${#names[@]} * part / parts)) last=$((${#names[@]} * (part + 1) / parts))
        say "$suite, part $((part + 1)) of $parts"
        tests --workspace --test "$suite" -- --exact "${names[@]:first:last-first}"
    done
}

# One test needs a peer (the feature `peers`), without which the others are built.
with_peers=async_verbs::idle_children_take_no_thread
smoke=
if [ "${1:-}" = smoke ]; then
    smoke=yes
    shift
fi
if [ $# != 0 ]; then
    # Doc tests are not run: this rustdoc has no stable way to run them under Wine.
    case " $* " in
        *" --lib "* | *" --bin"* | *" --test"* | *" --example"* | *" --all-targets "*) ;;
        *) set -- --lib --bins --tests "$@" ;;
    esac
    tests "$@"
    exit
fi

clippy "${options[@]}" --workspace --lib --bins --tests --all-features 8>&-
if [ -n "$smoke" ]; then
    tests -p pipewright-os --all-features --lib
    exit
fi
tests --workspace --lib --bins --test arguments --test cli
in_parts process 8
in_parts ipc 4
tests --workspace --test disk --test power_cut
tests -p pipewright-tests --features peers --test process -- "$with_peers"
echo "SKIPPED need=windows ci/windows.sh: runs the doc tests: this rustdoc has no stable way to run them under Wine"

# The README's main command.
tool=$built/$target/debug/pipewright.exe
output=$built/output
code=0
PIPEWRIGHT_WIN_TIMEOUT=120 bash ci/under-wine.sh "$tool" run --timeout 2s --report - -- cmd /c \
    'echo hi & ping -n 60 127.0.0.1 >nul' \
    < /dev/null > "$output" 2> "$output.errors" 8>&- || code=$?
[ "$code" = 124 ] && grep -q '^hi' "$output" && grep -q '"outcome":"timed_out"' "$output" ||
    fail "the tool exited with $code and printed: $(cat "$output" "$output.errors")"
say "the suites pass under $(wine --version 8>&-), and the tool stops its command at the timeout"
