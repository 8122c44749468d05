//! Orders that cannot be carried out.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};

use super::*;
use crate::layout::samples;

/// Gives the orders of a list, one at each decision.
#[derive(Debug)]
struct Script(std::vec::IntoIter<Order>);

impl Decider for Script {
    fn decide(&mut self, _: &Board<'_>) -> Vec<Order> {
        self.0.next().into_iter().collect()
    }
}

#[test]
fn a_seat_on_a_slice_whose_holder_stays_is_given_up() {
    let table = Arc::new(samples::a100_base());
    let whole = table.slot_named("7g.40gb@0").unwrap();
    let order = |job: u64, gpu: usize| Order {
        job: JobId(job),
        gpu: GpuIndex(gpu),
        slot: Some(whole),
        reason: String::new(),
    };
    // The second job is ordered to where the first one stays, then to the other GPU.
    let script = vec![order(1, 0), order(2, 0), order(2, 1)].into_iter();
    let mut scheduler = Scheduler::with_decider(Box::new(Script(script)), Incarnation(1));
    let mut granted = Vec::new();
    let mut step = |event: Event| {
        let mut actions = scheduler.step(0.0, event);
        while let Some(action) = actions.pop() {
            match action {
                Action::Create { slice, .. } => actions.extend(scheduler.step(0.0, Event::Created { slice })),
                Action::Grant { job, .. } => granted.push(job),
                other => panic!("{other:?}"),
            }
        }
    };
    for gpu in [0, 1] {
        step(Event::Gpu {
            gpu: GpuIndex(gpu),
            table: Arc::clone(&table),
            foreign: Vec::new(),
        });
    }
    for job in [1, 2] {
        let need = Need { device_bytes: 1 };
        step(Event::Arrived {
            job: JobId(job),
            need,
        });
        step(Event::Settled);
    }
    step(Event::Settled);
    assert_eq!(granted, [JobId(1), JobId(2)]);
}
