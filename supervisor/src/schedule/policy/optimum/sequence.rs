//! In which order one GPU's slices are created and destroyed, each job's slot given: the inner branch and bound.
//!
//! A node is the driver's work so far. The next step creates a slot for some of its jobs, or destroys what stands in
//! the way of others; it begins as soon as the driver is free and, for a destroy, the jobs there have ended. Every
//! schedule is at least as long as one of these. Of two neighbouring steps whose exchange is no worse, one order is
//! left out:
//!
//! - two destroys: that of the slice that ends first comes first;
//! - a create after a destroy that it did not need comes before it;
//! - two creates of slots that no later one needs gone: the longer first; of which only the second is needed gone: that
//!   first, if the other may well end late.

use super::floor::{Floor, Spots, bits};
use super::{CLOSE, Place};
use crate::layout::StateIndex;

/// The search for one GPU.
#[derive(Debug)]
pub(super) struct Sequence<'a> {
    floor: &'a Floor,
    gpu: usize,
    /// Jobs yet to run on each spot, one bit each.
    left: Vec<u16>,
    /// Their seconds.
    load: Vec<f64>,
    seconds: Vec<f64>,
    release: Vec<f64>,
    /// Cliques of this GPU.
    cliques: Vec<Spots>,
    /// An end as early as this is good enough.
    enough: f64,
    best: f64,
    found: Option<f64>,
    /// The steps to this node, and those of the best schedule.
    path: Vec<Step>,
    plan: Vec<Step>,
    nodes: u64,
    limit: u64,
}

/// What is done to a spot.
#[derive(Clone, Copy, Debug)]
enum Step {
    /// It stands at the start, and these jobs run there.
    Take { spot: usize, jobs: u16 },
    /// It is created, and these jobs run there.
    Create { spot: usize, jobs: u16 },
    /// It goes when its jobs have ended.
    Destroy { spot: usize },
}

/// The driver and what stands.
#[derive(Clone, Copy, Debug)]
struct Node {
    state: StateIndex,
    standing: Spots,
    /// Spots with jobs left.
    waiting: Spots,
    /// The driver is free from then on.
    driver: f64,
    /// The last end so far.
    end: f64,
}

/// The step before.
#[derive(Clone, Copy, Debug)]
enum Last {
    None,
    Create {
        spot: usize,
        load: f64,
    },
    Destroy {
        spot: usize,
        release: f64,
        before: StateIndex,
    },
}

impl<'a> Sequence<'a> {
    /// `spot` is each job's; ends from `best` on are of no use, one of `enough` is as good as any.
    pub(super) fn new(
        floor: &'a Floor,
        gpu: usize,
        spot: &[usize],
        enough: f64,
        best: f64,
        limit: u64,
    ) -> Self {
        let mut left = vec![0_u16; floor.spots.len()];
        let mut load = vec![0.0; floor.spots.len()];
        let mut seconds = vec![0.0; spot.len()];
        for (job, &spot) in spot.iter().enumerate() {
            seconds[job] = floor.seconds[job][spot];
            if floor.spots[spot].gpu == gpu {
                left[spot] |= 1 << job;
                load[spot] += seconds[job];
            }
        }
        let own = floor.spots.iter().enumerate().filter(|(_, spot)| spot.gpu == gpu);
        let own: Spots = own.fold(0, |set, (spot, _)| set | 1 << spot);
        Self {
            floor,
            gpu,
            left,
            load,
            seconds,
            release: floor.release.clone(),
            cliques: floor
                .cliques
                .iter()
                .copied()
                .filter(|clique| clique & own != 0)
                .collect(),
            enough,
            best,
            found: None,
            path: Vec::new(),
            plan: Vec::new(),
            nodes: 0,
            limit,
        }
    }

    /// The least end before `best`, if there is one.
    pub(super) fn run(&mut self) -> Option<f64> {
        let waiting = (0..self.left.len()).filter(|&spot| self.left[spot] != 0);
        let own = (0..self.left.len()).filter(|&spot| self.floor.spots[spot].gpu == self.gpu);
        let standing = own.fold(0, |set, spot| set | 1 << spot) & self.floor.standing;
        let (state, driver) = self.floor.roots[self.gpu];
        let root = Node {
            state,
            standing,
            waiting: waiting.fold(0, |set, spot| set | 1 << spot),
            driver,
            end: bits(standing).map(|spot| self.release[spot]).fold(0.0, f64::max),
        };
        self.take(root, standing & root.waiting);
        self.found
    }

