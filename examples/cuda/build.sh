#!/bin/sh
# Builds every example with nvcc, linked to libcudart as a shared object, or to a static library given by --static.
# usage: build.sh [--out DIR] [--static LIBRARY] [NVCC]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=$here/build
nvcc=nvcc
library=
while [ $# -gt 0 ]; do
    case $1 in
    --out | --static)
        [ $# -ge 2 ] || { echo "build.sh: $1 needs a value" >&2; exit 2; }
        if [ "$1" = --out ]; then out=$2; else library=$2; fi
        shift
        ;;
    -*) echo "build.sh: unknown option $1" >&2; exit 2 ;;
    *) nvcc=$1 ;;
    esac
    shift
done

mkdir -p "$out"
for source in "$here"/*.cu; do
    program=$out/$(basename "$source" .cu)
    if [ -n "$library" ]; then
        "$nvcc" -arch=sm_80 -cudart none -o "$program" "$source" "$library" -ldl -lpthread
    else
        "$nvcc" -arch=sm_80 -cudart shared -o "$program" "$source"
    fi
done
