#!/usr/bin/env bash
# Checks the interposer on the GPU of this machine, or where there is none on a simulated one, and prints a table:
# pointer identity of each hooked name, the conformance suite, the example programs with both kinds of runtime,
# PyTorch, and the time that is added. What cannot run here is a row that says so.
#
# usage: tests/device.sh [FOLDER]   reports and logs go there; a fresh folder if none is given
# Needs cargo and cc; MIGM_PROFILE=dev takes the debug build; MIGM_NVCC (else nvcc on PATH) adds the CUDA C programs, MIGM_PYTHON (else python3) PyTorch.
# Changes nothing on the GPU: no mode, no clocks, no reset, and no managed memory to speak of. Under eight minutes.
set -euo pipefail
cd "$(dirname "$0")/.."
root=$PWD
out="${1:-$(mktemp -d)}"
mkdir -p "$out"
started=$(date +%s)
failed=0 left_out=0

row() { # section, row, verdict, note
    printf '%-12s %-42.42s %-9s %s\n' "$1" "$2" "$3" "${4:-}"
    case $3 in
    FAILS | DIFFERS) failed=$((failed + 1)) ;;
    'left out') left_out=$((left_out + 1)) ;;
    esac
}

# One program, for a while that no program here needs; its output in files named after it.
bounded() { # seconds, name, command...
    local seconds=$1 name=$2 status=0
    shift 2
    timeout "$seconds" "$@" >"$out/$name.out" 2>"$out/$name.err" || status=$?
    return "$status"
}

export CARGO_TERM_COLOR=never
# What is checked must not depend on what ran here before.
export MIGM_HISTORY=off
profile="${MIGM_PROFILE:-release}"
built=$root/target/$([ "$profile" = dev ] && echo debug || echo "$profile")
# At once: apart, cargo would build the crates that both need twice, with other features.
suite="$(cargo build --workspace --profile "$profile" --quiet --lib --bins --test conformance --message-format=json |
    sed -n 's/.*"executable":"\([^"]*\/conformance-[^"]*\)".*/\1/p' | tail -n 1)"
migm=$built/migm
# Cargo puts a binary that is up to date in place with its old time; the suite takes an old one for stale.
touch "$migm"
preload=$built/libmigm_interposer.so

printf '%-12s %-42s %-9s %s\n' section row verdict note
if command -v nvidia-smi >/dev/null && gpu="$(nvidia-smi --query-gpu=name,driver_version,mig.mode.current --format=csv,noheader 2>/dev/null)"; then
    export DRIVER=real
    row gpu real "found" "$(head -n 1 <<<"$gpu")"
else
    export DRIVER=sim
    eval "$("$migm" sim env --time-scale 0.01)"
    row gpu simulated "found" "no NVIDIA driver here"
fi

