#!/usr/bin/env bash
# Compares the API of the libraries with that of the last release, by cargo-semver-checks: what breaks it needs a new
# minor version. Exits with 77 if there is no release yet, or no cargo-semver-checks (`cargo install --locked
# cargo-semver-checks`).
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

tag=$(git tag --list 'v[0-9]*' --sort=-v:refname | head -n 1)
[ -n "$tag" ] || skip git-tag "no release has a tag yet"
command -v cargo-semver-checks > /dev/null || skip program:cargo-semver-checks "compares the API with that of $tag"
# The other libraries promise nothing: docs/stability.md.
libraries=(pipewright pipewright-batch pipewright-cluster pipewright-disk pipewright-ipc)
cargo semver-checks --baseline-rev "$tag" --all-features "${libraries[@]/#/--package=}"
