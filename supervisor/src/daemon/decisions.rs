//! What was decided on a job, kept within bounds.

use std::collections::VecDeque;

use crate::control::{Decision, Explanation, Inputs, Verdict};

const FIRST: usize = Explanation::FIRST;
const LAST: usize = Explanation::LAST;

/// The decisions on one job, in order. One that is only said again counts up the last.
#[derive(Clone, Debug, Default)]
pub struct Decisions {
    first: Vec<Decision>,
    last: VecDeque<Decision>,
    left_out: u64,
}

impl Decisions {
    /// Adds a decision. `true` if it differs from the one before in more than its figures.
    pub fn add(
        &mut self,
        now: f64,
        attempt: u32,
        verdict: Verdict,
        reason: String,
        inputs: Option<Inputs>,
    ) -> bool {
        let before = self.last.back_mut().or(self.first.last_mut());
        if let Some(before) = before
            && (before.attempt, before.verdict) == (attempt, verdict)
            && kind(&before.reason) == kind(&reason)
        {
            before.last = now;
            before.times += 1;
            before.reason = reason;
            before.inputs = inputs;
            return false;
        }
        let decision = Decision {
            first: now,
            last: now,
            times: 1,
            attempt,
            verdict,
            reason,
            inputs,
        };
        if self.first.len() < FIRST {
            self.first.push(decision);
            return true;
        }
        if self.last.len() == LAST {
            self.last.pop_front();
            self.left_out += 1;
        }
        self.last.push_back(decision);
        true
    }

    /// Those that are kept, and how many are not.
    #[must_use]
    pub fn kept(&self) -> (Vec<Decision>, u64) {
        (
            self.first.iter().chain(&self.last).cloned().collect(),
            self.left_out,
        )
    }
}

/// What a reason says apart from its figures: the words up to the first colon.
fn kind(reason: &str) -> &str {
    reason.split(':').next().unwrap_or(reason)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_said_again_is_one_decision_with_the_last_figures() {
        let mut decisions = Decisions::default();
        let stay = |decisions: &mut Decisions, now: f64, reason: &str| {
            decisions.add(now, 1, Verdict::Stay, reason.to_owned(), None)
        };
        assert!(stay(&mut decisions, 1.0, "fits: forecast 4 GiB"));
        assert!(!stay(&mut decisions, 2.0, "fits: forecast 5 GiB"));
        assert!(stay(&mut decisions, 3.0, "not settled yet: forecast 9 GiB"));
        assert!(decisions.add(4.0, 1, Verdict::Move, "not settled yet: x".into(), None));
        assert!(decisions.add(5.0, 2, Verdict::Move, "not settled yet: x".into(), None));
        let (kept, left_out) = decisions.kept();
        assert_eq!((kept.len(), left_out), (4, 0));
        assert_eq!((kept[0].first, kept[0].last, kept[0].times), (1.0, 2.0, 2));
        assert_eq!(kept[0].reason, "fits: forecast 5 GiB");
    }

    #[test]
    fn a_job_that_wavers_for_a_day_keeps_the_first_and_the_last() {
        let mut decisions = Decisions::default();
        for number in 0..10_000_u32 {
            let verdict = if number % 2 == 0 {
                Verdict::Stay
            } else {
                Verdict::Cannot
            };
            decisions.add(f64::from(number), 1, verdict, String::new(), None);
        }
        let (kept, left_out) = decisions.kept();
        assert_eq!((kept.len(), left_out), (FIRST + LAST, 10_000 - 64));
        assert_eq!((kept[FIRST - 1].first, kept[FIRST].first), (15.0, 9_952.0));
    }
}
