//! What processes under the interposer tell, and what is concluded from it.

use std::os::fd::OwnedFd;
use std::sync::Arc;

use migm_shared::ids::{AttemptId, JobId};
use migm_shared::report::{Event as Told, Hello, Report, Welcome};
use migm_shared::units::Bytes;

use super::forecast::{Against, Weighed};
use super::gpus::{Use, WHOLE};
use super::job::{Job, Peer};
use super::owner::{Output, Owner, Role};
use super::slices::Origin;
use super::soft::Raise;
use crate::control::{AttemptRecord, Grant, Inputs, JobState, Stakes, Submission, Verdict};
use crate::job::page::JobPage;
use crate::memory;
use crate::schedule::{Event, Need};

impl Owner {
    /// Takes a report, with the descriptor that came along.
    pub fn report(&mut self, peer: Peer, report: Report, descriptor: Option<OwnedFd>, now: f64) {
        let Some(client) = self.clients.get(&peer).copied() else {
            return;
        };
        match (report, client.role) {
            (Report::Hello(hello), Role::Unknown) => self.hello(peer, &hello, descriptor, now),
            (Report::Samples(samples), Role::Process(id)) => {
                if let Some(job) = self.jobs.get_mut(&id) {
                    job.track.add(client.credentials.pid, &samples);
                    let peak = samples
                        .iter()
                        .map(|sample| sample.peak.max(sample.reserved))
                        .max();
                    job.told_peak = job.told_peak.max(peak.unwrap_or(0));
                    job.pace.see(now, job.track.iteration());
                    job.learnt.seen.iterations = job.learnt.seen.iterations.max(job.track.iteration());
                    self.consider(id, now);
                }
            }
            (Report::Event(told), Role::Process(id)) => self.told(id, client.credentials.pid, &told),
            (
                Report::Raise {
                    ticket,
                    device,
                    asked,
                    ..
                },
                Role::Process(id),
            ) => {
                let raise = Raise {
                    peer,
                    ticket,
                    device,
                    asked,
                };
                self.raise(id, raise, now);
            }
            (_, _) => {
                let why = "a report out of turn".to_owned();
                self.outputs.push(Output::Drop(peer, why));
            }
        }
    }

    fn hello(&mut self, peer: Peer, hello: &Hello, descriptor: Option<OwnedFd>, now: f64) {
        let Some(credentials) = self.clients.get(&peer).map(|client| client.credentials) else {
            return;
        };
        let token = hello
            .attempt
            .as_deref()
            .and_then(|text| text.parse::<AttemptId>().ok());
        let of_job = token.and_then(|token| {
            let job = self.jobs.get(&token.job)?;
            let same = job.submission.nonce == token.nonce && job.is_leased() && self.may(peer, job.uid);
            same.then_some(token.job)
        });
        let (id, welcome) = match of_job {
            Some(id) => (id, self.page_of(id)),
            None => (self.watch(peer, hello, descriptor, now), None),
        };
        if let Some(job) = self.jobs.get_mut(&id) {
            // After an exec the same pid says hello again, and what it had before is gone.
            job.forget_process(credentials.pid);
            job.processes.insert(credentials.pid, None);
        }
        if let Some(client) = self.clients.get_mut(&peer) {
            client.role = Role::Process(id);
        }
        tracing::debug!(job = %id, pid = credentials.pid, program = hello.program, "a process says hello");
        self.prompt.push(match welcome {
            Some(page) => Output::Welcome(peer, Welcome::Page, Some(page)),
            None => Output::Welcome(peer, Welcome::OwnPage, None),
        });
        self.watch_process(credentials.pid);
    }

    fn page_of(&self, id: JobId) -> Option<OwnedFd> {
        let page = self.jobs.get(&id)?.page.as_ref()?;
        page.descriptor()
            .inspect_err(|error| tracing::warn!(job = %id, %error, "cannot hand out its page"))
            .ok()
    }

    /// A process without a runner becomes a job of its own: accounted, forecast and shown.
    fn watch(&mut self, peer: Peer, hello: &Hello, descriptor: Option<OwnedFd>, now: f64) -> JobId {
        let id = JobId(self.next_job);
        self.next_job += 1;
        let program = crate::job::name_of_program(&hello.program);
        let submission = Submission {
            name: program.clone(),
            command: vec![program],
            mem: None,
            iterations: None,
            movable: false,
            visible_devices: None,
            use_existing: false,
            batch: None,
            part: None,
            nonce: 0,
            runner: 0,
            wishes: crate::control::Wishes::default(),
        };
        let uid = self
            .clients
            .get(&peer)
            .map_or(u32::MAX, |client| client.credentials.uid);
        let mut job = Job::new(id, submission, uid);
        job.state = JobState::Watched;
        job.note = Some("watched only: start it with `migm run` to have it moved in time".to_owned());
        job.page = descriptor
            .and_then(|descriptor| {
                JobPage::map(descriptor)
                    .inspect_err(|error| tracing::warn!(job = %id, %error, "no figures of a watched process"))
                    .ok()
            })
            .map(Arc::new);
        job.attempts.push(AttemptRecord {
            profile: "unknown".to_owned(),
            slice: migm_shared::ids::Incarnation(0),
            placement: 0,
            start: now,
            end: None,
            outcome: None,
            status: None,
            why: None,
            memory: 0,
            for_speed: false,
        });
        tracing::info!(job = %id, program = hello.program, "watching a process without a runner");
        self.jobs.insert(id, job);
        self.changed(id);
        id
    }

