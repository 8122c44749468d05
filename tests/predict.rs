//! `migm predict`: one log on one slice, a folder of logs, and what of both is refused.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::fmt::Write;
use std::fs;
use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;
use support::migm;

const HEADER: &str = "x,allocated_bytes,reserved_bytes,requested_bytes\n";
const MIB: u64 = 1 << 20;

fn predict(args: &[&str]) -> Output {
    Command::new(migm()).arg("predict").args(args).output().unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = predict(args);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    support::json(&output)
}

/// A log of reserved MiB, one row an iteration.
fn write(file: &Path, levels: impl IntoIterator<Item = u64>) {
    let mut text = HEADER.to_owned();
    for (x, level) in levels.into_iter().enumerate() {
        writeln!(text, "{x},,{},", level * MIB).unwrap();
    }
    fs::write(file, text).unwrap();
}

fn path(file: &Path) -> &str {
    file.to_str().unwrap()
}

#[test]
fn a_cache_is_moved_long_before_it_runs_out_and_drawn() {
    let place = tempfile::tempdir().unwrap();
    let (trace, picture) = (place.path().join("kv.csv"), place.path().join("kv.svg"));
    write(&trace, (0..131).map(|x| 5_000 + 55 * x));
    let told = json(&[
        path(&trace),
        "--slice",
        "9.5Gi",
        "--horizon",
        "130",
        "--svg",
        path(&picture),
        "--json",
    ]);
    assert_eq!(told["decision"], "move");
    assert_eq!(told["oom_x"], 86.0);
    assert!(told["first_warning_x"].as_f64().unwrap() <= 6.0, "{told}");
    let peak = told["actual_peak_bytes"].as_f64().unwrap();
    assert!(
        (told["predicted_peak_bytes"].as_f64().unwrap() / peak - 1.0).abs() < 0.01,
        "{told}"
    );
    assert!(told["need_bytes"].as_f64().unwrap() >= peak * 0.99);
    let svg = fs::read_to_string(&picture).unwrap();
    for part in ["<svg", ">5 %<", ">10 %<", ">20 %<", "moved at", "runs out at 86"] {
        assert!(svg.contains(part), "{part}");
    }
    // What comes after the warning is not seen: another future, the same warning.
    let other = place.path().join("other.csv");
    write(
        &other,
        (0..131).map(|x| if x < 20 { 5_000 + 55 * x } else { 6_000 }),
    );
    let future = json(&[path(&other), "--slice", "9.5Gi", "--horizon", "130", "--json"]);
    assert_eq!(future["first_warning_x"], told["first_warning_x"]);
    assert_eq!(future["oom_x"], Value::Null);
}

#[test]
fn the_falsifier_is_late_and_a_level_job_fits() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("jump.csv");
    write(&trace, (0..100).map(|x| if x < 50 { 4_000 } else { 9_000 }));
    for method in ["paper", "paper-cumulative", "max", "migm"] {
        let told = json(&[
            path(&trace),
            "--slice",
            "5G",
            "--horizon",
            "99",
            "--method",
            method,
            "--json",
        ]);
        assert_eq!(
            (&told["decision"], &told["oom_x"]),
            (&"late".into(), &50.0.into()),
            "{method}"
        );
        let roomy = json(&[path(&trace), "--slice", "20G", "--method", method, "--json"]);
        assert_eq!(roomy["oom_x"], Value::Null);
    }
    let fits = json(&[path(&trace), "--slice", "10G", "--horizon", "99", "--json"]);
    assert_eq!(
        (&fits["decision"], &fits["first_warning_x"]),
        (&"fits".into(), &Value::Null)
    );
    let said = String::from_utf8(predict(&[path(&trace), "--slice", "5G"]).stdout).unwrap();
    assert!(
        said.starts_with("late: on 4.66 GiB it runs out at 50, and nothing announced it"),
        "{said}"
    );
}

#[test]
fn the_jobs_of_a_log_are_told_apart() {
    let place = tempfile::tempdir().unwrap();
    let trace = place.path().join("device.csv");
    let first = (0..30).map(|_| 9_000);
    write(&trace, first.chain([3, 3]).chain((0..40).map(|_| 4_000)));
    let told = json(&[path(&trace), "--slice", "20G", "--job", "2", "--json"]);
    assert_eq!(told["jobs"], 2);
    assert_eq!(told["actual_peak_bytes"], 4_000 * MIB);
    let beyond = predict(&[path(&trace), "--slice", "20G", "--job", "3"]);
    assert_eq!(beyond.status.code(), Some(2));
    assert!(String::from_utf8_lossy(&beyond.stderr).contains("there is no job 3; the log holds 2"));
}

