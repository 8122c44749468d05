use super::*;
use crate::control::Outcome;
use migm_shared::units::GIB;
use proptest::prelude::*;

const CONTEXT: u64 = 434 << 20;
const SLICE_5: u64 = 4864 << 20;
const SLICE_10: u64 = 9856 << 20;
const SLICE_20: u64 = 20096 << 20;

fn past(peaks: &[(u64, u64)]) -> Past {
    Past {
        paces: Vec::new(),
        runs: peaks.len() as u64,
        done: peaks.len() as u64,
        peaks: peaks
            .iter()
            .map(|&(reserved, slice)| PastPeak {
                allocated: None,
                reserved,
                device: Some(reserved + CONTEXT),
                slice,
            })
            .collect(),
        at_least: 0,
        iterations: 100,
        law: None,
        outcome: Outcome::Done,
    }
}

fn point(numbers: &[f64], peaks: &[(u64, u64)]) -> Point {
    Point {
        same_program: true,
        numbers: numbers.to_vec(),
        past: past(peaks),
    }
}

fn evidence(numbers: &[f64], points: Vec<Point>) -> Evidence {
    Evidence {
        signature: String::new(),
        numbers: numbers.to_vec(),
        points,
    }
}

#[test]
fn nothing_known_is_no_size() {
    assert_eq!(size(&evidence(&[1.0], Vec::new()), None), None);
}

#[test]
fn a_second_run_starts_where_the_first_ended_well_though_the_margin_would_not_fit() {
    // 9 GiB and a context in a slice of 9.6: with 5 % more it would take a slice twice as large.
    let known = evidence(&[9.0], vec![point(&[9.0], &[(9 * GIB, SLICE_10)])]);
    let first = size(&known, None).unwrap();
    assert_eq!(first.bytes, SLICE_10);
    assert_eq!(first.known, 9 * GIB + CONTEXT);
    assert!(
        first.why.contains("1 run of the same command peaked at 9.42 GiB"),
        "{}",
        first.why
    );
    assert!(first.why.contains("no more than the 9.62 GiB"), "{}", first.why);
}

#[test]
fn a_run_far_below_its_slice_gets_a_smaller_one() {
    let known = evidence(&[], vec![point(&[], &[(3 * GIB, SLICE_20)])]);
    let first = size(&known, None).unwrap();
    assert!(
        first.bytes > 3 * GIB + CONTEXT && first.bytes < SLICE_5,
        "{first:?}"
    );
}

#[test]
fn runs_that_agree_need_less_of_a_margin_and_runs_that_do_not_need_more() {
    let of = |peaks: &[u64]| {
        let peaks: Vec<_> = peaks.iter().map(|peak| (peak << 20, SLICE_20)).collect();
        let known = evidence(&[], vec![point(&[], &peaks)]);
        size(&known, None).unwrap().bytes >> 20
    };
    assert_eq!(of(&[10_000]), 10_434 * 105 / 100);
    assert_eq!(of(&[10_000, 10_000, 10_000]), 10_434 * 101 / 100);
    assert_eq!(of(&[9_700, 10_000, 9_900]), 10_434 * 103 / 100);
    assert_eq!(of(&[2_000, 10_000, 9_900]), 10_434 * 110 / 100);
}

#[test]
fn running_out_is_a_lower_bound_until_a_run_ends_well() {
    let mut out = past(&[]);
    (out.runs, out.done, out.at_least, out.outcome) = (2, 0, 9 * GIB, Outcome::Oom);
    let point_of = |past: Past| Point {
        same_program: true,
        numbers: vec![],
        past,
    };
    let known = evidence(&[], vec![point_of(out.clone())]);
    assert_eq!(size(&known, Some(CONTEXT)).unwrap().bytes, 9 * GIB + CONTEXT);
    assert_eq!(expected(&known), None);
    assert_eq!(horizon(&known), None);
    out.absorb(&past(&[(3 * GIB, SLICE_10)]));
    let known = evidence(&[], vec![point_of(out.clone())]);
    assert!(size(&known, None).unwrap().bytes < SLICE_5);
    // Running out after it has ended well counts again.
    let mut later = past(&[]);
    (later.done, later.at_least) = (0, 12 * GIB);
    out.absorb(&later);
    let known = evidence(&[], vec![point_of(out)]);
    assert_eq!(size(&known, None).unwrap().bytes, 12 * GIB + CONTEXT);
    assert_eq!(expected(&known), None);
}

#[test]
fn a_run_that_failed_early_says_little_and_does_not_hide_the_family() {
    let mut failed = past(&[]);
    (failed.runs, failed.done, failed.at_least, failed.outcome) = (1, 0, 0, Outcome::Failed);
    let same = Point {
        same_program: true,
        numbers: vec![1.0],
        past: failed,
    };
    let known = evidence(&[1.0], vec![same, point(&[2.0], &[(6 * GIB, SLICE_10)])]);
    assert_eq!(size(&known, None).unwrap().bytes, 6 * GIB + CONTEXT);
}

fn batches(values: &[(f64, u64)], at: f64) -> Evidence {
    let points = values
        .iter()
        .map(|&(batch, mib)| point(&[batch, 3.0], &[(mib << 20, SLICE_20)]));
    evidence(&[at, 3.0], points.collect())
}

