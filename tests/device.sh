#!/usr/bin/env bash
# Runs the example programs on a real GPU under `migm run` and compares what the interposer counted with what
# each program says it allocated. Needs a driver; nvcc (MIGM_NVCC or on PATH) adds the CUDA C builds.
# Changes nothing on the GPU: no mode, no clocks, no reset. Under five minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
out="${1:-$(mktemp -d)}"
mkdir -p "$out"
nvidia-smi --query-gpu=name,driver_version,mig.mode.current --format=csv,noheader
cargo build --release --quiet
migm=target/release/migm

failed=0
row() { # name, command...
    local name="$1" report="$out/$1.json" text="$out/$1.txt" status=0
    shift
    timeout 60 "$migm" run --name "$name" --report "$report" -- "$@" >"$text" 2>"$out/$name.err" || status=$?
    local said counted
    said="$(sed -n 's/.*peak \([0-9]*\) bytes.*/\1/p' "$text" | tail -n 1)"
    counted="$(sed -n 's/^ *"peak_bytes": \([0-9]*\).*/\1/p' "$report" 2>/dev/null | head -n 1)"
    local verdict=equal
    [ "$status" -eq 0 ] && [ -n "$said" ] && [ "$said" = "$counted" ] || { verdict=DIFFERS; failed=$((failed + 1)); }
    printf '%-22s %6s %16s %16s  %s\n' "$name" "$status" "${said:--}" "${counted:--}" "$verdict"
}

printf '%-22s %6s %16s %16s\n' program status allocated counted
programs="stencil lu bfs align kmeans nearest boxes diffusion sort particles decoder jumper convex leak"
for program in $programs; do
    row "$program" "$migm" play "$program" --iterations 10
done

nvcc="${MIGM_NVCC:-$(command -v nvcc || true)}"
if [ -n "$nvcc" ]; then
    for linkage in shared static; do
        mkdir -p "$out/$linkage"
        for program in $programs; do
            "$nvcc" -O2 -cudart "$linkage" -o "$out/$linkage/$program" "examples/cuda/$program.cu"
            row "$program-$linkage" "$out/$linkage/$program" --iterations 10
        done
    done
else
    echo "no nvcc: the CUDA C builds are left out"
fi
echo "reports are in $out"
exit "$((failed > 0))"
