//! What the runner sets in a program's environment because the user asked for it, and the list of all that it sets.

use std::borrow::Cow;
use std::ffi::OsStr;
use std::fmt::Write as _;
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;
use std::path::Path;
use std::str::FromStr;

use migm_shared::clock::{self, Mark};
use migm_shared::units::{Bytes, UnitError};
use nix::fcntl::{OFlag, open};
use nix::sys::stat::Mode;

/// A soft cap as the interposer reads it.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Cap {
    /// The most device bytes that the job may have.
    pub bytes: u64,
    /// Of these, what each process's context is charged.
    pub context: u64,
}

impl FromStr for Cap {
    type Err = UnitError;

    fn from_str(text: &str) -> Result<Self, UnitError> {
        let (bytes, context) = text.split_once(':').unwrap_or((text, "0"));
        Ok(Self {
            bytes: bytes.parse::<Bytes>()?.0,
            context: context.parse::<Bytes>()?.0,
        })
    }
}

/// What a lease on a shared GPU sets for the job's processes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct SoftLease {
    /// Its bytes: the most that the job's processes may have together.
    pub bytes: u64,
    /// What each process's context is charged until that is measured.
    pub context: u64,
    /// The GPU's memory, if the job is to get its lease's part of the multiprocessors through MPS.
    pub share: Option<u64>,
    /// The lease is the MPS server's limit too.
    pub limited: bool,
}

/// A client's part of the multiprocessors in percent, by MPS.
const MPS_SHARE: &str = "CUDA_MPS_ACTIVE_THREAD_PERCENTAGE";
/// The most device memory of a client, by MPS.
const MPS_LIMIT: &str = "CUDA_MPS_PINNED_DEVICE_MEM_LIMIT";

impl SoftLease {
    /// The variables, all of them: which of them apply is for [`is_for_mps`] to say where the job runs.
    #[must_use]
    pub fn settings(&self) -> Vec<(String, String)> {
        let Self { bytes, context, .. } = self;
        let mut settings = vec![("MIGM_CAP".to_owned(), format!("{bytes}:{context}:shared"))];
        let Some(all) = self.share else {
            return settings;
        };
        // In 128 bits: a hundred times the bytes of a GPU.
        let percent = (u128::from(*bytes) * 100)
            .div_ceil(u128::from(all.max(1)))
            .clamp(1, 100);
        settings.push((MPS_SHARE.to_owned(), percent.to_string()));
        if self.limited {
            // The job sees one device, which is the first.
            settings.push((MPS_LIMIT.to_owned(), format!("0={}M", bytes >> 20)));
        }
        settings
    }
}

/// Whether a variable speaks to MPS: it is set only where the MPS daemon of the user's environment runs, and not over
/// the user's own.
#[must_use]
pub fn is_for_mps(name: &str) -> bool {
    [MPS_SHARE, MPS_LIMIT].contains(&name)
}

/// Whether an MPS control daemon runs for programs with this pipe directory: its control pipe is there and somebody
/// reads from it. Nothing is sent to it, and none is ever started.
#[must_use]
pub fn mps_runs(pipe_directory: Option<&OsStr>) -> bool {
    let directory = pipe_directory.filter(|directory| !directory.is_empty());
    let pipe = Path::new(directory.unwrap_or(OsStr::new("/tmp/nvidia-mps"))).join("control");
    let Ok(found) = pipe.metadata() else { return false };
    if found.file_type().is_fifo() {
        // A pipe that nobody reads from cannot be opened for writing without waiting.
        let flags = OFlag::O_WRONLY | OFlag::O_NONBLOCK | OFlag::O_CLOEXEC;
        return open(&pipe, flags, Mode::empty()).is_ok();
    }
    found.file_type().is_socket() && UnixStream::connect(&pipe).is_ok()
}

/// What the user has asked for.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Wanted {
    /// What marks iterations.
    pub iteration: Option<clock::Wanted>,
    /// Frameworks are to take memory as they need it.
    pub grow_on_demand: bool,
    /// The job's soft cap.
    pub cap: Option<Cap>,
}

