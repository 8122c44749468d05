//! The configuration file: TOML, each field optional, a wrong or unknown one refused with its line.

use std::path::{Path, PathBuf};
use std::str::FromStr;

use migm_shared::units::Bytes;
use nix::sys::signal::Signal;
use serde::Deserialize;

use crate::memory::Method;
use crate::node::MigMode;
use crate::schedule::{PolicyName, QueueOrder, UnknownPolicy};

/// What an operator may set.
#[derive(Clone, Debug, PartialEq, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Config {
    /// Where to listen; the command line goes first.
    pub socket: Option<PathBuf>,
    /// Where the state file is kept; beside the socket if not set. Instances do not outlive a reboot, so a
    /// folder that is emptied by one is right.
    pub state_dir: Option<PathBuf>,
    /// How jobs are placed: `migm`, by what each slice is worth to all jobs together, `scheme-b`, the tightest slice made
    /// on demand, `sequential`, each GPU whole, or another of `migm simulate`.
    #[serde(deserialize_with = "policy")]
    pub policy: PolicyName,
    /// In which order a policy that has the choice takes the jobs that wait: `free`, or `fifo`. Read into `policy`.
    #[serde(deserialize_with = "order")]
    pub order: Option<QueueOrder>,
    /// Who may have a batch served by another policy for its time: `operator` (root and the supervisor's own user) or
    /// `anyone`.
    #[serde(deserialize_with = "batch_policy")]
    pub batch_policy: BatchPolicy,
    /// How peaks are forecast: `migm`, `paper`, `paper-cumulative` or `max`.
    #[serde(deserialize_with = "method")]
    pub predictor: Method,
    /// Which GPUs are used, and how: `auto`, `mig`, `soft` or `whole`. No GPU's MIG mode is ever changed.
    #[serde(deserialize_with = "mode")]
    pub mode: Mode,
    /// Bytes of a soft slice for a job of which nothing is known; an eighth of the GPU if not set.
    #[serde(deserialize_with = "some_size")]
    pub soft_first: Option<u64>,
    /// What a process's context is taken to cost on a shared GPU until that has been measured there.
    #[serde(deserialize_with = "size")]
    pub soft_context: u64,
    /// What a soft slice says to the CUDA multi-process service (MPS), where its daemon runs: `off`, `share` or
    /// `limit`.
    #[serde(deserialize_with = "mps")]
    pub mps: Mps,
    /// Seconds after a start in which runners of an earlier supervisor may come back before their leases
    /// are looked into.
    pub grace_s: f64,
    /// Milliseconds between two looks at the memory of busy slices.
    pub sample_ms: u64,
    /// Signal for a watched process that is about to run out of memory; none if not set.
    #[serde(deserialize_with = "signal")]
    pub watched_signal: Option<Signal>,
}

impl Default for Config {
    fn default() -> Self {
        Self {
            socket: None,
            state_dir: None,
            policy: PolicyName::default(),
            order: None,
            batch_policy: BatchPolicy::default(),
            predictor: Method::default(),
            mode: Mode::default(),
            soft_first: None,
            // Contexts of data-centre GPUs are seen between 300 and 500 MiB.
            soft_context: 512 << 20,
            mps: Mps::default(),
            grace_s: 10.0,
            sample_ms: 200,
            watched_signal: None,
        }
    }
}

/// Which GPUs are used, by the MIG mode that each is in.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mode {
    /// All: those with MIG on by its slices, the others shared as soft slices.
    #[default]
    Auto,
    /// Those with MIG on.
    Mig,
    /// Those without, shared as soft slices.
    Soft,
    /// Those without, each by one job at a time.
    Whole,
}

impl Mode {
    const ALL: [Self; 4] = [Self::Auto, Self::Mig, Self::Soft, Self::Whole];

