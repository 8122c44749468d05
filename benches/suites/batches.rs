//! Suites a, c and e: batches, and what hurts.

use migm_supervisor::whatif::{Settings, bounds};

use super::common::{ALL, Options, compare, decisions, energy, goal, least, makespan, mean, most};
use super::loads::{self, Case};

/// X(r, c) of the closed queue with so many customers, over one.
fn queue(customers: u32, r: f64, c: f64) -> f64 {
    let (mut waiting, mut rate) = (0.0, 0.0);
    for jobs in 1..=customers {
        let response = c * (1.0 + waiting);
        rate = f64::from(jobs) / (response + 1.0 / r - c);
        waiting = rate * response;
    }
    rate
}

/// What X times the throughput leaves of the energy, where active energy is `a` times the idle energy of the
/// sequential run and the same however the jobs run.
fn saved(x: f64, a: f64) -> f64 {
    (1.0 + a) / (1.0 / x + a)
}

/// Suite a.
pub fn paper(options: &Options) {
    for (r, c) in [(0.80, 0.05), (0.90, 0.05), (0.96, 0.05), (0.98, 0.02)] {
        let compared = compare(&loads::homogeneous(options, r, c), options, &ALL);
        let x = mean(compared.gains("sequential"));
        let energies = mean(compared.ratios("sequential", "migm", energy));
        let a = mean(compared.of("sequential").iter().map(active));
        let law = queue(7, r, c);
        goal("0.97 of X(r, c)", x >= 0.97 * law, &format!("{x:.3} of {law:.3}"));
        if r >= 0.96 {
            goal("above 6.20", x > 6.20, &format!("{x:.3}"));
        }
        let law = saved(x, a);
        goal(
            "0.97 of (1 + a) / (1/X + a)",
            energies >= 0.97 * law,
            &format!("{energies:.3} of {law:.3}, a = {a:.2}"),
        );
    }
    mix(&loads::heterogeneous(options), options, 1.3, 1.0);
    for case in loads::learning(options) {
        mix(&case, options, 1.59, 1.12);
    }
    mix(&loads::decoders(options), options, 1.43, 1.11);
}

/// Active over idle energy.
fn active(outcome: &migm_supervisor::whatif::Outcome) -> f64 {
    outcome.active_energy / (outcome.energy - outcome.active_energy)
}

fn mix(case: &Case, options: &Options, above: f64, energy_above: f64) {
    let compared = compare(case, options, &ALL);
    let gains = compared.gains("sequential");
    let energies = mean(compared.ratios("sequential", "migm", energy));
    let a = mean(compared.of("sequential").iter().map(active));
    // No schedule ends before the bound, and none saves more than one that ends there.
    let bounds = compared.of("sequential").iter().zip(&compared.bounds);
    let ceiling = mean(bounds.map(|(base, bound)| saved(base.makespan / bound, active(base))));
    let fixed = least(&compared.ratios("best-static", "migm", makespan));
    let x = mean(gains.iter().copied());
    goal(
        &format!("throughput above {above}, never below sequential, above best static in every run"),
        x > above && fixed > 1.0 && least(&gains) >= 1.0,
        &format!(
            "{x:.2}, least over best static {fixed:.3}, over sequential {:.2}",
            least(&gains)
        ),
    );
    goal(
        &format!("energy above {energy_above}"),
        energies > energy_above,
        &format!("{energies:.3} of at most {ceiling:.3} at the bound of the makespan, a = {a:.1}"),
    );
}

/// Suite c.
pub fn batches(options: &Options) {
    for case in loads::laws(options) {
        let compared = compare(&case, options, &ALL);
        for (other, goal_at) in [("sequential", 1.6), ("scheme-b", 1.45), ("far", 1.0)] {
            let gain = mean(compared.gains(other));
            goal(
                &format!("{goal_at} x {other}"),
                gain >= goal_at,
                &format!("{gain:.3}"),
            );
        }
        let told = options.settings.search;
        for (search, most_mean, worst, seconds) in [(told, 1.05, 1.08, 1.0), (told / 24, 1.08, 1.12, 0.05)] {
            let settings = Settings {
                search,
                ..options.settings
            };
            let (mut ratios, mut plans) = (Vec::new(), Vec::new());
            for seed in 1..=options.seeds {
                let load = (case.load)(seed);
                let mut longest = 0.0_f64;
                let outcome = decisions(&load, &settings, &mut |took, _, _| longest = longest.max(took));
                plans.push(longest);
                ratios.push(outcome.makespan / bounds::makespan(&load).unwrap());
            }
            let average = mean(ratios.iter().copied());
            goal(
                &format!(
                    "{most_mean} mean and {worst} worst of the bound, a plan in {seconds} s, {search} evaluations"
                ),
                average <= most_mean && most(&ratios) <= worst && most(&plans) <= seconds,
                &format!(
                    "{average:.3}, {:.3}; CPU time of a plan at most {:.3} s",
                    most(&ratios),
                    most(&plans)
                ),
            );
        }
    }
}

/// Suite e.
pub fn adversarial(options: &Options) {
    for case in loads::adversarial(options) {
        let compared = compare(&case, options, &ALL);
        let worst = least(&compared.gains("sequential"));
        let what = if compared.batch {
            "makespan"
        } else {
            "mean completion time"
        };
        // A thousandth is the smallest difference that is one.
        goal(
            &format!("never below sequential in {what}"),
            worst >= 0.999,
            &format!("{worst:.3}"),
        );
    }
}
