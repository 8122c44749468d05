//! The same programs under `migm run`: its report must tell what they held at most, and how often they asked.

use std::collections::BTreeMap;
use std::process::Command;

use crate::programs::{is_real, leave_out, program};

#[test]
fn the_report_of_a_run_has_the_programs_own_peak_and_counts() {
    let place = if is_real() {
        crate::support::Place::without_gpu()
    } else {
        crate::support::Place::simulated(&["--gpu", "a100-40gb", "--time-scale", "0.01"])
    };
    for row in ["alloc", "pitch", "array", "async_", "pool", "vmm"] {
        let report = place.path().join(format!("{row}.json"));
        let mut command: Command = place.migm(&["run", "--report", report.to_str().unwrap(), "--"]);
        let output = command.arg(program("paths")).arg(row).output().unwrap();
        let stderr = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.code() == Some(77) && is_real() {
            leave_out(&format!("{row} under migm run: {stderr}"));
            continue;
        }
        assert!(output.status.success(), "{row}: {}\n{stderr}", output.status);
        let stdout = String::from_utf8(output.stdout).unwrap();
        let last = stdout.lines().last().unwrap().strip_prefix("done ").unwrap();
        let said: BTreeMap<_, u64> = last
            .split(' ')
            .map(|word| word.split_once('=').unwrap())
            .map(|(name, number)| (name, number.parse().unwrap()))
            .collect();
        let told: serde_json::Value = serde_json::from_slice(&std::fs::read(&report).unwrap()).unwrap();
        // The program's warm-up, of one byte, is counted by the run as well.
        let warm_up = 1;
        let expected = (
            said["peak"],
            said["allocations"] + warm_up,
            said["frees"] + warm_up,
        );
        let number = |value: &serde_json::Value| value.as_u64().unwrap();
        assert_eq!(
            (
                number(&told["peak"]["reserved"]),
                number(&told["allocations"]),
                number(&told["frees"])
            ),
            expected,
            "{row}"
        );
    }
}
