//! How a user names a job: `7`, `7_2`, or its name.

use std::convert::Infallible;
use std::fmt;
use std::path::{Path, PathBuf};
use std::str::FromStr;

use migm_shared::ids::JobId;

use super::{Record, folder};
use crate::control::Element;

/// What a user calls a job, or several.
#[derive(Clone, Debug, Eq, PartialEq)]
pub enum Selector {
    /// A job, or all of an array, by number.
    Number(JobId),
    /// A job of an array.
    Element(JobId, u32),
    /// Those of this name.
    Name(String),
}

impl FromStr for Selector {
    type Err = Infallible;

    fn from_str(given: &str) -> Result<Self, Infallible> {
        if let Ok(number) = given.parse() {
            return Ok(Self::Number(JobId(number)));
        }
        let element = given
            .split_once('_')
            .and_then(|(array, index)| Some((array.parse().ok()?, index.parse().ok()?)));
        Ok(match element {
            Some((array, index)) => Self::Element(JobId(array), index),
            None => Self::Name(given.to_owned()),
        })
    }
}

impl fmt::Display for Selector {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Number(job) => job.fmt(f),
            Self::Element(array, index) => write!(f, "{array}_{index}"),
            Self::Name(name) => write!(f, "`{name}`"),
        }
    }
}

impl Selector {
    /// Whether it means this job.
    #[must_use]
    pub fn takes(&self, id: JobId, element: Option<&Element>, name: &str) -> bool {
        match self {
            Self::Number(number) => id == *number || element.is_some_and(|one| one.array == *number),
            Self::Element(array, index) => {
                element.is_some_and(|one| (one.array, one.index) == (*array, *index))
            }
            Self::Name(wanted) => name == wanted,
        }
    }

    /// The kept jobs that it means, in order of submission: those that live, else the last that has ended, with all of
    /// its array unless one of them is named.
    #[must_use]
    pub fn kept(&self, place: &Path) -> Vec<(PathBuf, Record)> {
        self.of(folder::all(place))
    }

    fn of(&self, all: Vec<(PathBuf, Record)>) -> Vec<(PathBuf, Record)> {
        let mut found = all;
        found.retain(|(_, record)| self.takes(record.id, record.wishes.element.as_ref(), &record.name));
        let Some((_, last)) = found.last() else {
            return found;
        };
        if matches!(self, Self::Name(_)) && found.iter().any(|(_, record)| record.is_live()) {
            found.retain(|(_, record)| record.is_live());
            return found;
        }
        let last = last.clone();
        let array = last.wishes.element.map(|element| element.array);
        found.retain(|(_, record)| {
            let same_array = array.is_some() && record.wishes.element.map(|element| element.array) == array;
            record.nonce == last.nonce || same_array && record.socket == last.socket
        });
        if matches!(self, Self::Element(..)) {
            found.drain(..found.len() - 1);
        }
        found
    }
}

#[cfg(test)]
mod tests {
    use super::super::folder::tests::record;
    use super::*;
    use crate::job::descendants::Identity;

    fn selector(given: &str) -> Selector {
        given.parse().unwrap()
    }

    #[test]
    fn numbers_elements_and_names() {
        assert_eq!(selector("7"), Selector::Number(JobId(7)));
        assert_eq!(selector("7_2"), Selector::Element(JobId(7), 2));
        for name in ["train", "7_x", "_2", "7_", "train_2", "-7"] {
            assert_eq!(selector(name), Selector::Name(name.into()), "{name}");
        }
    }

    #[test]
    fn a_number_is_the_last_that_had_it_or_a_whole_array() {
        let array = Element {
            array: JobId(3),
            index: 0,
            count: 2,
            at_once: None,
        };
        let mut all: Vec<Record> = [3, 4, 5].map(|id| record(id, "one")).into();
        for (index, id) in [(0, 4), (1, 5)] {
            all[id - 3].wishes.element = Some(Element { index, ..array });
        }
        let mut again = record(3, "again");
        again.nonce = 99;
        again.submitted = 3.5;
        let ids = |given: &str, all: &[Record]| {
            let all = all
                .iter()
                .map(|record| (PathBuf::new(), record.clone()))
                .collect();
            let found = selector(given).of(all);
            found
                .iter()
                .map(|(_, record)| record.shown_id().to_string())
                .collect::<Vec<_>>()
        };
        assert_eq!(
            ids("3", &all),
            ["3_0", "3_1"],
            "the array is younger than the job of that number"
        );
        assert_eq!(ids("3_1", &all), ["3_1"]);
        assert_eq!(ids("4", &all), ["3_0", "3_1"][..1]);
        assert_eq!(ids("one", &all), ["3_0", "3_1"]);
        all[0].end = None;
        all[0].runner = Identity::of(std::process::id()).unwrap();
        assert_eq!(ids("one", &all), ["3"], "of a name the living ones");
        assert_eq!(ids("again", &all), [""; 0]);
        assert_eq!(ids("again", &[again]), ["3"]);
    }
}
