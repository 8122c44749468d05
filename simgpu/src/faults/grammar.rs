//! Reads faults in the form that [`super`] tells.

use std::time::Duration;

use super::{Call, Effect, FAULTS, Fault, When};

/// nvml.h's results that a call can fail with.
const RESULTS: [(&str, u32); 25] = [
    ("invalid-argument", 2),
    ("not-supported", 3),
    ("no-permission", 4),
    ("not-found", 6),
    ("insufficient-size", 7),
    ("insufficient-power", 8),
    ("driver-not-loaded", 9),
    ("timeout", 10),
    ("irq-issue", 11),
    ("function-not-found", 13),
    ("gpu-is-lost", 15),
    ("reset-required", 16),
    ("operating-system", 17),
    ("lib-rm-version-mismatch", 18),
    ("in-use", 19),
    ("memory", 20),
    ("no-data", 21),
    ("insufficient-resources", 23),
    ("freq-not-supported", 24),
    ("argument-version-mismatch", 25),
    ("deprecated", 26),
    ("not-ready", 27),
    ("gpu-not-found", 28),
    ("invalid-state", 29),
    ("unknown", 999),
];

const CALLS: [(&str, u32); 6] = [
    ("create-gi", Call::CreateGpuInstance as u32),
    ("create-ci", Call::CreateComputeInstance as u32),
    ("destroy-gi", Call::DestroyGpuInstance as u32),
    ("destroy-ci", Call::DestroyComputeInstance as u32),
    ("set-mode", Call::SetMode as u32),
    ("change", 31),
];

/// Longest time in a fault, seconds: more is a slip, and would not fit the clock.
const LONGEST: f64 = 1e6;

/// A fault that is not understood.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// Its text.
    #[error("SIMGPU_FAULTS: `{fault}`: {why}")]
    Text {
        /// The fault, as written.
        fault: String,
        /// What is wrong with it.
        why: String,
    },
    /// There is no room for so many.
    #[error("SIMGPU_FAULTS: {0} faults, a simulated machine has room for {FAULTS}")]
    TooMany(usize),
}

/// Reads faults for a machine of `gpus` GPUs.
pub(crate) fn parse(text: &str, gpus: u32) -> Result<Vec<Fault>, FaultError> {
    let faults: Vec<Fault> = text
        .split(';')
        .map(str::trim)
        .filter(|fault| !fault.is_empty())
        .map(|fault| {
            one(fault, gpus).map_err(|why| FaultError::Text {
                fault: fault.to_owned(),
                why,
            })
        })
        .collect::<Result<_, _>>()?;
    if faults.len() > FAULTS {
        return Err(FaultError::TooMany(faults.len()));
    }
    Ok(faults)
}

fn one(text: &str, gpus: u32) -> Result<Fault, String> {
    let (place, effect) = text.split_once('=').ok_or("no `=` with what is to happen")?;
    let (gpu, when) = match place.split_once('/') {
        Some((gpu, when)) => (Some(gpu_index(gpu, gpus)?), when),
        None => (None, place),
    };
    let fault = Fault {
        gpu,
        when: moment(when)?,
        effect: outcome(effect)?,
    };
    if matches!(fault.when, When::After(_)) && fault.effect != Effect::Lose {
        return Err("at a time a GPU can only be `lost`".to_owned());
    }
    Ok(fault)
}

fn gpu_index(text: &str, gpus: u32) -> Result<u32, String> {
    text.strip_prefix("gpu")
        .and_then(|number| number.parse().ok())
        .filter(|index| *index < gpus)
        .ok_or_else(|| {
            format!(
                "`{text}` is none of the GPUs gpu0 to gpu{}",
                gpus.saturating_sub(1)
            )
        })
}

fn moment(text: &str) -> Result<When, String> {
    if text.starts_with(|first: char| first.is_ascii_digit()) {
        let seconds = text.strip_suffix('s').and_then(|number| number.parse().ok());
        let seconds = seconds.filter(|seconds: &f64| (0.0..=LONGEST).contains(seconds));
        return seconds
            .map(When::After)
            .ok_or_else(|| format!("`{text}` is no number of seconds, as 2.5s"));
    }
    // No name of a call has an x in it.
    let (rest, times) = text.split_once('x').unwrap_or((text, "1"));
    let (call, first) = rest.split_once('@').unwrap_or((rest, "1"));
    let calls = CALLS.iter().find(|(name, _)| *name == call);
    let &(_, calls) = calls.ok_or_else(|| format!("`{call}` is none of the calls {}", names(&CALLS)))?;
    let number = |text: &str| {
        let number: Option<u64> = text.parse().ok().filter(|number| *number > 0);
        number.ok_or_else(|| format!("`{text}` is no number of calls (1 or more)"))
    };
    let first = number(first)?;
    let last = match times {
        "*" => u64::MAX,
        times => first.saturating_add(number(times)? - 1),
    };
    Ok(When::Calls { calls, first, last })
}

fn outcome(text: &str) -> Result<Effect, String> {
    if text == "lost" {
        return Ok(Effect::Lose);
    }
    if let Some(number) = text.strip_suffix("ms") {
        let milliseconds = number.parse().ok();
        let milliseconds =
            milliseconds.filter(|milliseconds: &f64| (0.0..=LONGEST * 1e3).contains(milliseconds));
        return milliseconds
            .map(|milliseconds| Effect::Delay(Duration::from_secs_f64(milliseconds / 1e3)))
            .ok_or_else(|| format!("`{text}` is no number of milliseconds, as 250ms"));
    }
    let is_it = |(name, code): &&(&str, u32)| *name == text || text.parse() == Ok(*code);
    RESULTS
        .iter()
        .find(is_it)
        .map(|&(_, code)| Effect::Refuse(code))
        .ok_or_else(|| {
            format!(
                "`{text}` is neither lost, nor a time as 250ms, nor an NVML result: {}",
                names(&RESULTS)
            )
        })
}

fn names(of: &[(&str, u32)]) -> String {
    of.iter().map(|(name, _)| *name).collect::<Vec<_>>().join(", ")
}
