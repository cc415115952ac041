#!/usr/bin/env bash
# Builds the Python package in a fresh environment by the README's own commands, and checks it: its suite, types, style,
# the notebook. The build is not optimized, which takes a fifth of the time; ci/wheels.sh checks the size of a wheel.
# `ci/python.sh all` builds it as a user does, and runs the suite with the oldest and the newest Python too;
# `ci/python.sh net` runs the long nets alone: beside `subprocess`, and each failing call. Exits with 77 without Python,
# pip or a network.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

python=$(command -v python3) || skip program:python3 "is not here"
"$python" -c 'import sys; sys.exit(sys.version_info < (3, 9))' || skip version:python3:3.9 "is older"
"$python" -c 'import venv, ensurepip' 2> /dev/null || packages python3-venv

mkdir -p "${CARGO_TARGET_DIR:-target}"
target=$(cd "${CARGO_TARGET_DIR:-target}" && pwd -P)
# A package that cannot be had is a skip that nobody expects, so a registry that is away for a moment is asked for two
# minutes: pip doubles its pause.
export CARGO_TARGET_DIR=$target PIP_DISABLE_PIP_VERSION_CHECK=1 PIP_RETRIES=9
unset RUST_TEST_THREADS
venv=$(mktemp -d)
trap 'rm -rf "$venv"' EXIT
"$python" -m venv "$venv"
export PATH=$venv/bin:$PATH VIRTUAL_ENV=$venv

# Installs packages that the package itself does not need. Returns 1, and says so, if they cannot be had.
have() { pip install -q "$@" > "$venv/log" 2>&1 || { echo \
    "SKIPPED need=pip:$1 ci/python.sh: cannot be installed"; return 1; }; }

have pytest || exit 77
mapfile -t commands < <(sed -n '/^```sh$/,/^```$/p' README.md | grep -E '^(pip install|pytest) .*python')
[ "${commands[*]}" = "pip install ./python pytest python" ] ||
    fail "the README has other commands for Python: ${commands[*]}"

[ -n "${1:-}" ] || export MATURIN_PEP517_ARGS="--profile dev"
say "${commands[0]}"
${commands[0]} -q

# The uses of the package in each of which every call fails once. With the whole workspace, as the gate has built it.
failing_calls() {
    say "every call fails once"
    PIPEWRIGHT_NET_PYTHON=$venv/bin/python bash ci/with-hooks.sh test --locked --workspace --test faults -- python_
}

if [ "${1:-}" = net ]; then
    export PIPEWRIGHT_NET=all
    failing_calls
    say "the net beside subprocess"
    pytest python/tests/test_beside.py
    say "passed"
    exit
fi

say "lints"
cargo clippy --all-targets --locked --manifest-path python/Cargo.toml -- -D warnings

# Their tests say that they are skipped without them.
have uvloop || :
have trio anyio || :
have gevent eventlet || :
say "${commands[1]}"
${commands[1]}

# Prints the other Pythons of this machine that the wheel is for, by version, with their paths.
others() {
    local path version
    for path in $(compgen -c python3. | grep -E '^python3\.[0-9]+$' | sort -u | xargs -r which 2> /dev/null) \
        "${PYENV_ROOT:-$HOME/.pyenv}"/versions/3.*/bin/python3; do
        # A build without the GIL has another ABI.
        version=$("$path" -c 'import sys, venv, ensurepip
assert sys.version_info >= (3, 9) and sys.implementation.name == "cpython" and "t" not in sys.abiflags
print(*sys.version_info[:2], sep=".")' 2> /dev/null) || continue
        [ "$version" = "$("$python" -c 'import sys; print(*sys.version_info[:2], sep=".")')" ] || echo "$version $path"
    done | sort -t. -k2n -u -k1,1V
}

# The same wheel, with the oldest and the newest of them. CPython's own suite runs above.
site=$(python -c 'import sysconfig; print(sysconfig.get_path("purelib"))')
pythons=()
[ "${1:-}" != all ] || mapfile -t pythons < <(others | sed -n '1p;$p' | sort -u)
[ "${1:-}" != all ] || [ ${#pythons[@]} -gt 0 ] ||
    echo "SKIPPED need=other-python ci/python.sh: there is none from 3.9 on"
for other in ${pythons[@]+"${pythons[@]}"}; do
    say "Python ${other%% *}"
    "${other#* }" -m venv "$venv/other"
    if "$venv/other/bin/pip" install -q pytest > "$venv/log" 2>&1; then
        cp -R "$site"/pipewright "$site"/pipewright_process-*.dist-info \
            "$("$venv/other/bin/python" -c 'import sysconfig; print(sysconfig.get_path("purelib"))')"
        PATH=$venv/other/bin:$PATH python -m pytest -m "not slow" -p no:cacheprovider python
    else
        echo "SKIPPED need=pip:pytest ci/python.sh: cannot be installed for Python ${other%% *}"
    fi
    rm -rf "$venv/other"
done

failing_calls

cd python
# Not `have ruff || { ruff check . && ... }`: bash does not end at a group whose failure it has ignored inside.
if have ruff; then
    ruff check .
    ruff format --check .
fi
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
