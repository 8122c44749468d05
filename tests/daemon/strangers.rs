//! Peers that do not keep to the book, that are many, or that are nobody's job.

use std::fs::{self};
use std::io::Write;
use std::os::fd::OwnedFd;
use std::os::unix::fs::PermissionsExt;
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use migm_shared::frame::encode;
use migm_shared::report::{Event, Hello, Report, Welcome};
use migm_supervisor::control::{JobState, Outcome, Reply, Request};
use migm_supervisor::daemon::connection::Connection;

use crate::daemon::{Daemon, PATIENCE, submission};
use crate::peer::{GPU, Peer, descriptor, page, submit};
use crate::support::{eventually, json, migm};

#[test]
fn garbage_costs_the_sender_its_connection_and_nobody_else() {
    let daemon = Daemon::simulated(GPU);
    let mut other = Peer::of(&daemon);
    for garbage in [
        b"GET / HTTP/1.1\r\n\r\n".to_vec(),
        b"MIGM\x02\x00\x09\x00\x00\x00\x00\x00".to_vec(),
        // A body of 4 GiB is refused from its header.
        b"MIGM\x02\x00\x03\x00\xff\xff\xff\xff".to_vec(),
        // A report before hello.
        encode(&Report::Event(Event::Leaving)).unwrap(),
    ] {
        let mut stream = UnixStream::connect(daemon.socket()).unwrap();
        stream.write_all(&garbage).unwrap();
        assert!(
            Peer(Connection::new(stream).unwrap()).is_closed(),
            "{garbage:02x?}"
        );
    }
    other.ask(&Request::Status);
    assert!(matches!(other.hear(), Reply::Status(_)));
    assert_eq!(
        daemon.log().matches("a peer is dropped").count(),
        4,
        "{}",
        daemon.log()
    );
}

#[test]
fn a_command_that_never_reads_is_dropped() {
    let daemon = Daemon::simulated(GPU);
    let stream = UnixStream::connect(daemon.socket()).unwrap();
    let request = encode(&Request::Status).unwrap();
    let many: Vec<u8> = request
        .iter()
        .copied()
        .cycle()
        .take(request.len() * 1000)
        .collect();
    let mut writer = stream.try_clone().unwrap();
    let until = Instant::now() + PATIENCE;
    while writer.write_all(&many).is_ok() {
        assert!(
            Instant::now() < until,
            "the supervisor keeps all that it cannot send"
        );
    }
    assert_eq!(daemon.status().gpus.len(), 1);
}

#[test]
fn a_page_that_could_shrink_is_refused() {
    let daemon = Daemon::simulated(GPU);
    let mut runner = Peer::of(&daemon);
    let file = OwnedFd::from(tempfile::tempfile().unwrap());
    runner
        .0
        .send(&Request::Submit(submission("bad")), Some(file))
        .unwrap();
    let Reply::Refused { reason } = runner.hear() else {
        panic!()
    };
    assert!(reason.contains("counter page"), "{reason}");
}

/// Root reads the names of all users in a terminal.
#[test]
fn a_name_that_would_write_to_the_terminal_of_others_is_refused_or_made_harmless() {
    let daemon = Daemon::simulated(GPU);
    let (_, answer) = submit(&daemon, submission("red\x1b[31m"), &page());
    let Reply::Refused { reason } = answer else {
        panic!("{answer:?}")
    };
    assert_eq!(
        reason,
        "\"red\\u{1b}[31m\" is no name: it has a control character"
    );
    let mut process = Peer::of(&daemon);
    let hello = Report::Hello(Hello {
        pid: std::process::id(),
        attempt: None,
        program: "two\nlines".into(),
        has_page: false,
    });
    process.0.send(&hello, None).unwrap();
    let name = eventually("the watched process", PATIENCE, || {
        daemon.status().jobs.first().map(|job| job.name.clone())
    });
    assert_eq!(name, "two?lines");
}

