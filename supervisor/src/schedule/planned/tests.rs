//! What the machine makes of a decider's orders, one test for each rule that random runs do not meet.

use std::sync::{Arc, Mutex};

use migm_shared::ids::{Incarnation, JobId};
use migm_shared::units::GIB;

use crate::layout::{ProfileIndex, Slot, Table, samples};
use crate::schedule::policy::{Choice, PolicyName};
use crate::schedule::soft::{Cut, Room};
use crate::schedule::{Action, Board, Decider, Event, Facts, GpuIndex, Need, Order, Scheduler};

const MIG: GpuIndex = GpuIndex(0);
const SHARED: GpuIndex = GpuIndex(1);
const ROOM: Room = Room {
    now: 40 * GIB,
    most: 40 * GIB,
};

/// Orders what the test says, and notes what it is shown of running jobs: which, and their need.
#[derive(Clone, Debug, Default)]
struct Told {
    next: Arc<Mutex<Vec<Order>>>,
    shown: Arc<Mutex<Vec<(JobId, u64)>>>,
}

impl Decider for Told {
    fn decide(&mut self, board: &Board<'_>) -> Vec<Order> {
        let held = board.gpus.iter().flat_map(|desk| &desk.held);
        *self.shown.lock().unwrap() = held.filter_map(|held| Some((held.job?, held.need))).collect();
        std::mem::take(&mut self.next.lock().unwrap())
    }
}

fn named(policy: &str) -> Scheduler {
    let choice = Choice {
        fifo: false,
        moves: true,
        search: 30,
        create: 0.3,
        destroy: 0.2,
    };
    let policy: PolicyName = policy.parse().unwrap();
    policy.scheduler(choice, Incarnation(1)).unwrap()
}

/// One event, then what the driver answers, until all is quiet. Readings are not answered.
fn run(scheduler: &mut Scheduler, event: Event) -> Vec<Action> {
    let (mut all, mut events) = (Vec::new(), vec![event, Event::Settled]);
    while !events.is_empty() {
        for event in std::mem::take(&mut events) {
            let actions = scheduler.step(1.0, event);
            events.extend(actions.iter().filter_map(|action| match *action {
                Action::Create { slice, .. } => Some(Event::Created { slice }),
                Action::Destroy { slice } => Some(Event::Destroyed { slice }),
                _ => None,
            }));
            all.extend(actions);
        }
        if !events.is_empty() {
            events.push(Event::Settled);
        }
    }
    all
}

fn gpu(scheduler: &mut Scheduler) -> Arc<Table> {
    let table = Arc::new(samples::a100_base());
    let event = Event::Gpu {
        gpu: MIG,
        table: Arc::clone(&table),
        foreign: Vec::new(),
    };
    run(scheduler, event);
    table
}

fn shared_gpu(scheduler: &mut Scheduler) {
    let cut = Cut {
        first: 5 * GIB,
        grain: GIB,
        grows: true,
    };
    run(scheduler, Event::SoftGpu { gpu: SHARED, cut });
}

fn arrive(scheduler: &mut Scheduler, job: u64, gib: u64) -> Vec<Action> {
    let need = Need {
        device_bytes: gib * GIB,
    };
    run(
        scheduler,
        Event::Arrived {
            job: JobId(job),
            need,
        },
    )
}

fn read(scheduler: &mut Scheduler) -> Vec<Action> {
    let room = Some(ROOM);
    run(scheduler, Event::Room { gpu: SHARED, room })
}

fn slot(table: &Table, name: &str, start: u32) -> Slot {
    let found = table.profiles().iter().position(|profile| profile.name == name);
    let profile = ProfileIndex(found.unwrap());
    let mut places = table.profile(profile).placements.iter();
    (profile, *places.find(|place| place.start == start).unwrap())
}

fn granted(actions: &[Action]) -> Vec<u64> {
    let granted = actions.iter().filter_map(|action| match action {
        Action::Grant { job, .. } => Some(job.0),
        _ => None,
    });
    granted.collect()
}

fn looks(actions: &[Action]) -> usize {
    let looks = actions
        .iter()
        .filter(|action| matches!(action, Action::Look { .. }));
    looks.count()
}

#[test]
fn what_the_decider_leaves_waiting_gets_a_soft_slice_by_a_fresh_reading() {
    let mut node = named("static:7g");
    gpu(&mut node);
    shared_gpu(&mut node);
    let actions = arrive(&mut node, 1, 4);
    assert_eq!((granted(&actions), looks(&actions)), (vec![1], 0), "{actions:?}");
    let actions = arrive(&mut node, 2, 4);
    assert_eq!((granted(&actions), looks(&actions)), (vec![], 1), "{actions:?}");
    let actions = read(&mut node);
    assert_eq!((granted(&actions), looks(&actions)), (vec![2], 0), "{actions:?}");
    assert_eq!(node.waiting(), 0);
}

