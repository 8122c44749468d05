//! The thread that plays the timeline, and how other threads wait for it.
//!
//! It sleeps until the next end, and otherwise looks in every [`LOOK`] while something runs whose rate other
//! processes can change. Ends that nobody waits for are played together: short kernels in a long row cost one
//! wake-up a millisecond, not one each. Host functions run on a second thread, so that one that takes its time holds
//! its own stream only.

use std::ffi::{c_int, c_void};
use std::sync::atomic::{AtomicUsize, Ordering};
use std::sync::mpsc::{Sender, channel};
use std::sync::{Condvar, Mutex, MutexGuard, Once, PoisonError};
use std::time::Duration;

use simgpu::machine::Machine;

use crate::code::{Answer, Code};
use crate::gate::say;
use crate::process::Process;
use crate::slice::{GivenBack, Slice};
use crate::timeline::{Due, LaneId, Ticket, Timeline, Work};

/// Wall time between two looks at rates that other processes can change.
const LOOK: Duration = Duration::from_millis(1);
/// Wall time between two looks while this process is alone.
const LOOK_ALONE: Duration = Duration::from_millis(4);
/// Least wall time between two wake-ups while somebody waits.
const LEAST_AWAITED: Duration = Duration::from_micros(100);
/// Steps that a stream takes before a call on it waits, as the launch queue of real hardware.
const QUEUE: u64 = 1024;

/// A function of the program that a stream calls.
#[derive(Clone, Debug)]
pub(crate) enum HostCall {
    /// `cuLaunchHostFunc`
    Function {
        function: extern "C" fn(*mut c_void),
        data: UserData,
    },
    /// `cuStreamAddCallback`: also told the stream and its status.
    Callback {
        function: extern "C" fn(u64, c_int, *mut c_void),
        stream: u64,
        data: UserData,
    },
}

/// A call on its way to the thread that makes it, and the step to end afterwards.
type Called = (HostCall, Ticket);

/// The program's own argument to its host function; only handed back to it.
#[derive(Clone, Copy, Debug)]
pub(crate) struct UserData(pub(crate) *mut c_void);

// SAFETY: the driver never looks behind the pointer; the program promised that its function may run on any thread.
unsafe impl Send for UserData {}
// SAFETY: as above; a graph keeps it between launches by several threads.
unsafe impl Sync for UserData {}

/// The lanes of this process and who waits for them.
#[derive(Debug)]
pub(crate) struct Player {
    timeline: Mutex<Timeline<Slice>>,
    /// Something was submitted, or somebody began to wait.
    submitted: Condvar,
    /// Something is done.
    progressed: Condvar,
    waiting: AtomicUsize,
    machine: Machine,
}

impl Player {
    pub(crate) fn new(machine: Machine) -> Self {
        Self {
            timeline: Mutex::new(Timeline::new()),
            submitted: Condvar::new(),
            progressed: Condvar::new(),
            waiting: AtomicUsize::new(0),
            machine,
        }
    }

