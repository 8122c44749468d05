"""PyTorch at work: after each step, what its allocator says it has.

usage: training.py MODE, one of training, generation, graph, time
Prints "at LABEL reserved=BYTES allocated=BYTES" and, with STEPS=1, waits for a byte on standard input; "time" prints
seconds of a training step instead. Status 77: no PyTorch, or no device for it. What the allocator is like comes
from PYTORCH_CUDA_ALLOC_CONF.
"""

import os
import sys
import time

try:
    import torch
except ImportError:
    print("left out: no PyTorch", file=sys.stderr)
    sys.exit(77)
if not torch.cuda.is_available():
    print("left out: PyTorch finds no device", file=sys.stderr)
    sys.exit(77)


def step(label):
    torch.cuda.synchronize()
    reserved, allocated = torch.cuda.memory_reserved(), torch.cuda.memory_allocated()
    print(f"at {label} reserved={reserved} allocated={allocated}", flush=True)
    if os.environ.get("STEPS") and not sys.stdin.buffer.raw.read(1):
        sys.exit(3)


def model_and_optimizer():
    torch.manual_seed(1)
    layers = [torch.nn.Linear(1024, 4096), torch.nn.ReLU(), torch.nn.Linear(4096, 1024)]
    model = torch.nn.Sequential(*layers).cuda()
    return model, torch.optim.Adam(model.parameters())


def train(model, optimizer, batch):
    optimizer.zero_grad(set_to_none=True)
    loss = model(torch.randn(batch, 1024, device="cuda")).square().mean()
    loss.backward()
    optimizer.step()


def training():
    model, optimizer = model_and_optimizer()
    # Libraries make what is theirs before the first comparison.
    train(model, optimizer, 64)
    step("start")
    for number, batch in enumerate([64, 256, 1024, 128, 2048]):
        train(model, optimizer, batch)
        step(f"training_{number}")
    torch.cuda.empty_cache()
    step("cache_emptied")


def generation():
    query = torch.randn(8, 64, 1, 128, device="cuda", dtype=torch.float16)
    keys = torch.randn(8, 64, 16, 128, device="cuda", dtype=torch.float16)
    query @ keys.transpose(2, 3)
    step("start")
    for token in range(1, 257):
        more = torch.randn(8, 64, 4, 128, device="cuda", dtype=torch.float16)
        keys = torch.cat([keys, more], dim=2)
        (query @ keys.transpose(2, 3)).softmax(-1)
        if token % 16 == 0:
            step(f"token_{token}")
    del keys, more
    torch.cuda.empty_cache()
    step("cache_emptied")


def graph():
    model, _ = model_and_optimizer()
    batch = torch.randn(256, 1024, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        for _ in range(3):
            model(batch)
    torch.cuda.synchronize()
    step("start")
    captured = torch.cuda.CUDAGraph()
    with torch.cuda.graph(captured), torch.no_grad():
        model(batch)
    step("captured")
    for _ in range(3):
        captured.replay()
    step("replayed")
    del captured
    torch.cuda.empty_cache()
    step("cache_emptied")


def timed():
    model, optimizer = model_and_optimizer()
    for _ in range(20):
        train(model, optimizer, 256)
    seconds = []
    for _ in range(100):
        torch.cuda.synchronize()
        start = time.perf_counter()
        train(model, optimizer, 256)
        torch.cuda.synchronize()
        seconds.append(time.perf_counter() - start)
    print(f"{sorted(seconds)[50]:.9f}")


MODES = {"training": training, "generation": generation, "graph": graph, "time": timed}
if len(sys.argv) != 2 or sys.argv[1] not in MODES:
    print(__doc__, file=sys.stderr)
    sys.exit(2)
MODES[sys.argv[1]]()
