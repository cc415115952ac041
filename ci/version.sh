#!/usr/bin/env bash
# Checks that all packages have one version, and one address of the repository: `bash ci/version.sh`. `ci/version.sh set
# VERSION` and
# `ci/version.sh repository ADDRESS` write it everywhere.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

manifests=(Cargo.toml python/Cargo.toml)
case ${1:-} in
    set)
        old=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
        sed -i "s/\"\\(=\\?\\)${old//./\\.}\"/\"\\1$2\"/" "${manifests[@]}" clients/node/package.json
        sed -i "s/^__version__ = .*/__version__ = \"$2\"/" python/pipewright/__init__.py
        for workspace in . python fuzz bench; do
            cargo update --quiet --workspace --offline --manifest-path "$workspace/Cargo.toml"
        done ;;
    repository)
        sed -i "s|^repository = .*|repository = \"$2\"|" Cargo.toml
        sed -i '/^\[project.urls\]$/,/^$/d' python/pyproject.toml
        urls="[project.urls]\nRepository = \"$2\"\nChangelog = \"$2/blob/main/CHANGELOG.md\""
        sed -i "s|^# .*repository ADDRESS.*|&\n\n$urls|" python/pyproject.toml
        sed -i "s|\"url\": \".*\"|\"url\": \"git+$2.git\"|" clients/node/package.json ;;
esac

python3 - << 'END'
import json, re, sys

# Not a parser of TOML: the oldest Python has none.
text = lambda path: open(path, encoding="utf-8").read()
one = lambda pattern, path: (re.search(pattern, text(path), re.M) or [None, ""])[1]
node = json.loads(text("clients/node/package.json"))
version = one(r'^version = "(.*)"', "Cargo.toml")
versions = {
    "python/Cargo.toml": one(r'^version = "(.*)"', "python/Cargo.toml"),
    "python/pipewright/__init__.py": one(r'^__version__ = "(.*)"', "python/pipewright/__init__.py"),
    "clients/node/package.json": node["version"],
    **{
        f"Cargo.toml: {name}": found
        for name, found in re.findall(r'^(pipewright\S*) = .*version = "=(.*?)"', text("Cargo.toml"), re.M)
    },
}
repository = one(r'^repository = "(.*)"', "Cargo.toml")
addresses = {
    "python/pyproject.toml": one(r'^Repository = "(.*)"', "python/pyproject.toml"),
    "clients/node/package.json": re.sub(r"^git\+|\.git$", "", node["repository"]["url"]),
}
wrong = [f"{place}: {found}, and not {version}" for place, found in versions.items() if found != version]
wrong += [f"{place}: {found!r}, and not {repository!r}" for place, found in addresses.items() if found != repository]
if wrong:
    sys.exit("\n".join(wrong))
print(f"all packages have version {version}, and the repository {repository!r}")
END
