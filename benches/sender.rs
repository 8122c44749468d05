//! What a preload takes beside the hooks: the CPU time of its own threads and its memory, in a process that
//! allocates 100,000 times a second.
//!
//! ```text
//! cargo bench --bench sender [-- [--peer NAME=PATH.so]...]
//! ```

mod quiet;

use std::fs;
use std::time::{Duration, Instant};

use quiet::{Place, Spread, numbers, shown};

type Alloc = unsafe extern "C" fn(*mut u64, usize) -> i32;
type Free = unsafe extern "C" fn(u64) -> i32;
type Plain = unsafe extern "C" fn() -> i32;

const ROUNDS: usize = 5;
/// Pairs of an allocation and a free in each millisecond.
const PAIRS: usize = 100;
const SECONDS: u64 = 2;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, live] = &arguments[..]
        && mode == "--child"
    {
        return child(live.parse().expect("a count"));
    }
    let place = Place::new();
    let preloads = quiet::preloads();
    println!(
        "per process at 100,000 allocations and 1,000 iteration marks a second, median [10 % 90 %] of {ROUNDS}"
    );
    println!("own threads: CPU time of all threads but the program's; memory: proportional share (PSS)\n");
    println!("live     preload     own threads, % of a core   memory, KiB              added, KiB");
    for live in [0, 1_000, 100_000] {
        let mut runs = vec![Vec::new(); preloads.len()];
        for _ in 0..ROUNDS {
            for (runs, preload) in runs.iter_mut().zip(&preloads) {
                let mut command = place.command(quiet::own(), preload);
                command.args(["--child", &live.to_string()]);
                runs.extend(numbers(&mut command, Duration::from_secs(60)));
            }
        }
        let column =
            |run: usize, at: usize| -> Vec<f64> { runs[run].iter().map(|run: &Vec<f64>| run[at]).collect() };
        for (index, preload) in preloads.iter().enumerate() {
            println!(
                "{live:7}  {:10}  {:25}  {:23}  {}",
                preload.name,
                shown(Spread::of(&column(index, 0)), 2),
                shown(Spread::of(&column(index, 1)), 0),
                shown(Spread::of_difference(&column(index, 1), &column(0, 1)), 0)
            );
        }
    }
}

/// Prints the share of a core that other threads of this process took, in percent, and its memory in KiB.
fn child(live: usize) {
    // SAFETY: the driver built for this benchmark has no initialisers.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.expect("the driver");
    // SAFETY: the driver defines the function with this type.
    let alloc = *unsafe { library.get::<Alloc>(b"cuMemAlloc_v2") }.expect("cuMemAlloc");
    // SAFETY: the driver defines the function with this type.
    let free = *unsafe { library.get::<Free>(b"cuMemFree_v2") }.expect("cuMemFree");
    // SAFETY: the driver defines the function with this type.
    let synchronize = *unsafe { library.get::<Plain>(b"cuCtxSynchronize") }.expect("cuCtxSynchronize");
    let allocate = || {
        let mut pointer = 0;
        // SAFETY: `pointer` is a place to write to.
        assert_eq!(unsafe { alloc(&raw mut pointer, 2 << 20) }, 0);
        pointer
    };
    for _ in 0..live {
        allocate();
    }
    let (begun, before) = (Instant::now(), others_ns());
    let mut round = begun;
    while begun.elapsed() < Duration::from_secs(SECONDS) {
        for _ in 0..PAIRS {
            // SAFETY: the address was just handed out.
            unsafe { free(allocate()) };
        }
        // SAFETY: it takes nothing.
        unsafe { synchronize() };
        round += Duration::from_millis(1);
        std::thread::sleep(round.saturating_duration_since(Instant::now()));
    }
    let share = (others_ns() - before) / begun.elapsed().as_secs_f64() / 1e9 * 100.0;
    println!("{share} {}", memory());
}

/// CPU time of all threads but this one, which is the first.
fn others_ns() -> f64 {
    let tasks = fs::read_dir("/proc/self/task").expect("the threads");
    let others = tasks
        .map(|task| task.expect("a thread"))
        .filter(|task| task.file_name().to_string_lossy() != std::process::id().to_string());
    let spent = others.map(|task| {
        // The first number is the time on a processor, in nanoseconds.
        let text = fs::read_to_string(task.path().join("schedstat")).unwrap_or_default();
        text.split_whitespace()
            .next()
            .and_then(|word| word.parse::<f64>().ok())
            .unwrap_or(0.0)
    });
    spent.sum()
}

fn memory() -> f64 {
    let text = fs::read_to_string("/proc/self/smaps_rollup").expect("the kernel tells");
    let line = text
        .lines()
        .find_map(|line| line.strip_prefix("Pss:"))
        .expect("a line");
    let number = line.trim().trim_end_matches("kB").trim();
    number.parse().expect("a number")
}
