//! One test for each rule of the scheduler, on the base profiles of an A100-40GB.

use std::sync::Arc;

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;

use super::*;
use crate::layout::placing::PlacementRule;
use crate::layout::{Table, samples};

/// A scheduler of whose actions each is answered at once, as by a driver that never fails.
pub(super) struct Node {
    pub(super) scheduler: Scheduler,
    table: Arc<Table>,
    pub(super) now: f64,
    log: Vec<Action>,
}

impl Node {
    pub(super) fn new(policy: Policy, foreign: &[&str]) -> Self {
        let table = Arc::new(samples::a100_base());
        let foreign = foreign
            .iter()
            .map(|name| table.slot_named(name).unwrap())
            .collect();
        let mut node = Self {
            scheduler: Scheduler::new(policy, Incarnation(1)),
            table: Arc::clone(&table),
            now: 0.0,
            log: Vec::new(),
        };
        node.step(Event::Gpu {
            gpu: GpuIndex(0),
            table,
            foreign,
        });
        node
    }

    /// One event, not answered.
    pub(super) fn step(&mut self, event: Event) -> Vec<Action> {
        self.now += 1.0;
        let actions = self.scheduler.step(self.now, event);
        self.log.extend(actions.clone());
        actions
    }

    /// One event, and creates and destroys answered until none is left.
    pub(super) fn run(&mut self, event: Event) -> Vec<Action> {
        let mut all = self.step(event);
        let mut next = 0;
        while next < all.len() {
            let answer = match all[next] {
                Action::Create { slice, .. } => Some(Event::Created { slice }),
                Action::Destroy { slice } => Some(Event::Destroyed { slice }),
                _ => None,
            };
            next += 1;
            if let Some(answer) = answer {
                all.extend(self.step(answer));
            }
        }
        all
    }

    pub(super) fn arrive(&mut self, job: u64, gib: f64) -> Vec<Action> {
        self.run(Event::Arrived {
            job: JobId(job),
            need: need(gib),
        })
    }

    /// A job comes with these terms.
    pub(super) fn ask(&mut self, job: u64, gib: f64, terms: Terms) -> Vec<Action> {
        let mut all = self.run(Event::Terms {
            job: JobId(job),
            terms,
        });
        all.extend(self.arrive(job, gib));
        all
    }

    pub(super) fn end(&mut self, job: u64) -> Vec<Action> {
        self.run(Event::Ended {
            job: JobId(job),
            again: None,
        })
    }

    pub(super) fn again(&mut self, job: u64, gib: f64) -> Vec<Action> {
        self.run(Event::Ended {
            job: JobId(job),
            again: Some(need(gib)),
        })
    }

    /// The slot a job runs on, as `1g.5gb@6`.
    pub(super) fn place(&self, job: u64) -> String {
        match self.scheduler.slice_of(JobId(job)) {
            Some(slice) => self.table.named(self.scheduler.slice(slice).unwrap().slot()),
            None => "none".to_owned(),
        }
    }
}

pub(super) fn need(gib: f64) -> Need {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "small positive figures"
    )]
    let device_bytes = (gib * GIB as f64) as u64;
    Need { device_bytes }
}

pub(super) fn grants(actions: &[Action]) -> Vec<u64> {
    let jobs = actions.iter().filter_map(|action| match action {
        Action::Grant { job, .. } => Some(job.0),
        _ => None,
    });
    jobs.collect()
}

fn count(actions: &[Action], wanted: fn(&Action) -> bool) -> usize {
    actions.iter().filter(|action| wanted(action)).count()
}

pub(super) fn refusals(actions: &[Action]) -> Vec<String> {
    let reasons = actions.iter().filter_map(|action| match action {
        Action::Refuse { reason, .. } => Some(reason.clone()),
        _ => None,
    });
    reasons.collect()
}

