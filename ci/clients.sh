#!/usr/bin/env bash
# Runs the worker in C in front of a hostile host for SECONDS, with the address and undefined behaviour sanitizers:
# `ci/clients.sh [SECONDS] [SEED]`. Without a seed the frames are the same each time: what others find is the matrix's
# to tell, and stops no unrelated change.
set -euo pipefail
cd "$(dirname "$0")/.."

command -v cc > /dev/null || { echo "SKIPPED need=program:cc ci/clients.sh: compiles the worker in C" >&2; exit 77; }
mkdir -p target
program=target/hostile_host
cc -std=gnu99 -Wall -Wextra -g -O1 -fsanitize=address,undefined -fno-sanitize-recover=all -Iclients/c \
    clients/c/tests/hostile_host.c -o "$program" ||
    { echo "SKIPPED need=sanitizers ci/clients.sh: the compiler has none" >&2; exit 77; }
# A leak is an error too. A crash must not look like an error that the worker reports.
ASAN_OPTIONS=exitcode=99 UBSAN_OPTIONS=halt_on_error=1:exitcode=99 "$program" "${1:-20}" "${2:-1}"
