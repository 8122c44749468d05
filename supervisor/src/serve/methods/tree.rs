//! MIG-serving's slow algorithm (arXiv 2109.11067, 5.3): Monte Carlo tree search over GPUs.
//!
//! A node is what is lacking, an edge a GPU, a leaf a node that lacks nothing; the shortest path is wanted.
//!
//! 1. From the root, children are chosen by upper confidence until one has none.
//! 2. It gets its children: GPUs made of five random services that lack something, the ten that gain most.
//! 3. Its distance from a leaf is estimated by a walk that takes GPUs at random from the best found earlier for
//!    the same *type* of node: the shares that services lack, in quarters.
//! 4. The length of the walk goes back up the path; the shortest path seen is the answer.
//!
//! The paper gives neither the constant of the upper confidence, nor how often, nor what a type is: these are
//! ours.

use std::collections::HashMap;

use super::super::exact::lower_bound;
use super::super::problem::Problem;
use super::config::{Config, Lacking, View};
use super::{Effort, Method, PlanError, Solution};

/// Services that the children of a node are made of.
const DRAWN: usize = 5;
/// Children of a node, and GPUs in a pool.
const TOP: usize = 10;
/// Weight of what was tried seldom.
const EXPLORE: f64 = 0.7;
/// Walks when it is asked for a whole plan.
const WALKS: u32 = 200;

/// Monte Carlo tree search.
#[derive(Clone, Copy, Debug, Default)]
pub struct Tree;

impl Method for Tree {
    fn name(&self) -> &'static str {
        "mcts"
    }

    fn solve(&self, problem: &Problem, effort: &Effort<'_>) -> Result<Solution, PlanError> {
        let view = View::new(problem, self.name())?;
        let mut walker = Walker::new(&view, effort.seed);
        let configs = walker.shortest(&view.required(), WALKS, effort);
        Ok(Solution {
            plan: view.plan(&configs)?,
            lower_bound: lower_bound(problem),
        })
    }
}

struct Node {
    lacking: Lacking,
    /// The GPU that led here.
    edge: Option<Config>,
    children: Vec<usize>,
    visits: f64,
    /// Sum of the lengths of the paths through here.
    length: f64,
}

/// The search, with the pools it has learnt.
pub(super) struct Walker<'a> {
    view: &'a View<'a>,
    random: fastrand::Rng,
    pools: HashMap<Vec<u8>, Vec<Config>>,
}

impl<'a> Walker<'a> {
    pub(super) fn new(view: &'a View<'a>, seed: u64) -> Self {
        Self {
            view,
            random: fastrand::Rng::with_seed(seed),
            pools: HashMap::new(),
        }
    }

    /// The shortest way found to give all that is lacking, after so many walks.
    pub(super) fn shortest(&mut self, lacking: &[i64], walks: u32, effort: &Effort<'_>) -> Vec<Config> {
        let mut nodes = vec![Node {
            lacking: lacking.to_vec(),
            edge: None,
            children: Vec::new(),
            visits: 0.0,
            length: 0.0,
        }];
        let mut best: Option<Vec<Config>> = None;
        for _ in 0..walks {
            let mut path = vec![0];
            while let Some(child) = self.choose(&nodes, path[path.len() - 1]) {
                path.push(child);
            }
            let end = path[path.len() - 1];
            for config in self.children(&nodes[end].lacking) {
                let mut lacking = nodes[end].lacking.clone();
                self.view.serve(&config, &mut lacking);
                let index = nodes.len();
                nodes[end].children.push(index);
                nodes.push(Node {
                    lacking,
                    edge: Some(config),
                    children: Vec::new(),
                    visits: 0.0,
                    length: 0.0,
                });
            }
            let mut way: Vec<Config> = path.iter().filter_map(|&node| nodes[node].edge.clone()).collect();
            let lacking = nodes[end].lacking.clone();
            way.extend(self.walk(lacking));
            for &node in &path {
                nodes[node].visits += 1.0;
                nodes[node].length += way.len() as f64;
            }
            if best.as_ref().is_none_or(|best| way.len() < best.len()) {
                best = Some(way);
            }
            if (effort.late)() {
                break;
            }
        }
        best.unwrap_or_default()
    }

    /// The child with the highest upper confidence; one that was never visited first.
    fn choose(&self, nodes: &[Node], at: usize) -> Option<usize> {
        let parent = &nodes[at];
        let mean = parent.length / parent.visits.max(1.0);
        let value = |&child: &usize| {
            let node = &nodes[child];
            if node.visits == 0.0 {
                return f64::INFINITY;
            }
            // Lengths of walks from one node differ by little; that little counts.
            let shorter = mean - node.length / node.visits;
            shorter + EXPLORE * (parent.visits.ln().max(0.0) / node.visits).sqrt()
        };
        let children = parent.children.iter().copied();
        children.reduce(|best, next| if value(&next) > value(&best) { next } else { best })
    }

    fn children(&mut self, lacking: &[i64]) -> Vec<Config> {
        let mut open = View::unsatisfied(lacking);
        self.random.shuffle(&mut open);
        open.truncate(DRAWN);
        if open.is_empty() {
            return Vec::new();
        }
        let mut made: Vec<Config> = Vec::new();
        for &layout in &self.view.layouts {
            for most in [1, 2, DRAWN] {
                let config = self.view.fill(layout, &open, most, lacking);
                if !made.contains(&config) {
                    made.push(config);
                }
            }
        }
        let mut scored: Vec<(f64, Config)> = made
            .into_iter()
            .map(|config| (self.view.gain(&config, lacking), config))
            .collect();
        scored.sort_by(|a, b| b.0.total_cmp(&a.0));
        scored.into_iter().take(TOP).map(|(_, config)| config).collect()
    }

    /// To a leaf, by GPUs of the pools.
    fn walk(&mut self, mut lacking: Lacking) -> Vec<Config> {
        let mut way = Vec::new();
        while lacking.iter().any(|&rate| rate > 0) {
            let kind: Vec<u8> = (0..lacking.len())
                .map(|service| quarter(self.view.share(&lacking, service)))
                .collect();
            if !self.pools.contains_key(&kind) {
                let pool = self.children(&lacking);
                self.pools.insert(kind.clone(), pool);
            }
            let pool = &self.pools[&kind];
            let config = &pool[self.random.usize(..pool.len())];
            self.view.serve(config, &mut lacking);
            way.push(config.clone());
        }
        way
    }
}

/// 0 for nothing, else 1 to 4.
fn quarter(share: f64) -> u8 {
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 4"
    )]
    let quarter = (share * 4.0).ceil() as u8;
    quarter
}
