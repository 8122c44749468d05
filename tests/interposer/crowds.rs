//! Processes in numbers, in chains, and beside others that want to be first.

use std::io::{BufRead, BufReader, Write};
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::Stdio;

use crate::peer::{Manner, Peer, eventually};
use crate::programs::{Program, folder, interposer, library};

/// Bytes, allocations and processes.
fn expect(peer: &Peer, reserved: u64, allocations: u64, processes: usize) {
    let reading = peer.page.read()[0];
    assert_eq!((reading.reserved, reading.allocations), (reserved, allocations));
    assert_eq!(peer.page.occupants().len(), processes);
}

fn left_out(test: &str, why: &str) {
    let line = format!("left out: {test}: {why}\n");
    std::io::stderr().write_all(line.as_bytes()).unwrap();
}

#[test]
fn three_hundred_processes_at_once_are_all_counted() {
    let peer = Peer::new(Manner::GivesPage);
    let children: Vec<_> = (0..300)
        .map(|_| Program::linked("processes", &["hold", "10"]).under(&peer).spawn())
        .collect();
    for mut child in children {
        assert!(child.wait().unwrap().success());
    }
    expect(&peer, 3000, 300, 300);
    assert_eq!(peer.hellos().len(), 300);
}

#[test]
fn forks_in_the_middle_of_other_threads_allocations_hang_nobody() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("forks", &["100"]).under(&peer).run();
    let reading = peer.page.read()[0];
    assert_eq!(reading.reserved, 1000, "each child left its own");
    assert_eq!(reading.allocations - reading.frees, 100);
}

/// The first child of each run is forked while the threads look up the driver and attach: it hung in the loader's lock
/// that one of them held, or waited for one of them to attach.
#[test]
fn forks_in_the_middle_of_other_threads_first_allocations_hang_nobody() {
    let peer = Peer::new(Manner::GivesPage);
    for _ in 0..40 {
        Program::linked("forks", &["2"]).under(&peer).run();
    }
    let reading = peer.page.read()[0];
    assert_eq!(reading.reserved, 800, "each child left its own");
}

#[test]
fn a_shell_a_python_and_a_worker_are_one_job() {
    if !Path::new("/usr/bin/env").exists()
        || std::process::Command::new("python3").arg("-V").output().is_err()
    {
        return left_out("a_shell_a_python_and_a_worker_are_one_job", "no python3");
    }
    let peer = Peer::new(Manner::GivesPage);
    // Compiles the worker.
    drop(Program::linked("processes", &[]));
    let worker = folder().join("processes");
    let python = format!(
        "import subprocess, os; subprocess.run(['{0}', 'hold', '100'], check=True); \
         os.execl('{0}', '{0}', 'hold', '7')",
        worker.display()
    );
    let shell = format!("python3 -c \"{python}\" && {} hold 1000", worker.display());
    Program::of(Path::new("/bin/sh"), &["-c", &shell])
        .under(&peer)
        .run();
    expect(&peer, 1107, 3, 3);
    let programs: Vec<_> = peer.hellos().into_iter().map(|hello| hello.program).collect();
    assert_eq!(
        programs, ["processes"; 3],
        "neither the shell nor python allocates"
    );
}

#[test]
fn a_daemon_is_counted_after_its_parents_have_gone() {
    let done = folder().join("daemon_done");
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("processes", &["daemon", done.to_str().unwrap()])
        .under(&peer)
        .run();
    let is_done = || std::fs::read(&done).is_ok_and(|text| text == b"done");
    eventually("the daemon has done its work", is_done);
    expect(&peer, 1034, 3, 2);
}

#[test]
fn threads_and_handlers_at_the_end_of_a_program_are_counted() {
    let peer = Peer::new(Manner::GivesPage);
    Program::linked("at_exit", &[]).under(&peer).run();
    expect(&peer, 1 + 20 + 300 + 4000 + 50000, 5, 1);
}

