//! What the hooks cost: CPU time, latency and instructions of one `cuMemAlloc` and `cuMemFree` pair.
//!
//! The driver underneath does next to nothing, so what is left is the cost of the hooks. The benchmark runs
//! itself as child processes, without a preload and with one, in turns. It takes CPU time, not wall time, so
//! that a busy machine disturbs it less. Instructions are counted by callgrind, where valgrind is found; they
//! repeat to the last one, and a count above the ceiling fails the benchmark.
//!
//! ```text
//! cargo bench --bench hook_cost [-- [--instructions] [--peer NAME=PATH.so]...]
//! ```

mod quiet;

use std::process::{Command, ExitCode};
use std::sync::Barrier;
use std::sync::atomic::{AtomicU64, Ordering::Relaxed};
use std::time::{Duration, Instant};

use migm_shared::page::CounterPage;
use quiet::{Place, Preload, Spread, cpu_ns, numbers, shown};

type Alloc = unsafe extern "C" fn(*mut u64, usize) -> i32;
type Free = unsafe extern "C" fn(u64) -> i32;
type Launch = unsafe extern "C" fn() -> i32;

const SIZE: usize = 2 << 20;
/// Threads of the rows where several allocate at once.
const COLLIDING: usize = 8;
/// Child processes for each figure.
const ROUNDS: usize = 11;
/// A child goes on for this long, in batches.
const SPENT_NS: f64 = 40e6;
const BATCH: u32 = 1_000;
const LIMIT: Duration = Duration::from_secs(20);
/// The most instructions that the hooks may add to a call.
const CEILINGS: [(&str, f64); 3] = [("alloc", 130.0), ("free", 100.0), ("launch", 0.0)];

fn main() -> ExitCode {
    let arguments: Vec<String> = std::env::args().collect();
    let arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
    match arguments[..] {
        [_, "--child", "counted", ..] => counted(),
        [_, "--child", "churn", live] => churn(live.parse().expect("count")),
        [_, "--child", "floor", _] => floor(),
        [_, "--child", threads, live] => {
            child(
                threads.parse().expect("count"),
                live.parse().expect("count"),
                &|call| call(),
            );
        }
        _ => {
            let place = Place::new();
            let preloads = quiet::preloads();
            if !arguments.contains(&"--instructions") {
                times(&place, &preloads);
                report();
            }
            return instructions(&place, &preloads);
        }
    }
    ExitCode::SUCCESS
}

fn times(place: &Place, preloads: &[Preload]) {
    println!(
        "CPU ns per cuMemAlloc + cuMemFree pair over a quiet driver: median [10 % 90 %] of {ROUNDS} runs"
    );
    println!("churn: one thread, any of the live allocations is freed and made again");
    println!("floor: no hook; the program itself keeps one total and its peak, which all threads share");
    println!("wall ns of single pairs, at one thread: 50 %, 99 % and 99.9 % (reading the clock included)\n");
    println!(
        "threads  live     preload     ns a pair               added                  50 %   99 %  99.9 %"
    );
    for threads in ["1", "8", "churn"] {
        for live in [0, 1_000, 100_000] {
            if threads == "churn" && live == 0 {
                continue;
            }
            let mut runs = vec![Vec::new(); preloads.len()];
            let mut floors = Vec::new();
            for _ in 0..ROUNDS {
                if threads == "8" {
                    floors.extend(run(place, &preloads[0], "floor", live));
                }
                for (runs, preload) in runs.iter_mut().zip(preloads) {
                    // One that has locked up or failed will do so again.
                    if runs.last() != Some(&None) {
                        runs.push(run(place, preload, threads, live));
                    }
                }
            }
            let column = |run: usize, at: usize| -> Vec<f64> {
                let figures = runs[run].iter().flatten();
                figures.filter_map(|run| run.get(at).copied()).collect()
            };
            if threads == "8" {
                let floors: Vec<f64> = floors.iter().filter_map(|run| run.first().copied()).collect();
                let added = Spread::of_difference(&floors, &column(0, 0));
                println!(
                    "{threads:7}  {live:7}  {:10}  {:22}  {:22}  {:>5}  {:>5}  {:>6}",
                    "floor",
                    shown(Spread::of(&floors), 1),
                    shown(added, 1),
                    "-",
                    "-",
                    "-"
                );
            }
            for (index, preload) in preloads.iter().enumerate() {
                let added = Spread::of_difference(&column(index, 0), &column(0, 0));
                let tail = [1, 2, 3].map(|at| Spread::of(&column(index, at)));
                let tail =
                    tail.map(|spread| spread.map_or("-".into(), |spread| format!("{:.0}", spread.median)));
                println!(
                    "{threads:7}  {live:7}  {:10}  {:22}  {:22}  {:>5}  {:>5}  {:>6}",
                    preload.name,
                    shown(Spread::of(&column(index, 0)), 1),
                    shown(added, 1),
                    tail[0],
                    tail[1],
                    tail[2],
                );
            }
        }
    }
}

