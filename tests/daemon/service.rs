//! The daemon as a service: ready, watched, and refusals to start in one line.

use std::fs;
use std::os::unix::net::{UnixDatagram, UnixStream};
use std::path::Path;
use std::process::{Command, Stdio};
use std::time::{Duration, Instant};

use crate::daemon::{Daemon, PATIENCE};
use crate::peer::GPU;
use crate::support::migm;

#[test]
fn systemd_hears_ready_and_the_watchdog() {
    let folder = Daemon::folder();
    let notify = folder.path().join("notify");
    let systemd = UnixDatagram::bind(&notify).unwrap();
    systemd.set_read_timeout(Some(PATIENCE)).unwrap();
    let mut child = Command::new(migm())
        .args(["supervisor", "--sim", GPU, "--socket"])
        .arg(folder.path().join("migm.sock"))
        .env("NOTIFY_SOCKET", &notify)
        .env("WATCHDOG_USEC", "400000")
        .env_remove("WATCHDOG_PID")
        .stderr(Stdio::null())
        .spawn()
        .unwrap();
    let hear = || {
        let mut text = [0; 256];
        let length = systemd.recv(&mut text).unwrap();
        String::from_utf8_lossy(&text[..length]).trim().to_owned()
    };
    assert_eq!(hear(), "READY=1");
    assert!(
        UnixStream::connect(folder.path().join("migm.sock")).is_ok(),
        "ready means that it listens"
    );
    let since = Instant::now();
    for _ in 0..5 {
        assert_eq!(hear(), "WATCHDOG=1");
    }
    // systemd kills after 400 ms without a ping.
    assert!(
        since.elapsed() < Duration::from_millis(5 * 400),
        "{:?}",
        since.elapsed()
    );
    // SAFETY: the pid is that of a child not yet waited for.
    unsafe { libc::kill(child.id().cast_signed(), libc::SIGTERM) };
    let last = std::iter::repeat_with(hear).find(|text| text != "WATCHDOG=1");
    assert_eq!(last.as_deref(), Some("STOPPING=1"));
    assert!(child.wait().unwrap().success());
}

fn fails(arguments: &[&str], environment: &[(&str, &str)]) -> (Option<i32>, String) {
    let folder = Daemon::folder();
    let output = Command::new(migm())
        .arg("supervisor")
        .args(["--socket", folder.path().join("migm.sock").to_str().unwrap()])
        .args(arguments)
        .envs(environment.iter().copied())
        .output()
        .unwrap();
    assert!(output.stdout.is_empty());
    (
        output.status.code(),
        String::from_utf8_lossy(&output.stderr).trim().to_owned(),
    )
}

#[test]
fn no_driver_is_one_line_and_exit_3() {
    if Path::new("/proc/driver/nvidia/version").exists() {
        eprintln!("skipped: this machine has an NVIDIA driver");
        return;
    }
    let (code, said) = fails(&[], &[("LD_LIBRARY_PATH", "")]);
    assert_eq!(code, Some(3), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    assert!(said.contains("no NVIDIA driver"), "{said}");
}

#[test]
fn a_wrong_configuration_is_exit_2_with_its_line() {
    let folder = Daemon::folder();
    let config = folder.path().join("migm.toml");
    fs::write(&config, "sample_ms = 100\ngrace = 3\n").unwrap();
    let (code, said) = fails(&["--config", config.to_str().unwrap(), "--sim", GPU], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("migm.toml:2:1: unknown field `grace`"), "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
}

#[test]
fn an_unknown_model_is_exit_2_and_named() {
    let (code, said) = fails(&["--sim", "gtx-9000"], &[]);
    assert_eq!(code, Some(2), "{said}");
    assert!(said.contains("gtx-9000"), "{said}");
}

#[test]
fn a_second_supervisor_on_a_socket_is_refused() {
    let daemon = Daemon::simulated(GPU);
    let output = Command::new(migm())
        .args(["supervisor", "--sim", GPU, "--socket"])
        .arg(daemon.socket())
        .output()
        .unwrap();
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8_lossy(&output.stderr);
    assert!(said.contains("another supervisor serves"), "{said}");
    assert_eq!(daemon.status().gpus.len(), 1);
}
