//! One end of a conversation with the daemon, and what a runner brings along.

use std::os::fd::{AsFd, OwnedFd};
use std::os::unix::net::UnixStream;
use std::os::unix::process::CommandExt;
use std::path::Path;
use std::process::{Child, Command};
use std::time::{Duration, Instant};

use migm_shared::frame::Message;
use migm_shared::report::Report;
use migm_supervisor::control::{
    BatchSummary, Figures, Grant, JobStatus, Outcome, Reply, Request, Submission, Unmet,
};
use migm_supervisor::daemon::connection::Connection;
use migm_supervisor::job::page::JobPage;

use crate::daemon::{Daemon, PATIENCE};

pub const GPU: &str = "a100-40gb";

/// One end of a conversation, by the book.
pub struct Peer(pub Connection);

impl Peer {
    pub fn connect(socket: &Path) -> Self {
        Self(Connection::new(UnixStream::connect(socket).unwrap()).unwrap())
    }

    pub fn of(daemon: &Daemon) -> Self {
        Self::connect(&daemon.socket())
    }

    pub fn ask(&mut self, request: &Request) {
        self.0.send(request, None).unwrap();
    }

    pub fn report(&mut self, report: &Report) {
        self.0.send(report, None).unwrap();
    }

    pub fn try_hear<M: Message>(&mut self, patience: Duration) -> Option<M> {
        let until = Instant::now() + patience;
        loop {
            if let Some(message) = self.0.take::<M>().unwrap() {
                return Some(message);
            }
            if !self.0.receive().ok()? {
                if Instant::now() >= until {
                    return None;
                }
                std::thread::sleep(Duration::from_millis(2));
            }
        }
    }

    pub fn hear<M: Message>(&mut self) -> M {
        self.try_hear(PATIENCE).expect("no answer")
    }

    /// Whether the other side closes the connection before long.
    pub fn is_closed(&mut self) -> bool {
        let until = Instant::now() + PATIENCE;
        while Instant::now() < until {
            if self.0.receive().is_err() {
                return true;
            }
            std::thread::sleep(Duration::from_millis(2));
        }
        false
    }

    pub fn grant(&mut self) -> Grant {
        match self.hear() {
            Reply::Grant(grant) => grant,
            other => panic!("{other:?}"),
        }
    }

    pub fn finished(&mut self) -> JobStatus {
        match self.hear() {
            Reply::Finished(status) => *status,
            other => panic!("{other:?}"),
        }
    }

    /// What the command of a batch hears at its end.
    pub fn summary(&mut self) -> BatchSummary {
        loop {
            match self.hear() {
                Reply::BatchEnded(summary) => return *summary,
                Reply::BatchJob(_) | Reply::Done => {}
                other => panic!("{other:?}"),
            }
        }
    }

    pub fn ended(&mut self, grant: &Grant, outcome: Outcome, unmet: Option<Unmet>) {
        self.ask(&Request::Ended {
            attempt: grant.attempt,
            status: i32::from(outcome != Outcome::Done),
            outcome,
            figures: Figures::default(),
            unmet,
        });
    }
}

/// A counter page as a runner makes it.
pub fn page() -> JobPage {
    JobPage::create(1).unwrap()
}

pub fn descriptor(page: &JobPage) -> OwnedFd {
    page.as_fd().try_clone_to_owned().unwrap()
}

/// A runner whose job has been accepted, with the answer.
pub fn submit(daemon: &Daemon, submission: Submission, page: &JobPage) -> (Peer, Reply) {
    let mut runner = Peer::of(daemon);
    runner
        .0
        .send(&Request::Submit(submission), Some(descriptor(page)))
        .unwrap();
    let answer = runner.hear();
    (runner, answer)
}

/// A program of a job, alone in its group as a runner starts it.
pub fn program() -> Child {
    Command::new("sleep").arg("600").process_group(0).spawn().unwrap()
}
