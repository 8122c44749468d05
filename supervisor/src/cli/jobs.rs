//! `migm jobs`: the jobs of this user, by what the supervisor and their runners say.

use std::collections::{BTreeSet, HashMap};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use migm_shared::ids::JobId;
use nix::unistd::{Uid, User};
use serde::Serialize;

use super::{Failure, print_json, print_text};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{JobState, JobStatus, NodeStatus, Reply, Request, ShownId, Wishes};
use crate::job::array::ranges;
use crate::job::detached::{self, End, How, Record, Selector, folder};
use crate::job::monotonic;
use crate::job::record::{AttemptLine, Clock};
use crate::report::status::{self, short, wrapped};
use crate::report::table::Table;

/// How long a supervisor may take to answer.
pub(super) const LIMIT: Duration = Duration::from_secs(10);

/// List the jobs that wait or run
#[derive(Debug, clap::Args)]
pub struct Args {
    /// Those that have ended too, as far as they are kept
    #[arg(long)]
    all: bool,
    /// One JSON document
    #[arg(long)]
    json: bool,
    /// Of the private supervisor of this simulated GPU
    #[arg(long, value_name = "G[:N]")]
    sim: Option<String>,
}

/// A job, by all that is known of it.
#[derive(Debug)]
pub(super) struct Known {
    pub id: JobId,
    pub name: String,
    pub user: u32,
    pub wishes: Wishes,
    pub state: JobState,
    attempts: Vec<AttemptLine>,
    /// Wall seconds since it came to be where it is.
    ago: f64,
    note: Option<String>,
    end: Option<End>,
    /// Where its supervisor listens.
    pub socket: PathBuf,
    /// What its runner has kept, and where; of detached jobs only.
    pub kept: Option<(PathBuf, Record)>,
}

impl Known {
    pub fn shown_id(&self) -> ShownId {
        ShownId(self.id, self.wishes.element)
    }

    pub fn has_ended(&self) -> bool {
        self.state == JobState::Ended
    }

    /// Its name; of a job of a batch's array without the index behind it.
    fn stem(&self) -> &str {
        let index = self.wishes.element.map(|element| format!("-{}", element.index));
        let stem = index.and_then(|index| self.name.strip_suffix(&index));
        stem.unwrap_or(&self.name)
    }

    /// Whether two jobs of an array would be shown by the same words: thousands are then one line.
    fn is_like(&self, other: &Self) -> bool {
        let said = |job: &Self| {
            let array = job.wishes.element.map(|element| element.array)?;
            let still = matches!(job.state, JobState::Held | JobState::Waiting | JobState::Ended);
            let end = job.end.as_ref().map(|end| (end.how, end.status));
            let profile = job.attempts.last().map(|last| last.profile.clone());
            still.then_some((
                array,
                job.socket.clone(),
                job.state,
                job.attempts.len(),
                profile,
                end,
            ))
        };
        self.stem() == other.stem() && said(self).is_some_and(|said_of| Some(said_of) == said(other))
    }

    /// As its runner has it.
    pub fn of_record(folder: PathBuf, record: Record) -> Self {
        let end = record.end.clone();
        Self {
            id: record.id,
            name: record.name.clone(),
            user: record.user,
            wishes: record.wishes.clone(),
            state: if end.is_some() {
                JobState::Ended
            } else {
                record.state
            },
            attempts: record.attempts.clone(),
            ago: (detached::wall() - record.since).max(0.0),
            note: end.as_ref().and_then(|end| end.reason.clone()),
            end,
            socket: record.socket.clone(),
            kept: Some((folder, record)),
        }
    }

