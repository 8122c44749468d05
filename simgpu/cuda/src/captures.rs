//! Stream capture: calls on a stream that become nodes of a graph instead of work.
//!
//! 1. A capture begins on one stream ([`Captures::begin`]). A call on it becomes a node behind the stream's last ones.
//! 2. An event recorded there stands for those nodes. A stream that waits for it joins the capture.
//! 3. Calls that could wait for the capturing streams, or change what they rely on, are refused while a capture's mode
//!    forbids them ([`refuse_in_capture`]), and spoil it: all further calls on it are refused too.
//! 4. It ends on the stream that it began on, once all that joined has been waited for there.
//!
//! The rules of the modes are those that the driver documents with `cuThreadExchangeStreamCaptureMode`. Which calls are
//! "potentially unsafe" it leaves open but for examples: those that allocate and free at once, that wait for a device
//! and that look at pools are taken for it here.

use std::cell::Cell;
use std::collections::BTreeMap;
use std::thread::ThreadId;

use crate::code::{Answer, Code};
use crate::graphs::{Graph, Graphs, NodeWork};
use crate::handle::Handle;
use crate::process::Process;
use crate::timeline::LaneId;

/// `CU_STREAM_CAPTURE_MODE_GLOBAL`
const GLOBAL: i32 = 0;
/// `CU_STREAM_CAPTURE_MODE_THREAD_LOCAL`
const THREAD_LOCAL: i32 = 1;
/// `CU_STREAM_CAPTURE_MODE_RELAXED`
const RELAXED: i32 = 2;

thread_local! {
    /// How careful the calling thread is about captures.
    static MODE: Cell<i32> = const { Cell::new(GLOBAL) };
}

/// `cuThreadExchangeStreamCaptureMode`
pub(crate) fn exchange_mode(mode: i32) -> Answer<i32> {
    if (GLOBAL..=RELAXED).contains(&mode) {
        Ok(MODE.replace(mode))
    } else {
        Err(Code::INVALID_VALUE)
    }
}

/// Refuses a potentially unsafe call if a capture forbids it.
pub(crate) fn refuse_in_capture(process: &Process) -> Answer {
    process
        .state()
        .captures
        .refuse(std::thread::current().id(), MODE.get())
}

/// A stream that takes part.
#[derive(Debug)]
struct Member {
    /// The nodes that the next one waits for.
    tips: Vec<Handle>,
    /// It waits for the legacy default stream, and is waited for by it.
    is_blocking: bool,
    context: Handle,
}

#[derive(Debug)]
struct Capture {
    graph: Handle,
    mode: i32,
    thread: ThreadId,
    origin: LaneId,
    members: BTreeMap<LaneId, Member>,
    is_spoilt: bool,
}

/// What a stream is to a capture.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Place {
    pub(crate) lane: LaneId,
    pub(crate) context: Handle,
    pub(crate) is_blocking: bool,
    /// It is the legacy default stream.
    pub(crate) is_legacy: bool,
}

/// What `cuStreamGetCaptureInfo` tells.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Info<'a> {
    /// `CUstreamCaptureStatus`
    pub(crate) status: i32,
    pub(crate) id: u64,
    pub(crate) graph: Handle,
    pub(crate) tips: &'a [Handle],
}

/// The captures of this process.
#[derive(Debug, Default)]
pub(crate) struct Captures {
    captures: BTreeMap<u64, Capture>,
    /// What events recorded in a capture stand for.
    events: BTreeMap<Handle, (u64, Vec<Handle>)>,
    last_id: u64,
}

impl Captures {
    pub(crate) fn are_none(&self) -> bool {
        self.captures.is_empty()
    }

    fn of(&self, lane: LaneId) -> Option<u64> {
        let has = |capture: &&Capture| capture.members.contains_key(&lane);
        let mut all = self.captures.iter();
        all.find(|(_, capture)| has(capture)).map(|(&id, _)| id)
    }