    /// As it is written.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Auto => "auto",
            Self::Mig => "mig",
            Self::Soft => "soft",
            Self::Whole => "whole",
        }
    }

    /// Whether a GPU in this MIG mode is used.
    #[must_use]
    pub const fn takes(self, mode: MigMode) -> bool {
        match self {
            Self::Auto => true,
            Self::Mig => mode.is_on(),
            Self::Soft | Self::Whole => !mode.is_on(),
        }
    }

    /// Whether a GPU without instances is shared by jobs.
    #[must_use]
    pub fn shares(self, policy: &PolicyName) -> bool {
        self != Self::Whole && *policy != PolicyName::Sequential
    }

    /// Whether a simulated GPU, which is ours, has MIG on.
    #[must_use]
    pub const fn wants_mig(self) -> bool {
        matches!(self, Self::Auto | Self::Mig)
    }
}

impl FromStr for Mode {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        let found = Self::ALL.into_iter().find(|mode| mode.word() == text);
        found.ok_or_else(|| format!("`{text}` is no mode; there are auto, mig, soft and whole"))
    }
}

/// Who may have a batch served by another policy.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum BatchPolicy {
    /// Root and the supervisor's own user.
    #[default]
    Operator,
    /// Every user.
    Anyone,
}

impl FromStr for BatchPolicy {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "operator" => Ok(Self::Operator),
            "anyone" => Ok(Self::Anyone),
            _ => Err(format!("`{text}` is nobody; there are operator and anyone")),
        }
    }
}

/// What the command line says of the policy; it goes before the configuration.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Told {
    /// With the order that goes with it, whatever the configuration's.
    pub policy: Option<PolicyName>,
    /// For whichever policy it is.
    pub order: Option<QueueOrder>,
}

impl Told {
    /// The policy to serve by.
    ///
    /// # Errors
    /// It has no order to choose, and one is told.
    pub fn policy(&self, config: &Config) -> Result<PolicyName, UnknownPolicy> {
        let policy = self.policy.clone().unwrap_or_else(|| config.policy.clone());
        match self.order {
            Some(order) => policy.with_order(order),
            None => Ok(policy),
        }
    }

    /// Whether it says anything.
    #[must_use]
    pub const fn is_some(&self) -> bool {
        self.policy.is_some() || self.order.is_some()
    }
}

/// What a soft slice says to the multi-process service.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum Mps {
    /// Nothing.
    #[default]
    Off,
    /// The job's part of the multiprocessors, by its lease's part of the memory.
    Share,
    /// That, and its lease as the service's own limit. Leases do not grow in place then.
    Limit,
}

impl FromStr for Mps {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "off" => Ok(Self::Off),
            "share" => Ok(Self::Share),
            "limit" => Ok(Self::Limit),
            _ => Err(format!(
                "`{text}` is no use of MPS; there are off, share and limit"
            )),
        }
    }
}

/// The file cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum ConfigError {
    /// It cannot be read.
    #[error("configuration {}: {source}", path.display())]
    Read {
        /// The file.
        path: PathBuf,
        /// Why.
        source: std::io::Error,
    },
    /// It is no configuration.
    #[error("configuration {}:{line}:{column}: {said}", path.display())]
    Wrong {
        /// The file.
        path: PathBuf,
        /// Line, from 1.
        line: usize,
        /// Column in characters, from 1.
        column: usize,
        /// What is wrong, one line.
        said: String,
    },
    /// The policy has no order to choose.
    #[error("configuration {}: order: {source}", path.display())]
    Order {
        /// The file.
        path: PathBuf,
        /// Which policy.
        source: UnknownPolicy,
    },
    /// A figure is out of range.
    #[error("configuration {}: {field} = {value}: {wanted}", path.display())]
    Range {
        /// The file.
        path: PathBuf,
        /// The field.
        field: &'static str,
        /// What it says.
        value: String,
        /// What it may say.
        wanted: &'static str,
    },
}

fn signal<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<Signal>, D::Error> {
    let name = String::deserialize(deserializer)?;
    Signal::from_str(&name)
        .map(Some)
        .map_err(|_| serde::de::Error::custom(format!("`{name}` is no signal, such as SIGTERM")))
}

