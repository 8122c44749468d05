//! Which policy serves: the supervisor's own or, for its time, one that a batch asks for.
//!
//! 1. The supervisor's own is that of the command line, else of the configuration, which `SIGHUP` has read again: so it is
//!    changed for good, and whoever restarts finds the same.
//! 2. A batch may name another ([`Owner::claim`]), if its user may, every GPU can be served so and no other batch that is not
//!    over has named a different one. Else it is refused before any of its jobs has come.
//! 3. Its time is from its start until its command has gone and its last job has ended: that of a killed command goes on with
//!    its jobs. What serves at any moment follows from the batches alone ([`Owner::serving`]), which the state file
//!    keeps: the next supervisor goes on with it.
//! 4. Jobs of others go on under the policy in force. One that it would refuse waits until the supervisor's own is back.

use migm_shared::ids::{BatchId, JobId};

use super::batch::{Batch, all_ended};
use super::config::{BatchPolicy, Config};
use super::job::Peer;
use super::owner::{Owner, choice};
use crate::control::{JobState, PolicyStatus};
use crate::schedule::{Event, PolicyName};

impl Owner {
    /// The policy that is to serve now, and the batch that has asked for it.
    pub(super) fn serving(&self) -> (PolicyName, Option<BatchId>) {
        let named = self.batches.values().filter_map(|batch| {
            let policy = batch.policy.as_ref()?;
            (batch.started.is_some() && self.goes_on(batch)).then_some((batch.started, batch.id, policy))
        });
        let first = named.min_by(|a, b| a.0.partial_cmp(&b.0).unwrap_or(std::cmp::Ordering::Equal));
        match first {
            Some((_, id, policy)) => (policy.clone(), Some(id)),
            None => (self.settings.policy.clone(), None),
        }
    }

    /// Whether a batch is not over: its command is there, or a job of it lives.
    fn goes_on(&self, batch: &Batch) -> bool {
        let jobs = || batch.jobs.iter().filter_map(|job| self.jobs.get(job));
        batch.watcher.is_some() || !all_ended(jobs())
    }

    /// Lets the policy serve that is to.
    pub fn follow_policy(&mut self, now: f64) {
        let (policy, batch) = self.serving();
        if policy == self.policy {
            return;
        }
        tracing::info!(from = %self.policy, to = %policy, batch = batch.map(|batch| batch.0), "the policy changes");
        self.policy = policy.clone();
        self.gathering = None;
        let choice = choice(self.settings.time_scale);
        self.step(now, Event::Policy { policy, choice });
        for job in self.jobs.keys().copied().collect::<Vec<_>>() {
            self.tell_facts(job, now);
            self.tell_need(job, now);
        }
        // Those that the former one had no slice for.
        self.queue_waiting(now);
    }

    /// What a new batch that names a policy claims: nothing where that serves anyway and is not this user's to claim.
    pub(super) fn claim(&self, peer: Peer, name: &str) -> Result<Option<PolicyName>, String> {
        let policy: PolicyName = name.parse().map_err(|error| format!("{error}"))?;
        let operator = self.may(peer, nix::unistd::geteuid().as_raw());
        if !operator && self.settings.config.batch_policy == BatchPolicy::Operator {
            if policy == self.policy {
                return Ok(None);
            }
            return Err(format!(
                "policy {policy}: {} serves here, and only root and the supervisor's own user may change that for a batch; \
                 leave --policy and --order out, or ask the operator for `batch_policy = \"anyone\"`",
                self.policy
            ));
        }
        self.can_serve_by(&policy)?;
        self.check_claim(&policy, None)?;
        Ok(Some(policy))
    }

    /// Whether no other batch that is not over has named a different policy.
    pub(super) fn check_claim(&self, policy: &PolicyName, own: Option<BatchId>) -> Result<(), String> {
        let differs = |batch: &&Batch| {
            let named = batch.policy.as_ref();
            Some(batch.id) != own && named.is_some_and(|named| named != policy) && self.goes_on(batch)
        };
        let Some(other) = self.batches.values().find(differs) else {
            return Ok(());
        };
        let theirs = other.policy.clone().unwrap_or_default();
        Err(format!(
            "policy {policy}: batch {} of user {} has asked for {theirs} and is not over; wait for its end, or leave --policy and \
             --order out",
            other.id, other.uid
        ))
    }

    /// Whether the GPUs can be served by a policy, as they are used now.
    pub(super) fn can_serve_by(&self, policy: &PolicyName) -> Result<(), String> {
        if *policy == PolicyName::BestStatic {
            return Err(super::DaemonError::Unsearched.to_string());
        }
        super::check_layout(policy, &self.gpus).map_err(|error| error.to_string())?;
        let shares = |policy: &PolicyName| self.settings.config.mode.shares(policy);
        let uncut = self.gpus.iter().find(|gpu| !gpu.is_cut());
        match uncut.filter(|_| shares(policy) != self.settings.shared) {
            None => Ok(()),
            Some(gpu) => Err(format!(
                "policy {policy}: GPU {} has no slices, and whether jobs share it, as they do by every policy but sequential, is \
                 settled when a supervisor starts; restart it with that policy",
                gpu.gpu.index
            )),
        }
    }

