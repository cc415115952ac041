# Sourced by wheels.sh. Provides a Python whose C library is musl, which no package of Debian and of pip has: the source
# of Debian's own, compiled for musl, in the cache. It has the modules that need no other library.

# Sets musl_python to its path. Exits with 77 if it cannot be had.
musl_python() {
    local arch=amd64 release=bookworm home=$cache/python-musl-1
    packages musl-tools gcc make dpkg-dev
    [ -d "$home" ] || alone make_musl_python
    musl_python=$home/python
}

make_musl_python() {
    [ ! -d "$home" ] || return 0
    say "compiling a Python for musl"
    apt_of_release apt-cache --version > "$new/log"
    sed -i 's/^deb /deb-src /' "$new/apt/sources.list"
    apt_of_release apt-get update -qq > "$new/log" 2>&1 && (cd "$new" &&
        apt_of_release apt-get source -qq --download-only python3.11 > "$new/log" 2>&1) ||
        { cat "$new/log" >&2; skip "archive:$release" "apt-get could not fetch the source of Python"; }
    mkdir "$new/python"
    tar -xzf "$new"/python3.11_*.orig.tar.gz -C "$new/python" --strip-components 1
    # A compiler that does not know Debian's own folders, nor the name of Debian's C library.
    printf '#!/bin/sh\ncase $1 in *-print-multiarch) exit 0 ;; esac\nexec musl-gcc "$@"\n' > "$new/python/musl-cc"
    chmod +x "$new/python/musl-cc"
    (
        cd "$new/python"
        sed -i "s/^        self.add_multiarch_paths()/        pass/" setup.py
        sed -i "s|= \['/usr/include'\]|= ['/usr/include/x86_64-linux-musl']|" setup.py
        ./configure -q CC="$PWD/musl-cc" OPT=-O1 PKG_CONFIG=false --without-ensurepip --disable-test-modules &&
            make -j"$(nproc)" all && ./python -c 'import asyncio, binascii'
    ) > "$new/log" 2>&1 || { tail -n 20 "$new/log" >&2; fail "Python does not compile for musl"; }
    mv "$new/python" "$home"
}