    /// The lanes, for what neither submits nor waits.
    pub(crate) fn timeline(&self) -> MutexGuard<'_, Timeline<Slice>> {
        self.timeline.lock().unwrap_or_else(PoisonError::into_inner)
    }

    /// The lanes, played up to the present.
    pub(crate) fn now(&self) -> MutexGuard<'_, Timeline<Slice>> {
        let mut timeline = self.timeline();
        self.catch_up(&mut timeline);
        timeline
    }

    /// Appends a step to a lane; waits first while the lane is full.
    pub(crate) fn submit(&self, lane: LaneId, work: Work<Slice>, after: Vec<Ticket>) -> Answer<Ticket> {
        let mut timeline = self.now();
        if timeline.pending(lane) >= QUEUE {
            timeline = self.wait_while(timeline, |timeline| timeline.pending(lane) >= QUEUE);
        }
        let ticket = timeline.submit(lane, work, after).ok_or(Code::INVALID_HANDLE)?;
        self.catch_up(&mut timeline);
        // Behind another step it changes nothing that the player is waiting for.
        if timeline.pending(lane) == 1 {
            self.submitted.notify_one();
        }
        Ok(ticket)
    }

    /// Waits until all these steps are done.
    pub(crate) fn wait(&self, tickets: &[Ticket]) {
        let open = |timeline: &Timeline<_>| !tickets.iter().all(|&ticket| timeline.is_done(ticket));
        let timeline = self.now();
        if open(&timeline) {
            drop(self.wait_while(timeline, open));
        }
    }

    fn wait_while<'a>(
        &self,
        mut timeline: MutexGuard<'a, Timeline<Slice>>,
        condition: impl Fn(&Timeline<Slice>) -> bool,
    ) -> MutexGuard<'a, Timeline<Slice>> {
        self.waiting.fetch_add(1, Ordering::Relaxed);
        self.submitted.notify_one();
        while condition(&timeline) {
            timeline = self
                .progressed
                .wait(timeline)
                .unwrap_or_else(PoisonError::into_inner);
        }
        self.waiting.fetch_sub(1, Ordering::Relaxed);
        timeline
    }

    fn catch_up(&self, timeline: &mut Timeline<Slice>) {
        let before = timeline.steps_done;
        loop {
            let mut due = Vec::new();
            timeline.play(self.machine.sim_now(), &mut due);
            if due.is_empty() {
                break;
            }
            for due in due {
                match due {
                    Due::Effect(GivenBack(allocation)) => {
                        if let Some(process) = Process::running() {
                            process.state().give_back(allocation);
                        }
                    }
                    // The thread that makes it is there as long as the process is.
                    Due::Call(call, ticket) => _ = self.calls().send((call, ticket)),
                }
            }
        }
        if timeline.steps_done != before {
            self.progressed.notify_all();
        }
    }

    fn calls(&self) -> Sender<Called> {
        static CALLS: Mutex<Option<Sender<Called>>> = Mutex::new(None);
        let mut calls = CALLS.lock().unwrap_or_else(PoisonError::into_inner);
        let start = || {
            let (sender, receiver) = channel::<Called>();
            spawn("simgpu-calls", move || {
                for (call, ticket) in receiver {
                    match call {
                        HostCall::Function { function, data } => function(data.0),
                        HostCall::Callback {
                            function,
                            stream,
                            data,
                        } => function(stream, 0, data.0),
                    }
                    if let Some(process) = Process::running() {
                        process.player.finish(ticket);
                    }
                }
            });
            sender
        };
        calls.get_or_insert_with(start).clone()
    }

    fn finish(&self, ticket: Ticket) {
        let mut timeline = self.now();
        timeline.finish(ticket);
        self.catch_up(&mut timeline);
        self.progressed.notify_all();
        self.submitted.notify_one();
    }

    /// Starts the thread that plays, the first time.
    pub(crate) fn start_once(&'static self) {
        static STARTED: Once = Once::new();
        STARTED.call_once(|| spawn("simgpu-streams", move || self.run()));
    }

    fn run(&self) -> ! {
        let mut timeline = self.timeline();
        loop {
            self.catch_up(&mut timeline);
            let Some(end) = timeline.next_end() else {
                timeline = self
                    .submitted
                    .wait(timeline)
                    .unwrap_or_else(PoisonError::into_inner);
                continue;
            };
            let look = if timeline.is_shared() { LOOK } else { LOOK_ALONE };
            let wall = (end - self.machine.sim_now()).max(0.0) * self.machine.time_scale();
            let awaited = self.waiting.load(Ordering::Relaxed) > 0 || timeline.has_calls();
            let least = if awaited { LEAST_AWAITED } else { LOOK };
            let sleep = Duration::try_from_secs_f64(wall)
                .unwrap_or(look)
                .clamp(least, look.max(least));
            timeline = self
                .submitted
                .wait_timeout(timeline, sleep)
                .unwrap_or_else(PoisonError::into_inner)
                .0;
        }
    }
}

/// Starts a thread that takes no signals: those are for the program's own threads.
fn spawn(name: &str, run: impl FnOnce() + Send + 'static) {
    let mut all = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    let mut old = std::mem::MaybeUninit::<libc::sigset_t>::uninit();
    // SAFETY: `all` has room for a signal set.
    unsafe { libc::sigfillset(all.as_mut_ptr()) };
    // SAFETY: `all` is filled in, and `old` has room for a signal set.
    unsafe { libc::pthread_sigmask(libc::SIG_BLOCK, all.as_ptr(), old.as_mut_ptr()) };
    let started = std::thread::Builder::new().name(name.to_owned()).spawn(run);
    // SAFETY: `old` was filled in by the call that blocked the signals.
    unsafe { libc::pthread_sigmask(libc::SIG_SETMASK, old.as_ptr(), std::ptr::null_mut()) };
    if let Err(error) = started {
        say(format_args!("no thread for {name}: {error}"));
    }
}
