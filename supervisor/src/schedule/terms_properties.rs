//! What priorities, shares and wishes come to over a long run, under every policy.

use std::collections::BTreeMap;

use migm_shared::ids::{Incarnation, JobId};

use super::policy::Fixed;
use super::world::{Arrival, World};
use super::*;

/// All policies by name, on one A100.
fn policies() -> Vec<(&'static str, Scheduler)> {
    let planned = (0..super::planned_properties::POLICIES).map(|which| {
        let names = [
            "migm",
            "migm, in order",
            "migm, no search",
            "migm, no moves",
            "miso",
            "mfi",
            "scheme-a",
            "far",
        ];
        (
            names[usize::from(which)],
            super::planned_properties::scheduler(which),
        )
    });
    let table = crate::layout::samples::a100_base();
    let layout = ["4g.20gb@0", "3g.20gb@4"].map(|name| table.slot_named(name).unwrap());
    let fixed = Fixed::new(vec![layout.to_vec()], super::policy::Rule::Fastest);
    let others = [
        ("static", Scheduler::with_decider(Box::new(fixed), Incarnation(1))),
        ("scheme-b", Scheduler::new(Policy::SchemeB, Incarnation(1))),
        ("sequential", Scheduler::new(Policy::Sequential, Incarnation(1))),
    ];
    planned.chain(others).collect()
}

fn job(gib: u64, work: u16, user: u32, priority: i32) -> Arrival {
    Arrival {
        gib,
        work,
        kept: false,
        known: true,
        terms: Terms {
            user,
            priority,
            wish: Wish::Any,
        },
    }
}

/// The GPU in virtual time: each attempt takes its work by the share of its slice.
struct Clock {
    world: World,
    ends: BTreeMap<JobId, f64>,
    works: BTreeMap<JobId, f64>,
}

impl Clock {
    fn new(scheduler: Scheduler) -> Self {
        Self {
            world: World::new(scheduler, 0, true),
            ends: BTreeMap::new(),
            works: BTreeMap::new(),
        }
    }

    fn arrive(&mut self, arrival: &Arrival) -> JobId {
        let job = self.world.arrive(arrival);
        self.works.insert(job, f64::from(arrival.work));
        job
    }

    /// All that is under way is done; jobs that have started since are given their ends, in order of their numbers.
    fn settle(&mut self) -> Vec<JobId> {
        self.world.step(Event::Settled);
        self.world.answer_all();
        let started: Vec<JobId> = self
            .world
            .running
            .keys()
            .copied()
            .filter(|job| !self.ends.contains_key(job))
            .collect();
        for &job in &started {
            let seconds = self.works[&job] / self.world.part(job).sqrt();
            self.ends.insert(job, self.world.now + seconds);
        }
        started
    }

    /// The next job ends; those asked to move first.
    fn advance(&mut self) -> Vec<JobId> {
        let next = self.ends.iter().min_by(|a, b| a.1.total_cmp(b.1));
        let (job, at) = next.map(|(&job, &at)| (job, at)).unwrap();
        self.world.now = self.world.now.max(at);
        self.ends.remove(&job);
        self.world.end(job, None);
        self.settle()
    }
}

#[test]
fn the_higher_priority_starts_first_whatever_the_policy() {
    for (name, scheduler) in policies() {
        let mut clock = Clock::new(scheduler);
        let first = clock.arrive(&job(30, 500, 0, 0));
        clock.settle();
        if name == "static" {
            assert!(
                clock.world.over.contains(&first),
                "no slice of the layout holds that"
            );
            // Others take its place.
            clock.arrive(&job(1, 500, 0, 0));
            clock.arrive(&job(1, 500, 0, 0));
            clock.settle();
        }
        for _ in 0..4 {
            clock.arrive(&job(18, 100, 1, 0));
        }
        // Twenty times as long, and last.
        let urgent = clock.arrive(&job(18, 2000, 1, 1));
        clock.settle();
        let mut started = Vec::new();
        while started.is_empty() {
            started = clock.advance();
        }
        assert!(
            started.contains(&urgent),
            "{name}: {started:?} and not {urgent:?}"
        );
    }
}

