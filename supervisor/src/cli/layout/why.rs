//! `migm layout --why`: what is in the way of a slice, and when it will not be.

use std::time::Duration;

use migm_shared::units::Seconds;
use serde::Serialize;

use super::{Failure, slot};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{GpuStatus, Reply, Request};
use crate::layout::{Holding, Misfit, Placement, ProfileIndex, Standing, Table, Way, When};
use crate::node::Node;
use crate::report::table::Table as Text;

/// How long a supervisor may take to answer.
const LIMIT: Duration = Duration::from_secs(10);

/// The answer.
#[derive(Debug, Serialize)]
pub(super) struct Why {
    profile: String,
    /// It can be created as things are.
    possible: bool,
    /// `now`, `in`, `unknown`, `foreign` or `never`: see `when_s` for `in`.
    when: &'static str,
    /// Seconds until the last of the slices in the way ends, by forecast.
    when_s: Option<f64>,
    /// One line for people.
    summary: String,
    /// The fewest slices that have to go, of those that can go soonest.
    blocked_by: Vec<Blocker>,
    /// The same for each placement, the soonest first.
    placements: Vec<Place>,
}

#[derive(Debug, Serialize)]
struct Place {
    start: u32,
    size: u32,
    when: &'static str,
    when_s: Option<f64>,
    /// The first rule that a create there breaks now.
    obstacle: Option<String>,
    blocked_by: Vec<Blocker>,
    /// Full layouts within reach once it stands.
    reachable: usize,
}

#[derive(Clone, Debug, Serialize)]
struct Blocker {
    slice: String,
    /// `idle`, `busy` or `foreign`.
    state: &'static str,
    /// Forecast end of a busy one, in seconds from now.
    ends_s: Option<f64>,
}

impl Why {
    /// Of these slices, for one more of this profile.
    pub(super) fn new(table: &Table, standing: &[Standing], profile: ProfileIndex) -> Result<Self, Misfit> {
        let ways = table.explain(standing, profile)?;
        let blocker = |&index: &usize| {
            let (state, ends_s) = match standing[index].holding {
                Holding::Idle => ("idle", None),
                Holding::Busy { ends } => ("busy", ends),
                Holding::Foreign => ("foreign", None),
            };
            Blocker {
                slice: table.named(standing[index].slot),
                state,
                ends_s,
            }
        };
        let place = |way: &Way| {
            let (when, when_s) = word(way.when);
            Place {
                start: way.placement.start,
                size: way.placement.size,
                when,
                when_s,
                obstacle: way.obstacle.as_ref().map(ToString::to_string),
                blocked_by: way.blockers.iter().map(blocker).collect(),
                reachable: way.reachable,
            }
        };
        let placements: Vec<Place> = ways.iter().map(place).collect();
        let name = &table.profile(profile).name;
        let blocked_by = placements.first().map_or_else(Vec::new, |p| p.blocked_by.clone());
        let (when, when_s) = ways.first().map_or(("never", None), |way| word(way.when));
        Ok(Self {
            profile: name.clone(),
            possible: ways.first().is_some_and(|way| way.obstacle.is_none()),
            when,
            when_s,
            summary: summary(name, ways.first(), &blocked_by),
            blocked_by,
            placements,
        })
    }

    pub(super) fn text(&self) -> String {
        let mut text = format!("{}\n\n", self.summary);
        let mut table = Text::new(&[">start", "first obstacle", "has to go", "when"]);
        for place in &self.placements {
            let when = match (place.when, place.when_s) {
                (_, Some(seconds)) => format!("in {} (forecast)", Seconds(seconds)),
                ("now", _) => "now".to_owned(),
                ("never", _) => "never".to_owned(),
                ("foreign", _) => "when it is removed".to_owned(),
                _ => "not known".to_owned(),
            };
            table.row([
                place.start.to_string(),
                place.obstacle.clone().unwrap_or_else(|| "none".to_owned()),
                list(&place.blocked_by),
                when,
            ]);
        }
        text.push_str(&table.render());
        text
    }
}

const fn word(when: When) -> (&'static str, Option<f64>) {
    match when {
        When::Now => ("now", None),
        When::In(seconds) => ("in", Some(seconds)),
        When::Unknown => ("unknown", None),
        When::Foreign => ("foreign", None),
        When::Never => ("never", None),
    }
}

fn summary(name: &str, way: Option<&Way>, blockers: &[Blocker]) -> String {
    let Some(way) = way else {
        return format!("{name} has no placement on this GPU");
    };
    let at = format!("{name}@{}", way.placement.start);
    let these = list(blockers);
    match way.when {
        When::Now if blockers.is_empty() => format!("nothing is in the way: {at} can be created"),
        When::Now => format!("{at} can be had now; for it goes {these}"),
        When::In(seconds) => format!(
            "{at} can be had in {} by forecast, when these have ended: {these}",
            Seconds(seconds)
        ),
        When::Unknown => format!("{at} can be had when these have ended, nobody knows when: {these}"),
        When::Foreign => {
            format!("{at} can be had only after these have gone: {these}; migm never removes foreign slices")
        }
        When::Never => format!("{name} cannot be had even on the empty GPU: the driver refuses it"),
    }
}

fn list(blockers: &[Blocker]) -> String {
    let named = blockers.iter().map(|one| match one.ends_s {
        Some(seconds) => format!("{} {} until {}", one.state, one.slice, Seconds(seconds)),
        None => format!("{} {}", one.state, one.slice),
    });
    named.collect::<Vec<_>>().join(", ")
}

