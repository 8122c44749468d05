//! `migm simulate` on small files of our own making.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

use std::path::Path;
use std::process::{Command, Output};

use serde_json::Value;

/// Seconds per batch in the manner of those measured on an A100-40GB for MISO (SoCC 2022), rounded.
const SPEEDS: &str = "model,batch,profile,median_seconds_per_batch,samples
resnet,512,1g.5gb,0.165,97
resnet,512,2g.10gb,0.088,97
resnet,512,3g.20gb,0.057,97
resnet,512,4g.20gb,0.049,97
resnet,512,7g.40gb,0.038,97
mobilenet,64,1g.5gb,0.024,781
mobilenet,64,2g.10gb,0.022,781
mobilenet,64,3g.20gb,0.020,781
mobilenet,64,4g.20gb,0.019,781
mobilenet,64,7g.40gb,0.019,781
";

fn trace(jobs: u32, gap: f64) -> String {
    let mut text = "job,arrival_s,duration_on_full_gpu_s,workload\n".to_owned();
    for job in 0..jobs {
        let workload = if job % 2 == 0 {
            "resnet_train512"
        } else {
            "mobilenet_train64"
        };
        text += &format!(
            "{job},{},{},{workload}\n",
            f64::from(job) * gap,
            200 + 37 * (job % 11)
        );
    }
    text
}

fn migm(folder: &Path, arguments: &[&str]) -> Output {
    Command::new(binary())
        .current_dir(folder)
        .args(arguments)
        .output()
        .unwrap()
}

/// The binary beside the test.
fn binary() -> std::path::PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().parent().unwrap().join("migm")
}

fn files(text: &str) -> tempfile::TempDir {
    let folder = tempfile::tempdir().unwrap();
    std::fs::write(folder.path().join("speeds.csv"), SPEEDS).unwrap();
    std::fs::write(folder.path().join("trace.csv"), text).unwrap();
    folder
}

