//! Batches: opened, started, measured from the first job's start to the last one's end.

use migm_shared::ids::BatchId;

use super::batch::{Batch, all_ended};
use super::job::Peer;
use super::machine::{Moment, Order};
use super::owner::Owner;
use crate::control::{JobState, Reply};

impl Owner {
    /// `policy` is the one that is to serve in the batch's time, if it names one.
    pub(super) fn open_batch(&mut self, peer: Peer, name: String, policy: Option<&str>) {
        let Some(client) = self.clients.get(&peer) else {
            return;
        };
        let claim = match policy.map_or(Ok(None), |policy| self.claim(peer, policy)) {
            Ok(claim) => claim,
            Err(reason) => return self.refuse(peer, reason),
        };
        let id = BatchId(self.next_batch);
        self.next_batch += 1;
        let mut batch = Batch::new(id, name, client.credentials.uid, Some(peer));
        batch.policy = claim;
        self.batches.insert(id, batch);
        self.dirty = true;
        self.reply(peer, Reply::BatchOpened { batch: id });
    }

    pub(super) fn start_batch(&mut self, peer: Peer, id: BatchId, now: f64) {
        let uid = self.batches.get(&id).map(|batch| batch.uid);
        let allowed = uid.is_some_and(|uid| self.may(peer, uid));
        let reconfigurations = self.reconfigurations;
        // While a supervisor was restarted, another may have come.
        let claim = self.batches.get(&id).and_then(|batch| batch.policy.as_ref());
        let claimed = claim.map_or(Ok(()), |policy| self.check_claim(policy, Some(id)));
        let Some(batch) = self.batches.get_mut(&id).filter(|_| allowed) else {
            self.refuse(peer, format!("there is no batch {id}"));
            return;
        };
        if batch.started.is_some() {
            // Said again by a command whose supervisor was gone before it had answered.
            self.reply(peer, Reply::Done);
            return;
        }
        if let Err(reason) = claimed {
            return self.refuse(peer, reason);
        }
        batch.started = Some(now);
        batch.reconfigurations = reconfigurations;
        tracing::info!(batch = %id, jobs = batch.jobs.len(), "batch starts");
        self.unanswered += 1;
        self.orders.push(Order::Energy {
            batch: id,
            moment: Moment::Start,
        });
        self.reply(peer, Reply::Done);
        self.holds.note_change();
        self.dirty = true;
        self.check_batch(id, now);
    }

    pub(super) fn watch_batch(&mut self, peer: Peer, id: BatchId, now: f64) {
        let uid = self.batches.get(&id).map(|batch| batch.uid);
        let allowed = uid.is_some_and(|uid| self.may(peer, uid));
        let Some(batch) = self.batches.get_mut(&id).filter(|_| allowed) else {
            self.refuse(peer, format!("there is no batch {id}"));
            return;
        };
        batch.watcher = Some(peer);
        batch.alone_since = None;
        let told = batch.ended.is_some() && !batch.reading;
        self.changed_jobs.extend(batch.jobs.iter().copied());
        self.reply(peer, Reply::Done);
        if told {
            self.tell_summary(id);
        } else {
            self.check_batch(id, now);
        }
    }

    /// Nobody hears of this peer's batches any more. Those that are over, or will never start, go.
    pub(super) fn unwatch_batches(&mut self, peer: Peer) {
        let jobs = &self.jobs;
        let before = self.batches.len();
        self.batches.retain(|_, batch| {
            if batch.watcher.take_if(|watcher| *watcher == peer).is_none() {
                return true;
            }
            let lives = !all_ended(batch.jobs.iter().filter_map(|job| jobs.get(job)));
            let stays = lives || batch.started.is_some() && (batch.ended.is_none() || batch.reading);
            if !stays {
                self.unwritten.extend(batch.jobs.iter().copied());
            }
            stays
        });
        self.dirty |= self.batches.len() < before;
    }

    /// Whether a command hears of its batch.
    pub(super) fn has_watched_batch(&self) -> bool {
        self.batches.values().any(|batch| batch.watcher.is_some())
    }

    /// Batches that have not started, and that nobody will start: their jobs would be held for ever. And those from before a
    /// restart that are over, when nobody asks for them. A command whose supervisor was gone comes back within the grace time.
    pub(super) fn call_off_abandoned_batches(&mut self, now: f64) {
        let grace = self.settings.config.grace_s;
        let is_abandoned = |batch: &mut Batch| {
            let is_over = batch.ended.is_some() && !batch.reading;
            (batch.started.is_none() || is_over)
                && batch.watcher.is_none()
                && now - *batch.alone_since.get_or_insert(now) >= grace
        };
        let abandoned: Vec<Batch> = self
            .batches
            .extract_if(.., |_, batch| is_abandoned(batch))
            .map(|(_, batch)| batch)
            .collect();
        for batch in abandoned {
            self.dirty = true;
            self.unwritten.extend(batch.jobs.iter().copied());
            for job in batch.jobs {
                if self.jobs.get(&job).is_some_and(|job| job.state == JobState::Held) {
                    let reason = "whoever submitted its batch has gone without starting it".to_owned();
                    self.call_off(job, reason, false, now);
                }
            }
        }
    }

    /// A batch whose last job has ended is measured.
    pub(super) fn check_batch(&mut self, id: BatchId, now: f64) {
        let Some(batch) = self.batches.get_mut(&id) else {
            return;
        };
        let over = all_ended(batch.jobs.iter().filter_map(|job| self.jobs.get(job)));
        if batch.started.is_none() || batch.ended.is_some() || !over {
            return;
        }
        batch.ended = Some(now);
        batch.reading = true;
        self.unanswered += 1;
        self.orders.push(Order::Energy {
            batch: id,
            moment: Moment::End,
        });
    }

    pub(super) fn energy_read(&mut self, id: BatchId, moment: Moment, millijoules: Option<u64>) {
        self.dirty = true;
        let Some(batch) = self.batches.get_mut(&id) else {
            return;
        };
        batch.measured(moment, millijoules);
        if moment == Moment::End && batch.ended.is_some() {
            tracing::info!(batch = %id, "batch is over");
            self.tell_summary(id);
        }
    }

    /// The sum of a batch that is over, to its watcher.
    pub(super) fn tell_summary(&mut self, id: BatchId) {
        let facts = self.facts();
        let Some(batch) = self.batches.get(&id) else {
            return;
        };
        let jobs = batch.jobs.iter().filter_map(|job| self.jobs.get(job));
        let summary = batch.summary(jobs.map(super::job::Job::status).collect(), &facts);
        if let Some(watcher) = batch.watcher {
            self.reply(watcher, Reply::BatchEnded(Box::new(summary)));
        }
    }
}
