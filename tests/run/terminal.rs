//! Jobs at a terminal, with real keys.

use std::fs;
use std::io::{Read, Write};
use std::process::{Child, Command, Stdio};
use std::time::Instant;

use migm_supervisor::control::Outcome;

use crate::scripted::{LIMIT, Scripted, grant, text};

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
    peer.start(&grant);
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
        .env("MIGM_HISTORY", "off")
        .env("MIGM_SOCKET", scripted.socket());
    let mut typed = Typed::spawn(shell);
    let (mut peer, submission) = scripted.accept_job();
    let grant = grant(&submission, 1);
    peer.start(&grant);
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
    peer.start(&grant);
    typed.expect("begun");
    typed.type_in(b"\x1a");
    typed.type_in(b"hello\n");
    typed.expect("got hello");
    let ended = peer.expect_ended(grant.attempt);
    peer.finish(ended.figures);
    assert_eq!(typed.child.wait().unwrap().code(), Some(7));
}
