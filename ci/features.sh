#!/usr/bin/env bash
# Lints each library with no feature and with each feature alone. (The lints of the workspace have all.) `ci/features.sh
# none` is for no feature only. Other arguments go to cargo: `bash ci/features.sh --target x86_64-pc-windows-gnu`.
set -euo pipefail
cd "$(dirname "$0")/.."

check() {
    printf '%s\n' "$*"
    cargo clippy --quiet --locked --lib "$@" -- -D warnings
}

only_none=
if [ "${1:-}" = none ]; then
    only_none=yes
    shift
fi
metadata=$(cargo metadata --locked --no-deps --format-version 1)
# One line for each library: its name, then its features.
libraries=$(python3 -c '
import json, sys
for package in json.load(sys.stdin)["packages"]:
    is_library = any("lib" in target["kind"] for target in package["targets"])
    if is_library and package["publish"] != []:
        print(package["name"], *sorted(set(package["features"]) - {"default"}))
' <<< "$metadata")
while read -r library features; do
    check -p "$library" --no-default-features "$@"
    [ -z "$only_none" ] || continue
    for feature in $features; do
        check -p "$library" --no-default-features --features "$feature" "$@"
    done
done <<< "$libraries"
