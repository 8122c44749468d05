//! Frames: how one message crosses a Unix socket.
//!
//! ```text
//! 0      4         6         8        12
//! +------+---------+---------+--------+----------------------+
//! | MIGM | version | channel | length | body: one message    |
//! +------+---------+---------+--------+----------------------+
//!  magic   u16 LE    u16 LE    u32 LE   `length` bytes, bincode
//! ```
//!
//! The body is bincode 2 in its `legacy` configuration: fixed-width little-endian integers, u64 lengths, u32
//! variant numbers. A body longer than the message's limit is refused from the header, before anything is
//! allocated; bytes left over after the message are refused too.

use bincode::config::{Configuration, Fixint, Limit, LittleEndian};
use bincode::error::{DecodeError, EncodeError};
use bincode::{Decode, Encode};

/// The first four bytes of each frame.
pub const MAGIC: [u8; 4] = *b"MIGM";
/// The version that this build speaks. 2: samples say what marks an iteration, an out-of-memory event says
/// which kind of memory was most, and a capped process may ask for a raise. 3: attempts have their memory, and
/// slices the end of their job. 4: jobs have what their users ask for, whose they are and since when they are where they are;
/// what runs came to has their times, attempts say whether speed ended them, and batches count that.
pub const VERSION: u16 = 4;
/// Bytes before the body.
pub const HEADER: usize = 12;
/// No message has a longer body, and no decoded value claims more memory: the state of a node with some ten thousand jobs.
pub const MAX_BODY: usize = 16 << 20;

const CODEC: Configuration<LittleEndian, Fixint, Limit<MAX_BODY>> =
    bincode::config::legacy().with_limit::<MAX_BODY>();

/// A type that travels in frames.
pub trait Message: Encode + Decode<()> {
    /// Which conversation the message belongs to; a peer that sends another is refused.
    const CHANNEL: u16;
    /// The longest body in bytes, at most [`MAX_BODY`].
    const LIMIT: usize;
}

/// Why bytes are no frame, or a message does not fit one.
#[derive(Debug, thiserror::Error)]
pub enum FrameError {
    /// The first four bytes are not [`MAGIC`].
    #[error("peer does not speak this protocol: frame starts with {0:02x?}")]
    Magic([u8; 4]),
    /// The peer was built for another protocol version.
    #[error("peer speaks version {theirs}, we speak {VERSION}")]
    Version {
        /// The version in the frame.
        theirs: u16,
    },
    /// The frame belongs to another conversation.
    #[error("peer sent a frame of channel {theirs} where channel {ours} is spoken")]
    Channel {
        /// The channel in the frame.
        theirs: u16,
        /// The channel expected here.
        ours: u16,
    },
    /// The announced or encoded body is too long.
    #[error("a body of {length} bytes is over the limit of {limit}")]
    TooLong {
        /// Bytes announced or encoded.
        length: usize,
        /// The message's limit.
        limit: usize,
    },
    /// The body is not the message.
    #[error("body of {length} bytes is no message: {source}")]
    Body {
        /// Bytes in the body.
        length: usize,
        /// What the decoder says.
        source: DecodeError,
    },
    /// The message ended before the body did.
    #[error("{extra} bytes follow the message in a body of {length}")]
    Trailing {
        /// Bytes in the body.
        length: usize,
        /// Bytes not used.
        extra: usize,
    },
    /// The message cannot be encoded.
    #[error("message cannot be encoded: {0}")]
    Encode(#[from] EncodeError),
}

/// The bytes of one frame that carries `message`.
///
/// # Errors
/// [`FrameError::TooLong`] when the body exceeds `M::LIMIT`.
pub fn encode<M: Message>(message: &M) -> Result<Vec<u8>, FrameError> {
    let body = bincode::encode_to_vec(message, CODEC)?;
    let length = u32::try_from(body.len())
        .ok()
        .filter(|_| body.len() <= M::LIMIT.min(MAX_BODY))
        .ok_or(FrameError::TooLong {
            length: body.len(),
            limit: M::LIMIT,
        })?;
    let mut frame = Vec::with_capacity(HEADER + body.len());
    frame.extend_from_slice(&MAGIC);
    frame.extend_from_slice(&VERSION.to_le_bytes());
    frame.extend_from_slice(&M::CHANNEL.to_le_bytes());
    frame.extend_from_slice(&length.to_le_bytes());
    frame.extend_from_slice(&body);
    Ok(frame)
}

/// Collects bytes as they arrive and gives back whole messages.
///
/// After an error the stream has no frame boundary any more: drop the connection.
#[derive(Debug, Default)]
pub struct Decoder {
    bytes: Vec<u8>,
    used: usize,
}

impl Decoder {
    /// Takes bytes read from the peer.
    pub fn push(&mut self, bytes: &[u8]) {
        if self.used > 0 && self.used >= self.bytes.len() / 2 {
            self.bytes.drain(..self.used);
            self.used = 0;
        }
        self.bytes.extend_from_slice(bytes);
    }

