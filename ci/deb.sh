#!/usr/bin/env bash
# Sourced by release.sh. Makes a Debian package of the folder of an archive: the static tool needs no other package.

# debian_package FOLDER ARCHITECTURE VERSION OUT, with the time of the files in `time`: FOLDER has the tool, man/,
# completions/ and the licences.
debian_package() {
    local folder=$1 arch=$2 version=$3 out=$4 root page
    root=$(mktemp -d)
    chmod 755 "$root"
    # A version before a release, as 1.0.0-rc.1, comes before it: 1.0.0~rc.1.
    local share=$root/usr/share full=${version/-/\~}-1 maintainer="The pipewright developers <pipewright@localhost>"
    install -D -m 755 "$folder/pipewright" "$root/usr/bin/pipewright"
    for page in "$folder"/man/*.1; do
        install -D -m 644 "$page" "$share/man/man1/${page##*/}"
    done
    gzip -9n "$share"/man/man1/*
    install -D -m 644 "$folder/completions/pipewright.bash" "$share/bash-completion/completions/pipewright"
    install -D -m 644 "$folder/completions/pipewright.zsh" "$share/zsh/vendor-completions/_pipewright"
    install -D -m 644 "$folder/completions/pipewright.fish" "$share/fish/vendor_completions.d/pipewright.fish"
    install -D -m 644 "$folder/completions/pipewright.nu" "$share/nushell/completions/pipewright.nu"
    install -D -m 644 CHANGELOG.md "$share/doc/pipewright/changelog"
    gzip -9n "$share/doc/pipewright/changelog"
    printf 'pipewright (%s) unstable; urgency=medium\n\n  * The release %s: changelog.gz.\n\n -- %s  %s\n' \
        "$full" "$version" "$maintainer" "$(LC_ALL=C date -u -R -d "$time")" |
        gzip -9n > "$share/doc/pipewright/changelog.Debian.gz"
    chmod 644 "$share/doc/pipewright/changelog.Debian.gz"
    install -D -m 644 "$folder"/pipewright.cdx.json "$share/doc/pipewright/pipewright.cdx.json"
    { printf 'Format: https://www.debian.org/doc/packaging-manuals/copyright-format/1.0/\n\nFiles: *\n'
      printf 'Copyright: The pipewright developers\nLicense: MIT or Apache-2.0\n'
      printf ' Apache-2.0: /usr/share/common-licenses/Apache-2.0; MIT:\n .\n'
      sed 's/^$/./; s/^/ /' LICENSE-MIT; } > "$share/doc/pipewright/copyright"
    mkdir "$root/DEBIAN"
    cat > "$root/DEBIAN/control" << END
Package: pipewright
Version: $full
Architecture: $arch
Maintainer: $maintainer
Section: utils
Priority: optional
Installed-Size: $(du -sk "$root/usr" | cut -f 1)
Description: runs commands with timeouts, limits and reports
 A tool for build servers, batches and containers: it stops whole trees of
 processes, keeps their output, runs many commands with a log that can be
 resumed, also on other machines, and serves as the first process of a
 container.
END
    (cd "$root" && find usr -type f -print0 | LC_ALL=C sort -z | xargs -0 md5sum > DEBIAN/md5sums)
    find "$root" -exec touch -h -d "$time" {} +
    SOURCE_DATE_EPOCH=${time#@} dpkg-deb --root-owner-group -Zxz --build "$root" \
        "$out/pipewright_${full}_$arch.deb" > /dev/null
    rm -rf "$root"
}
