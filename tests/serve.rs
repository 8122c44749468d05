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

fn serve(args: &[&str]) -> Output {
    Command::new(migm())
        .arg("serve")
        .args(args)
        .current_dir(Path::new(env!("CARGO_MANIFEST_DIR")).join("examples/serving"))
        .stdin(Stdio::null())
        .output()
        .unwrap()
}

/// The plan of a demand, written to a file.
fn planned(folder: &Path, name: &str, demand: &str) -> String {
    let rows = folder.join(format!("{name}.csv"));
    fs::write(&rows, format!("model,required_rps,slo_latency_ms\n{demand}\n")).unwrap();
    let args = [
        "--profiles",
        "profiles.csv",
        "--gpu",
        "a100-40gb",
        "--demand",
        rows.to_str().unwrap(),
    ];
    let plan = json(&args);
    let file = folder.join(format!("{name}.json"));
    fs::write(&file, plan.to_string()).unwrap();
    file.to_str().unwrap().to_owned()
}

const DAY: &str = "vision,9000,60\nsearch,1900,60\nchat,150,300";
const NIGHT: &str = "vision,2400,60\nsearch,500,60\nchat,60,300";

#[test]
fn day_becomes_night_in_half_the_serial_time_and_no_service_dips() {
    let folder = tempfile::tempdir().unwrap();
    let (day, night) = (
        planned(folder.path(), "day", DAY),
        planned(folder.path(), "night", NIGHT),
    );
    let picture = folder.path().join("t.html");
    for (from, to) in [(&day, &night), (&night, &day)] {
        let output = serve(&[
            "transition",
            "--from",
            from,
            "--to",
            to,
            "--json",
            "--html",
            picture.to_str().unwrap(),
        ]);
        assert_eq!(
            output.status.code(),
            Some(0),
            "{}",
            String::from_utf8_lossy(&output.stderr)
        );
        let found: Value = serde_json::from_slice(&output.stdout).unwrap();
        assert!(found["min_satisfaction"].as_f64().unwrap() >= 1.0);
        assert!(found["dips"].as_array().unwrap().is_empty());
        let serial = found["serial"]["makespan_s"].as_f64().unwrap();
        assert!(found["makespan_s"].as_f64().unwrap() <= serial / 2.0, "{serial}");
        // No step starts before one that it waits for has ended.
        let steps = found["steps"].as_array().unwrap();
        for step in steps {
            for earlier in step["after"].as_array().unwrap() {
                let end = &steps[usize::try_from(earlier.as_u64().unwrap()).unwrap()]["end_s"];
                assert!(end.as_f64() <= step["start_s"].as_f64(), "{step}");
            }
        }
        let drawn = fs::read_to_string(&picture).unwrap();
        assert!(drawn.contains("<svg") && !drawn.contains("<script") && !drawn.contains("http"));
    }
    let output = serve(&["transition", "--from", &day, "--to", &day]);
    assert!(String::from_utf8(output.stdout).unwrap().starts_with("0 steps"));
}

#[test]
fn without_an_extra_gpu_the_service_that_would_dip_is_named() {
    let folder = tempfile::tempdir().unwrap();
    let slice = |gpu: u32, profile: &str, start: u32, service: &str| {
        serde_json::json!({"gpu": gpu, "kind": "a100-40gb", "profile": profile, "start": start, "size": 4,
            "service": service, "batch": 1, "processes": 1, "throughput_rps": 10.0})
    };
    let write = |name: &str, crossed: [&str; 2]| {
        let services: Vec<Value> = ["a", "b", "c", "d"]
            .iter()
            .map(|name| serde_json::json!({"name": name, "required_rps": 10.0}))
            .collect();
        let slices = [
            slice(0, "4g.20gb", 0, "a"),
            slice(0, "3g.20gb", 4, crossed[0]),
            slice(1, "4g.20gb", 0, "c"),
            slice(1, "3g.20gb", 4, crossed[1]),
        ];
        let file = folder.path().join(name);
        fs::write(
            &file,
            serde_json::json!({"services": services, "slices": slices}).to_string(),
        )
        .unwrap();
        file.to_str().unwrap().to_owned()
    };
    let (from, to) = (write("from.json", ["b", "d"]), write("to.json", ["d", "b"]));
    let run =
        |more: &[&str]| serve(&[&["transition", "--from", &from, "--to", &to, "--json"], more].concat());
    let free: Value = serde_json::from_slice(&run(&[]).stdout).unwrap();
    assert_eq!(
        (free["extra_gpus"].as_u64(), free["min_satisfaction"].as_f64()),
        (Some(1), Some(1.0))
    );
    let output = run(&["--max-extra-gpus", "0"]);
    assert_eq!(output.status.code(), Some(1));
    let said = String::from_utf8(output.stderr).unwrap();
    assert_eq!(
        said,
        "migm: with at most 0 extra GPUs service a would dip to 0.0 of 10.0 requests/s; with 1 none would\n"
    );
}

