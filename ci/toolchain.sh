# Sourced by windows.sh and macos.sh: a compiler, its clippy and the standard library of a target that no
# package has the library of. Debian packages the library's source, of exactly the compiler's version, so
# both are unpacked into a cache folder outside the repository and the library is compiled there, once a
# target, into the compiler's own sysroot. What is built afterwards finds it as if it had come with the
# compiler: no unstable option, no variable that makes a stable compiler behave like another one.
#
# Everything is made beside its place and renamed when it is complete, under a lock: a run that was
# ended half-way, or two runs at once, leave nothing that a later one would take for whole.

version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
cache=$(realpath -m "${PIPEWRIGHT_WIN_CACHE:-$HOME/.cache/pipewright-windows}")
# To be raised whenever something else is put into the cache, or in another way.
recipe=1
tc=$cache/rust-$version-$recipe
# Not where another compiler builds, nor where one of another recipe did: each would take the other's for its own.
built=$(realpath -m "${CARGO_TARGET_DIR:-target}")/${tc##*/}

say() { printf '%s: %s\n' "${0##*/}" "$1"; }
# What this machine cannot have is no failure of the change: 77, as other test programs say it.
skip() { printf 'SKIPPED %s: %s\n' "${0##*/}" "$1"; exit 77; }
fail() { printf '%s: %s\n' "${0##*/}" "$1" >&2; exit 1; }

# Runs a function with nothing else at work on the cache, in a folder that is gone afterwards.
alone() {
    mkdir -p "$cache"
    (
        flock -n 9 || { say "waiting for another run that fills $cache"; flock 9; }
        rm -rf "$cache"/new.*
        new=$cache/new.$$
        mkdir "$new"
        trap 'rm -rf "$new"' EXIT
        "$@"
    ) 9> "$cache/lock"
}

as_root() {
    if [ "$(id -u)" = 0 ]; then "$@"; else sudo -n "$@"; fi
}

# The lists of packages, once a run: those of a new machine are old, or not there.
apt_lists() {
    [ -z "${lists_are_new:-}" ] || return 0
    local try
    for try in 1 2 3; do
        # Somebody else may hold their lock.
        as_root apt-get update -qq && break || sleep 5
    done
    lists_are_new=1
}

# Installs those packages that are missing.
packages() {
    local missing=() package
    command -v dpkg-query > /dev/null || skip "needs a Debian with the packages $*"
    for package; do
        dpkg-query -W -f '${db:Status-Status}\n' "$package" 2> /dev/null | grep -qx installed || missing+=("$package")
    done
    [ ${#missing[@]} != 0 ] || return 0
    as_root true 2> /dev/null || skip "as root, first: apt-get install --no-install-recommends ${missing[*]}"
    apt_lists
    for package in "${missing[@]}"; do
        apt-cache show "$package" > /dev/null 2>&1 || skip "no package $package for this system"
    done
    say "installing ${missing[*]}"
    local log; log=$(mktemp)
    as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
        -o DPkg::Lock::Timeout=300 "${missing[@]}" > "$log" 2>&1 < /dev/null ||
        { tail -n 5 "$log" >&2; fail "apt-get could not install ${missing[*]}"; }
    rm -f "$log"
}

# The compiler, its clippy and the library's source.
compiler() {
    packages libllvm19
    [ -d "$tc" ] || alone fetch_compiler
    export RUSTC=$tc/usr/bin/rustc RUSTDOC=$tc/usr/bin/rustdoc
    export LD_LIBRARY_PATH=$tc/usr/lib/x86_64-linux-gnu${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
    "$RUSTC" --version | grep -q "^rustc $version\." || fail "$RUSTC is not $version"
}

fetch_compiler() {
    [ ! -d "$tc" ] || return 0
    local deb
    # Old lists name versions that are gone.
    download || { as_root true 2> /dev/null && apt_lists && download; } || case $package in
        '') skip "no package rustc-web has Rust $version (in Debian 12 it is)" ;;
        *) cat "$new/log" >&2; fail "apt-get could not fetch rustc-web=$package and what belongs to it: is the network there?" ;;
    esac
    for deb in "$new"/*.deb; do
        case $deb in
            # Of the sources only the library's are asked for.
            */rust-web-src_*) dpkg --fsys-tarfile "$deb" |
                tar -x -C "$new/tc" --wildcards ./usr/lib './usr/src/rustc-*/library' ;;
            *) dpkg -x "$deb" "$new/tc" ;;
        esac
    done
    mv "$new/tc" "$tc"
}

download() {
    package=$(apt-cache madison rustc-web | awk -v v="$version." 'index($3, v) == 1 {print $3; exit}')
    [ -n "$package" ] || return 1
    say "fetching Rust $package and its library's source (110 MB)"
    (cd "$new" && apt-get download -qq -o Acquire::Retries=3 -o APT::Sandbox::User=root \
        "rustc-web=$package" "rust-web-clippy=$package" "rust-web-src=$package" \
        "libstd-rust-web-dev=$package" "libstd-rust-web-$version=$package") > "$new/log" 2>&1
}

# The standard library of a target, and how far it is to be optimised: not at all where nothing will run.
library() {
    [ -d "$tc/usr/lib/rustlib/$1" ] || alone compile_library "$1" "$2"
}

compile_library() {
    local target=$1 home=$tc/usr/lib/rustlib/$1 object
    [ ! -d "$home" ] || return 0
    say "compiling the standard library for $target"
    mkdir -p "$new/empty/src" "$new/home/lib"
    printf '[package]\nname = "empty"\nversion = "0.0.0"\nedition = "2024"\n[workspace]\n' > "$new/empty/Cargo.toml"
    echo '#![no_std]' > "$new/empty/src/lib.rs"
    # Programs that abort when they panic take this crate, and only if it was compiled so itself.
    cat > "$new/wrapper" <<- 'end'
	#!/bin/sh
	case " $* " in *" --crate-name panic_abort "*) exec "$@" -C panic=abort ;; esac
	exec "$@"
	end
    chmod +x "$new/wrapper"
    (cd "$new/empty" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS RUSTC_BOOTSTRAP=1 RUSTC_WRAPPER="$new/wrapper" \
        CARGO_PROFILE_RELEASE_OPT_LEVEL="$2" cargo build --quiet --release --target-dir ../target --target "$target" \
        -Zbuild-std=std,panic_abort,panic_unwind,test) ||
        fail "the standard library could not be compiled for $target: its few crates come over the network"
    rm "$new/target/$target"/release/deps/libempty-*
    mv "$new/target/$target"/release/deps/*.rlib "$new/home/lib"
    case $target in
        *-windows-gnu)
            for object in rsbegin rsend; do
                RUSTC_BOOTSTRAP=1 "$RUSTC" --target "$target" --emit obj --crate-type rlib \
                    -o "$new/home/lib/$object.o" "$tc/usr/lib/rustlib/src/rust/library/rtstartup/$object.rs"
            done ;;
    esac
    mv "$new/home" "$home"
}

# The clippy that belongs to this compiler, run by the machine's own cargo. It is older than the one that
# the gate holds everything against on Linux: what that one no longer says of the same lines is not asked for.
clippy() {
    CARGO=$(command -v cargo) "$tc/usr/bin/cargo-clippy" clippy "$@" \
        -- -D warnings -A clippy::precedence -A clippy::format_collect
}
