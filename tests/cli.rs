//! What the commands refuse, and how: one line, the right exit code, nothing changed.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::fs;
use std::process::{Command, Output, Stdio};

use support::migm;
use tempfile::TempDir;

/// Runs `migm` in an empty folder, with a socket that nobody listens at.
fn run(folder: &TempDir, args: &[&str]) -> Output {
    Command::new(migm())
        .args(args)
        .current_dir(folder.path())
        .env("MIGM_HISTORY", "off")
        .env("MIGM_SOCKET", folder.path().join("none"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn refused(args: &[&str]) -> (Option<i32>, String) {
    let folder = tempfile::tempdir().unwrap();
    let output = run(&folder, args);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    assert!(
        fs::read_dir(folder.path()).unwrap().next().is_none(),
        "{args:?} left something"
    );
    let line = said.strip_prefix("migm: ").unwrap().trim_end().to_owned();
    (output.status.code(), line)
}

#[test]
fn wrong_arguments_are_one_line_and_2() {
    for (args, words) in [
        (&["run", "--memm", "4G", "--", "true"][..], "'--memm'"),
        (&["run", "--mem", "4X", "--", "true"], "`4X` ends in `X`"),
        (&["run", "--mem", "-4", "--", "true"], "-4"),
        (&["run", "--iterations", "0", "--", "true"], "0 is not in 1.."),
        (&["run", "--signal", "NOPE", "--", "true"], "`NOPE` is no signal"),
        (
            &["run", "--name", "two\nlines", "--", "true"],
            "\"two\\nlines\" is no name: it has a control character",
        ),
        (&["submit", "--name", "", "--", "true"], "the name is empty"),
        (&["run", "--grace", "2 parsecs", "--", "true"], "2 parsecs"),
        (&["run"], "<CMD>..."),
        (&["run", "--"], "<CMD>..."),
        (&["batch"], "<FILE.toml>"),
        (
            &["batch", "--time-scale", "0", "--sim", "a100-40gb", "b.toml"],
            "`0` is no number above 0",
        ),
        (
            &["batch", "--policy", "best", "b.toml"],
            "`best` is no policy; there are sequential, static:LAYOUT, best-static,",
        ),
        (&["layout", "--profiles", "some"], "[possible values: base, all]"),
        (
            &["layout", "--gpu", "a100-40gb", "--device", "1"],
            "cannot be used with",
        ),
        (&["frobnicate"], "unrecognized subcommand 'frobnicate'"),
    ] {
        let (code, line) = refused(args);
        assert_eq!(code, Some(2), "{args:?}: {line}");
        assert!(line.contains(words), "{args:?}: {line}");
    }
}

#[test]
fn help_and_version_are_no_errors() {
    let folder = tempfile::tempdir().unwrap();
    for args in [
        &["--help"][..],
        &["--version"],
        &["run", "--help"],
        &["batch", "--help"],
    ] {
        let output = run(&folder, args);
        assert_eq!(output.status.code(), Some(0), "{args:?}");
        assert!(!output.stdout.is_empty() && output.stderr.is_empty(), "{args:?}");
    }
}

#[test]
fn a_bad_batch_file_is_refused_with_line_and_column_and_starts_nothing() {
    for (text, words) in [
        (
            "[[job]]\ncommand = 'touch ran'\n\n  memory = 4\n",
            "b.toml:4:3: unknown field `memory`",
        ),
        (
            "[[job]]\ncommand = 'touch ran'\nafter = ['x']\n",
            "b.toml:3:10: no job is named `x`",
        ),
        (
            "[[job]]\nname = 'a'\ncommand = 'touch ran'\nafter_any = ['b']\n\
             [[job]]\nname = 'b'\ncommand = 'touch ran'\nafter = ['a']\n",
            "b.toml:4:14: `a` would wait for itself: a after b after a",
        ),
        (
            "[[job]]\ncommand = 'touch ran'\ncount = 'two'\n",
            "b.toml:3:9: invalid type: string \"two\"",
        ),
        ("[[job]]\ncommand = 'touch ran\n", "b.toml:2:21: "),
        ("", "b.toml:1:1: the batch has no [[job]]"),
    ] {
        let folder = tempfile::tempdir().unwrap();
        fs::write(folder.path().join("b.toml"), text).unwrap();
        let output = run(&folder, &["batch", "b.toml", "--json"]);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{said}");
        assert!(said.starts_with(&format!("migm: {words}")), "{said} for\n{text}");
        assert_eq!((said.lines().count(), output.stdout.len()), (1, 0), "{said}");
        assert_eq!(
            fs::read_dir(folder.path()).unwrap().count(),
            1,
            "something was started for\n{text}"
        );
    }
}

#[test]
fn a_batch_file_that_is_not_there_is_bad_input() {
    let (code, line) = refused(&["batch", "none.toml"]);
    assert_eq!(code, Some(2));
    assert!(line.starts_with("cannot read none.toml: "), "{line}");
}

#[test]
fn status_without_a_supervisor_says_where_it_has_looked() {
    let (code, line) = refused(&["status", "--json"]);
    assert_eq!(code, Some(3));
    assert!(
        line.starts_with("no supervisor answers at /") && line.contains("/none"),
        "{line}"
    );
}

#[test]
fn layout_of_an_unknown_model_names_those_that_are_known() {
    let (code, line) = refused(&["layout", "--gpu", "voodoo2"]);
    assert_eq!(code, Some(2));
    assert!(line.contains("voodoo2") && line.contains("a100-40gb"), "{line}");
}

#[test]
fn layout_of_an_unknown_profile_names_the_legal_ones() {
    let (code, line) = refused(&["layout", "--gpu", "a100-40gb", "--after", "5g.25gb@0"]);
    assert_eq!(code, Some(2));
    let legal = "there is no profile `5g.25gb` here; there are 1g.5gb, 2g.10gb, 3g.20gb, 4g.20gb, 7g.40gb";
    assert_eq!(line, legal);
    let (code, line) = refused(&["layout", "--gpu", "a100-40gb", "--after", "3g.20gb@1"]);
    assert_eq!(
        (code, line.as_str()),
        (Some(2), "3g.20gb cannot start at 1; it can at 0, 4")
    );
    let (code, line) = refused(&["layout", "--gpu", "a100-40gb", "--after", "3g@4,1g@6"]);
    assert_eq!(code, Some(2));
    assert_eq!(line, "1g.5gb@6 cannot be placed: 3g.20gb@4 is in the way");
}

#[test]
fn a_simulated_gpu_that_is_unknown_is_bad_input_of_run_and_batch_too() {
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b.toml"), "[[job]]\ncommand = 'touch ran'\n").unwrap();
    for args in [
        &["run", "--sim", "voodoo2", "--", "touch", "ran"][..],
        &["batch", "b.toml", "--sim", "voodoo2"],
    ] {
        let output = run(&folder, args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(
            said.contains("voodoo2") && said.contains("a100-40gb"),
            "{args:?}: {said}"
        );
        assert!(!folder.path().join("ran").exists(), "{args:?}");
    }
}

#[test]
fn without_a_driver_there_is_one_line_and_the_commands_own_code() {
    // SAFETY: NVML's initialisers do not run: only nvmlInit starts it, and that is not called.
    if unsafe { libloading::Library::new("libnvidia-ml.so.1") }.is_ok() {
        eprintln!("skipped: this machine has an NVIDIA driver");
        return;
    }
    let folder = tempfile::tempdir().unwrap();
    fs::write(folder.path().join("b.toml"), "[[job]]\ncommand = 'touch ran'\n").unwrap();
    for (args, code) in [
        (&["run", "--", "touch", "ran"][..], 125),
        (&["batch", "b.toml"], 3),
        (&["layout"], 3),
    ] {
        let output = run(&folder, args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(code), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
        assert!(
            said.starts_with("migm: no NVIDIA driver on this machine"),
            "{args:?}: {said}"
        );
        assert!(!folder.path().join("ran").exists(), "{args:?}");
    }
}

#[test]
fn layout_counts_what_can_stand_together() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |args: &[&str]| {
        let output = run(
            &folder,
            &[&["layout", "--gpu", "a100-40gb", "--json"], args].concat(),
        );
        assert!(
            output.status.success(),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()
    };
    let empty = ask(&["--profiles", "base"]);
    let counts = ["states", "full_layouts", "edges"].map(|key| empty[key].as_u64());
    assert_eq!(counts, [Some(298), Some(19), Some(1005)]);
    assert!(empty["build_us"].as_f64().unwrap() > 0.0);
    for (slot, reachable) in [
        ("1g.5gb@6", 12),
        ("1g@0", 6),
        ("2g@0", 6),
        ("3g@4", 6),
        ("3g@0", 3),
        ("4g@0", 3),
        ("7g@0", 1),
    ] {
        assert_eq!(ask(&["--after", slot])["reachable"], reachable, "{slot}");
        let (profile, start) = slot.split_once('@').unwrap();
        let start: u64 = start.parse().unwrap();
        let create = empty["placements"].as_array().unwrap().iter().find(|create| {
            let name = create["profile"].as_str().unwrap();
            name.starts_with(profile) && create["start"] == start
        });
        assert_eq!(create.unwrap()["reachable"], reachable, "{slot}");
    }
}

#[test]
fn layout_says_why_not() {
    let folder = tempfile::tempdir().unwrap();
    let ask = |args: &[&str]| {
        let output = run(
            &folder,
            &[&["layout", "--gpu", "a100-40gb", "--json"], args].concat(),
        );
        let said = String::from_utf8_lossy(&output.stderr);
        assert!(output.status.success(), "{said}");
        serde_json::from_slice::<serde_json::Value>(&output.stdout).unwrap()["why"].clone()
    };
    let why = ask(&[
        "--why",
        "3g.20gb",
        "--after",
        "1g@0=busy:1m,1g@4=idle,1g@6=foreign",
    ]);
    assert_eq!((&why["possible"], &why["when"]), (&false.into(), &"in".into()));
    assert_eq!(why["when_s"], 60.0);
    assert_eq!(why["blocked_by"][0]["slice"], "1g.5gb@0");
    assert_eq!(why["placements"][1]["when"], "foreign");
    let of_high: Vec<&str> = why["placements"][1]["blocked_by"]
        .as_array()
        .unwrap()
        .iter()
        .map(|one| one["state"].as_str().unwrap())
        .collect();
    assert_eq!(of_high, ["idle", "foreign"]);
    // A variant needs no --profiles all: the engine it wants is with the other one.
    let why = ask(&["--why", "1g.5gb+me", "--after", "1g.5gb+me@2"]);
    assert_eq!(why["blocked_by"][0]["slice"], "1g.5gb+me@2");
    assert_eq!(ask(&["--why", "7g"])["possible"], true);
}

#[test]
fn why_not_of_bad_input_is_one_line_and_2() {
    for (args, words) in [
        (
            &["--why", "8g"][..],
            "there is no profile `8g` here; there are 1g.5gb, 2g.10gb",
        ),
        (&["--why", "3g", "--after", "1g@0=sold"], "not `sold`"),
        (
            &["--why", "3g", "--after", "4g@0,1g@2"],
            "1g.5gb@2 cannot be placed: 4g.20gb@0 is in the way",
        ),
    ] {
        let (code, line) = refused(&[&["layout", "--gpu", "a100-40gb"], args].concat());
        assert_eq!(code, Some(2), "{args:?}: {line}");
        assert!(line.contains(words), "{args:?}: {line}");
    }
}

/// What a job's program finds: its attempt and its slice.
const SHOW: &str = "echo $MIGM_ATTEMPT $CUDA_VISIBLE_DEVICES; exit 7";

#[test]
fn a_run_within_a_run_is_part_of_the_outer_job_unless_told_otherwise() {
    let place = support::Place::simulated(&["--mig", "--time-scale", "0.05"]);
    let migm = migm();
    let run = |inner: &[&str]| {
        let mut command = place.migm(&["run", "--", "sh", "-c"]);
        // The outer program tells its own attempt first.
        command.arg(format!("({}); \"$0\" \"$@\"", SHOW.replace("; exit 7", "")));
        let output = command.arg(&migm).args(inner).output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        let seen = String::from_utf8(output.stdout).unwrap();
        let lines: Vec<String> = seen.lines().map(str::to_owned).collect();
        (output.status.code(), lines, said)
    };
    let (code, seen, said) = run(&["run", "--mem", "9G", "--", "sh", "-c", SHOW]);
    assert_eq!(code, Some(7), "{said}");
    assert_eq!((seen.len(), &seen[0]), (2, &seen[1]), "{said}");
    let lines: Vec<&str> = said.lines().filter(|line| line.contains("--own-slice")).collect();
    assert_eq!(lines.len(), 1, "{said}");
    let attempt = seen[0].split(' ').next().unwrap();
    assert!(
        lines[0].contains(&format!("within attempt {attempt} of another")),
        "{said}"
    );
    let (code, seen, said) = run(&["run", "--own-slice", "--mem", "9G", "--", "sh", "-c", SHOW]);
    assert_eq!(code, Some(7), "{said}");
    let apart = |index: usize| {
        let parts = |line: &String| line.split(' ').nth(index).unwrap().to_owned();
        parts(&seen[0]) != parts(&seen[1])
    };
    assert!(apart(0) && apart(1), "{seen:?}");
    let (code, _, said) = run(&["run", "--", "no-such-program"]);
    assert_eq!(code, Some(127), "{said}");
}