    /// The configuration, if there is one.
    #[must_use]
    pub fn config_path(&self) -> Option<&std::path::Path> {
        self.settings.config_path.as_deref()
    }

    /// The configuration was read again. Its policy counts from now on, unless the command line has named one.
    ///
    /// # Errors
    /// That policy cannot serve: nothing changes.
    pub fn reload(&mut self, fresh: Config, now: f64) -> Result<(), String> {
        let told = &self.settings.told;
        let policy = told.policy(&fresh).map_err(|error| error.to_string())?;
        self.can_serve_by(&policy)?;
        let rest = Config {
            policy: self.settings.config.policy.clone(),
            order: self.settings.config.order,
            batch_policy: self.settings.config.batch_policy,
            ..fresh.clone()
        };
        if rest != self.settings.config {
            tracing::warn!(
                "of the configuration only policy, order and batch_policy count at once; the rest does from the next start"
            );
        }
        tracing::info!(%policy, named = told.is_some(), "the configuration is read again");
        self.settings.policy = policy;
        self.settings.config.policy = fresh.policy;
        self.settings.config.order = fresh.order;
        self.settings.config.batch_policy = fresh.batch_policy;
        self.follow_policy(now);
        Ok(())
    }

    /// The policy of a batch has no slice for a job that is none of its own: it waits for the supervisor's.
    pub(super) fn waits_for_own_policy(&mut self, id: JobId, reason: &str) -> bool {
        let claims = |batch: &BatchId| {
            self.batches
                .get(batch)
                .is_some_and(|batch| batch.policy.is_some())
        };
        let (policy, batch) = self.serving();
        let own = &self.settings.policy;
        let (Some(batch), Some(job)) = (batch.filter(|_| policy != *own), self.jobs.get(&id)) else {
            return false;
        };
        if job.submission.batch.as_ref().is_some_and(claims) {
            return false;
        }
        let note = format!(
            "{reason}; waits for {own}, which serves again after batch {batch}: until then {policy} does"
        );
        tracing::info!(job = %id, note, "waits for another policy");
        if let Some(job) = self.jobs.get_mut(&id) {
            job.state = JobState::Waiting;
            job.note = Some(note);
        }
        self.changed(id);
        true
    }

    /// For `migm status`.
    pub(super) fn policy_status(&self) -> PolicyStatus {
        let (policy, batch) = self.serving();
        PolicyStatus {
            policy: policy.to_string(),
            batch,
            own: self.settings.policy.to_string(),
        }
    }