fn run(place: &Place, preload: &Preload, threads: &str, live: usize) -> Option<Vec<f64>> {
    let mut command = place.command(quiet::own(), preload);
    command.args(["--child", threads, &live.to_string()]);
    numbers(&mut command, LIMIT)
}

/// The driver as an unmodified program calls it: `dlopen`, `dlsym`, and then by pointer.
struct Driver {
    alloc: Alloc,
    free: Free,
    launch: Launch,
}

impl Driver {
    fn load() -> Self {
        // SAFETY: the driver built for this benchmark has no initialisers.
        let library = unsafe { libloading::os::unix::Library::new("libcuda.so.1") }.expect("the driver");
        // SAFETY: the driver defines the functions with these types; it is never unloaded.
        let init = *unsafe { library.get::<unsafe extern "C" fn(u32) -> i32>(b"cuInit") }.expect("cuInit");
        // SAFETY: as above.
        assert_eq!(unsafe { init(0) }, 0);
        // SAFETY: as above.
        let alloc = *unsafe { library.get::<Alloc>(b"cuMemAlloc_v2") }.expect("cuMemAlloc");
        // SAFETY: as above.
        let free = *unsafe { library.get::<Free>(b"cuMemFree_v2") }.expect("cuMemFree");
        // SAFETY: as above.
        let launch = *unsafe { library.get::<Launch>(b"cuLaunchKernel") }.expect("cuLaunchKernel");
        std::mem::forget(library);
        Self { alloc, free, launch }
    }

    fn alloc(&self) -> u64 {
        let mut pointer = 0;
        // SAFETY: `pointer` is a place to write to.
        assert_eq!(unsafe { (self.alloc)(&raw mut pointer, SIZE) }, 0);
        pointer
    }

    fn free(&self, pointer: u64) {
        // SAFETY: the driver looks at no address.
        assert_eq!(unsafe { (self.free)(pointer) }, 0);
    }
}

/// The least that any exact count costs where threads collide: one total and its peak for the device.
fn floor() {
    #[repr(align(128))]
    struct Pair(AtomicU64, AtomicU64);
    static PAIR: Pair = Pair(AtomicU64::new(0), AtomicU64::new(0));
    child(COLLIDING, 0, &|call| {
        let live = PAIR.0.fetch_add(1, Relaxed) + 1;
        if live > PAIR.1.load(Relaxed) {
            PAIR.1.fetch_max(live, Relaxed);
        }
        call();
        PAIR.0.fetch_sub(1, Relaxed);
    });
}

/// Allocates and frees in turn on each thread; `around` is called with each free.
fn child(threads: usize, live: usize, around: &(impl Fn(&dyn Fn()) + Sync)) {
    let driver = Driver::load();
    for _ in 0..live {
        driver.alloc();
    }
    let start = Barrier::new(threads);
    let work = || {
        let held = driver.alloc();
        start.wait();
        let (mut pairs, begun) = (0_u32, cpu_ns());
        let spent = loop {
            for _ in 0..BATCH {
                let pointer = driver.alloc();
                around(&|| driver.free(pointer));
            }
            pairs += BATCH;
            let spent = cpu_ns() - begun;
            if spent > SPENT_NS {
                break spent;
            }
        };
        driver.free(held);
        spent / f64::from(pairs)
    };
    let costs: Vec<f64> = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        let ended = running.into_iter().map(|thread| thread.join().expect("no panic"));
        ended.collect()
    });
    let threads = u32::try_from(threads).expect("a few");
    print!("{}", costs.iter().sum::<f64>() / f64::from(threads));
    if threads == 1 {
        tail(&driver);
    }
    println!();
}

/// Frees any of the live allocations and makes it again: each pair meets another part of a ledger.
fn churn(live: usize) {
    let driver = Driver::load();
    let mut held: Vec<u64> = (0..live).map(|_| driver.alloc()).collect();
    let (mut pairs, mut state, begun) = (0_u32, 1_u64, cpu_ns());
    let spent = loop {
        for _ in 0..BATCH {
            state = state.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            let index = usize::try_from(state >> 33).expect("31 bits") % held.len();
            driver.free(held[index]);
            held[index] = driver.alloc();
        }
        pairs += BATCH;
        let spent = cpu_ns() - begun;
        if spent > SPENT_NS {
            break spent;
        }
    };
    println!("{}", spent / f64::from(pairs));
}