    /// Of a job that a supervisor tells of, with what its runner keeps.
    fn of_status(job: &JobStatus, clock: &Clock, socket: PathBuf, kept: Option<(PathBuf, Record)>) -> Self {
        // The runner counts from the submission, which the supervisor does not tell.
        let attempts = kept.as_ref().map(|(_, record)| record.attempts.clone());
        let origin = job.attempts.first().map_or(job.since, |first| first.start);
        let told = || {
            job.attempts
                .iter()
                .map(|attempt| AttemptLine::new(attempt, origin, clock))
                .collect()
        };
        let last = job.attempts.last().filter(|_| job.state == JobState::Ended);
        let told_end = || {
            let last = last?;
            Some(End {
                how: last.outcome.map_or(How::Lost, How::of),
                status: last.status,
                reason: None,
            })
        };
        let kept_end = kept.as_ref().and_then(|(_, record)| record.end.clone());
        Self {
            id: job.id,
            name: job.name.clone(),
            user: job.user,
            wishes: job.wishes.clone(),
            state: job.state,
            attempts: attempts
                .filter(|lines| lines.len() >= job.attempts.len())
                .unwrap_or_else(told),
            ago: (monotonic() - job.since).max(0.0),
            note: job.note.clone().filter(|note| !note.is_empty()),
            end: kept_end
                .filter(|_| job.state == JobState::Ended)
                .or_else(told_end),
            socket,
            kept,
        }
    }

    pub fn document(&self) -> Document<'_> {
        Document {
            id: self.shown_id(),
            name: &self.name,
            user: user(self.user),
            state: status::state(self.state),
            profile: self.attempts.last().map(|last| last.profile.as_str()),
            attempts: &self.attempts,
            since_s: self.ago,
            outcome: self.end.as_ref().map(|end| end.how),
            status: self.end.as_ref().and_then(|end| end.status),
            note: self.note.as_deref(),
            wishes: &self.wishes,
        }
    }
}

/// A job as JSON.
#[derive(Debug, Serialize)]
pub(super) struct Document<'a> {
    /// A number; of a job of an array text, as `7_2`.
    id: ShownId,
    name: &'a str,
    user: String,
    pub state: &'static str,
    /// Of the last attempt.
    profile: Option<&'a str>,
    /// Times since the submission, of a job in the foreground since its first attempt.
    attempts: &'a [AttemptLine],
    /// Wall seconds since it came to this state.
    since_s: f64,
    /// How it ended.
    outcome: Option<How>,
    /// Exit status, once it has ended.
    status: Option<i32>,
    /// Why it waits, is where it is, or ended.
    note: Option<&'a str>,
    wishes: &'a Wishes,
}

/// A user's name, or number where there is none.
fn user(uid: u32) -> String {
    let known = User::from_uid(Uid::from_raw(uid)).ok().flatten();
    known.map_or_else(|| uid.to_string(), |user| user.name)
}

/// What a supervisor tells.
pub(super) fn told(client: &mut Client) -> Result<NodeStatus, ClientError> {
    client.ask(&Request::Status, LIMIT, |reply| match reply {
        Reply::Status(node) => Some(*node),
        _ => None,
    })
}

/// How time runs at a node.
pub(super) fn clock(node: &NodeStatus) -> Clock {
    Clock {
        simulated: node.simulated,
        time_scale: node.time_scale,
    }
}

