//! The owner's thread: sockets, pidfds, signals and the machine's answers, one at a time.

use std::collections::{BTreeSet, HashMap};
use std::io;
use std::os::fd::{AsRawFd, OwnedFd, RawFd};
use std::sync::Arc;
use std::time::{Duration, Instant};

use migm_shared::frame::Message;
use migm_shared::report::Report;
use mio::unix::SourceFd;
use mio::{Events, Interest, Poll, Token, Waker};
use nix::sys::signal::{SigSet, Signal, kill};
use nix::sys::signalfd::{SfdFlags, SignalFd};
use nix::time::{ClockId, clock_gettime};
use nix::unistd::Pid;

use super::config::Config;
use super::connection::{Connection, PeerError};
use super::error::DaemonError;
use super::job::Peer;
use super::machine::Machine;
use super::owner::{Output, Owner};
use super::socket::Socket;
use super::systemd::{self, Watchdog};
use crate::control::Request;

const LISTENER: Token = Token(0);
const SIGNALS: Token = Token(1);
const WAKER: Token = Token(2);
const FIRST: usize = 3;

/// Between two beats while time is pressing.
const BEAT: Duration = Duration::from_millis(100);
/// Between two beats otherwise.
const SLOW_BEAT: Duration = Duration::from_secs(1);
/// Reads of one connection before the others have their turn.
const READS: usize = 16;
/// Pause after the system had no descriptor left for a connection.
const ACCEPT_PAUSE: Duration = Duration::from_millis(200);
/// How long the end may take, but for [`machine::LAST_CALL`](super::machine::LAST_CALL): a destroy that waits for a
/// holder takes some seconds.
const END_LIMIT: Duration = Duration::from_secs(8);

/// Seconds of the clock that all processes of a machine share.
#[must_use]
pub fn monotonic() -> f64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC).map_or(0.0, |time| Duration::from(time).as_secs_f64())
}

/// What the loop is made of before there is an owner: threads must start with its signals blocked.
#[derive(Debug)]
pub struct Base {
    poll: Poll,
    waker: Arc<Waker>,
    signals: SignalFd,
}

impl Base {
    /// Blocks the signals that end a supervisor or have it read its configuration again, and opens the poll.
    ///
    /// # Errors
    /// The system refused.
    pub fn new() -> io::Result<Self> {
        let mut ending = SigSet::empty();
        ending.add(Signal::SIGTERM);
        ending.add(Signal::SIGINT);
        ending.add(Signal::SIGHUP);
        ending.thread_block()?;
        let signals = SignalFd::with_flags(&ending, SfdFlags::SFD_NONBLOCK | SfdFlags::SFD_CLOEXEC)?;
        let poll = Poll::new()?;
        let registry = poll.registry();
        registry.register(&mut SourceFd(&signals.as_raw_fd()), SIGNALS, Interest::READABLE)?;
        let waker = Arc::new(Waker::new(registry, WAKER)?);
        Ok(Self { poll, waker, signals })
    }

    /// Wakes the loop from another thread.
    pub fn wake(&self) -> impl Fn() + Send + 'static {
        let waker = Arc::clone(&self.waker);
        move || {
            if let Err(error) = waker.wake() {
                tracing::error!(%error, "cannot wake the event loop");
            }
        }
    }
}

/// The running supervisor.
#[derive(Debug)]
pub struct EventLoop {
    base: Base,
    socket: Socket,
    owner: Owner,
    machine: Machine,
    private: bool,
    connections: HashMap<Peer, Connection>,
    pidfds: HashMap<usize, (u32, OwnedFd)>,
    watched: BTreeSet<u32>,
    /// Connections that had more to read than their turn allowed.
    unread: BTreeSet<Peer>,
    next: usize,
    accept_again: Option<Instant>,
    write_failed: Option<Instant>,
    last_beat: Option<Instant>,
    watchdog: Watchdog,
}

