//! The jobs of a batch, from TOML.
//!
//! ```toml
//! [[job]]
//! name = "train"
//! command = ["python", "train.py"]   # or one string for sh
//! count = 3
//! mem = "4.5G"
//! iterations = 200
//! arrival_s = 30
//! part = "small"
//! env = { OMP_NUM_THREADS = "2" }
//! after = ["prepare"]                # or after_any: their end, well or not
//! priority = 5
//! profile = "2g.10gb"                # or exclusive = true
//! device = [0]
//!
//! [[job]]
//! name = "sweep"
//! command = "python sweep.py $MIGM_ARRAY_INDEX"
//! array = "0-9%4"                    # in place of count
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::ops::Range;
use std::path::{Path, PathBuf};

use migm_shared::units::Bytes;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};
use toml::Spanned;

use super::order::{self, Named};
use crate::job::array::Indices;
use crate::job::name_of_program;

/// So many jobs has a batch at most; each is a process of its own.
const MOST: u64 = 100_000;

/// A batch as it is to be run.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct BatchSpec {
    /// Name for people.
    pub name: String,
    /// In order of submission.
    pub jobs: Vec<JobSpec>,
}

/// One job of a batch.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct JobSpec {
    /// Name for people.
    pub name: String,
    /// Program and arguments; never empty.
    pub command: Vec<OsString>,
    /// Device bytes that it is said to need.
    pub mem: Option<u64>,
    /// Iterations that it is said to run.
    pub iterations: Option<u64>,
    /// When it is submitted, simulated seconds after the batch's start.
    pub arrival: f64,
    /// Set for the program, over the batch's own environment.
    pub env: BTreeMap<String, String>,
    /// Part of the batch that the report sums up apart.
    pub part: Option<String>,
    /// Seconds that it takes alone on the whole GPU. For `simulate`; a real run does not need it.
    pub duration: Option<f64>,
    /// Its memory over its run, as a trace file. For `simulate` too.
    pub trace: Option<PathBuf>,
    /// Those that must have ended before it begins. It arrives no earlier than they.
    pub after: Vec<Before>,
    /// Its place in an array.
    pub element: Option<ArrayPlace>,
    /// Higher goes first; 0 is usual.
    pub priority: i32,
    /// A slice of this profile only.
    pub profile: Option<String>,
    /// A whole GPU with nobody beside it.
    pub exclusive: bool,
    /// These GPUs only; empty for all.
    pub devices: Vec<u32>,
}

/// A job that comes before another one.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Before {
    /// Index in [`BatchSpec::jobs`].
    pub job: usize,
    /// Its end will do, however it ended.
    pub any: bool,
}

/// A place in an array that has no number yet.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct ArrayPlace {
    /// Which array of the file.
    pub table: usize,
    /// Its index.
    pub index: u32,
    /// How many jobs the array has.
    pub count: u32,
    /// How many may be under way at the same time.
    pub at_once: Option<u32>,
}

/// Why a batch file is refused. Nothing has been started then.
#[derive(Debug, thiserror::Error)]
pub enum SpecError {
    /// The file cannot be read.
    #[error("cannot read {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// What the kernel says.
        source: std::io::Error,
    },
    /// It does not say what a batch file must.
    #[error("{}:{line}:{column}: {message}", path.display())]
    Field {
        /// The file.
        path: PathBuf,
        /// From 1.
        line: usize,
        /// From 1, in characters.
        column: usize,
        /// What is wrong there.
        message: String,
    },
}

impl BatchSpec {
    /// Reads a batch file.
    ///
    /// # Errors
    /// See [`SpecError`].
    pub fn read(path: &Path) -> Result<Self, SpecError> {
        let text = std::fs::read_to_string(path).map_err(|source| SpecError::Read {
            path: path.to_owned(),
            source,
        })?;
        let mut spec = Self::parse(path, &text)?;
        spec.name = path
            .file_stem()
            .unwrap_or_default()
            .to_string_lossy()
            .into_owned();
        Ok(spec)
    }