    /// Refuses a potentially unsafe call of a thread, and spoils the captures that forbid it.
    fn refuse(&mut self, thread: ThreadId, mode: i32) -> Answer {
        let mut answer = Ok(());
        for capture in self.captures.values_mut() {
            let is_own = capture.thread == thread;
            let forbids = match mode {
                RELAXED => false,
                THREAD_LOCAL => is_own && capture.mode != RELAXED,
                _ if is_own => capture.mode != RELAXED,
                _ => capture.mode == GLOBAL,
            };
            if forbids {
                capture.is_spoilt = true;
                answer = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }

    /// Begins a capture on a stream into a graph.
    pub(crate) fn begin(&mut self, place: Place, graph: Handle, mode: i32) -> Answer {
        if !(GLOBAL..=RELAXED).contains(&mode) {
            return Err(Code::INVALID_VALUE);
        }
        if place.is_legacy {
            return Err(Code::STREAM_CAPTURE_UNSUPPORTED);
        }
        if self.of(place.lane).is_some() {
            return Err(Code::ILLEGAL_STATE);
        }
        self.last_id += 1;
        let member = Member {
            tips: Vec::new(),
            is_blocking: place.is_blocking,
            context: place.context,
        };
        let capture = Capture {
            graph,
            mode,
            thread: std::thread::current().id(),
            origin: place.lane,
            members: BTreeMap::from([(place.lane, member)]),
            is_spoilt: false,
        };
        self.captures.insert(self.last_id, capture);
        Ok(())
    }

    /// The capture that a call on a stream belongs to, if any. Work on the legacy default stream would wait for the
    /// blocking streams of its context: it is refused, and spoils their captures.
    pub(crate) fn enter(&mut self, place: Place) -> Answer<Option<u64>> {
        if place.is_legacy {
            let mut answer = Ok(None);
            for capture in self.captures.values_mut() {
                let waits = |member: &Member| member.is_blocking && member.context == place.context;
                if capture.members.values().any(waits) {
                    capture.is_spoilt = true;
                    answer = Err(Code::STREAM_CAPTURE_IMPLICIT);
                }
            }
            return answer;
        }
        let found = self.of(place.lane);
        match found.and_then(|id| self.captures.get(&id)) {
            Some(capture) if capture.is_spoilt => Err(Code::STREAM_CAPTURE_INVALIDATED),
            _ => Ok(found),
        }
    }

    /// Adds a call on a stream of a capture as a node.
    pub(crate) fn add(
        &mut self,
        id: u64,
        lane: LaneId,
        node: Handle,
        work: NodeWork,
        graphs: &mut Graphs,
    ) -> Answer {
        let capture = self.captures.get_mut(&id).ok_or(Code::ILLEGAL_STATE)?;
        let member = capture.members.get_mut(&lane).ok_or(Code::ILLEGAL_STATE)?;
        graphs.get(capture.graph)?.add(node, work, &member.tips)?;
        member.tips = vec![node];
        Ok(())
    }

    /// An event recorded on a stream: it stands for the capture's nodes, or no longer for any.
    pub(crate) fn record(&mut self, event: Handle, capture: Option<(u64, LaneId)>) {
        let tips = capture.and_then(|(id, lane)| {
            let member = self.captures.get(&id)?.members.get(&lane)?;
            Some((id, member.tips.clone()))
        });
        match tips {
            Some(tips) => self.events.insert(event, tips),
            None => self.events.remove(&event),
        };
    }

    /// Whether an event was last recorded in a capture that goes on. To wait for it or ask for it spoils that.
    pub(crate) fn refuse_event(&mut self, event: Handle) -> Answer {
        let id = self.events.get(&event).map(|(id, _)| *id);
        match id.and_then(|id| self.captures.get_mut(&id)) {
            Some(capture) => {
                capture.is_spoilt = true;
                Err(Code::CAPTURED_EVENT)
            }
            None => Ok(()),
        }
    }

    /// A stream waits for an event. Answers whether that was the capture's business: if so nothing is to be submitted.
    pub(crate) fn wait(&mut self, place: Place, event: Handle) -> Answer<bool> {
        let own = self.enter(place)?;
        let known = self.events.get(&event);
        let from = known.filter(|(id, _)| self.captures.contains_key(id)).cloned();
        match (own, from) {
            (None, None) => Ok(false),
            (Some(own), None) => {
                self.spoil(own);
                Err(Code::STREAM_CAPTURE_ISOLATION)
            }
            (Some(own), Some((id, _))) if own != id => {
                self.spoil(own);
                self.spoil(id);
                Err(Code::STREAM_CAPTURE_MERGE)
            }
            (_, Some((id, tips))) => {
                if place.is_legacy {
                    self.spoil(id);
                    return Err(Code::STREAM_CAPTURE_IMPLICIT);
                }
                let capture = self.captures.get_mut(&id).ok_or(Code::ILLEGAL_STATE)?;
                let member = capture.members.entry(place.lane).or_insert(Member {
                    tips: Vec::new(),
                    is_blocking: place.is_blocking,
                    context: place.context,
                });
                for tip in tips {
                    if !member.tips.contains(&tip) {
                        member.tips.push(tip);
                    }
                }
                Ok(true)
            }
        }
    }

    fn spoil(&mut self, id: u64) {
        if let Some(capture) = self.captures.get_mut(&id) {
            capture.is_spoilt = true;
        }
    }

    /// Refuses to wait for a stream that captures, and spoils the capture.
    pub(crate) fn refuse_lane(&mut self, lane: LaneId) -> Answer {
        self.refuse_where(|member, _| member == lane)
    }

    /// Refuses to wait for a context with a stream that captures, and spoils the capture.
    pub(crate) fn refuse_context(&mut self, context: Handle) -> Answer {
        self.refuse_where(|_, of| of == context)
    }

    fn refuse_where(&mut self, hit: impl Fn(LaneId, Handle) -> bool) -> Answer {
        let mut answer = Ok(());
        for capture in self.captures.values_mut() {
            if capture
                .members
                .iter()
                .any(|(&lane, member)| hit(lane, member.context))
            {
                capture.is_spoilt = true;
                answer = Err(Code::STREAM_CAPTURE_UNSUPPORTED);
            }
        }
        answer
    }

    /// Ends the capture on a stream. Answers the graph, with whether it may be used: a capture that was spoilt, or
    /// whose other streams were not all waited for, ends too, and its graph is to be dropped.
    pub(crate) fn end(&mut self, lane: LaneId, graphs: &mut Graphs) -> Answer<(Handle, Answer)> {
        let id = self.of(lane).ok_or(Code::ILLEGAL_STATE)?;
        let capture = self.captures.get(&id).ok_or(Code::ILLEGAL_STATE)?;
        if capture.origin != lane {
            self.spoil(id);
            return Err(Code::STREAM_CAPTURE_UNMATCHED);
        }
        if capture.mode != RELAXED && capture.thread != std::thread::current().id() {
            return Err(Code::STREAM_CAPTURE_WRONG_THREAD);
        }
        let capture = self.captures.remove(&id).ok_or(Code::ILLEGAL_STATE)?;
        self.events.retain(|_, (of, _)| *of != id);
        let result = if capture.is_spoilt {
            Err(Code::STREAM_CAPTURE_INVALIDATED)
        } else if capture.is_joined(graphs.get(capture.graph)?) {
            Ok(())
        } else {
            Err(Code::STREAM_CAPTURE_UNJOINED)
        };
        Ok((capture.graph, result))
    }

    /// A stream is destroyed. The capture that began on it ends, and its graph is to be dropped; one that it joined is
    /// spoilt, as its part cannot be waited for any more.
    pub(crate) fn forget_lane(&mut self, lane: LaneId) -> Option<Handle> {
        let id = self.of(lane)?;
        let capture = self.captures.get_mut(&id)?;
        if capture.origin != lane {
            capture.is_spoilt = true;
            return None;
        }
        self.events.retain(|_, (of, _)| *of != id);
        self.captures.remove(&id).map(|capture| capture.graph)
    }

    /// The same for all streams of a context; answers the graphs to drop.
    pub(crate) fn forget_context(&mut self, context: Handle) -> Vec<Handle> {
        let lanes: Vec<_> = self
            .captures
            .values()
            .flat_map(|capture| &capture.members)
            .filter(|(_, member)| member.context == context)
            .map(|(&lane, _)| lane)
            .collect();
        lanes
            .into_iter()
            .filter_map(|lane| self.forget_lane(lane))
            .collect()
    }

    /// Whether a stream of the context that the legacy default stream waits for captures.
    pub(crate) fn blocks_legacy(&self, context: Handle) -> bool {
        let waits = |member: &Member| member.is_blocking && member.context == context;
        self.captures
            .values()
            .any(|capture| capture.members.values().any(waits))
    }

    /// What a capture knows of a stream.
    pub(crate) fn info(&self, lane: LaneId) -> Option<Info<'_>> {
        let id = self.of(lane)?;
        let capture = self.captures.get(&id)?;
        let tips = &capture.members.get(&lane)?.tips;
        Some(Info {
            status: if capture.is_spoilt { 2 } else { 1 },
            id,
            graph: capture.graph,
            tips,
        })
    }
}

impl Capture {
    /// Whether the stream that it began on waits for all others' last nodes.
    fn is_joined(&self, graph: &Graph) -> bool {
        let Some(origin) = self.members.get(&self.origin) else {
            return false;
        };
        let is_waited_for = |tip: &Handle| origin.tips.iter().any(|&last| graph.is_ancestor(*tip, last));
        self.members
            .values()
            .flat_map(|member| &member.tips)
            .all(is_waited_for)
    }
}
