//! Processes: forked, executed, killed, odd, and not ours at all.

use std::path::Path;

use crate::peer::{Manner, Peer, eventually};
use crate::programs::Program;

fn process(way: &str) -> (Peer, std::process::Output) {
    let peer = Peer::new(Manner::GivesPage);
    let output = Program::linked("processes", &[way]).under(&peer).output();
    (peer, output)
}

fn succeeds(way: &str) -> Peer {
    let (peer, output) = process(way);
    let errors = String::from_utf8_lossy(&output.stderr);
    assert!(output.status.success(), "{way}: {} {errors}", output.status);
    peer
}

/// Bytes, allocations, frees and processes.
fn expect(peer: &Peer, reserved: u64, allocations: u64, processes: usize) {
    let reading = peer.page.read()[0];
    assert_eq!(
        (reading.reserved, reading.allocations, reading.frees),
        (reserved, allocations, 0)
    );
    assert_eq!(peer.page.occupants().len(), processes);
    assert_eq!(peer.hellos().len(), processes);
}

#[test]
fn a_child_forked_before_the_first_allocation() {
    expect(&succeeds("fork_before"), 1100, 2, 2);
}

#[test]
fn a_child_forked_after_it_starts_over_and_inherits_no_record() {
    expect(&succeeds("fork_after"), 1100, 2, 2);
}

#[test]
fn a_child_of_a_raw_clone_does_too() {
    expect(&succeeds("raw_clone"), 1100, 2, 2);
}

#[test]
fn a_child_that_never_allocates_does_not_keep_its_parents_connection_open() {
    let peer = Peer::new(Manner::GivesPage);
    let mut parent = Program::linked("processes", &["idle_child"]).under(&peer).spawn();
    parent.wait().unwrap();
    let start = std::time::Instant::now();
    eventually("the parent's connection ends", || peer.ended() == 1);
    assert!(start.elapsed().as_secs() < 2, "the child sleeps three seconds");
}

#[test]
fn a_vforked_child_executes_a_process_of_its_own() {
    expect(&succeeds("vfork_exec"), 1030, 2, 2);
}

#[test]
fn executing_another_program_leaves_the_first_ones_memory_behind() {
    let peer = succeeds("exec");
    let reading = peer.page.read()[0];
    assert_eq!(
        (reading.reserved, reading.reserved_peak, reading.allocations),
        (30, 1000, 2)
    );
    assert_eq!(peer.page.occupants().len(), 1);
}

#[test]
fn figures_outlive_a_killed_process() {
    let (peer, output) = process("killed");
    assert!(!output.status.success());
    expect(&peer, 1234, 2, 1);
    let dead = peer.page.occupants()[0];
    peer.page.leave(dead);
    assert_eq!(peer.page.read()[0].reserved, 0);
    assert_eq!(peer.page.read()[0].reserved_peak, 1234);
}

#[test]
fn a_closed_standard_output_does_not_become_our_socket() {
    expect(&succeeds("closed_fds"), 1000, 1, 1);
}

#[test]
fn limits_of_the_process_do_not_end_it() {
    for way in ["small_files", "few_files"] {
        // Without a supervisor the page would be a file of its own.
        Program::linked("processes", &[way]).run();
        let (_, output) = process(way);
        assert!(output.status.success(), "{way}: {}", output.status);
    }
}

#[test]
fn a_program_that_closes_all_is_counted_on() {
    let peer = succeeds("close_all");
    assert_eq!(peer.page.read()[0].reserved, 1000 + 20 * 10);
}

#[test]
fn a_program_that_takes_our_numbers_keeps_its_files() {
    let peer = succeeds("take_numbers");
    assert_eq!(peer.page.read()[0].reserved, 1000 + 30 * 10);
}

#[test]
fn a_program_that_allocates_nothing_sees_nothing_of_us() {
    let peer = Peer::new(Manner::GivesPage);
    let program = || Program::plain("bystander", &[], &["-ldl"]).under(&peer);
    assert_eq!(program().run(), program().bare().run());
    assert!(peer.hellos().is_empty());
}

#[test]
fn programs_without_cuda_run_as_ever() {
    let peer = Peer::new(Manner::GivesPage);
    for (program, arguments) in [
        ("/bin/true", &[][..]),
        ("/bin/sh", &["-c", "echo $((6 * 7)); ls / > /dev/null && true"]),
        ("/bin/bash", &["-c", "exec 3>&1; (echo forked >&3); ulimit -n"]),
        (
            "/usr/bin/env",
            &[
                "python3",
                "-c",
                "import ctypes, subprocess; print(ctypes.CDLL(None).getpid() > 0)",
            ],
        ),
        ("/usr/bin/ldd", &["/bin/bash"]),
    ] {
        if !Path::new(program).exists() {
            continue;
        }
        let run = |bare: bool| {
            let program = Program::of(Path::new(program), arguments).under(&peer);
            let output = if bare { program.bare() } else { program }.output();
            (
                output.status.code(),
                String::from_utf8_lossy(&output.stderr).into_owned(),
                output.stdout.len(),
            )
        };
        let ((status, errors, printed), without) = (run(false), run(true));
        assert_eq!((status, errors), (without.0, without.1), "{program}");
        if program != "/usr/bin/ldd" {
            assert_eq!(printed, without.2, "{program}");
        }
    }
    assert!(peer.hellos().is_empty());
}

#[test]
fn the_kill_switch_turns_all_of_it_off() {
    let peer = Peer::new(Manner::GivesPage);
    let off = |program: Program| program.under(&peer).env("MIGM_DISABLE", "1").run();
    off(Program::linked("every_path", &[]));
    off(Program::linked("refusals", &["free"]));
    for way in ["dlsym", "proc2", "self", "unknown"] {
        off(Program::plain("ways_in", &[way], &["-ldl"]));
    }
    assert!(peer.hellos().is_empty());
    assert!(peer.page.read().is_empty());
}