    /// Reads the text of a batch file; `path` is for errors.
    ///
    /// # Errors
    /// [`SpecError::Field`].
    pub fn parse(path: &Path, text: &str) -> Result<Self, SpecError> {
        let at = |offset: usize, message: String| {
            let before = text.get(..offset).unwrap_or(text);
            let line_start = before.rfind('\n').map_or(0, |newline| newline + 1);
            SpecError::Field {
                path: path.to_owned(),
                line: before.matches('\n').count() + 1,
                column: before[line_start..].chars().count() + 1,
                message: message.replace('\n', " "),
            }
        };
        let file: BatchFile = toml::from_str(text).map_err(|error| {
            let offset = error.span().map_or(0, |span| span.start);
            at(offset, error.message().to_owned())
        })?;
        if file.job.is_empty() {
            return Err(at(text.len(), "the batch has no [[job]]".into()));
        }
        let mut jobs = Vec::new();
        let mut tables = Vec::new();
        for (number, table) in file.job.into_iter().enumerate() {
            if let (Some(_), Some(array)) = (table.count, &table.array) {
                return Err(at(
                    array.span().start,
                    "`array` and `count` both say how many jobs there are".into(),
                ));
            }
            if let (Some(profile), true) = (&table.profile, table.exclusive) {
                let message =
                    "`profile` and `exclusive` cannot both be: one is a slice, the other a whole GPU";
                return Err(at(profile.span().start, message.into()));
            }
            let first = jobs.len();
            if first as u64 + table.count.unwrap_or(1) > MOST {
                return Err(at(text.len(), format!("the batch has more than {MOST} jobs")));
            }
            let (name, after) = (table.shown_name(), table.named());
            jobs.extend(table.expand(number));
            tables.push(Named {
                name,
                jobs: first..jobs.len(),
                after,
            });
        }
        order::settle(&tables, &mut jobs).map_err(|(offset, message)| at(offset, message))?;
        Ok(Self {
            name: String::new(),
            jobs,
        })
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct BatchFile {
    #[serde(default)]
    job: Vec<JobTable>,
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct JobTable {
    #[serde(default, deserialize_with = "name")]
    name: Option<String>,
    command: Command,
    #[serde(default, deserialize_with = "count")]
    count: Option<u64>,
    array: Option<Spanned<Array>>,
    mem: Option<Size>,
    #[serde(default, deserialize_with = "some_at_least_one")]
    iterations: Option<u64>,
    #[serde(default, deserialize_with = "moment")]
    arrival_s: f64,
    #[serde(default, deserialize_with = "variables")]
    env: BTreeMap<String, String>,
    #[serde(default, deserialize_with = "name")]
    part: Option<String>,
    #[serde(default)]
    after: Vec<Spanned<String>>,
    #[serde(default)]
    after_any: Vec<Spanned<String>>,
    #[serde(default)]
    priority: i32,
    profile: Option<Spanned<String>>,
    #[serde(default)]
    exclusive: bool,
    #[serde(default)]
    device: Vec<u32>,
    #[serde(default, deserialize_with = "length")]
    duration_s: Option<f64>,
    trace: Option<PathBuf>,
}

impl JobTable {
    /// Its name, or its program's.
    fn shown_name(&self) -> String {
        let program = || {
            let words = &self.command.words;
            let shown = if self.command.by_shell {
                &words[2]
            } else {
                &words[0]
            };
            let first = shown.split_whitespace().next().unwrap_or("job");
            let name = Path::new(first).file_name().unwrap_or_default();
            name_of_program(&name.to_string_lossy())
        };
        self.name.clone().unwrap_or_else(program)
    }

    /// What comes before it.
    fn named(&self) -> Vec<(String, Range<usize>, bool)> {
        let of = |names: &[Spanned<String>], any| {
            let one = move |name: &Spanned<String>| (name.get_ref().clone(), name.span(), any);
            names.iter().map(one).collect::<Vec<_>>()
        };
        [of(&self.after, false), of(&self.after_any, true)].concat()
    }

    fn expand(self, table: usize) -> Vec<JobSpec> {
        let name = self.shown_name();
        let job = |name: String, element: Option<ArrayPlace>| JobSpec {
            name,
            command: self.command.words.iter().map(OsString::from).collect(),
            mem: self.mem.map(|size| size.0),
            iterations: self.iterations,
            arrival: self.arrival_s,
            env: self.env.clone(),
            part: self.part.clone(),
            duration: self.duration_s,
            trace: self.trace.clone(),
            after: Vec::new(),
            element,
            priority: self.priority,
            profile: self.profile.as_ref().map(|profile| profile.get_ref().clone()),
            exclusive: self.exclusive,
            devices: self.device.clone(),
        };
        if let Some(array) = &self.array {
            let Indices { indices, at_once } = &array.get_ref().0;
            let count = u32::try_from(indices.len()).unwrap_or(u32::MAX);
            let place = |index| ArrayPlace {
                table,
                index,
                count,
                at_once: *at_once,
            };
            let one = |&index: &u32| job(format!("{name}-{index}"), Some(place(index)));
            return indices.iter().map(one).collect();
        }
        match self.count {
            None | Some(1) => vec![job(name, None)],
            Some(count) => (1..=count)
                .map(|number| job(format!("{name}-{number}"), None))
                .collect(),
        }
    }
}

/// Indices of an array.
struct Array(Indices);

impl<'de> Deserialize<'de> for Array {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        let text = String::deserialize(value)?;
        text.parse().map(Self).map_err(D::Error::custom)
    }
}

/// `u64` with 0 refused.
fn at_least_one<'de, D: Deserializer<'de>>(value: D) -> Result<u64, D::Error> {
    let number = u64::deserialize(value)?;
    if number == 0 {
        return Err(D::Error::custom("must be at least 1, and is 0"));
    }
    Ok(number)
}

fn some_at_least_one<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    at_least_one(value).map(Some)
}

fn count<'de, D: Deserializer<'de>>(value: D) -> Result<Option<u64>, D::Error> {
    match at_least_one(value)? {
        count if count > MOST => Err(D::Error::custom(format_args!(
            "must be at most {MOST}, and is {count}"
        ))),
        count => Ok(Some(count)),
    }
}

fn name<'de, D: Deserializer<'de>>(value: D) -> Result<Option<String>, D::Error> {
    let given = String::deserialize(value)?;
    crate::job::name(&given).map(Some).map_err(D::Error::custom)
}

/// What becomes an argument of a process.
fn check_word<E: Error>(word: &str) -> Result<(), E> {
    match word.contains('\0') {
        true => Err(E::custom(format_args!(
            "{word:?} cannot be in a command: it has a zero byte"
        ))),
        false => Ok(()),
    }
}

fn moment<'de, D: Deserializer<'de>>(value: D) -> Result<f64, D::Error> {
    let seconds = f64::deserialize(value)?;
    if seconds.is_finite() && seconds >= 0.0 {
        return Ok(seconds);
    }
    Err(D::Error::custom(format_args!(
        "must be seconds from the batch's start, 0 or more, and is {seconds}"
    )))
}

fn length<'de, D: Deserializer<'de>>(value: D) -> Result<Option<f64>, D::Error> {
    let seconds = f64::deserialize(value)?;
    if seconds.is_finite() && seconds > 0.0 {
        return Ok(Some(seconds));
    }
    Err(D::Error::custom(format_args!(
        "must be seconds above 0, and is {seconds}"
    )))
}

fn variables<'de, D: Deserializer<'de>>(value: D) -> Result<BTreeMap<String, String>, D::Error> {
    let variables = BTreeMap::<String, String>::deserialize(value)?;
    let wrong = |(name, value): &(&String, &String)| {
        name.is_empty() || name.contains(['=', '\0']) || value.contains('\0')
    };
    match variables.iter().find(wrong) {
        Some((name, _)) => Err(D::Error::custom(format_args!(
            "{name:?} cannot be in an environment: no name may be empty or hold `=`, nothing a zero byte"
        ))),
        None => Ok(variables),
    }
}

/// Bytes, as a number or as text with a unit.
#[derive(Clone, Copy)]
struct Size(u64);

impl<'de> Deserialize<'de> for Size {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct SizeVisitor;
        impl Visitor<'_> for SizeVisitor {
            type Value = Size;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("bytes as a number, or a size such as \"4.5G\"")
            }