#[test]
fn a_reading_that_serves_nobody_asks_for_no_other() {
    let mut node = named("migm");
    shared_gpu(&mut node);
    for job in 1..=9 {
        arrive(&mut node, job, 5);
    }
    let actions = read(&mut node);
    assert_eq!((granted(&actions).len(), looks(&actions)), (8, 0));
    assert!(run(&mut node, Event::Settled).is_empty());
    assert_eq!(looks(&run(&mut node, Event::Tick)), 1);
    assert_eq!(looks(&read(&mut node)), 0);
    // The end of one makes room for the ninth.
    let over = Event::Ended {
        job: JobId(3),
        again: None,
    };
    assert_eq!(looks(&run(&mut node, over)), 1);
    assert_eq!(granted(&read(&mut node)), [9]);
}

#[test]
fn on_shared_gpus_alone_leases_go_in_order_and_what_fits_none_is_refused() {
    let mut node = named("migm");
    shared_gpu(&mut node);
    for (job, gib) in [(1, 38), (2, 5), (3, 1)] {
        arrive(&mut node, job, gib);
    }
    // The third would fit, and waits behind the second.
    assert_eq!(granted(&read(&mut node)), [1]);
    arrive(&mut node, 4, 50);
    let refused = |actions: &[Action]| {
        let mut actions = actions.iter();
        actions.any(|action| matches!(action, Action::Refuse { job: JobId(4), .. }))
    };
    let over = Event::Ended {
        job: JobId(1),
        again: None,
    };
    run(&mut node, over);
    let actions = read(&mut node);
    assert_eq!(granted(&actions), [2, 3]);
    assert!(refused(&actions), "{actions:?}");
}

#[test]
fn a_job_that_no_slice_of_the_static_layout_holds_is_refused_with_its_largest() {
    let mut node = named("static:7x1g");
    gpu(&mut node);
    let actions = arrive(&mut node, 1, 8);
    let Some(Action::Refuse { reason, .. }) = actions.first() else {
        panic!("{actions:?}")
    };
    assert!(
        reason.contains("the largest slice to be had here is 1g.5gb"),
        "{reason}"
    );
    assert_eq!(granted(&arrive(&mut node, 2, 4)), [2]);
    // It would have to move and cannot: it stays.
    let need = Need {
        device_bytes: 9 * GIB,
    };
    let forecast = Event::Forecast { job: JobId(2), need };
    assert!(run(&mut node, forecast).is_empty());
}

/// A GPU without MIG, or one whose instances we may only use.
#[test]
fn what_stands_and_may_not_be_changed_is_used_one_job_after_the_other_by_every_policy() {
    for policy in ["migm", "far", "mfi", "miso", "scheme-a", "static:4g+3g"] {
        use_what_stands(policy);
    }
}

fn use_what_stands(policy: &str) {
    let mut node = named(policy);
    let table = Arc::new(samples::a100_base().frozen());
    let (profile, placement) = slot(&table, "7g.40gb", 0);
    let foreign = Vec::new();
    run(
        &mut node,
        Event::Gpu {
            gpu: MIG,
            table,
            foreign,
        },
    );
    let whole = Event::Slice {
        slice: Incarnation(1),
        gpu: MIG,
        profile,
        placement,
        fixed: true,
        holder: None,
    };
    run(&mut node, whole);
    assert_eq!(granted(&arrive(&mut node, 1, 30)), [1], "{policy}");
    assert!(granted(&arrive(&mut node, 2, 0)).is_empty(), "{policy}");
    let over = Event::Ended {
        job: JobId(1),
        again: None,
    };
    assert_eq!(granted(&run(&mut node, over)), [2], "{policy}");
}

#[test]
fn a_job_that_is_to_stay_is_not_moved_for_speed() {
    let told = Told::default();
    let mut node = Scheduler::with_decider(Box::new(told.clone()), Incarnation(1));
    let table = gpu(&mut node);
    let order = |job: u64, slot: Slot| Order {
        job: JobId(job),
        gpu: MIG,
        slot: Some(slot),
        reason: "as told".to_owned(),
    };
    *told.next.lock().unwrap() = vec![order(1, slot(&table, "1g.5gb", 0))];
    assert_eq!(granted(&arrive(&mut node, 1, 3)), [1]);
    let facts = |stays| Event::Facts {
        job: JobId(1),
        facts: Arc::new(Facts {
            keeps_work: true,
            stays,
            weight: 1.0,
            ..Facts::default()
        }),
    };
    for (stays, moves) in [(true, 0), (false, 1)] {
        *told.next.lock().unwrap() = vec![order(1, slot(&table, "3g.20gb", 4))];
        let actions = run(&mut node, facts(stays));
        let asked = actions
            .iter()
            .filter(|action| matches!(action, Action::Move { for_speed: true, .. }));
        assert_eq!(asked.count(), moves, "stays: {stays}");
    }
}

