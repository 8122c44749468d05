//! Which address a name has: by `dlsym`, and by `cuGetProcAddress` for the version and stream of that name. The
//! interposer recognises the driver's functions by address first, so it must be known where the two differ.

use std::io::Write;
use std::path::Path;
use std::process::Stdio;

use crate::programs::{Bench, built, is_real, leave_out, program};

/// Names to ask for: base, version, `cuGetProcAddress` flags, exported name; as the hooks declare them, `fn NAME =
/// (c"BASE", VERSION, Legacy or PerThread)`.
fn names() -> String {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("interposer/src/hooks");
    let mut names = String::new();
    for file in std::fs::read_dir(folder).unwrap() {
        let source = std::fs::read_to_string(file.unwrap().path()).unwrap();
        for line in source.lines().map(str::trim_start) {
            let Some((name, rest)) = line
                .strip_prefix("fn cu")
                .and_then(|line| line.split_once(" = (c\""))
            else {
                continue;
            };
            let (base, rest) = rest.split_once("\", ").unwrap();
            let (version, streams) = rest.split_once(", ").unwrap();
            let flags = if streams.starts_with("PerThread") { 2 } else { 1 };
            names += &format!("{base} {version} {flags} cu{name}\n");
        }
    }
    names
}

fn ask(bench: &Bench, preload: bool) -> Option<Vec<Vec<String>>> {
    let mut command = bench.command(&program("identity"));
    if preload {
        command.env("LD_PRELOAD", built("libmigm_interposer.so"));
    }
    command.stdin(Stdio::piped()).stdout(Stdio::piped());
    let mut child = command.spawn().unwrap();
    child.stdin.take().unwrap().write_all(names().as_bytes()).unwrap();
    let output = child.wait_with_output().unwrap();
    if output.status.code() == Some(77) {
        return None;
    }
    assert!(output.status.success(), "{}", output.status);
    let lines = String::from_utf8(output.stdout).unwrap();
    let words = |line: &str| line.split(' ').map(str::to_owned).collect();
    Some(lines.lines().map(words).collect())
}

#[test]
fn each_hooked_name_is_ours_by_both_ways_where_the_driver_has_it() {
    let bench = Bench::new();
    let (Some(plain), Some(hooked)) = (ask(&bench, false), ask(&bench, true)) else {
        assert!(is_real());
        return leave_out("pointer identity: no driver");
    };
    assert!(plain.len() > 50 && plain.len() == hooked.len());
    for (plain, hooked) in plain.iter().zip(&hooked) {
        let [name, by_name, by_proc, _] = &plain[..] else {
            panic!("{plain:?}")
        };
        for (way, real, found) in [
            ("dlsym", by_name, &hooked[1]),
            ("cuGetProcAddress", by_proc, &hooked[2]),
        ] {
            let expected = if real == "absent" {
                "absent"
            } else {
                "libmigm_interposer.so"
            };
            assert_eq!(found, expected, "{name} by {way}");
        }
    }
}