#[test]
fn an_unknown_need_gets_the_smallest_slice_where_most_stays_open() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let actions = node.arrive(1, 0.0);
    assert_eq!(node.place(1), "1g.5gb@6");
    let Some(Action::Grant { reason, .. }) = actions.last() else {
        panic!("{actions:?}")
    };
    assert_eq!(
        reason,
        "need unknown: 1g.5gb@6 with 4.75 GiB, created, 12 full layouts stay in reach"
    );
}

#[test]
fn a_hint_gets_the_tightest_slice_and_ties_go_to_more_multiprocessors() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 6.0);
    assert_eq!(node.place(1), "2g.10gb@0");
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 12.0);
    node.arrive(2, 12.0);
    assert_eq!(node.place(1), "4g.20gb@0");
    // The 4g is taken; the 3g has the same memory.
    assert_eq!(node.place(2), "3g.20gb@4");
}

#[test]
fn seven_creates_are_asked_for_at_once_and_granted_in_order() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let mut creates = Vec::new();
    for job in 1..=8 {
        let actions = node.step(Event::Arrived {
            job: JobId(job),
            need: need(1.0),
        });
        creates.extend(actions.into_iter().filter_map(|action| match action {
            Action::Create { slice, .. } => Some(slice),
            _ => None,
        }));
    }
    assert_eq!(creates.len(), 7);
    let mut granted = Vec::new();
    for &slice in creates.iter().rev() {
        granted.extend(grants(&node.step(Event::Created { slice })));
    }
    assert_eq!(granted, [1, 2, 3, 4, 5, 6, 7]);
    assert_eq!(node.scheduler.queue(), [JobId(8)]);
    assert_eq!(
        node.scheduler.why_waiting(JobId(8)),
        "no free slice holds 1.00 GiB; running jobs must end first"
    );
    // The next takes the slice that is freed: nothing is created.
    let actions = node.end(3);
    assert_eq!(grants(&actions), [8]);
    assert_eq!(count(&actions, |a| matches!(a, Action::Create { .. })), 0);
}

#[test]
fn nothing_overtakes_a_job_that_waits_for_room() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    node.arrive(2, 30.0);
    node.arrive(3, 1.0);
    assert_eq!(node.place(3), "none");
    assert_eq!(
        node.scheduler.why_waiting(JobId(3)),
        "job 2 comes first: no free slice holds 30.00 GiB; running jobs must end first"
    );
    let actions = node.end(1);
    assert_eq!(grants(&actions), [2]);
    assert_eq!(node.place(2), "7g.40gb@0");
    let actions = node.end(2);
    // Fission: the idle 7g goes for the 1g.
    assert_eq!(count(&actions, |a| matches!(a, Action::Destroy { .. })), 1);
    assert_eq!(node.place(3), "1g.5gb@6");
}

#[test]
fn fusion_destroys_the_fewest_idle_slices_and_creates_when_they_are_gone() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for job in 1..=7 {
        node.arrive(job, 1.0);
    }
    // Slices at 6, 4, 5, 0, 1, 2, 3 in this order; those at 4, 5 and 6 become idle.
    for job in 1..=3 {
        node.end(job);
    }
    let destroys = node.step(Event::Arrived {
        job: JobId(8),
        need: need(15.0),
    });
    let going: Vec<Incarnation> = destroys
        .iter()
        .map(|action| match action {
            Action::Destroy { slice } => *slice,
            other => panic!("{other:?}"),
        })
        .collect();
    assert_eq!(going.len(), 3);
    assert_eq!(
        node.scheduler.why_waiting(JobId(8)),
        "waits for 3 idle slices to be removed"
    );
    assert!(node.step(Event::Destroyed { slice: going[0] }).is_empty());
    assert!(node.step(Event::Destroyed { slice: going[2] }).is_empty());
    node.run(Event::Destroyed { slice: going[1] });
    assert_eq!(node.place(8), "3g.20gb@4");
}

