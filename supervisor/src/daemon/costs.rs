//! What moving a job costs on this node, as measured. Wall seconds.

use std::collections::HashMap;

use migm_shared::ids::Incarnation;

use crate::whatif::parameters;

/// What one more measurement counts against all before it: the last few decide.
const WEIGHT: f64 = 0.3;

/// Times of this node.
#[derive(Clone, Debug)]
pub(super) struct Costs {
    /// From the wish that a job stops to its end.
    stop: Option<f64>,
    /// From a grant to the start of the program.
    launch: Option<f64>,
    create: Option<f64>,
    destroy: Option<f64>,
    /// Wall seconds per second of what is taken for granted before anything has been measured.
    scale: f64,
    /// Changes of slices under way.
    began: HashMap<Incarnation, f64>,
}

impl Costs {
    pub(super) fn new(scale: f64) -> Self {
        Self {
            stop: None,
            launch: None,
            create: None,
            destroy: None,
            scale,
            began: HashMap::new(),
        }
    }

    pub(super) fn stopped(&mut self, seconds: f64) {
        take(&mut self.stop, seconds);
    }

    pub(super) fn launched(&mut self, seconds: f64) {
        take(&mut self.launch, seconds);
    }

    /// A create or destroy is ordered.
    pub(super) fn began(&mut self, slice: Incarnation, now: f64) {
        self.began.insert(slice, now);
    }

    pub(super) fn created(&mut self, slice: Incarnation, now: f64) {
        if let Some(began) = self.began.remove(&slice) {
            take(&mut self.create, now - began);
        }
    }

    pub(super) fn destroyed(&mut self, slice: Incarnation, now: f64) {
        if let Some(began) = self.began.remove(&slice) {
            take(&mut self.destroy, now - began);
        }
    }

    /// The driver refused it.
    pub(super) fn refused(&mut self, slice: Incarnation) {
        self.began.remove(&slice);
    }

    /// Seconds to create a slice.
    pub(super) fn create(&self) -> f64 {
        self.create.unwrap_or(parameters::CREATE_S * self.scale)
    }

    /// Seconds to destroy one.
    pub(super) fn destroy(&self) -> f64 {
        self.destroy.unwrap_or(parameters::DESTROY_S * self.scale)
    }

    /// Seconds that a job loses by a move, its work left out: it stops, a slice goes and another comes, it starts. Before
    /// any job has been stopped here, what MISO took for all of that.
    pub(super) fn moving(&self) -> f64 {
        match (self.stop, self.launch) {
            (Some(stop), launch) => stop + self.create() + self.destroy() + launch.unwrap_or(0.0),
            (None, _) => parameters::MOVE_S * self.scale,
        }
    }
}

fn take(mean: &mut Option<f64>, seconds: f64) {
    let seconds = seconds.max(0.0);
    *mean = Some(mean.map_or(seconds, |before| before + WEIGHT * (seconds - before)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_move_costs_what_its_parts_have_taken_here() {
        let mut costs = Costs::new(0.1);
        assert!((costs.moving() - 3.0).abs() < 1e-9);
        costs.began(Incarnation(1), 10.0);
        costs.created(Incarnation(1), 10.5);
        // Of an order that was refused nothing is learnt.
        costs.began(Incarnation(2), 11.0);
        costs.refused(Incarnation(2));
        costs.destroyed(Incarnation(2), 99.0);
        costs.launched(0.25);
        costs.stopped(2.0);
        let destroy = parameters::DESTROY_S * 0.1;
        assert!((costs.moving() - (2.0 + 0.5 + destroy + 0.25)).abs() < 1e-9);
        costs.stopped(1.0);
        assert!((costs.moving() - (1.7 + 0.5 + destroy + 0.25)).abs() < 1e-9);
    }
}