#[test]
fn a_job_of_an_earlier_supervisor_may_need_all_of_its_slice_until_more_is_known() {
    let told = Told::default();
    let mut node = Scheduler::with_decider(Box::new(told.clone()), Incarnation(1));
    let table = gpu(&mut node);
    let (profile, placement) = slot(&table, "2g.10gb", 0);
    let running = Event::Slice {
        slice: Incarnation(7),
        gpu: MIG,
        profile,
        placement,
        fixed: false,
        holder: Some(JobId(4)),
    };
    run(&mut node, running);
    let memory = table.profile(profile).memory;
    assert_eq!(*told.shown.lock().unwrap(), [(JobId(4), memory)]);
    let need = Need { device_bytes: GIB };
    run(&mut node, Event::Enough { job: JobId(4), need });
    assert_eq!(*told.shown.lock().unwrap(), [(JobId(4), GIB)]);
}

#[test]
fn who_waits_is_told_what_for() {
    let mut node = named("static:4g+3g");
    gpu(&mut node);
    for job in 1..=4 {
        arrive(&mut node, job, 4);
    }
    let why = |node: &Scheduler, job| node.why_waiting(JobId(job));
    assert_eq!(why(&node, 3), "nothing is free: running jobs must end first");
    assert_eq!(
        why(&node, 4),
        "nothing is free: running jobs must end first; 1 job came before it"
    );
    assert_eq!(why(&node, 1), "", "it runs");
    // Its slot is promised, and the driver has not answered.
    let mut node = named("migm");
    gpu(&mut node);
    let need = Need { device_bytes: GIB };
    node.step(0.0, Event::Arrived { job: JobId(1), need });
    node.step(0.0, Event::Settled);
    let said = why(&node, 1);
    assert!(
        said.starts_with("7g.40gb@0 on GPU 0 is kept for it, which is being created: "),
        "{said}"
    );
}

#[test]
fn a_place_promised_for_a_forecast_below_what_the_job_then_needs_is_given_up() {
    let told = Told::default();
    let mut scheduler = Scheduler::with_decider(Box::new(told.clone()), Incarnation(1));
    let table = gpu(&mut scheduler);
    let order = |name: &str, start: u32| Order {
        job: JobId(1),
        gpu: MIG,
        slot: Some(slot(&table, name, start)),
        reason: "as told".to_owned(),
    };
    let facts = Arc::new(Facts {
        weight: 1.0,
        keeps_work: true,
        ..Facts::default()
    });
    run(&mut scheduler, Event::Facts { job: JobId(1), facts });
    *told.next.lock().unwrap() = vec![order("3g.20gb", 0)];
    assert_eq!(granted(&arrive(&mut scheduler, 1, 15)), [1]);
    let job = JobId(1);
    let need = |gib: u64| Need {
        device_bytes: gib * GIB,
    };
    // Forecast to need less, it is asked to move to less; when it has ended its need is what it was.
    *told.next.lock().unwrap() = vec![order("1g.5gb", 6)];
    let need_now = need(4);
    let asked = run(&mut scheduler, Event::Enough { job, need: need_now });
    assert!(asked.iter().any(|action| matches!(action, Action::Move { .. })));
    let need_then = need(15);
    let need = need_then;
    assert!(granted(&run(&mut scheduler, Event::Moved { job, need })).is_empty());
    *told.next.lock().unwrap() = vec![order("3g.20gb", 4)];
    assert_eq!(granted(&run(&mut scheduler, Event::Tick)), [1]);
}

#[test]
fn slices_are_made_in_the_order_of_the_orders() {
    let told = Told::default();
    let mut scheduler = Scheduler::with_decider(Box::new(told.clone()), Incarnation(1));
    let table = gpu(&mut scheduler);
    let order = |job: u64, start: u32| Order {
        job: JobId(job),
        gpu: MIG,
        slot: Some(slot(&table, "1g.5gb", start)),
        reason: "as told".to_owned(),
    };
    for job in 1..=3 {
        let need = Need { device_bytes: GIB };
        let job = JobId(job);
        scheduler.step(0.0, Event::Arrived { job, need });
    }
    *told.next.lock().unwrap() = vec![order(3, 0), order(1, 2), order(2, 1)];
    let made = scheduler.step(0.0, Event::Settled);
    let starts = made.iter().filter_map(|action| match action {
        Action::Create { placement, .. } => Some(placement.start),
        _ => None,
    });
    assert_eq!(starts.collect::<Vec<_>>(), [0, 2, 1]);
}