/// Reads `1g.5gb@6`, or the same with `=idle`, `=foreign`, `=busy` or `=busy:SECONDS`.
pub(super) fn standing(table: &Table, text: &str) -> Result<Standing, Failure> {
    let (place, state) = text.split_once('=').unwrap_or((text, "busy"));
    let slot = slot(table, place)?;
    let holding = match state.split_once(':') {
        None if state == "idle" => Holding::Idle,
        None if state == "foreign" => Holding::Foreign,
        None if state == "busy" => Holding::Busy { ends: None },
        Some(("busy", ends)) => {
            let ends: Seconds = ends
                .parse()
                .map_err(|error| Failure::input(format_args!("`{text}`: {error}")))?;
            if ends.0 < 0.0 {
                return Err(Failure::input(format_args!("`{text}`: the end is before now")));
            }
            Holding::Busy { ends: Some(ends.0) }
        }
        _ => {
            return Err(Failure::input(format_args!(
                "`{text}`: a slice is idle, foreign, busy or busy:SECONDS, not `{state}`"
            )));
        }
    };
    Ok(Standing { slot, holding })
}

/// The slices on a GPU, as [`standing`] reads them: as the supervisor shows them, or, where none answers, as NVML does,
/// all foreign then.
pub(super) fn shown(node: &impl Node, device: u32, uuid: &str) -> Result<Vec<String>, Failure> {
    let gpus = match ask() {
        Ok(gpus) => gpus,
        Err(ClientError::NoSupervisor(_)) => return unowned(node, device),
        Err(error) => return Err(Failure::no_gpu(error)),
    };
    let Some(gpu) = gpus.iter().find(|gpu| gpu.uuid == uuid) else {
        return unowned(node, device);
    };
    let shown = |slice: &crate::control::SliceStatus| {
        // A slice on its way in or out has a job or none and goes by itself.
        let state = match slice.state.as_str() {
            "foreign" => "foreign",
            "idle" | "destroying" => "idle",
            _ => "busy",
        };
        format!("{}@{}={state}", slice.profile, slice.start)
    };
    let on_mig = gpu.slices.iter().filter(|slice| slice.profile != "whole");
    Ok(on_mig.map(shown).collect())
}

fn unowned(node: &impl Node, device: u32) -> Result<Vec<String>, Failure> {
    let profiles = node.profiles(device).map_err(Failure::no_gpu)?;
    let instances = node.instances(device).map_err(Failure::no_gpu)?;
    let named = instances.iter().map(|one| {
        let Placement { start, .. } = one.placement;
        let name = profiles.iter().find(|profile| profile.id == one.profile);
        let name = name.map_or_else(
            || format!("profile {}", one.profile),
            |profile| profile.name.clone(),
        );
        format!("{name}@{start}=foreign")
    });
    Ok(named.collect())
}

fn ask() -> Result<Vec<GpuStatus>, ClientError> {
    let mut client = Client::first_of(&Wanted::default().places())?;
    client.ask(&Request::Status, LIMIT, |reply| match reply {
        Reply::Status(node) => Some(node.gpus),
        _ => None,
    })
}

#[cfg(test)]
mod tests {
    use super::super::super::super::layout::samples;
    use super::*;

    fn why(standing_at: &[&str], wanted: &str) -> Why {
        let table = samples::a100_base();
        let standing: Vec<Standing> = standing_at
            .iter()
            .map(|text| standing(&table, text).unwrap())
            .collect();
        Why::new(&table, &standing, table.profile_named(wanted).unwrap()).unwrap()
    }

    #[test]
    fn an_explanation_for_people() {
        insta::assert_snapshot!(why(&["1g@0=busy:90", "1g@4=foreign", "1g@6=idle"], "3g.20gb").text());
    }

    #[test]
    fn each_answer_has_its_own_line() {
        for (standing, wanted, line) in [
            (
                &[][..],
                "3g.20gb",
                "nothing is in the way: 3g.20gb@4 can be created",
            ),
            (
                &["7g@0=idle"],
                "1g.5gb",
                "1g.5gb@6 can be had now; for it goes idle 7g.40gb@0",
            ),
            (
                &["7g@0"],
                "1g.5gb",
                "1g.5gb@6 can be had when these have ended, nobody knows when: busy 7g.40gb@0",
            ),
            (
                &["7g@0=foreign"],
                "1g.5gb",
                "1g.5gb@6 can be had only after these have gone: foreign 7g.40gb@0; migm never removes foreign slices",
            ),
            (
                &["4g@0=busy:2m", "3g@4=busy:5s"],
                "3g.20gb",
                "3g.20gb@4 can be had in 5.00 s by forecast, when these have ended: busy 3g.20gb@4 until 5.00 s",
            ),
        ] {
            assert_eq!(why(standing, wanted).summary, line);
        }
    }

    #[test]
    fn a_wrong_state_is_named() {
        let table = samples::a100_base();
        for (text, words) in [
            (
                "1g@0=sold",
                "`1g@0=sold`: a slice is idle, foreign, busy or busy:SECONDS, not `sold`",
            ),
            ("1g@0=busy:-3", "`1g@0=busy:-3`"),
            ("1g@0=idle:3", "not `idle:3`"),
            ("9g@0=idle", "there is no profile `9g` here"),
        ] {
            let failure = standing(&table, text).unwrap_err();
            assert!(failure.line.contains(words), "{}", failure.line);
        }
    }
}
