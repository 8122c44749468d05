//! What a process under the interposer tells the supervisor, and what it is answered.
//!
//! A process connects at its first CUDA call and says [`Report::Hello`]. The supervisor answers with one
//! [`Welcome`]; where the process belongs to a job, the job's counter page comes with it as a file
//! descriptor. Then the process reports. It hears no more, but for the [`Answer`] to each [`Report::Raise`].

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

use crate::clock::Clock;
use crate::frame::Message;
use crate::page::Class;

/// Who a process is. The supervisor takes pid and user from the socket, not from here: inside a container
/// a process knows only its pid there.
#[derive(Clone, Debug, Eq, PartialEq, Encode, Decode)]
pub struct Hello {
    /// The process's own view of its pid.
    pub pid: u32,
    /// `MIGM_ATTEMPT` as the process finds it, unchecked; `None` when it is watched without a runner.
    pub attempt: Option<String>,
    /// The base name of the executable.
    pub program: String,
    /// The process has a counter page of its own and sends it along; else it asks for the job's.
    pub has_page: bool,
}

/// What happened on one device between two samples.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Sample {
    /// `CLOCK_MONOTONIC` in nanoseconds.
    pub time_ns: u64,
    /// The page's device index.
    pub device: u32,
    /// How many iteration marks the process has passed.
    pub iteration: u64,
    /// Bytes the job has reserved on the device.
    pub reserved: u64,
    /// The largest `reserved` since the sample before, at least `reserved`.
    pub peak: u64,
    /// Bytes held by the program's tensors by a framework's own report; `None` where none reports.
    pub allocated: Option<u64>,
    /// Bytes this process has asked for since its start.
    pub requested: u64,
    /// Device allocations of this process that succeeded since its start.
    pub allocations: u64,
    /// Frees of such allocations.
    pub frees: u64,
    /// What counts as an iteration; `None` before the first mark.
    pub clock: Option<Clock>,
    /// Not taken at the mark that ends `iteration` but later, in the midst of the next.
    pub midway: bool,
}

/// Something that does not wait for the next sample.
#[derive(Clone, Debug, Eq, PartialEq, Encode, Decode)]
pub enum Event {
    /// The process has taken a slot of the page and sees these devices: page index and UUID bytes.
    Attached {
        /// Slot in the page.
        slot: u32,
        /// Page index and UUID of each device the process can use.
        devices: Vec<(u32, [u8; 16])>,
    },
    /// The driver answered an allocation with out of memory. Programs ask, fail, free and go on: alone
    /// this ends nothing.
    OutOfMemory {
        /// `CLOCK_MONOTONIC` in nanoseconds.
        time_ns: u64,
        /// The page's device index.
        device: u32,
        /// Bytes asked for.
        asked: u64,
        /// Bytes the job had reserved.
        in_use: u64,
        /// The kind of memory that most of them were, and how much.
        largest: Option<(Class, u64)>,
    },
    /// Marks were dropped because the sender could not keep up; totals stay exact.
    Lost {
        /// How many marks.
        marks: u64,
    },
    /// The process meets libraries that bypass the interposer, or lacks a symbol; said once per cause.
    Blind {
        /// What cannot be seen and why.
        cause: String,
    },
    /// The process is about to end in good order.
    Leaving,
}

/// A frame from a process under the interposer.
#[derive(Clone, Debug, Eq, PartialEq, Encode, Decode)]
pub enum Report {
    /// The first frame of a connection.
    Hello(Hello),
    /// Samples in order of time.
    Samples(Vec<Sample>),
    /// An event.
    Event(Event),
    /// The job is about to pass its cap: may it have more? Sent only where a cap is set, and answered by an
    /// [`Answer`] with the same ticket.
    Raise {
        /// Counts the process's requests, from 1.
        ticket: u32,
        /// The page's device index.
        device: u32,
        /// Bytes asked for.
        asked: u64,
        /// Bytes charged to the job so far, contexts included.
        charged: u64,
    },
}

