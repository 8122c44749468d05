//! `migm run`, with real programs and real signals, against a supervisor that follows a script.

mod scripted;

use std::fs;
use std::io::{Read, Write};
use std::os::fd::AsFd;
use std::os::unix::fs::PermissionsExt;
use std::path::Path;
use std::process::{Child, Command, Output, Stdio};
use std::time::{Duration, Instant};

use migm_shared::page::{Class, CounterPage};
use migm_supervisor::control::{Figures, Outcome, Reply, Request, Unmet};
use nix::sys::mman::{MapFlags, ProtFlags, mmap};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;
use scripted::{LIMIT, Scripted, grant, migm, outcomes, until};

fn pid_of(child: &Child) -> Pid {
    Pid::from_raw(i32::try_from(child.id()).unwrap())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn is_alive(pid: i32) -> bool {
    let stat = fs::read_to_string(format!("/proc/{pid}/stat")).unwrap_or_default();
    let state = stat.rsplit(") ").next().and_then(|rest| rest.chars().next());
    state.is_some_and(|state| state != 'Z')
}

/// One attempt that ends by itself.
fn once(args: &[&str], script: &str) -> (Output, Outcome) {
    let scripted = Scripted::new();
    let child = scripted.run(args, script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let ended = peer.serve_one(&grant(&submission, 1));
    peer.expect_end();
    (child.wait_with_output().unwrap(), ended.outcome)
}

fn wait_for_file(path: &Path) -> String {
    let mut content = String::new();
    until(&format!("{} is there", path.display()), || {
        content = fs::read_to_string(path).unwrap_or_default();
        content.ends_with('\n')
    });
    content
}

#[test]
fn the_programs_status_and_output_are_passed_on_and_nothing_is_added() {
    let (output, outcome) = once(&[], "echo out; echo err >&2; exit 3");
    assert_eq!((output.status.code(), outcome), (Some(3), Outcome::Failed));
    assert_eq!(
        (text(&output.stdout), text(&output.stderr)),
        ("out\n".into(), "err\n".into())
    );
    let (output, outcome) = once(&[], "exit 0");
    assert_eq!((output.status.code(), outcome), (Some(0), Outcome::Done));
}

#[test]
fn a_signal_that_nobody_here_sent_is_a_failure_with_the_shells_status() {
    let (output, outcome) = once(&[], "kill -KILL $$");
    assert_eq!((output.status.code(), outcome), (Some(137), Outcome::Failed));
    // A real-time signal has no name in many libraries.
    let (output, outcome) = once(&[], "kill -34 $$");
    assert_eq!((output.status.code(), outcome), (Some(162), Outcome::Failed));
}

#[test]
fn a_program_that_cannot_run_gives_126_or_127_and_the_slice_back() {
    let scripted = Scripted::new();
    let plain = scripted.folder().join("plain");
    fs::write(&plain, "no program").unwrap();
    fs::set_permissions(&plain, fs::Permissions::from_mode(0o644)).unwrap();
    for (program, status) in [
        ("/no/such/program", 127),
        ("no-such-program-in-path", 127),
        ("./plain", 126),
    ] {
        let mut command = Command::new(migm());
        command
            .args(["run", "--", program])
            .env("MIGM_SOCKET", scripted.socket());
        command
            .current_dir(scripted.folder())
            .stdin(Stdio::null())
            .stderr(Stdio::piped());
        let child = command.spawn().unwrap();
        let (mut peer, submission) = scripted.accept_job();
        let grant = grant(&submission, 1);
        peer.grant(&grant);
        let ended = peer.expect_ended(grant.attempt);
        assert_eq!(
            (ended.status, ended.outcome),
            (status, Outcome::Failed),
            "{program}"
        );
        peer.finish(ended.figures);
        let output = child.wait_with_output().unwrap();
        assert_eq!(output.status.code(), Some(status));
        let said = text(&output.stderr);
        assert!(
            said.starts_with(&format!("migm: cannot run `{program}`: ")),
            "{said}"
        );
        assert_eq!(said.lines().count(), 1, "{said}");
    }
}

#[test]
fn a_refused_job_ends_with_125_and_the_reason() {
    let scripted = Scripted::new();
    let child = scripted.run(&[], "touch ran").spawn().unwrap();
    let mut peer = scripted.accept();
    peer.expect();
    peer.say(&Reply::Refused {
        reason: "no slice here holds 90 GiB".into(),
    });
    let output = child.wait_with_output().unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert_eq!(text(&output.stderr), "migm: no slice here holds 90 GiB\n");
    assert!(!scripted.folder().join("ran").exists());
}

#[test]
fn a_report_that_cannot_be_written_is_found_before_the_program_runs() {
    let scripted = Scripted::new();
    let output = scripted
        .run(&["--report", "no/such/folder/r"], "touch ran")
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(125));
    assert!(text(&output.stderr).starts_with("migm: cannot write the report no/such/folder/r: "));
    assert!(!scripted.folder().join("ran").exists());
}

#[test]
fn the_submission_says_what_the_user_said() {
    let scripted = Scripted::new();
    let args = [
        "--mem",
        "4.5G",
        "--iterations",
        "200",
        "--name",
        "train",
        "--use-existing",
        "--batch",
        "4",
    ];
    let mut command = scripted.run(&args, "exit 0");
    command.env("CUDA_VISIBLE_DEVICES", "1");
    let mut child = command.args(["x", "--part", "y"]).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    assert_eq!(submission.name, "train");
    assert_eq!(submission.command, ["sh", "-c", "exit 0", "x", "--part", "y"]);
    assert_eq!(
        (submission.mem, submission.iterations),
        (Some(4_500_000_000), Some(200))
    );
    assert_eq!(submission.visible_devices.as_deref(), Some("1"));
    assert_eq!(
        (submission.movable, submission.use_existing, submission.part),
        (true, true, None)
    );
    assert_eq!(submission.batch.map(|batch| batch.0), Some(4));
    assert_eq!(submission.runner, child.id());
    peer.say(&Reply::Cancel { attempt: None });
    assert_eq!(child.wait().unwrap().code(), Some(125));
}

#[test]
fn an_attempt_finds_its_slice_in_the_environment_and_the_users_stays() {
    let scripted = Scripted::new();
    let script = "env > seen; exit 0";
    let mut command = scripted.run(&[], script);
    // Libraries that are not there: the loader says so on standard error and goes on.
    command
        .env("LD_PRELOAD", "/users.so")
        .env("LD_LIBRARY_PATH", "/users:")
        .env("USERS", "own");
    command.env("CUDA_VISIBLE_DEVICES", "0");
    let mut child = command.spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let mut grant = grant(&submission, 1);
    grant.interposer = "/ours.so".into();
    grant.library_path = vec!["/sim".into()];
    peer.serve_one(&grant);
    child.wait().unwrap();
    let seen = fs::read_to_string(scripted.folder().join("seen")).unwrap();
    let expected = [
        "CUDA_VISIBLE_DEVICES=MIG-1".to_owned(),
        "LD_PRELOAD=/ours.so:/users.so".to_owned(),
        "LD_LIBRARY_PATH=/sim:/users:".to_owned(),
        format!("MIGM_SOCKET={}", scripted.socket().display()),
        format!("MIGM_ATTEMPT={}", grant.attempt),
        "SIMGPU_ID=seven".to_owned(),
        "USERS=own".to_owned(),
    ];
    for line in expected {
        assert!(
            seen.lines().any(|there| there == line),
            "{line} is not in\n{seen}"
        );
    }
}

#[test]
fn the_program_inherits_no_descriptor_and_no_blocked_signal() {
    let (output, _) = once(&[], "ls -l /proc/self/fd; grep SigBlk /proc/self/status");
    let shown = text(&output.stdout);
    // The test's own parents may leave it files and pipes; sockets, the page and signals are the runner's.
    for ours in ["socket:", "memfd:", "anon_inode:"] {
        assert!(!shown.contains(ours), "{shown}");
    }
    assert!(shown.ends_with("SigBlk:\t0000000000000000\n"), "{shown}");
}

#[test]
fn signals_go_to_the_whole_group() {
    for (signal, name, status) in [
        (Signal::SIGTERM, "TERM", 143),
        (Signal::SIGINT, "INT", 130),
        (Signal::SIGHUP, "HUP", 129),
        (Signal::SIGUSR1, "USR1", 138),
    ] {
        let scripted = Scripted::new();
        // The child in the group notes the signal; the leader dies of it.
        let script = format!(
            "sh -c 'trap \"echo got > child; exit\" {name}; echo > ready; while :; do sleep 0.01; done' & wait"
        );
        let mut child = scripted.run(&[], &script).spawn().unwrap();
        let (mut peer, submission) = scripted.accept_job();
        let grant = grant(&submission, 1);
        peer.grant(&grant);
        let leader = peer.expect_started(grant.attempt);
        assert_eq!(
            nix::unistd::getpgid(Some(Pid::from_raw(leader))),
            Ok(Pid::from_raw(leader))
        );
        // An asynchronous child of a shell ignores SIGINT for good; nothing to see of it there.
        if signal == Signal::SIGINT {
            std::thread::sleep(Duration::from_millis(100));
        } else {
            wait_for_file(&scripted.folder().join("ready"));
        }
        kill(pid_of(&child), signal).unwrap();
        if signal == Signal::SIGINT {
            std::thread::sleep(Duration::from_millis(100));
            kill(pid_of(&child), Signal::SIGTERM).unwrap();
        }
        let ended = peer.expect_ended(grant.attempt);
        assert_eq!(
            (ended.status, ended.outcome),
            (status, Outcome::Signalled),
            "{name}"
        );
        peer.finish(ended.figures);
        assert_eq!(child.wait().unwrap().code(), Some(status));
        if signal != Signal::SIGINT {
            assert_eq!(
                fs::read_to_string(scripted.folder().join("child")).unwrap(),
                "got\n"
            );
        }
    }
}

#[test]
fn a_program_that_makes_a_good_end_of_a_signal_is_done() {
    let scripted = Scripted::new();
    let script = "trap 'exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    wait_for_file(&scripted.folder().join("ready"));
    kill(pid_of(&child), Signal::SIGTERM).unwrap();
    assert_eq!(peer.expect_ended(grant.attempt).outcome, Outcome::Done);
    peer.finish(Figures::default());
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_signal_ends_the_waiting_for_a_slice() {
    let scripted = Scripted::new();
    let mut child = scripted.run(&[], "touch ran").spawn().unwrap();
    let (mut peer, _) = scripted.accept_job();
    peer.expect_silence(Duration::from_millis(100));
    kill(pid_of(&child), Signal::SIGINT).unwrap();
    assert!(matches!(peer.expect(), Request::Cancel { .. }));
    peer.expect_end();
    assert_eq!(child.wait().unwrap().code(), Some(130));
    assert!(!scripted.folder().join("ran").exists());
}

#[test]
fn a_slice_is_kept_until_no_descendant_lives_wherever_it_is() {
    let scripted = Scripted::new();
    // A daemon in a session of its own, whose parent has gone before the program ends.
    let script = "(setsid sh -c 'echo $$ > daemon; while [ ! -e go ]; do sleep 0.01; done; echo > late' &) ; \
                  while [ ! -s daemon ]; do sleep 0.01; done; exit 4";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    let leader = peer.expect_started(grant.attempt);
    until("the program ends", || !is_alive(leader));
    peer.expect_silence(Duration::from_millis(200));
    fs::write(scripted.folder().join("go"), "").unwrap();
    let ended = peer.expect_ended(grant.attempt);
    assert!(scripted.folder().join("late").exists());
    assert_eq!((ended.status, ended.outcome), (4, Outcome::Failed));
    peer.finish(ended.figures);
    assert_eq!(child.wait().unwrap().code(), Some(4));
}

#[test]
fn a_move_stops_the_attempt_and_starts_the_next() {
    let scripted = Scripted::new();
    let script = "echo $MIGM_ATTEMPT $CUDA_VISIBLE_DEVICES >> seen; \
                  case $CUDA_VISIBLE_DEVICES in MIG-1) echo > ready; sleep 100;; esac; exit 5";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let first = grant(&submission, 1);
    peer.grant(&first);
    let leader = peer.expect_started(first.attempt);
    wait_for_file(&scripted.folder().join("ready"));
    // Words about another attempt mean nothing.
    let reason = "9 GiB forecast".to_owned();
    peer.say(&Reply::Move {
        attempt: grant(&submission, 2).attempt,
        reason: reason.clone(),
    });
    peer.expect_silence(Duration::from_millis(100));
    assert!(is_alive(leader));
    peer.say(&Reply::Move {
        attempt: first.attempt,
        reason,
    });
    let ended = peer.expect_ended(first.attempt);
    assert_eq!((ended.status, ended.outcome), (143, Outcome::Moved));
    let second = grant(&submission, 2);
    let ended = peer.serve_one(&second);
    assert_eq!((ended.status, ended.outcome), (5, Outcome::Failed));
    assert_eq!(child.wait().unwrap().code(), Some(5));
    let seen = fs::read_to_string(scripted.folder().join("seen")).unwrap();
    assert_eq!(
        seen,
        format!("{} MIG-1\n{} MIG-2\n", first.attempt, second.attempt)
    );
}

/// Starts a program, waits for its file `ready`, moves it, and says how that ended.
fn moved(args: &[&str], script: &str) -> (Scripted, scripted::Ended, Duration) {
    let scripted = Scripted::new();
    let mut child = scripted.run(args, script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    wait_for_file(&scripted.folder().join("ready"));
    let began = Instant::now();
    peer.say(&Reply::Move {
        attempt: grant.attempt,
        reason: "forecast".into(),
    });
    let ended = peer.expect_ended(grant.attempt);
    let took = began.elapsed();
    peer.finish(ended.figures);
    child.wait().unwrap();
    (scripted, ended, took)
}

#[test]
fn exit_status_0_after_our_signal_is_a_move_unless_told_otherwise() {
    let script = "trap 'exit 0' TERM; echo > ready; while :; do sleep 0.01; done";
    let (_, ended, _) = moved(&[], script);
    assert_eq!((ended.status, ended.outcome), (0, Outcome::Moved));
    let (_, ended, _) = moved(&["--done-on-zero"], script);
    assert_eq!((ended.status, ended.outcome), (0, Outcome::Done));
}

#[test]
fn the_signal_of_a_move_can_be_chosen() {
    let script = "trap 'exit 9' USR2; trap '' TERM; echo > ready; while :; do sleep 0.01; done";
    let (_, ended, _) = moved(&["--signal", "usr2"], script);
    assert_eq!((ended.status, ended.outcome), (9, Outcome::Moved));
}

#[test]
fn after_the_grace_time_nothing_of_the_attempt_lives() {
    // Neither the program nor its daemon ends when asked.
    let script = "trap '' TERM; (setsid sh -c 'trap \"\" TERM; echo $$ > daemon; while :; do sleep 0.01; done' &); \
                  while [ ! -s daemon ]; do sleep 0.01; done; echo > ready; while :; do sleep 0.01; done";
    let (scripted, ended, took) = moved(&["--grace", "300ms"], script);
    assert_eq!((ended.status, ended.outcome), (137, Outcome::Moved));
    assert!(took >= Duration::from_millis(300), "{took:?}");
    let daemon = fs::read_to_string(scripted.folder().join("daemon")).unwrap();
    assert!(!is_alive(daemon.trim().parse().unwrap()));
}

#[test]
fn a_stopped_attempt_can_be_moved() {
    let script = "echo > ready; kill -STOP $$; exit 1";
    let (_, ended, took) = moved(&[], script);
    assert_eq!((ended.status, ended.outcome), (143, Outcome::Moved));
    assert!(took < Duration::from_secs(8), "{took:?}");
}

#[test]
fn a_cancelled_job_ends_with_the_programs_status() {
    let scripted = Scripted::new();
    let mut child = scripted.run(&[], "sleep 100").spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    peer.say(&Reply::Cancel {
        attempt: Some(grant.attempt),
    });
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!((ended.status, ended.outcome), (143, Outcome::Cancelled));
    peer.finish(ended.figures);
    assert_eq!(child.wait().unwrap().code(), Some(143));
}

/// The page that a runner has sent, as one of its processes maps it.
fn map(file: impl AsFd) -> &'static CounterPage {
    let size = std::num::NonZeroUsize::new(size_of::<CounterPage>()).unwrap();
    let access = ProtFlags::PROT_READ | ProtFlags::PROT_WRITE;
    // SAFETY: a fresh mapping at a place of the kernel's choice touches no other memory.
    let page = unsafe { mmap(None, size, access, MapFlags::MAP_SHARED, file, 0) }.unwrap();
    // SAFETY: the page is of this size and made of atomics; the mapping stays until the test ends.
    unsafe { page.cast::<CounterPage>().as_ref() }
}

#[test]
fn out_of_memory_is_told_from_failure_and_carries_what_was_asked() {
    let scripted = Scripted::new();
    let script = "while [ ! -e go-$CUDA_VISIBLE_DEVICES ]; do sleep 0.01; done; exit 1";
    let mut child = scripted.run(&["--report", "r.json"], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let page = map(peer.page());
    assert!(page.is_formatted());
    assert!(matches!(peer.expect(), Request::Status));
    let first = grant(&submission, 1);
    peer.grant(&first);
    let pid = peer.expect_started(first.attempt);
    let device = page.device_index([1; 16]).unwrap();
    let slot = page.join(pid.unsigned_abs(), 1, 1).unwrap();
    page.add(slot, device, Class::Device, 4_000);
    page.remove(slot, device, Class::Device, 1_000);
    page.add(slot, device, Class::Device, 500);
    page.refuse(slot, device, 5_000);
    fs::write(scripted.folder().join("go-MIG-1"), "").unwrap();
    let ended = peer.expect_ended(first.attempt);
    assert_eq!((ended.status, ended.outcome), (1, Outcome::Oom));
    let unmet = Unmet {
        asked: 5_000,
        in_use: 3_500,
    };
    assert_eq!(ended.unmet, Some(unmet));
    assert_eq!(
        (
            ended.figures.reserved,
            ended.figures.allocations,
            ended.figures.frees
        ),
        (4_000, 2, 1)
    );
    // What the dead held is out of the totals, and the second attempt's failure is its own.
    assert_eq!(page.read()[0].reserved, 0);
    assert!(page.occupants().is_empty());
    let second = grant(&submission, 2);
    peer.grant(&second);
    peer.expect_started(second.attempt);
    fs::write(scripted.folder().join("go-MIG-2"), "").unwrap();
    let ended = peer.expect_ended(second.attempt);
    assert_eq!((ended.outcome, ended.unmet), (Outcome::Failed, None));
    peer.finish(Figures {
        device: Some(9_999),
        ..ended.figures
    });
    assert_eq!(child.wait().unwrap().code(), Some(1));

    let report = fs::read_to_string(scripted.folder().join("r.json")).unwrap();
    let report: serde_json::Value = serde_json::from_str(&report).unwrap();
    assert_eq!(report["name"], "sh");
    assert_eq!(
        (&report["peak_bytes"], &report["peak"]["reserved"]),
        (&4_000.into(), &4_000.into())
    );
    assert_eq!(
        (&report["peak"]["device"], &report["peak"]["allocated"]),
        (&9_999.into(), &().into())
    );
    assert_eq!((&report["allocations"], &report["frees"]), (&2.into(), &1.into()));
    assert_eq!(report["predicted_peak_bytes"], 12_345);
    let attempts = report["attempts"].as_array().unwrap();
    let shown: Vec<_> = attempts
        .iter()
        .map(|one| (&one["profile"], &one["outcome"]))
        .collect();
    assert_eq!(
        shown,
        [
            (&"1g.5gb".into(), &"oom".into()),
            (&"2g.5gb".into(), &"failed".into())
        ]
    );
    assert!(attempts[0]["end"].as_f64().unwrap() <= attempts[1]["start"].as_f64().unwrap());
}

#[test]
fn a_job_that_reads_a_pipe_is_not_movable_and_says_so_once() {
    let scripted = Scripted::new();
    let mut command = scripted.run(&[], "cat > got; echo > ready; sleep 0.3");
    let mut child = command.stdin(Stdio::piped()).spawn().unwrap();
    child.stdin.take().unwrap().write_all(b"one two").unwrap();
    let (mut peer, submission) = scripted.accept_job();
    assert!(!submission.movable);
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    wait_for_file(&scripted.folder().join("ready"));
    // A supervisor that asks all the same must not cost the user the input.
    peer.say(&Reply::Move {
        attempt: grant.attempt,
        reason: "forecast".into(),
    });
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!(ended.outcome, Outcome::Done);
    peer.finish(ended.figures);
    let output = child.wait_with_output().unwrap();
    assert_eq!(
        fs::read_to_string(scripted.folder().join("got")).unwrap(),
        "one two"
    );
    let said = text(&output.stderr);
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(
        said.contains("pipe") && said.contains("not relaunched") && said.contains("--stdin-spool"),
        "{said}"
    );
}

/// Runs two attempts that each copy their input, and gives back what both have read.
fn read_twice(args: &[&str], stdin: impl Into<Stdio>, input: Option<&[u8]>) -> String {
    let scripted = Scripted::new();
    let script = "cat >> got; case $CUDA_VISIBLE_DEVICES in MIG-1) echo > ready; sleep 100;; esac";
    let mut child = scripted.run(args, script).stdin(stdin).spawn().unwrap();
    if let Some(input) = input {
        child.stdin.take().unwrap().write_all(input).unwrap();
    }
    let (mut peer, submission) = scripted.accept_job();
    assert!(submission.movable);
    let first = grant(&submission, 1);
    peer.grant(&first);
    peer.expect_started(first.attempt);
    wait_for_file(&scripted.folder().join("ready"));
    peer.say(&Reply::Move {
        attempt: first.attempt,
        reason: "forecast".into(),
    });
    assert_eq!(peer.expect_ended(first.attempt).outcome, Outcome::Moved);
    assert_eq!(peer.serve_one(&grant(&submission, 2)).outcome, Outcome::Done);
    child.wait().unwrap();
    fs::read_to_string(scripted.folder().join("got")).unwrap()
}

#[test]
fn each_attempt_reads_a_spooled_pipe_from_the_start() {
    assert_eq!(
        read_twice(&["--stdin-spool"], Stdio::piped(), Some(b"a b\n")),
        "a b\na b\n"
    );
}

#[test]
fn each_attempt_reads_a_file_from_where_the_job_began() {
    let mut file = tempfile::tempfile().unwrap();
    file.write_all(b"skipped\nread\n").unwrap();
    nix::unistd::lseek(&file, 8, nix::unistd::Whence::SeekSet).unwrap();
    assert_eq!(read_twice(&[], file, None), "read\nread\n");
}

#[test]
fn the_job_goes_on_when_the_supervisor_dies_and_is_told_to_the_next() {
    let mut scripted = Scripted::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    let leader = peer.expect_started(grant.attempt);
    drop(peer);
    scripted.die();
    std::thread::sleep(Duration::from_millis(300));
    assert!(is_alive(leader));
    scripted.come_back();
    let mut peer = scripted.accept();
    let Request::Resume {
        submission: again,
        job,
        grant: held,
        attempts,
        pid,
    } = peer.expect()
    else {
        panic!("the runner does not resume");
    };
    assert_eq!((again, job.0), (submission, 1));
    assert_eq!(held.as_ref(), Some(&grant));
    assert_eq!(pid, Some(leader.unsigned_abs()));
    assert_eq!(outcomes(&attempts), [None]);
    assert!(map(peer.page()).is_formatted());
    fs::write(scripted.folder().join("go"), "").unwrap();
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!(ended.status, 6);
    peer.finish(ended.figures);
    assert_eq!(child.wait().unwrap().code(), Some(6));
}

#[test]
fn an_end_while_no_supervisor_was_there_is_told_to_the_next() {
    let mut scripted = Scripted::new();
    let script = "case $CUDA_VISIBLE_DEVICES in MIG-1) echo > ready; sleep 100;; esac; exit 0";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let first = grant(&submission, 1);
    peer.grant(&first);
    let leader = peer.expect_started(first.attempt);
    wait_for_file(&scripted.folder().join("ready"));
    // It dies right after it has asked for a move.
    peer.say(&Reply::Move {
        attempt: first.attempt,
        reason: "forecast".into(),
    });
    until("the attempt ends", || !is_alive(leader));
    drop(peer);
    scripted.die();
    std::thread::sleep(Duration::from_millis(200));
    scripted.come_back();
    let mut peer = scripted.accept();
    let Request::Resume {
        grant: held,
        attempts,
        pid,
        ..
    } = peer.expect()
    else {
        panic!("the runner does not resume");
    };
    assert_eq!((held.as_ref(), pid), (Some(&first), None));
    assert_eq!(outcomes(&attempts), [None]);
    assert_eq!(peer.expect_ended(first.attempt).outcome, Outcome::Moved);
    let ended = peer.serve_one(&grant(&submission, 2));
    assert_eq!(ended.outcome, Outcome::Done);
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn a_waiting_job_waits_on_with_the_next_supervisor() {
    let mut scripted = Scripted::new();
    let mut child = scripted.run(&[], "exit 0").spawn().unwrap();
    let (peer, submission) = scripted.accept_job();
    drop(peer);
    scripted.die();
    scripted.come_back();
    let mut peer = scripted.accept();
    let Request::Resume {
        grant: held,
        attempts,
        pid,
        ..
    } = peer.expect()
    else {
        panic!("the runner does not resume");
    };
    assert_eq!((held, attempts, pid), (None, Vec::new(), None));
    peer.serve_one(&grant(&submission, 1));
    assert_eq!(child.wait().unwrap().code(), Some(0));
}

#[test]
fn without_any_supervisor_the_job_ends_with_its_own_status() {
    let mut scripted = Scripted::new();
    let script = "while [ ! -e go ]; do sleep 0.01; done; exit 6";
    let mut child = scripted.run(&[], script).spawn().unwrap();
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    drop(peer);
    scripted.die();
    fs::write(scripted.folder().join("go"), "").unwrap();
    let began = Instant::now();
    assert_eq!(child.wait().unwrap().code(), Some(6));
    assert!(began.elapsed() < LIMIT);
}

/// A child at the other end of a pseudo-terminal, as the leader of its session.
struct Typed {
    child: Child,
    terminal: fs::File,
    screen: std::sync::mpsc::Receiver<Vec<u8>>,
    shown: String,
}

impl Typed {
    fn spawn(mut command: Command) -> Self {
        use std::os::unix::process::CommandExt;
        let pty = nix::pty::openpty(None, None).unwrap();
        let end = || Stdio::from(pty.slave.try_clone().unwrap());
        command.stdin(end()).stdout(end()).stderr(end());
        let lead = || {
            nix::unistd::setsid()?;
            // SAFETY: TIOCSCTTY takes no pointer, and standard input is the terminal.
            nix::errno::Errno::result(unsafe { libc::ioctl(0, libc::TIOCSCTTY, 0) })?;
            Ok(())
        };
        // SAFETY: setsid and ioctl are system calls without allocation.
        unsafe { command.pre_exec(lead) };
        let child = command.spawn().unwrap();
        drop(command);
        let terminal = fs::File::from(pty.master);
        let mut reader = terminal.try_clone().unwrap();
        let (screen_tx, screen) = std::sync::mpsc::channel();
        std::thread::spawn(move || {
            let mut bytes = [0; 1024];
            while let Ok(count) = reader.read(&mut bytes) {
                if count == 0 || screen_tx.send(bytes[..count].to_vec()).is_err() {
                    break;
                }
            }
        });
        Self {
            child,
            terminal,
            screen,
            shown: String::new(),
        }
    }

    fn type_in(&mut self, keys: &[u8]) {
        self.terminal.write_all(keys).unwrap();
    }

    fn expect(&mut self, words: &str) {
        let end = Instant::now() + LIMIT;
        while !self.shown.contains(words) {
            let left = end.saturating_duration_since(Instant::now());
            match self.screen.recv_timeout(left) {
                Ok(bytes) => self.shown.push_str(&text(&bytes)),
                Err(_) => panic!("{words:?} is not shown in {:?}", self.shown),
            }
        }
    }
}

#[test]
fn the_program_reads_from_the_terminal_and_ctrl_c_reaches_it() {
    let scripted = Scripted::new();
    let mut typed = Typed::spawn(scripted.run(&[], "read line; echo got $line; read more"));
    let (mut peer, submission) = scripted.accept_job();
    assert!(submission.movable);
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    typed.type_in(b"hello\n");
    typed.expect("got hello");
    typed.type_in(b"\x03");
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!((ended.status, ended.outcome), (130, Outcome::Signalled));
    peer.finish(ended.figures);
    assert_eq!(typed.child.wait().unwrap().code(), Some(130));
}

#[test]
fn ctrl_z_stops_program_and_runner_and_fg_continues_both() {
    let scripted = Scripted::new();
    let run = scripted.run(&[], "echo begun; read line; echo got $line; exit 7");
    let mut shell = Command::new("bash");
    let words: Vec<String> = std::iter::once(run.get_program())
        .chain(run.get_args())
        .map(|word| format!("'{}'", word.to_string_lossy()))
        .collect();
    // A shell with job control, as behind a prompt.
    let lines = format!("set -m; {}; echo stopped $?; fg; echo ended $?", words.join(" "));
    shell
        .args(["-c", &lines])
        .current_dir(scripted.folder())
        .env("MIGM_SOCKET", scripted.socket());
    let mut typed = Typed::spawn(shell);
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    typed.expect("begun");
    typed.type_in(b"\x1a");
    typed.expect("stopped 148");
    typed.type_in(b"hello\n");
    typed.expect("got hello");
    let ended = peer.expect_ended(grant.attempt);
    assert_eq!((ended.status, ended.outcome), (7, Outcome::Failed));
    peer.finish(ended.figures);
    typed.expect("ended 7");
}

#[test]
fn ctrl_z_where_no_shell_could_continue_is_ignored() {
    let scripted = Scripted::new();
    let mut typed = Typed::spawn(scripted.run(&[], "echo begun; read line; echo got $line; exit 7"));
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.grant(&grant);
    peer.expect_started(grant.attempt);
    typed.expect("begun");
    typed.type_in(b"\x1a");
    typed.type_in(b"hello\n");
    typed.expect("got hello");
    let ended = peer.expect_ended(grant.attempt);
    peer.finish(ended.figures);
    assert_eq!(typed.child.wait().unwrap().code(), Some(7));
}