    /// Batches of an earlier supervisor, with what they claim, where these GPUs can still be served so.
    pub(super) fn check_claims(&mut self) {
        for id in self.batches.keys().copied().collect::<Vec<_>>() {
            let named = self.batches[&id].policy.as_ref();
            if let Some(Err(why)) = named.map(|policy| self.can_serve_by(policy)) {
                tracing::warn!(batch = %id, why, "the policy of a batch cannot serve any more");
                if let Some(batch) = self.batches.get_mut(&id) {
                    batch.policy = None;
                }
            }
        }
        self.policy = self.serving().0;
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::super::connection::Credentials;
    use super::super::owner::{Output, Settings};
    use super::super::state::State;
    use super::*;
    use crate::control::{Reply, Request};

    /// A user who is neither root nor whoever runs this.
    const OTHER: u32 = 4_000_001;

    fn us() -> u32 {
        nix::unistd::geteuid().as_raw()
    }

    fn owner(folder: &tempfile::TempDir, config: Config, state: State) -> Owner {
        let settings = Settings {
            private: false,
            policy: config.policy.clone(),
            told: super::super::config::Told::default(),
            shared: config.mode.shares(&config.policy),
            config_path: None,
            config,
            socket: folder.path().join("s"),
            state_path: folder.path().join("state.json"),
            interposer: Err("none".to_owned()),
            library_path: Vec::new(),
            simulated: true,
            own_simulated: None,
            time_scale: 1.0,
        };
        Owner::new(settings, Vec::new(), BTreeMap::new(), state, 0.0)
    }

    fn connect(owner: &mut Owner, peer: Peer, uid: u32) {
        owner.connected(peer, Credentials { pid: 1, uid }, 1.0);
    }

    /// What a request is answered.
    fn ask(owner: &mut Owner, peer: Peer, request: Request) -> Reply {
        owner.request(peer, request, None, 1.0);
        owner.follow_policy(1.0);
        let (_, outputs) = owner.settle().unwrap();
        let mut replies = outputs.into_iter().filter_map(|output| match output {
            Output::Reply(to, reply) if to == peer => Some(*reply),
            _ => None,
        });
        replies.next_back().expect("an answer")
    }

    fn open(owner: &mut Owner, peer: Peer, policy: &str) -> Result<BatchId, String> {
        let (name, policy) = ("b".to_owned(), policy.to_owned());
        match ask(owner, peer, Request::OpenBatchBy { name, policy }) {
            Reply::BatchOpened { batch } => Ok(batch),
            Reply::Refused { reason } => Err(reason),
            other => panic!("{other:?}"),
        }
    }

    fn start(owner: &mut Owner, peer: Peer, batch: BatchId) -> Reply {
        ask(owner, peer, Request::StartBatch { batch })
    }

    #[test]
    fn only_the_operator_changes_the_policy_for_a_batch_unless_anyone_may() {
        let folder = tempfile::tempdir().unwrap();
        let mut plain = owner(&folder, Config::default(), State::fresh(1, 1, 1));
        connect(&mut plain, 1, OTHER);
        let said = open(&mut plain, 1, "far").unwrap_err();
        assert!(
            said.starts_with("policy far: migm serves here, and only root"),
            "{said}"
        );
        // Nothing would change by this, and nothing is claimed.
        let batch = open(&mut plain, 1, "migm").unwrap();
        assert_eq!(plain.batches[&batch].policy, None);
        for (peer, uid) in [(2, us()), (3, 0)] {
            connect(&mut plain, peer, uid);
            let batch = open(&mut plain, peer, "far").unwrap();
            assert_eq!(plain.batches[&batch].policy, Some(PolicyName::Far));
        }
        let config = Config {
            batch_policy: BatchPolicy::Anyone,
            ..Config::default()
        };
        let mut open_to_all = owner(&folder, config, State::fresh(1, 1, 1));
        connect(&mut open_to_all, 1, OTHER);
        let batch = open(&mut open_to_all, 1, "far").unwrap();
        assert!(matches!(start(&mut open_to_all, 1, batch), Reply::Done));
        assert_eq!(open_to_all.policy, PolicyName::Far);
        assert_eq!(
            open(&mut open_to_all, 1, "no").unwrap_err().split(';').next(),
            Some("`no` is no policy")
        );
        let said = open(&mut open_to_all, 1, "best-static").unwrap_err();
        assert!(said.contains("static:LAYOUT serves with one layout"), "{said}");
    }

    #[test]
    fn the_time_of_a_batch_is_from_its_start_until_its_command_has_gone() {
        let folder = tempfile::tempdir().unwrap();
        let mut owner = owner(&folder, Config::default(), State::fresh(1, 1, 1));
        connect(&mut owner, 1, us());
        let batch = open(&mut owner, 1, "far").unwrap();
        assert_eq!(owner.serving(), (PolicyName::default(), None));
        start(&mut owner, 1, batch);
        assert_eq!(owner.serving(), (PolicyName::Far, Some(batch)));
        assert_eq!(owner.policy, PolicyName::Far);
        // Without a job it is over with its command.
        owner.closed(1, 2.0);
        owner.follow_policy(2.0);
        assert_eq!(
            (owner.serving(), owner.policy),
            ((PolicyName::default(), None), PolicyName::default())
        );
    }

    /// Two that came while no supervisor was there to see them together.
    #[test]
    fn a_batch_does_not_start_beside_one_that_is_served_otherwise() {
        let folder = tempfile::tempdir().unwrap();
        let mut owner = owner(&folder, Config::default(), State::fresh(1, 1, 1));
        for peer in [1, 2] {
            connect(&mut owner, peer, us());
        }
        let first = open(&mut owner, 1, "far").unwrap();
        let second = open(&mut owner, 2, "far").unwrap();
        owner.batches.get_mut(&second).unwrap().policy = Some(PolicyName::Mfi);
        start(&mut owner, 1, first);
        let answer = start(&mut owner, 2, second);
        assert!(
            matches!(&answer, Reply::Refused { reason } if reason.starts_with("policy mfi: batch 1 of user ")),
            "{answer:?}"
        );
        assert!(owner.batches[&second].started.is_none());
    }

    #[test]
    fn what_a_batch_claims_is_in_the_state_file() {
        let folder = tempfile::tempdir().unwrap();
        let mut before = owner(&folder, Config::default(), State::fresh(1, 1, 1));
        connect(&mut before, 1, us());
        let batch = open(&mut before, 1, "static:4g+3g").unwrap();
        start(&mut before, 1, batch);
        let state = State::read(&folder.path().join("state.json")).unwrap();
        let mut after = owner(&folder, Config::default(), state);
        connect(&mut after, 5, us());
        ask(&mut after, 5, Request::WatchBatch { batch });
        assert_eq!(after.policy, PolicyName::Static("4g+3g".to_owned()));
    }

    #[test]
    fn the_own_policy_may_change_under_that_of_a_batch() {
        let folder = tempfile::tempdir().unwrap();
        let mut owner = owner(&folder, Config::default(), State::fresh(1, 1, 1));
        connect(&mut owner, 1, us());
        let batch = open(&mut owner, 1, "far").unwrap();
        start(&mut owner, 1, batch);
        let fresh = Config {
            policy: PolicyName::SchemeB,
            ..Config::default()
        };
        owner.reload(fresh, 2.0).unwrap();
        assert_eq!(owner.policy, PolicyName::Far);
        let status = owner.policy_status();
        assert_eq!((status.batch, status.own.as_str()), (Some(batch), "scheme-b"));
        owner.closed(1, 3.0);
        owner.follow_policy(3.0);
        assert_eq!(owner.policy, PolicyName::SchemeB);
    }
}
