//! From what earlier runs came to, to the size that the next one's first slice should have. Pure.
//!
//! In order of strength:
//!
//! 1. **The same command has run.** Its peak and a margin, but never more than a slice on which it has ended
//!    well. Seen to run out of memory since, at least what it was seen to need.
//! 2. **Runs that differ from it in one number**: three values of it or more, peaks that rise or fall with it
//!    throughout, and the number at hand between two of them. The peak is read off the straight line between its
//!    neighbours, with the error that the same reading makes at the values in between, and no more than the larger
//!    neighbour's peak: that bounds it where peaks only rise or only fall.
//! 3. **Other runs of the family** are no evidence, only a hint: the largest peak among them. A number beyond all
//!    that ran needs more or less than that, and by how much is not known.
//! 4. **Runs before the program's file changed** are a hint too, where there is nothing else.
//!
//! Need is in device bytes. Where a run's device peak was not measured, its reserved peak stands for it, and the
//! most that was measured beyond that in another run, or what a context costs on this machine.

use migm_shared::units::Bytes;

use crate::control::{Evidence, Past, PastPeak, Point};

/// Added to the peak of fewer than [`FEW`] runs, as a share of it. Peaks of siblings, which do the same on other
/// data, agree within 0.2 to 5 % (two pods of one Stable Diffusion service in Alibaba's GenTD26 peak at 48,277 and
/// 48,478 MiB, 0.4 % apart; coefficients of one transformer predict another's peak within 0.2 to 3.4 %).
const MARGIN: f64 = 0.05;
/// From so many runs on, their own scatter is the margin.
const FEW: usize = 3;
/// And the least of it: three runs that agree to the byte do not prove that the fourth will.
const LEAST_MARGIN: f64 = 0.01;
/// And the most: beyond it a larger slice is paid for by every run, and an overflow by few.
const MOST_MARGIN: f64 = 0.10;
/// So many values of a number must have run before anything is read off between them.
const VALUES: usize = 3;

/// The size of the first slice by history.
#[derive(Clone, Debug, PartialEq)]
pub struct FirstSize {
    /// Device bytes that it should hold.
    pub bytes: u64,
    /// What was measured and is not to be doubted: the job is known to need this. 0 for a hint.
    pub known: u64,
    /// What it rests on, one line.
    pub why: String,
}

/// The size for the job at hand; `None` where nothing is known. `context` is what the driver charges beyond
/// reserved bytes on this machine, where that is known.
#[must_use]
pub fn size(evidence: &Evidence, context: Option<u64>) -> Option<FirstSize> {
    let peaks = evidence.points.iter().flat_map(|point| &point.past.peaks);
    let context = peaks.filter_map(besides).max().or(context);
    let device = |peak: &PastPeak| device_of(peak, context);
    if let Some(past) = same(evidence) {
        return by_the_same(past, context).or_else(|| by_others(evidence, &device));
    }
    let others = by_others(evidence, &device);
    between(evidence, &device).or(others)
}

/// The peak of reserved bytes that the very same command came to, with its margin; `None` where it has not
/// ended well, or has been seen to need more since.
#[must_use]
pub fn expected(evidence: &Evidence) -> Option<u64> {
    let past = same(evidence)?;
    let peak = past.peaks.iter().map(|peak| peak.reserved).max()?;
    (past.at_least <= peak).then(|| enlarged(peak, margin(&past.peaks)))
}

/// How many iterations the very same command ran for; `None` where it passed no marks.
#[must_use]
pub fn horizon(evidence: &Evidence) -> Option<u64> {
    let past = same(evidence)?;
    (past.done > 0 && past.iterations > 0).then_some(past.iterations)
}

fn same(evidence: &Evidence) -> Option<&Past> {
    let is_same = |point: &&Point| point.same_program && point.numbers == evidence.numbers;
    evidence.points.iter().find(is_same).map(|point| &point.past)
}

fn by_the_same(past: &Past, context: Option<u64>) -> Option<FirstSize> {
    let peak = past.peaks.iter().map(|peak| device_of(peak, context)).max();
    let besides = past
        .peaks
        .iter()
        .filter_map(besides)
        .max()
        .or(context)
        .unwrap_or(0);
    let at_least = match past.at_least {
        0 => 0,
        reserved => reserved.saturating_add(besides),
    };
    let Some(peak) = peak else {
        return (at_least > 0).then(|| FirstSize {
            bytes: at_least,
            known: at_least,
            why: format!(
                "history: {} of the same command, none of which ended well; it needed at least {}",
                runs(past.runs),
                Bytes(at_least)
            ),
        });
    };
    let margin = margin(&past.peaks);
    let held = past
        .peaks
        .iter()
        .map(|peak| peak.slice)
        .filter(|slice| *slice >= peak)
        .min();
    let mut bytes = enlarged(peak, margin);
    let mut why = format!(
        "history: {} of the same command peaked at {} at most; with {:.1} % added",
        runs(past.done),
        Bytes(peak),
        margin * 100.0
    );
    if let Some(held) = held.filter(|held| *held < bytes) {
        bytes = held;
        why.push_str(&format!(
            ", but no more than the {} on which it has ended well",
            Bytes(held)
        ));
    }
    if at_least > bytes {
        bytes = at_least;
        why.push_str(&format!("; since then it needed at least {}", Bytes(at_least)));
    }
    Some(FirstSize {
        bytes,
        known: peak.max(at_least),
        why,
    })
}

