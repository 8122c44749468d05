//! Which overflows a trend announced: only those can be held against a predictor.

/// Whether the overflow of `levels` on a slice of `limit` bytes was announced by what came before it.
///
/// With s the end of the first three samples within 2 % of one another at no less than half the maximum so far, and c
/// the crossing: c - s >= 10; of the four equal blocks that end at c - 1 all three steps of the block maximum rise;
/// they rise by more than 0.5 % together; none is more than 70 % of that; and the crossing increment is at most three
/// times the largest record increment after s. A jump, a start-up ramp and a spike are not announced.
///
/// `None` where nothing overflows.
#[must_use]
pub fn announced(levels: &[u64], limit: u64) -> Option<bool> {
    let crossing = levels.iter().position(|&level| level > limit)?;
    Some(settled_at(levels).is_some_and(|settled| {
        crossing >= settled + 10
            && rises_by_blocks(&levels[settled..crossing])
            && is_in_step(&levels[..=crossing], settled)
    }))
}

/// The end of the first three samples within 2 % at no less than half the maximum so far.
fn settled_at(levels: &[u64]) -> Option<usize> {
    let mut top = 0;
    levels.iter().enumerate().position(|(index, &level)| {
        top = top.max(level);
        let Some(first) = index.checked_sub(2) else {
            return false;
        };
        let three = &levels[first..=index];
        let (least, most) = (
            three.iter().min().copied().unwrap_or(0),
            three.iter().max().copied().unwrap_or(0),
        );
        (most - least).saturating_mul(50) <= most && least.saturating_mul(2) >= top
    })
}

/// Whether the maxima of four equal blocks, the last ending at the end, rise evenly enough.
fn rises_by_blocks(levels: &[u64]) -> bool {
    let block = levels.len() / 4;
    let from = levels.len() - 4 * block;
    let tops: Vec<u64> = levels[from..]
        .chunks(block.max(1))
        .map(|block| block.iter().copied().max().unwrap_or(0))
        .collect();
    let [first, .., last] = tops[..] else { return false };
    let rise = last.saturating_sub(first);
    rise.saturating_mul(200) > first
        && tops.windows(2).all(|pair| {
            let step = pair[1].saturating_sub(pair[0]);
            step > 0 && step.saturating_mul(10) <= rise.saturating_mul(7)
        })
}

/// Whether the last increment is at most three times the largest one between records after `settled`.
fn is_in_step(levels: &[u64], settled: usize) -> bool {
    let [before @ .., crossing] = levels else {
        return false;
    };
    let mut record = before[..=settled].iter().copied().max().unwrap_or(0);
    let mut largest = 0;
    for &level in &before[settled + 1..] {
        largest = largest.max(level.saturating_sub(record));
        record = record.max(level);
    }
    crossing.saturating_sub(record) <= largest.saturating_mul(3)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(start: u64, step: u64, count: u64) -> Vec<u64> {
        (0..count).map(|at| start + step * at).collect()
    }

    #[test]
    fn a_line_is_announced_and_what_fits_is_no_overflow() {
        let levels = line(10_000, 50, 200);
        assert_eq!(announced(&levels, 15_000), Some(true));
        assert_eq!(announced(&levels, 30_000), None);
    }

    #[test]
    fn ten_samples_after_it_settled_are_needed() {
        // Settled at index 2: 12 samples later at the earliest.
        let levels = line(10_000, 90, 40);
        assert_eq!(announced(&levels, levels[11]), Some(true));
        assert_eq!(announced(&levels, levels[10]), Some(false));
    }

    #[test]
    fn jumps_ramps_and_single_steps_are_not() {
        let mut jump = line(10_000, 1, 60);
        jump.push(20_000);
        assert_eq!(announced(&jump, 15_000), Some(false));
        let ramp: Vec<u64> = (1..20).map(|at| at * 1_000).collect();
        assert_eq!(announced(&ramp, 15_000), Some(false));
        let mut step = vec![10_000; 30];
        step.extend([11_000; 10]);
        step.push(11_900);
        assert_eq!(announced(&step, 11_500), Some(false));
    }

    #[test]
    fn the_crossing_must_be_in_step_with_what_came_before() {
        let mut levels = line(10_000, 50, 60);
        let last = levels[59];
        levels.push(last + 150);
        assert_eq!(announced(&levels, last + 140), Some(true));
        *levels.last_mut().unwrap() = last + 160;
        assert_eq!(announced(&levels, last + 140), Some(false));
    }
}
