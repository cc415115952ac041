#!/usr/bin/env bash
# Packs the npm package of the workers in Node into target/npm, with its licences, and uses it from there as a program
# that has installed it would. Exits with 77 without npm.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

command -v npm > /dev/null || skip program:npm "packs the package"
mkdir -p "${CARGO_TARGET_DIR:-target}"
out=$(cd "${CARGO_TARGET_DIR:-target}" && pwd -P)/npm
rm -rf "$out"
mkdir -p "$out/package" "$out/user"
cp clients/node/package.json clients/node/README.md clients/node/pipewright_worker.{mjs,d.mts} \
    LICENSE-MIT LICENSE-APACHE "$out/package"
export npm_config_update_notifier=false npm_config_audit=false npm_config_fund=false npm_config_cache=$out/cache

cd "$out"
npm pack --silent ./package
files=$(tar -tzf pipewright-worker-*.tgz | LC_ALL=C sort | paste -sd ' ')
expected="package/LICENSE-APACHE package/LICENSE-MIT package/README.md package/package.json"
[ "$files" = "$expected package/pipewright_worker.d.mts package/pipewright_worker.mjs" ] ||
    fail "the package has other files: $files"
# Nobody has started it, which the library says.
cd user
npm install --silent --offline --no-save ../pipewright-worker-*.tgz
cat > worker.mjs << 'END'
import { NotAWorker, serve } from "pipewright-worker";

try {
  await serve((request) => request.reverse());
} catch (error) {
  if (!(error instanceof NotAWorker)) throw error;
  console.log("no host");
}
END
[ "$(node worker.mjs)" = "no host" ] || fail "the installed package does not work"
rm -rf "$out/cache" "$out/package" "$out/user"
say "$(ls "$out")"
