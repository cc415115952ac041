#!/usr/bin/env bash
# Runs the tests that coreutils has for its `timeout`, with `pipewright timeout` and with the system's own program
# beside it: every test that passes with the latter has to pass with the former. The tests come from Debian's source
# package, into a temporary folder; the repository contains none. If it cannot be had, the script prints SKIPPED and
# exits with 77. `ci/coreutils.sh TOOL` takes a tool that is built.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh
[ "$(uname -s)" = Linux ] || skip linux "needs Linux"
packages dpkg-dev strace perl

dir=$(mktemp -d)
trap 'rm -rf "$dir"' EXIT

# Downloads and unpacks the source package. Many systems list binary packages only, so the lists of sources are made
# from theirs, in the folder.
sources() {
    mkdir -p "$dir/parts" "$dir/lists/partial" "$dir/cache"
    local file
    for file in /etc/apt/sources.list.d/*.sources; do
        [ ! -f "$file" ] || sed 's/^Types:.*/Types: deb-src/' "$file" > "$dir/parts/${file##*/}"
    done
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/*.list; do
        [ ! -f "$file" ] || sed -n 's/^deb /deb-src /p' "$file" > "$dir/parts/${file##*/}.list"
    done
    # One failed download must not skip what the archive has.
    local options=(-qq -o Acquire::Retries=3 -o APT::Sandbox::User=root
        -o Dir::Etc::sourcelist=/dev/null -o "Dir::Etc::sourceparts=$dir/parts"
        -o "Dir::State::Lists=$dir/lists" -o "Dir::Cache=$dir/cache")
    (cd "$dir" && { apt-get "${options[@]}" update; apt-get "${options[@]}" --download-only source coreutils; }) \
        > "$dir/apt.log" 2>&1 &&
        mkdir "$dir/coreutils" && tar xf "$dir"/coreutils_*.orig.tar.* -C "$dir/coreutils" --strip-components=1
}
sources || { tail -n 3 "$dir/apt.log"; skip "archive:$(. /etc/os-release && echo "$VERSION_CODENAME")" \
    "the source package of coreutils cannot be had"; }

[ -n "${1:-}" ] || cargo build --locked
tool=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/pipewright}")
cd "$dir/coreutils"
# No pipe into `head`: it would end `cat` by SIGPIPE.
version=$(cat .tarball-version 2> /dev/null || cat .version)

# Limits of integers, for which coreutils has a program in C.
limits() {
    cat << 'END'
#!/bin/sh
echo INT_MAX=2147483647 UINT_MAX=4294967295 UINT_OFLOW=4294967296 TIME_T_MAX=9223372036854775807
echo TIME_T_OFLOW=9223372036854775808 UINTMAX_MAX=18446744073709551615 UINTMAX_OFLOW=18446744073709551616
echo LDBL_MAX=1.189731e+4932
END
}

# Prints the result of each test with the programs of a folder: PASS, SKIP or FAIL, and its name.
run() {
    local programs=$1 test code
    limits > "$programs/getlimits"
    chmod +x "$programs/getlimits"
    for test in tests/*/timeout*.sh tests/*/timeout*.pl; do
        [ -f "$test" ] || continue
        local command=(bash "$test")
        case $test in *.pl) command=(perl -w -I tests -MCuSkip -MCoreutils -M"CuTmpdir qw(timeout)" "$test") ;; esac
        code=0
        env -i PATH="$programs:$PATH" HOME="$HOME" LC_ALL=C srcdir=. top_srcdir=. abs_top_srcdir="$PWD" \
            abs_srcdir="$PWD" \
            abs_top_builddir="$PWD" SHELL=/bin/bash PERL=perl VERSION="$version" PACKAGE_VERSION="$version" \
                CONFIG_HEADER=/dev/null \
            built_programs="timeout env" TEST_NAME=timeout LOCALE_FR=none \
            "${command[@]}" > "$programs/${test##*/}.log" 2>&1 9>&1 || code=$?
        case $code in
            0) echo "PASS ${test##*/}" ;;
            77) echo "SKIP ${test##*/}" ;;
            *) echo "FAIL ${test##*/}" ;;
        esac
    done
}

mkdir stock ours
ln -s "$(command -v timeout)" stock/timeout
ln -s "$tool" ours/timeout
failed=
# The tests put a folder `src` before the path.
for which in stock ours; do
    ln -sfn "../$which/timeout" src/timeout
    run "$PWD/$which" | sort > "$which.results"
done
passed=$(grep -c ^PASS stock.results) || fail "the stock timeout passes no test of coreutils $version"
while read -r result test; do
    [ "$result" = PASS ] || { echo "$test: $result with the stock timeout"; continue; }
    grep -qx "PASS $test" ours.results && continue
    echo "$test: $(grep " $test$" ours.results)"
    tail -n 15 "ours/$test.log"
    failed=yes
done < stock.results
[ -z "$failed" ] || fail "tests of coreutils $version fail with pipewright timeout"
say "$passed tests of coreutils $version pass with pipewright timeout, as with the stock one"