impl EventLoop {
    /// Puts the parts together.
    ///
    /// # Errors
    /// The socket cannot be polled.
    pub fn new(
        base: Base,
        socket: Socket,
        owner: Owner,
        machine: Machine,
        private: bool,
    ) -> Result<Self, DaemonError> {
        let listener = socket.listener.as_raw_fd();
        base.poll
            .registry()
            .register(&mut SourceFd(&listener), LISTENER, Interest::READABLE)
            .map_err(DaemonError::system("polling the socket"))?;
        Ok(Self {
            base,
            socket,
            owner,
            machine,
            private,
            connections: HashMap::new(),
            pidfds: HashMap::new(),
            watched: BTreeSet::new(),
            unread: BTreeSet::new(),
            next: FIRST,
            accept_again: None,
            write_failed: None,
            last_beat: None,
            watchdog: Watchdog::from_environment(),
        })
    }

    /// Runs until the end, and gives back what is left to clean up.
    ///
    /// # Errors
    /// The poll failed.
    pub fn run(mut self) -> Result<(Owner, Socket), DaemonError> {
        systemd::ready();
        let mut events = Events::with_capacity(256);
        let mut ending: Option<Instant> = None;
        loop {
            let timeout = self.timeout();
            match self.base.poll.poll(&mut events, Some(timeout)) {
                Err(error) if error.kind() == io::ErrorKind::Interrupted => continue,
                result => result.map_err(DaemonError::system("polling"))?,
            }
            for event in &events {
                self.event(
                    event.token(),
                    event.is_readable() || event.is_read_closed() || event.is_error(),
                );
            }
            for peer in std::mem::take(&mut self.unread) {
                self.read(peer);
            }
            if self.accept_again.is_some_and(|at| Instant::now() >= at) {
                self.accept_again = None;
                self.accept();
            }
            let now = monotonic();
            let answers: Vec<_> = self.machine.answers().collect();
            for answer in answers {
                self.owner.answer(answer, now);
            }
            if self.last_beat.is_none_or(|last| last.elapsed() >= BEAT) {
                self.last_beat = Some(Instant::now());
                if self.owner.beat(now) {
                    self.end_if_nobody_came();
                }
            }
            self.owner.follow_policy(now);
            self.owner.attend(now);
            if self.unread.is_empty() {
                self.owner.decide_if_quiet(now);
            }
            self.settle();
            self.watchdog.beat();
            if self.owner.is_stopping() && ending.is_none() {
                systemd::stopping();
                self.socket.withdraw();
                ending = Some(Instant::now());
            }
            if self.owner.is_over() || ending.is_some_and(|since| since.elapsed() >= END_LIMIT) {
                self.settle();
                return Ok((self.owner, self.socket));
            }
        }
    }

    /// Whoever stands in the queue of the socket has come before the end, and is served.
    fn end_if_nobody_came(&mut self) {
        self.accept();
        if !self.owner.has_newcomer() {
            tracing::info!("no client and no job: ending");
            self.owner.stop();
        }
    }

    fn timeout(&self) -> Duration {
        if !self.unread.is_empty() {
            return Duration::ZERO;
        }
        let beat = if self.owner.is_pressed() { BEAT } else { SLOW_BEAT };
        let accept = self
            .accept_again
            .map_or(beat, |at| at.saturating_duration_since(Instant::now()));
        let decision = self.owner.decides_at();
        let decision = decision.map_or(beat, |at| Duration::from_secs_f64((at - monotonic()).max(0.001)));
        beat.min(accept)
            .min(decision)
            .min(self.watchdog.limit().unwrap_or(beat))
    }

    fn event(&mut self, token: Token, readable: bool) {
        match token {
            LISTENER => self.accept(),
            SIGNALS => {
                while let Ok(Some(signal)) = self.base.signals.read_signal() {
                    if signal.ssi_signo != Signal::SIGHUP as u32 || !self.reload() {
                        tracing::info!(signal = signal.ssi_signo, "asked to end");
                        self.owner.stop();
                    }
                }
            }
            WAKER => {}
            Token(number) => {
                if let Some((pid, _)) = self.pidfds.get(&number) {
                    let pid = *pid;
                    self.unwatch(number, pid);
                    self.owner.process_gone(pid, monotonic());
                    return;
                }
                let flushed = self.connections.get_mut(&number).map(Connection::flush);
                if let Some(Err(error)) = flushed {
                    self.drop_peer(number, &error);
                } else if readable {
                    self.read(number);
                }
            }
        }
    }

