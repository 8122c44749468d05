//! Why the supervisor does not run.

use std::path::PathBuf;

use super::config::ConfigError;
use super::gpus::GpuError;
use crate::control::paths::PathError;
use crate::node::NodeError;
use crate::node::sim::SimError;
use crate::schedule::UnknownPolicy;

/// See the [module](self).
#[derive(Debug, thiserror::Error)]
pub enum DaemonError {
    /// The configuration is wrong.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// The socket's path is wrong.
    #[error(transparent)]
    Path(#[from] PathError),
    /// The machine has no driver, or it refused.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// There is a driver and no GPU.
    #[error("the driver lists no GPU on this machine")]
    NoGpu,
    /// There are GPUs, and the configured mode leaves all of them out.
    #[error(
        "no GPU of this machine is as `mode = \"{0}\"` wants it, and migm never changes a GPU's MIG mode; \
         `mode = \"auto\"` takes each as it is"
    )]
    OtherMode(&'static str),
    /// No GPU has a table.
    #[error(transparent)]
    Layout(GpuError),
    /// No simulated GPU.
    #[error(transparent)]
    Sim(#[from] SimError),
    /// Another supervisor serves this socket.
    #[error("another supervisor serves {0}")]
    Taken(PathBuf),
    /// The folder of the socket belongs to someone else, or others may write to it.
    #[error("{folder} is not safe for a socket: {why}")]
    Folder {
        /// The folder.
        folder: PathBuf,
        /// What is wrong with it.
        why: &'static str,
    },
    /// The state file cannot be understood; it names our slices, so it is not thrown away.
    #[error("state file {path}: {why}; move it away to start without what it names")]
    State {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        why: String,
    },
    /// An order for a policy that has none to choose.
    #[error(transparent)]
    Policy(#[from] UnknownPolicy),
    /// A policy that nothing can be searched for here.
    #[error(
        "policy best-static is searched for with a workload that is known, and here jobs come as they come; \
         `migm simulate --policy best-static` searches, and static:LAYOUT serves with one layout"
    )]
    Unsearched,
    /// A layout that a GPU cannot have.
    #[error("policy static:{layout} on GPU {gpu}: {why}")]
    StaticLayout {
        /// As given.
        layout: String,
        /// NVML's index.
        gpu: u32,
        /// What is wrong.
        why: String,
    },
    /// The system refused.
    #[error("{tried}: {source}")]
    System {
        /// What was tried.
        tried: String,
        /// Why not.
        source: std::io::Error,
    },
}

impl DaemonError {
    /// The exit status: 2 for bad input, 3 without GPU, driver or permission, else 1.
    #[must_use]
    pub fn exit_code(&self) -> u8 {
        match self {
            Self::Config(_)
            | Self::Path(_)
            | Self::Sim(SimError::Refused { .. } | SimError::Text(_))
            | Self::Policy(_)
            | Self::Unsearched
            | Self::StaticLayout { .. } => 2,
            Self::NoGpu | Self::OtherMode(_) | Self::Node(_) | Self::Sim(SimError::Node(_)) => 3,
            _ => 1,
        }
    }

    pub(super) fn system(tried: impl Into<String>) -> impl FnOnce(std::io::Error) -> Self {
        let tried = tried.into();
        move |source| Self::System { tried, source }
    }
}