#[test]
fn a_forecast_moves_a_job_to_the_slice_that_holds_it() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 0.0);
    let forecast = |gib| Event::Forecast {
        job: JobId(1),
        need: need(gib),
    };
    assert!(node.step(forecast(4.7)).is_empty());
    let actions = node.step(forecast(8.0));
    assert_eq!(
        actions,
        [Action::Move {
            job: JobId(1),
            for_speed: false,
            reason: "forecast need 8.00 GiB exceeds 1g.5gb@6 with 4.75 GiB".into()
        }]
    );
    assert!(node.step(forecast(8.1)).is_empty(), "told once");
    assert_eq!(node.place(1), "1g.5gb@6", "it holds its slice until it has ended");
    node.again(1, 8.0);
    // Beside the idle 1g@6, this place leaves most open.
    assert_eq!(node.place(1), "2g.10gb@4");
}

#[test]
fn a_relaunched_job_comes_before_those_that_never_ran() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for job in 1..=7 {
        node.arrive(job, 1.0);
    }
    node.arrive(8, 1.0);
    let actions = node.again(2, 6.0);
    assert_eq!(grants(&actions), [0; 0]);
    assert_eq!(node.scheduler.queue(), [JobId(2), JobId(8)]);
    // Room for a 2g first, then the other.
    let mut granted = Vec::new();
    for job in [1, 3, 4] {
        granted.extend(grants(&node.end(job)));
    }
    assert_eq!(granted[0], 2);
}

#[test]
fn a_job_never_gets_the_size_it_outgrew() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 0.0);
    // The figure after the OOM would fit the slice that was too small.
    node.again(1, 4.0);
    assert_eq!(node.place(1), "2g.10gb@4");
    node.again(1, 0.0);
    assert_eq!(node.place(1), "4g.20gb@0", "not the 3g of the same memory later");
    node.again(1, 4.0);
    assert_eq!(node.place(1), "7g.40gb@0");
    assert_eq!(
        refusals(&node.again(1, 39.0)),
        ["needs more than the 39.50 GiB it had; the largest slice to be had here is 7g.40gb with 39.50 GiB"]
    );
}

#[test]
fn a_relaunch_takes_back_slices_kept_for_those_behind() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    node.arrive(2, 12.0);
    // Job 3's slice is being created while job 2 ends and wants the whole GPU.
    let actions = node.step(Event::Arrived {
        job: JobId(3),
        need: need(1.0),
    });
    let Action::Create { slice, .. } = actions[0] else {
        panic!("{actions:?}")
    };
    node.again(2, 30.0);
    assert_eq!(node.scheduler.queue(), [JobId(2), JobId(3)]);
    assert!(grants(&node.run(Event::Created { slice })).is_empty());
    assert_eq!(grants(&node.end(1)), [2]);
    assert_eq!(node.place(2), "7g.40gb@0");
}

#[test]
fn a_slice_being_created_for_a_withdrawn_job_serves_the_next() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for job in 1..=2 {
        node.step(Event::Arrived {
            job: JobId(job),
            need: need(1.0),
        });
    }
    let actions = node.step(Event::Withdrawn { job: JobId(1) });
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(
        grants(&node.step(Event::Created {
            slice: Incarnation(1)
        })),
        [2]
    );
}

#[test]
fn more_than_any_slice_is_refused_with_the_figures() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let actions = node.arrive(1, 50.0);
    assert_eq!(
        refusals(&actions),
        ["needs 50.00 GiB; the largest slice to be had here is 7g.40gb with 39.50 GiB"]
    );
    assert!(node.scheduler.queue().is_empty());
}

#[test]
fn a_running_job_that_no_slice_will_hold_stays() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 0.0);
    let actions = node.step(Event::Forecast {
        job: JobId(1),
        need: need(50.0),
    });
    assert!(actions.is_empty(), "{actions:?}");
    assert_eq!(
        node.scheduler.note(JobId(1)),
        Some("forecast need 50.00 GiB exceeds 1g.5gb@6 with 4.75 GiB; no slice here holds it, so it stays")
    );
}

