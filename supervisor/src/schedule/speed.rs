//! How fast a job runs on each slice, from what its runs have shown.
//!
//! The law is Amdahl's, with the slice's share of the GPU's compute slices for the number of processors: a second of
//! work on the whole GPU takes a + (1 - a) / share seconds on a slice. a, the *serial part*, is what no slice
//! shortens. Gene M. Amdahl, "Validity of the single processor approach to achieving large scale computing
//! capabilities", AFIPS 1967.

use std::collections::BTreeMap;
use std::sync::Arc;

use crate::layout::Table;

/// Part of a job's time that no slice shortens, where nothing is known of any program. The mean of MISO's training
/// jobs on an A100 (Li et al., SoCC 2022): from 0.2 for transformers to 0.97 for mobilenet.
pub const SERIAL: f64 = 0.6;

/// Seconds of running after which a job's speed on its slice is known from its iterations. Assumed.
pub const LEARN_S: f64 = 20.0;

/// Figures by kind of GPU and profile: seconds of work per second, or a pace in a unit of its own.
pub type Points = BTreeMap<(usize, usize), f64>;

/// Share of the GPU's compute slices of each profile, by kind of GPU.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Shares(Vec<Vec<f64>>);

impl Shares {
    /// Of the tables of the kinds, in their order; a kind without a table has no profiles.
    #[must_use]
    pub fn of<'a>(tables: impl IntoIterator<Item = Option<&'a Table>>) -> Self {
        let shares = tables.into_iter().map(|table| {
            let Some(table) = table else {
                return Vec::new();
            };
            let whole = f64::from(table.profile(table.full()).compute.max(1));
            let profiles = table.profiles().iter();
            profiles
                .map(|profile| f64::from(profile.compute) / whole)
                .collect()
        });
        Self(shares.collect())
    }

    fn share(&self, (kind, profile): (usize, usize)) -> Option<f64> {
        let share = *self.0.get(kind)?.get(profile)?;
        (share > 0.0).then_some(share)
    }

    /// The serial part that these speeds show; `None` where none is of less than a whole GPU.
    #[must_use]
    pub fn serial(&self, speeds: &Points) -> Option<f64> {
        let known = speeds.iter().filter_map(|(&at, &speed)| {
            let share = self.share(at)?;
            (share < 1.0).then(|| (1.0 / share - 1.0 / speed) / (1.0 / share - 1.0))
        });
        mean(known)
    }

    /// Speeds on every profile: what was seen stands as it was, the rest is by the law.
    #[must_use]
    pub fn guess(&self, seen: Option<&Points>, serial: f64) -> Vec<Arc<[f64]>> {
        let kinds = self.0.iter().enumerate().map(|(kind, shares)| {
            let profiles = shares.iter().enumerate().map(|(profile, &share)| {
                let seen = seen.and_then(|points| points.get(&(kind, profile)));
                seen.copied()
                    .unwrap_or_else(|| by_law(share, serial).clamp(share / 4.0, 1.0))
            });
            profiles.collect()
        });
        kinds.collect()
    }

    /// Paces (iterations per second, say) turned into speeds, and the pace on a whole GPU that they are measured
    /// by: as seen there, else by the law through two slices or more of different size, else through one, with
    /// `serial` taken for granted. `None` without a pace.
    #[must_use]
    pub fn relative(&self, paces: &Points, serial: f64) -> Option<(Points, f64)> {
        let known: Vec<(f64, f64)> = paces
            .iter()
            .filter_map(|(&at, &pace)| Some((self.share(at)?, pace)))
            .filter(|(_, pace)| pace.is_finite() && *pace > 0.0)
            .collect();
        let whole = known.iter().filter(|(share, _)| *share >= 1.0).map(|one| one.1);
        let whole = mean(whole).or_else(|| {
            let serial = line(&known).unwrap_or(serial);
            mean(known.iter().map(|&(share, pace)| pace / by_law(share, serial)))
        })?;
        let speeds = paces.iter().filter(|(at, _)| self.share(**at).is_some());
        Some((speeds.map(|(&at, &pace)| (at, pace / whole)).collect(), whole))
    }
}

fn by_law(share: f64, serial: f64) -> f64 {
    1.0 / (serial + (1.0 - serial) / share)
}

