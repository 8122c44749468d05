//! The line to the supervisor, shared by the sender thread and by threads that cannot wait for its next round: one
//! whose allocation has just been refused, and one that asks for more than the job's cap.
//!
//! The lock is held for one system call that does not wait. A thread of the program tries for it a bounded
//! time; what it cannot say then is left to the sender.

use std::sync::atomic::{AtomicU32, Ordering::Relaxed};
use std::sync::{Mutex, MutexGuard, PoisonError, TryLockError};
use std::time::{Duration, Instant};

use migm_shared::frame::{Decoder, FrameError, Message, encode};
use migm_shared::report::{Answer, Report, Welcome};

use crate::link::{Heard, Sent, Socket};

/// How long a thread of the program tries for the line.
const PATIENCE: Duration = Duration::from_millis(50);

/// See the [module](self).
#[derive(Debug)]
pub struct Wire {
    line: Mutex<Option<Line>>,
    /// The first frame of each connection after hello: it makes sense of the others.
    introduction: Report,
    /// The last ticket taken and the last one answered.
    tickets: AtomicU32,
    answered: AtomicU32,
}

#[derive(Debug)]
struct Line {
    socket: Socket,
    /// What is left of a frame that the socket has taken in part.
    rest: Vec<u8>,
    answers: Decoder,
}

impl Wire {
    /// Not connected.
    #[must_use]
    pub fn new(introduction: Report) -> Self {
        Self {
            line: Mutex::new(None),
            introduction,
            tickets: AtomicU32::new(0),
            answered: AtomicU32::new(0),
        }
    }

    fn lock(&self) -> MutexGuard<'_, Option<Line>> {
        self.line.lock().unwrap_or_else(PoisonError::into_inner)
    }

    fn lock_soon(&self) -> Option<MutexGuard<'_, Option<Line>>> {
        let start = Instant::now();
        loop {
            match self.line.try_lock() {
                Ok(line) => return Some(line),
                Err(TryLockError::Poisoned(poisoned)) => return Some(poisoned.into_inner()),
                Err(TryLockError::WouldBlock) if start.elapsed() < PATIENCE => {
                    std::thread::sleep(Duration::from_micros(100));
                }
                Err(TryLockError::WouldBlock) => return None,
            }
        }
    }

    /// The supervisor has been reached.
    pub fn connect(&self, socket: Socket) {
        *self.lock() = Some(Line {
            socket,
            rest: encode(&self.introduction).unwrap_or_default(),
            answers: Decoder::default(),
        });
    }

    /// Hears what the supervisor says, and sends on what is left of a frame. Whether it is still there.
    pub fn keep(&self) -> bool {
        let mut line = self.lock();
        self.hear(&mut line);
        flush(&mut line);
        line.is_some()
    }

    /// For the sender: hands a report to the socket; false if it is not taken. A frame that is taken in part is on
    /// its way: its rest goes first.
    pub fn send(&self, report: &Report) -> bool {
        send(&mut self.lock(), report)
    }

    /// For a thread of the program: the same, at once or not at all.
    pub fn send_soon(&self, report: &Report) -> bool {
        self.lock_soon().is_some_and(|mut line| send(&mut line, report))
    }

    /// Asks the supervisor for something that gets an [`Answer`], and gives back its ticket; `None` if it cannot be
    /// asked.
    pub fn ask(&self, question: impl FnOnce(u32) -> Report) -> Option<u32> {
        let mut line = self.lock_soon()?;
        // Taken and sent under the lock, so that answers come in the order of the tickets.
        let ticket = self.tickets.fetch_add(1, Relaxed) + 1;
        send(&mut line, &question(ticket)).then_some(ticket)
    }

    /// Waits for the answer to `ticket`; whether it has come.
    pub fn wait(&self, ticket: u32, deadline: Instant) -> bool {
        /// The sender may take the answer from under a poll.
        const SLICE: Duration = Duration::from_millis(10);
        loop {
            let number = match self.lock_soon() {
                Some(mut line) => {
                    self.hear(&mut line);
                    line.as_ref().and_then(|line| line.socket.number())
                }
                None => None,
            };
            if self.answered.load(Relaxed) >= ticket {
                return true;
            }
            let Some(left) = deadline.checked_duration_since(Instant::now()) else {
                return false;
            };
            let Some(number) = number else { return false };
            crate::link::poll(number, left.min(SLICE));
        }
    }

    fn hear(&self, line: &mut Option<Line>) {
        while let Some(open) = line {
            match open.socket.hear() {
                Heard::Bytes(bytes, count) => open.answers.push(&bytes[..count]),
                Heard::Nothing => return,
                Heard::Gone => *line = None,
            }
            let Some(open) = line else { return };
            // What is no frame of ours cannot be followed any more.
            if self.take_in(&mut open.answers).is_err() {
                *line = None;
            }
        }
    }

    /// Takes whole messages. A welcome to the hello of a reconnection is of no use here.
    fn take_in(&self, heard: &mut Decoder) -> Result<(), FrameError> {
        while let Some(channel) = heard.channel()? {
            if channel == Welcome::CHANNEL {
                if heard.take::<Welcome>()?.is_none() {
                    break;
                }
                continue;
            }
            let Some(answer) = heard.take::<Answer>()? else {
                break;
            };
            self.answered.fetch_max(answer.ticket, Relaxed);
        }
        Ok(())
    }
}

fn send(line: &mut Option<Line>, report: &Report) -> bool {
    flush(line);
    let Some(open) = line else { return false };
    if !open.rest.is_empty() {
        return false;
    }
    let Ok(frame) = encode(report) else { return false };
    match open.socket.send(&frame, None) {
        Sent::Bytes(0) => false,
        Sent::Bytes(sent) => {
            open.rest.extend_from_slice(&frame[sent..]);
            true
        }
        Sent::Gone => {
            *line = None;
            false
        }
    }
}

fn flush(line: &mut Option<Line>) {
    let Some(open) = line else { return };
    if open.rest.is_empty() {
        return;
    }
    match open.socket.send(&open.rest, None) {
        Sent::Bytes(sent) => drop(open.rest.drain(..sent)),
        Sent::Gone => *line = None,
    }
}