            fn visit_i64<E: Error>(self, bytes: i64) -> Result<Size, E> {
                u64::try_from(bytes)
                    .map(Size)
                    .map_err(|_| E::custom(format_args!("{bytes} is less than 0 bytes")))
            }

            fn visit_u64<E: Error>(self, bytes: u64) -> Result<Size, E> {
                Ok(Size(bytes))
            }

            fn visit_str<E: Error>(self, text: &str) -> Result<Size, E> {
                text.parse::<Bytes>()
                    .map(|bytes| Size(bytes.0))
                    .map_err(E::custom)
            }
        }
        value.deserialize_any(SizeVisitor)
    }
}

/// A program with its arguments, or a line for the shell.
struct Command {
    words: Vec<String>,
    by_shell: bool,
}

impl<'de> Deserialize<'de> for Command {
    fn deserialize<D: Deserializer<'de>>(value: D) -> Result<Self, D::Error> {
        struct CommandVisitor;
        impl<'de> Visitor<'de> for CommandVisitor {
            type Value = Command;

            fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("a list of the program and its arguments, or a line for the shell")
            }

            fn visit_str<E: Error>(self, line: &str) -> Result<Command, E> {
                if line.trim().is_empty() {
                    return Err(E::custom("the command is empty"));
                }
                check_word(line)?;
                Ok(Command {
                    words: vec!["sh".into(), "-c".into(), line.into()],
                    by_shell: true,
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Command, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element::<String>()? {
                    check_word(&word)?;
                    words.push(word);
                }
                if words.first().is_none_or(String::is_empty) {
                    return Err(A::Error::custom("the command is empty"));
                }
                Ok(Command {
                    words,
                    by_shell: false,
                })
            }
        }
        value.deserialize_any(CommandVisitor)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(text: &str) -> Result<BatchSpec, String> {
        BatchSpec::parse(Path::new("b.toml"), text).map_err(|error| error.to_string())
    }

    #[test]
    fn all_fields() {
        let spec = parse(
            "[[job]]\nname = 'a'\ncommand = ['x', 'y z']\ncount = 2\nmem = '4.5G'\niterations = 7\n\
             arrival_s = 1.5\npart = 'p'\nenv = { K = 'v' }\n[[job]]\ncommand = '/bin/echo a | cat'\nmem = 5\n",
        )
        .unwrap();
        let first = JobSpec {
            name: "a-1".into(),
            command: vec!["x".into(), "y z".into()],
            mem: Some(4_500_000_000),
            iterations: Some(7),
            arrival: 1.5,
            env: [("K".to_owned(), "v".to_owned())].into(),
            part: Some("p".into()),
            ..JobSpec::default()
        };
        assert_eq!(spec.jobs.len(), 3);
        assert_eq!(spec.jobs[0], first);
        assert_eq!(spec.jobs[1].name, "a-2");
        assert_eq!(spec.jobs[2].name, "echo");
        assert_eq!(spec.jobs[2].command[..2], ["sh", "-c"]);
        assert_eq!(spec.jobs[2].mem, Some(5));
    }

    #[test]
    fn what_is_wrong_is_named_with_line_and_column() {
        let job = |line: &str| parse(&format!("[[job]]\ncommand = 'x'\n{line}\n")).unwrap_err();
        assert!(job("memory = 4").starts_with("b.toml:3:1: unknown field `memory`, expected one of `name`"));
        assert_eq!(job("after = ['a']"), "b.toml:3:10: no job is named `a`");
        assert_eq!(
            job("after_any = ['x']"),
            "b.toml:3:14: `x` would wait for itself: x after x"
        );
        assert!(job("array = '3-1'").starts_with("b.toml:3:9: `3-1` is no array"));
        assert_eq!(
            job("count = 2\narray = '1-2'"),
            "b.toml:4:9: `array` and `count` both say how many jobs there are"
        );
        assert!(
            job("profile = '1g.5gb'\nexclusive = true").starts_with("b.toml:3:11: `profile` and `exclusive`")
        );
        assert_eq!(
            job("duration_s = 0.0"),
            "b.toml:3:14: must be seconds above 0, and is 0"
        );
        assert_eq!(job("count = 0"), "b.toml:3:9: must be at least 1, and is 0");
        assert_eq!(
            job("arrival_s = -1.0"),
            "b.toml:3:13: must be seconds from the batch's start, 0 or more, and is -1"
        );
        assert!(job("mem = '4X'").starts_with("b.toml:3:7: `4X` ends in `X`"));
        assert_eq!(job("mem = -4"), "b.toml:3:7: -4 is less than 0 bytes");
        assert!(job("env = { 'A=B' = 'c' }").starts_with("b.toml:3:7: \"A=B\" cannot be in an environment"));
        assert_eq!(
            parse("[[job]]\nname = 'ü' x").unwrap_err().split(": ").next(),
            Some("b.toml:2:12")
        );
        assert_eq!(
            parse("[[job]]\ncommand = []").unwrap_err(),
            "b.toml:2:11: the command is empty"
        );
        assert_eq!(
            job("count = 99999999999"),
            "b.toml:3:9: must be at most 100000, and is 99999999999"
        );
        assert_eq!(
            job("count = 100000\n[[job]]\ncommand = 'y'"),
            "b.toml:6:1: the batch has more than 100000 jobs"
        );
        assert_eq!(
            job("part = \"a\\u001b[2J\""),
            "b.toml:3:8: \"a\\u{1b}[2J\" is no name: it has a control character"
        );
        assert_eq!(
            parse("[[job]]\nname = \"a\\nb\"\ncommand = 'x'").unwrap_err(),
            "b.toml:2:8: \"a\\nb\" is no name: it has a control character"
        );
        assert_eq!(job("name = ''"), "b.toml:3:8: the name is empty");
        for command in ["\"a\\u0000b\"", "['a', \"a\\u0000b\"]"] {
            let said = parse(&format!("[[job]]\ncommand = {command}")).unwrap_err();
            assert!(
                said.ends_with("\"a\\0b\" cannot be in a command: it has a zero byte"),
                "{said}"
            );
        }
        assert_eq!(parse("\n").unwrap_err(), "b.toml:2:1: the batch has no [[job]]");
        assert!(
            parse("[[jobs]]\n")
                .unwrap_err()
                .starts_with("b.toml:1:3: unknown field `jobs`")
        );
        assert!(
            parse("[[job]]\nname = 'a'\n")
                .unwrap_err()
                .contains("missing field `command`")
        );
    }

    #[test]
    fn what_comes_before_what() {
        let spec = parse(
            "[[job]]\nname = 'end'\ncommand = 'x'\nafter = ['sweep', 'prepare']\nafter_any = ['sweep-3']\n\
             [[job]]\nname = 'prepare'\ncommand = 'x'\narrival_s = 5\npriority = -2\ndevice = [1]\n\
             [[job]]\nname = 'sweep'\ncommand = 'x'\narray = '0,3%1'\nafter = ['prepare']\nexclusive = true\n",
        )
        .unwrap();
        let job = |job, any| Before { job, any };
        assert_eq!(
            spec.jobs[0].after,
            [job(2, false), job(3, false), job(1, false), job(3, true)]
        );
        assert_eq!(
            (spec.jobs[2].name.as_str(), spec.jobs[3].name.as_str()),
            ("sweep-0", "sweep-3")
        );
        let place = ArrayPlace {
            table: 2,
            index: 3,
            count: 2,
            at_once: Some(1),
        };
        assert_eq!(
            (spec.jobs[3].element, spec.jobs[3].exclusive),
            (Some(place), true)
        );
        assert_eq!(
            (spec.jobs[1].priority, spec.jobs[1].devices.as_slice()),
            (-2, &[1][..])
        );
        let arrivals: Vec<f64> = spec.jobs.iter().map(|job| job.arrival).collect();
        assert_eq!(arrivals, [5.0; 4], "none arrives before those that it waits for");
        assert_eq!(order::in_order(&spec.jobs), [1, 2, 3, 0]);
    }

    #[test]
    fn a_circle_is_refused_with_the_way_round_it() {
        let circle = parse(
            "[[job]]\nname = 'a'\ncommand = 'x'\ncount = 2\nafter = ['c']\n\
             [[job]]\nname = 'b'\ncommand = 'x'\nafter = ['a']\n\
             [[job]]\nname = 'c'\ncommand = 'x'\nafter = ['b']\n",
        );
        let said = circle.unwrap_err();
        assert!(
            said.starts_with("b.toml:5:10: `a` would wait for itself: a-1 after c after b after a-"),
            "{said}"
        );
    }
}
