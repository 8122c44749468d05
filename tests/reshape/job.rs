//! A job by the book.

use std::os::fd::AsFd;
use std::time::Duration;

use migm_supervisor::control::client::Client;
use migm_supervisor::control::{Figures, Grant, Outcome, Reply, Request, Submission};
use migm_supervisor::job::page::JobPage;

use crate::daemon::{Daemon, PATIENCE, submission};

/// A job by the book: its runner's connection and page.
pub struct Job {
    client: Client,
    _page: JobPage,
}

impl Job {
    pub fn submit(daemon: &Daemon, mem: u64) -> Self {
        Self::on(daemon, mem, None)
    }

    pub fn on(daemon: &Daemon, mem: u64, devices: Option<&str>) -> Self {
        let submission = Submission {
            mem: Some(mem),
            visible_devices: devices.map(str::to_owned),
            ..submission(&format!("needs-{mem}"))
        };
        let page = JobPage::create(1).unwrap();
        let mut client = daemon.client();
        client
            .send(&Request::Submit(submission), Some(page.as_fd()))
            .unwrap();
        Self { client, _page: page }
    }

    pub fn hear(&mut self, patience: Duration) -> Option<Reply> {
        loop {
            match self.client.receive(patience) {
                Ok(Some(Reply::Accepted { .. })) => {}
                Ok(reply) => return reply,
                Err(_) => return None,
            }
        }
    }

    pub fn grant(&mut self) -> Grant {
        match self.hear(PATIENCE) {
            Some(Reply::Grant(grant)) => grant,
            other => panic!("{other:?}"),
        }
    }

    pub fn end(mut self, grant: &Grant) {
        let ended = Request::Ended {
            attempt: grant.attempt,
            status: 0,
            outcome: Outcome::Done,
            figures: Figures::default(),
            unmet: None,
        };
        self.client.send(&ended, None).unwrap();
        assert!(matches!(self.hear(PATIENCE), Some(Reply::Finished(_))));
    }
}

pub fn run(daemon: &Daemon, mem: u64) -> Grant {
    let mut job = Job::submit(daemon, mem);
    let grant = job.grant();
    job.end(&grant);
    grant
}
