//! What a preload adds to the start of a program, and of 300 programs at once.
//!
//! ```text
//! cargo bench --bench start_up [-- [--peer NAME=PATH.so]...]
//! ```

mod quiet;

use std::path::Path;
use std::process::{Child, Command, Stdio};
use std::time::{Duration, Instant};

use quiet::{Place, Preload, Spread, shown};

const STARTS: usize = 400;
const AT_ONCE: usize = 300;
const ROUNDS: usize = 7;
/// A preload that has taken this long in all is not tried again.
const PATIENCE: Duration = Duration::from_secs(20);

const INIT: &str = "int cuInit(unsigned); int main(void) { return cuInit(0); }";
const FIRST_ALLOCATION: &str = "
    int cuInit(unsigned); int cuDevicePrimaryCtxRetain(void **, int); int cuCtxSetCurrent(void *);
    int cuMemAlloc_v2(unsigned long long *, unsigned long); int cuMemFree_v2(unsigned long long);
    int main(void) {
        void *context; unsigned long long pointer;
        return cuInit(0) || cuDevicePrimaryCtxRetain(&context, 0) || cuCtxSetCurrent(context)
            || cuMemAlloc_v2(&pointer, 1 << 20) || cuMemFree_v2(pointer);
    }";

fn main() {
    let place = Place::new();
    let preloads = quiet::preloads();
    let init = place.program("init", INIT);
    let first_allocation = place.program("first_allocation", FIRST_ALLOCATION);
    let programs = [
        ("/bin/true", Path::new("/bin/true")),
        ("only cuInit", &init),
        ("cuInit, context, allocation", &first_allocation),
    ];
    println!("wall ms from start to end of a program: median [10 % 90 %] of {STARTS}, in turns\n");
    println!("program                      preload     ms                    added");
    for (name, program) in programs {
        one_by_one(&place, &preloads, name, program);
    }
    println!(
        "\nwall and CPU ms of {AT_ONCE} programs with a context and an allocation at once, of {ROUNDS} rounds\n"
    );
    println!(
        "context  preload     wall ms                     times none        CPU ms               times none"
    );
    for context_ms in [0, 20] {
        at_once(&place, &preloads, &first_allocation, context_ms);
    }
}

fn one_by_one(place: &Place, preloads: &[Preload], name: &str, program: &Path) {
    let mut times = vec![Vec::new(); preloads.len()];
    let mut spent = vec![Duration::ZERO; preloads.len()];
    for _ in 0..STARTS {
        for (index, preload) in preloads.iter().enumerate() {
            if spent[index] < PATIENCE {
                let start = Instant::now();
                let ended = start_one(&mut place.command(program, preload)).wait();
                assert!(ended.expect("a status").success(), "{name} with {}", preload.name);
                spent[index] += start.elapsed();
                times[index].push(start.elapsed().as_secs_f64() * 1e3);
            }
        }
    }
    for (preload, of_preload) in preloads.iter().zip(&times) {
        println!(
            "{name:27}  {:10}  {:20}  {}",
            preload.name,
            shown(Spread::of(of_preload), 3),
            shown(Spread::of_difference(of_preload, &times[0]), 3)
        );
    }
}

fn start_one(command: &mut Command) -> Child {
    let command = command
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::null());
    command.spawn().expect("the program starts")
}

/// `Some` for a program that fails, or has not ended by `limit`: some libraries lock up.
fn failed(child: &mut Child, limit: Instant) -> Option<()> {
    while Instant::now() < limit {
        if let Some(status) = child.try_wait().expect("a status") {
            return (!status.success()).then_some(());
        }
        std::thread::sleep(Duration::from_micros(200));
    }
    child.kill().expect("our child");
    child.wait().expect("a status");
    Some(())
}

fn at_once(place: &Place, preloads: &[Preload], program: &Path, context_ms: u32) {
    let mut times = vec![Vec::new(); preloads.len()];
    let mut cpu = vec![Vec::new(); preloads.len()];
    let mut spent = vec![Duration::ZERO; preloads.len()];
    for _ in 0..ROUNDS {
        for (index, preload) in preloads.iter().enumerate() {
            if spent[index] >= PATIENCE {
                continue;
            }
            let before = quiet::children_cpu_ms();
            let start = Instant::now();
            let mut running: Vec<Child> = (0..AT_ONCE)
                .map(|_| {
                    let mut command = place.command(program, preload);
                    start_one(command.env("QUIET_CONTEXT_MS", context_ms.to_string()))
                })
                .collect();
            let failed = running
                .iter_mut()
                .filter_map(|child| failed(child, start + PATIENCE))
                .count();
            spent[index] += start.elapsed();
            times[index].push(start.elapsed().as_secs_f64() * 1e3);
            cpu[index].push(quiet::children_cpu_ms() - before);
            if failed > 0 {
                println!("{failed} of {AT_ONCE} failed or locked up with {}", preload.name);
            }
        }
    }
    let ratio = |series: &[f64], none: &[f64]| {
        let ratios: Vec<f64> = series.iter().zip(none).map(|(with, none)| with / none).collect();
        shown(Spread::of(&ratios), 2)
    };
    for (index, preload) in preloads.iter().enumerate() {
        println!(
            "{context_ms:4} ms  {:10}  {:26}  {:16}  {:19}  {}",
            preload.name,
            shown(Spread::of(&times[index]), 0),
            ratio(&times[index], &times[0]),
            shown(Spread::of(&cpu[index]), 0),
            ratio(&cpu[index], &cpu[0]),
        );
    }
}