fn method<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Method, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(serde::de::Error::custom)
}

fn mode<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Mode, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(serde::de::Error::custom)
}

fn mps<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Mps, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(serde::de::Error::custom)
}

/// A size, `512Mi` or a number of bytes.
fn size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<u64, D::Error> {
    #[derive(Deserialize)]
    #[serde(untagged, expecting = "a size such as \"512Mi\", or a number of bytes")]
    enum Size {
        Bytes(u64),
        Text(String),
    }
    match Size::deserialize(deserializer)? {
        Size::Bytes(bytes) => Ok(bytes),
        Size::Text(text) => text
            .parse::<Bytes>()
            .map(|bytes| bytes.0)
            .map_err(serde::de::Error::custom),
    }
}

fn some_size<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<u64>, D::Error> {
    size(deserializer).map(Some)
}

fn policy<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<PolicyName, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(serde::de::Error::custom)
}

fn order<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<Option<QueueOrder>, D::Error> {
    let order = String::deserialize(deserializer)?.parse();
    order.map(Some).map_err(serde::de::Error::custom)
}

fn batch_policy<'de, D: serde::Deserializer<'de>>(deserializer: D) -> Result<BatchPolicy, D::Error> {
    String::deserialize(deserializer)?
        .parse()
        .map_err(serde::de::Error::custom)
}

