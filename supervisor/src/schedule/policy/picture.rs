//! The board as a [`Shop`](super::shop::Shop) sees it.

use migm_shared::ids::JobId;

use super::super::{Board, Desk, share};
use super::shop::{Grid, Place, Task, Way};
use crate::layout::{ProfileIndex, Table};

/// What is worked out once for each kind of GPU.
#[derive(Debug)]
pub(super) struct Kind {
    pub(super) grid: Grid,
    pub(super) shares: Vec<f64>,
    /// Creates of the table when it was worked out.
    edges: usize,
}

/// Works out the kinds on the board that are not known yet; gives how many are new.
pub(super) fn learn(kinds: &mut Vec<Kind>, board: &Board<'_>) {
    while let Some(desk) = board.gpus.iter().find(|desk| desk.kind == kinds.len()) {
        let profiles = (0..desk.table.profiles().len()).map(ProfileIndex);
        kinds.push(Kind {
            grid: Grid::new(desk.table),
            shares: profiles.map(|profile| share(desk.table, profile)).collect(),
            edges: desk.table.edges(),
        });
    }
}

/// Whether the board is as the kinds say: nothing that stays for ever, nothing refused, no GPU that cannot be changed, no job kept
/// to some GPUs.
pub(super) fn is_plain(kinds: &[Kind], board: &Board<'_>) -> bool {
    !board.restricted
        && board.gpus.iter().all(|desk| {
            desk.busy.is_some()
                && desk.lasting.is_empty()
                && desk.refused.is_empty()
                && desk.held.iter().all(|held| held.job.is_some())
                && desk.table.edges() > 0
                && desk.table.edges() == kinds[desk.kind].edges
        })
}

/// Seconds that a job runs on for at least while it has not ended, whatever was said of it.
pub(super) const LEAST_LEFT_S: f64 = 1e-3;

/// Slices that are being made: the driver makes them before any other.
pub(super) fn coming(desk: &Desk<'_>) -> f64 {
    let coming = desk.held.iter().filter(|held| !held.runs).count();
    f64::from(number(coming))
}

/// GPUs, tasks that run on them, and the names of these.
pub(super) type Picture = (Vec<Place>, Vec<Task>, Vec<JobId>);

/// What runs, and what is coming at `create` seconds each; `left` says how much work a job has left, from what is told and
/// what it has done. `None` when the board holds something that the grids do not know.
pub(super) fn running(
    board: &Board<'_>,
    kinds: &[Kind],
    create: f64,
    left: impl Fn(Option<f64>, f64) -> f64,
) -> Option<Picture> {
    let (mut places, mut tasks, mut names) = (Vec::new(), Vec::new(), Vec::new());
    for (at, desk) in board.gpus.iter().enumerate() {
        let grid = &kinds[desk.kind].grid;
        let foreign = desk.held.iter().filter(|held| held.job.is_none());
        let state = desk
            .table
            .state_of(&foreign.map(|held| held.slot).collect::<Vec<_>>())
            .ok()?;
        let mut standing = 0;
        for slot in &desk.idle {
            standing |= 1 << grid.bit(*slot)?;
        }
        let driver = coming(desk) * create;
        places.push(Place {
            kind: u8::try_from(desk.kind).ok()?,
            state: number(state.to_usize()),
            standing,
            driver,
        });
        for held in &desk.held {
            let (Some(job), Some(facts)) = (held.job, held.facts) else {
                continue;
            };
            let speed = facts.speed(desk.kind, desk.table, held.slot.0);
            let wait = if held.runs { 0.0 } else { driver };
            let seconds = wait + (left(held.left, held.attained) / speed.max(1e-6)).max(LEAST_LEFT_S);
            tasks.push(Task {
                weight: facts.weight,
                ways: Vec::new(),
                runs: Some((number(at), grid.bit(held.slot)?, seconds)),
                held: false,
            });
            names.push(job);
        }
    }
    Some((places, tasks, names))
}

/// The ways to run `work` seconds of work, each larger and faster than the one before on the same kind of GPU.
pub(super) fn ways(
    board: &Board<'_>,
    kinds: &[Kind],
    speed: impl Fn(usize, &Table, ProfileIndex) -> f64,
    work: f64,
) -> Vec<Way> {
    let mut ways = Vec::new();
    for (index, kind) in kinds.iter().enumerate() {
        let Some(desk) = board.gpus.iter().find(|desk| desk.kind == index) else {
            continue;
        };
        let mut by_share: Vec<(f64, f64, usize)> = kind
            .shares
            .iter()
            .enumerate()
            .map(|(profile, &share)| (share, speed(index, desk.table, ProfileIndex(profile)), profile))
            .filter(|found| found.1 > 0.0)
            .collect();
        by_share.sort_by(|a, b| a.0.total_cmp(&b.0).then(b.1.total_cmp(&a.1)));
        let mut fastest = 0.0;
        for (_, speed, profile) in by_share {
            if speed > fastest {
                fastest = speed;
                ways.push(Way {
                    kind: u8::try_from(index).unwrap_or(u8::MAX),
                    profile: u8::try_from(profile).unwrap_or(u8::MAX),
                    seconds: work / speed,
                });
            }
        }
    }
    ways
}

/// A small number; what is beyond 2^16 is met by no board that is planned.
pub(super) fn number(value: usize) -> u16 {
    u16::try_from(value).unwrap_or(u16::MAX)
}