    fn told(&mut self, id: JobId, pid: u32, told: &Told) {
        let Some(job) = self.jobs.get_mut(&id) else { return };
        match told {
            Told::Attached { slot, devices } => {
                if let Some(known) = job.processes.get_mut(&pid) {
                    *known = usize::try_from(*slot).ok();
                }
                if job.state == JobState::Watched {
                    self.place_watched(id, devices);
                }
                // It has its context: what that costs can be measured.
                self.watch_changed = true;
            }
            Told::OutOfMemory {
                asked,
                in_use,
                largest,
                ..
            } => {
                tracing::info!(job = %id, pid, asked, in_use, ?largest, "an allocation was refused");
                job.note = Some(format!("asked for {asked} bytes in vain with {in_use} in use"));
                self.note_down(id);
            }
            Told::Lost { marks } => tracing::debug!(job = %id, pid, marks, "marks were lost"),
            Told::Blind { cause } => {
                tracing::warn!(job = %id, pid, cause, "not all of its memory can be seen");
                job.note = Some(format!("not all of its memory can be seen: {cause}"));
                self.note_down(id);
            }
            Told::Leaving => tracing::debug!(job = %id, pid, "a process leaves"),
        }
    }

    /// Finds what device a watched process is on.
    fn place_watched(&mut self, id: JobId, devices: &[(u32, [u8; 16])]) {
        let Some((_, first)) = devices.first() else { return };
        let on = self.device_with(*first);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if let (Some((profile, start, memory)), Some(last)) = (on, job.attempts.last_mut()) {
            last.profile = profile;
            last.placement = start;
            job.need = memory;
        }
        self.changed(id);
    }

    /// Profile, start and memory of the device with these UUID bytes.
    fn device_with(&self, uuid: [u8; 16]) -> Option<(String, u32, u64)> {
        for slice in self.slices.values().filter(|slice| slice.origin != Origin::Soft) {
            if slice.uuid.as_deref().and_then(uuid_bytes) == Some(uuid) {
                let profile = self.gpus[slice.gpu].table.profile(slice.slot.0);
                return Some((profile.name.clone(), slice.slot.1.start, slice.memory));
            }
        }
        self.gpus.iter().find_map(|gpu| {
            // It has no lease: what it can have is the GPU.
            if gpu.used == Use::Soft && uuid_bytes(&gpu.gpu.uuid) == Some(uuid) {
                return Some((WHOLE.to_owned(), 0, gpu.gpu.memory));
            }
            let one = gpu
                .foreign
                .iter()
                .find(|one| one.uuid.as_deref().and_then(uuid_bytes) == Some(uuid))?;
            Some((gpu.profile_name(one.profile), one.placement.start, one.memory?))
        })
    }

    /// The driver's charge beyond what the job asked for has been measured.
    pub(super) fn measured(&mut self, id: JobId, attempt: u32, unaccounted: u64, now: f64) {
        self.charge_contexts(id, attempt, unaccounted);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if !job.is_leased() || job.attempt().attempt != attempt || job.unaccounted >= Some(unaccounted) {
            return;
        }
        job.unaccounted = Some(unaccounted);
        self.context_cost = self.context_cost.max(Some(unaccounted));
        self.dirty = true;
        self.note_down(id);
        self.consider(id, now);
    }