/// Two users who always have jobs waiting, one of them four times as many. Under policies that serve in order they are apart by
/// what the node does in its longest run at most; the others weigh, and stay within a twentieth of all.
#[test]
fn two_users_of_equal_demand_get_equal_shares_over_a_long_run() {
    for (name, scheduler) in policies() {
        let in_order = scheduler.planned.is_none();
        let mut clock = Clock::new(scheduler);
        let mut dice = 1_u64;
        let mut work = || {
            dice = dice
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            60 + u16::try_from((dice >> 33) % 600).unwrap()
        };
        let waiting = |clock: &Clock, user: u32| {
            let mine = clock.world.waiting.iter();
            mine.filter(|job| clock.world.user(**job) == user).count()
        };
        let mut longest = 0.0_f64;
        for _ in 0..400 {
            for (user, least) in [(1, 12), (2, 3)] {
                while waiting(&clock, user) < least {
                    clock.arrive(&job(8, work(), user, 0));
                }
            }
            clock.settle();
            clock.advance();
            let ends = clock.ends.iter();
            let lasts = ends.map(|(job, _)| clock.works[job] / clock.world.part(*job).sqrt());
            longest = lasts.fold(longest, f64::max);
        }
        let (_, used) = clock.world.scheduler.used();
        let (one, two) = (used[&1], used[&2]);
        let apart = (one - two).abs();
        let most = if in_order {
            longest
        } else {
            longest.max(0.05 * (one + two))
        };
        println!("{name}: {one:.0} and {two:.0} GPU seconds, longest run {longest:.0} s");
        assert!(
            apart <= most,
            "{name}: {one} and {two}, apart by more than {most}"
        );
    }
}

#[test]
fn a_user_who_comes_late_is_not_behind_the_long_queue_of_another() {
    for (name, scheduler) in policies() {
        let mut clock = Clock::new(scheduler);
        for _ in 0..60 {
            clock.arrive(&job(8, 300, 1, 0));
        }
        clock.settle();
        for _ in 0..6 {
            clock.advance();
        }
        let late: Vec<JobId> = (0..4).map(|_| clock.arrive(&job(8, 300, 2, 0))).collect();
        clock.settle();
        let mut others = 0;
        while late.iter().any(|job| clock.world.waiting.contains(job)) {
            let started = clock.advance();
            others += started.iter().filter(|job| !late.contains(job)).count();
        }
        println!("{name}: {others} of the long queue start before the last of four that came late");
        assert!(others <= 8, "{name}: {others} of the long queue went before");
    }
}

/// A job of priority 0 behind an endless stream of priority 1 is of their level after an hour and above it after two: then it starts as soon as
/// another has ended.
#[test]
fn a_low_priority_starts_within_hours_whatever_the_policy() {
    for (name, scheduler) in policies() {
        let mut clock = Clock::new(scheduler);
        let urgent = job(18, 600, 2, 1);
        for _ in 0..6 {
            clock.arrive(&urgent);
        }
        clock.settle();
        let came = clock.world.now;
        let patient = clock.arrive(&job(18, 600, 1, 0));
        clock.settle();
        let mut runs = 0;
        while clock.world.waiting.contains(&patient) {
            clock.arrive(&urgent);
            clock.advance();
            runs += 1;
            assert!(runs < 1000, "{name}: it starves");
        }
        let waited = clock.world.now - came;
        let run = 600.0 / 0.5_f64.sqrt();
        println!("{name}: {runs} have ended before it starts after {waited:.0} s");
        assert!(waited <= 2.0 * AGE_S + 2.0 * run, "{name}: {waited} s");
        assert!(
            waited >= AGE_S,
            "{name}: those of a higher priority went first, {waited} s"
        );
    }
}