#[test]
fn what_is_no_plan_is_one_line_with_its_file() {
    let folder = tempfile::tempdir().unwrap();
    let day = planned(folder.path(), "day", DAY);
    let wrong = folder.path().join("w.json");
    let at = wrong.to_str().unwrap();
    let text = fs::read_to_string(&day).unwrap();
    for (text, said) in [
        ("{", "w.json: EOF"),
        (&text.replace("\"a100-40gb\"", "\"a100-4gb\""), "a100-4gb"),
        (&text.replacen("\"start\":0", "\"start\":1", 1), "GPU 0"),
    ] {
        fs::write(&wrong, text).unwrap();
        let output = serve(&["transition", "--from", &day, "--to", at]);
        let line = String::from_utf8(output.stderr).unwrap();
        assert_eq!(
            (output.status.code(), line.lines().count()),
            (Some(2), 1),
            "{line}"
        );
        assert!(line.contains(said), "{line}");
    }
}

#[test]
fn a_running_plan_is_followed_and_a_series_is_chained() {
    let folder = tempfile::tempdir().unwrap();
    let day = planned(folder.path(), "day", DAY);
    let base = ["--profiles", "profiles.csv", "--gpu", "a100-40gb", "--demand"];
    let same = folder.path().join("day.csv");
    let again = json(&[&base[..], &[same.to_str().unwrap(), "--current", &day]].concat());
    assert_eq!(again["transition"]["steps"], 0);
    let series = folder.path().join("s.csv");
    let hours = "time,model,required_rps,slo_latency_ms\n8,vision,2000,60\n8,chat,60,300\n9,vision,5000,60\n9,chat,90,300\n";
    fs::write(&series, hours).unwrap();
    let found = json(&[&base[..], &[series.to_str().unwrap(), "--keep", "1"]].concat());
    let periods = found["periods"].as_array().unwrap();
    assert_eq!((periods.len(), &periods[1]["time"]), (2, &Value::from("9")));
    assert!(periods[0]["transition"].is_null());
    assert!(periods[1]["transition"]["min_satisfaction"].as_f64().unwrap() >= 1.0);
}

#[test]
fn a_plan_is_drawn_explained_and_listed_for_a_placer() {
    let folder = tempfile::tempdir().unwrap();
    let file = |name: &str| folder.path().join(name).to_str().unwrap().to_owned();
    let args = [
        "plan",
        "--profiles",
        "profiles.csv",
        "--demand",
        "demand.csv",
        "--gpu",
        "a100-40gb",
    ];
    let (html, parted, list) = (file("p.html"), file("p.yaml"), file("p.csv"));
    let files = ["--html", &html, "--mig-parted", &parted, "--deployments", &list];
    let output = serve(&[&args[..], &files, &["--explain", "chat"]].concat());
    assert_eq!(
        output.status.code(),
        Some(0),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );
    let said = String::from_utf8(output.stdout).unwrap();
    assert!(
        said.starts_with("chat: ") && said.contains("best here") && said.contains("binding: "),
        "{said}"
    );
    assert!(fs::read_to_string(&html).unwrap().contains("chat"));
    let parted = fs::read_to_string(&parted).unwrap();
    assert!(
        parted.starts_with("version: v1\nmig-configs:\n  node-0: # a100-40gb\n    - devices: ["),
        "{parted}"
    );
    // A placer that takes the first free units that a profile may start at makes the same layout.
    let mut taken = std::collections::BTreeSet::new();
    let list = fs::read_to_string(&list).unwrap();
    for row in list.lines().skip(1) {
        let field: Vec<&str> = row.split(',').collect();
        let (device, start) = (field[1].parse::<u32>().unwrap(), field[4].parse::<u32>().unwrap());
        let (starts, size): (&[u32], u32) = match field[3] {
            "1g.5gb" => (&[0, 1, 2, 3, 4, 5, 6], 1),
            "1g.10gb" => (&[0, 2, 4, 6], 2),
            "2g.10gb" => (&[0, 2, 4], 2),
            "3g.20gb" => (&[0, 4], 4),
            "4g.20gb" => (&[0], 4),
            _ => (&[0], 8),
        };
        let mut places = (0..=device).flat_map(|gpu| starts.iter().map(move |&start| (gpu, start)));
        let free =
            |&(gpu, start): &(u32, u32)| (start..start + size).all(|unit| !taken.contains(&(gpu, unit)));
        assert_eq!(places.find(free), Some((device, start)), "{row}");
        taken.extend((start..start + size).map(|unit| (device, unit)));
    }
    assert!(!taken.is_empty());
}
