#!/bin/bash
# Build an image with the engine that is here: tools/image.sh [service|executor]
#   PYTHON_DIGEST, SPARK_DIGEST   digest of the base of that target, sha256:...; needed, never guessed
#   PYTHON_IMAGE, SPARK_IMAGE     another base than the Dockerfile names
#   TAG                           name of the result; unskew:<version> or unskew-executor:<version>
#   ENGINE                        docker, podman or buildah; else the first that works
set -euo pipefail
cd "$(dirname "$0")/.."

fail() { echo "unskew: $*" >&2; exit 1; }

# docker is often there as a client alone.
works() { command -v "$1" >/dev/null && "$1" info >/dev/null 2>&1; }

engine() {
    local one
    for one in ${ENGINE:-docker podman buildah}; do
        if works "$one"; then echo "$one"; return 0; fi
    done
    return 1
}

# The default of an ARG in the Dockerfile.
default_of() { sed -n "s/^ARG $1=//p" Dockerfile | head -n 1; }

target="${1:-service}"
case "$target" in
    service) base=PYTHON name=unskew ;;
    executor) base=SPARK name=unskew-executor ;;
    *) fail "no target '$target'; use service or executor" ;;
esac

image_of() { local name="$1_IMAGE"; echo "${!name:-$(default_of "$name")}"; }

found="$(engine)" || fail "no docker, podman or buildah answers here: install one, or" \
    "start its daemon (docker info says what it lacks)"

version="$(sed -n 's/^__version__ = "\(.*\)"$/\1/p' core/unskew/core/version.py)"
[ -n "$version" ] || fail "core/unskew/core/version.py has no version"
arguments=(--build-arg "VERSION=$version" --build-arg "REVISION=$(git rev-parse HEAD 2>/dev/null || echo unknown)")
# The wheel is built on Python's image for either target.
for one in PYTHON $([ "$base" = PYTHON ] || echo "$base"); do
    digest="${one}_DIGEST"
    [[ "${!digest:-}" =~ ^sha256:[0-9a-f]{64}$ ]] || fail "$digest is '${!digest:-}', not sha256: and 64 hex digits;" \
        "look it up: docker buildx imagetools inspect $(image_of "$one") (or: skopeo inspect docker://...)"
    arguments+=(--build-arg "${one}_IMAGE=$(image_of "$one")" --build-arg "$digest=${!digest}")
done

tag="${TAG:-$name:$version}"
options=(--file Dockerfile --target "$target" --tag "$tag")
# Podman and Buildah write OCI images, which have no health check.
case "$found" in
    docker) DOCKER_BUILDKIT=1 docker build "${options[@]}" "${arguments[@]}" . ;;
    *) "$found" build --format docker "${options[@]}" "${arguments[@]}" . ;;
esac
echo "$tag"
