//! What simulated policies come to, side by side.

use std::collections::BTreeMap;

use serde::Serialize;

use super::table::Table;
use crate::whatif::Outcome;

/// One policy's figures. All simulated; energy is modelled.
#[derive(Clone, Copy, Debug, PartialEq, Serialize)]
pub struct PolicyLine {
    /// From the first arrival to the last end, seconds.
    pub makespan_s: f64,
    /// Of all GPUs meanwhile, joules.
    pub energy_j: f64,
    /// Mean seconds from arrival to end.
    pub mean_jct_s: f64,
    /// Largest ratio of that to the job's time alone on the whole GPU.
    pub max_slowdown: f64,
    /// Instances created and destroyed.
    pub reconfigurations: u64,
    /// Moves of running jobs for speed.
    pub moves: u64,
    /// Moves on a forecast of memory.
    pub early_restarts: u64,
    /// Attempts that ran out of memory.
    pub ooms: u64,
    /// Jobs that no slice could hold.
    pub refused: usize,
    /// No schedule ends earlier; null where no bound is known.
    pub lower_bound_makespan_s: Option<f64>,
    /// Makespan over the optimum of [`SimulationReport::optimum_makespan_s`]; null where that is.
    pub over_optimum: Option<f64>,
}

impl PolicyLine {
    /// From an outcome.
    #[must_use]
    pub fn new(outcome: &Outcome, bound: Option<f64>, optimum: Option<f64>) -> Self {
        Self {
            makespan_s: outcome.makespan,
            energy_j: outcome.energy,
            mean_jct_s: outcome.mean_completion,
            max_slowdown: outcome.max_slowdown,
            reconfigurations: outcome.reconfigurations,
            moves: outcome.moves,
            early_restarts: outcome.early_restarts,
            ooms: outcome.ooms,
            refused: outcome.refused.len(),
            lower_bound_makespan_s: bound,
            over_optimum: optimum.map(|optimum| outcome.makespan / optimum),
        }
    }
}

/// The JSON document.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct SimulationReport {
    /// GPU models as given, with their numbers.
    pub gpu: String,
    /// Number of GPUs.
    pub gpus: usize,
    /// Number of jobs.
    pub jobs: usize,
    /// Always true: nothing was run.
    pub simulated: bool,
    /// The least makespan of all schedules that move no job, proven; null with late arrivals, more than ten jobs,
    /// or where the search did not come to its end.
    pub optimum_makespan_s: Option<f64>,
    /// By name.
    pub policies: BTreeMap<String, PolicyLine>,
}

/// For people, in the order of `names`.
#[must_use]
pub fn table(report: &SimulationReport, names: &[String]) -> String {
    let mut table = Table::new(&[
        "policy",
        ">makespan s",
        ">/bound",
        ">/optimum",
        ">mean s",
        ">max slowdown",
        ">energy kJ",
        ">reconfigs",
        ">moves",
        ">OOMs",
    ]);
    for name in names {
        let Some(line) = report.policies.get(name) else {
            continue;
        };
        table.row([
            name.clone(),
            format!("{:.1}", line.makespan_s),
            line.lower_bound_makespan_s.map_or_else(
                || "-".to_owned(),
                |bound| format!("{:.3}", line.makespan_s / bound),
            ),
            line.over_optimum
                .map_or_else(|| "-".to_owned(), |over| format!("{over:.3}")),
            format!("{:.1}", line.mean_jct_s),
            format!("{:.1}", line.max_slowdown),
            format!("{:.1}", line.energy_j / 1e3),
            line.reconfigurations.to_string(),
            line.moves.to_string(),
            line.ooms.to_string(),
        ]);
    }
    format!(
        "{} on {} (all simulated, energy modelled)\n\n{}",
        super::table::count(report.jobs as u64, "job"),
        report.gpu,
        table.render()
    )
}
