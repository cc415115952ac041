# Sourced by windows.sh. Provides the Wine of a newer Debian, in a folder with a minimal system of that release: its
# programs need a newer C library than this machine's. `wine` and `wineserver` on PATH then run in that folder, in a
# mount namespace of the calling script, where the folder also has the checkout, the target folder and the cache.

newer_wine() {
    local release=$1 folder
    shift
    wine_root=$cache/$release-$recipe
    [ "$(id -u)" = 0 ] || skip root "makes a system in a folder"
    packages debootstrap
    [ -d "$wine_root" ] || alone make_wine_root "$release"
    if [ -z "${PIPEWRIGHT_WINE_MOUNTED:-}" ]; then
        # The namespace, and with it every mount, ends with the script.
        PIPEWRIGHT_WINE_MOUNTED=yes exec unshare --mount --propagation private bash "$0" "$@"
    fi
    for folder in /proc /sys /dev /dev/pts /dev/shm /tmp "$PWD" "$cache" "$(dirname "$built")"; do
        mkdir -p "$wine_root$folder" "$folder"
        mount --bind "$folder" "$wine_root$folder"
    done
    programs=$(mktemp -d)
    for program in wine wineserver; do
        printf '#!/bin/sh\nexec chroot %q /usr/bin/env -C "$PWD" /usr/bin/%s "$@"\n' "$wine_root" "$program" \
            > "$programs/$program"
        chmod +x "$programs/$program"
    done
    PATH=$programs:$PATH
}

make_wine_root() {
    [ ! -d "$wine_root" ] || return 0
    local site
    site=$(apt-get indextargets --format '$(SITE) $(ORIGIN)' 'Created-By: Packages' |
        awk '$2 == "Debian" {print $1; exit}')
    say "unpacking Wine and the system of $1 (1.4 GB)"
    debootstrap --variant=minbase --include=wine,wine64 "$1" "$new/root" "$site" > "$new/log" 2>&1 ||
        { tail -n 5 "$new/log" >&2; fail "debootstrap could not unpack $1"; }
    rm -rf "$new/root/var/cache/apt/archives" "$new/root/var/lib/apt/lists"
    mv "$new/root" "$wine_root"
}