    /// Reads the configuration again; false where there is none to read. What is wrong with it is said to whoever looks at
    /// the log or at the service's status, and changes nothing.
    fn reload(&mut self) -> bool {
        let Some(path) = self.owner.config_path() else {
            return false;
        };
        let read = Config::read(path).map_err(|error| error.to_string());
        match read.and_then(|config| self.owner.reload(config, monotonic())) {
            Ok(()) => systemd::status("serving"),
            Err(error) => {
                tracing::error!(error, "the configuration is not taken; nothing changes");
                systemd::status(&format!("configuration not taken: {error}"));
            }
        }
        true
    }

    fn accept(&mut self) {
        if self.owner.is_stopping() {
            return;
        }
        loop {
            match self.socket.listener.accept() {
                Ok((stream, _)) => {
                    if let Err(error) = self.take(stream) {
                        tracing::warn!(%error, "a connection is refused");
                    }
                }
                Err(error) if error.kind() == io::ErrorKind::WouldBlock => return,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => {
                    // Out of descriptors, as a rule. The poll does not tell of those that wait already.
                    tracing::warn!(%error, connections = self.connections.len(), "cannot accept; trying again");
                    self.accept_again = Some(Instant::now() + ACCEPT_PAUSE);
                    return;
                }
            }
        }
    }

    fn take(&mut self, stream: std::os::unix::net::UnixStream) -> io::Result<()> {
        let connection = Connection::new(stream)?;
        let uid = connection.peer.uid;
        if self.private && uid != nix::unistd::geteuid().as_raw() && uid != 0 {
            return Err(io::Error::other(format!("user {uid} is not this supervisor's")));
        }
        let peer = self.next;
        self.next += 1;
        let fd: RawFd = connection.stream().as_raw_fd();
        self.base.poll.registry().register(
            &mut SourceFd(&fd),
            Token(peer),
            Interest::READABLE | Interest::WRITABLE,
        )?;
        self.owner.connected(peer, connection.peer, monotonic());
        self.connections.insert(peer, connection);
        Ok(())
    }

    fn read(&mut self, peer: Peer) {
        for _ in 0..READS {
            let Some(connection) = self.connections.get_mut(&peer) else {
                return;
            };
            match connection.receive() {
                Ok(false) => return,
                Ok(true) => {
                    if let Err(error) = self.frames(peer) {
                        self.drop_peer(peer, &error);
                        return;
                    }
                }
                Err(error) => {
                    self.drop_peer(peer, &error);
                    return;
                }
            }
        }
        self.unread.insert(peer);
    }

    /// Hands on the whole frames that are here. The channel of the frame tells who speaks.
    fn frames(&mut self, peer: Peer) -> Result<(), PeerError> {
        let now = monotonic();
        while let Some(connection) = self.connections.get_mut(&peer) {
            let Some(channel) = connection.channel()? else {
                return Ok(());
            };
            if channel == Report::CHANNEL {
                let Some(report) = connection.take::<Report>()? else {
                    return Ok(());
                };
                let descriptor = match &report {
                    Report::Hello(hello) if hello.has_page => connection.descriptor(),
                    _ => None,
                };
                self.owner.report(peer, report, descriptor, now);
            } else {
                let Some(request) = connection.take::<Request>()? else {
                    return Ok(());
                };
                let descriptor = match &request {
                    Request::Submit(_) | Request::Resume { .. } => connection.descriptor(),
                    _ => None,
                };
                self.owner.request(peer, request, descriptor, now);
            }
        }
        Ok(())
    }

