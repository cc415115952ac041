#!/usr/bin/env bash
# Runs cargo with one of our cfg switches set for our crates: `ci/with-cfg.sh CFG ARGUMENT...`, as in
# `bash ci/with-cfg.sh 'pipewright_force_fallback="pidfd"' test -p pipewright-tests --test process`.
# RUSTFLAGS would work too, but would compile every dependency again for each switch.
set -euo pipefail
cd "$(dirname "$0")/.."

cfg=${1:?a switch}
shift
# Cargo distinguishes the outputs of different wrappers by the wrapper's path.
folder=$(realpath -m "${CARGO_TARGET_DIR:-target}")/with-cfg
wrapper=$folder/${cfg//[^a-z0-9_]/-}
mkdir -p "$folder"
printf '#!/bin/sh\nexec "$@" --cfg '\''%s'\''\n' "$cfg" > "$wrapper.new"
chmod +x "$wrapper.new"
mv "$wrapper.new" "$wrapper"
RUSTC_WORKSPACE_WRAPPER=$wrapper exec cargo "$@"
