#!/usr/bin/env bash
# Changes the `use` lines of published crates from `std::process` to `pipewright::process`, and runs the suites of the
# stock and the changed crates: every test that passes in the stock crate has to pass in the changed one.
#
#     ci/ported.sh                 all crates of the list below
#     ci/ported.sh sample          a few quick ones, for the gate
#     ci/ported.sh NAME...         these
#
# cargo downloads their sources into a cache folder outside the repository; the repository contains none. If the
# download fails, the script prints SKIPPED and exits with 77.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh
root=$PWD
cache=${PIPEWRIGHT_PORTED_CACHE:-$HOME/.cache/pipewright-ported}
sample=(rustc_version pkg-config shared_child)

# Prints a line for each crate: name, version and words. `with=` is another crate to port, with which it exchanges
# commands. `but=` is a test that cannot pass, followed by the reason. Other words are arguments of `cargo test`.
list() {
    cat << 'END'
cc 1.11.3 with=find-msvc-tools
jobserver 0.1.35
autocfg 1.5.1 but=test_with_sysroot # looks for this crate without its dependencies
version_check 0.9.5
rustc_version 0.4.1
pkg-config 0.3.34
cmake 0.1.58
wait-timeout 0.2.1
shared_child 1.1.2
duct 1.1.2 with=shared_child with=os_pipe
os_pipe 1.2.3
tempfile 3.27.0
cargo_metadata 0.23.1
xshell 0.2.7 -- --skip compile_failures
command-group 5.0.1
command-fds 0.3.3 -- --skip inherited:: # takes the handles of other code in the process
opener 0.9.0
built 0.8.1
assert_cmd 2.2.2 with=wait-timeout but=src/cargo.rs.-.cargo.(line.30) # takes a std command from another crate
END
}

command -v perl > /dev/null || skip program:perl "changes the use lines"

wanted=("$@")
[ "${1:-}" != sample ] || wanted=("${sample[@]}")
[ $# -gt 0 ] || mapfile -t wanted < <(list | awk '{print $1}')

# Creates a package that depends on all of them, so that cargo fetches and unpacks them.
fetch() {
    mkdir -p "$cache/fetch/src"
    : > "$cache/fetch/src/lib.rs"
    {
        printf '[package]\nname = "fetch"\nversion = "0.0.0"\nedition = "2021"\n[workspace]\n[dependencies]\n'
        list | awk '{printf "%s = \"=%s\"\n", $1, $2}'
    } > "$cache/fetch/Cargo.toml.new"
    if ! cmp -s "$cache/fetch/Cargo.toml.new" "$cache/fetch/Cargo.toml" || [ ! -d "$cache/vendor" ]; then
        rm -rf "$cache/vendor"
        cp "$cache/fetch/Cargo.toml.new" "$cache/fetch/Cargo.toml"
        if ! cargo vendor -q --versioned-dirs --manifest-path "$cache/fetch/Cargo.toml" "$cache/vendor" \
            > /dev/null; then
            rm -rf "$cache/vendor"
            skip crates "cannot be downloaded"
        fi
    fi
}

# Copies a crate, as a workspace of its own.
unpack() { # SOURCE TARGET
    rm -rf "$2"
    mkdir -p "$(dirname "$2")"
    cp -r "$1" "$2"
    chmod -R u+w "$2"
    rm -f "$2/.cargo-checksum.json"
    grep -q '^\[workspace\]' "$2/Cargo.toml" || printf '\n[workspace]\n' >> "$2/Cargo.toml"
}

# Changes the `use` lines of files, or of stdin.
port_lines() { # FILE...
    perl -0p ${1+-i} -e '
        # `use std::{..., process::{...}, ...};` becomes two, on the same lines. Each is as public as it was.
        my $items = qr/(?<items>(?:[^{};]|(?<braces>\{(?:[^{}]|(?&braces))*\}))*)/;
        s{(?<pub>\bpub(?:\([^()]*\))?\s+)?\buse\s+(?<colons>::)?std::\{$items\};}{
            my ($pub, $colons, $rest, @ours) = ($+{pub} // "", $+{colons} // "", $+{items});
            my $item = qr/(?:\{(?:[^{}]|\{[^{}]*\})*\}|[^{},])+/;
            $rest =~ s{\b(unix|windows)::(\{(?:[^{}]|\{[^{}]*\})*\})}{
                my ($system, $group) = ($1, $2);
                $group =~ s/(?<![\w:])process\b($item?),?/push @ours, "process::$system$1"; ""/ge;
                "${system}::$group"
            }gse;
            $rest =~ s/(?:\bos::)?\b(unix|windows)::process\b($item?),?/push @ours, "process::$1$2"; ""/ge;
            $rest =~ s/(?<![\w:])process\b($item?)(?:,|(?=\s*$))/push @ours, "process$1"; ""/ge;
            join("", map { my $it = $_; $it =~ s{\s+}{ }g; "${pub}use pipewright::$it; " } @ours) .
                "${pub}use ${colons}std::{$rest};"
        }gse;
        s/\buse (std::os::unix::prelude::\*);/use $1; use pipewright::process::unix::CommandExt as _;/g;
        s/\bstd::os::(unix|windows)::process\b/pipewright::process::$1/g;
        s/\bstd::process\b/pipewright::process/g;
    ' "$@"
}

# The rules at a glance, checked before a crate is tried with them.
check_rules() {
    local before after
    before='pub use std::{io, process::{Child, Command}};
pub(crate) use std::{process, fmt};
use ::std::{os::unix::{fs::symlink, process::CommandExt}, io};
pub use std::process::ExitStatus;'
    after='pub use pipewright::process::{Child, Command}; pub use std::{io, };
pub(crate) use pipewright::process; pub(crate) use std::{ fmt};
use pipewright::process::unix::CommandExt; use ::std::{os::unix::{fs::symlink, }, io};
pub use pipewright::process::ExitStatus;'
    diff <(printf '%s' "$before" | port_lines) <(printf '%s' "$after") >&2 || {
        echo "the use lines are changed wrongly" >&2
        exit 1
    }
}

# Changes only the `use` lines.
port() { # FOLDER
    printf '\n[dependencies.pipewright]\npath = "%s/crates/pipewright"\n' "$root" >> "$1/Cargo.toml"
    local files
    # Skips files that the suites themselves compile, without any dependency.
    mapfile -t files < <(find "$1" -name '*.rs' -not -name build.rs -not -path '*/tests/data/*')
    port_lines "${files[@]}"
    # The edition 2015 requires `extern crate`.
    if ! grep -qE '^edition = "(2018|2021|2024)"' "$1/Cargo.toml"; then
        for file in "$1"/src/lib.rs "$1"/src/main.rs "$1"/{tests,examples,benches}/*.rs; do
            [ ! -f "$file" ] || printf '\nextern crate pipewright;\n' >> "$file"
        done
        perl -pi -e 's{^(\s*//[!/]\s*)use pipewright::}{$1extern crate pipewright; use pipewright::}' "${files[@]}"
    fi
}

