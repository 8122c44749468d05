//! The plain linear program: the bound that the papers' own problem has before whole slices are asked for.

use microlp::{ComparisonOp, OptimizationDirection, Problem as Program, Variable};

use super::fleet::price;
use super::problem::Problem;

/// Least price if GPUs and slices came in parts: the sum over layouts of their price, so that slices of each size
/// are enough for rates that meet every demand. A figure to compare with, not certified; migm's bound
/// ([`super::lower_bound`]) is never below it but for rounding. `None` if the fleet is too small, or the solver
/// fails.
#[must_use]
pub fn linear_bound(problem: &Problem) -> Option<f64> {
    let fleet = &problem.fleet;
    let positive = (0.0, f64::INFINITY);
    let mut program = Program::new(OptimizationDirection::Minimize);
    let mut balance: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); fleet.sizes.len()];
    let mut stock: Vec<Vec<(Variable, f64)>> = vec![Vec::new(); fleet.kinds.len()];
    for layout in &fleet.layouts {
        let gpus = program.add_var(price(fleet.kinds[layout.kind].price), positive);
        stock[layout.kind].push((gpus, 1.0));
        for (row, &count) in balance.iter_mut().zip(&layout.counts) {
            row.push((gpus, f64::from(count)));
        }
    }
    for service in &problem.services {
        let mut served = Vec::new();
        for (size, row) in balance
            .iter_mut()
            .enumerate()
            .filter(|(size, _)| service.rate(*size) > 0)
        {
            let slices = program.add_var(0.0, positive);
            row.push((slices, -1.0));
            served.push((slices, service.rate(size) as f64 / service.required.0 as f64));
        }
        program.add_constraint(&served, ComparisonOp::Ge, 1.0);
    }
    for row in &balance {
        program.add_constraint(row, ComparisonOp::Ge, 0.0);
    }
    for (kind, row) in fleet.kinds.iter().zip(&stock) {
        if let Some(count) = kind.count {
            program.add_constraint(row, ComparisonOp::Le, f64::from(count));
        }
    }
    let outcome = program.solve().ok()?;
    outcome.solution().map(microlp::Solution::objective)
}