    /// Chooses the jobs that run on each spot of `spots`, all of them standing, before it goes.
    fn take(&mut self, node: Node, spots: Spots) {
        let Some(spot) = bits(spots).next() else {
            return self.descend(node, Last::None);
        };
        let (jobs, load, release) = (self.left[spot], self.load[spot], self.release[spot]);
        let others = node.waiting & !(1 << spot);
        let mut part = jobs;
        loop {
            let now = self.seconds_of(part);
            let whole = part == jobs;
            self.left[spot] = jobs & !part;
            self.load[spot] = if whole { 0.0 } else { load - now };
            self.release[spot] = release + now;
            let next = Node {
                waiting: if whole { others } else { node.waiting },
                end: node.end.max(release + now),
                ..node
            };
            self.path.push(Step::Take { spot, jobs: part });
            self.take(next, spots & (spots - 1));
            self.path.pop();
            (self.left[spot], self.load[spot], self.release[spot]) = (jobs, load, release);
            if part == 0 || others & self.floor.blocks[spot] == 0 || self.best <= self.enough + CLOSE {
                return;
            }
            part = (part - 1) & jobs;
        }
    }

    fn seconds_of(&self, jobs: u16) -> f64 {
        let of = self
            .seconds
            .iter()
            .enumerate()
            .filter(|(job, _)| jobs >> job & 1 == 1);
        of.map(|(_, seconds)| seconds).sum()
    }

    /// The places of this GPU's jobs in the schedule found. Of jobs that follow one another on a slice the shortest comes first.
    pub(super) fn tell(&self, places: &mut [Place]) {
        let mut driver = self.floor.roots[self.gpu].1;
        let mut release = self.floor.release.clone();
        // Nothing that has to wait for a job has come before.
        let mut at_once = true;
        for step in &self.plan {
            let (spot, jobs) = match *step {
                Step::Destroy { spot } => {
                    at_once &= release[spot] <= 0.0;
                    driver = driver.max(release[spot]) + self.floor.destroy;
                    continue;
                }
                Step::Create { spot, jobs } => {
                    driver += self.floor.create;
                    release[spot] = driver;
                    (spot, jobs)
                }
                Step::Take { spot, jobs } => (spot, jobs),
            };
            let mut first = match step {
                Step::Take { .. } => release[spot] <= 0.0,
                _ => at_once,
            };
            let mut order: Vec<usize> = (0..self.seconds.len())
                .filter(|job| jobs >> job & 1 == 1)
                .collect();
            order.sort_by(|&a, &b| self.seconds[a].total_cmp(&self.seconds[b]).then(a.cmp(&b)));
            for job in order {
                places[job] = Place {
                    gpu: self.gpu,
                    slot: self.floor.spots[spot].slot,
                    begin: release[spot],
                    at_once: first,
                };
                release[spot] += self.seconds[job];
                first = false;
            }
        }
    }

    pub(super) fn nodes(&self) -> u64 {
        self.nodes
    }

    /// No end of a node's schedules is before this.
    fn bound(&self, node: &Node) -> f64 {
        let floor = self.floor;
        let mut bound = node.end;
        // Rest of each clique that has something to be created, from its first create on.
        let mut rests = [(0.0, 0); 64];
        let mut count = 0;
        for &clique in &self.cliques {
            let open = node.waiting & clique;
            if open == 0 {
                continue;
            }
            let loads: f64 = bits(open).map(|spot| self.load[spot]).sum();
            let count_open = open.count_ones();
            let rest = loads + floor.work(count_open, count_open - 1);
            // At most one of a clique stands.
            let begin = match bits(node.standing & clique).next() {
                Some(spot) => node.driver.max(self.release[spot]) + floor.destroy,
                None => node.driver,
            };
            bound = bound.max(begin + rest);
            rests[count] = (rest, open);
            count += 1;
        }
        // Cliques with no open slot in common begin by different creates.
        let rests = &mut rests[..count];
        rests.sort_by(|a, b| b.0.total_cmp(&a.0));
        let (mut met, mut before) = (0, node.driver);
        for &(rest, open) in &*rests {
            if open & met == 0 {
                met |= open;
                bound = bound.max(before + rest);
                before += floor.create;
            }
        }
        bound
    }