    /// Bytes that wait for the rest of their frame.
    #[must_use]
    pub fn pending(&self) -> usize {
        self.bytes.len() - self.used
    }

    /// The channel of the frame that comes next, once its header is here and good.
    ///
    /// # Errors
    /// As [`Decoder::take`], for what a header alone can show.
    pub fn channel(&self) -> Result<Option<u16>, FrameError> {
        Ok(header(&self.bytes[self.used..])?.map(|header| header.channel))
    }

    /// The next whole message, or `None` until more bytes come.
    ///
    /// # Errors
    /// The bytes are no frame of this protocol, version or channel, or their body is no `M`.
    pub fn take<M: Message>(&mut self) -> Result<Option<M>, FrameError> {
        let waiting = &self.bytes[self.used..];
        let Some(header) = header(waiting)? else {
            return Ok(None);
        };
        if header.channel != M::CHANNEL {
            return Err(FrameError::Channel {
                theirs: header.channel,
                ours: M::CHANNEL,
            });
        }
        let limit = M::LIMIT.min(MAX_BODY);
        if header.length > limit {
            return Err(FrameError::TooLong {
                length: header.length,
                limit,
            });
        }
        let Some(body) = waiting.get(HEADER..HEADER + header.length) else {
            return Ok(None);
        };
        let message = decode_body(body)?;
        self.used += HEADER + header.length;
        Ok(Some(message))
    }
}

struct Header {
    channel: u16,
    length: usize,
}

fn header(bytes: &[u8]) -> Result<Option<Header>, FrameError> {
    let Some(bytes) = bytes.first_chunk::<HEADER>() else {
        // A wrong peer is told apart from the first byte on, not after twelve.
        let known = bytes.len().min(MAGIC.len());
        if bytes[..known] != MAGIC[..known] {
            let mut seen = [0; 4];
            seen[..known].copy_from_slice(&bytes[..known]);
            return Err(FrameError::Magic(seen));
        }
        return Ok(None);
    };
    let [m0, m1, m2, m3, v0, v1, c0, c1, l0, l1, l2, l3] = *bytes;
    if [m0, m1, m2, m3] != MAGIC {
        return Err(FrameError::Magic([m0, m1, m2, m3]));
    }
    let theirs = u16::from_le_bytes([v0, v1]);
    if theirs != VERSION {
        return Err(FrameError::Version { theirs });
    }
    let length = u32::from_le_bytes([l0, l1, l2, l3]) as usize;
    Ok(Some(Header {
        channel: u16::from_le_bytes([c0, c1]),
        length,
    }))
}

fn decode_body<M: Message>(body: &[u8]) -> Result<M, FrameError> {
    let length = body.len();
    let (message, used) =
        bincode::decode_from_slice(body, CODEC).map_err(|source| FrameError::Body { length, source })?;
    if used == length {
        Ok(message)
    } else {
        Err(FrameError::Trailing {
            length,
            extra: length - used,
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::report::Report;
    use proptest::prelude::*;

    #[derive(Debug, PartialEq, Encode, Decode)]
    struct Pair {
        number: u32,
        text: String,
    }

    impl Message for Pair {
        const CHANNEL: u16 = 7;
        const LIMIT: usize = 64;
    }

    fn pair() -> Pair {
        Pair {
            number: 5,
            text: "ab".into(),
        }
    }

    #[test]
    fn golden_bytes() {
        let golden =
            b"MIGM\x04\x00\x07\x00\x0e\x00\x00\x00\x05\x00\x00\x00\x02\x00\x00\x00\x00\x00\x00\x00ab";
        assert_eq!(encode(&pair()).unwrap(), golden);
    }

    #[test]
    fn a_frame_may_come_byte_by_byte() {
        let mut decoder = Decoder::default();
        let frame = encode(&pair()).unwrap();
        for (index, byte) in frame.iter().enumerate() {
            assert_eq!(decoder.take::<Pair>().unwrap(), None, "after {index} bytes");
            decoder.push(&[*byte]);
        }
        assert_eq!(decoder.take::<Pair>().unwrap(), Some(pair()));
        assert_eq!(decoder.pending(), 0);
    }

    #[test]
    fn each_fault_has_its_own_words() {
        let refuse = |change: &dyn Fn(&mut Vec<u8>)| {
            let mut frame = encode(&pair()).unwrap();
            change(&mut frame);
            let mut decoder = Decoder::default();
            decoder.push(&frame);
            decoder.take::<Pair>().unwrap_err().to_string()
        };
        assert_eq!(
            refuse(&|f| f[0] = b'X'),
            "peer does not speak this protocol: frame starts with [58, 49, 47, 4d]"
        );
        assert_eq!(
            refuse(&|f| f[4] = 9),
            format!("peer speaks version 9, we speak {VERSION}")
        );
        assert_eq!(
            refuse(&|f| f[6] = 1),
            "peer sent a frame of channel 1 where channel 7 is spoken"
        );
        assert_eq!(
            refuse(&|f| f[9] = 1),
            "a body of 270 bytes is over the limit of 64"
        );
        assert_eq!(
            refuse(&|f| {
                f[8] += 1;
                f.push(0)
            }),
            "1 bytes follow the message in a body of 15"
        );
        assert!(refuse(&|f| f[19] = 0xff).starts_with("body of 14 bytes is no message"));
    }

    #[test]
    fn a_long_message_is_not_sent() {
        let long = Pair {
            number: 1,
            text: "x".repeat(100),
        };
        assert!(matches!(
            encode(&long),
            Err(FrameError::TooLong {
                length: 112,
                limit: 64
            })
        ));
    }

    proptest! {
        #[test]
        fn any_bytes_are_refused_or_decoded(bytes in proptest::collection::vec(any::<u8>(), 0..256)) {
            let mut decoder = Decoder::default();
            decoder.push(&bytes);
            while let Ok(Some(_)) = decoder.take::<Report>() {}
        }

        #[test]
        fn any_body_is_refused_or_decoded(body in proptest::collection::vec(any::<u8>(), 0..512)) {
            let mut frame = encode(&Pair { number: 0, text: String::new() }).unwrap()[..HEADER].to_vec();
            frame[6..8].copy_from_slice(&Report::CHANNEL.to_le_bytes());
            frame[8..12].copy_from_slice(&u32::try_from(body.len()).unwrap().to_le_bytes());
            frame.extend_from_slice(&body);
            let mut decoder = Decoder::default();
            decoder.push(&frame);
            let _ = decoder.take::<Report>();
        }

        #[test]
        fn messages_survive_any_cutting(texts in proptest::collection::vec("[a-z]{0,20}", 0..20), cut in 1_usize..50) {
            let sent: Vec<Pair> = texts.into_iter().map(|text| Pair { number: 3, text }).collect();
            let bytes: Vec<u8> = sent.iter().flat_map(|pair| encode(pair).unwrap()).collect();
            let mut decoder = Decoder::default();
            let mut received = Vec::new();
            for chunk in bytes.chunks(cut) {
                decoder.push(chunk);
                while let Some(pair) = decoder.take::<Pair>().unwrap() {
                    received.push(pair);
                }
            }
            prop_assert_eq!(received, sent);
        }
    }
}