#[test]
fn a_batch_size_between_those_that_ran_is_read_off() {
    let known = batches(&[(16.0, 2_000), (32.0, 4_000), (64.0, 8_000)], 48.0);
    let first = size(&known, None).unwrap();
    let exact = 6_000 + 434;
    let mib = first.bytes >> 20;
    assert!((exact..=exact * 106 / 100).contains(&mib), "{mib}: {}", first.why);
    assert!(
        first.why.contains("between runs with 32 and 64 as number 1"),
        "{}",
        first.why
    );
    assert_eq!(first.known, 0);
}

#[test]
fn peaks_above_the_straight_line_are_allowed_for() {
    // A concave law: the straight line through the neighbours is below it.
    let law = |x: f64| to_bytes(1000.0 * x.sqrt());
    let values: Vec<(f64, u64)> = [1.0, 16.0, 49.0, 100.0].map(|x| (x, law(x))).to_vec();
    let mib = size(&batches(&values, 30.0), None).unwrap().bytes >> 20;
    assert!(mib >= law(30.0) + 434, "{mib} for {}", law(30.0));
}

#[test]
fn what_no_evidence_bears_is_a_hint_only() {
    let hint = |values: &[(f64, u64)], at: f64| {
        let first = size(&batches(values, at), None).unwrap();
        assert!(first.why.contains("a hint"), "{}", first.why);
        assert_eq!(first.known, 0);
        (first.bytes - CONTEXT) >> 20
    };
    // Two values; a number beyond all; peaks that turn; another number too.
    assert_eq!(hint(&[(16.0, 2_000), (64.0, 8_000)], 48.0), 8_000);
    assert_eq!(hint(&[(16.0, 2_000), (32.0, 4_000), (64.0, 8_000)], 128.0), 8_000);
    assert_eq!(hint(&[(16.0, 2_000), (32.0, 9_000), (64.0, 8_000)], 48.0), 9_000);
    let mut other = batches(&[(16.0, 2_000), (32.0, 4_000), (64.0, 8_000)], 48.0);
    other.numbers[1] = 4.0;
    assert!(size(&other, None).unwrap().why.contains("a hint"));
}

#[test]
fn a_program_that_has_changed_is_a_hint_and_only_where_there_is_no_other() {
    let mut old = point(&[1.0], &[(9 * GIB, SLICE_10)]);
    old.same_program = false;
    let known = evidence(&[1.0], vec![old.clone()]);
    let first = size(&known, None).unwrap();
    assert!(first.why.contains("before the program changed"), "{}", first.why);
    assert_eq!((expected(&known), horizon(&known)), (None, None));
    let known = evidence(&[1.0], vec![old, point(&[2.0], &[(2 * GIB, SLICE_5)])]);
    assert_eq!(size(&known, None).unwrap().bytes, 2 * GIB + CONTEXT);
}

#[test]
fn a_device_peak_that_was_not_measured_is_made_up_for() {
    let mut known = point(&[], &[(4 * GIB, SLICE_20)]);
    known.past.peaks[0].device = None;
    let known = evidence(&[], vec![known]);
    let without = size(&known, None).unwrap().bytes;
    assert!(size(&known, Some(CONTEXT)).unwrap().bytes > without);
}

#[test]
fn the_same_command_tells_peak_and_horizon() {
    let known = evidence(&[2.0], vec![point(&[2.0], &[(GIB, SLICE_5)])]);
    assert_eq!(horizon(&known), Some(100));
    assert_eq!(expected(&known), Some(enlarged(GIB, MARGIN)));
    let other = Evidence {
        numbers: vec![3.0],
        ..known
    };
    assert_eq!((expected(&other), horizon(&other)), (None, None));
}

proptest! {
    /// What is read off between two runs is never beyond the larger of them by more than the margin, and on
    /// a straight line never below the truth.
    #[test]
    fn a_reading_is_bounded_by_its_neighbours(
        base in 100_u64..8_000,
        slope in 0_u32..200,
        at in 1.0_f64..99.0,
    ) {
        let law = |x: f64| base + to_bytes(f64::from(slope) * x);
        let values: Vec<(f64, u64)> =
            [0.0, 20.0, 60.0, 100.0].map(|x| (x, law(x))).to_vec();
        if let Some(first) = size(&batches(&values, at), None) {
            let mib = first.bytes >> 20;
            prop_assert!(mib + 1 >= law(at) + 434);
            prop_assert!(first.bytes <= enlarged((law(100.0) + 434) << 20, MARGIN) + 1);
        }
    }

    /// Whatever a runner sends, a size comes out or none.
    #[test]
    fn no_evidence_is_too_odd(
        numbers in prop::collection::vec(any::<f64>(), 0..3),
        points in prop::collection::vec(
            (prop::collection::vec(any::<f64>(), 0..3), any::<u64>(), any::<u64>(), any::<u64>(), any::<bool>()),
            0..6,
        ),
    ) {
        let points = points.into_iter().map(|(numbers, reserved, slice, at_least, same_program)| {
            let mut past = past(&[]);
            past.peaks = vec![PastPeak { allocated: None, reserved, device: None, slice }];
            past.at_least = at_least;
            Point { same_program, numbers, past }
        });
        let known = Evidence { signature: String::new(), numbers, points: points.collect() };
        let _ = (size(&known, Some(u64::MAX)), expected(&known), horizon(&known));
    }
}