#[test]
fn foreign_instances_are_worked_around() {
    let mut node = Node::new(Policy::SchemeB, &["1g.5gb@6"]);
    for job in 1..=7 {
        node.arrive(job, 1.0);
    }
    assert_eq!(node.scheduler.queue(), [JobId(7)]);
    let refused = refusals(&node.run(Event::Withdrawn { job: JobId(7) }));
    assert!(refused.is_empty());
    let mut node = Node::new(Policy::SchemeB, &["1g.5gb@6"]);
    assert_eq!(
        refusals(&node.arrive(1, 30.0)),
        [
            "needs 30.00 GiB; the largest slice to be had here is 4g.20gb with 19.62 GiB; not to be had: 7g.40gb on \
          GPU 0 (foreign 1g.5gb@6)"
        ]
    );
}

#[test]
fn a_layout_that_is_not_understood_is_left_alone() {
    let mut node = Node::new(Policy::SchemeB, &["7g.40gb@0", "1g.5gb@6"]);
    let refused = refusals(&node.arrive(1, 1.0));
    assert!(
        refused[0].contains("a layout that is not understood: 1g.5gb@6 cannot be placed"),
        "{refused:?}"
    );
}

#[test]
fn a_gpu_that_must_not_be_changed_offers_what_it_has() {
    let table = Arc::new(samples::a100_base().frozen());
    let mut node = Node::new(Policy::SchemeB, &[]);
    let three = table.slot_named("3g.20gb@4").unwrap();
    node.step(Event::Gpu {
        gpu: GpuIndex(0),
        table,
        foreign: Vec::new(),
    });
    node.step(Event::Slice {
        slice: Incarnation(40),
        gpu: GpuIndex(0),
        profile: three.0,
        placement: three.1,
        fixed: true,
        holder: None,
    });
    node.arrive(1, 1.0);
    assert_eq!(node.place(1), "3g.20gb@4");
    node.arrive(2, 1.0);
    assert_eq!(node.scheduler.queue(), [JobId(2)]);
    assert_eq!(grants(&node.end(1)), [2]);
    assert_eq!(
        count(&node.log, |a| matches!(
            a,
            Action::Create { .. } | Action::Destroy { .. }
        )),
        0
    );
}

#[test]
fn sequential_gives_each_job_the_whole_gpu() {
    let mut node = Node::new(Policy::Sequential, &[]);
    node.arrive(1, 1.0);
    node.arrive(2, 1.0);
    assert_eq!(
        (node.place(1).as_str(), node.place(2).as_str()),
        ("7g.40gb@0", "none")
    );
    assert_eq!(grants(&node.end(1)), [2]);
    assert_eq!(node.place(2), "7g.40gb@0");
    assert_eq!(count(&node.log, |a| matches!(a, Action::Create { .. })), 1);
    let actions = node.step(Event::Forecast {
        job: JobId(2),
        need: need(50.0),
    });
    assert!(actions.is_empty());
}

#[test]
fn an_adopted_slice_is_used_and_numbers_go_on_after_it() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let at = |name| node.table.slot_named(name).unwrap();
    let (busy, idle) = (at("2g.10gb@0"), at("1g.5gb@3"));
    for (number, slot, holder) in [(70, busy, Some(JobId(5))), (71, idle, None)] {
        node.step(Event::Slice {
            slice: Incarnation(number),
            gpu: GpuIndex(0),
            profile: slot.0,
            placement: slot.1,
            fixed: false,
            holder,
        });
    }
    node.arrive(6, 1.0);
    assert_eq!(
        (node.place(5).as_str(), node.place(6).as_str()),
        ("2g.10gb@0", "1g.5gb@3")
    );
    let actions = node.arrive(7, 1.0);
    assert!(matches!(
        actions[0],
        Action::Create {
            slice: Incarnation(72),
            ..
        }
    ));
    // The adopted job goes on like any other.
    assert_eq!(grants(&node.again(5, 11.0)), [5]);
}

