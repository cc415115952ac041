#!/usr/bin/env bash
# Makes the reference of the libraries for the web, in target/site: `bash ci/docs.sh`.
set -euo pipefail
cd "$(dirname "$0")/.."
out=${CARGO_TARGET_DIR:-target}

RUSTDOCFLAGS="-D warnings" cargo doc --locked --no-deps --all-features \
    -p pipewright -p pipewright-batch -p pipewright-cluster -p pipewright-disk -p pipewright-ipc
rm -rf "$out/site"
cp -R "$out/doc" "$out/site"
refresh='<meta http-equiv="refresh" content="0; url=pipewright/index.html">'
printf '<!doctype html><meta charset="utf-8"><title>pipewright</title>%s\n' "$refresh" > "$out/site/index.html"
