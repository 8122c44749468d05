//! What runs when: streams as lanes of steps, played in simulated time. Pure: the caller says what time it is.
//!
//! 1. A call on a stream appends a step to its lane ([`Timeline::submit`]) and gets a ticket.
//! 2. The head of a lane starts when every ticket it waits for is done: those of events it waits on, and those that
//!    the legacy default stream imposes (it waits for all blocking streams of its context, and they for it).
//! 3. A running step progresses at the rate that the hardware grants at that moment: a kernel by its share of the
//!    slice's multiprocessors, a copy by its share of the bus. Rates are asked anew at every event.
//! 4. [`Timeline::play`] moves the clock to the given time through every end and start in between, in their order.
//!    A step that follows another starts at the other's exact end, however late the caller comes to play it, so the
//!    lateness of a sleeping thread does not add up.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// The part of the simulated hardware that a step uses while it runs.
pub(crate) trait Hardware {
    /// Proof that a load was announced.
    type Mark: std::fmt::Debug;
    /// What a step can ask of the caller of [`Timeline::play`] that takes no time.
    type Effect: std::fmt::Debug;
    /// What a step can ask of it that takes its time.
    type Call: std::fmt::Debug;
    /// A load starts.
    fn begin(&self, load: Load) -> Self::Mark;
    /// It ends.
    fn end(&self, mark: Self::Mark);
    /// Units of work per simulated second that it gets at this moment; for a kernel alone on its slice 1.
    fn rate(&self, load: Load) -> f64;
}

/// What a step asks of the hardware.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Load {
    /// This many multiprocessors.
    Kernel { sms: u32 },
    /// The bus between host and device.
    Copy,
}

/// What a step does.
#[derive(Debug)]
pub(crate) enum Work<H: Hardware> {
    /// Uses the hardware: seconds of a kernel at rate 1, or bytes of a copy.
    Run { load: Load, amount: f64 },
    /// Takes this many simulated seconds whatever else goes on.
    Pause(f64),
    /// Stamps an event with the time.
    Stamp(EventId),
    /// Nothing; it is there for what it waits for.
    Wait,
    /// Hands something to the caller of `play` at once, and takes no time.
    Effect(H::Effect),
    /// Hands something to the caller of `play` and lasts until [`Timeline::finish`].
    Call(H::Call),
}

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct LaneId(u64);

#[derive(Clone, Copy, Debug, Eq, Hash, Ord, PartialEq, PartialOrd)]
pub(crate) struct EventId(u64);

/// One step of a lane; done when the lane has done that many.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) struct Ticket {
    pub(crate) lane: LaneId,
    number: u64,
}

/// How a lane relates to the legacy default stream of its context.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub(crate) enum Order {
    /// It is that stream.
    Legacy,
    /// It waits for that stream and is waited for.
    Blocking,
    /// It does neither.
    Free,
}

#[derive(Debug)]
enum Head<M> {
    Running { load: Load, left: f64, mark: M },
    Pausing { left: f64 },
    Calling,
}

#[derive(Debug)]
struct Step<H: Hardware> {
    work: Work<H>,
    after: Vec<Ticket>,
}

#[derive(Debug)]
struct Lane<H: Hardware> {
    hardware: Arc<H>,
    context: u64,
    order: Order,
    queue: VecDeque<Step<H>>,
    head: Option<Head<H::Mark>>,
    submitted: u64,
    done: u64,
    closed: bool,
}

#[derive(Debug, Default)]
struct Event {
    recorded: Option<Ticket>,
    time: Option<f64>,
}

/// All lanes of a process, and its events.
#[derive(Debug)]
pub(crate) struct Timeline<H: Hardware> {
    lanes: BTreeMap<LaneId, Lane<H>>,
    events: BTreeMap<EventId, Event>,
    next_id: u64,
    clock: f64,
    /// Calls that were submitted and are not done.
    calls: usize,
    /// Steps done since the timeline began; a change means that somebody's wait may be over.
    pub(crate) steps_done: u64,
}

/// What became due while playing.
#[derive(Debug)]
pub(crate) enum Due<H: Hardware> {
    /// An effect.
    Effect(H::Effect),
    /// A call, to be ended by `finish` with this ticket.
    Call(H::Call, Ticket),
}

impl<H: Hardware> Timeline<H> {
    pub(crate) fn new() -> Self {
        Self {
            lanes: BTreeMap::new(),
            events: BTreeMap::new(),
            next_id: 1,
            calls: 0,
            clock: 0.0,
            steps_done: 0,
        }
    }

