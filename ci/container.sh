#!/usr/bin/env bash
# Builds the container image of the recipe `Containerfile` from the archives of ci/release.sh: `ci/container.sh` lays
# its files out in target/container, and tries them as the whole of a root in a namespace. `ci/container.sh build NAME`
# builds the image with docker for this processor, and `ci/container.sh push NAME` for each, and pushes it. Exits with
# 77 if that is not possible.
set -euo pipefail
cd "$(dirname "$0")/.."
. ci/machine.sh

target=$(realpath -m "${CARGO_TARGET_DIR:-target}")
version=$(sed -n 's/^version = "\(.*\)"/\1/p' Cargo.toml | head -n 1)
out=$target/container
rm -rf "$out"
platforms=()
for pair in amd64:x86_64 arm64:aarch64; do
    archive=$target/release-archives/pipewright-$version-${pair#*:}-unknown-linux-musl
    [ -e "$archive.tar.gz" ] || continue
    root=$out/${pair%:*}
    mkdir -p "$root/usr/bin" "$root/licences"
    tar -xzf "$archive.tar.gz" -C "$out"
    mv "$out/${archive##*/}/pipewright" "$root/usr/bin/"
    mv "$out/${archive##*/}"/LICENSE-* "$out/${archive##*/}/pipewright.cdx.json" "$root/licences/"
    rm -r "${out:?}/${archive##*/}"
    platforms+=("linux/${pair%:*}")
done
[ ${#platforms[@]} != 0 ] || fail "no archive for Linux is in $target/release-archives: bash ci/release.sh first"

case ${1:-} in
    build)
        docker version > /dev/null 2>&1 || skip program:docker "builds images"
        DOCKER_BUILDKIT=1 docker build --file Containerfile --tag "${2:?a name}:$version" "$out" ;;
    push)
        docker buildx version > /dev/null 2>&1 || skip program:docker "builds images"
        docker buildx build --file Containerfile --platform "$(IFS=,; echo "${platforms[*]}")" \
            --tag "${2:?a name}:$version" --tag "$2:latest" --provenance=true --sbom=true --push "$out" ;;
    *)
        case $(uname -m) in
            x86_64) root=$out/amd64 ;;
            aarch64) root=$out/arm64 ;;
            *) skip linux-x86-64 "runs the tool of the image" ;;
        esac
        unshare --pid --fork --mount true 2> /dev/null || skip pidns "runs the tool of the image"
        # As an engine does: a root that is empty but for /proc and /dev/null, where the tool is the first process.
        mkdir -p "$root/proc" "$root/dev"
        : > "$root/dev/null"
        inside() {
            unshare --pid --fork --kill-child --mount sh -c \
                'mount -t proc none "$1/proc" && mount --bind /dev/null "$1/dev/null" && exec chroot "$@"' \
                sh "$root" "$@"
        }
        code=0
        # A command that lives on, below one that is stopped: the code is that of a timeout, and nothing is left.
        output=$(inside /usr/bin/pipewright run --timeout 500ms --report - -- \
            /usr/bin/pipewright run -- /usr/bin/pipewright bench pipes) || code=$?
        [ "$code" = 124 ] && grep -q '"outcome":"timed_out"' <<< "$output" ||
            fail "the tool exited with $code and printed: $output"
        [ "$(inside /usr/bin/pipewright batch --progress none -- /usr/bin/pipewright ::: --version --version |
            sort -u)" = "pipewright $version" ] ||
            fail "a batch has other output"
        rm -r "$root/proc" "$root/dev"
        say "$(stat -c %s "$root/usr/bin/pipewright") bytes are a whole image, and its first process" ;;
esac