    fn drop_peer(&mut self, peer: Peer, error: &PeerError) {
        let Some(connection) = self.connections.remove(&peer) else {
            return;
        };
        if !matches!(error, PeerError::Closed) {
            let who = connection.peer;
            tracing::warn!(pid = who.pid, uid = who.uid, %error, "a peer is dropped");
        }
        let fd = connection.stream().as_raw_fd();
        let _ = self.base.poll.registry().deregister(&mut SourceFd(&fd));
        self.owner.closed(peer, monotonic());
    }

    fn watch(&mut self, pid: u32) {
        if !self.watched.insert(pid) {
            return;
        }
        if let Err(error) = self.open_pidfd(pid) {
            if error.raw_os_error() != Some(nix::libc::ESRCH) {
                tracing::warn!(pid, %error, "cannot watch a process; it counts as gone");
            }
            self.watched.remove(&pid);
            self.owner.process_gone(pid, monotonic());
        }
    }

    fn open_pidfd(&mut self, pid: u32) -> io::Result<()> {
        let process = i32::try_from(pid)
            .ok()
            .and_then(rustix::process::Pid::from_raw)
            .ok_or_else(|| io::Error::from_raw_os_error(nix::libc::ESRCH))?;
        let pidfd = rustix::process::pidfd_open(process, rustix::process::PidfdFlags::NONBLOCK)?;
        let token = self.next;
        self.next += 1;
        let fd = pidfd.as_raw_fd();
        self.base
            .poll
            .registry()
            .register(&mut SourceFd(&fd), Token(token), Interest::READABLE)?;
        self.pidfds.insert(token, (pid, pidfd));
        Ok(())
    }

    fn unwatch(&mut self, token: usize, pid: u32) {
        if let Some((_, pidfd)) = self.pidfds.remove(&token) {
            let fd = pidfd.as_raw_fd();
            let _ = self.base.poll.registry().deregister(&mut SourceFd(&fd));
        }
        self.watched.remove(&pid);
    }

    /// Writes the state, and gives out orders and outputs until there are none.
    fn settle(&mut self) {
        loop {
            for output in self.owner.prompt() {
                self.put(output);
            }
            let (orders, outputs) = match self.owner.settle() {
                Ok(todo) => todo,
                Err(error) => {
                    // Nothing is given out: what is not in the file must not happen. Tried again each beat.
                    if self
                        .write_failed
                        .is_none_or(|last| last.elapsed() > Duration::from_secs(5))
                    {
                        tracing::error!(%error, "no slice changes until the state can be written");
                        self.write_failed = Some(Instant::now());
                    }
                    return;
                }
            };
            if orders.is_empty() && outputs.is_empty() {
                return;
            }
            for order in orders {
                self.machine.order(order);
            }
            for output in outputs {
                self.put(output);
            }
        }
    }

    fn put(&mut self, output: Output) {
        let (peer, sent) = match output {
            Output::Reply(peer, reply) => {
                let connection = self.connections.get_mut(&peer);
                (peer, connection.map(|connection| connection.send(&*reply, None)))
            }
            Output::Welcome(peer, welcome, page) => {
                let connection = self.connections.get_mut(&peer);
                (peer, connection.map(|connection| connection.send(&welcome, page)))
            }
            Output::Answer(peer, answer) => {
                let connection = self.connections.get_mut(&peer);
                (peer, connection.map(|connection| connection.send(&answer, None)))
            }
            Output::Drop(peer, why) => {
                self.drop_peer(peer, &PeerError::Io(io::Error::other(why)));
                return;
            }
            Output::Watch(pid) => {
                self.watch(pid);
                return;
            }
            Output::Signal(pid, signal) => {
                // The pid is held by its pidfd's watch: it has not been given to another process.
                let process = Pid::from_raw(i32::try_from(pid).unwrap_or(0));
                if self.watched.contains(&pid) && process.as_raw() > 0 {
                    tracing::info!(pid, %signal, "signalling a watched process");
                    if let Err(error) = kill(process, signal) {
                        tracing::warn!(pid, %error, "cannot signal a watched process");
                    }
                }
                return;
            }
        };
        if let Some(Err(error)) = sent {
            self.drop_peer(peer, &error);
        }
    }
}