/// All jobs of this user: those of the supervisor that is wanted, those that their runners keep, and what the
/// supervisors of the latter tell. Without any supervisor the runners' word stands.
pub(super) fn gather(wanted: &Wanted) -> Result<Vec<Known>, Failure> {
    let all = detached::place().map_or_else(Vec::new, |place| folder::all(&place));
    let live = all.iter().filter(|(_, record)| record.is_live());
    let others: BTreeSet<PathBuf> = live.map(|(_, record)| record.socket.clone()).collect();
    // Of a number that was given twice the last job comes first.
    let mut kept: HashMap<(JobId, PathBuf), Vec<(PathBuf, Record)>> = HashMap::new();
    for (folder, record) in all {
        let key = (record.id, record.socket.clone());
        kept.entry(key).or_default().push((folder, record));
    }
    let mut found = Vec::new();
    let mut told_by = match Client::first_of(&wanted.any_places()) {
        Ok(mut client) => {
            let node = told(&mut client).map_err(Failure::no_gpu)?;
            Some((client.path().to_owned(), node))
        }
        Err(ClientError::NoSupervisor(_)) => None,
        Err(error) => return Err(Failure::no_gpu(error)),
    };
    let first = told_by.as_ref().map(|(socket, _)| socket.clone());
    let mut others = others.into_iter().filter(|socket| Some(socket) != first.as_ref());
    loop {
        if let Some((socket, node)) = told_by.take() {
            for job in &node.jobs {
                let mine = kept.get_mut(&(job.id, socket.clone())).and_then(Vec::pop);
                found.push(Known::of_status(job, &clock(&node), socket.clone(), mine));
            }
        }
        let Some(socket) = others.next() else { break };
        // One that does not answer is between two lives, and the runners know their jobs.
        told_by = Client::connect(&socket)
            .and_then(|mut client| told(&mut client))
            .ok()
            .map(|node| (socket, node));
    }
    found.extend(
        kept.into_values()
            .flatten()
            .map(|(folder, record)| Known::of_record(folder, record)),
    );
    found.sort_by(|a, b| {
        let by_number = b.has_ended().cmp(&a.has_ended()).then(a.id.cmp(&b.id));
        by_number.then(b.ago.total_cmp(&a.ago))
    });
    Ok(found)
}

/// The jobs that live and are meant. Where none does, whether there is any.
pub(super) fn living(selector: &Selector, jobs: Vec<Known>) -> Result<Vec<Known>, Failure> {
    let takes = |job: &Known| selector.takes(job.id, job.wishes.element.as_ref(), &job.name);
    let (live, ended): (Vec<Known>, Vec<Known>) =
        jobs.into_iter().filter(takes).partition(|job| !job.has_ended());
    match (live.is_empty(), ended.is_empty()) {
        (false, _) => Ok(live),
        (true, false) => Err(Failure::new(
            super::exit::FAILED,
            format_args!("job {selector} has ended"),
        )),
        (true, true) => Err(Failure::input(format_args!("there is no job {selector}"))),
    }
}

pub(super) fn main(args: &Args) -> Result<ExitCode, Failure> {
    let wanted = Wanted {
        sim: args.sim.clone(),
        ..Wanted::default()
    };
    let mut jobs = gather(&wanted)?;
    jobs.retain(|job| args.all || !job.has_ended());
    if args.json {
        #[derive(Serialize)]
        struct List<'a> {
            jobs: Vec<Document<'a>>,
        }
        let jobs = jobs.iter().map(Known::document).collect();
        print_json(&List { jobs })?;
    } else {
        print_text(&text(&jobs))?;
    }
    Ok(ExitCode::SUCCESS)
}

fn text(jobs: &[Known]) -> String {
    if jobs.is_empty() {
        return "no jobs\n".to_owned();
    }
    let mut table = Table::new(&[">job", "name", "user", "state", "profile", ">attempts", ">since"]);
    for alike in jobs.chunk_by(Known::is_like) {
        let job = &alike[0];
        let document = job.document();
        table.row([
            together(alike),
            short(job.stem()),
            document.user.clone(),
            match (document.outcome, document.status) {
                (Some(How::Failed), Some(status)) => format!("failed ({status})"),
                (Some(how), _) => how.word().to_owned(),
                (None, _) => document.state.to_owned(),
            },
            document.profile.unwrap_or("-").to_owned(),
            document.attempts.len().to_string(),
            span(alike.iter().map(|job| job.ago).fold(0.0, f64::max)),
        ]);
    }
    let mut text = table.render();
    for alike in jobs.chunk_by(Known::is_like) {
        let job = &alike[0];
        let asked = job.wishes.to_string();
        let asked = (!asked.is_empty()).then(|| format!("asks for {asked}"));
        let notes: Vec<&str> = asked.as_deref().into_iter().chain(job.note.as_deref()).collect();
        if !notes.is_empty() {
            text.push_str(&wrapped(&format!("{}: {}", together(alike), notes.join("; "))));
        }
    }
    text
}

