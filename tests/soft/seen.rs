//! What a program sees of its lease.

use std::process::{Command, Stdio};

use super::{GIB, LIMIT, MIB, Shared};
use crate::support::{self, eventually};

/// Each job sees its lease as the device, less what it and its context have of it.
#[test]
fn a_job_sees_its_lease_as_the_device() {
    let shared = Shared::new("");
    let program = shared.place.path().join("room");
    let compiler = std::env::var_os("CC").unwrap_or_else(|| "cc".into());
    let mut compile = Command::new(compiler);
    compile.args(["-O1", "-Wall", "-o"]).arg(&program);
    compile
        .arg(support::repository().join("tests/programs/room.c"))
        .arg("-ldl");
    assert!(compile.status().unwrap().success());
    let beside = shared.run(
        "beside",
        &["--mem", "9Gi"],
        &["stencil", "--size", "1024", "--iterations", "100000"],
    );
    eventually("another job runs beside it", LIMIT, || {
        shared.job("beside")?["figures"]["reserved"]
            .as_u64()
            .filter(|bytes| *bytes > 0)
    });
    let mut command = shared.command("room", &["--mem", "3Gi"]);
    let output = command.arg(&program).stdout(Stdio::piped()).output().unwrap();
    let printed = String::from_utf8(output.stdout).unwrap();
    let seen: Vec<u64> = printed
        .split_whitespace()
        .map(|figure| figure.parse().unwrap())
        .collect();
    assert_eq!((seen[0], seen[2]), (3 * GIB, 3 * GIB), "{printed}");
    // The context is charged what those of this machine were measured at, or what is configured before that.
    let context = 3 * GIB - GIB - seen[1];
    assert!((400 * MIB..=512 * MIB).contains(&context), "{context}");
    beside.stop();
}

/// The environment that the runner sets is what the program sees.
#[test]
fn a_program_sees_its_cap_and_its_share_where_mps_runs() {
    let shared = Shared::new("mode = 'soft'\nmps = 'limit'\nsoft_context = '400Mi'\n");
    let pipes = shared.place.path().join("mps");
    std::fs::create_dir(&pipes).unwrap();
    let pipe = pipes.join("control");
    let seen = |own: Option<&str>| {
        let mut command = shared.command("env", &["--mem", "10Gi"]);
        command
            .env("CUDA_MPS_PIPE_DIRECTORY", &pipes)
            .stdout(Stdio::piped());
        if let Some(own) = own {
            command.env("CUDA_MPS_ACTIVE_THREAD_PERCENTAGE", own);
        }
        let output = command.args(["sh", "-c", "env"]).output().unwrap();
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let text = String::from_utf8(output.stdout).unwrap();
        let value = |name: &str| {
            let line = text
                .lines()
                .find_map(|line| line.strip_prefix(name)?.strip_prefix('='));
            line.map(str::to_owned)
        };
        let names = [
            "MIGM_CAP",
            "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE",
            "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT",
        ];
        names.map(value)
    };
    let cap = Some(format!("{}:{}:shared", 10 * GIB, 400 * MIB));
    nix::unistd::mkfifo(&pipe, nix::sys::stat::Mode::S_IRWXU).unwrap();
    assert_eq!(
        seen(None),
        [cap.clone(), None, None],
        "nobody reads from the pipe"
    );
    let _daemon = std::fs::File::options()
        .read(true)
        .write(true)
        .open(&pipe)
        .unwrap();
    // A quarter of 40 GiB.
    let limit = Some("0=10240M".to_owned());
    assert_eq!(seen(None), [cap.clone(), Some("25".to_owned()), limit.clone()]);
    assert_eq!(seen(Some("7")), [cap, Some("7".to_owned()), limit]);
}