/// One variable.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct Setting {
    /// Its name.
    pub name: &'static str,
    /// Its value.
    pub value: String,
    /// A value that the user has set stays.
    yields: bool,
}

impl Setting {
    /// Whether it is set, given what the user has set.
    #[must_use]
    pub fn applies(&self, is_given: impl Fn(&str) -> bool) -> bool {
        !(self.yields && is_given(self.name))
    }
}

/// Variables by which frameworks take memory as they need it: name, value, framework.
const GROW: [(&str, &str, &str); 2] = [
    (
        "XLA_PYTHON_CLIENT_PREALLOCATE",
        "false",
        "JAX; else it takes three quarters of the device at once",
    ),
    (
        "TF_FORCE_GPU_ALLOW_GROWTH",
        "true",
        "TensorFlow; else it takes nearly all of the device at once",
    ),
];

/// The library that a program's NVTX calls at its first use; none, and NVTX does nothing.
const NVTX_LISTENER: &str = "NVTX_INJECTION64_PATH";

/// What the runner sets for each program, whatever the user asks for.
const ALWAYS: [(&str, &str); 6] = [
    (
        "CUDA_VISIBLE_DEVICES",
        "the UUID of the job's slice; yours restricts the choice",
    ),
    ("LD_PRELOAD", "the interposer, in front of yours"),
    (
        "LD_LIBRARY_PATH",
        "on a simulated GPU its driver's folder, in front of yours",
    ),
    ("MIGM_SOCKET", "the supervisor's socket"),
    ("MIGM_PAGE", "where the job's processes count their memory"),
    ("MIGM_ATTEMPT", "which job and attempt the process belongs to"),
];

/// What comes with a soft slice.
const ON_SOFT_SLICES: [(&str, &str); 3] = [
    ("MIGM_CAP", "the slice's bytes, and a context's part of them"),
    (
        MPS_SHARE,
        "with `mps = \"share\"` or \"limit\" in the supervisor's configuration, where the MPS daemon runs; yours stays",
    ),
    (MPS_LIMIT, "with `mps = \"limit\"`, likewise"),
];

impl Wanted {
    /// The variables to set, before those that come with a lease, whose `interposer` this is, or empty.
    #[must_use]
    pub fn settings(&self, interposer: &str) -> Vec<Setting> {
        let mut settings = Vec::new();
        let mut set = |name, value, yields| settings.push(Setting { name, value, yields });
        if let Some(iteration) = self.iteration {
            set("MIGM_ITERATION", iteration.to_string(), false);
        }
        if self.listens_to_nvtx() && !interposer.is_empty() {
            set(NVTX_LISTENER, interposer.to_owned(), true);
        }
        if let Some(Cap { bytes, context }) = self.cap {
            set("MIGM_CAP", format!("{bytes}:{context}"), false);
        }
        if self.grow_on_demand {
            for (name, value, _) in GROW {
                set(name, value.to_owned(), true);
            }
        }
        settings
    }

