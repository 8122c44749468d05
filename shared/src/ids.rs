//! Identities. NVIDIA's MIG UUIDs repeat over time, so each thing of ours has a number of its own.

use std::fmt;
use std::str::FromStr;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

macro_rules! number {
    ($(#[$doc:meta])* $name:ident) => {
        $(#[$doc])*
        #[derive(
            Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Encode, Decode, Serialize, Deserialize,
        )]
        #[serde(transparent)]
        pub struct $name(pub u64);

        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                self.0.fmt(f)
            }
        }
    };
}

number!(
    /// What the user asked for, numbered by the supervisor that first accepted it.
    JobId
);
number!(
    /// Our own number for one life of one slice: never used twice by a supervisor's state directory.
    Incarnation
);
number!(
    /// A set of jobs measured together.
    BatchId
);

/// Which attempt of which job a process belongs to; travels in `MIGM_ATTEMPT` as `job.attempt.nonce`. The
/// nonce is drawn by the runner, so that a process of an earlier supervisor's job 7 is not taken for ours.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Encode, Decode, Serialize, Deserialize)]
pub struct AttemptId {
    /// The job.
    pub job: JobId,
    /// 1 for the first attempt.
    pub attempt: u32,
    /// Drawn once per job by its runner.
    pub nonce: u64,
}

/// The text is no attempt.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error("`{0}` is not of the form job.attempt.nonce")]
pub struct AttemptIdError(String);

impl fmt::Display for AttemptId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}.{}.{:016x}", self.job, self.attempt, self.nonce)
    }
}

impl FromStr for AttemptId {
    type Err = AttemptIdError;

    fn from_str(text: &str) -> Result<Self, AttemptIdError> {
        let wrong = || AttemptIdError(text.to_owned());
        let mut parts = text.split('.');
        let mut next = || parts.next().ok_or_else(wrong);
        let job = next()?.parse().map_err(|_| wrong())?;
        let attempt = next()?.parse().map_err(|_| wrong())?;
        let nonce = u64::from_str_radix(next()?, 16).map_err(|_| wrong())?;
        if parts.next().is_some() {
            return Err(wrong());
        }
        Ok(Self {
            job: JobId(job),
            attempt,
            nonce,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_attempt_survives_the_environment() {
        let id = AttemptId {
            job: JobId(17),
            attempt: 2,
            nonce: 0xfeed,
        };
        assert_eq!(id.to_string(), "17.2.000000000000feed");
        assert_eq!(id.to_string().parse(), Ok(id));
    }

    #[test]
    fn other_text_is_no_attempt() {
        for text in ["", "1", "1.2", "1.2.x", "1.2.3.4", "-1.2.3"] {
            assert_eq!(text.parse::<AttemptId>(), Err(AttemptIdError(text.to_owned())));
        }
    }
}
