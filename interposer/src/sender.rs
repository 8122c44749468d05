//! The sender thread: turns notes and totals into frames. Once the process is attached all that is told to the
//! supervisor goes through it, but for what cannot wait for its next round ([`crate::wire`]). It never holds the
//! program up: it shares one lock-free queue with the hooks, blocks all signals, calls no CUDA function, and drops
//! what a full socket does not take.

use std::panic::{AssertUnwindSafe, catch_unwind};
use std::time::{Duration, Instant};

use migm_shared::clock::Clock as Iterations;
use migm_shared::report::{Event, Report, Sample};

use crate::attach::Attachment;
use crate::bypass::Bypasses;
use crate::caller::Caller;
use crate::clock::Learner;
use crate::descriptor::Descriptor;
use crate::log;
use crate::notes::{Mark, Note, now_ns};
use crate::pagefile::PageFile;

/// Between two rounds while something changes.
const BUSY: Duration = Duration::from_millis(10);
/// Between two rounds while nothing does.
const IDLE: Duration = Duration::from_millis(100);
/// Samples of one device in one round. More marks than this are merged, neighbours with neighbours.
const SAMPLES: usize = 32;
/// The shortest and the longest pause before another attempt to connect.
const RETRY: (Duration, Duration) = (Duration::from_millis(100), Duration::from_secs(5));
/// Events kept for a supervisor that is away.
const EVENTS: usize = 64;
/// Bytes of stack: it encodes frames and calls the kernel.
const STACK: usize = 256 << 10;

/// Starts the thread. Where that fails, the page alone has the figures.
pub fn start(attachment: &'static Attachment, caller: Caller, file: Option<Descriptor>) {
    let mut sender = Sender {
        attachment,
        caller,
        page: PageFile {
            page: attachment.page,
            file,
            fresh: false,
        },
        away: (Instant::now() + RETRY.0, RETRY.0),
        learner: Learner::new(&attachment.clock, now_ns()),
        events: Vec::new(),
        lost: 0,
        told: Vec::new(),
        bypasses: Bypasses::new(),
        latest_ns: 0,
    };
    let work = move || {
        if catch_unwind(AssertUnwindSafe(|| sender.run())).is_err() {
            log::line(format_args!("the sender has failed; the page goes on"));
        }
    };
    let thread = std::thread::Builder::new()
        .name("migm-sender".into())
        .stack_size(STACK);
    if let Err(error) = thread.spawn(work) {
        log::line(format_args!("no sender thread: {error}"));
    }
}

struct Sender {
    attachment: &'static Attachment,
    caller: Caller,
    page: PageFile,
    /// While not connected: when to try again, and the pause after that.
    away: (Instant, Duration),
    learner: Learner,
    /// Events not sent yet, oldest first.
    events: Vec<Event>,
    /// Marks lost and not yet told.
    lost: u64,
    /// What was told last of each device.
    told: Vec<Option<Figures>>,
    /// Libraries that are not seen.
    bypasses: Bypasses,
    /// The time of the last sample: samples go out in order of time.
    latest_ns: u64,
}

/// Reserved bytes, allocated bytes, and the process's own counts.
type Figures = (u64, Option<u64>, (u64, u64, u64));

impl Sender {
    fn run(&mut self) {
        loop {
            let heard = self.attachment.notes.rings();
            let pause = if self.round() { BUSY } else { IDLE };
            self.attachment.notes.wait(heard, pause);
        }
    }

    /// One round; whether there was anything to tell.
    fn round(&mut self) -> bool {
        let marks = self.collect();
        self.learner.round(&self.attachment.clock, now_ns());
        let connected = self.keep_connected();
        let samples = self.samples(&marks);
        let something = !samples.is_empty() || (!self.events.is_empty() && connected);
        if !samples.is_empty() && !self.attachment.wire.send(&Report::Samples(samples)) {
            self.lost += marks.len() as u64;
            // The figures are told again when there is room, or somebody to tell.
            self.told.fill(None);
        }
        self.send_events();
        something
    }

    /// Empties the queue: events are kept, marks returned.
    fn collect(&mut self) -> Vec<Mark> {
        let mut marks = Vec::new();
        while let Some(note) = self.attachment.notes.take() {
            match note {
                Note::Mark(mark) => marks.push(mark),
                Note::OutOfMemory(refusal) => self.keep(refusal.event()),
            }
        }
        self.lost += self.attachment.notes.take_lost();
        for cause in self.bypasses.look() {
            self.keep(Event::Blind { cause });
        }
        marks
    }

    fn keep(&mut self, event: Event) {
        if self.events.len() == EVENTS {
            self.events.remove(0);
        }
        self.events.push(event);
    }