    pub(crate) fn open_lane(&mut self, hardware: Arc<H>, context: u64, order: Order) -> LaneId {
        let id = LaneId(self.next());
        let lane = Lane {
            hardware,
            context,
            order,
            queue: VecDeque::new(),
            head: None,
            submitted: 0,
            done: 0,
            closed: false,
        };
        self.lanes.insert(id, lane);
        id
    }

    /// No more steps will come; the lane goes once those it has are done.
    pub(crate) fn close_lane(&mut self, id: LaneId) {
        if let Some(lane) = self.lanes.get_mut(&id) {
            lane.closed = true;
            if lane.done == lane.submitted {
                self.lanes.remove(&id);
            }
        }
    }

    /// The same for all lanes of a context.
    pub(crate) fn close_context(&mut self, context: u64) {
        let lanes = self.lanes.iter().filter(|(_, lane)| lane.context == context);
        for id in lanes.map(|(&id, _)| id).collect::<Vec<_>>() {
            self.close_lane(id);
        }
    }

    pub(crate) fn open_event(&mut self) -> EventId {
        let id = EventId(self.next());
        self.events.insert(id, Event::default());
        id
    }

    pub(crate) fn close_event(&mut self, id: EventId) {
        self.events.remove(&id);
    }

    /// Appends a step. Play up to the present first, so that it does not start in the past.
    pub(crate) fn submit(&mut self, id: LaneId, work: Work<H>, mut after: Vec<Ticket>) -> Option<Ticket> {
        let (context, order) = self.lanes.get(&id).map(|lane| (lane.context, lane.order))?;
        let imposed = match order {
            Order::Legacy => Some(Order::Blocking),
            Order::Blocking => Some(Order::Legacy),
            Order::Free => None,
        };
        for (&lane, other) in &self.lanes {
            if other.context == context && Some(other.order) == imposed && other.done < other.submitted {
                after.push(Ticket {
                    lane,
                    number: other.submitted,
                });
            }
        }
        let lane = self.lanes.get_mut(&id)?;
        lane.submitted += 1;
        let ticket = Ticket {
            lane: id,
            number: lane.submitted,
        };
        if let Work::Stamp(event) = work
            && let Some(event) = self.events.get_mut(&event)
        {
            *event = Event {
                recorded: Some(ticket),
                time: None,
            };
        }
        self.calls += usize::from(matches!(work, Work::Call(_)));
        let lane = self.lanes.get_mut(&id)?;
        lane.queue.push_back(Step { work, after });
        Some(ticket)
    }

    pub(crate) fn is_done(&self, ticket: Ticket) -> bool {
        self.lanes
            .get(&ticket.lane)
            .is_none_or(|lane| lane.done >= ticket.number)
    }

    /// The last step of a lane.
    pub(crate) fn last(&self, id: LaneId) -> Option<Ticket> {
        self.lanes.get(&id).map(|lane| Ticket {
            lane: id,
            number: lane.submitted,
        })
    }

    /// The last steps of all lanes of a context.
    pub(crate) fn last_of_context(&self, context: u64) -> Vec<Ticket> {
        let lanes = self.lanes.iter().filter(|(_, lane)| lane.context == context);
        lanes
            .map(|(&id, lane)| Ticket {
                lane: id,
                number: lane.submitted,
            })
            .collect()
    }

    /// Steps of a lane that are not done.
    pub(crate) fn pending(&self, id: LaneId) -> u64 {
        self.lanes.get(&id).map_or(0, |lane| lane.submitted - lane.done)
    }

    /// The step that stamps the event, if it was ever recorded.
    pub(crate) fn recorded(&self, event: EventId) -> Option<Ticket> {
        self.events.get(&event)?.recorded
    }

    /// The simulated time that the event was stamped with.
    pub(crate) fn stamp(&self, event: EventId) -> Option<f64> {
        self.events.get(&event)?.time
    }

    /// When the next running step ends if nothing else changes; `None` if none runs.
    pub(crate) fn next_end(&self) -> Option<f64> {
        let ends = self.lanes.values().filter_map(|lane| self.end_of(lane));
        ends.min_by(f64::total_cmp)
    }

    /// Whether the rate of something that runs can change from outside this process at any moment, as that of a
    /// copy, or has changed.
    pub(crate) fn is_shared(&self) -> bool {
        self.lanes.values().any(|lane| match lane.head {
            Some(Head::Running { load: Load::Copy, .. }) => true,
            Some(Head::Running { load, .. }) => lane.hardware.rate(load) < 1.0,
            _ => false,
        })
    }

    /// Whether the program's own functions are to be called: their time is not known beforehand, so each should be
    /// called as soon as it is due.
    pub(crate) fn has_calls(&self) -> bool {
        self.calls > 0
    }