#[test]
fn an_illegal_create_is_not_asked_for_again_in_that_state() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let actions = node.step(Event::Arrived {
        job: JobId(1),
        need: need(1.0),
    });
    let Action::Create { slice, placement, .. } = actions[0] else {
        panic!("{actions:?}")
    };
    let actions = node.step(Event::CreateFailed { slice, illegal: true });
    let Action::Create {
        placement: second, ..
    } = actions[0]
    else {
        panic!("{actions:?}")
    };
    assert_eq!((placement.start, second.start), (6, 0));
}

/// Idle slices by name on GPU 0, beside job 9 on a busy one; job 8 wants the whole GPU and waits.
fn behind_one_that_waits(busy: &str, idle: &[&str]) -> Node {
    let mut node = Node::new(Policy::SchemeB, &[]);
    for (number, name) in (40..).zip([busy].iter().chain(idle)) {
        let (profile, placement) = node.table.slot_named(name).unwrap();
        node.step(Event::Slice {
            slice: Incarnation(number),
            gpu: GpuIndex(0),
            profile,
            placement,
            fixed: false,
            holder: (number == 40).then_some(JobId(9)),
        });
    }
    node.arrive(8, 30.0);
    assert_eq!(node.scheduler.queue(), [JobId(8)]);
    node
}

#[test]
fn of_two_idle_slices_that_goes_for_which_nobody_waits() {
    for (behind, stays) in [(6.0, "2g.10gb@4"), (12.0, "4g.20gb@0")] {
        let mut node = behind_one_that_waits("1g.5gb@6", &["4g.20gb@0", "2g.10gb@4"]);
        node.arrive(1, 1.0);
        node.arrive(2, behind);
        let actions = node.run(Event::Withdrawn { job: JobId(8) });
        assert_eq!(grants(&actions), [1, 2]);
        assert_eq!(node.place(2), stays);
        assert_eq!(count(&actions, |a| matches!(a, Action::Destroy { .. })), 1);
        assert_eq!(count(&actions, |a| matches!(a, Action::Create { .. })), 1);
    }
}

#[test]
fn an_idle_slice_in_the_way_is_moved_for_the_job_that_waits_for_it() {
    let mut node = behind_one_that_waits("1g.5gb@0", &["2g.10gb@4"]);
    node.arrive(1, 12.0);
    node.arrive(2, 6.0);
    let actions = node.run(Event::Withdrawn { job: JobId(8) });
    assert_eq!(grants(&actions), [1, 2]);
    assert_eq!(
        (node.place(1).as_str(), node.place(2).as_str()),
        ("3g.20gb@4", "2g.10gb@2")
    );
    // Gone before, and made again behind the one that it made room for.
    let kinds: String = actions
        .iter()
        .map(|action| match action {
            Action::Destroy { .. } => '-',
            Action::Create { .. } => '+',
            _ => ' ',
        })
        .collect();
    assert_eq!(kinds.replace(' ', ""), "-++");
}

#[test]
fn what_the_driver_never_makes_beside_a_busy_slice_is_made_in_another_order() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    let slot = |name| node.table.slot_named(name).unwrap();
    let (small, three) = (slot("1g.5gb@0"), slot("3g.20gb@4"));
    let alone = node.table.state_of(&[small]).unwrap();
    let less = node.table.without(alone, three);
    node.step(Event::Gpu {
        gpu: GpuIndex(0),
        table: Arc::new(less),
        foreign: Vec::new(),
    });
    node.step(Event::Slice {
        slice: Incarnation(40),
        gpu: GpuIndex(0),
        profile: small.0,
        placement: small.1,
        fixed: false,
        holder: Some(JobId(9)),
    });
    let actions = node.arrive(1, 12.0);
    assert_eq!(node.place(1), "3g.20gb@4");
    assert_eq!(count(&actions, |a| matches!(a, Action::Create { .. })), 2);
}