/// Prints percentiles of the latency of single pairs.
fn tail(driver: &Driver) {
    let mut latencies: Vec<u128> = Vec::with_capacity(100_000);
    let begun = Instant::now();
    while latencies.len() < latencies.capacity() && begun.elapsed() < Duration::from_secs(2) {
        let start = Instant::now();
        driver.free(driver.alloc());
        latencies.push(start.elapsed().as_nanos());
    }
    latencies.sort_unstable();
    for per_mille in [500, 990, 999] {
        print!(" {}", latencies[(latencies.len() - 1) * per_mille / 1_000]);
    }
}

/// The share of a framework's report that the page takes: a call is a branch and this.
fn report() {
    static PAGE: CounterPage = CounterPage::new();
    PAGE.format();
    let device = PAGE.device_index([1; 16]).expect("the first");
    let slot = PAGE.join(1, 1, 1).expect("the first");
    let calls = 100_000_u32;
    let runs: Vec<f64> = (0..31)
        .map(|_| {
            let begun = cpu_ns();
            for bytes in 0..calls {
                PAGE.report_allocated(slot, device, std::hint::black_box(u64::from(bytes)));
            }
            (cpu_ns() - begun) / f64::from(calls)
        })
        .collect();
    println!(
        "\nCPU ns of CounterPage::report_allocated: {}",
        shown(Spread::of(&runs), 1)
    );
}

const COUNTED: u32 = 1_000;

/// One call, in a function that callgrind is told to look at.
#[inline(never)]
#[unsafe(no_mangle)]
fn hook_cost_counted(call: &mut dyn FnMut()) {
    call();
}

/// What callgrind watches: allocations, frees or launches, as the argument says.
fn counted() {
    let driver = Driver::load();
    driver.free(driver.alloc());
    let call = std::env::args().nth(3).expect("the name of a call");
    for _ in 0..COUNTED {
        let mut pointer = 0;
        match call.as_str() {
            "alloc" => hook_cost_counted(&mut || pointer = driver.alloc()),
            // SAFETY: this driver's function takes nothing.
            "launch" => hook_cost_counted(&mut || assert_eq!(unsafe { (driver.launch)() }, 0)),
            _ => pointer = driver.alloc(),
        }
        if call == "free" {
            hook_cost_counted(&mut || driver.free(pointer));
        } else if call == "alloc" {
            driver.free(pointer);
        }
    }
}

/// Counts the instructions that each preload adds to a call; fails if ours are above the ceiling.
fn instructions(place: &Place, preloads: &[Preload]) -> ExitCode {
    if !Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success())
    {
        eprintln!("left out: instructions, as valgrind is not here");
        return ExitCode::SUCCESS;
    }
    println!("\ninstructions that a preload adds to a call, one thread, none live, ceiling for migm");
    let mut code = ExitCode::SUCCESS;
    for (call, ceiling) in CEILINGS {
        print!("{call:8}");
        let bare = count(place, &preloads[0], call);
        for preload in &preloads[1..] {
            let Some(added) = count(place, preload, call)
                .zip(bare)
                .map(|(with, bare)| with - bare)
            else {
                print!("  {} -", preload.name);
                continue;
            };
            print!("  {} {added:.1}", preload.name);
            if preload.name == "migm" && added > ceiling {
                code = ExitCode::FAILURE;
            }
        }
        println!("  (ceiling {ceiling})");
    }
    if code == ExitCode::FAILURE {
        println!("more instructions than the ceiling");
    }
    code
}

fn count(place: &Place, preload: &Preload, call: &str) -> Option<f64> {
    let file = place.path().join("callgrind.out");
    let mut command = place.command("valgrind", preload);
    command
        .args([
            "--tool=callgrind",
            "--quiet",
            "--toggle-collect=hook_cost_counted",
        ])
        .arg(format!("--callgrind-out-file={}", file.display()))
        .arg(quiet::own())
        .args(["--child", "counted", call]);
    let ended = command.output().ok()?;
    let profile = std::fs::read_to_string(&file)
        .ok()
        .filter(|_| ended.status.success())?;
    std::fs::remove_file(&file).ok()?;
    let total = profile.lines().find_map(|line| line.strip_prefix("totals: "))?;
    Some(total.trim().parse::<f64>().ok()? / f64::from(COUNTED))
}
