//! What the parts of migm say to each other.
//!
//! One figure's way through this crate:
//!
//! 1. The interposer adds an allocation to the [`page::CounterPage`], the one place where live bytes and
//!    their peak are kept exactly; whoever maps the page reads them, also after the process is gone.
//! 2. Its sender thread turns marks and totals into [`report::Sample`]s and puts them into a
//!    [`frame`]: magic, version, channel, length, one message.
//! 3. The supervisor decodes the frame, or refuses it with the reason; no bytes make it panic.
//!
//! The crate does no I/O and holds no unsafe code.
//!
//! # Changing a message
//! Safe: a new variant at the end of an enum, sent only to a peer that speaks at least the version that
//! brought it. Breaking, and so a new [`frame::VERSION`]: a field added, removed, reordered or retyped; a
//! variant removed or moved. A reader that meets another version refuses it and says both numbers.
#![forbid(unsafe_code)]

pub mod clock;
pub mod frame;
pub mod ids;
pub mod page;
pub mod report;
pub mod units;
