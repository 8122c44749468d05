//! What the pure rooms cost: the state table of a GPU, a plan, a scheduler step, a forecast.
//!
//! `cargo bench --bench pure` prints the median and the 99th percentile of each in microseconds.

mod gpus;

use std::collections::VecDeque;
use std::hint::black_box;
use std::sync::Arc;
use std::time::Instant;

use migm_shared::ids::{Incarnation, JobId};
use migm_supervisor::layout::{Goal, Rules, Table, base};
use migm_supervisor::memory::{Method, Observation};
use migm_supervisor::schedule::{Action, Event, GpuIndex, Need, Policy, Scheduler, Terms, Wish};

fn measure(what: &str, times: usize, mut run: impl FnMut()) {
    let mut seconds: Vec<f64> = (0..times)
        .map(|_| {
            let start = Instant::now();
            run();
            start.elapsed().as_secs_f64()
        })
        .collect();
    seconds.sort_by(f64::total_cmp);
    let micro = |index: usize| seconds[index] * 1e6;
    println!(
        "{what:48} median {:9.2} us   99 % {:9.2} us",
        micro(times / 2),
        micro(times * 99 / 100)
    );
}

fn main() {
    let all = gpus::a100();
    let five = base(&all);
    measure("table, 7 profiles, 2319 states", 100, || {
        black_box(Table::build(all.clone(), Rules::default()).expect("a table"));
    });
    measure("table, 5 profiles, 298 states", 100, || {
        black_box(Table::build(five.clone(), Rules::default()).expect("a table"));
    });
    let table = Table::build(five.clone(), Rules::default()).expect("a table");
    let idle: Vec<_> = [
        "1g.5gb@0", "1g.5gb@1", "1g.5gb@2", "1g.5gb@3", "1g.5gb@4", "1g.5gb@5", "1g.5gb@6",
    ]
    .iter()
    .map(|name| table.slot_named(name).expect("a slot"))
    .collect();
    let whole = table.full();
    measure("plan, 7 idle slices fused into the whole GPU", 1_000, || {
        let goal = Goal::OneMore {
            profile: whole,
            keeping: &[],
        };
        let _ = black_box(table.transition(&[], &idle, goal));
    });
    let table = Arc::new(table);
    measure("scheduler, 64 jobs from arrival to end", 100, || {
        black_box(run_batch(Arc::clone(&table)));
    });
    for (what, users) in [
        ("scheduler, 1,000 wait: one ends, one comes", 1),
        ("the same, of four users and two priorities", 4),
    ] {
        let mut busy = Busy::new(&table, users);
        measure(what, 2_000, || busy.turn());
    }
    let mut predictor = Method::Migm.start();
    let mut x = 0.0;
    measure("forecast, one observation and its forecast", 10_000, || {
        x += 1.0;
        predictor.observe(Observation::reserved_only(x, 2 << 30));
        black_box(predictor.forecast(Some(1e6)));
    });
}

/// Eight GPUs, each one job's, before which a thousand wait.
struct Busy {
    scheduler: Scheduler,
    users: u32,
    now: f64,
    jobs: u64,
    running: VecDeque<JobId>,
}

impl Busy {
    fn new(table: &Arc<Table>, users: u32) -> Self {
        let mut busy = Self {
            scheduler: Scheduler::new(Policy::Sequential, Incarnation(1)),
            users,
            now: 0.0,
            jobs: 0,
            running: VecDeque::new(),
        };
        for gpu in 0..8 {
            busy.step(Event::Gpu {
                gpu: GpuIndex(gpu),
                table: Arc::clone(table),
                foreign: Vec::new(),
            });
        }
        (0..1_008).for_each(|_| busy.arrive());
        busy
    }

    fn step(&mut self, event: Event) {
        for action in self.scheduler.step(self.now, event) {
            match action {
                Action::Create { slice, .. } => self.step(Event::Created { slice }),
                Action::Grant { job, .. } => self.running.push_back(job),
                _ => {}
            }
        }
    }

    fn arrive(&mut self) {
        let job = JobId(self.jobs);
        self.jobs += 1;
        let number = u32::try_from(self.jobs).unwrap_or(0);
        let terms = Terms {
            user: number % self.users,
            priority: i32::from(self.users > 1 && number % 7 == 0),
            wish: Wish::Any,
        };
        self.step(Event::Terms { job, terms });
        let need = Need::default();
        self.step(Event::Arrived { job, need });
    }

    fn turn(&mut self) {
        self.now += 1.0;
        if let Some(job) = self.running.pop_front() {
            self.step(Event::Ended { job, again: None });
        }
        self.arrive();
    }
}

/// Jobs of an unknown need, each ended as soon as it has a slice; gives the number of actions.
fn run_batch(table: Arc<Table>) -> usize {
    let mut scheduler = Scheduler::new(Policy::SchemeB, Incarnation(1));
    let mut events = vec![Event::Gpu {
        gpu: GpuIndex(0),
        table,
        foreign: Vec::new(),
    }];
    events.extend((0..64).map(|job| Event::Arrived {
        job: JobId(job),
        need: Need {
            device_bytes: (job % 5) << 32,
        },
    }));
    let (mut next, mut actions) = (0, 0);
    while next < events.len() {
        for action in scheduler.step(0.0, events[next].clone()) {
            actions += 1;
            match action {
                Action::Create { slice, .. } => events.push(Event::Created { slice }),
                Action::Destroy { slice } => events.push(Event::Destroyed { slice }),
                Action::Grant { job, .. } => events.push(Event::Ended { job, again: None }),
                Action::Move { .. } | Action::Refuse { .. } => {}
                Action::Look { .. }
                | Action::Lease { .. }
                | Action::Grow { .. }
                | Action::Shrink { .. }
                | Action::Stay { .. } => {}
            }
        }
        next += 1;
    }
    actions
}
