//! Suite d: jobs that come one by one.

use super::common::{Options, compare, goal, least};
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
    }
}
