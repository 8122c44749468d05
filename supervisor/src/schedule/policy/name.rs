//! The policies by their names: one list for the daemon, for batches and for simulation.

use std::fmt;
use std::str::FromStr;

use migm_shared::ids::Incarnation;
use serde::{Deserialize, Serialize};

use super::super::{Decider, Policy, Scheduler};
use super::layouts::parts;
use super::{Choice, Far, Fixed, Mfi, Migm, Miso, Waves};

/// In which order a policy may take the jobs that wait, where it has the choice.
#[derive(Clone, Copy, Debug, Default, Eq, PartialEq)]
pub enum QueueOrder {
    /// Any.
    #[default]
    Free,
    /// That of the queue: see [`Choice::fifo`].
    Fifo,
}

impl QueueOrder {
    /// As people write it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Free => "free",
            Self::Fifo => "fifo",
        }
    }
}

impl FromStr for QueueOrder {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        match text {
            "free" => Ok(Self::Free),
            "fifo" => Ok(Self::Fifo),
            _ => Err(UnknownPolicy::Order(text.to_owned())),
        }
    }
}

/// A policy, as people name it. An order that is not the usual one follows with a colon: `migm:fifo`.
#[derive(Clone, Debug, Eq, PartialEq, Serialize, Deserialize)]
#[serde(into = "String", try_from = "String")]
pub enum PolicyName {
    /// Each GPU whole, one job on it at a time.
    Sequential,
    /// In order, each job on the tightest slice that holds it, made on demand: MIGM's scheme B (arXiv 2508.18556).
    SchemeB,
    /// Each GPU cut into these slices once and for all.
    Static(String),
    /// The static layouts that serve a workload best; they are searched for, so it must be known.
    BestStatic,
    /// Groups of jobs of one size, one group after the other: MIGM's scheme A.
    SchemeA,
    /// See [`Far`].
    Far,
    /// See [`Mfi`].
    Mfi,
    /// See [`Miso`].
    Miso,
    /// See [`Migm`].
    Migm(QueueOrder),
}

impl Default for PolicyName {
    fn default() -> Self {
        Self::Migm(QueueOrder::default())
    }
}

impl From<PolicyName> for String {
    fn from(name: PolicyName) -> Self {
        name.to_string()
    }
}

impl TryFrom<String> for PolicyName {
    type Error = UnknownPolicy;

    fn try_from(text: String) -> Result<Self, UnknownPolicy> {
        text.parse()
    }
}

/// The name is no policy.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnknownPolicy {
    /// No such name.
    #[error(
        "`{0}` is no policy; there are sequential, static:LAYOUT, best-static, scheme-a, scheme-b, far, mfi, miso and migm"
    )]
    Name(String),
    /// What follows `static:` is no layout on any GPU.
    #[error("`static:{layout}`: {why}")]
    Layout {
        /// As given.
        layout: String,
        /// What is wrong.
        why: String,
    },
    /// No such order.
    #[error("`{0}` is no order; there are free and fifo")]
    Order(String),
    /// An order for a policy that has none to choose.
    #[error(
        "policy {0} has no choice of order: free and fifo go with migm, and each other policy has an order of its own"
    )]
    NoOrder(PolicyName),
}

impl FromStr for PolicyName {
    type Err = UnknownPolicy;

    fn from_str(text: &str) -> Result<Self, UnknownPolicy> {
        if let Some(layout) = text.strip_prefix("static:") {
            return match parts(layout) {
                Ok(_) => Ok(Self::Static(layout.to_owned())),
                Err(why) => Err(UnknownPolicy::Layout {
                    layout: layout.to_owned(),
                    why,
                }),
            };
        }
        Ok(match text {
            "sequential" => Self::Sequential,
            "scheme-b" => Self::SchemeB,
            "best-static" => Self::BestStatic,
            "scheme-a" => Self::SchemeA,
            "far" => Self::Far,
            "mfi" => Self::Mfi,
            "miso" => Self::Miso,
            "migm" => Self::default(),
            _ if let Some((name, order)) = text.split_once(':') => {
                return name.parse::<Self>()?.with_order(order.parse()?);
            }
            _ => return Err(UnknownPolicy::Name(text.to_owned())),
        })
    }
}

