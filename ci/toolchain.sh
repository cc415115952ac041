# Sourced by windows.sh and macos.sh. Provides a compiler, its clippy and the standard library of a target for which no
# package contains the library. Debian packages the library's source of exactly the compiler's version. Both are
# unpacked into a cache folder outside the repository. The library is compiled there, once for each target, into the
# compiler's sysroot. Later builds find it like one that came with the compiler: they need no unstable option, and no
# variable that enables unstable features.

version=$(sed -n 's/^rust-version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
# The `realpath` of macOS does not know folders that are not there yet.
absolute() { mkdir -p "$1" && (cd "$1" && pwd -P); }
cache=$(absolute "${PIPEWRIGHT_WIN_CACHE:-$HOME/.cache/pipewright-windows}")
# Increase this whenever the contents of the cache, or the way to make them, change.
recipe=1
tc=$cache/rust-$version-$recipe
# A separate target folder for each compiler and recipe, because each would mistake another's files for its own.
built=$(absolute "${CARGO_TARGET_DIR:-target}")/${tc##*/}
. ci/machine.sh

# Provides the compiler, its clippy and the library's source.
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
    # Old lists name versions that no longer exist.
    download || { as_root true 2> /dev/null && apt_lists && download; } || case $package in
        '') skip "package:rustc-web:$version" "Debian 12 has one" ;;
        *) cat "$new/log" >&2; fail \
            "apt-get could not fetch rustc-web=$package and its related packages: check the network" ;;
    esac
    for deb in "$new"/*.deb; do
        case $deb in
            # Unpacks only the sources of the library.
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

# Provides the standard library of a target, compiled with that optimization level: 0 if nothing will run.
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
    # Programs with panic=abort link this crate, and only if it was compiled with panic=abort too.
    cat > "$new/wrapper" <<- 'end'
	#!/bin/sh
	case " $* " in *" --crate-name panic_abort "*) exec "$@" -C panic=abort ;; esac
	exec "$@"
	end
    chmod +x "$new/wrapper"
    (cd "$new/empty" && env -u RUSTFLAGS -u CARGO_ENCODED_RUSTFLAGS RUSTC_BOOTSTRAP=1 RUSTC_WRAPPER="$new/wrapper" \
        CARGO_PROFILE_RELEASE_OPT_LEVEL="$2" cargo build --quiet --release --target-dir ../target --target "$target" \
        -Zbuild-std=std,panic_abort,panic_unwind,test) ||
        fail "the standard library could not be compiled for $target (its few dependencies need the network)"
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

# Runs this compiler's clippy through the machine's own cargo. It is older than the gate's clippy on Linux, so it allows
# the lints that the newer one no longer reports for the same lines, and the one of the sizes of variants: some are
# empty on a system that lacks what they are for.
clippy() {
    CARGO=$(command -v cargo) "$tc/usr/bin/cargo-clippy" clippy "$@" \
        -- -D warnings -A clippy::precedence -A clippy::format_collect -A clippy::large_enum_variant
}
