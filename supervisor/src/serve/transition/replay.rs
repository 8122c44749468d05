//! A transition replayed event by event, as whoever carries it out would see it. It trusts nothing that the steps were
//! made from: slices are made and removed, instances run and stop, and after each event all is checked.

use super::stage::{Instance, Resident};
use super::{Action, Step, Transition};
use crate::layout::Slot;

/// What a replay saw.
#[derive(Clone, Debug, PartialEq)]
pub struct Replay {
    /// When the last step ended, milliseconds.
    pub makespan_ms: u64,
    /// What each service got at the worst moment, millionths of requests per second.
    pub least: Vec<i64>,
    /// Least of what a service got over its floor; infinite where no service has one.
    pub min_satisfaction: f64,
    /// Most GPUs in use at a time.
    pub most_gpus: usize,
}

/// What is wrong with a transition.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum Broken {
    /// A step that cannot be done when its turn comes.
    #[error("step {step}: {fault}")]
    Step {
        /// Index of the step.
        step: usize,
        /// In words.
        fault: &'static str,
    },
    /// All steps are done, and a GPU is not as it shall be.
    #[error("GPU {0} is not as it shall be in the end")]
    End(usize),
}

#[derive(Clone, Copy, Eq, PartialEq)]
enum On {
    /// Claimed: being cut, filled or cleared.
    Claimed,
    Free,
    Runs(Instance),
}

/// Replays a transition. `length` gives each step's duration in milliseconds; steps start as soon as those that they
/// wait for have ended.
///
/// # Errors
/// A step overlaps another, needs what is not there, or cuts what a GPU cannot be cut into; or the end is not what was asked for.
pub fn replay(transition: &Transition, length: impl Fn(&Step) -> u64) -> Result<Replay, Broken> {
    let stage = &transition.stage;
    let steps = &transition.steps;
    // When each starts and ends. At one instant ends come before starts, and those of no duration in order.
    let mut spans: Vec<(u64, u64)> = Vec::with_capacity(steps.len());
    let mut events: Vec<(u64, usize, bool)> = Vec::with_capacity(2 * steps.len());
    for (index, step) in steps.iter().enumerate() {
        let broken = |fault| Broken::Step { step: index, fault };
        if step.after.iter().any(|&earlier| earlier >= index) {
            return Err(broken("it waits for a later step"));
        }
        let start = step
            .after
            .iter()
            .map(|&earlier| spans[earlier].1)
            .max()
            .unwrap_or(0);
        spans.push((start, start + length(step).max(1)));
        events.push((start, index, true));
        events.push((spans[index].1, index, false));
    }
    events.sort_by_key(|&(at, index, starts)| (at, starts, index));
    let mut slices: Vec<Vec<(Slot, On)>> = Vec::new();
    let mut serving = vec![0; stage.services.len()];
    for gpu in &stage.gpus {
        slices.push(
            gpu.before
                .iter()
                .map(|resident| (resident.slot, On::Runs(resident.instance)))
                .collect(),
        );
        for resident in &gpu.before {
            serving[resident.instance.service] += resident.instance.rate;
        }
    }
    let mut least = serving.clone();
    let mut recutting = vec![false; stage.gpus.len()];
    let used = |slices: &[Vec<(Slot, On)>]| {
        let busy = |gpu: &&Vec<(Slot, On)>| gpu.iter().any(|(_, on)| *on != On::Free);
        slices.iter().filter(busy).count()
    };
    let mut most_gpus = used(&slices);
    for (_, index, starts) in events {
        let fault = |fault| Broken::Step { step: index, fault };
        let change = |slices: &mut Vec<Vec<(Slot, On)>>, (gpu, slot): (usize, Slot), was: On, is: On| {
            let found = slices[gpu]
                .iter_mut()
                .find(|(there, on)| *there == slot && *on == was);
            found
                .map(|entry| entry.1 = is)
                .ok_or(fault("its slice is not there, or not in that state"))
        };
        match (&steps[index].action, starts) {
            (Action::Create { gpu, slot, .. }, true) => {
                change(&mut slices, (*gpu, *slot), On::Free, On::Claimed)?;
            }
            (Action::Create { gpu, slot, instance }, false) => {
                change(&mut slices, (*gpu, *slot), On::Claimed, On::Runs(*instance))?;
                serving[instance.service] += instance.rate;
            }
            (Action::Delete { gpu, slot, instance }, true) => {
                change(&mut slices, (*gpu, *slot), On::Runs(*instance), On::Claimed)?;
                serving[instance.service] -= instance.rate;
            }
            (Action::Delete { gpu, slot, .. }, false) => {
                change(&mut slices, (*gpu, *slot), On::Claimed, On::Free)?;
            }
            (Action::Migrate { from, to, instance }, true) => {
                if from.1.0 != to.1.0 || stage.gpus[from.0].kind != stage.gpus[to.0].kind {
                    return Err(fault("it moves an instance to another profile"));
                }
                let runs = slices[from.0].contains(&(from.1, On::Runs(*instance)));
                if !runs {
                    return Err(fault("what it moves does not run"));
                }
                change(&mut slices, *to, On::Free, On::Claimed)?;
            }
            (Action::Migrate { from, to, instance }, false) => {
                change(&mut slices, *to, On::Claimed, On::Runs(*instance))?;
                // It served here until now: nobody else may have stopped or moved it.
                change(&mut slices, *from, On::Runs(*instance), On::Free)?;
            }
            (Action::Repartition { gpu, removed, made }, true) => {
                if std::mem::replace(&mut recutting[*gpu], true) {
                    return Err(fault("its GPU is being recut"));
                }
                for slot in removed {
                    let at = slices[*gpu].iter().position(|entry| *entry == (*slot, On::Free));
                    slices[*gpu].swap_remove(at.ok_or(fault("what it removes is not free"))?);
                }
                slices[*gpu].extend(made.iter().map(|&slot| (slot, On::Claimed)));
                let all: Vec<Slot> = slices[*gpu].iter().map(|entry| entry.0).collect();
                if stage.table(&stage.gpus[*gpu]).state_of(&all).is_err() {
                    return Err(fault("its GPU cannot be cut so"));
                }
            }
            (Action::Repartition { gpu, made, .. }, false) => {
                recutting[*gpu] = false;
                for slot in made {
                    change(&mut slices, (*gpu, *slot), On::Claimed, On::Free)?;
                }
            }
        }
        for (least, serving) in least.iter_mut().zip(&serving) {
            *least = (*least).min(*serving);
        }
        most_gpus = most_gpus.max(used(&slices));
    }
    for (index, gpu) in stage.gpus.iter().enumerate() {
        let mut left: Vec<Resident> = slices[index]
            .iter()
            .filter_map(|&(slot, on)| match on {
                On::Runs(instance) => Some(Resident { slot, instance }),
                _ => None,
            })
            .collect();
        left.sort_unstable();
        if left != gpu.after {
            return Err(Broken::End(index));
        }
    }
    let with_floor = stage
        .services
        .iter()
        .zip(&least)
        .filter(|(service, _)| service.floor > 0);
    let min_satisfaction = with_floor
        .map(|(service, &least)| least as f64 / service.floor as f64)
        .fold(f64::INFINITY, f64::min);
    Ok(Replay {
        makespan_ms: spans.iter().map(|span| span.1).max().unwrap_or(0),
        least,
        min_satisfaction,
        most_gpus,
    })
}