    fn descend(&mut self, node: Node, last: Last) {
        self.nodes += 1;
        if self.nodes >= self.limit || self.bound(&node) >= self.best - CLOSE {
            return;
        }
        if node.waiting == 0 {
            self.best = node.end;
            self.found = Some(node.end);
            self.plan.clone_from(&self.path);
            return;
        }
        let mut tries: Vec<(f64, usize)> = bits(node.waiting & !node.standing)
            .filter(|&spot| self.floor.with(node.state, spot).is_some())
            .map(|spot| {
                let cliques = self.cliques.iter().filter(|clique| *clique >> spot & 1 == 1);
                let rest =
                    cliques.map(|clique| bits(clique & node.waiting).map(|s| self.load[s]).sum::<f64>());
                (rest.fold(0.0, f64::max), spot)
            })
            .collect();
        tries.sort_by(|a, b| {
            b.0.total_cmp(&a.0).then(
                self.floor.blocks[b.1]
                    .count_ones()
                    .cmp(&self.floor.blocks[a.1].count_ones()),
            )
        });
        for (_, spot) in tries {
            self.create(&node, last, spot);
            if self.best <= self.enough + CLOSE {
                return;
            }
        }
        let mut standing: Vec<usize> = bits(node.standing).collect();
        standing.sort_by(|&a, &b| self.release[a].total_cmp(&self.release[b]));
        for spot in standing {
            self.destroy(&node, last, spot);
            if self.best <= self.enough + CLOSE {
                return;
            }
        }
    }

    /// Creates a slot for all of its jobs, and for each part of them.
    fn create(&mut self, node: &Node, last: Last, spot: usize) {
        let floor = self.floor;
        let Some(state) = floor.with(node.state, spot) else {
            return;
        };
        if let Last::Destroy { before, .. } = last
            && floor.with(before, spot).is_some()
        {
            return;
        }
        let (jobs, load) = (self.left[spot], self.load[spot]);
        let others = node.waiting & !(1 << spot);
        let crowded = others & floor.blocks[spot] != 0;
        let mut part = jobs;
        while part != 0 {
            let now = self.seconds_of(part);
            let whole = part == jobs;
            if !self.is_exchanged(node, last, spot, now, others, whole) {
                let driver = node.driver + floor.create;
                self.left[spot] = jobs & !part;
                self.load[spot] = if whole { 0.0 } else { load - now };
                let release = std::mem::replace(&mut self.release[spot], driver + now);
                let next = Node {
                    state,
                    standing: node.standing | 1 << spot,
                    waiting: if whole { others } else { node.waiting },
                    driver,
                    end: node.end.max(driver + now),
                };
                self.path.push(Step::Create { spot, jobs: part });
                self.descend(next, Last::Create { spot, load: now });
                self.path.pop();
                self.release[spot] = release;
                (self.left[spot], self.load[spot]) = (jobs, load);
            }
            if !crowded || self.best <= self.enough + CLOSE {
                return;
            }
            part = (part - 1) & jobs;
        }
    }

    /// Whether the create before would better come after this one.
    fn is_exchanged(
        &self,
        node: &Node,
        last: Last,
        spot: usize,
        now: f64,
        others: Spots,
        whole: bool,
    ) -> bool {
        let Last::Create { spot: first, load } = last else {
            return false;
        };
        // What must still go, of the two, for others or for its own rest.
        let stays = |spot: usize| self.floor.blocks[spot] & others == 0 && others >> spot & 1 == 0;
        if !stays(first) {
            return false;
        }
        if whole && stays(spot) {
            return load < now || (load == now && first > spot);
        }
        node.driver + self.floor.create + load <= self.enough
    }

    fn destroy(&mut self, node: &Node, last: Last, spot: usize) {
        let floor = self.floor;
        let release = self.release[spot];
        if floor.blocks[spot] & node.waiting == 0 {
            return;
        }
        if let Last::Destroy {
            spot: first,
            release: before,
            ..
        } = last
            && (release, spot) < (before, first)
        {
            return;
        }
        let Some(state) = floor.without(node.state, spot) else {
            return;
        };
        let next = Node {
            state,
            standing: node.standing & !(1 << spot),
            driver: node.driver.max(release) + floor.destroy,
            ..*node
        };
        self.path.push(Step::Destroy { spot });
        self.descend(
            next,
            Last::Destroy {
                spot,
                release,
                before: node.state,
            },
        );
        self.path.pop();
    }
}