impl Message for Report {
    const CHANNEL: u16 = 1;
    const LIMIT: usize = 64 << 10;
}

/// The answer to [`Hello`].
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode)]
pub enum Welcome {
    /// The job's counter page comes with this frame.
    Page,
    /// No page: keep your own.
    OwnPage,
}

impl Message for Welcome {
    const CHANNEL: u16 = 2;
    const LIMIT: usize = 64;
}

/// The answer to [`Report::Raise`]. What holds is the cap in the counter page, which the supervisor raises
/// before it answers; the answer ends the waiting.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode)]
pub struct Answer {
    /// The request's.
    pub ticket: u32,
    /// The page's device index.
    pub device: u32,
    /// The cap from now on, in bytes; as before where there is no more to have.
    pub cap: u64,
}

impl Message for Answer {
    const CHANNEL: u16 = 5;
    const LIMIT: usize = 64;
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::clock::Mark;
    use crate::frame::{Decoder, HEADER, encode};

    fn hex(bytes: &[u8]) -> String {
        bytes.iter().map(|byte| format!("{byte:02x}")).collect()
    }

    /// The bodies on the wire, pinned: a change here needs a new protocol version.
    #[test]
    fn golden_bytes_of_each_report() {
        let sample = Sample {
            time_ns: 1,
            device: 2,
            iteration: 3,
            reserved: 4,
            peak: 5,
            allocated: Some(6),
            requested: 7,
            allocations: 8,
            frees: 9,
            clock: Some(Clock {
                mark: Mark::CopyToHost,
                every: 10,
            }),
            midway: true,
        };
        let hello = Hello {
            pid: 9,
            attempt: Some("1.2.3".into()),
            program: "sh".into(),
            has_page: false,
        };
        for (report, golden) in [
            (
                Report::Hello(hello),
                "0000000009000000010500000000000000312e322e33020000000000000073680\
                 0",
            ),
            (
                Report::Samples(vec![sample]),
                "01000000010000000000000001000000000000000200000003000000000000000400000000000000\
                 0500000000000000010600000000000000070000000000000008000000000000000900000000000000\
                 01030000000a00000001",
            ),
            (
                Report::Event(Event::OutOfMemory {
                    time_ns: 1,
                    device: 0,
                    asked: 2,
                    in_use: 3,
                    largest: Some((Class::Pool, 2)),
                }),
                "02000000010000000100000000000000000000000200000000000000030000000000000\
                 001030000000200000000000000",
            ),
            (
                Report::Event(Event::Lost { marks: 1 }),
                "02000000020000000100000000000000",
            ),
            (
                Report::Event(Event::Blind { cause: "x".into() }),
                "0200000003000000010000000000000078",
            ),
            (Report::Event(Event::Leaving), "0200000004000000"),
            (
                Report::Raise {
                    ticket: 1,
                    device: 2,
                    asked: 3,
                    charged: 4,
                },
                "03000000010000000200000003000000000000000400000000000000",
            ),
            (
                Report::Event(Event::Attached {
                    slot: 1,
                    devices: vec![(0, [0xab; 16])],
                }),
                "020000000000000001000000010000000000000000000000abababababababababababababababab",
            ),
        ] {
            let frame = encode(&report).unwrap();
            assert_eq!(hex(&frame[HEADER..]), golden, "{report:?}");
            let mut decoder = Decoder::default();
            decoder.push(&frame);
            assert_eq!(decoder.take::<Report>().unwrap(), Some(report));
        }
        assert_eq!(hex(&encode(&Welcome::Page).unwrap()[HEADER..]), "00000000");
        assert_eq!(hex(&encode(&Welcome::OwnPage).unwrap()[HEADER..]), "01000000");
        let answer = Answer {
            ticket: 1,
            device: 2,
            cap: 3,
        };
        assert_eq!(
            hex(&encode(&answer).unwrap()[HEADER..]),
            "01000000020000000300000000000000"
        );
    }
}
