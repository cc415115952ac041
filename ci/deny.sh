#!/usr/bin/env bash
# Checks what the dependencies are, by the rules of deny.toml: their licences and sources, in each of the four lock
# files. With cargo-deny (`cargo install --locked cargo-deny`), which knows all of the rules, it does so for the
# workspaces; `ci/deny.sh advisories` asks the database of known faults too, which is on the network. Exits with 77 if
# that is asked for and cargo-deny is missing.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

workspaces=(. python fuzz bench)
if command -v cargo-deny > /dev/null; then
    checks=(bans licenses sources)
    [ "${1:-}" != advisories ] || checks+=(advisories)
    for workspace in "${workspaces[@]}"; do
        say "$workspace: ${checks[*]}"
        cargo deny --manifest-path "$workspace/Cargo.toml" --all-features --locked check --config "$PWD/deny.toml" \
            --hide-inclusion-graph "${checks[@]}"
    done
    exit
fi
[ "${1:-}" != advisories ] || skip program:cargo-deny "knows the faults of dependencies"

command -v python3 > /dev/null || skip program:python3 "reads the lock files"
python3 -c 'import tomllib' 2> /dev/null || skip version:python3:3.11 "reads the lock files"
# The benchmarks and the fuzz targets are given to nobody: only the sources of what they compile count, which the lock
# files name.
for workspace in . python; do
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
