//! One GPU: its table, the foreign instances, and the creates its driver has refused.

use std::sync::Arc;

use crate::layout::{ProfileIndex, Slot, StateIndex, Table};

/// A create refused for no lasting reason is tried again after this many seconds at the earliest, unless
/// something changes on the GPU before; doubled by each refusal that follows, up to [`LONGEST_PAUSE`].
const FIRST_PAUSE: f64 = 1.0;
/// The longest pause in seconds.
const LONGEST_PAUSE: f64 = 64.0;

#[derive(Clone, Debug)]
pub(super) struct Gpu {
    /// As it was announced.
    announced: Arc<Table>,
    /// Without the creates that can never be.
    lasting: Arc<Table>,
    /// Also without those refused since the last change.
    pub(super) table: Arc<Table>,
    pub(super) foreign: Vec<Slot>,
    /// The only profiles that the policy uses here, if not all.
    pub(super) offered: Option<Vec<ProfileIndex>>,
    /// Which of the scheduler's kinds it is.
    pub(super) kind: usize,
    /// Refusals in a row.
    refusals: u32,
    retry_at: Option<f64>,
    /// A create was refused for good.
    odd: bool,
}

impl Gpu {
    pub(super) fn new(table: Arc<Table>, foreign: Vec<Slot>, kind: usize) -> Self {
        Self {
            announced: Arc::clone(&table),
            lasting: Arc::clone(&table),
            table,
            foreign,
            offered: None,
            kind,
            refusals: 0,
            retry_at: None,
            odd: false,
        }
    }

    /// Whether the driver has refused nothing for good, and anything can be made at all.
    pub(super) fn is_whole(&self) -> bool {
        !self.odd && self.lasting.edges() > 0
    }

    /// The table of what can be once the passing refusals are over.
    pub(super) fn lasting(&self) -> &Table {
        &self.lasting
    }

    /// The driver refused `slot`. It is not asked again in any of `states`: those in which it was planned
    /// and in which it failed, which differ when other creates ended meanwhile.
    pub(super) fn refuse(&mut self, states: &[StateIndex], slot: Slot, illegal: bool, now: f64) {
        self.odd |= illegal;
        for &state in states {
            if illegal {
                self.lasting = Arc::new(self.lasting.without(state, slot));
            }
            self.table = Arc::new(self.table.without(state, slot));
        }
        if !illegal {
            let pause = FIRST_PAUSE * f64::from(1_u32 << self.refusals.min(16));
            self.refusals += 1;
            self.retry_at = Some(now + pause.min(LONGEST_PAUSE));
        }
    }

    /// A create went through.
    pub(super) fn succeeded(&mut self) {
        self.refusals = 0;
    }

    /// What was refused is asked for again, as after a restart: the next policy plans by what should be.
    pub(super) fn ask_again(&mut self) {
        *self = Self::new(
            Arc::clone(&self.announced),
            std::mem::take(&mut self.foreign),
            self.kind,
        );
    }

    /// Something changed, so what was refused may go through.
    pub(super) fn changed(&mut self) {
        self.retry_at = None;
        self.table = Arc::clone(&self.lasting);
    }

    /// Whether what was refused for a while may be tried again.
    pub(super) fn is_due(&self, now: f64) -> bool {
        self.retry_at.is_some_and(|at| now >= at)
    }

    /// When a refused create may be tried again, while one is held back.
    pub(super) fn retry_at(&self) -> Option<f64> {
        self.retry_at
    }
}
