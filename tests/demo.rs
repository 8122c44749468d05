//! The demo, whole: real processes, a simulated GPU, ours against the sequential run.

mod support;

use serde_json::Value;

fn attempts(job: &Value) -> Vec<(&str, &str)> {
    job["attempts"]
        .as_array()
        .unwrap()
        .iter()
        .map(|attempt| {
            (
                attempt["profile"].as_str().unwrap(),
                attempt["outcome"].as_str().unwrap(),
            )
        })
        .collect()
}

#[test]
fn the_demo_beats_one_job_after_the_other() {
    let place = support::Place::without_gpu();
    let output = place.migm(&["demo", "--json"]).output().unwrap();
    let report = support::json(&output);
    assert!(
        output.status.success(),
        "{}",
        String::from_utf8_lossy(&output.stderr)
    );

    assert_eq!(report["simulated"], true);
    let jobs = report["jobs"].as_array().unwrap();
    for job in jobs {
        assert_eq!(attempts(job).last().unwrap().1, "done", "{job}");
    }
    let job = |name: &str| jobs.iter().find(|job| job["name"] == name).unwrap();

    // Growth that announces itself is acted on before memory runs out; a jump is not, and costs one OOM.
    for smooth in ["decoder", "leak", "convex"] {
        let outcomes: Vec<_> = attempts(job(smooth))
            .iter()
            .map(|(_, outcome)| *outcome)
            .collect();
        assert_eq!(outcomes, ["moved", "done"], "{smooth}");
    }
    let jump = attempts(job("jumper"));
    assert_eq!(
        jump.iter().map(|(_, outcome)| *outcome).collect::<Vec<_>>(),
        ["oom", "done"]
    );
    assert_eq!(report["ooms"], 1);
    assert!(report["early_restarts"].as_u64().unwrap() >= 1);
    // Straight on the slice that holds it.
    assert_eq!(jump, [("1g.5gb", "oom"), ("2g.10gb", "done")]);

    let ratio = |value: &Value| value.as_f64().unwrap();
    assert!(ratio(&report["throughput_ratio"]) > 1.5, "{report:#}");
    assert!(ratio(&report["energy_ratio"]) > 1.2, "{report:#}");
    let small = report["parts"]
        .as_array()
        .unwrap()
        .iter()
        .find(|part| part["name"] == "small")
        .unwrap();
    assert!(ratio(&small["throughput_ratio"]) > 3.0, "{small}");
    assert!(ratio(&small["energy_ratio"]) > 1.5, "{small}");
    // Ratios are of the figures shown.
    let shown = report["baseline"]["makespan_s"].as_f64().unwrap() / report["makespan_s"].as_f64().unwrap();
    assert!((shown - ratio(&report["throughput_ratio"])).abs() < 1e-9);

    // No simulated GPU and no supervisor is left.
    assert!(!String::from_utf8_lossy(&output.stderr).contains("panicked"));
}

#[test]
fn an_unknown_gpu_is_refused_by_name() {
    let place = support::Place::without_gpu();
    for (gpu, said) in [
        ("a100-41gb", "a100-41gb"),
        ("b200-180gb", "placements of `b200-180gb` are not known"),
    ] {
        let output = place.migm(&["demo", "--gpu", gpu]).output().unwrap();
        let lines = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(2), "{lines}");
        assert_eq!(lines.lines().count(), 1, "{lines}");
        assert!(lines.contains(said), "{lines}");
        assert!(output.stdout.is_empty());
    }
}