#[test]
fn a_process_without_runner_is_watched_until_it_is_gone() {
    let daemon = Daemon::simulated(GPU);
    let mut process = Peer::of(&daemon);
    let page = page();
    let hello = Report::Hello(Hello {
        pid: std::process::id(),
        attempt: None,
        program: "by-hand".into(),
        has_page: true,
    });
    process.0.send(&hello, Some(descriptor(&page))).unwrap();
    assert_eq!(process.hear::<Welcome>(), Welcome::OwnPage);
    let job = daemon.status().jobs.remove(0);
    assert_eq!((job.name.as_str(), job.state), ("by-hand", JobState::Watched));
}

/// This test's own limit may be lower than the supervisor's.
fn raise_descriptor_limit() {
    let mut limit = libc::rlimit {
        rlim_cur: 0,
        rlim_max: 0,
    };
    // SAFETY: the pointer is to a live local.
    let got = unsafe { libc::getrlimit(libc::RLIMIT_NOFILE, &raw mut limit) };
    assert_eq!(got, 0);
    limit.rlim_cur = limit.rlim_max;
    // SAFETY: as above.
    let set = unsafe { libc::setrlimit(libc::RLIMIT_NOFILE, &raw const limit) };
    assert_eq!(set, 0);
}

#[test]
fn a_thousand_processes_are_welcome() {
    let daemon = Daemon::simulated(GPU);
    let mut processes = Vec::new();
    raise_descriptor_limit();
    for _ in 0..1000 {
        let mut process = Peer::of(&daemon);
        process.report(&Report::Hello(Hello {
            pid: 1,
            attempt: None,
            program: "many".into(),
            has_page: false,
        }));
        processes.push(process);
    }
    for process in &mut processes {
        assert_eq!(process.hear::<Welcome>(), Welcome::OwnPage);
    }
}

#[test]
fn out_of_descriptors_it_serves_again_when_some_are_free() {
    let folder = Daemon::folder();
    let socket = folder.path().join("migm.sock");
    let mut child = Command::new("sh")
        .args([
            "-c",
            "ulimit -n 48 && exec \"$0\" supervisor --sim a100-40gb --socket \"$1\"",
        ])
        .args([migm(), socket.clone()])
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    eventually("a socket", PATIENCE, || UnixStream::connect(&socket).ok());
    let crowd: Vec<Peer> = (0..80).map(|_| Peer::connect(&socket)).collect();
    let mut last = Peer::connect(&socket);
    last.ask(&Request::Status);
    assert!(
        last.try_hear::<Reply>(Duration::from_millis(500)).is_none(),
        "48 descriptors hold no 81 peers"
    );
    drop(crowd);
    assert!(matches!(last.hear(), Reply::Status(_)));
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    assert!(child.wait().unwrap().success());
}

#[test]
fn another_user_sees_no_jobs_of_ours() {
    // SAFETY: takes nothing and always succeeds.
    if unsafe { libc::geteuid() } != 0 {
        eprintln!("skipped: only root can play another user");
        return;
    }
    let daemon = Daemon::simulated(GPU);
    let folder = daemon.home();
    fs::set_permissions(folder, fs::Permissions::from_mode(0o755)).unwrap();
    let page = page();
    let (mut runner, _) = submit(&daemon, submission("secret"), &page);
    let grant = runner.grant();
    // A copy, since nobody may be unable to reach the build's folder.
    let copy = folder.join("migm");
    fs::copy(migm(), &copy).unwrap();
    let output = Command::new(&copy)
        .args(["status", "--json"])
        .env("MIGM_SOCKET", daemon.socket())
        .current_dir("/")
        .uid(65534)
        .gid(65534)
        .output()
        .unwrap();
    let status: serde_json::Value = json(&output);
    assert_eq!(status["jobs"].as_array().map(Vec::len), Some(0), "{status}");
    assert_eq!(status["gpus"][0]["slices"][0]["state"], "busy", "{status}");
    runner.ended(&grant, Outcome::Done, None);
    assert_eq!(daemon.status().jobs.len(), 1);
}
