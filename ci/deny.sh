#!/usr/bin/env bash
# Checks what the dependencies are, by the rules of deny.toml: their licences and sources, in each of the four lock
# files. With cargo-deny, which knows all of the rules, it does so for the workspaces; without it, `ci/deny.sh all`
# builds one, which is kept in a cache. `ci/deny.sh advisories` asks the database of known faults too, which is on the
# network. Exits with 77 if cargo-deny is missing for that, or cannot be built.
set -euo pipefail
cd "$(dirname "$0")/.."
cache=${PIPEWRIGHT_DENY_CACHE:-$HOME/.cache/pipewright-deny}
. ci/machine.sh

version=0.20.2
workspaces=(. python fuzz bench)
fetch_deny() {
    [ ! -d "$cache/cargo-deny-$version" ] || return 0
    say "building cargo-deny $version"
    # What it finds does not depend on the optimization, which takes most of the time.
    CARGO_PROFILE_RELEASE_OPT_LEVEL=1 CARGO_PROFILE_RELEASE_LTO=off CARGO_TARGET_DIR=$new/target \
        cargo install cargo-deny --quiet --locked --version "$version" --root "$new/root" > "$new/log" 2>&1 ||
        { tail -n 3 "$new/log" >&2; skip crates "cargo-deny $version cannot be built"; }
    mv "$new/root" "$cache/cargo-deny-$version"
}
if [ "${1:-}" = all ] && ! command -v cargo-deny > /dev/null; then
    [ -d "$cache/cargo-deny-$version" ] || alone fetch_deny
    PATH=$cache/cargo-deny-$version/bin:$PATH
fi
# The benchmarks and the fuzz targets are given to nobody: their licences do not count.
given=(. python)
if command -v cargo-deny > /dev/null; then
    for workspace in "${workspaces[@]}"; do
        checks=(bans sources)
        [[ " ${given[*]} " != *" $workspace "* ]] || checks+=(licenses)
        [ "${1:-}" != advisories ] || checks+=(advisories)
        say "$workspace: ${checks[*]}"
        cargo deny --manifest-path "$workspace/Cargo.toml" --all-features --locked --config deny.toml \
            check --hide-inclusion-graph "${checks[@]}"
    done
    exit
fi
[ "${1:-}" != advisories ] || skip program:cargo-deny "knows the faults of dependencies"

command -v python3 > /dev/null || skip program:python3 "reads the lock files"
python3 -c 'import tomllib' 2> /dev/null || skip version:python3:3.11 "reads the lock files"
for workspace in "${given[@]}"; do
    cargo metadata --locked --format-version 1 --all-features --manifest-path "$workspace/Cargo.toml"
done | python3 -c '
import json, re, sys, tomllib

rules = tomllib.load(open("deny.toml", "rb"))
allowed, wrong, registries, count = set(rules["licenses"]["allow"]), [], set(), 0
for workspace in sys.argv[1:]:
    for package in tomllib.load(open(f"{workspace}/Cargo.lock", "rb"))["package"]:
        registries.add(package.get("source", "here"))
        if not package.get("source", "registry+").startswith("registry+"):
            wrong.append("{}: {name} {version} is from {source}".format(workspace, **package))
        for rule in rules["bans"]["deny"]:
            if rule["name"] == package["name"] and "version" not in rule:
                wrong.append("{}: {name} {version} is refused".format(workspace, **package))
if len(registries - {"here"}) > 1:
    wrong.append(f"more than one registry: {registries}")

def fits(licence):
    # An expression of names: as one of Python, with the names that are allowed. `a/b` is an old way to write `a OR b`.
    word = lambda found: {"OR": "or", "AND": "and"}.get(found[0], str(found[0] in allowed))
    return eval(re.sub(r"[\w.+-]+( WITH [\w.-]+)?", word, licence.replace("/", " OR ") or "none"))

for line in sys.stdin:
    for package in json.loads(line)["packages"]:
        count += 1
        if not fits(package["license"] or ""):
            wrong.append("{name} {version}: {license}".format(**package))
if wrong:
    sys.exit("deny.toml does not allow:\n" + "\n".join(sorted(set(wrong))))
print(f"{count} packages have licences and sources that deny.toml allows")
' "${workspaces[@]}"
echo "SKIPPED need=program:cargo-deny ci/deny.sh: the other rules of deny.toml"
