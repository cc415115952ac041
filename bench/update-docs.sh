#!/usr/bin/env bash
# Generates the tables of docs/benchmarks/*.md, and the chart of the README, from runs on this machine.
#
#   bash bench/update-docs.sh [--full] [--to FILE] [PART...]
#
# A part is a case of the driver (spawn, capture-lines, ..., cli), `messages`, `files`, `trees`, `terminals`, `batches`
# or `pipes`. The default is all parts. A part's text is between two comments of its name in its document. It includes
# the date, the commit, the machine and the preset. Other parts stay unchanged. A part that fails keeps its old table,
# and the script then exits with an error at its end.
#
# The preset is quick (3 rounds, some minutes); --full selects 7 rounds. Run nothing else meanwhile.
set -euo pipefail
cd "$(dirname "$0")/.."

preset=quick rounds=3 seconds=0.3
documents=(docs/benchmarks/*.md)
chart=docs/pipes.svg
parts=()
while [ $# -gt 0 ]; do
    case $1 in
        --full) preset=full rounds=7 seconds=1 ;;
        --to) documents=("${2:?--to FILE}"); shift ;;
        -*) echo "update-docs.sh: unknown option $1" >&2; exit 2 ;;
        *) parts+=("$1") ;;
    esac
    shift
done

cases=(spawn spawn-options spawn-async capture-lines capture-block allocations many stream collect text-lines
    watched-line pipeline size cli)
if [ ${#parts[@]} -eq 0 ]; then
    parts=("${cases[@]}" messages files trees terminals batches pipes)
fi
# Prints the document that contains the comments of that part.
document_of() {
    local document
    for document in "${documents[@]}"; do
        if grep -qx "<!-- begin $1 -->" "$document" && grep -qx "<!-- end $1 -->" "$document"; then
            echo "$document"
            return
        fi
    done
    echo "update-docs.sh: no document has a place for $1" >&2
    return 2
}
for part in "${parts[@]}"; do document_of "$part" > /dev/null; done

work=$(mktemp -d)
trap 'rm -rf "$work"' EXIT

echo "update-docs.sh: building" >&2
tool=$PWD/target/release/pipewright
bench=$PWD/bench/target/release
if [ "${parts[*]}" != messages ]; then
    cargo build --release --locked --quiet -p pipewright-cli
    (cd bench && cargo build --release --locked --quiet --workspace)
fi
if [[ " ${parts[*]} " = *" messages "* ]]; then
    beside="a ring, a socket and a pipe in C"
    # Takes two minutes more, and needs crates that not every machine has.
    if command -v python3 > /dev/null && (cd bench && cargo build --release --locked --quiet -p ipc --features \
        peers); then
        peers=$(cd bench && cargo tree --locked -p ipc --features peers --depth 1 --prefix none)
        version() { sed -n "s/^\($1\) v\([^ ]*\).*/\1 \2/p" <<< "$peers"; }
        beside+=", and beside $(version iceoryx2), $(version ipc-channel) and $(python3 --version)"
    else
        echo "update-docs.sh: messages: skipping iceoryx2, ipc-channel and Python, which are not available here" >&2
        (cd bench && cargo build --release --locked --quiet -p ipc)
    fi
    (cd bench && cargo build --release --locked --quiet -p driver)
fi

# Read once, before a changed document makes the tree dirty.
commit=$(git describe --always --dirty)

# The driver describes the machine in the same format as the tool's reports.
machine=$("$bench/driver" machine)

head_of() { # NAME DESCRIPTION AMOUNT
    echo "### $1"
    echo
    echo "$2"
    echo
    echo "Measured on $(date -u +%F) at commit $commit, preset $preset: $3. $machine."
}

# Prints the part's section: the text below the second "## " of the report.
driver() {
    local options=()
    [ "$1" = size ] || options=(--rounds "$rounds")
    "$bench/driver" "$1" "${options[@]}" --cli "$tool" > "$work/report"
    head_of "$1" "$(awk 'found && NF { print; exit } /^## / { found = 1 }' "$work/report")" \
        "$([ "$1" = size ] && echo "two programs" || echo "$rounds rounds")"
    awk 'found == 2 { print } found == 1 && NF { found = 2 } /^## / && !found { found = 1 }' "$work/report"
}

messages() {
    # The number of messages is never reduced: a cell would end before the processors leave their idle state.
    "$bench/ipc" --rounds "$rounds" > "$work/report"
    # iceoryx2 leaves these behind.
    rm -rf /tmp/iceoryx2 /dev/shm/iox2_*
    head_of messages "Messages between a host and a worker, beside $beside." "$rounds rounds"
    # A case's heading would be one level too high.
    sed 's/^### \(.*\)$/**\1**/' "$work/report"
}

files() {
    local folder=$work/files
    mkdir "$folder"
    local cases=(cached direct128 classes)
    if command -v fio > /dev/null; then cases+=(direct32 write); fi
    "$bench/disk" "$folder" "${cases[@]}" --seconds "$seconds" --rounds "$rounds" > "$work/report"
    head_of files "File I/O beside std, tokio, the io-uring crate and, if installed, fio; a file of 1 GiB." \
        "$rounds rounds of ${seconds} s"
    sed 's/^## \(.*\)$/**\1**/' "$work/report"
}

trees() {
    # The program repeats its runs as a user that owns nothing, who must be able to run all three.
    chmod 755 "$work"
    cc -O2 -static -o "$work/exit0" bench/c/exit0.c
    cp "$tool" "$work/pipewright"
    cp "$bench/tree" "$work/tree"
    "$work/tree" "$work/exit0" "$work/pipewright" > "$work/report"
    head_of trees \
        "The cost of containing a tree, the time to kill a tree of 500 processes, and the delay of a timeout." "one run"
    # The program prints figures in columns, not only tables.
    echo
    echo '```text'
    sed '/./,$!d' "$work/report"
    echo '```'
}

terminals() {
    "$bench/pty" --rounds "$rounds" > "$work/report"
    head_of terminals "Children on terminals of their own, beside a reader in C, portable-pty and Python." \
        "$rounds rounds; bytes that are lost: one round"
    echo
    sed 's/^### \(.*\)$/**\1**/' "$work/report"
}

batches() {
    cc -O2 -static -o "$work/child" bench/c/exit0.c
    cc -O2 -static -o "$work/writer" bench/c/mib.c
    "$bench/batch" "$tool" "$work/child" "$work/writer" --rounds "$rounds" rate output > "$work/report"
    head_of batches \
        "\`pipewright batch\` beside \`xargs -P\`, \`make -j\`, ninja and GNU parallel, where they are installed." \
        "$rounds rounds"
    echo
    sed 's/^## \(.*\)$/**\1**/' "$work/report"
}

pipes() {
    "$tool" bench pipes --preset "$preset" --quiet --markdown "$work/report" --json "$work/json" > /dev/null
    local first
    first=$(python3 -c 'import json, sys; print(json.load(sys.stdin)["charts"][0]["id"])' < "$work/json")
    "$tool" bench pipes --preset "$preset" --quiet --only "$first" --svg "$work/chart" > /dev/null
    # A noisy point has no ring.
    grep -q 'class="best"' "$work/chart" ||
        { echo "update-docs.sh: pipes: the best point of the chart is noisy; the old chart stays" >&2; return 1; }
    head_of pipes "\`pipewright bench pipes\`: the machine itself, without peers." \
        "$([ "$preset" = quick ] && echo 3 || echo 5) series"
    echo
    # Removes the report's own heading, and turns the headings of its charts into bold text.
    sed -e '1,2d' -e 's/^### \(.*\)$/**\1**/' "$work/report"
    cp "$work/chart" "$chart"
}

# Replaces the text between the comments of that name by the text of a file.
put() {
    local document
    document=$(document_of "$1")
    awk -v begin="<!-- begin $1 -->" -v end="<!-- end $1 -->" -v text="$2" '
        $0 == end { skips = 0 }
        !skips { print }
        $0 == begin { skips = 1; while ((getline line < text) > 0) print line }
    ' "$document" > "$work/document"
    cat "$work/document" > "$document"
}

failed=()
for part in "${parts[@]}"; do
    echo "update-docs.sh: $part" >&2
    case $part in
        messages | files | trees | terminals | batches | pipes) measure=("$part") ;;
        *) measure=(driver "$part") ;;
    esac
    # A separate shell, so that the first failure ends the part: `set -e` has no effect inside an `if`.
    set +e
    (set -e; "${measure[@]}" > "$work/text")
    code=$?
    set -e
    if [ "$code" -eq 0 ]; then
        # Exactly one empty line at the end.
        printf '%s\n\n' "$(cat "$work/text")" > "$work/section"
        mv "$work/section" "$work/text"
        put "$part" "$work/text"
    else
        failed+=("$part")
    fi
done
if [ ${#failed[@]} -gt 0 ]; then
    echo "update-docs.sh: not measured: ${failed[*]}" >&2
    exit 1
fi
