#!/usr/bin/env bash
# Runs cargo with the test hooks in our crates (`--cfg pipewright_test_hooks`): `ci/with-hooks.sh ARGUMENT...`. A test
# chooses at run time what to do without, as in `PIPEWRIGHT_FORCE=pidfd,async bash ci/with-hooks.sh test -p
# pipewright-tests --test process`; the names are in crates/pipewright-os/src/base/test_hooks.rs. One build serves all
# of them. RUSTFLAGS would work too, but would compile every dependency again.
set -euo pipefail
cd "$(dirname "$0")/.."

# Cargo distinguishes the outputs of different wrappers by the wrapper's path.
mkdir -p "${CARGO_TARGET_DIR:-target}"
wrapper=$(cd "${CARGO_TARGET_DIR:-target}" && pwd -P)/with-hooks
printf '#!/bin/sh\nexec "$@" --cfg pipewright_test_hooks\n' > "$wrapper.new"
chmod +x "$wrapper.new"
mv "$wrapper.new" "$wrapper"
RUSTC_WORKSPACE_WRAPPER=$wrapper exec cargo "$@"