#[test]
fn a_set_user_id_program_runs_without_us() {
    const NOBODY: u32 = 65534;
    let name = "a_set_user_id_program_runs_without_us";
    drop(Program::plain("ways_in", &["dlsym"], &["-ldl"]));
    let program = folder().join("set_user_id");
    std::fs::copy(folder().join("ways_in"), &program).unwrap();
    if std::os::unix::fs::chown(&program, Some(NOBODY), None).is_err() {
        return left_out(name, "only root can give a file away");
    }
    std::fs::set_permissions(&program, std::fs::Permissions::from_mode(0o4755)).unwrap();
    let peer = Peer::new(Manner::GivesPage);
    // The loader drops LD_LIBRARY_PATH as well, so the program does not find the driver; it runs to its own end.
    let output = Program::of(&program, &["dlsym"]).under(&peer).output();
    let errors = String::from_utf8_lossy(&output.stderr);
    if output.status.success() {
        return left_out(name, "set-user-id is of no effect here");
    }
    assert_eq!(output.status.code(), Some(98), "{errors}");
    assert!(errors.contains("libcuda.so.1"), "{errors}");
    assert!(peer.hellos().is_empty());
}

#[test]
fn processes_that_see_different_devices_meet_in_one_page() {
    let peer = Peer::new(Manner::GivesPage);
    for first in ["0", "1"] {
        Program::linked("processes", &["hold", "10"])
            .env("FAKE_FIRST", first)
            .under(&peer)
            .run();
    }
    let reading = peer.page.read();
    let on = |uuid: u8| reading.iter().find(|device| device.uuid == [uuid; 16]).unwrap();
    assert_eq!((on(0xa0).reserved, on(0xa1).reserved), (10, 10));
}

#[test]
fn a_process_leaves_no_file_behind() {
    let empty = folder().join("empty");
    std::fs::create_dir_all(&empty).unwrap();
    let place = empty.to_str().unwrap();
    // Without a supervisor it makes a page of its own.
    Program::linked("processes", &["hold", "10"])
        .within(&empty)
        .env("HOME", place)
        .env("TMPDIR", place)
        .env("XDG_RUNTIME_DIR", place)
        .run();
    assert_eq!(std::fs::read_dir(&empty).unwrap().count(), 0);
}

#[test]
fn preloads_in_front_and_behind_go_on_working() {
    std::fs::write(folder().join("v1"), "V1 { global: answer; };").unwrap();
    let malloc = || library("malloc", &["-ldl"]);
    let hold = |peer: &Peer| Program::linked("processes", &["hold", "10"]).under(peer);
    let peer = Peer::new(Manner::GivesPage);
    hold(&peer).with_preload(malloc()).run();
    hold(&peer).with_preload_in_front(malloc()).run();
    expect(&peer, 20, 2, 2);
    // A preload in front that hands out its own lookup still leads to us.
    let spy = library("spy", &["-ldl"]);
    let printed = Program::plain("ways_in", &["proc2"], &["-ldl"])
        .with_preload_in_front(spy)
        .under(&peer)
        .run();
    assert!(
        printed.contains("cuMemAlloc 12000 0 libmigm_interposer.so"),
        "{printed}"
    );
    assert_eq!(peer.page.read()[0].allocations, 2 + 3);
}

#[test]
fn the_file_may_be_replaced_under_running_processes() {
    let copy = folder().join("upgrade.so");
    std::fs::copy(interposer(), &copy).unwrap();
    let peer = Peer::new(Manner::GivesPage);
    let mut child = Program::linked("processes", &["upgraded"])
        .with_interposer(copy.clone())
        .under(&peer)
        .spawn_with(Stdio::piped());
    let mut line = String::new();
    BufReader::new(child.stdout.as_mut().unwrap())
        .read_line(&mut line)
        .unwrap();
    assert_eq!(line, "ready\n");
    let next = folder().join("upgrade.so.next");
    std::fs::copy(interposer(), &next).unwrap();
    std::fs::rename(&next, &copy).unwrap();
    child.stdin.take().unwrap().write_all(b"\n").unwrap();
    assert!(child.wait().unwrap().success());
    let reading = peer.page.read()[0];
    assert_eq!((reading.reserved, reading.reserved_peak), (30, 1100));
    assert_eq!(reading.allocations, 102);
}
