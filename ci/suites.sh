#!/usr/bin/env bash
# Runs suites that are built: `ci/suites.sh build` builds them all with the test hooks (ci/with-hooks.sh) and lists them
# in target/suites, `ci/suites.sh list` prints their names, and `ci/suites.sh NAME [ARGUMENT...]` runs one. A suite has
# the name of its file, the unit tests have that of their package; the arguments go to the test harness.
#
# Cargo runs one suite after the other, and waits for its folder while another lane of the gate compiles there.
set -euo pipefail
cd "$(dirname "$0")/.."
mkdir -p "${CARGO_TARGET_DIR:-target}"
list=$(cd "${CARGO_TARGET_DIR:-target}" && pwd -P)/suites

case ${1:?a name, build or list} in
    build)
        bash ci/with-hooks.sh test --locked --workspace --no-run --message-format=json-render-diagnostics | python3 -c '
import json, os, sys
for line in sys.stdin:
    it = json.loads(line)
    if it.get("executable") and it["profile"]["test"]:
        target, folder = it["target"], os.path.dirname(it["manifest_path"])
        name = target["name"] if "test" in target["kind"] else os.path.basename(folder)
        print(name, folder, it["executable"], sep="\t")
' > "$list.new"
        mv "$list.new" "$list" ;;
    list) cut -f 1 "$list" ;;
    *)
        row=$(awk -F '\t' -v name="$1" '$1 == name' "$list")
        [ -n "$row" ] || { echo "no suite is called $1: bash ci/suites.sh list" >&2; exit 2; }
        IFS=$'\t' read -r name folder program <<< "$row"
        shift
        echo "     Running $name ($program)"
        # As under cargo: in the folder of the package, and with the libraries of the compiler, which those of a macro
        # need.
        export LD_LIBRARY_PATH; LD_LIBRARY_PATH=$(rustc --print target-libdir)${LD_LIBRARY_PATH:+:$LD_LIBRARY_PATH}
        export DYLD_FALLBACK_LIBRARY_PATH=$LD_LIBRARY_PATH
        cd "$folder"
        exec "$program" "$@" ;;
esac
