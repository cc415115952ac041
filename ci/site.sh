#!/usr/bin/env bash
# Makes the site in target/site: the pages of docs/ as a book (docs/SUMMARY.md, docs/book.toml), and below rust/ the
# reference of the libraries. Checks each link, then opens every page in Chromium, at 1280 and 390 px, light
# and dark: none is too wide, none writes to the console, and the search finds "held pipe". `ci/site.sh book` leaves the
# reference of the libraries out. cargo brings mdBook, which is kept in a cache. Exits with 77 if mdBook or Python is
# missing; without Chromium only its part is skipped.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PIPEWRIGHT_SITE_CACHE:-$HOME/.cache/pipewright-site}
. ci/machine.sh

version=0.5.4
out=${CARGO_TARGET_DIR:-target}
command -v python3 > /dev/null || skip program:python3 "lays the pages out"
python3 -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip version:python3:3.9 "lays the pages out"

fetch_mdbook() {
    [ ! -d "$cache/mdbook-$version" ] || return 0
    say "building mdBook $version"
    # What a page costs does not depend on the optimization.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR=$new/target \
        cargo install mdbook --quiet --locked --version "$version" --root "$new/root" > "$new/log" 2>&1 ||
        { tail -n 3 "$new/log" >&2; skip crates "mdBook $version cannot be built"; }
    mv "$new/root" "$cache/mdbook-$version"
}
[ -d "$cache/mdbook-$version" ] || alone fetch_mdbook

rm -rf "$out/site"
python3 ci/site/lay.py pages . "$out/book"
mkdir -p "$out/site"
"$cache/mdbook-$version/bin/mdbook" build "$out/book" --dest-dir "$(realpath "$out/site")" 2>&1 | tee "$out/book/log"
! grep -qE '^ *(WARN|ERROR)|\[(WARN|ERROR)\]' "$out/book/log" || fail "mdBook complains"
if [ "${1:-}" != book ]; then
    RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features \
        -p pipewright -p pipewright-batch -p pipewright-cluster -p pipewright-disk -p pipewright-ipc
    cp -R "$out/doc" "$out/site/rust"
else
    for name in pipewright pipewright_{batch,cluster,disk,ipc}; do
        mkdir -p "$out/site/rust/$name"
        : > "$out/site/rust/$name/index.html"
    done
fi
python3 ci/site/lay.py links "$out/site"

browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) || browser=
if [ -n "$browser" ]; then
    python3 ci/site/look.py "$out/site" "$browser"
else
    echo "SKIPPED need=program:chromium ci/site.sh: opens the pages in a browser"
fi
say "passed"