#[test]
fn a_passing_refusal_waits_for_a_change_or_a_pause() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(9, 1.0);
    let create = |actions: &[Action]| match actions {
        [Action::Create { slice, .. }, ..] => *slice,
        other => panic!("{other:?}"),
    };
    let slice = create(
        &node
            .step(Event::Arrived {
                job: JobId(1),
                need: need(35.0),
            })
            .into_iter()
            .chain(node.step(Event::Ended {
                job: JobId(9),
                again: None,
            }))
            .flat_map(|action| match action {
                Action::Destroy { slice } => node.step(Event::Destroyed { slice }),
                other => vec![other],
            })
            .collect::<Vec<_>>(),
    );
    assert!(
        node.step(Event::CreateFailed {
            slice,
            illegal: false
        })
        .is_empty()
    );
    assert!(
        node.scheduler
            .why_waiting(JobId(1))
            .starts_with("the driver refused")
    );
    let slice = create(&node.step(Event::Tick));
    assert!(
        node.step(Event::CreateFailed {
            slice,
            illegal: false
        })
        .is_empty()
    );
    assert!(node.step(Event::Tick).is_empty(), "the pause has doubled");
    let slice = create(&node.step(Event::Tick));
    node.step(Event::Created { slice });
    assert_eq!(node.place(1), "7g.40gb@0");
}

#[test]
fn a_slice_that_cannot_be_removed_stays_usable() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    node.end(1);
    let actions = node.step(Event::Arrived {
        job: JobId(2),
        need: need(35.0),
    });
    let Action::Destroy { slice } = actions[0] else {
        panic!("{actions:?}")
    };
    let refused = refusals(&node.step(Event::DestroyFailed { slice }));
    assert!(
        refused[0].ends_with("7g.40gb on GPU 0 (1g.5gb@6, which cannot be removed)"),
        "{refused:?}"
    );
    node.arrive(3, 1.0);
    assert_eq!(node.place(3), "1g.5gb@6");
    // Used since, so it may be tried again.
    node.end(3);
    node.arrive(4, 35.0);
    assert_eq!(node.place(4), "7g.40gb@0");
}

#[test]
fn a_vanished_slice_does_not_count_as_outgrown() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    let slice = node.scheduler.slice_of(JobId(1)).unwrap();
    node.step(Event::Vanished { slice });
    assert_eq!(node.scheduler.note(JobId(1)), Some("its slice has gone"));
    node.again(1, 1.0);
    assert_eq!(node.place(1), "1g.5gb@6");
}

#[test]
fn two_gpus_are_filled_where_least_is_lost() {
    let mut node = Node::new(Policy::SchemeB, &["4g.20gb@0"]);
    node.step(Event::Gpu {
        gpu: GpuIndex(1),
        table: Arc::clone(&node.table),
        foreign: Vec::new(),
    });
    node.arrive(1, 1.0);
    // The other GPU stays whole.
    let slice = node.scheduler.slice_of(JobId(1)).unwrap();
    assert_eq!(node.scheduler.slice(slice).unwrap().gpu, GpuIndex(0));
}

/// In the order of arrival each could take the place that a later one needs.
#[test]
fn the_jobs_that_wait_are_placed_together() {
    for needs in [
        &[1.0, 1.0, 6.0, 12.0][..],
        &[1.0, 6.0, 1.0, 12.0],
        &[6.0, 1.0, 12.0, 1.0],
        &[6.0, 6.0, 12.0],
        &[1.0, 1.0, 1.0, 1.0, 12.0],
    ] {
        let mut node = Node::new(Policy::SchemeB, &[]);
        // All wait behind a job that holds the whole GPU.
        node.arrive(9, 30.0);
        for (job, &gib) in (1..).zip(needs) {
            node.arrive(job, gib);
            assert_eq!(node.place(job), "none");
        }
        node.end(9);
        let places: Vec<String> = (1..).zip(needs).map(|(job, _)| node.place(job)).collect();
        assert!(!places.contains(&"none".to_owned()), "{needs:?}: {places:?}");
    }
}

