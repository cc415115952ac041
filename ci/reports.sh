#!/usr/bin/env bash
# Lets the tool write each of its pages (`bench`, `disk`, `batch`, of a batch that runs too), and opens them in Chromium
# with axe-core, at 1280 and 390 px, light and dark (ci/site/reports.py has the checks). The pages and a picture of each
# look are in target/reports. `ci/reports.sh TOOL` takes a tool that is built. npm brings axe-core, which is kept in a
# cache. Exits with 77 without npm, Python or Chromium.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PIPEWRIGHT_REPORTS_CACHE:-$HOME/.cache/pipewright-reports}
. ci/machine.sh

version=4.14.1
browser=$(command -v chromium || command -v chromium-browser || command -v google-chrome) ||
    skip program:chromium "opens the pages of the tool"
command -v python3 > /dev/null || skip program:python3 "drives the browser"
command -v npm > /dev/null || skip program:npm "brings axe-core"
fetch_axe() {
    [ ! -d "$cache/axe-core-$version" ] || return 0
    npm install --silent --no-audit --no-fund --no-save --prefix "$new/axe" "axe-core@$version" > "$new/log" 2>&1 ||
        { tail -n 3 "$new/log" >&2; skip "npm:axe-core@$version" "cannot be had"; }
    mv "$new/axe" "$cache/axe-core-$version"
}
[ -d "$cache/axe-core-$version" ] || alone fetch_axe

[ -n "${1:-}" ] || cargo build --locked
tool=$(realpath "${1:-${CARGO_TARGET_DIR:-target}/debug/pipewright}")
out=${CARGO_TARGET_DIR:-target}/reports
rm -rf "$out"
mkdir -p "$out/work"
out=$(realpath "$out")
cd "$out/work"

# One series shows no ranges, three do.
"$tool" bench all --quiet --time 1ms --runs 1 --html "$out/bench-all.html" > /dev/null
"$tool" bench pipes --quiet --time 5ms --runs 3 --json "$out/old.json" --html "$out/bench-pipes.html" > /dev/null
"$tool" bench pipes --quiet --time 5ms --runs 3 --compare "$out/old.json" --html "$out/bench-compared.html" > /dev/null
"$tool" disk --requests 100 --bs 16k --html "$out/disk.html" . > /dev/null
# Succeeds, fails, dies of a signal, runs into its timeout, is skipped.
printf '%s\n' '{"id":"a","argv":["true"]}' '{"id":"b","argv":["sh","-c","echo bad >&2; exit 3"]}' \
    '{"id":"c","argv":["sh","-c","kill -9 $$"]}' '{"id":"d","argv":["sleep","60"],"timeout":"100ms"}' \
    '{"id":"e","argv":["true"],"after":["b"]}' > jobs
"$tool" batch -q -j2 --html "$out/batch.html" --jsonl -a jobs > "$out/batch.out" 2>&1 ||
    [ $? != 125 ] || fail "$(cat "$out/batch.out")"
# One that runs is looked at while it does.
mkfifo more
# For reading too, so that neither this nor the batch waits for the other to open it.
exec 3<> more
"$tool" batch -q -j2 --html "$out/batch-running.html" --shell -a more > /dev/null 2>&1 &
batch=$!
trap 'kill "$batch" 2> /dev/null || true' EXIT
printf '%s\n' true 'exit 3' 'read line < more' >&3
until grep -qs 'exit 3' "$out/batch-running.html" && grep -qs 'data-start' "$out/batch-running.html"; do
    kill -0 "$batch" || fail "the batch has ended"
    sleep 0.1
done
cd "$OLDPWD"
python3 ci/site/reports.py "$browser" "$cache/axe-core-$version/node_modules/axe-core/axe.min.js" "$out" "$out"/*.html
say "passed"
