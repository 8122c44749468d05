//! The runner's link to its supervisor, which may die and come back while the job goes on.

use std::os::fd::{AsFd, BorrowedFd};
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use crate::control::client::{Client, ClientError};
use crate::control::start::{STEP, StartError, Starter, Wanted, started_as};
use crate::control::{Reply, Request};

/// How often a supervisor that has gone is looked for.
const LOOK: Duration = Duration::from_millis(100);
/// How long after a private supervisor could not be started until it is tried again; doubles up to the
/// second figure.
const RESTART: (Duration, Duration) = (Duration::from_secs(1), Duration::from_secs(30));

/// See the [module](self).
#[derive(Debug)]
pub struct Link {
    path: PathBuf,
    /// How to start the next supervisor; `None` for a service, which others look after.
    private: Option<Wanted>,
    state: State,
    /// A supervisor that is a child of this process, and no part of its job.
    child: Option<u32>,
}

#[derive(Debug)]
enum State {
    Up(Client),
    Down {
        starter: Option<Starter>,
        look_at: Instant,
        start_at: Instant,
        pause: Duration,
    },
    /// Given up on purpose.
    Closed,
}

impl Link {
    /// Connects, and starts a private supervisor where none answers.
    ///
    /// # Errors
    /// There is none and will be none.
    pub fn open(wanted: &Wanted) -> Result<Self, StartError> {
        let mut starter = Starter::new(wanted.clone());
        let client = loop {
            match starter.step()? {
                Some(client) => break client,
                None => std::thread::sleep(STEP),
            }
        };
        Ok(Self {
            path: client.path().to_owned(),
            private: started_as(&client),
            child: starter.child(),
            state: State::Up(client),
        })
    }

    /// The socket's path.
    #[must_use]
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// The supervisor that this process has started, while it is not known to have ended.
    #[must_use]
    pub const fn child(&self) -> Option<u32> {
        self.child
    }

    /// A child of this process has been reaped.
    pub fn reaped(&mut self, pid: u32) {
        if self.child == Some(pid) {
            self.child = None;
        }
    }

    /// Whether a supervisor is there, as far as known.
    #[must_use]
    pub const fn is_up(&self) -> bool {
        matches!(self.state, State::Up(_))
    }

    /// Looks for no supervisor any more.
    pub fn close(&mut self) {
        self.state = State::Closed;
    }

    /// Whether [`Link::close`] has been called.
    #[must_use]
    pub const fn is_closed(&self) -> bool {
        matches!(self.state, State::Closed)
    }

    /// Sends, if somebody is there. What is lost with a dying supervisor is said again after
    /// [`Link::look`] has found the next.
    pub fn send(&mut self, request: &Request, attached: Option<BorrowedFd<'_>>) {
        if let State::Up(client) = &mut self.state
            && let Err(error) = client.send(request, attached)
        {
            self.lose(&error);
        }
    }

    /// The next reply that is there.
    pub fn receive(&mut self) -> Option<Reply> {
        let State::Up(client) = &mut self.state else {
            return None;
        };
        match client.receive(Duration::ZERO) {
            Ok(reply) => reply,
            Err(error) => {
                self.lose(&error);
                None
            }
        }
    }

    fn lose(&mut self, error: &ClientError) {
        let now = Instant::now();
        let pause = match error {
            ClientError::Closed | ClientError::Broken(_) => LOOK,
            // One that cannot be understood, of another version say, is not asked ten times a second.
            _ => {
                super::say(error);
                RESTART.1
            }
        };
        self.state = State::Down {
            starter: None,
            look_at: now + pause,
            start_at: now,
            pause: RESTART.0,
        };
    }

    /// When [`Link::look`] has something to do.
    #[must_use]
    pub fn look_at(&self) -> Option<Instant> {
        match &self.state {
            State::Down { look_at, .. } => Some(*look_at),
            _ => None,
        }
    }

    /// While no supervisor is there: looks for one, and starts one where that is ours to do. True when
    /// there is one again, which has to be told everything.
    pub fn look(&mut self) -> bool {
        let now = Instant::now();
        let State::Down {
            starter,
            look_at,
            start_at,
            pause,
        } = &mut self.state
        else {
            return false;
        };
        if now < *look_at {
            return false;
        }
        *look_at = now + LOOK;
        let may_start = self.private.as_ref().filter(|_| now >= *start_at);
        if starter.is_none()
            && let Some(wanted) = may_start
        {
            *starter = Some(Starter::new(wanted.clone()));
        }
        let found = match starter {
            Some(starter) => {
                let found = starter.step();
                self.child = starter.child().or(self.child);
                found
            }
            None => match Client::connect(&self.path) {
                Ok(client) => Ok(Some(client)),
                // Whatever stands in the way there may go, and the job has time.
                Err(_) => Ok(None),
            },
        };
        match found {
            Ok(Some(client)) => {
                self.private = started_as(&client);
                self.state = State::Up(client);
                true
            }
            Ok(None) => false,
            Err(error) => {
                super::say(format_args!(
                    "the supervisor has gone and no other could be started: {error}"
                ));
                *starter = None;
                *start_at = now + *pause;
                *pause = (*pause * 2).min(RESTART.1);
                false
            }
        }
    }

    /// The socket, for poll, while a supervisor is there.
    #[must_use]
    pub fn socket(&self) -> Option<BorrowedFd<'_>> {
        match &self.state {
            State::Up(client) => Some(client.as_fd()),
            _ => None,
        }
    }
}