/// The number of a job, or of several of one array.
fn together(jobs: &[Known]) -> String {
    let elements = jobs.iter().filter_map(|job| job.wishes.element);
    match (jobs, jobs[0].wishes.element) {
        ([_, _, ..], Some(first)) => {
            let indices: Vec<u32> = elements.map(|element| element.index).collect();
            format!("{}_[{}]", first.array, ranges(&indices))
        }
        _ => jobs[0].shown_id().to_string(),
    }
}

/// A span of time, as people say it.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "a span is not negative, and a float beyond u64 becomes its end"
)]
fn span(seconds: f64) -> String {
    let seconds = seconds as u64;
    match (seconds / 86_400, seconds / 3600 % 24, seconds / 60 % 60) {
        (0, 0, 0) => format!("{seconds} s"),
        (0, 0, minutes) => format!("{minutes} min"),
        (0, hours, minutes) => format!("{hours} h {minutes:02} min"),
        (days, hours, _) => format!("{days} d {hours} h"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::control::Element;

    fn known(id: u64, name: &str, state: JobState) -> Known {
        Known {
            id: JobId(id),
            name: name.into(),
            user: u32::MAX - 1,
            wishes: Wishes::default(),
            state,
            attempts: Vec::new(),
            ago: 3700.0,
            note: None,
            end: None,
            socket: "/s".into(),
            kept: None,
        }
    }

    #[test]
    fn jobs_for_people() {
        let mut held = known(9, "evaluate", JobState::Held);
        held.note = Some("waits for the end of 7_1 `train`".into());
        held.wishes.priority = 5;
        let mut running = known(8, "train", JobState::Running);
        running.wishes.element = Some(Element {
            array: JobId(7),
            index: 1,
            count: 4,
            at_once: None,
        });
        running.ago = 12.0;
        running.attempts.push(AttemptLine {
            profile: "1g.5gb".into(),
            placement: 0,
            start: 0.0,
            end: None,
            outcome: None,
            status: None,
            why: None,
            memory: 0,
        });
        let mut failed = known(3, "prepare", JobState::Ended);
        failed.end = Some(End {
            how: How::Failed,
            status: Some(3),
            reason: None,
        });
        failed.ago = 200_000.0;
        insta::assert_snapshot!(text(&[failed, running, held]));
    }

    #[test]
    fn a_thousand_jobs_of_an_array_are_a_line_for_each_state() {
        let element = |index: u64, state| {
            let mut job = known(100 + index, "sweep", state);
            job.wishes.element = Some(Element {
                array: JobId(100),
                index: u32::try_from(index).unwrap(),
                count: 1000,
                at_once: None,
            });
            job.user = u32::MAX - 1;
            job
        };
        let mut jobs: Vec<Known> = (0..5).map(|index| element(index, JobState::Ended)).collect();
        for (at, job) in jobs.iter_mut().enumerate() {
            job.end = Some(End {
                how: if at == 3 { How::Failed } else { How::Done },
                status: Some(i32::from(at == 3)),
                reason: None,
            });
        }
        jobs.extend([5, 6].map(|index| element(index, JobState::Running)));
        jobs.extend((7..1000).map(|index| element(index, JobState::Waiting)));
        jobs[8].note = Some("another comes first".into());
        jobs[7].note = Some("the same".into());
        insta::assert_snapshot!(text(&jobs));
    }

    #[test]
    fn the_living_are_meant_and_the_ended_are_named() {
        let jobs = || vec![known(1, "a", JobState::Ended), known(2, "a", JobState::Waiting)];
        let selector = |text: &str| text.parse::<Selector>().unwrap();
        assert_eq!(living(&selector("a"), jobs()).unwrap()[0].id, JobId(2));
        assert_eq!(
            living(&selector("1"), jobs()).unwrap_err().line,
            "job 1 has ended"
        );
        let none = living(&selector("b"), jobs()).unwrap_err();
        assert_eq!((none.code, none.line.as_str()), (2, "there is no job `b`"));
    }
}