# Prints the names of the tests that pass.
passed() { # FOLDER LOG ARGS...
    local folder=$1 log=$2
    shift 2
    # Lints of a later compiler only warn, as in a dependency.
    (cd "$folder" && RUSTFLAGS="--cap-lints=warn" cargo test --no-fail-fast --target-dir "$cache/target" "$@") \
        > "$log" 2>&1 || true
    { grep -aE '^test .* \.\.\. ok$' "$log" || true; } |
        sed -E 's/ - (compile|should panic) \.\.\. / ... /' | sort
}

check_rules
fetch
failed=()
for name in "${wanted[@]}"; do
    row=$(list | sed 's/ #.*//' | awk -v name="$name" '$1 == name')
    [ -n "$row" ] || { echo "$name is not on the list" >&2; exit 2; }
    began=$SECONDS
    stock=$cache/stock/$name ported=$cache/ported/$name
    arguments=() except='^$'
    read -r _ version words <<< "$row"
    unpack "$cache/vendor/$name-$version" "$stock"
    unpack "$cache/vendor/$name-$version" "$ported"
    port "$ported"
    for word in $words; do
        case $word in
            with=*)
                other=${word#with=}
                unpack "$(echo "$cache/vendor/$other"-[0-9]*)" "$cache/ported/$name.$other"
                port "$cache/ported/$name.$other"
                printf '\n[patch.crates-io.%s]\npath = "%s"\n' "$other" "$cache/ported/$name.$other" \
                    >> "$ported/Cargo.toml"
                ;;
            but=*) except="^test ${word#but=} " ;;
            *) arguments+=("$word") ;;
        esac
    done
    uses=$(grep -rhoE '\bpipewright::process\b' --include='*.rs' "$ported" | wc -l)
    passed "$stock" "$cache/$name.stock.log" "${arguments[@]}" | { grep -v "$except" || true; } > "$cache/$name.stock"
    [ ! -f "$stock/Cargo.lock" ] || cp "$stock/Cargo.lock" "$ported/Cargo.lock"
    passed "$ported" "$cache/$name.ported.log" "${arguments[@]}" > "$cache/$name.ported"
    count=$(wc -l < "$cache/$name.stock")
    missing=$(comm -23 "$cache/$name.stock" "$cache/$name.ported")
    if [ -n "$missing" ]; then
        # Some suites depend on timing, and fail now and then with std too.
        passed "$ported" "$cache/$name.ported.log" "${arguments[@]}" > "$cache/$name.ported"
        missing=$(comm -23 "$cache/$name.stock" "$cache/$name.ported")
    fi
    if [ "$count" = 0 ]; then
        echo "$name $version: the stock crate passes no test: see $cache/$name.stock.log"
        failed+=("$name")
    elif [ -n "$missing" ]; then
        echo "$name $version: $(wc -l <<< "$missing") of $count tests fail: see $cache/$name.ported.log"
        head -n 10 <<< "$missing"
        failed+=("$name")
    else
        echo "$name $version: $count tests pass as they do with std ($uses uses of the module, $((SECONDS - began)) s)"
    fi
done
[ ${#failed[@]} = 0 ] || { echo "different from the stock crates: ${failed[*]}" >&2; exit 1; }