impl Config {
    /// Reads a file.
    ///
    /// # Errors
    /// It cannot be read, or a field is unknown, of the wrong type or out of range.
    pub fn read(path: &Path) -> Result<Self, ConfigError> {
        let text = std::fs::read_to_string(path).map_err(|source| ConfigError::Read {
            path: path.to_path_buf(),
            source,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, ConfigError> {
        let mut config: Self = toml::from_str(text).map_err(|error| {
            let (line, column) = position(text, error.span().map_or(0, |span| span.start));
            ConfigError::Wrong {
                path: path.to_path_buf(),
                line,
                column,
                said: error.message().replace('\n', " "),
            }
        })?;
        if let Some(order) = config.order {
            let path = path.to_path_buf();
            let named = config.policy.clone().with_order(order);
            config.policy = named.map_err(|source| ConfigError::Order { path, source })?;
        }
        let range = |field, value: String, wanted| ConfigError::Range {
            path: path.to_path_buf(),
            field,
            value,
            wanted,
        };
        if !(0.0..=86_400.0).contains(&config.grace_s) {
            return Err(range(
                "grace_s",
                config.grace_s.to_string(),
                "seconds from 0 to 86400",
            ));
        }
        if !(10..=60_000).contains(&config.sample_ms) {
            return Err(range(
                "sample_ms",
                config.sample_ms.to_string(),
                "milliseconds from 10 to 60000",
            ));
        }
        if config.soft_first == Some(0) {
            return Err(range("soft_first", "0".to_owned(), "a size above 0"));
        }
        Ok(config)
    }
}

/// Line and column of a byte offset, both from 1.
fn position(text: &str, offset: usize) -> (usize, usize) {
    let before = text.get(..offset.min(text.len())).unwrap_or(text);
    let line = before.matches('\n').count() + 1;
    let column = before.rsplit('\n').next().map_or(0, |last| last.chars().count()) + 1;
    (line, column)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refuse(text: &str) -> String {
        Config::parse(Path::new("c.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn an_empty_file_is_the_default() {
        assert_eq!(Config::parse(Path::new("c"), "").unwrap(), Config::default());
    }

    #[test]
    fn every_field_is_read() {
        let config = Config::parse(
            Path::new("c"),
            "socket = '/run/x.sock'\nstate_dir = '/var/lib/migm'\npolicy = 'scheme-b'\ngrace_s = 3\n\
             sample_ms = 50\nwatched_signal = 'SIGUSR1'\nmode = 'soft'\nsoft_first = '2Gi'\n\
             soft_context = 400000000\nmps = 'limit'\n",
        )
        .unwrap();
        assert_eq!(config.watched_signal, Some(Signal::SIGUSR1));
        assert_eq!(config.batch_policy, BatchPolicy::Operator);
        assert_eq!((config.grace_s, config.sample_ms), (3.0, 50));
        assert_eq!((config.mode, config.mps), (Mode::Soft, Mps::Limit));
        assert_eq!(
            (config.soft_first, config.soft_context),
            (Some(2 << 30), 400_000_000)
        );
    }

    #[test]
    fn the_page_has_every_key_and_the_defaults() {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../docs/configuration.md");
        let page = std::fs::read_to_string(path).unwrap();
        let block = page
            .split("```toml\n")
            .nth(1)
            .unwrap()
            .split("```")
            .next()
            .unwrap();
        assert_eq!(Config::parse(Path::new("c"), block).unwrap(), Config::default());
        let known = refuse("x = 1");
        let (_, keys) = known.split_once("expected one of ").unwrap();
        let listed = page
            .lines()
            .filter_map(|line| line.strip_prefix("| ")?.split(" |").next());
        let listed: Vec<_> = listed.filter(|key| key.starts_with('`')).collect();
        assert_eq!(listed, keys.split(", ").collect::<Vec<_>>());
    }

    #[test]
    fn the_order_goes_with_the_policy_and_the_command_line_before_both() {
        let read = |text: &str| Config::parse(Path::new("c"), text).unwrap();
        let fifo = PolicyName::Migm(QueueOrder::Fifo);
        let config = read("order = 'fifo'\nbatch_policy = 'anyone'\n");
        assert_eq!(
            (&config.policy, config.batch_policy),
            (&fifo, BatchPolicy::Anyone)
        );
        assert_eq!(read("policy = 'migm:fifo'").policy, fifo);
        let told = |policy: Option<&str>, order: Option<QueueOrder>| Told {
            policy: policy.map(|name| name.parse().unwrap()),
            order,
        };
        let by = |told: Told| told.policy(&config).map(|policy| policy.to_string());
        assert_eq!(by(told(None, None)).unwrap(), "migm:fifo");
        assert_eq!(by(told(None, Some(QueueOrder::Free))).unwrap(), "migm");
        assert_eq!(by(told(Some("migm"), None)).unwrap(), "migm");
        assert_eq!(by(told(Some("far"), None)).unwrap(), "far");
        let said = by(told(Some("far"), Some(QueueOrder::Fifo))).unwrap_err();
        assert!(
            said.to_string()
                .starts_with("policy far has no choice of order: ")
        );
        let said = refuse("policy = 'scheme-b'\norder = 'fifo'");
        assert!(
            said.starts_with("configuration c.toml: order: policy scheme-b has no choice"),
            "{said}"
        );
        assert!(refuse("order = 'lifo'").contains("c.toml:1:9: `lifo` is no order"));
        assert!(refuse("batch_policy = 'me'").contains("there are operator and anyone"));
    }

    #[test]
    fn a_wrong_field_has_line_and_column() {
        let said = refuse("grace_s = 3\n  polcy = 'scheme-b'\n");
        assert!(
            said.starts_with("configuration c.toml:2:3: unknown field `polcy`"),
            "{said}"
        );
        assert!(!said.contains('\n'), "{said}");
        assert!(refuse("watched_signal = 'TERM!'").contains("`TERM!` is no signal"));
        assert!(refuse("sample_ms = 1").contains("sample_ms = 1: milliseconds from 10"));
        assert!(refuse("soft_first = 'x'").starts_with("configuration c.toml:1:14: "));
        assert!(refuse("soft_first = true").contains("a size such as"));
        assert!(refuse("mode = 'softly'").contains("there are auto, mig, soft and whole"));
        assert!(refuse("mps = 'on'").contains("off, share and limit"));
        assert!(refuse("grace_s = nan").contains("grace_s"));
    }
}
