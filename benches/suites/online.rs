//! Suite d: jobs that come one by one.

use super::common::{Options, compare, goal, least, most};
use super::loads;

pub const LOADS: [f64; 6] = [0.3, 0.5, 0.7, 0.8, 0.9, 0.95];

pub fn loads(options: &Options) {
    let policies = ["sequential", "best-static", "scheme-b", "mfi", "miso", "migm"];
    for part in LOADS {
        let compared = compare(&loads::online(options, part), options, &policies);
        for name in &policies[..3] {
            let worst = least(&compared.gains(name));
            goal(
                &format!("mean completion of {name} over ours, worst seed"),
                worst >= 1.0,
                &format!("{worst:.3}"),
            );
        }
        let slowdown = |policy: &str| {
            let all: Vec<f64> = compared
                .of(policy)
                .iter()
                .map(|outcome| outcome.max_slowdown)
                .collect();
            most(&all)
        };
        let (ours, base) = (slowdown("migm"), slowdown("sequential"));
        goal(
            "no job is slowed down more than the most under sequential",
            ours <= base,
            &format!("{ours:.1} of {base:.1}"),
        );
    }
}