#[test]
fn places_follow_what_the_jobs_have_wanted() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    assert_eq!(node.scheduler.kinds[0].name(), "fcr");
    for job in 1..40 {
        node.arrive(job, 1.0);
        node.end(job);
    }
    assert_eq!(node.scheduler.kinds[0].name(), "ours, learning");
}

#[test]
fn a_restricted_job_gets_its_gpus_only() {
    let mut node = Node::new(Policy::SchemeB, &["4g.20gb@0"]);
    node.step(Event::Gpu {
        gpu: GpuIndex(1),
        table: Arc::clone(&node.table),
        foreign: Vec::new(),
    });
    let job = JobId(1);
    node.step(Event::Restricted {
        job,
        gpus: vec![GpuIndex(0)],
    });
    node.arrive(1, 1.0);
    let slice = node.scheduler.slice_of(job).unwrap();
    assert_eq!(node.scheduler.slice(slice).unwrap().gpu, GpuIndex(0));
    // No move to a slice that it may not use.
    assert!(
        node.step(Event::Forecast {
            job,
            need: need(30.0)
        })
        .is_empty()
    );
    node.step(Event::Restricted {
        job: JobId(2),
        gpus: Vec::new(),
    });
    assert_eq!(
        refusals(&node.arrive(2, 1.0)),
        ["needs 1.00 GiB; no slice can be had on the GPUs that it may use"]
    );
}

#[test]
fn unlike_gpus_each_offer_their_own_tightest() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.step(Event::Gpu {
        gpu: GpuIndex(1),
        table: Arc::new(samples::a30_base()),
        foreign: Vec::new(),
    });
    // 4.75 GiB slices of the A100 first, then the A30's 5.81 GiB ones rather than waiting.
    for job in 1..=11 {
        node.arrive(job, 1.0);
    }
    assert!(node.scheduler.queue().is_empty());
    let slice = node.scheduler.slice_of(JobId(8)).unwrap();
    assert_eq!(node.scheduler.slice(slice).unwrap().gpu, GpuIndex(1));
}

#[test]
fn stray_events_change_nothing() {
    let mut node = Node::new(Policy::SchemeB, &[]);
    node.arrive(1, 1.0);
    let stray = Incarnation(99);
    let before = format!("{:?}", node.scheduler.slices().collect::<Vec<_>>());
    for event in [
        Event::Created { slice: stray },
        Event::CreateFailed {
            slice: stray,
            illegal: true,
        },
        Event::Destroyed { slice: stray },
        Event::DestroyFailed { slice: stray },
        Event::Vanished { slice: stray },
        Event::Created {
            slice: Incarnation(1),
        },
        Event::DestroyFailed {
            slice: Incarnation(1),
        },
        Event::Destroyed {
            slice: Incarnation(1),
        },
        Event::Slice {
            slice: Incarnation(50),
            gpu: GpuIndex(7),
            profile: ProfileIndex(0),
            placement: Placement { start: 0, size: 1 },
            fixed: false,
            holder: None,
        },
        Event::Slice {
            slice: Incarnation(50),
            gpu: GpuIndex(0),
            profile: ProfileIndex(9),
            placement: Placement { start: 0, size: 1 },
            fixed: false,
            holder: None,
        },
        Event::Ended {
            job: JobId(9),
            again: None,
        },
        Event::Withdrawn { job: JobId(1) },
        Event::Withdrawn { job: JobId(9) },
        Event::Arrived {
            job: JobId(1),
            need: need(9.0),
        },
        Event::Forecast {
            job: JobId(9),
            need: need(9.0),
        },
        Event::Tick,
    ] {
        assert!(node.step(event.clone()).is_empty(), "{event:?}");
    }
    assert_eq!(
        format!("{:?}", node.scheduler.slices().collect::<Vec<_>>()),
        before
    );
}
