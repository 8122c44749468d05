//! `migm serve plan` as people run it: on the carried files, and on wrong ones.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;

use std::fs;
use std::path::Path;
use std::process::{Command, Output, Stdio};

use serde_json::Value;
use support::migm;

fn plan(args: &[&str]) -> Output {
    let root = Path::new(env!("CARGO_MANIFEST_DIR"));
    Command::new(migm())
        .args(["serve", "plan"])
        .args(args)
        .current_dir(root.join("examples/serving"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

fn json(args: &[&str]) -> Value {
    let output = plan(&[args, &["--json"]].concat());
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    serde_json::from_slice(&output.stdout).unwrap()
}

fn refused(args: &[&str]) -> (Option<i32>, String) {
    let output = plan(args);
    assert_eq!(String::from_utf8_lossy(&output.stdout), "", "{args:?}");
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(said.lines().count(), 1, "{args:?}: {said}");
    (
        output.status.code(),
        said.strip_prefix("migm: ").unwrap().trim_end().to_owned(),
    )
}

const PARVA: [&str; 6] = [
    "--profiles",
    "parvagpu_profiles.csv",
    "--latency-share",
    "0.45",
    "--max-processes",
    "3",
];

#[test]
fn parvagpus_largest_scenario_takes_sixteen_gpus() {
    let args = [&PARVA[..], &["--demand", "parvagpu_6.csv", "--gpu", "a100-80gb"]].concat();
    let plan = json(&args);
    assert_eq!(plan["gpus"], 16);
    assert_eq!(plan["lower_bound"], 16.0);
    assert_eq!(
        (&plan["optimal"], &plan["satisfied"]),
        (&Value::Bool(true), &Value::Bool(true))
    );
    assert!(plan["solve_ms"].as_f64().unwrap() > 0.0);
    // Slices add up to what the services get.
    let slices = plan["slices"].as_array().unwrap();
    for service in plan["services"].as_array().unwrap() {
        let own = slices.iter().filter(|slice| slice["service"] == service["name"]);
        let sum: f64 = own.map(|slice| slice["throughput_rps"].as_f64().unwrap()).sum();
        assert!((sum - service["planned_rps"].as_f64().unwrap()).abs() < 1e-3);
        assert!(sum >= service["required_rps"].as_f64().unwrap());
    }
}

#[test]
fn every_grid_and_a_mixed_fleet_have_plans() {
    // The mixed fleet is not proven in a second; its plan is there all the same.
    for gpu in ["h100-80gb", "a30-24gb", "a100-40gb:1=1.5,a30-24gb=0.4"] {
        let plan = json(&[
            "--profiles",
            "profiles.csv",
            "--demand",
            "demand.csv",
            "--gpu",
            gpu,
            "--time-limit",
            "1",
        ]);
        assert_eq!(plan["satisfied"], true, "{gpu}");
        assert!(
            plan["lower_bound"].as_f64().unwrap() <= plan["price"].as_f64().unwrap(),
            "{gpu}"
        );
        for kind in plan["kinds"].as_array().unwrap() {
            assert!(
                kind["gpu"] != "a100-40gb" || gpu.starts_with("a100") && kind["used"].as_u64() <= Some(1)
            );
        }
    }
}

#[test]
fn a_point_too_large_for_a_slice_goes_to_its_double_memory_slice() {
    let plan = json(&[
        "--profiles",
        "profiles.csv",
        "--demand",
        "demand.csv",
        "--gpu",
        "a100-40gb",
    ]);
    let slices = plan["slices"].as_array().unwrap();
    let of = |service: &str| -> Vec<&str> {
        let own = slices.iter().filter(|slice| slice["service"] == service);
        own.map(|slice| slice["profile"].as_str().unwrap()).collect()
    };
    assert!(
        of("chat").iter().all(|profile| *profile != "1g.5gb"),
        "{:?}",
        of("chat")
    );
}

#[test]
fn a_csv_row_is_a_slice() {
    let args = [
        "--profiles",
        "profiles.csv",
        "--demand",
        "demand.csv",
        "--gpu",
        "a100-40gb",
    ];
    let output = plan(&[&args[..], &["--csv"]].concat());
    let text = String::from_utf8(output.stdout).unwrap();
    let header = "gpu,kind,profile,start,size,service,batch,processes,throughput_rps,latency_s";
    assert_eq!(text.lines().next(), Some(header));
    assert_eq!(
        text.lines().count() - 1,
        json(&args)["slices"].as_array().unwrap().len()
    );
    let table = String::from_utf8(plan(&args).stdout).unwrap();
    assert!(table.contains("lower bound"), "{table}");
}

#[test]
fn wrong_input_is_one_line_with_file_and_line() {
    let folder = tempfile::tempdir().unwrap();
    let demand = folder.path().join("d.csv");
    let at = demand.to_str().unwrap();
    let write =
        |rows: &str| fs::write(&demand, format!("model,required_rps,slo_latency_ms\n{rows}\n")).unwrap();
    let base = ["--profiles", "profiles.csv", "--demand", at];
    let gpu = |gpu: &'static str| [&base[..], &["--gpu", gpu]].concat();
    for (rows, said) in [
        (
            "vision,NaN,100",
            "d.csv:2: `required_rps` is `NaN`, which is not a number above 0",
        ),
        (
            "# a comment\n\nvision,-3,100",
            "d.csv:4: `required_rps` is `-3`, which is not a number above 0",
        ),
        (
            "vision,1,100\nvision,2,100",
            "d.csv:3: service vision is in line 2 already",
        ),
        ("vision,1,1", "d.csv:2: service vision: its best latency is"),
        ("gone,1,100", "d.csv:2: service gone: model gone has no profile"),
    ] {
        write(rows);
        let (code, line) = refused(&gpu("a100-40gb"));
        assert_eq!(code, Some(2), "{line}");
        assert!(line.contains(said), "{line}");
    }
    write("vision,5000,100");
    for (args, code, said) in [
        (gpu("a100-4gb"), 2, "a100-4gb"),
        (gpu("a100-40gb:0"), 2, "`0` in `a100-40gb:0` is no number of GPUs"),
        (gpu("a100-40gb=-1"), 2, "costs -1"),
        (gpu("a30-24gb,a30-24gb"), 2, "GPU `a30-24gb` is named twice"),
        (
            gpu("a30-24gb:1"),
            1,
            "no plan was found with as many GPUs as there are",
        ),
        (
            [&gpu("a30-24gb")[..], &["--method", "best"]].concat(),
            2,
            "[possible values: migm, whole-gpu,",
        ),
        (
            [&gpu("a30-24gb")[..], &["--latency-share", "0"]].concat(),
            2,
            "`0` is no number from 0.001 to 1",
        ),
        (
            [&gpu("a30-24gb")[..], &["--percentile", "p99"]].concat(),
            2,
            "profiles.csv:1: column `latency_p99_s` is missing",
        ),
        (
            [&gpu("a100-40gb,a30-24gb")[..], &["--method", "ga"]].concat(),
            2,
            "method ga knows one kind of GPU only",
        ),
    ] {
        let (status, line) = refused(&args);
        assert_eq!(status, Some(code), "{line}");
        assert!(line.contains(said), "{line}");
    }
}
