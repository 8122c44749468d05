//! PyTorch on a real device: at each step the page must show what PyTorch's own allocator says, reserved and
//! allocated. Left out where there is no PyTorch, no device for it, or where the driver is the simulated one.

use std::path::Path;

use crate::peer::{Manner, Peer};
use crate::programs::{Bench, Running, built, is_real, leave_out, source};

/// `at LABEL reserved=N allocated=N`
fn parse(line: &str) -> (&str, u64, u64) {
    let mut words = line.strip_prefix("at ").unwrap().split(' ');
    let label = words.next().unwrap();
    let mut number = |name: &str| {
        let word = words.next().unwrap();
        let value = word.strip_prefix(name).and_then(|rest| rest.strip_prefix('='));
        value.unwrap().parse().unwrap()
    };
    (label, number("reserved"), number("allocated"))
}

fn follow(name: &str, mode: &str, allocator: &str) {
    if !is_real() {
        return leave_out(&format!("PyTorch, {name}: it needs a real driver"));
    }
    let (bench, peer) = (Bench::new(), Peer::new(Manner::GivesPage));
    let python = std::env::var_os("MIGM_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = bench.command(Path::new(&python));
    command
        .arg(source("training.py"))
        .arg(mode)
        .env("LD_PRELOAD", built("libmigm_interposer.so"))
        .env("MIGM_SOCKET", peer.path())
        .env("MIGM_ATTEMPT", "1.1.1")
        .env("PYTORCH_CUDA_ALLOC_CONF", allocator);
    let mut running = Running::start(command);
    // cuBLAS and its like allocate beside PyTorch: what the page has more at the first step is theirs, and stays.
    let (mut others, mut steps) = (None, 0);
    while let Some(line) = running.line() {
        if !line.starts_with("at ") {
            continue;
        }
        let (label, reserved, allocated) = parse(&line);
        let readings = peer.page.read();
        let counted: u64 = readings.iter().map(|reading| reading.reserved).sum();
        let others = *others.get_or_insert_with(|| counted.saturating_sub(reserved));
        assert_eq!(counted - others, reserved, "{name}, {label}: reserved");
        let told: Option<u64> = readings.iter().map(|reading| reading.allocated).sum();
        assert_eq!(told, Some(allocated), "{name}, {label}: allocated");
        steps += 1;
        running.go();
    }
    let ended = running.end();
    if ended.status == Some(77) {
        return leave_out(&format!("PyTorch, {name}: {}", ended.stderr.trim()));
    }
    assert_eq!(ended.status, Some(0), "{name}: {}", ended.stderr);
    assert!(steps > 2, "{name}: {steps} steps");
}

#[test]
fn a_training_step_has_what_pytorch_says() {
    follow("training", "training", "");
}

#[test]
fn a_growing_cache_has_what_pytorch_says() {
    follow("generation", "generation", "");
}

#[test]
fn expandable_segments_are_counted_by_reference() {
    follow("expandable segments", "generation", "expandable_segments:True");
}

#[test]
fn a_captured_graph_has_what_pytorch_says() {
    follow("graph capture", "graph", "");
}

/// With this backend PyTorch reports the pool's figures; what it allocated is then what the stream-ordered calls asked
/// for, and its reserve is the driver's, which no call shows.
#[test]
fn the_asynchronous_backend_runs_under_the_hooks() {
    if !is_real() {
        return leave_out("PyTorch, cudaMallocAsync: it needs a real driver");
    }
    let (bench, peer) = (Bench::new(), Peer::new(Manner::GivesPage));
    let python = std::env::var_os("MIGM_PYTHON").unwrap_or_else(|| "python3".into());
    let mut command = bench.command(Path::new(&python));
    command
        .arg(source("training.py"))
        .arg("training")
        .env("LD_PRELOAD", built("libmigm_interposer.so"))
        .env("MIGM_SOCKET", peer.path())
        .env("MIGM_ATTEMPT", "1.1.1")
        .env("PYTORCH_CUDA_ALLOC_CONF", "backend:cudaMallocAsync");
    let mut running = Running::start(command);
    let mut others = None;
    while let Some(line) = running.line() {
        if !line.starts_with("at ") {
            continue;
        }
        let (label, _, allocated) = parse(&line);
        let counted: u64 = peer.page.read().iter().map(|reading| reading.reserved).sum();
        let others = *others.get_or_insert_with(|| counted.saturating_sub(allocated));
        // The backend rounds no request; the pool's own rounding to 512 bytes is in its figure.
        let difference = (counted - others).abs_diff(allocated);
        assert!(
            difference < 1 << 20,
            "{label}: {counted} - {others}, not {allocated}"
        );
        running.go();
    }
    let ended = running.end();
    if ended.status == Some(77) {
        return leave_out(&format!("PyTorch, cudaMallocAsync: {}", ended.stderr.trim()));
    }
    assert_eq!(ended.status, Some(0), "{}", ended.stderr);
}