/// Reads the peak off between two neighbours in the one number that differs.
fn between(evidence: &Evidence, device: &impl Fn(&PastPeak) -> u64) -> Option<FirstSize> {
    (0..evidence.numbers.len()).find_map(|index| {
        let line = line_through(evidence, index, device)?;
        let at = evidence.numbers[index];
        let above = line.iter().position(|(value, _)| *value > at)?;
        let [low, high] = line.get(above.checked_sub(1)?..=above)? else {
            return None;
        };
        let read = read_off(*low, *high, at);
        let miss = line
            .windows(3)
            .map(|three| (three[1].1 / read_off(three[0], three[2], three[1].0) - 1.0).max(0.0))
            .fold(MARGIN, f64::max);
        let bound = low.1.max(high.1) * (1.0 + MARGIN);
        let bytes = to_bytes((read * (1.0 + miss)).min(bound));
        let ordinal = index + 1;
        Some(FirstSize {
            bytes,
            known: 0,
            why: format!(
                "history: between runs with {} and {} as number {ordinal} of the arguments, which peaked at {} and {}; \
                 with {:.1} % added",
                low.0,
                high.0,
                Bytes(to_bytes(low.1)),
                Bytes(to_bytes(high.1)),
                miss * 100.0
            ),
        })
    })
}

/// The runs that differ from the job at hand in this number alone, by its value, with their peaks: where there
/// are enough of them and their peaks never turn.
fn line_through(
    evidence: &Evidence,
    index: usize,
    device: &impl Fn(&PastPeak) -> u64,
) -> Option<Vec<(f64, f64)>> {
    let alike = |point: &&Point| {
        point.same_program
            && point.numbers.len() == evidence.numbers.len()
            && (0..evidence.numbers.len())
                .all(|other| other == index || point.numbers[other] == evidence.numbers[other])
    };
    let mut line: Vec<(f64, f64)> = evidence
        .points
        .iter()
        .filter(alike)
        // One that was seen to need more than its last peak is no point of a line.
        .filter(|point| point.past.at_least == 0)
        .filter_map(|point| {
            let peak = point.past.peaks.iter().map(device).max()?;
            #[expect(clippy::cast_precision_loss, reason = "device memory is far below 2^53 bytes")]
            Some((point.numbers[index], peak as f64))
        })
        .collect();
    line.sort_by(|one, other| one.0.total_cmp(&other.0));
    line.dedup_by_key(|(value, _)| *value);
    let rises = line.is_sorted_by(|one, other| one.1 <= other.1);
    let falls = line.is_sorted_by(|one, other| one.1 >= other.1);
    (line.len() >= VALUES && (rises || falls)).then_some(line)
}

fn read_off(low: (f64, f64), high: (f64, f64), at: f64) -> f64 {
    low.1 + (high.1 - low.1) * (at - low.0) / (high.0 - low.0)
}

/// The largest of all runs of the family: of the program as it is, else as it was.
fn by_others(evidence: &Evidence, device: &impl Fn(&PastPeak) -> u64) -> Option<FirstSize> {
    let largest = |same_program: bool| {
        let points = evidence
            .points
            .iter()
            .filter(|point| point.same_program == same_program);
        points.flat_map(|point| &point.past.peaks).map(device).max()
    };
    let hint = |bytes: u64, of: &str| FirstSize {
        bytes,
        known: 0,
        why: format!("history: a hint, the largest peak of {of}, {}", Bytes(bytes)),
    };
    largest(true)
        .map(|bytes| hint(bytes, "runs with other numbers in the arguments"))
        .or_else(|| largest(false).map(|bytes| hint(bytes, "runs before the program changed")))
}

/// The share that is added to the largest of these peaks.
#[expect(clippy::cast_precision_loss, reason = "device memory is far below 2^53 bytes")]
fn margin(peaks: &[PastPeak]) -> f64 {
    if peaks.len() < FEW {
        return MARGIN;
    }
    let reserved = || peaks.iter().map(|peak| peak.reserved);
    let (least, most) = (reserved().min().unwrap_or(0), reserved().max().unwrap_or(0));
    if most == 0 {
        return LEAST_MARGIN;
    }
    (1.0 - least as f64 / most as f64).clamp(LEAST_MARGIN, MOST_MARGIN)
}

fn device_of(peak: &PastPeak, context: Option<u64>) -> u64 {
    peak.device
        .unwrap_or_else(|| peak.reserved.saturating_add(context.unwrap_or(0)))
}

fn besides(peak: &PastPeak) -> Option<u64> {
    Some(peak.device?.saturating_sub(peak.reserved))
}

#[expect(clippy::cast_precision_loss, reason = "device memory is far below 2^53 bytes")]
fn enlarged(bytes: u64, share: f64) -> u64 {
    to_bytes(bytes as f64 * (1.0 + share))
}

#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a cast of a float to an integer saturates, and peaks are positive"
)]
fn to_bytes(value: f64) -> u64 {
    value.ceil() as u64
}

fn runs(count: u64) -> String {
    match count {
        1 => "1 run".to_owned(),
        count => format!("{count} runs"),
    }
}

#[cfg(test)]
mod tests;
