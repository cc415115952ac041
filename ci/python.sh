#!/usr/bin/env bash
# Builds the Python package in a fresh environment by the README's own commands, and checks it: its suite, types, style, the
# notebook, the size of the wheel. Exits with 77 without Python, pip or a network.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

python=$(command -v python3) || skip "needs python3"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip "needs Python 3.9"
"$python" -c 'import venv, ensurepip' 2> /dev/null || packages python3-venv

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
export CARGO_TARGET_DIR=$target PIP_DISABLE_PIP_VERSION_CHECK=1
unset RUST_TEST_THREADS
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"$python" -m venv "$venv"
export PATH=$venv/bin:$PATH VIRTUAL_ENV=$venv

# Installs packages that the package itself does not need. Returns 1, and says so, if they cannot be had.
have() { pip install -q "$@" > "$venv/log" 2>&1 || { echo "SKIPPED ${0##*/}: python::$1: cannot be installed"; return 1; }; }

have pytest || exit 77
mapfile -t commands < <(sed -n '/^```sh$/,/^```$/p' README.md | grep -E '^(pip install|pytest) .*python')
[ "${commands[*]}" = "pip install ./python pytest python" ] || fail "the README has other commands for Python: ${commands[*]}"

say "${commands[0]}"
${commands[0]} -q
# A wheel is a ZIP of the installed files, almost all of it the module.
(cd / && python - << 'END')
import pathlib
import sys
import zlib
import pipewright

files = [it for it in pathlib.Path(pipewright.__file__).parent.rglob("*") if it.is_file() and it.suffix != ".pyc"]
size = sum(len(zlib.compress(it.read_bytes())) for it in files)
sys.exit(f"the wheel has about {size} bytes, and 3 MB are the most" if size > 3_000_000 else 0)
END

say "lints"
cargo clippy --all-targets --locked --manifest-path python/Cargo.toml -- -D warnings

# Their tests say that they are skipped without them.
have uvloop || :
have trio anyio || :
say "${commands[1]}"
${commands[1]}

cd python
! have ruff || { ruff check . && ruff format --check .; }
! have mypy typing_extensions || mypy
! have pyright || pyright
if have nbclient nbformat ipykernel; then
    (cd "$venv" && python - "$OLDPWD/docs/tour.ipynb") << 'END'
import sys
import nbclient
import nbformat

notebook = nbformat.read(sys.argv[1], as_version=4)
nbclient.NotebookClient(notebook, timeout=120, kernel_name="python3").execute()
print(f"the notebook: {len(notebook.cells)} cells ran")
END
fi
say "passed"
