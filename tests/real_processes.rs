//! A batch as real processes against the same batch in virtual time.
#![expect(clippy::unwrap_used, reason = "a test ends at its first surprise")]

mod support;
#[path = "support/twin.rs"]
mod twin;

use twin::{POLICIES, Twin, figure};

/// The bench of the same name holds the median of three runs to 0.05; here one run among others must do.
const APART: f64 = 0.1;
/// A run that other programs of this machine have slowed down is repeated.
const TRIES: usize = 3;

#[test]
fn real_processes_end_when_simulate_says() {
    let twin = Twin::new();
    for policy in POLICIES {
        let simulated = twin.simulated(policy);
        let mut seen = Vec::new();
        for _ in 0..TRIES {
            let real = twin.real(policy);
            // `migm` learns speeds while jobs run, there from iterations and here from ends, and may so start others first.
            for key in ["ooms", "early_restarts"].iter().filter(|_| policy != "migm") {
                assert_eq!(real[*key], simulated[*key], "{policy}, {key}: {real:#}");
            }
            let ratio = figure(&real, "makespan_s") / figure(&simulated, "makespan_s");
            seen.push(ratio);
            if (ratio - 1.0).abs() <= APART {
                break;
            }
        }
        println!(
            "{policy}: real over simulated {seen:.3?}, a start takes {:.2} s",
            twin.start_up
        );
        let close = seen.iter().any(|ratio| (ratio - 1.0).abs() <= APART);
        assert!(close, "{policy}: real over simulated {seen:?}, {simulated:#}");
    }
}
