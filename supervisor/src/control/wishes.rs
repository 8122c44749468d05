//! What a job's user asks for beyond its memory and length.

use std::fmt;

use bincode::{Decode, Encode};
use migm_shared::ids::JobId;
use serde::{Deserialize, Serialize};

/// What a user asks for. The default asks for nothing.
#[derive(Clone, Debug, Default, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
#[serde(default)]
pub struct Wishes {
    /// Higher goes first; 0 is usual.
    pub priority: i32,
    /// A slice of this profile only, by the driver's name (`1g.5gb`).
    pub profile: Option<String>,
    /// A whole GPU with nobody beside it.
    pub exclusive: bool,
    /// GPUs by NVML's index, of those that `CUDA_VISIBLE_DEVICES` leaves; empty for all of them.
    pub devices: Vec<u32>,
    /// Jobs that must have ended before it waits for a slice.
    pub after: Vec<After>,
    /// Its place in an array.
    pub element: Option<Element>,
    /// Its runner belongs to no terminal.
    pub detached: bool,
}

/// A job that must have ended before another one begins.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct After {
    /// Which.
    pub job: JobId,
    /// Its end will do, however it ended; else it must have ended well.
    pub any: bool,
}

/// A job's place in an array of jobs of one command.
#[derive(Clone, Copy, Debug, Eq, PartialEq, Encode, Decode, Serialize, Deserialize)]
pub struct Element {
    /// The array's number, of the same series as those of jobs.
    pub array: JobId,
    /// Its index, as the user has numbered them.
    pub index: u32,
    /// How many jobs the array has.
    pub count: u32,
    /// How many of them may have a slice, or wait for one, at the same time; `None` for all.
    pub at_once: Option<u32>,
}

/// A job's number as people see and say it: `7`, and `7_2` for the job of index 2 in array 7.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ShownId(pub JobId, pub Option<Element>);

impl fmt::Display for ShownId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self.1 {
            Some(element) => write!(f, "{}_{}", element.array, element.index),
            None => self.0.fmt(f),
        }
    }
}

/// A number for a job, text for one of an array.
impl Serialize for ShownId {
    fn serialize<S: serde::Serializer>(&self, to: S) -> Result<S::Ok, S::Error> {
        match self.1 {
            Some(_) => to.collect_str(self),
            None => self.0.serialize(to),
        }
    }
}

/// What matters for where and when it runs, in words; empty where nothing is asked for.
impl fmt::Display for Wishes {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut parts = Vec::new();
        if self.priority != 0 {
            parts.push(format!("priority {}", self.priority));
        }
        if let Some(profile) = &self.profile {
            parts.push(format!("profile {profile}"));
        }
        if self.exclusive {
            parts.push("a GPU for itself".to_owned());
        }
        if !self.devices.is_empty() {
            let devices: Vec<String> = self.devices.iter().map(u32::to_string).collect();
            parts.push(format!("GPU {}", devices.join(" or ")));
        }
        f.write_str(&parts.join(", "))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_job_of_an_array_is_shown_by_array_and_index() {
        let element = Element {
            array: JobId(7),
            index: 2,
            count: 4,
            at_once: None,
        };
        let alone = ShownId(JobId(9), None);
        let one = ShownId(JobId(9), Some(element));
        assert_eq!((alone.to_string(), one.to_string()), ("9".into(), "7_2".into()));
        assert_eq!(serde_json::to_string(&[alone, one]).unwrap(), "[9,\"7_2\"]");
    }

    #[test]
    fn wishes_in_words() {
        let wishes = Wishes {
            priority: -3,
            profile: Some("2g.10gb".into()),
            devices: vec![0, 2],
            ..Wishes::default()
        };
        assert_eq!(wishes.to_string(), "priority -3, profile 2g.10gb, GPU 0 or 2");
        assert_eq!(Wishes::default().to_string(), "");
    }
}
