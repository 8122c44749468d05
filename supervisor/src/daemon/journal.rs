//! The state file as it grows: a whole [`State`] on the first line, and on each line behind it what has changed since.
//!
//! 1. The first write, and any after one that failed, puts a file with the whole state in the place of the old one.
//! 2. Each further write appends one [`Change`], all that a round of the event loop has brought about: what it costs goes by
//!    what has changed, and not by how many jobs there are.
//! 3. When the changes have outgrown the whole, the next write is a whole one again.
//!
//! A supervisor that dies within a write leaves a line without an end. Nothing of that round has been given out, so
//! whoever reads the file passes over it ([`State::read`]).

use std::collections::{BTreeMap, BTreeSet};
use std::fs::{self, File};
use std::io::{self, Write};
use std::os::unix::fs::MetadataExt;
use std::path::Path;

use migm_shared::ids::{BatchId, JobId};
use serde::{Deserialize, Serialize};

use super::error::DaemonError;
use super::state::{BatchRecord, JobRecord, State, Used};

/// Changes of so many bytes are appended before the state is written anew, however small it is.
const LEAST: u64 = 1 << 20;

/// What has changed since the line before.
#[derive(Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Change {
    /// All but jobs, batches and bills, if any of it has changed.
    #[serde(skip_serializing_if = "Option::is_none")]
    rest: Option<State>,
    /// What users have had.
    used: Used,
    /// Batches that have changed or come. Jobs that name one join it, in order of their numbers, and are not listed anew.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    batches: Vec<BatchRecord>,
    /// Batches that have gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    closed: Vec<BatchId>,
    /// Jobs that have changed or come.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    jobs: Vec<JobRecord>,
    /// Jobs that have gone.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    gone: Vec<JobId>,
}

/// What is to be noted of the jobs and of all else.
#[derive(Debug, Default)]
pub struct News {
    /// All but the jobs; of the batches without those that are in them.
    pub outline: State,
    /// Jobs that have changed or come.
    pub jobs: Vec<JobRecord>,
    /// Jobs that have gone.
    pub gone: Vec<JobId>,
}

/// See the [module](self). Nothing is written yet by a fresh one.
#[derive(Debug, Default)]
pub struct Journal(Option<Open>);

/// A file with a whole state, and room for changes.
#[derive(Debug)]
struct Open {
    file: File,
    /// As written last.
    outline: State,
    whole: u64,
    appended: u64,
    /// What the file says, so that a change which nobody noted is found by whatever test makes it.
    #[cfg(debug_assertions)]
    told: State,
}

impl Journal {
    /// Brings the file up to date: by what is `news`, or by the `whole` where that is due. After the end of this process at any
    /// instant the state of before or this one is there.
    ///
    /// # Errors
    /// The system refused; then the next write is a whole one.
    pub fn write(&mut self, path: &Path, news: News, whole: impl Fn() -> State) -> Result<(), DaemonError> {
        let written = match self.0.take().filter(|open| open.takes_more(path)) {
            Some(open) => open.append(news),
            None => Open::begin(path, news.outline, &whole()),
        };
        let open = written.map_err(DaemonError::system(format!("writing {}", path.display())))?;
        #[cfg(debug_assertions)]
        assert_eq!(open.told, whole(), "something has changed that was not noted");
        self.0 = Some(open);
        Ok(())
    }
}

impl Open {
    fn begin(path: &Path, outline: State, state: &State) -> io::Result<Self> {
        let mut text = serde_json::to_vec(state)?;
        text.push(b'\n');
        let fresh = path.with_extension("json.fresh");
        let mut file = File::create(&fresh)?;
        file.write_all(&text)?;
        fs::rename(&fresh, path)?;
        Ok(Self {
            file,
            outline,
            whole: text.len() as u64,
            appended: 0,
            #[cfg(debug_assertions)]
            told: state.clone(),
        })
    }

    /// Whether the file is not too long, and still what is found at its place.
    fn takes_more(&self, path: &Path) -> bool {
        let is_there = || {
            let (ours, there) = (self.file.metadata().ok()?, fs::metadata(path).ok()?);
            Some((ours.dev(), ours.ino()) == (there.dev(), there.ino()))
        };
        self.appended <= self.whole.max(LEAST) && is_there() == Some(true)
    }

