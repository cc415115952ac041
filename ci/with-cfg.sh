#!/usr/bin/env bash
# Cargo with one of our own switches set for our own crates: `ci/with-cfg.sh CFG ARGUMENT...`, as in
# `bash ci/with-cfg.sh 'pipewright_force_fallback="pidfd"' test -p pipewright-tests --test process`.
# RUSTFLAGS would do as well, and compile every dependency anew for each switch.
set -euo pipefail
cd "$(dirname "$0")/.."

cfg=${1:?a switch}
shift
# Cargo tells what was compiled through one wrapper from what was through another by the wrapper's path.
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/with-cfg
wrapper=$folder/${cfg//[^a-z0-9_]/-}
mkdir -p "$folder"
printf '#!/bin/sh\nexec "$@" --cfg '\''%s'\''\n' "$cfg" > "$wrapper.new"
chmod +x "$wrapper.new"
mv "$wrapper.new" "$wrapper"
RUSTC_WORKSPACE_WRAPPER=$wrapper exec cargo "$@"