#[test]
fn a_folder_is_scored_and_what_is_no_trace_is_listed() {
    let place = tempfile::tempdir().unwrap();
    write(&place.path().join("kv.csv"), (0..200).map(|x| 5_000 + 50 * x));
    write(&place.path().join("flat.csv"), (0..200).map(|_| 5_000));
    write(
        &place.path().join("jump.csv"),
        (0..200).map(|x| if x < 90 { 4_000 } else { 9_000 }),
    );
    fs::write(place.path().join("peaks.csv"), "model,peak_mib\nx,1\n").unwrap();
    fs::write(place.path().join("README.md"), "not a log").unwrap();
    let told = json(&["--score", path(place.path()), "--json"]);
    assert_eq!(told["ignored"], serde_json::json!(["peaks.csv"]));
    assert_eq!((&told["traces"], &told["jobs"]), (&3.into(), &3.into()));
    let migm = &told["methods"]["migm"];
    for key in [
        "median_error_5",
        "median_error_10",
        "median_error_20",
        "missed",
        "missed_avoidable",
        "false_restarts",
        "runs_over",
        "runs_fit",
        "lead_median",
        "cost",
    ] {
        assert!(migm[key].is_number(), "{key} in {migm}");
    }
    // The cache is announced and caught; the jump and the level job, which does not fit from the start, are not.
    assert_eq!((&migm["runs_over"], &migm["missed"]), (&3.into(), &2.into()));
    assert_eq!(
        (&migm["runs_avoidable"], &migm["missed_avoidable"]),
        (&1.into(), &0.into())
    );
    assert_eq!(migm["false_restarts"], 0);
    assert_eq!(told["methods"]["max"]["missed_avoidable"], 1);
    assert!(
        migm["cost"].as_f64() < told["methods"]["max"]["cost"].as_f64(),
        "{migm}"
    );
    for track in [
        "horizon_unknown",
        "fit_1.02",
        "fit_1.25",
        "sampled_100ms",
        "sampled_1s",
        "mig_sizes",
    ] {
        assert!(told["tracks"][track]["paper"]["cost"].is_number(), "{track}");
    }
    let policies = &told["policies"]["restart_from_zero"];
    assert_eq!(policies["oracle"], 1.0);
    assert_eq!(policies["right_size_after_oom"], told["methods"]["max"]["cost"]);
    let one = json(&["--score", path(place.path()), "--method", "max", "--json"]);
    assert_eq!(
        one["methods"].as_object().unwrap().keys().collect::<Vec<_>>(),
        ["max"]
    );
}

#[test]
fn bad_input_is_named_by_file_and_line() {
    let place = tempfile::tempdir().unwrap();
    let file = place.path().join("bad.csv");
    let refused = |args: &[&str], words: &str| {
        let output = predict(args);
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{args:?}: {said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(
            said.contains(words) && output.stdout.is_empty(),
            "{args:?}: {said}"
        );
    };
    for (text, words) in [
        (
            format!("{HEADER}0,,5,\n1,,x,\n"),
            "bad.csv:3: reserved_bytes `x` is no whole number of bytes",
        ),
        (format!("{HEADER}0,,5,\n1,5\n"), "bad.csv:3: 2 fields, not 4"),
        (
            format!("{HEADER}2,,5,\n1,,5,\n"),
            "bad.csv:3: x goes back from 2 to 1",
        ),
        ("t,mib\n".to_owned(), "bad.csv:1: the header is `t,mib`"),
        (HEADER.to_owned(), "bad.csv:1: no row has a memory figure"),
    ] {
        fs::write(&file, text).unwrap();
        refused(&[path(&file), "--slice", "5G"], words);
    }
    fs::write(&file, format!("{HEADER}0,,5,\n1,,x,\n")).unwrap();
    refused(&["--score", path(place.path())], "bad.csv:3: reserved_bytes `x`");
    fs::remove_file(&file).unwrap();
    refused(&["--score", path(place.path())], "there is no trace in it");
    refused(&[path(&file), "--slice", "5G"], "cannot read ");
    refused(&[path(&file)], "--slice <SIZE>");
    refused(
        &[path(&file), "--slice", "5G", "--method", "line"],
        "`line` is no predictor",
    );
    refused(
        &[path(&file), "--slice", "5G", "--method", "max,migm"],
        "one --method to replay",
    );
    refused(&[path(&file), "--slice", "0"], "--slice 0 holds nothing");
    refused(
        &[path(&file), "--slice", "5G", "--horizon", "NaN"],
        "is no number",
    );
}