    /// The samples of this round: one per mark, merged if there are many; for a device whose figures changed
    /// without a mark, one of this moment.
    fn samples(&mut self, marks: &[Mark]) -> Vec<Sample> {
        let mut samples = Vec::new();
        let clock = self.attachment.clock.now();
        let iteration = self.attachment.clock.iteration();
        self.attachment.page.set_marks(self.attachment.slot, iteration);
        for (device, _) in self.attachment.devices() {
            let mut of_device: Vec<Mark> = marks
                .iter()
                .filter(|mark| mark.device == device)
                .copied()
                .collect();
            let figures = |mark: &Mark| (mark.reserved, mark.allocated, mark.counts);
            if self.told.len() <= device {
                self.told.resize(device + 1, None);
            }
            if of_device.is_empty() && self.told[device] != Some(self.figures(device)) {
                of_device.push(Mark {
                    midway: true,
                    ..self.attachment.state(device, now_ns(), iteration)
                });
            }
            // What has changed since the last mark is told in the next round.
            self.told[device] = of_device.last().map(figures).or(self.told[device]);
            samples.extend(merged(&of_device).map(|mark| sample(mark, clock)));
        }
        samples.sort_by_key(|sample| sample.time_ns);
        // A thread that was held up between a mark and its queue leaves a mark older than what was sent.
        for sample in &mut samples {
            sample.time_ns = sample.time_ns.max(self.latest_ns);
            self.latest_ns = sample.time_ns;
        }
        samples
    }

    /// What is compared to see whether there is anything to tell.
    fn figures(&self, device: usize) -> Figures {
        let page = self.attachment.page;
        let (reserved, _) = page.reserved(device);
        (
            reserved,
            page.allocated(device),
            page.process_counts(self.attachment.slot, device),
        )
    }

    /// Whether there is a supervisor, after another attempt to reach one if it is time.
    fn keep_connected(&mut self) -> bool {
        let (again, pause) = self.away;
        if self.attachment.wire.keep() {
            self.away = (Instant::now() + RETRY.0, RETRY.0);
            return true;
        }
        if Instant::now() < again {
            return false;
        }
        if let Some(socket) = self.caller.call(&self.page, Instant::now()) {
            self.attachment.wire.connect(socket);
            self.told.fill(None);
            return true;
        }
        let pause = (2 * pause).min(RETRY.1);
        self.away = (Instant::now() + pause, pause);
        false
    }

    /// Sends the events, oldest first, as far as the socket takes them.
    fn send_events(&mut self) {
        while let Some(event) = self.events.first() {
            if !self.attachment.wire.send(&Report::Event(event.clone())) {
                return;
            }
            self.events.remove(0);
        }
        let lost = Report::Event(Event::Lost { marks: self.lost });
        if self.lost > 0 && self.attachment.wire.send(&lost) {
            self.lost = 0;
        }
    }
}

/// At most [`SAMPLES`] marks for those given: of neighbours that are merged the last one stays, with the
/// highest peak of them all.
fn merged(marks: &[Mark]) -> impl Iterator<Item = Mark> {
    let together = marks.len().div_ceil(SAMPLES).max(1);
    marks.chunks(together).filter_map(|group| {
        let peak = group.iter().map(|mark| mark.peak).max()?;
        group.last().map(|&last| Mark { peak, ..last })
    })
}

fn sample(mark: Mark, clock: Option<Iterations>) -> Sample {
    let (allocations, frees, requested) = mark.counts;
    Sample {
        time_ns: mark.time_ns,
        device: index(mark.device),
        iteration: mark.iteration,
        reserved: mark.reserved,
        peak: mark.peak,
        allocated: mark.allocated,
        requested,
        allocations,
        frees,
        clock,
        midway: mark.midway,
    }
}

fn index(value: usize) -> u32 {
    u32::try_from(value).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn mark(n: u64, peak: u64) -> Mark {
        Mark {
            time_ns: n,
            device: 0,
            iteration: n,
            reserved: n * 10,
            peak,
            allocated: None,
            midway: false,
            counts: (n, n, n),
        }
    }

    #[test]
    fn few_marks_stay_as_they_are() {
        let marks: Vec<_> = (1..=32).map(|n| mark(n, n)).collect();
        assert_eq!(merged(&marks).collect::<Vec<_>>(), marks);
        assert_eq!(merged(&[]).count(), 0);
    }

    #[test]
    fn merged_marks_keep_the_last_state_and_the_highest_peak() {
        let mut marks: Vec<_> = (1..=100).map(|n| mark(n, n)).collect();
        marks[1].peak = 5_000;
        let merged: Vec<_> = merged(&marks).collect();
        assert_eq!(merged.len(), 25);
        assert_eq!(
            merged[0],
            Mark {
                peak: 5_000,
                ..mark(4, 0)
            }
        );
        assert_eq!(merged[24], mark(100, 100));
    }
}