    fn append(mut self, news: News) -> io::Result<Self> {
        let change = self.change(news);
        let mut text = serde_json::to_vec(&change)?;
        text.push(b'\n');
        self.file.write_all(&text)?;
        self.appended += text.len() as u64;
        #[cfg(debug_assertions)]
        {
            self.told = replay(self.told, [change]);
        }
        Ok(self)
    }

    fn change(&mut self, news: News) -> Change {
        let before = std::mem::replace(&mut self.outline, news.outline);
        let outline = &self.outline;
        let ids: BTreeSet<BatchId> = outline.batches.iter().map(|batch| batch.id).collect();
        let is_new = |batch: &&BatchRecord| !before.batches.contains(batch);
        let bare = |state: &State| State {
            batches: Vec::new(),
            used: Used::default(),
            ..state.clone()
        };
        let rest = bare(outline);
        Change {
            rest: (bare(&before) != rest).then_some(rest),
            used: outline.used.clone(),
            batches: outline.batches.iter().filter(is_new).cloned().collect(),
            closed: before
                .batches
                .iter()
                .map(|batch| batch.id)
                .filter(|id| !ids.contains(id))
                .collect(),
            jobs: news.jobs,
            gone: news.gone,
        }
    }
}

/// What a state has become by these changes.
pub(super) fn replay(mut state: State, changes: impl IntoIterator<Item = Change>) -> State {
    let mut jobs: BTreeMap<JobId, JobRecord> = std::mem::take(&mut state.jobs)
        .into_iter()
        .map(|job| (job.id, job))
        .collect();
    let mut batches: BTreeMap<BatchId, BatchRecord> = std::mem::take(&mut state.batches)
        .into_iter()
        .map(|batch| (batch.id, batch))
        .collect();
    for change in changes {
        state = State {
            used: change.used,
            ..change.rest.unwrap_or(state)
        };
        for mut batch in change.batches {
            if let Some(known) = batches.get_mut(&batch.id) {
                batch.jobs = std::mem::take(&mut known.jobs);
            }
            batches.insert(batch.id, batch);
        }
        for batch in change.closed {
            batches.remove(&batch);
        }
        jobs.extend(change.jobs.into_iter().map(|job| (job.id, job)));
        for job in change.gone {
            jobs.remove(&job);
        }
    }
    let mut members: BTreeMap<BatchId, BTreeSet<JobId>> = BTreeMap::new();
    for job in jobs.values() {
        if let Some(batch) = job.submission.batch {
            members.entry(batch).or_default().insert(job.id);
        }
    }
    for batch in batches.values_mut() {
        let mut all = members.remove(&batch.id).unwrap_or_default();
        all.extend(std::mem::take(&mut batch.jobs));
        batch.jobs = all.into_iter().collect();
    }
    State {
        jobs: jobs.into_values().collect(),
        batches: batches.into_values().collect(),
        ..state
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::{JobState, Submission};
    use crate::daemon::job::Job;

    fn job(id: u64, batch: Option<BatchId>) -> JobRecord {
        let submission = Submission {
            batch,
            ..Submission::plain()
        };
        Job::new(JobId(id), submission, 7).record()
    }

    fn batch(id: u64, jobs: &[u64]) -> BatchRecord {
        BatchRecord {
            id: BatchId(id),
            name: "batch".into(),
            uid: 7,
            policy: None,
            jobs: jobs.iter().copied().map(JobId).collect(),
            started: None,
            energy_start: None,
            reconfigurations: 0,
            ended: None,
            energy_end: None,
        }
    }

    /// What an owner would keep.
    struct Kept {
        journal: Journal,
        path: std::path::PathBuf,
        state: State,
    }

    impl Kept {
        fn new(folder: &Path) -> Self {
            let path = folder.join("s.state.json");
            let state = State::read(&path).unwrap();
            let journal = Journal::default();
            Self { journal, path, state }
        }

        fn write(&mut self, jobs: Vec<JobRecord>, gone: &[u64]) {
            let mut outline = State {
                jobs: Vec::new(),
                ..self.state.clone()
            };
            outline.batches.iter_mut().for_each(|batch| batch.jobs.clear());
            let news = News {
                outline,
                jobs,
                gone: gone.iter().copied().map(JobId).collect(),
            };
            self.journal
                .write(&self.path, news, || self.state.clone())
                .unwrap();
            assert_eq!(State::read(&self.path).unwrap(), self.state);
        }

        fn lines(&self) -> usize {
            fs::read_to_string(&self.path).unwrap().lines().count()
        }
    }

    #[test]
    fn what_has_changed_is_read_with_what_was_there() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(folder.path());
        kept.state.jobs = vec![job(1, None), job(2, None)];
        kept.write(Vec::new(), &[]);
        kept.state.jobs[1].state = JobState::Running;
        kept.state.jobs.push(job(3, None));
        kept.write(kept.state.jobs[1..].to_vec(), &[]);
        kept.state.jobs.remove(0);
        kept.state.next_job = 4;
        kept.state.used.by_user.insert(7, 0.1);
        kept.write(Vec::new(), &[1]);
        assert_eq!(
            (kept.lines(), fs::read_dir(folder.path()).unwrap().count()),
            (3, 1)
        );
    }

    #[test]
    fn a_batch_has_the_jobs_that_name_it_until_it_goes() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(folder.path());
        kept.state.batches = vec![batch(5, &[])];
        kept.write(Vec::new(), &[]);
        let jobs = [1, 2].map(|id| job(id, Some(BatchId(5))));
        kept.state.jobs = jobs.to_vec();
        kept.state.batches = vec![batch(5, &[1, 2])];
        kept.write(jobs.to_vec(), &[]);
        kept.state.batches[0].started = Some(4.5);
        kept.write(Vec::new(), &[]);
        kept.state.batches.clear();
        kept.state.jobs.remove(0);
        kept.write(Vec::new(), &[1]);
        assert_eq!(kept.lines(), 4);
    }

    #[test]
    fn a_line_that_a_dying_supervisor_left_is_passed_over_and_a_broken_one_is_not() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(folder.path());
        kept.write(Vec::new(), &[]);
        kept.state.jobs.push(job(1, None));
        kept.write(kept.state.jobs.clone(), &[]);
        let whole = fs::read(&kept.path).unwrap();
        let last = whole.iter().rposition(|byte| *byte == b'}').unwrap();
        let first = whole.iter().position(|byte| *byte == b'\n').unwrap() + 1;
        for end in first..=last {
            fs::write(&kept.path, &whole[..end]).unwrap();
            assert_eq!(State::read(&kept.path).unwrap().jobs, [], "{end}");
        }
        fs::write(&kept.path, [&whole[..last], b"\n", &whole[first..]].concat()).unwrap();
        let said = State::read(&kept.path).unwrap_err().to_string();
        assert!(said.contains("s.state.json"), "{said}");
    }

    #[test]
    fn a_file_that_is_gone_or_has_grown_long_is_written_anew() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(folder.path());
        kept.write(Vec::new(), &[]);
        fs::remove_file(&kept.path).unwrap();
        kept.state.jobs.push(job(1, None));
        kept.write(kept.state.jobs.clone(), &[]);
        assert_eq!(kept.lines(), 1);
        kept.state.jobs[0].note = Some("x".repeat(100_000));
        let mut longest = 0;
        for _ in 0..30 {
            kept.write(kept.state.jobs.clone(), &[]);
            longest = longest.max(fs::metadata(&kept.path).unwrap().len());
        }
        assert!((LEAST..LEAST + 220_000).contains(&longest), "{longest}");
    }

    #[test]
    fn what_could_not_be_written_is_in_the_file_once_it_can() {
        let folder = tempfile::tempdir().unwrap();
        let mut kept = Kept::new(folder.path());
        kept.write(Vec::new(), &[]);
        fs::remove_file(&kept.path).unwrap();
        fs::create_dir(&kept.path).unwrap();
        kept.state.jobs.push(job(1, None));
        let news = || News {
            outline: State {
                jobs: Vec::new(),
                ..kept.state.clone()
            },
            jobs: kept.state.jobs.clone(),
            gone: Vec::new(),
        };
        let failed = kept.journal.write(&kept.path, news(), || kept.state.clone());
        assert!(
            failed.unwrap_err().to_string().contains("writing "),
            "a folder is in its place"
        );
        fs::remove_dir(&kept.path).unwrap();
        kept.write(Vec::new(), &[]);
    }
}
