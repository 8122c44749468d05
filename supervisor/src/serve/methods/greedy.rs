//! Greedy choice, one GPU after the other: MIG-serving's fast algorithm and Jormungandr's utility-first search.
//!
//! Both score a GPU by the sum over its slices of the share of demand that a slice gives its service, weighted
//! with the share that the service still lacks, and take the best GPU with few services on it. For a fixed set
//! of services the score is a sum over slots, so each size of slice goes to the service of the set that scores
//! best there, and only sets have to be searched.
//!
//! - MIG-serving (arXiv 2109.11067, 5.2): sets of two. Close to the end ("last mile") sets of any size; the
//!   paper gives no threshold. Ours: once a chosen GPU serves more than is lacking, GPUs filled slot by slot with
//!   any services compete with it by what they really add.
//! - Jormungandr (SYSTOR 2024): sets of three, and one more in the last mile.

use super::super::exact::lower_bound;
use super::super::problem::Problem;
use super::config::{Config, View};
use super::{Effort, Method, PlanError, Solution};

/// Services tried in pairs; beyond so many only the best at some size are.
const PAIRED: usize = 64;
/// Of more services, so many for each size.
const BEST: usize = 12;

/// Greedy choice of GPUs.
#[derive(Clone, Copy, Debug)]
pub struct Greedy {
    name: &'static str,
    /// Most services on a GPU.
    most: usize,
    /// Most services on a GPU near the end.
    last_mile: usize,
}

impl Greedy {
    /// MIG-serving's fast algorithm.
    pub const MIG_SERVING: Self = Self {
        name: "greedy",
        most: 2,
        last_mile: usize::MAX,
    };
    /// Jormungandr's search.
    pub const JORMUNGANDR: Self = Self {
        name: "jormungandr",
        most: 3,
        last_mile: 4,
    };

    /// GPUs that give all that is lacking.
    pub(super) fn complete(self, view: &View<'_>, lacking: &mut [i64]) -> Vec<Config> {
        let mut configs = Vec::new();
        loop {
            let open = View::unsatisfied(lacking);
            if open.is_empty() {
                return configs;
            }
            let mut config = self.best(view, &open, lacking);
            let real = view.gain(&config, lacking);
            // The score counts what is served beyond the demand; where there is such, the last mile begins.
            if score(view, &config, lacking, false) > score(view, &config, lacking, true) + 1e-9 {
                let filled = view
                    .layouts
                    .iter()
                    .map(|&layout| view.fill(layout, &open, self.last_mile, lacking));
                let scored = filled.map(|config| (view.gain(&config, lacking), config));
                if let Some((gain, filled)) =
                    scored.reduce(|best, next| if next.0 > best.0 { next } else { best })
                    && gain > real
                {
                    config = filled;
                }
            }
            view.serve(&config, lacking);
            configs.push(config);
        }
    }

    fn best(self, view: &View<'_>, open: &[usize], lacking: &[i64]) -> Config {
        let sizes = view.problem.fleet.sizes.len();
        let weight = |service: usize, size: usize| view.share(lacking, service) * view.utility[service][size];
        let candidates = candidates(open, sizes, weight);
        let mut best: Option<(f64, usize, Vec<usize>)> = None;
        for &layout in &view.layouts {
            let counts = &view.problem.fleet.layouts[layout].counts;
            let held: Vec<usize> = (0..sizes).filter(|&size| counts[size] > 0).collect();
            let value = |set: &[usize]| -> f64 {
                let top = |size: usize| {
                    set.iter()
                        .map(|&service| weight(service, size))
                        .fold(0.0, f64::max)
                };
                held.iter().map(|&size| f64::from(counts[size]) * top(size)).sum()
            };
            for set in sets(&candidates, &held, self.most, weight, value) {
                let value = value(&set);
                if best.as_ref().is_none_or(|(known, ..)| value > *known) {
                    best = Some((value, layout, set));
                }
            }
        }
        let (_, layout, set) = best.unwrap_or((0.0, view.layouts[0], open.to_vec()));
        let services = view.problem.fleet.layouts[layout].slots.iter().map(|&(size, _)| {
            let able = set
                .iter()
                .copied()
                .filter(|&service| view.utility[service][size] > 0.0);
            able.reduce(|best, next| {
                if weight(next, size) > weight(best, size) {
                    next
                } else {
                    best
                }
            })
        });
        Config {
            layout,
            services: services.collect(),
        }
    }
}

/// The sum over slots of the weighted shares; `clipped` counts no service beyond what it lacks.
fn score(view: &View<'_>, config: &Config, lacking: &[i64], clipped: bool) -> f64 {
    let slots = &view.problem.fleet.layouts[config.layout].slots;
    let mut given = vec![0.0; lacking.len()];
    for (&(size, _), service) in slots.iter().zip(&config.services) {
        if let Some(service) = *service {
            given[service] += view.utility[service][size];
        }
    }
    let one = |service: usize| {
        let share = view.share(lacking, service);
        share
            * if clipped {
                share.min(given[service])
            } else {
                given[service]
            }
    };
    (0..given.len()).map(one).sum()
}

/// All services where they are few, else the best at each size.
fn candidates(open: &[usize], sizes: usize, weight: impl Fn(usize, usize) -> f64) -> Vec<usize> {
    if open.len() <= PAIRED {
        return open.to_vec();
    }
    let mut kept: Vec<usize> = Vec::new();
    for size in 0..sizes {
        let mut ranked = open.to_vec();
        ranked.sort_by(|&a, &b| weight(b, size).total_cmp(&weight(a, size)));
        kept.extend(ranked.into_iter().take(BEST));
    }
    kept.sort_unstable();
    kept.dedup();
    kept
}

/// Sets to try on one layout. Where `most` allows a service for each size that the layout has, the best at each
/// size; else all pairs, the best of which grows by the service that adds most, up to `most`.
fn sets(
    candidates: &[usize],
    held: &[usize],
    most: usize,
    weight: impl Fn(usize, usize) -> f64,
    value: impl Fn(&[usize]) -> f64,
) -> Vec<Vec<usize>> {
    if most >= held.len() {
        let top = |&size: &usize| {
            let all = candidates.iter().copied();
            all.reduce(|best, next| {
                if weight(next, size) > weight(best, size) {
                    next
                } else {
                    best
                }
            })
        };
        let mut set: Vec<usize> = held.iter().filter_map(top).collect();
        set.sort_unstable();
        set.dedup();
        return vec![set];
    }
    let mut best: Option<(f64, Vec<usize>)> = None;
    let offer = |set: Vec<usize>, best: &mut Option<(f64, Vec<usize>)>| {
        let value = value(&set);
        if best.as_ref().is_none_or(|(known, _)| value > *known) {
            *best = Some((value, set));
        }
    };
    for (index, &one) in candidates.iter().enumerate() {
        for &other in &candidates[index..] {
            offer(vec![one, other], &mut best);
        }
    }
    for _ in 2..most {
        if let Some((_, base)) = best.clone() {
            for &more in candidates {
                offer([&base[..], &[more]].concat(), &mut best);
            }
        }
    }
    best.into_iter().map(|(_, set)| set).collect()
}

impl Method for Greedy {
    fn name(&self) -> &'static str {
        self.name
    }

    fn solve(&self, problem: &Problem, _: &Effort<'_>) -> Result<Solution, PlanError> {
        let view = View::new(problem, self.name)?;
        let configs = self.complete(&view, &mut view.required());
        Ok(Solution {
            plan: view.plan(&configs)?,
            lower_bound: lower_bound(problem),
        })
    }
}
