#!/usr/bin/env bash
# Builds the archives of a release into target/release-archives, with their SHA-256 checksums: `bash ci/release.sh`, or
# with the targets as arguments. The default is Linux on x86-64 and on aarch64, both static (musl), and Windows on
# x86-64. Each archive has the tool, the licences, README, CHANGELOG and the bill of materials (CycloneDX); those for
# Linux also the manual pages and the completions, and beside each is a Debian package. With an address of the
# repository (Cargo.toml), so are the formula for Homebrew and the manifests for winget.
# The same commit gives the same archives: files have the time of the commit, no owner, and one order. Runs each tool
# that this machine can run, and checks that the Linux tools need no library. Exits with 77 if a target's library is
# missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/toolchain.sh
. ci/vm/kernels.sh
. ci/musl-compiler.sh
. ci/deb.sh

version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
name=pipewright-$version
out=$(realpath -m "${CARGO_TARGET_DIR:-target}")/release-archives
time=@$(git log -1 --format=%ct)
work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT
[ $# != 0 ] || set -- x86_64-unknown-linux-musl aarch64-unknown-linux-musl x86_64-pc-windows-gnu
rm -rf "$out"
mkdir -p "$out"

# Sets tool to the path of the tool for a Linux target. Rust's own linker needs no compiler for the target.
build_linux() {
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || ! command -v rustup > /dev/null ||
        rustup target add "$1" || true
    [ -d "$(rustc --print sysroot)/lib/rustlib/$1/lib" ] || skip "rust-target:$1" "needs its library"
    local linker=CARGO_TARGET_$(tr a-z- A-Z_ <<< "$1")_LINKER
    musl_compiler "$1"
    env "$linker=rust-lld" cargo build --release --locked --target "$1" -p pipewright-cli 2>&1 | tee "$work/log"
    ! grep -q "supervisor of process trees is left out" "$work/log" || fail "the tool for $1 has no supervisor"
    tool=${CARGO_TARGET_DIR:-target}/$1/release/pipewright
    ! readelf -d "$tool" | grep -q NEEDED || fail "the tool for $1 needs a library"
}

# Sets tool to the path of the tool for Windows.
build_windows() {
    packages gcc-mingw-w64-x86-64 zip
    compiler
    library "$1" 3
    # The library that is compiled here has no bitcode to optimize across.
    CARGO_PROFILE_RELEASE_LTO=off cargo build --release --locked --target "$1" --target-dir "$built" -p pipewright-cli
    tool=$built/$1/release/pipewright.exe
}

for target; do
    folder=$name-$target
    mkdir "$work/$folder"
    case $target in
        *-linux-*) build_linux "$target" ;;
        *-windows-*) (build_windows "$target"; echo "$tool" > "$work/tool"); tool=$(cat "$work/tool") ;;
        *) fail "no way to build for $target" ;;
    esac
    cp "$tool" README.md CHANGELOG.md LICENSE-APACHE LICENSE-MIT "$work/$folder/"
    bash ci/sbom.sh "$target" > "$work/$folder/pipewright.cdx.json"
    case $target in
        *-linux-*)
            # The pages and the completions are the same for each processor: they come from a tool that runs here.
            [ "${target%%-*}" != "$(uname -m)" ] || pages=$tool
            [ -n "${pages:-}" ] || {
                cargo build --release --locked -p pipewright-cli
                pages=${CARGO_TARGET_DIR:-target}/release/pipewright
            }
            [ "$("$pages" --version)" = "pipewright $version" ] || fail "the tool has another version"
            mkdir "$work/$folder/man" "$work/$folder/completions"
            "$pages" man > "$work/$folder/man/pipewright.1"
            for command in $("$pages" --help | sed -n '/^Commands:$/,/^$/s/^  \([a-z][a-z-]*\) .*/\1/p' |
                grep -vx help); do
                "$pages" man "$command" > "$work/$folder/man/pipewright-$command.1"
            done
            for shell in bash zsh fish nushell; do
                "$pages" completions "$shell" > "$work/$folder/completions/pipewright.${shell/nushell/nu}"
            done
            tar -c --sort=name --mtime="$time" --owner=0 --group=0 --numeric-owner -C "$work" "$folder" |
                gzip -9n > "$out/$folder.tar.gz"
            case ${target%%-*} in x86_64) arch=amd64 ;; aarch64) arch=arm64 ;; *) arch='' ;; esac
            if [ -n "$arch" ] && command -v dpkg-deb > /dev/null; then
                debian_package "$work/$folder" "$arch" "$version" "$out"
            fi ;;
        *)
            find "$work/$folder" -exec touch -d "$time" {} +
            (cd "$work" && find "$folder" | LC_ALL=C sort | TZ=UTC zip -q -X -@ "$out/$folder.zip") ;;
    esac
    say "$(cd "$out" && ls -s --block-size=kB "$folder".*)"
done
(cd "$out" && sha256sum -- pipewright[-_]* > SHA256SUMS && cat SHA256SUMS)
address=$(sed -n 's/^repository = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
[ -z "$address" ] || [ ! -e "$out/$name-x86_64-pc-windows-gnu.zip" ] || bash ci/manifests.sh "$out" "$address"