# 1. Which addresses the driver hands out, and whether both ways lead to the hooks.
cc -O2 -o "$out/identity" tests/conformance/identity.c -ldl
sed -n 's/^ *fn \(cu[A-Za-z0-9_]*\) = (c"\([A-Za-z0-9_]*\)", *\([0-9]*\), \(Legacy\|PerThread\)).*/\2 \3 \4 \1/p' \
    interposer/src/hooks/*.rs | sed 's/ Legacy / 1 /; s/ PerThread / 2 /' >"$out/names"
if bounded 30 identity-plain "$out/identity" <"$out/names"; then
    LD_PRELOAD=$preload bounded 30 identity-hooked "$out/identity" <"$out/names" || true
    while read -r name by_name by_proc same hooked_name hooked_proc; do
        verdict=same
        [ "$same" = same ] || verdict=two
        for pair in "$by_name $hooked_name" "$by_proc $hooked_proc"; do
            case $pair in
            'absent absent') ;;
            absent\ * | *\ absent) verdict=DIFFERS ;;
            *\ libmigm_interposer.so) ;;
            *) verdict=FAILS ;;
            esac
        done
        [ "$by_name $by_proc" != 'absent absent' ] || verdict=absent
        row identity "$name" "$verdict" "$by_name, $by_proc"
    done < <(paste -d ' ' "$out/identity-plain.out" <(cut -d ' ' -f 2,3 "$out/identity-hooked.out"))
else
    row identity all "left out" "$(tail -n 1 "$out/identity-plain.err")"
fi

# 2. The conformance suite, PyTorch among it. One test at a time: they compare with what the device has free.
threads=$([ "$DRIVER" = real ] && echo 1 || nproc)
bounded 240 conformance "$suite" --test-threads="$threads" || true
while read -r _ name _ verdict; do
    why="$(sed -n "s/^left out: $name: //p" "$out/conformance.err" | head -n 1)"
    case $verdict in
    ok) row conformance "${name##*::}" "$([ -n "$why" ] && echo 'left out' || echo equal)" "$why" ;;
    *) row conformance "${name##*::}" FAILS "$out/conformance.out" ;;
    esac
done < <(grep -E '^test .* \.\.\. ' "$out/conformance.out" || true)
grep -q '^test result' "$out/conformance.out" || row conformance all FAILS "$(tail -n 1 "$out/conformance.err")"

# 3. The example programs: what each says it allocated, and what was counted.
example() { # name, command...
    local name=$1 report=$out/$1.json status=0 said counted
    shift
    bounded 60 "$name" "$migm" run --name "$name" --report "$report" -- "$@" || status=$?
    said="$(sed -n 's/.*peak \([0-9]*\) bytes.*/\1/p' "$out/$name.out" | tail -n 1)"
    counted="$(sed -n 's/^ *"peak_bytes": \([0-9]*\).*/\1/p' "$report" 2>/dev/null | head -n 1)"
    if [ "$status" -eq 0 ] && [ -n "$said" ] && [ "$said" = "$counted" ]; then
        row examples "$name" equal "$said bytes"
    else
        row examples "$name" DIFFERS "status $status, ${said:--} said, ${counted:--} counted"
    fi
}
programs="stencil lu bfs align kmeans nearest boxes diffusion sort particles decoder jumper convex leak"
for program in $programs; do
    example "$program" "$migm" play "$program" --iterations 10
done
nvcc="${MIGM_NVCC:-$(command -v nvcc || true)}"
if [ -z "$nvcc" ]; then
    row examples "CUDA C, shared and static" 'left out' "no nvcc in MIGM_NVCC or PATH"
else
    # The simulated driver stops NVIDIA's own runtime; its static stand-in is this workspace's.
    static="$(ls -t "$built"/libsimgpu_runtime*.a "$built"/deps/libsimgpu_runtime*.a 2>/dev/null | head -n 1 || true)"
    for linkage in shared static; do
        mkdir -p "$out/$linkage"
        # nvcc's own runtime is found beside it; on the simulated driver this workspace's goes first.
        flags=(-cudart "$linkage") tail=(-Xlinker "-rpath=$(dirname "$nvcc")/../lib64")
        if [ "$DRIVER" = sim ] && [ "$linkage" = static ]; then
            flags=(-cudart none) tail=("$static" -ldl -lpthread)
        fi
        for program in $programs; do
            "$nvcc" -O2 -arch=sm_80 "${flags[@]}" -o "$out/$linkage/$program" "examples/cuda/$program.cu" "${tail[@]}"
            example "$program-$linkage" "$out/$linkage/$program" --iterations 10
        done
    done
fi

# 4. Time that is added. On the simulated driver it says how the hooks compare with that, not with a GPU.
cc -O2 -o "$out/cost" tests/conformance/cost.c -ldl
for bytes in 1000 4194304; do
    if bounded 60 "cost-$bytes-plain" "$out/cost" "$bytes"; then
        LD_PRELOAD=$preload bounded 60 "cost-$bytes-hooked" "$out/cost" "$bytes"
        row time "allocate and free $bytes bytes" measured \
            "$(cat "$out/cost-$bytes-plain.out") ns without, $(cat "$out/cost-$bytes-hooked.out") ns with"
    else
        row time "allocate and free $bytes bytes" 'left out' "$(tail -n 1 "$out/cost-$bytes-plain.err")"
    fi
done
python="${MIGM_PYTHON:-python3}"
if [ "$DRIVER" = sim ]; then
    row time "a training step" 'left out' "PyTorch needs a real driver"
elif bounded 60 step-plain "$python" tests/conformance/training.py time; then
    LD_PRELOAD=$preload bounded 60 step-hooked "$python" tests/conformance/training.py time
    row time "a training step" measured "$(cat "$out/step-plain.out") s without, $(cat "$out/step-hooked.out") s with"
else
    row time "a training step" 'left out' "$(tail -n 1 "$out/step-plain.err")"
fi

echo "$failed failed, $left_out left out, $(($(date +%s) - started)) s; reports are in $out"
exit "$((failed > 0))"
