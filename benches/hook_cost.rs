//! CPU time of one `cuMemAlloc` and `cuMemFree` pair, with the interposer and without.
//!
//! The driver underneath does next to nothing, so what is left is the cost of the hooks. The benchmark runs
//! itself as child processes, with and without `LD_PRELOAD`, and takes CPU time, not wall time, so that a busy
//! machine disturbs it less; each figure is the median of several rounds.
//!
//! ```text
//! cargo bench --bench hook_cost
//! ```

use std::path::{Path, PathBuf};
use std::process::Command;
use std::sync::Barrier;

type Alloc = unsafe extern "C" fn(*mut u64, usize) -> i32;
type Free = unsafe extern "C" fn(u64) -> i32;

const PAIRS: u32 = 400_000;
const ROUNDS: usize = 9;
const SIZE: usize = 2 << 20;

fn main() {
    let arguments: Vec<String> = std::env::args().collect();
    if let [_, mode, threads, live] = &arguments[..]
        && mode == "--child"
    {
        child(threads.parse().expect("a count"), live.parse().expect("a count"));
        return;
    }
    let folder = tempfile::tempdir().expect("a folder");
    build_driver(folder.path());
    println!(
        "CPU ns per cuMemAlloc + cuMemFree pair over a quiet driver, median of {ROUNDS} rounds of {PAIRS}\n"
    );
    println!("threads  other live     bare   hooked     cost");
    for threads in [1, 8] {
        for live in [0, 1_000, 100_000] {
            let [bare, hooked] = [false, true].map(|hooked| measure(folder.path(), hooked, threads, live));
            println!(
                "{threads:7}  {live:10}  {bare:7.1}  {hooked:7.1}  {:7.1}",
                hooked - bare
            );
        }
    }
    match instructions(folder.path()) {
        Some(count) => println!("\ninstructions per pair, one thread, none live: {count:.0}"),
        None => println!("\ninstructions per pair: not counted, as valgrind is not here"),
    }
}

/// The built interposer: a dev-dependency, so it lies beside this benchmark.
fn interposer() -> PathBuf {
    let built = std::env::current_exe()
        .expect("a path")
        .with_file_name("libmigm_interposer.so");
    assert!(built.exists(), "{} is not built", built.display());
    built
}

fn build_driver(folder: &Path) {
    let source = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/programs/quiet_libcuda.c");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let status = Command::new(compiler)
        .args(["-O2", "-shared", "-fPIC", "-Wl,-soname,libcuda.so.1", "-o"])
        .arg(folder.join("libcuda.so.1"))
        .arg(source)
        .status()
        .expect("the benchmark needs a C compiler, `cc` or $CC");
    assert!(status.success());
}

fn prepared(command: &mut Command, folder: &Path, hooked: bool) -> String {
    command
        .env("LD_LIBRARY_PATH", folder)
        .env("MIGM_SOCKET", folder.join("nobody"))
        .env_remove("MIGM_ATTEMPT");
    if hooked {
        command.env("LD_PRELOAD", interposer());
    }
    let output = command.output().expect("the child starts");
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    String::from_utf8(output.stdout).expect("text")
}

/// Nanoseconds of CPU time per pair.
fn measure(folder: &Path, hooked: bool, threads: usize, live: usize) -> f64 {
    let mut command = Command::new(std::env::current_exe().expect("a path"));
    command.args(["--child", &threads.to_string(), &live.to_string()]);
    prepared(&mut command, folder, hooked)
        .trim()
        .parse()
        .expect("a number")
}

/// Calls the driver as an unmodified program does: `dlopen`, `dlsym`, and then by pointer.
fn child(threads: usize, live: usize) {
    // SAFETY: the driver built above has no initialisers.
    let library = unsafe { libloading::Library::new("libcuda.so.1") }.expect("the driver");
    // SAFETY: the driver defines the function with this type.
    let alloc = *unsafe { library.get::<Alloc>(b"cuMemAlloc_v2") }.expect("cuMemAlloc");
    // SAFETY: the driver defines the function with this type.
    let free = *unsafe { library.get::<Free>(b"cuMemFree_v2") }.expect("cuMemFree");
    for _ in 0..live {
        let mut pointer = 0;
        // SAFETY: `pointer` is a place to write to.
        assert_eq!(unsafe { alloc(&raw mut pointer, SIZE) }, 0);
    }
    let counted = std::env::var_os("HOOK_COST_PAIRS").is_some();
    let mut rounds: Vec<f64> = (0..if counted { 1 } else { ROUNDS })
        .map(|_| round(threads, alloc, free))
        .collect();
    rounds.sort_by(f64::total_cmp);
    println!("{}", rounds[rounds.len() / 2]);
}

fn round(threads: usize, alloc: Alloc, free: Free) -> f64 {
    let start = Barrier::new(threads);
    let pairs = std::env::var("HOOK_COST_PAIRS").map_or(PAIRS, |pairs| pairs.parse().expect("a count"));
    let work = || {
        let mut pointer = 0;
        // SAFETY: `pointer` is a place to write to.
        unsafe { alloc(&raw mut pointer, SIZE) };
        start.wait();
        let before = cpu_ns();
        for _ in 0..pairs {
            let mut pointer = 0;
            // SAFETY: `pointer` is a place to write to.
            unsafe { alloc(&raw mut pointer, SIZE) };
            // SAFETY: the address was just handed out.
            unsafe { free(pointer) };
        }
        let spent = cpu_ns() - before;
        // SAFETY: the address was handed out above.
        unsafe { free(pointer) };
        spent
    };
    let spent: f64 = std::thread::scope(|scope| {
        let running: Vec<_> = (0..threads).map(|_| scope.spawn(work)).collect();
        running
            .into_iter()
            .map(|thread| thread.join().expect("no panic"))
            .sum()
    });
    let threads = u32::try_from(threads).expect("a few");
    spent / f64::from(pairs) / f64::from(threads)
}

/// CPU time of the calling thread.
fn cpu_ns() -> f64 {
    let mut time = libc::timespec {
        tv_sec: 0,
        tv_nsec: 0,
    };
    // SAFETY: `time` is a place to write to; the clock exists on each Linux.
    unsafe { libc::clock_gettime(libc::CLOCK_THREAD_CPUTIME_ID, &raw mut time) };
    let [seconds, rest] = [time.tv_sec, time.tv_nsec].map(|part| u32::try_from(part).expect("short"));
    f64::from(seconds) * 1e9 + f64::from(rest)
}

/// Instructions that the hooks add to one pair: callgrind counts two runs of different length.
fn instructions(folder: &Path) -> Option<f64> {
    let count = |hooked: bool, pairs: u32| {
        let mut command = Command::new("valgrind");
        let file = folder.join("callgrind.out");
        command
            .args(["--tool=callgrind", "--quiet"])
            .arg(format!("--callgrind-out-file={}", file.display()))
            .arg(std::env::current_exe().ok()?)
            .args(["--child", "1", "0"])
            .env("HOOK_COST_PAIRS", pairs.to_string());
        prepared(&mut command, folder, hooked);
        let profile = std::fs::read_to_string(file).ok()?;
        let total = profile.lines().find_map(|line| line.strip_prefix("totals: "))?;
        total.trim().parse::<f64>().ok()
    };
    let found = Command::new("valgrind")
        .arg("--version")
        .output()
        .is_ok_and(|output| output.status.success());
    if !found {
        return None;
    }
    let per_pair = |hooked| Some((count(hooked, 11_000)? - count(hooked, 1_000)?) / 10_000.0);
    Some(per_pair(true)? - per_pair(false)?)
}
