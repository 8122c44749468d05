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
//! ```

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::fmt;
use std::path::{Path, PathBuf};

use migm_shared::units::Bytes;
use serde::de::{Error, SeqAccess, Visitor};
use serde::{Deserialize, Deserializer};

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
        Ok(Self {
            name: String::new(),
            jobs: file.job.into_iter().flat_map(JobTable::expand).collect(),
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
    name: Option<String>,
    command: Command,
    #[serde(default = "one", deserialize_with = "at_least_one")]
    count: u64,
    mem: Option<Size>,
    #[serde(default, deserialize_with = "some_at_least_one")]
    iterations: Option<u64>,
    #[serde(default, deserialize_with = "moment")]
    arrival_s: f64,
    #[serde(default, deserialize_with = "variables")]
    env: BTreeMap<String, String>,
    part: Option<String>,
    #[serde(default, rename = "after", deserialize_with = "not_yet_after")]
    _after: (),
    #[serde(default, rename = "priority", deserialize_with = "not_yet_priority")]
    _priority: (),
    #[serde(default, deserialize_with = "length")]
    duration_s: Option<f64>,
    trace: Option<PathBuf>,
}

impl JobTable {
    fn expand(self) -> impl Iterator<Item = JobSpec> {
        let program = || {
            let words = &self.command.words;
            let shown = if self.command.by_shell {
                &words[2]
            } else {
                &words[0]
            };
            let first = shown.split_whitespace().next().unwrap_or("job");
            let name = Path::new(first).file_name().unwrap_or_default();
            name.to_string_lossy().into_owned()
        };
        let name = self.name.clone().unwrap_or_else(program);
        (1..=self.count).map(move |number| JobSpec {
            name: if self.count == 1 {
                name.clone()
            } else {
                format!("{name}-{number}")
            },
            command: self.command.words.iter().map(OsString::from).collect(),
            mem: self.mem.map(|size| size.0),
            iterations: self.iterations,
            arrival: self.arrival_s,
            env: self.env.clone(),
            part: self.part.clone(),
            duration: self.duration_s,
            trace: self.trace.clone(),
        })
    }
}

fn one() -> u64 {
    1
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

macro_rules! not_yet {
    ($($function:ident $field:literal)*) => {$(
        fn $function<'de, D: Deserializer<'de>>(_: D) -> Result<(), D::Error> {
            Err(D::Error::custom(concat!("`", $field, "` is not supported yet")))
        }
    )*};
}

not_yet! {
    not_yet_after "after"
    not_yet_priority "priority"
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
                Ok(Command {
                    words: vec!["sh".into(), "-c".into(), line.into()],
                    by_shell: true,
                })
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Command, A::Error> {
                let mut words = Vec::new();
                while let Some(word) = list.next_element::<String>()? {
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
            duration: None,
            trace: None,
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
        assert_eq!(job("after = ['a']"), "b.toml:3:9: `after` is not supported yet");
        assert_eq!(
            job("priority = 4"),
            "b.toml:3:12: `priority` is not supported yet"
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
}
