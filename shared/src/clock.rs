//! What marks the iterations of a program: an event that comes once in each, or so many times.

use std::fmt;
use std::str::FromStr;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// An event that a program may pass once in each iteration. The order is that of the page and of the wire.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Encode, Decode, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
#[repr(u8)]
pub enum Mark {
    /// It waits for a context: `cuCtxSynchronize`, `cudaDeviceSynchronize`.
    ContextSync = 0,
    /// It waits for a stream.
    StreamSync = 1,
    /// It waits for an event.
    EventSync = 2,
    /// It copies from the device to the host: the loss, a result.
    CopyToHost = 3,
    /// It launches a graph.
    GraphLaunch = 4,
    /// It ends a range that it has annotated with NVTX, and is in no other: only where the program's NVTX is told of us.
    NvtxRange = 5,
}

/// Number of [`Mark`]s.
pub const MARKS: usize = 6;

impl Mark {
    /// All of them, in order.
    pub const ALL: [Self; MARKS] = [
        Self::ContextSync,
        Self::StreamSync,
        Self::EventSync,
        Self::CopyToHost,
        Self::GraphLaunch,
        Self::NvtxRange,
    ];

    /// Its name on the command line and in reports.
    #[must_use]
    pub const fn name(self) -> &'static str {
        match self {
            Self::ContextSync => "context-sync",
            Self::StreamSync => "stream-sync",
            Self::EventSync => "event-sync",
            Self::CopyToHost => "copy-to-host",
            Self::GraphLaunch => "graph-launch",
            Self::NvtxRange => "nvtx-range",
        }
    }
}

/// An iteration is over each time its mark has come `every` times.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Hash, Encode, Decode, Serialize, Deserialize)]
pub struct Clock {
    /// The event.
    pub mark: Mark,
    /// How many of it make an iteration; at least 1.
    pub every: u32,
}

/// What is to mark iterations, by the user's word.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Wanted {
    /// Whatever comes most regularly.
    #[default]
    Auto,
    /// Nothing: the job is forecast by time.
    Off,
    /// This.
    Fixed(Clock),
}

impl fmt::Display for Clock {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.every {
            1 => f.write_str(self.mark.name()),
            every => write!(f, "{}:{every}", self.mark.name()),
        }
    }
}

impl fmt::Display for Wanted {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Auto => f.write_str("auto"),
            Self::Off => f.write_str("off"),
            Self::Fixed(clock) => clock.fmt(f),
        }
    }
}

/// No event of this name.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
#[error(
    "`{0}` marks no iteration: auto, off, context-sync, stream-sync, event-sync, copy-to-host, graph-launch or \
     nvtx-range, with :N for N of them an iteration"
)]
pub struct UnknownMark(String);

impl FromStr for Wanted {
    type Err = UnknownMark;

    fn from_str(text: &str) -> Result<Self, UnknownMark> {
        let unknown = || UnknownMark(text.to_owned());
        match text {
            "auto" => return Ok(Self::Auto),
            "off" => return Ok(Self::Off),
            _ => {}
        }
        let (name, every) = match text.split_once(':') {
            Some((name, every)) => (name, every.parse().ok().filter(|every| *every > 0)),
            None => (text, Some(1)),
        };
        let mark = Mark::ALL.into_iter().find(|mark| mark.name() == name);
        Ok(Self::Fixed(Clock {
            mark: mark.ok_or_else(unknown)?,
            every: every.ok_or_else(unknown)?,
        }))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_printed_is_read_back() {
        let clocks = Mark::ALL.map(|mark| Wanted::Fixed(Clock { mark, every: 3 }));
        for wanted in clocks.into_iter().chain([Wanted::Auto, Wanted::Off]) {
            assert_eq!(wanted.to_string().parse(), Ok(wanted));
        }
        assert_eq!(
            "stream-sync".parse::<Wanted>().unwrap().to_string(),
            "stream-sync"
        );
    }

    #[test]
    fn an_unknown_event_is_named() {
        for text in ["", "sync", "stream-sync:0", "stream-sync:x", "auto:2"] {
            let error = text.parse::<Wanted>().unwrap_err();
            assert!(error.to_string().contains(&format!("`{text}`")), "{error}");
        }
    }

    #[test]
    fn a_mark_keeps_its_place() {
        for (place, mark) in Mark::ALL.into_iter().enumerate() {
            assert_eq!(mark as usize, place);
        }
    }
}