fn simulate(text: &str, more: &[&str]) -> Value {
    let folder = files(text);
    let mut arguments = vec!["simulate", "trace.csv", "--speeds", "speeds.csv", "--json"];
    arguments.extend(more);
    let output = migm(folder.path(), &arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn figure(report: &Value, policy: &str, key: &str) -> f64 {
    report["policies"][policy][key].as_f64().unwrap()
}

#[test]
fn the_head_says_the_gpus_as_they_were_named() {
    let folder = files(&trace(3, 0.0));
    for gpus in ["a100-40gb:4", "a100-40gb:2,a30-24gb"] {
        let arguments = [
            "simulate",
            "trace.csv",
            "--speeds",
            "speeds.csv",
            "--policy",
            "sequential",
            "--gpu",
            gpus,
        ];
        let output = migm(folder.path(), &arguments);
        let text = String::from_utf8(output.stdout).unwrap();
        let head = format!("3 jobs on {gpus} (all simulated, energy modelled)");
        assert_eq!(text.lines().next(), Some(&*head));
    }
}

#[test]
fn a_batch_is_close_to_its_bound_and_far_ahead_of_sequential() {
    let policies = "sequential,static:7x1g,scheme-a,scheme-b,far,mfi,miso,migm";
    let report = simulate(&trace(24, 0.0), &["--gpu", "a100-40gb", "--policy", policies]);
    let bound = figure(&report, "migm", "lower_bound_makespan_s");
    for policy in policies.split(',') {
        assert!(
            figure(&report, policy, "makespan_s") >= bound,
            "{policy} beats the bound"
        );
        assert_eq!(figure(&report, policy, "ooms"), 0.0, "{policy}: the need is told");
    }
    let ours = figure(&report, "migm", "makespan_s");
    assert!(ours <= 1.1 * bound, "{ours} against {bound}");
    assert!(ours <= figure(&report, "far", "makespan_s") * 1.02);
    assert!(1.5 * ours < figure(&report, "sequential", "makespan_s"));
}

#[test]
fn an_order_in_the_name_is_that_of_the_option_and_both_can_be_compared() {
    let text = trace(30, 40.0);
    let gpu = ["--gpu", "a100-40gb:2", "--moves", "off"];
    let run = |more: &[&str]| simulate(&text, &[&gpu[..], more].concat());
    let both = run(&["--policy", "migm,migm:fifo,best-static"]);
    let told = run(&["--policy", "migm", "--order", "fifo"]);
    for key in ["makespan_s", "mean_jct_s", "max_slowdown"] {
        assert_eq!(
            figure(&both, "migm:fifo", key),
            figure(&told, "migm", key),
            "{key}"
        );
    }
    let jct = |policy: &str| figure(&both, policy, "mean_jct_s");
    assert_ne!(jct("migm"), jct("migm:fifo"));
    assert!(jct("migm:fifo") <= jct("best-static"), "{both}");
}

#[test]
fn a_small_batch_is_held_against_its_optimum() {
    let policies = "sequential,scheme-b,far,migm";
    // Whoever moves running jobs with their work may be faster than the optimum without moves.
    let report = simulate(
        &trace(8, 0.0),
        &["--gpu", "a100-40gb", "--work", "lost", "--policy", policies],
    );
    let optimum = report["optimum_makespan_s"].as_f64().unwrap();
    assert!(optimum >= figure(&report, "migm", "lower_bound_makespan_s"));
    for policy in policies.split(',') {
        let over = figure(&report, policy, "makespan_s") / optimum;
        // Rounding may differ: the default policy runs the optimum itself.
        assert!(over >= 1.0 - 1e-9 && (over - figure(&report, policy, "over_optimum")).abs() < 1e-9);
    }
    // Nothing is said of many jobs, or of late ones.
    for text in [trace(11, 0.0), trace(8, 1.0)] {
        let report = simulate(&text, &["--gpu", "a100-40gb", "--policy", "scheme-b"]);
        assert!(report["optimum_makespan_s"].is_null());
        assert!(report["policies"]["scheme-b"]["over_optimum"].is_null());
    }
}

#[test]
fn jobs_after_others_make_a_batch_as_long_as_their_longest_chain() {
    let folder = tempfile::tempdir().unwrap();
    let batch = Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/batches/chain.toml");
    let arguments = [
        "simulate",
        batch.to_str().unwrap(),
        "--policy",
        "scheme-b,migm",
        "--json",
    ];
    let output = migm(folder.path(), &arguments);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    for policy in ["scheme-b", "migm"] {
        // prepare, one of the sweep, report and clean, each alone on the whole GPU.
        let bound = figure(&report, policy, "lower_bound_makespan_s");
        assert!((111.0..200.0).contains(&bound), "{bound}");
        assert!(figure(&report, policy, "makespan_s") >= bound);
    }
}

#[test]
fn jobs_that_come_one_by_one_end_sooner_than_on_whole_gpus() {
    let text = trace(30, 40.0);
    let report = simulate(
        &text,
        &["--gpu", "a100-40gb:2", "--policy", "sequential,best-static,migm"],
    );
    let ours = figure(&report, "migm", "mean_jct_s");
    assert!(ours < figure(&report, "sequential", "mean_jct_s"));
    assert!(ours < figure(&report, "best-static", "mean_jct_s"));
    let still = simulate(
        &text,
        &["--gpu", "a100-40gb:2", "--policy", "migm", "--moves", "off"],
    );
    assert_eq!(figure(&still, "migm", "moves"), 0.0);
    let again = simulate(
        &text,
        &["--gpu", "a100-40gb:2", "--policy", "sequential,best-static,migm"],
    );
    assert_eq!(report, again, "the same input gives the same outcome");
}

#[test]
fn a_memory_trace_is_forecast_or_runs_out() {
    let folder = files("");
    let mut grows = "x,allocated_bytes,reserved_bytes,requested_bytes\n".to_owned();
    for step in 0..100_u64 {
        grows += &format!("{step},,{},\n", 2_000_000_000 + step * 60_000_000);
    }
    std::fs::write(folder.path().join("grows.csv"), grows).unwrap();
    let batch = "[[job]]\nname = 'grower'\ncommand = 'x'\nduration_s = 100.0\ntrace = 'grows.csv'\n";
    std::fs::write(folder.path().join("batch.toml"), batch).unwrap();
    let output = migm(
        folder.path(),
        &[
            "simulate",
            "batch.toml",
            "--policy",
            "scheme-b",
            "--json",
            "--gantt",
            "run.html",
        ],
    );
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let report: Value = serde_json::from_slice(&output.stdout).unwrap();
    assert_eq!(figure(&report, "scheme-b", "early_restarts"), 1.0, "{report}");
    assert_eq!(figure(&report, "scheme-b", "ooms"), 0.0);
    let page = std::fs::read_to_string(folder.path().join("run.html")).unwrap();
    assert!(
        page.contains("grower") && page.contains("moved on a forecast"),
        "{page}"
    );
}

#[test]
fn bad_input_names_the_line_and_ends_with_2() {
    let refused = |text: &str, more: &[&str]| {
        let folder = files(text);
        let mut arguments = vec!["simulate", "trace.csv", "--speeds", "speeds.csv"];
        arguments.extend(more);
        let output = migm(folder.path(), &arguments);
        assert_eq!(output.status.code(), Some(2));
        String::from_utf8(output.stderr).unwrap()
    };
    let heading = "job,arrival_s,duration_on_full_gpu_s,workload\n";
    let said = refused(&format!("{heading}1,0,-5,resnet_train512\n"), &[]);
    assert!(
        said.contains("trace.csv: line 2: duration_on_full_gpu_s `-5`"),
        "{said}"
    );
    let said = refused(&format!("{heading}1,0,5,gpt_train1\n"), &[]);
    assert!(
        said.contains("line 2: nothing is known of workload `gpt_train1`"),
        "{said}"
    );
    let said = refused(&trace(2, 0.0), &["--policy", "magic"]);
    assert!(said.contains("`magic` is no policy"), "{said}");
    let said = refused(&trace(2, 0.0), &["--policy", "static:4g+4g"]);
    assert!(said.contains("cannot stand together"), "{said}");
    let said = refused(&trace(2, 0.0), &["--gpu", "a100-40gb:0"]);
    assert!(said.contains("`0` is no number from 1 to 4096"), "{said}");
}
