//! Ranges that a program annotates with NVTX: iterations where asked for, else nothing.

use std::io::Write;
use std::path::PathBuf;

use migm_shared::clock::{Clock, Mark};
use migm_shared::report::Sample;

use crate::peer::{Manner, Peer, eventually};
use crate::programs::{Program, driver, interposer};

const ITERATIONS: u64 = 20;

/// The program, built with NVTX's own headers if they are given, else playing NVTX's part.
fn program(arguments: &[&str], headers: Option<&PathBuf>) -> Program {
    let driver = driver(false).join("libcuda.so.1");
    let include = headers.map(|headers| format!("-I{}", headers.display()));
    let with_nvtx = include
        .iter()
        .flat_map(|include| [include.as_str(), "-DWITH_NVTX"]);
    let flags: Vec<_> = [driver.to_str().unwrap(), "-ldl"]
        .into_iter()
        .chain(with_nvtx)
        .collect();
    let count = ITERATIONS.to_string();
    let arguments = [&[count.as_str()], arguments].concat();
    let name = if headers.is_some() {
        "ranges_nvtx"
    } else {
        "ranges"
    };
    Program::plain_as("ranges", name, &arguments, &flags)
}

fn listening(program: Program, wanted: &str) -> Program {
    let library = interposer();
    program
        .env("NVTX_INJECTION64_PATH", library.to_str().unwrap())
        .env("MIGM_ITERATION", wanted)
}

/// What the program printed, and its last sample.
fn run(program: Program) -> (String, Sample) {
    let peer = Peer::new(Manner::GivesPage);
    let said = program.under(&peer).run();
    eventually("the connection ends", || peer.ended() == 1);
    (said, *peer.samples().last().expect("it allocates"))
}

fn assert_counts(program: Program, every: u32) {
    let mark = Mark::NvtxRange;
    let (said, last) = run(listening(program, &Clock { mark, every }.to_string()));
    assert_eq!(said, "heard\n");
    assert_eq!(last.clock, Some(Clock { mark, every }));
    assert_eq!(last.iteration, ITERATIONS / u64::from(every), "{last:?}");
}

#[test]
fn each_outermost_range_is_an_iteration() {
    assert_counts(program(&[], None), 1);
    assert_counts(program(&[], None), 4);
}

#[test]
fn each_range_of_the_start_and_end_kind_is_one() {
    assert_counts(program(&["ends"], None), 1);
}

#[test]
fn ranges_are_no_mark_unless_asked_for() {
    let (said, last) = run(program(&[], None));
    assert_eq!((said.as_str(), last.clock, last.iteration), ("dead\n", None, 0));
}

#[test]
fn ranges_that_somebody_else_has_us_listen_to_may_be_found_out_too() {
    let (said, last) = run(listening(program(&[], None), "auto"));
    assert_eq!(said, "heard\n");
    assert_eq!(
        last.clock.map(|clock| clock.mark),
        Some(Mark::NvtxRange),
        "{last:?}"
    );
}

#[test]
fn turned_off_the_interposer_does_not_listen() {
    let said = listening(program(&[], None), "nvtx-range")
        .env("MIGM_DISABLE", "1")
        .run();
    assert_eq!(said, "dead\n");
}

#[test]
fn a_process_that_nothing_is_preloaded_into_runs_as_it_would() {
    // A child with the environment but for LD_PRELOAD: NVTX opens the interposer, which attaches to nothing.
    let peer = Peer::new(Manner::GivesPage);
    let said = listening(program(&[], None).bare(), "nvtx-range")
        .under(&peer)
        .run();
    assert_eq!(said, "heard\n");
    assert!(peer.samples().is_empty());
}

#[test]
fn nvidias_own_headers_find_us() {
    let test = "nvidias_own_headers_find_us";
    let home = std::env::var_os("MIGM_NVTX_HOME")
        .map(PathBuf::from)
        .or_else(|| std::env::home_dir().map(|home| home.join(".cache/migm/nvtx-13.0.85")))
        .filter(|home| home.join("nvtx3/nvToolsExt.h").is_file());
    let Some(headers) = home else {
        let line = format!("left out: {test}: no NVTX headers in the place of .ci/nvtx\n");
        return std::io::stderr().write_all(line.as_bytes()).unwrap();
    };
    assert_counts(program(&[], Some(&headers)), 1);
    assert_counts(program(&["ends"], Some(&headers)), 1);
    let (said, last) = run(program(&[], Some(&headers)));
    assert_eq!((said.as_str(), last.clock), ("dead\n", None));
}
