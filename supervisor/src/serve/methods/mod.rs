//! Methods that make plans, under one trait: migm's own and those it is measured against.
//!
//! The published ones are written from their descriptions. Where a description leaves a choice open, the file
//! says what was chosen. They know one kind of GPU.

use super::exact::Exact;
use super::plan::Plan;
use super::problem::Problem;

mod config;
mod genetic;
mod greedy;
mod parvagpu;
mod tree;
mod uniform;

pub use genetic::Genetic;
pub use greedy::Greedy;
pub use parvagpu::ParvaGpu;
pub use tree::Tree;
pub use uniform::Uniform;

/// What a method may spend, and its source of chance.
#[derive(Clone, Copy)]
pub struct Effort<'a> {
    /// The same seed gives the same plan, unless time runs out.
    pub seed: u64,
    /// Whether the time is spent.
    pub late: &'a dyn Fn() -> bool,
}

impl std::fmt::Debug for Effort<'_> {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Effort")
            .field("seed", &self.seed)
            .finish_non_exhaustive()
    }
}

/// A plan, and what no plan is cheaper than.
#[derive(Clone, Debug)]
pub struct Solution {
    /// It gives each service what it requires.
    pub plan: Plan,
    /// In price units. Certified: it rests on whole numbers only.
    pub lower_bound: i64,
}

/// Why there is no plan.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// Kinds are limited, and all of their GPUs are too few.
    #[error("no plan was found with as many GPUs as there are")]
    Stock,
    /// Only migm's own method chooses among kinds.
    #[error("method {method} knows one kind of GPU only")]
    OneKind {
        /// The method.
        method: &'static str,
    },
    /// A service does not run on what the method offers.
    #[error("service {service} runs on none of the slices of method {method}")]
    Unable {
        /// The service.
        service: String,
        /// The method.
        method: &'static str,
    },
}

/// A way to make a plan.
pub trait Method {
    /// Its name on the command line.
    fn name(&self) -> &'static str;

    /// Makes a plan.
    ///
    /// # Errors
    /// The fleet is limited and no plan was found within it, or the method cannot serve this fleet.
    fn solve(&self, problem: &Problem, effort: &Effort<'_>) -> Result<Solution, PlanError>;
}

/// All methods, the default first.
pub const METHODS: [&dyn Method; 9] = [
    &Exact,
    &Uniform::Whole,
    &Uniform::Smallest,
    &Uniform::Mix,
    &Greedy::MIG_SERVING,
    &Genetic,
    &Tree,
    &Greedy::JORMUNGANDR,
    &ParvaGpu,
];

/// The method of that name.
#[must_use]
pub fn named(name: &str) -> Option<&'static dyn Method> {
    METHODS.into_iter().find(|method| method.name() == name)
}