impl fmt::Display for PolicyName {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Sequential => out.write_str("sequential"),
            Self::SchemeB => out.write_str("scheme-b"),
            Self::Static(layout) => write!(out, "static:{layout}"),
            Self::BestStatic => out.write_str("best-static"),
            Self::SchemeA => out.write_str("scheme-a"),
            Self::Far => out.write_str("far"),
            Self::Mfi => out.write_str("mfi"),
            Self::Miso => out.write_str("miso"),
            Self::Migm(QueueOrder::Free) => out.write_str("migm"),
            Self::Migm(order) => write!(out, "migm:{}", order.word()),
        }
    }
}

impl PolicyName {
    /// The same policy, with jobs taken in this order.
    ///
    /// # Errors
    /// It has no order to choose.
    pub fn with_order(self, order: QueueOrder) -> Result<Self, UnknownPolicy> {
        match self {
            Self::Migm(_) => Ok(Self::Migm(order)),
            other => Err(UnknownPolicy::NoOrder(other)),
        }
    }

    /// The order in which jobs are taken, where the policy has the choice.
    #[must_use]
    pub const fn order(&self) -> Option<QueueOrder> {
        match self {
            Self::Migm(order) => Some(*order),
            _ => None,
        }
    }

    /// Its name without the order.
    #[must_use]
    pub fn word(&self) -> String {
        match self {
            Self::Migm(_) => Self::default().to_string(),
            other => other.to_string(),
        }
    }

    /// A scheduler of that policy; `choice` is for those that plan. `None` for `best-static`, which needs a workload
    /// to be searched on.
    #[must_use]
    pub fn scheduler(&self, choice: Choice, first: Incarnation) -> Option<Scheduler> {
        match self.ordered() {
            Some(policy) => Some(Scheduler::new(policy, first)),
            None => Some(Scheduler::with_decider(self.decider(choice)?, first)),
        }
    }

    /// The policy that serves in order, if it is one.
    #[must_use]
    pub const fn ordered(&self) -> Option<Policy> {
        match self {
            Self::Sequential => Some(Policy::Sequential),
            Self::SchemeB => Some(Policy::SchemeB),
            _ => None,
        }
    }

    /// What decides by the board, for the others but `best-static`.
    #[must_use]
    pub fn decider(&self, choice: Choice) -> Option<Box<dyn Decider>> {
        Some(match self {
            Self::Sequential | Self::SchemeB | Self::BestStatic => return None,
            Self::Static(layout) => Box::new(Fixed::named(layout.clone())),
            Self::SchemeA => Box::new(Waves),
            Self::Far => Box::new(Far::new(choice.create, choice.destroy)),
            Self::Mfi => Box::new(Mfi),
            Self::Miso => Box::new(Miso::default()),
            Self::Migm(order) => Box::new(Migm::new(Choice {
                fifo: choice.fifo || *order == QueueOrder::Fifo,
                ..choice
            })),
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_name_is_read_as_it_is_written() {
        for name in [
            "sequential",
            "static:4g+3g",
            "static:7x1g",
            "best-static",
            "scheme-a",
            "scheme-b",
            "far",
            "mfi",
            "miso",
            "migm",
            "migm:fifo",
        ] {
            assert_eq!(name.parse::<PolicyName>().unwrap().to_string(), name);
        }
        assert_eq!(PolicyName::default().to_string(), "migm");
        assert_eq!("migm:free".parse(), Ok(PolicyName::default()));
    }

    #[test]
    fn what_is_no_policy_is_named_with_those_that_are() {
        let said = |text: &str| text.parse::<PolicyName>().unwrap_err().to_string();
        assert!(said("fifo").starts_with("`fifo` is no policy; there are sequential, static:LAYOUT,"));
        assert_eq!(said("static:"), "`static:`: it names no slices");
        assert_eq!(said("static:zx1g"), "`static:zx1g`: `z` is no number");
        assert_eq!(said("static:4g++1g"), "`static:4g++1g`: it names no slices");
        assert_eq!(said("migm:lifo"), "`lifo` is no order; there are free and fifo");
        assert!(said("far:fifo").starts_with("policy far has no choice of order: "));
        assert!(said("fast:fifo").starts_with("`fast` is no policy; "));
    }
}