    /// Moves the clock to `now`; what becomes due on the way is added to `due`, in order.
    pub(crate) fn play(&mut self, now: f64, due: &mut Vec<Due<H>>) {
        loop {
            while self.start_heads(due) {}
            let next = self.next_end().filter(|&end| end <= now);
            let until = next.unwrap_or(now.max(self.clock));
            let before = self.steps_done;
            self.progress(until);
            // A step whose end is later by rounding only has ended too, and the one behind it is to start.
            if next.is_none() && self.steps_done == before {
                return;
            }
        }
    }

    /// A call that `play` handed out has returned.
    pub(crate) fn finish(&mut self, ticket: Ticket) {
        let calling = |lane: &Lane<H>| matches!(lane.head, Some(Head::Calling));
        if self
            .lanes
            .get(&ticket.lane)
            .is_some_and(|lane| calling(lane) && lane.done + 1 == ticket.number)
        {
            self.calls -= 1;
            self.complete(ticket.lane);
        }
    }

    /// Starts the head of each lane that can; answers whether anything ended at once, so that others may start.
    fn start_heads(&mut self, due: &mut Vec<Due<H>>) -> bool {
        let mut ended = false;
        let idle = self
            .lanes
            .iter()
            .filter(|(_, lane)| lane.head.is_none() && !lane.queue.is_empty());
        for id in idle.map(|(&id, _)| id).collect::<Vec<_>>() {
            let waits = |step: &Step<H>| !step.after.iter().all(|&ticket| self.is_done(ticket));
            if self
                .lanes
                .get(&id)
                .and_then(|lane| lane.queue.front())
                .is_none_or(waits)
            {
                continue;
            }
            let Some(lane) = self.lanes.get_mut(&id) else {
                continue;
            };
            let Some(step) = lane.queue.pop_front() else {
                continue;
            };
            let number = lane.done + 1;
            lane.head = match step.work {
                Work::Run { load, amount } if amount > 0.0 => Some(Head::Running {
                    load,
                    left: amount,
                    mark: lane.hardware.begin(load),
                }),
                Work::Pause(seconds) if seconds > 0.0 => Some(Head::Pausing { left: seconds }),
                Work::Call(call) => {
                    due.push(Due::Call(call, Ticket { lane: id, number }));
                    Some(Head::Calling)
                }
                Work::Effect(effect) => {
                    due.push(Due::Effect(effect));
                    None
                }
                Work::Stamp(event) => {
                    let this = Ticket { lane: id, number };
                    if let Some(event) = self.events.get_mut(&event)
                        && event.recorded == Some(this)
                    {
                        event.time = Some(self.clock);
                    }
                    None
                }
                Work::Run { .. } | Work::Pause(_) | Work::Wait => None,
            };
            if lane.head.is_none() {
                self.complete(id);
                ended = true;
            }
        }
        ended
    }

    /// Lets every running step go on until `until`, and ends those that are through.
    fn progress(&mut self, until: f64) {
        let seconds = until - self.clock;
        // What is left below this is rounding: the clock itself is no finer.
        let grain = (until.abs() * 4.0 * f64::EPSILON).max(1e-10);
        let mut ended = Vec::new();
        // Rates first: an end changes those of the others.
        for (&id, lane) in &mut self.lanes {
            let left = match &mut lane.head {
                Some(Head::Running { load, left, .. }) => {
                    *left -= seconds * lane.hardware.rate(*load);
                    *left <= grain * lane.hardware.rate(*load)
                }
                Some(Head::Pausing { left }) => {
                    *left -= seconds;
                    *left <= grain
                }
                _ => false,
            };
            if left {
                ended.push(id);
            }
        }
        self.clock = until;
        for id in ended {
            self.complete(id);
        }
    }

    fn end_of(&self, lane: &Lane<H>) -> Option<f64> {
        match lane.head.as_ref()? {
            Head::Running { load, left, .. } => {
                let rate = lane.hardware.rate(*load);
                (rate > 0.0).then(|| self.clock + left.max(0.0) / rate)
            }
            Head::Pausing { left } => Some(self.clock + left.max(0.0)),
            Head::Calling => None,
        }
    }

    fn complete(&mut self, id: LaneId) {
        let Some(lane) = self.lanes.get_mut(&id) else {
            return;
        };
        if let Some(Head::Running { mark, .. }) = lane.head.take() {
            lane.hardware.end(mark);
        }
        lane.done += 1;
        self.steps_done += 1;
        if lane.closed && lane.done == lane.submitted {
            self.lanes.remove(&id);
        }
    }

    fn next(&mut self) -> u64 {
        self.next_id += 1;
        self.next_id
    }
}

#[cfg(test)]
mod tests;