    /// Looks at the forecast of a job, and tells the scheduler where it will not fit.
    fn consider(&mut self, id: JobId, now: f64) {
        let clock = self.clock();
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let memory = match job.state {
            JobState::Running => job.grant.as_ref().map_or(0, |grant| grant.memory),
            JobState::Watched => job.need,
            _ => return,
        };
        let besides = job.unaccounted.or(self.context_cost).unwrap_or(0);
        let weighed = job.track.weigh(Against {
            iterations: job.iterations(),
            slice: memory,
            unaccounted: besides,
            work_done: job
                .attempts
                .last()
                .map_or(0.0, |last| clock.seconds(now - last.start)),
            relaunch: clock.seconds(self.relaunch),
            kept: job.learnt.kept,
            history_peak: job.learnt.expected(),
        });
        let Some(Weighed { inputs, verdict }) = weighed else {
            return;
        };
        job.learnt.see(&inputs);
        let verdict = job.by_history(verdict, &inputs);
        // A forecast made near the end of a job is no feat. Kept is the one that was acted on, or the first
        // that could have been.
        let is_move = matches!(verdict, memory::Verdict::Move { .. });
        if is_move || (inputs.settled && job.predicted.is_none()) {
            job.predicted = Some(inputs.peak);
            self.unwritten.insert(id);
        }
        let (need, why) = match verdict {
            memory::Verdict::Stay { reason } => {
                let reason = match inputs.stakes {
                    Some(Stakes { wait: Some(_), .. }) => format!("it moves later: {reason}"),
                    Some(stakes) if stakes.staying <= stakes.moving => {
                        format!("a move costs more: {reason}")
                    }
                    _ => reason,
                };
                let enough = inputs.settled.then(|| inputs.high.saturating_add(besides));
                let running = job.state == JobState::Running;
                self.decide(id, now, Verdict::Stay, reason, Some(inputs));
                if let Some(enough) = enough.filter(|_| running) {
                    self.tell_enough(id, enough, now);
                    self.settle_need(id, enough, now);
                }
                return;
            }
            memory::Verdict::Move { need_bytes, reason } => (need_bytes, reason),
        };
        if job.state == JobState::Watched {
            self.decide(
                id,
                now,
                Verdict::Cannot,
                format!("only watched: {why}"),
                Some(inputs),
            );
            self.warn_watched(id, &why);
            return;
        }
        if !job.submission.movable {
            if self.grow_only(id, need, now) {
                return self.decide(id, now, Verdict::Grow, why, Some(inputs));
            }
            let Some(job) = self.jobs.get_mut(&id) else { return };
            let note = format!("{why}; it is not moved, since its standard input cannot be read twice");
            job.note = Some(note);
            self.note_down(id);
            let reason = format!("its standard input cannot be read twice: {why}");
            return self.decide(id, now, Verdict::Cannot, reason, Some(inputs));
        }
        job.need = need;
        self.note_down(id);
        let need = Need { device_bytes: need };
        self.step(now, Event::Forecast { job: id, need });
        let note = self.scheduler.note(id).map(str::to_owned);
        let Some(job) = self.jobs.get_mut(&id) else { return };
        let is_soft = |grant: &Grant| {
            let slice = self.slices.get(&grant.slice);
            slice.is_some_and(|slice| slice.origin == Origin::Soft)
        };
        let verdict = match job.state {
            JobState::Moving => Verdict::Move,
            _ if job.grant.as_ref().is_some_and(is_soft) => Verdict::Grow,
            _ => Verdict::Cannot,
        };
        let reason = match &note {
            Some(note) => format!("{note}: {why}"),
            None => why,
        };
        if let Some(note) = note {
            job.note = Some(note);
        }
        self.decide(id, now, verdict, reason, Some(inputs));
    }

    /// A watched process cannot be moved. It is signalled if the configuration says so, once.
    fn warn_watched(&mut self, id: JobId, why: &str) {
        let signal = self.settings.config.watched_signal;
        let Some(job) = self.jobs.get_mut(&id) else { return };
        if std::mem::replace(&mut job.warned, true) {
            return;
        }
        tracing::warn!(job = %id, why, "a watched process will run out of memory");
        job.note = Some(format!(
            "{why}; start it with `migm run` to have it moved in time"
        ));
        if let Some(signal) = signal {
            let pids = job.processes.keys().copied().filter(|pid| *pid != 0);
            self.outputs.extend(pids.map(|pid| Output::Signal(pid, signal)));
        }
        self.changed(id);
    }
}

impl Job {
    /// What earlier runs of the same command came to weighs more than a line through a few points of this one,
    /// until this one exceeds it.
    fn by_history(&self, verdict: memory::Verdict, inputs: &Inputs) -> memory::Verdict {
        let memory::Verdict::Move { need_bytes, reason } = verdict else {
            return verdict;
        };
        let room = inputs.slice.saturating_sub(inputs.unaccounted);
        match inputs.history_peak {
            Some(peak) if peak <= room && self.told_peak <= peak => memory::Verdict::Stay {
                reason: format!(
                    "earlier runs fit: the same command has peaked at {} at most, margin included; {reason}",
                    Bytes(peak)
                ),
            },
            _ => memory::Verdict::Move { need_bytes, reason },
        }
    }
}

/// The sixteen bytes of `MIG-...` or `GPU-...`.
fn uuid_bytes(text: &str) -> Option<[u8; 16]> {
    let digits: String = text
        .trim_start_matches("MIG-")
        .trim_start_matches("GPU-")
        .chars()
        .filter(|digit| *digit != '-')
        .collect();
    u128::from_str_radix(&digits, 16)
        .ok()
        .filter(|_| digits.len() == 32)
        .map(u128::to_be_bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn both_kinds_of_uuid_are_read() {
        let bytes = uuid_bytes("MIG-00010203-0405-0607-0809-0a0b0c0d0e0f").unwrap();
        assert_eq!(bytes, [0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15]);
        assert_eq!(
            uuid_bytes("GPU-00010203-0405-0607-0809-0a0b0c0d0e0f"),
            Some(bytes)
        );
        assert_eq!(uuid_bytes("MIG-GPU-1/2/3"), None);
    }
}
