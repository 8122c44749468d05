//! What a running attempt has told of its memory.

use migm_shared::report::Sample;

/// The samples of one attempt.
#[derive(Debug, Default)]
pub struct Track {
    lead: Option<u32>,
    iteration: u64,
    last: Option<Sample>,
}

impl Track {
    /// Iteration marks of the leading process.
    #[must_use]
    pub const fn iteration(&self) -> u64 {
        self.iteration
    }
}
