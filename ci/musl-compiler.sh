# Sourced by release.sh. Lets a C compiler of Debian compile for musl: the tool contains SQLite, which is C. Only the
# headers are needed: Rust brings the library, and links it.

# Sets the variables that tell the crate `cc` how to compile for that target. Exits with 77 if the packages are missing.
musl_compiler() {
    local target=$1 processor=${1%%-*} arch release=bookworm compiler=gcc headers name
    case $processor in
        x86_64) arch=amd64 ;;
        *) arch=arm64 compiler=$processor-linux-gnu-gcc; packages "gcc-$processor-linux-gnu" ;;
    esac
    packages gcc
    headers=$cache/musl-headers-$arch-1
    [ -d "$headers" ] || alone fetch_musl_headers
    name=${target//-/_}
    export "CC_$name=$compiler" "AR_$name=ar"
    # musl has its own headers of the compiler, too.
    export "CFLAGS_$name=-nostdinc -isystem $headers/usr/include/$processor-linux-musl"
}

fetch_musl_headers() {
    [ ! -d "$headers" ] || return 0
    say "fetching the headers of musl for $arch"
    apt_of_release apt-get update -qq > "$new/log" 2>&1 ||
        { cat "$new/log" >&2; skip "archive:$release" "apt-get could not read the lists"; }
    unpack_package musl-dev "$new/musl"
    mv "$new/musl" "$headers"
}