    /// What to set for a variable of the lease: its value, but of two caps the smaller.
    #[must_use]
    pub fn within<'a>(&self, name: &str, granted: &'a str) -> Cow<'a, str> {
        let leased = granted.split_once(':').filter(|_| name == "MIGM_CAP");
        match (self.cap, leased) {
            (Some(own), Some((bytes, rest))) if bytes.parse().is_ok_and(|bytes: u64| own.bytes < bytes) => {
                format!("{}:{rest}", own.bytes).into()
            }
            _ => granted.into(),
        }
    }

    /// NVTX ranges are to mark iterations.
    fn listens_to_nvtx(&self) -> bool {
        matches!(self.iteration, Some(clock::Wanted::Fixed(clock)) if clock.mark == Mark::NvtxRange)
    }

    /// Why no iteration will be seen, if NVTX ranges are to mark them and the user has named NVTX another listener than
    /// the `interposer`.
    #[must_use]
    pub fn unheard(&self, interposer: &str, given: impl Fn(&str) -> Option<String>) -> Option<String> {
        let theirs = given(NVTX_LISTENER).filter(|theirs| theirs != interposer);
        let theirs = theirs.filter(|_| self.listens_to_nvtx())?;
        Some(format!(
            "{NVTX_LISTENER} is {theirs}, yours, so no NVTX range marks an iteration: the job is forecast by time"
        ))
    }

    /// The list of all that the runner sets and may set, for people; `given` is the user's own environment.
    #[must_use]
    pub fn explain(&self, given: impl Fn(&str) -> Option<String>) -> String {
        let mut text = String::from("set for each program:\n");
        let mut line = |name: &str, what: &str| {
            // Writing to a string does not fail.
            let _ = writeln!(text, "  {name:<30} {what}");
        };
        for (name, what) in ALWAYS {
            line(name, what);
        }
        line(
            "MIGM_ITERATION",
            &self.iteration.map_or_else(
                || "not set: what marks an iteration is found out; --iteration says it".to_owned(),
                |iteration| format!("{iteration}: what marks an iteration"),
            ),
        );
        if self.listens_to_nvtx() {
            let what = match given(NVTX_LISTENER) {
                Some(theirs) => format!("{theirs}, yours: no range marks an iteration"),
                None => "the interposer: NVTX ranges mark iterations".to_owned(),
            };
            line(NVTX_LISTENER, &what);
        }
        if let Some(Cap { bytes, context }) = self.cap {
            line(
                "MIGM_CAP",
                &format!("{bytes}:{context}: soft cap, and a context's part of it"),
            );
        }
        text.push_str("set on a GPU without MIG, where the job gets a soft slice (no isolation of compute or faults):\n");
        for (name, what) in ON_SOFT_SLICES {
            let _ = writeln!(text, "  {name:<30} {what}");
        }
        text.push_str("set with --grow-on-demand, where you have not set it:\n");
        for (name, value, why) in GROW {
            let state = match (given(name), self.grow_on_demand) {
                (Some(yours), _) => format!("{yours}, yours"),
                (None, true) => value.to_owned(),
                (None, false) => format!("not set; would be {value}"),
            };
            let _ = writeln!(text, "  {name:<30} {state}: {why}");
        }
        text
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_cap_is_read_with_and_without_a_context() {
        let cap = |bytes, context| Cap { bytes, context };
        assert_eq!("4Gi".parse(), Ok(cap(4 << 30, 0)));
        assert_eq!("1G:300Mi".parse(), Ok(cap(1_000_000_000, 300 << 20)));
        assert!("1G:x".parse::<Cap>().is_err());
    }

    #[test]
    fn nothing_is_set_that_was_not_asked_for() {
        assert_eq!(Wanted::default().settings("/lib/interposer.so"), []);
        let explained = Wanted::default().explain(|_| None);
        assert!(explained.contains("not set; would be false: JAX"), "{explained}");
        assert!(!explained.contains(": soft cap"), "{explained}");
        assert!(
            explained.contains("no isolation of compute or faults"),
            "{explained}"
        );
    }

    #[test]
    fn a_soft_slice_says_its_part_to_mps_only_where_that_is_wanted() {
        let names = |share, limited| {
            let lease = SoftLease {
                bytes: 13 << 30,
                context: 7,
                share,
                limited,
            };
            lease.settings()
        };
        let set = |name: &str, value: &str| (name.to_owned(), value.to_owned());
        let cap = set("MIGM_CAP", "13958643712:7:shared");
        assert_eq!(names(None, true), std::slice::from_ref(&cap));
        // 32.5 percent, and no job is without any.
        let share = set(MPS_SHARE, "33");
        assert_eq!(names(Some(40 << 30), false), [cap.clone(), share.clone()]);
        assert_eq!(
            names(Some(40 << 30), true),
            [cap, share, set(MPS_LIMIT, "0=13312M")]
        );
        assert_eq!(names(Some(u64::MAX), false)[1].1, "1");
        assert_eq!(names(Some(0), false)[1].1, "100");
    }

    /// A cap of the user's own that is larger would let the job out of its lease.
    #[test]
    fn of_the_users_cap_and_the_lease_the_smaller_holds() {
        let wanted = |bytes| Wanted {
            cap: Some(Cap { bytes, context: 5 }),
            ..Wanted::default()
        };
        assert_eq!(wanted(99).within("MIGM_CAP", "100:7:shared"), "99:7:shared");
        assert_eq!(wanted(101).within("MIGM_CAP", "100:7:shared"), "100:7:shared");
        assert_eq!(wanted(1).within("MIGM_SOCKET", "100:7"), "100:7");
        assert_eq!(
            Wanted::default().within("MIGM_CAP", "100:7:shared"),
            "100:7:shared"
        );
    }

    #[test]
    fn an_mps_daemon_is_there_when_somebody_listens_at_its_pipe() {
        let folder = tempfile::tempdir().unwrap();
        let at = || mps_runs(Some(folder.path().as_os_str()));
        let pipe = folder.path().join("control");
        assert!(!at(), "no pipe");
        std::fs::write(&pipe, "").unwrap();
        assert!(!at(), "a file is no pipe");
        std::fs::remove_file(&pipe).unwrap();
        let listener = std::os::unix::net::UnixListener::bind(&pipe).unwrap();
        assert!(at());
        drop(listener);
        assert!(!at(), "the daemon has gone and left its socket");
    }

    #[test]
    fn nvtx_is_told_of_us_only_where_its_ranges_mark_iterations() {
        let wanted = |iteration: &str| Wanted {
            iteration: Some(iteration.parse().unwrap()),
            ..Wanted::default()
        };
        let set = |iteration: &str, interposer: &str| {
            let settings = wanted(iteration).settings(interposer);
            let found = settings.into_iter().find(|setting| setting.name == NVTX_LISTENER);
            found.map(|setting| setting.value)
        };
        assert_eq!(set("nvtx-range:2", "/ours").as_deref(), Some("/ours"));
        assert_eq!(set("nvtx-range", ""), None, "nothing is preloaded");
        for other in ["auto", "off", "stream-sync"] {
            assert_eq!(set(other, "/ours"), None);
            assert_eq!(wanted(other).unheard("/ours", |_| Some("/theirs".into())), None);
        }
    }

    #[test]
    fn another_listener_of_nvtx_stays_and_is_named() {
        let wanted = Wanted {
            iteration: Some("nvtx-range".parse().unwrap()),
            ..Wanted::default()
        };
        let given = |name: &str| (name == NVTX_LISTENER).then(|| "/theirs".to_owned());
        let settings = wanted.settings("/ours");
        let applied = settings
            .iter()
            .filter(|setting| setting.applies(|name| given(name).is_some()));
        let applied: Vec<_> = applied.map(|setting| setting.name).collect();
        assert_eq!(applied, ["MIGM_ITERATION"]);
        let said = wanted.unheard("/ours", given).unwrap();
        assert!(said.contains("/theirs, yours"), "{said}");
        assert!(wanted.explain(given).contains("/theirs, yours"));
        assert_eq!(wanted.unheard("/ours", |_| None), None);
        // A runner under a runner finds the listener that the outer one has set.
        assert_eq!(wanted.unheard("/ours", |_| Some("/ours".into())), None);
    }

    #[test]
    fn the_users_own_value_wins() {
        let wanted = Wanted {
            grow_on_demand: true,
            ..Wanted::default()
        };
        let given = |name: &str| name == "XLA_PYTHON_CLIENT_PREALLOCATE";
        let set: Vec<_> = wanted
            .settings("")
            .into_iter()
            .filter(|setting| setting.applies(given))
            .map(|setting| (setting.name, setting.value))
            .collect();
        assert_eq!(set, [("TF_FORCE_GPU_ALLOW_GROWTH", "true".to_owned())]);
        let explained = wanted.explain(|name| given(name).then(|| "true".to_owned()));
        assert!(explained.contains("true, yours: JAX"), "{explained}");
        assert!(explained.contains("true: TensorFlow"), "{explained}");
    }
}
