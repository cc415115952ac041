#!/usr/bin/env bash
# Writes the names of the cells of ci/matrix.sh for a workflow, as a line of JSON: to the file GITHUB_OUTPUT, or to
# stdout.
set -euo pipefail
cd "$(dirname "$0")/.."

bash ci/matrix.sh --list |
    python3 -c 'import json, sys; print("names=" + json.dumps(sys.stdin.read().splitlines()))' \
        >> "${GITHUB_OUTPUT:-/dev/stdout}"
