//! `migm node clear`: the supervisor is asked to remove the idle slices of ours.

use std::path::PathBuf;
use std::process::ExitCode;

use super::super::{Failure, exit, print_json, print_text};
use super::{LIMIT, Options, records, wanted};
use crate::control::client::{Client, ClientError};
use crate::control::start::Wanted;
use crate::control::{Reply, Request};
use crate::daemon::socket::beside;

/// The supervisor that runs; else a private one for slices that its state file names. `None` where there is
/// nothing of ours.
fn connect_for_clear(places: &[PathBuf], sim: Option<&str>) -> Result<Option<Client>, Failure> {
    match Client::first_of(places) {
        Ok(client) => return Ok(Some(client)),
        Err(ClientError::NoSupervisor(_)) => {}
        Err(error) => return Err(Failure::no_gpu(error)),
    }
    let Some((own, services)) = places.split_last() else {
        return Ok(None);
    };
    let names = |place: &PathBuf| !records(std::slice::from_ref(place)).is_empty();
    if names(own) {
        let wanted = Wanted {
            socket: Some(own.clone()),
            sim: sim.map(str::to_owned),
            ..Wanted::default()
        };
        return wanted.connect_or_start().map(Some).map_err(Failure::no_gpu);
    }
    match services.iter().find(|place| names(place)) {
        Some(place) => Err(Failure::no_gpu(format_args!(
            "{} names slices, and its supervisor does not run: start it",
            beside(place, "state.json").display()
        ))),
        None => Ok(None),
    }
}

pub(super) fn connect(places: &[PathBuf], sim: Option<&str>) -> Result<Client, Failure> {
    connect_for_clear(places, sim)?.ok_or_else(|| Failure::no_gpu(ClientError::NoSupervisor(places.to_vec())))
}

pub(super) fn clear(options: &Options) -> Result<ExitCode, Failure> {
    let places = wanted(options).any_places();
    let (removed, kept, failed) = match connect_for_clear(&places, options.sim.as_deref())? {
        Some(mut client) => ask_clear(&mut client, options.device)?,
        None => (0, Vec::new(), Vec::new()),
    };
    if options.json {
        print_json(&serde_json::json!({ "removed": removed, "kept": kept, "failed": failed }))?;
    } else {
        let mut text = match removed {
            0 => "no idle slice of ours was removed\n".to_owned(),
            1 => "removed 1 slice\n".to_owned(),
            more => format!("removed {more} slices\n"),
        };
        for line in &kept {
            text.push_str(&format!("kept: {line}\n"));
        }
        for line in &failed {
            text.push_str(&format!("not removed: {line}\n"));
        }
        print_text(&text)?;
    }
    Ok(if failed.is_empty() {
        ExitCode::SUCCESS
    } else {
        ExitCode::from(exit::FAILED)
    })
}

pub(super) type Cleared = (u32, Vec<String>, Vec<String>);

pub(super) fn ask_clear(client: &mut Client, device: Option<u32>) -> Result<Cleared, Failure> {
    let answer = client.ask(&Request::Clear { device }, LIMIT, |reply| match reply {
        Reply::Cleared {
            removed,
            kept,
            failed,
        } => Some((removed, kept, failed)),
        _ => None,
    });
    answer.map_err(|error| match error {
        ClientError::Refused(reason) => Failure::input(reason),
        error => Failure::no_gpu(error),
    })
}