/// The serial part by the least squares line of 1 / pace over 1 / share; `None` where all shares are the same.
fn line(points: &[(f64, f64)]) -> Option<f64> {
    let x = mean(points.iter().map(|point| 1.0 / point.0))?;
    let y = mean(points.iter().map(|point| 1.0 / point.1))?;
    let spread: f64 = points.iter().map(|point| (1.0 / point.0 - x).powi(2)).sum();
    if spread < 1e-9 {
        return None;
    }
    let both = points
        .iter()
        .map(|point| (1.0 / point.0 - x) * (1.0 / point.1 - y));
    let slope = both.sum::<f64>() / spread;
    // y = (a + (1 - a) x) / whole: at x = 1 that is 1 / whole.
    let at_one = y + slope * (1.0 - x);
    (at_one > 0.0).then(|| (1.0 - slope / at_one).clamp(0.0, 1.0))
}

/// The mean, the same whatever the order.
#[expect(clippy::cast_precision_loss, reason = "a number of programs or slices")]
pub fn mean(values: impl IntoIterator<Item = f64>) -> Option<f64> {
    let mut values: Vec<f64> = values.into_iter().collect();
    values.sort_by(f64::total_cmp);
    (!values.is_empty()).then(|| values.iter().sum::<f64>() / values.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::layout::samples;

    fn a100() -> (Shares, usize, usize, usize) {
        let table = samples::a100_base();
        let of = |name: &str| {
            let mut profiles = table.profiles().iter();
            profiles.position(|profile| profile.name == name).unwrap()
        };
        let found = (of("1g.5gb"), of("3g.20gb"), of("7g.40gb"));
        (Shares::of([Some(&table)]), found.0, found.1, found.2)
    }

    #[test]
    fn a_law_shown_on_one_slice_is_read_off_on_the_others() {
        let (shares, small, half, whole) = a100();
        // a = 0.5: a 1g takes 0.5 + 0.5 x 7 = 4 times as long.
        let seen = Points::from([((0, small), 0.25)]);
        let serial = shares.serial(&seen).unwrap();
        assert!((serial - 0.5).abs() < 1e-9, "{serial}");
        let speeds = shares.guess(Some(&seen), serial);
        assert!((speeds[0][half] - 1.0 / (0.5 + 0.5 * 7.0 / 3.0)).abs() < 1e-9);
        assert_eq!((speeds[0][small], speeds[0][whole]), (0.25, 1.0));
    }

    #[test]
    fn paces_on_two_slices_tell_the_pace_on_the_whole_gpu() {
        let (shares, small, half, whole) = a100();
        // 20 iterations a second on the whole GPU, a = 0.4.
        let pace = |share: f64| 20.0 / (0.4 + 0.6 / share);
        let mut paces = Points::from([((0, small), pace(1.0 / 7.0)), ((0, half), pace(3.0 / 7.0))]);
        let (speeds, full) = shares.relative(&paces, SERIAL).unwrap();
        assert!((full - 20.0).abs() < 1e-6, "{full}");
        assert!((speeds[&(0, half)] - 1.0 / 1.8).abs() < 1e-6);
        // What was seen there counts more than any law.
        paces.insert((0, whole), 30.0);
        assert!((shares.relative(&paces, SERIAL).unwrap().1 - 30.0).abs() < 1e-9);
    }

    #[test]
    fn one_pace_is_read_by_the_serial_part_of_others() {
        let (shares, small, ..) = a100();
        let paces = Points::from([((0, small), 5.0)]);
        let (speeds, full) = shares.relative(&paces, 0.5).unwrap();
        assert!((full - 20.0).abs() < 1e-9);
        assert!((speeds[&(0, small)] - 0.25).abs() < 1e-9);
        assert_eq!(shares.relative(&Points::new(), 0.5), None);
        // Of a profile that is not there any more.
        assert_eq!(shares.relative(&Points::from([((3, 0), 5.0)]), 0.5), None);
    }

    #[test]
    fn paces_that_no_law_explains_give_speeds_all_the_same() {
        let (shares, small, half, _) = a100();
        // Faster on the smaller slice.
        let paces = Points::from([((0, small), 9.0), ((0, half), 3.0)]);
        let (speeds, full) = shares.relative(&paces, SERIAL).unwrap();
        assert!(full.is_finite() && full > 0.0);
        assert!(speeds.values().all(|speed| speed.is_finite() && *speed > 0.0));
    }
}
