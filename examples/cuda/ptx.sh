#!/bin/sh
# Writes the PTX of every example's kernels beside its source: PTX ISA 7.0 for sm_80, so that drivers from CUDA 11 on
# load it. nvcc writes the newest ISA it knows; the line is set back, and ptxas says whether the code keeps to it.
# usage: ptx.sh [--out DIR] [NVCC]
set -eu

here=$(cd "$(dirname "$0")" && pwd)
out=$here
if [ "${1:-}" = --out ]; then
    out=${2:?"--out needs a value"}
    shift 2
fi
nvcc=${1:-nvcc}
ptxas=$(dirname "$(command -v "$nvcc")")/ptxas

mkdir -p "$out"
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
for source in "$here"/*.cu; do
    name=$(basename "$source" .cu)
    "$nvcc" -ptx -arch=compute_80 -o "$scratch/$name.ptx" "$source"
    # The compiler's own banner names a build of it, which is no part of the code.
    sed -e '/^\/\//d' -e '/^$/d' -e 's/^\.version .*/.version 7.0/' -e 's/^\.target .*/.target sm_80/' \
        "$scratch/$name.ptx" >"$scratch/$name.7"
    "$ptxas" -arch=sm_80 -o "$scratch/$name.cubin" "$scratch/$name.7"
    mv "$scratch/$name.7" "$out/$name.ptx"
done
