//! Jobs on one GPU that share its bus to the host.
//!
//! A job's unit of work is c seconds on the bus and 1/r - c seconds of its own on its slice, r being its speed
//! alone there. Each job is one customer of a closed queueing network with one shared server (processor
//! sharing) and a delay of its own; exact mean value analysis (Reiser and Lavenberg, JACM 1980) over the
//! subsets of the jobs gives each one's speed. For n equal jobs that is R_n = c (1 + Q_(n-1)),
//! X_n = n / (R_n + 1/r - c), Q_n = X_n R_n.

/// Speeds of jobs together, from each one's speed alone and bus share. Jobs beyond the sixteenth are not slowed.
#[must_use]
pub fn together(jobs: &[(f64, f64)]) -> Vec<f64> {
    let users: Vec<usize> = (0..jobs.len())
        .filter(|&index| jobs[index].1 > 0.0 && jobs[index].0 > 0.0)
        .take(16)
        .collect();
    let mut speeds: Vec<f64> = jobs.iter().map(|job| job.0).collect();
    if users.len() < 2 {
        return speeds;
    }
    let all = 1_usize << users.len();
    // Mean number of each subset's jobs at the bus.
    let mut queue = vec![0.0; all];
    for set in 1..all {
        let mut total = 0.0;
        for (bit, &user) in users.iter().enumerate().filter(|(bit, _)| set >> bit & 1 == 1) {
            let (alone, bus) = jobs[user];
            let response = bus * (1.0 + queue[set & !(1 << bit)]);
            let speed = 1.0 / (response + (1.0 / alone - bus).max(0.0));
            total += speed * response;
            if set == all - 1 {
                speeds[user] = speed;
            }
        }
        queue[set] = total;
    }
    speeds
}

#[cfg(test)]
mod tests {
    use super::*;

    /// The closed form for n equal jobs, beside the recursion over subsets.
    fn equal(n: u32, r: f64, c: f64) -> f64 {
        let (mut queue, mut speed) = (0.0, 0.0);
        for jobs in 1..=n {
            let response = c * (1.0 + queue);
            speed = f64::from(jobs) / (response + 1.0 / r - c);
            queue = speed * response;
        }
        speed
    }

    #[test]
    fn equal_jobs_follow_the_closed_form() {
        for (r, c) in [(0.9, 0.05), (0.96, 0.05), (0.8, 0.2)] {
            let sum: f64 = together(&[(r, c); 7]).iter().sum();
            assert!((sum - equal(7, r, c)).abs() < 1e-9, "{sum}");
            assert!(sum <= (7.0 * r).min(1.0 / c));
        }
    }

    #[test]
    fn a_job_without_transfers_is_not_slowed() {
        let speeds = together(&[(0.5, 0.3), (0.7, 0.0), (0.5, 0.3)]);
        assert_eq!(speeds[1], 0.7);
        assert!(speeds[0] < 0.5 && (speeds[0] - speeds[2]).abs() < 1e-12);
    }
}
