#!/usr/bin/env bash
# Prints the bill of materials of the tool for a target, in CycloneDX 1.5 (JSON): `bash ci/sbom.sh TARGET`. The tree of
# cargo, with the features that the tool has, in one order and without a time: the same commit gives the same bytes.
# (cargo-cyclonedx writes a random number and the time, and into the source tree.)
set -euo pipefail
cd "$(dirname "$0")/.."

cargo tree --locked -p pipewright-cli -e normal,build --target "$1" --prefix depth --format ' {p}|{l}|{r}' |
    python3 -c '
import json, re, sys

parts, needs, above = {}, {}, []
for line in sys.stdin:
    # `2 name v1.2.3 (a path, or proc-macro)|licence|repository (*)`: below the last line with a smaller number.
    depth, name, version, licence, repository = re.match(r"(\d+) (\S+) v(\S+)[^|]*\|([^|]*)\|(\S*)", line).groups()
    purl = f"pkg:cargo/{name}@{version}"
    part = parts.setdefault(purl, {"type": "library", "bom-ref": purl, "name": name, "version": version, "purl": purl})
    part["licenses"] = [{"expression": licence.replace("/", " OR ")}]
    if repository:
        part["externalReferences"] = [{"type": "vcs", "url": repository}]
    del above[int(depth):]
    needs.setdefault(purl, set())
    if above:
        needs[above[-1]].add(purl)
    above.append(purl)

tool = parts.pop(above[0])
tool["type"] = "application"
json.dump({
    "bomFormat": "CycloneDX",
    "specVersion": "1.5",
    "version": 1,
    "metadata": {"component": tool, "properties": [{"name": "target", "value": sys.argv[1]}]},
    "components": [parts[it] for it in sorted(parts)],
    "dependencies": [{"ref": it, "dependsOn": sorted(needs[it])} for it in sorted(needs)],
}, sys.stdout, indent=1)
print()
' "$1"
