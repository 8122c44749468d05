//! Indices of an array of jobs, as Slurm's `sbatch --array` takes them: `0-9`, `1,3,5-7`, `0-15:4`, and `%4` behind
//! for four of them at a time.

use std::collections::BTreeSet;
use std::str::FromStr;

use migm_shared::ids::JobId;

use crate::control::Element;

/// An array has no more jobs than this: each has a runner of its own.
pub const MOST: usize = 1000;

/// The indices of an array.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Indices {
    /// Ascending, each once; never empty.
    pub indices: Vec<u32>,
    /// How many of them may be under way at the same time.
    pub at_once: Option<u32>,
}

impl Indices {
    /// The places of its jobs in an array of this number.
    pub fn elements(&self, array: JobId) -> impl Iterator<Item = Element> + '_ {
        let count = u32::try_from(self.indices.len()).unwrap_or(u32::MAX);
        self.indices.iter().map(move |&index| Element {
            array,
            index,
            count,
            at_once: self.at_once,
        })
    }
}

impl FromStr for Indices {
    type Err = String;

    fn from_str(given: &str) -> Result<Self, String> {
        let wrong = |what: &str, why: &str| format!("`{given}` is no array: `{what}` {why}");
        let number = |text: &str| {
            text.parse::<u32>().map_err(|_| {
                wrong(
                    text,
                    "is no index; say A-B, a list such as 1,3,5-7, or A-B:STEP, with %MAX behind",
                )
            })
        };
        let (list, at_once) = match given.split_once('%') {
            None => (given, None),
            Some((list, most)) => match most.parse::<u32>() {
                Ok(most) if most > 0 => (list, Some(most)),
                _ => return Err(wrong(most, "is no number of jobs above 0")),
            },
        };
        let mut indices = BTreeSet::new();
        for part in list.split(',') {
            let (range, step) = match part.split_once(':') {
                None => (part, 1),
                Some((range, step)) => (range, number(step)?),
            };
            let (first, last) = match range.split_once('-') {
                None => (number(range)?, number(range)?),
                Some((first, last)) => (number(first)?, number(last)?),
            };
            if last < first {
                return Err(wrong(part, "ends before it begins"));
            }
            if step == 0 {
                return Err(wrong(part, "has a step of 0"));
            }
            let step = usize::try_from(step).unwrap_or(usize::MAX);
            indices.extend((first..=last).step_by(step).take(MOST + 1));
            if indices.len() > MOST {
                return Err(format!("`{given}` is no array: it has more than {MOST} jobs"));
            }
        }
        Ok(Self {
            indices: indices.into_iter().collect(),
            at_once,
        })
    }
}

/// Ascending indices for people: `0-9,12`, of many ranges the first ones.
#[must_use]
pub fn ranges(indices: &[u32]) -> String {
    const SHOWN: usize = 4;
    let mut words: Vec<String> = Vec::new();
    for range in indices.chunk_by(|one, next| one.checked_add(1) == Some(*next)) {
        if words.len() == SHOWN {
            words.push("...".to_owned());
            break;
        }
        words.push(match *range {
            [only] => only.to_string(),
            [first, .., last] => format!("{first}-{last}"),
            [] => continue,
        });
    }
    words.join(",")
}

/// Reads an element as [`words`] writes it.
///
/// # Errors
/// It is none.
pub fn element(given: &str) -> Result<Element, String> {
    let numbers: Option<Vec<u32>> = given.split(':').skip(1).map(|part| part.parse().ok()).collect();
    let array = given.split(':').next().and_then(|part| part.parse().ok());
    match (array, numbers.as_deref()) {
        (Some(array), Some(&[index, count, at_once])) => Ok(Element {
            array: JobId(array),
            index,
            count,
            at_once: (at_once > 0).then_some(at_once),
        }),
        _ => Err(format!("`{given}` is not of the form ARRAY:INDEX:COUNT:MAX")),
    }
}

/// An element in words for [`element`], from one process of ours to another.
#[must_use]
pub fn words(element: &Element) -> String {
    let Element {
        array,
        index,
        count,
        at_once,
    } = element;
    format!("{array}:{index}:{count}:{}", at_once.unwrap_or(0))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn indices(given: &str) -> Vec<u32> {
        given.parse::<Indices>().unwrap().indices
    }

    #[test]
    fn ranges_lists_and_steps() {
        assert_eq!(indices("3"), [3]);
        assert_eq!(indices("0-3"), [0, 1, 2, 3]);
        assert_eq!(indices("7,1,3-5,4"), [1, 3, 4, 5, 7]);
        assert_eq!(indices("0-15:4"), [0, 4, 8, 12]);
        assert_eq!(indices("4294967295"), [u32::MAX]);
        let most: Indices = "0-9%4".parse().unwrap();
        assert_eq!((most.indices.len(), most.at_once), (10, Some(4)));
    }

    #[test]
    fn ranges_for_people() {
        let evens: Vec<u32> = (0..100).step_by(2).collect();
        for (indices, words) in [
            (&[7][..], "7"),
            (&[0, 1, 2, 9], "0-2,9"),
            (&[u32::MAX - 1, u32::MAX], "4294967294-4294967295"),
            (&evens, "0,2,4,6,..."),
            (&[], ""),
        ] {
            assert_eq!(ranges(indices), words);
        }
    }

    #[test]
    fn what_is_no_array_is_named() {
        for (given, words) in [
            ("", "`` is no index"),
            ("a-b", "`a` is no index"),
            ("1,,2", "`` is no index"),
            ("5-2", "`5-2` ends before it begins"),
            ("0-9%0", "`0` is no number of jobs"),
            ("0-9%", "`` is no number of jobs"),
            ("0-9:0", "`0-9:0` has a step of 0"),
            ("-1", "`` is no index"),
            ("0-4294967295", "more than 1000 jobs"),
            ("0-999,2000", "more than 1000 jobs"),
        ] {
            let said = given.parse::<Indices>().unwrap_err();
            assert!(said.contains(words), "{given}: {said}");
        }
    }

    #[test]
    fn an_element_survives_a_command_line() {
        let all: Indices = "2,5%1".parse().unwrap();
        for one in all.elements(JobId(40)) {
            assert_eq!(element(&words(&one)), Ok(one));
        }
        let free: Indices = "8".parse().unwrap();
        let one = free.elements(JobId(1)).next().unwrap();
        assert_eq!((words(&one).as_str(), element("1:8:1:0")), ("1:8:1:0", Ok(one)));
        assert!(element("1:2:3").is_err() && element("x:1:2:3").is_err());
    }
}
