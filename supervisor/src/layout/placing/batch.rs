//! Places for a whole batch that is known beforehand.

use std::collections::HashSet;

use super::super::{Placement, ProfileIndex, StateIndex, Table};

impl Table {
    /// A place for each slice wanted, creates in the order given, so that all of them stand together in the end: the
    /// GPU in `states` and the placement. `None` only when there are no such places.
    ///
    /// A full search that visits no combination of states twice, GPUs in the same state taken as one. On one GPU that
    /// is at most all states; over many the number of combinations bounds it.
    #[must_use]
    pub fn plan_batch(
        &self,
        states: &[StateIndex],
        wanted: &[ProfileIndex],
    ) -> Option<Vec<(usize, Placement)>> {
        let mut search = Search {
            table: self,
            wanted,
            hopeless: HashSet::new(),
            places: Vec::new(),
        };
        search.place(&mut states.to_vec()).then_some(search.places)
    }

    /// How many of the slices wanted, from the first on, find places on one GPU together; each of any of the
    /// profiles named for it.
    #[must_use]
    pub fn longest_prefix(&self, state: StateIndex, wanted: &[Vec<ProfileIndex>]) -> usize {
        let mut level = vec![state];
        for (placed, kinds) in wanted.iter().enumerate() {
            let after = |state: &StateIndex| {
                let edges = self.edges[state.0].iter();
                let of_kind = edges.filter(|edge| kinds.contains(&self.slot(edge.slot).0));
                of_kind.map(|edge| StateIndex(edge.to)).collect::<Vec<_>>()
            };
            let mut next: Vec<StateIndex> = level.iter().flat_map(after).collect();
            if next.is_empty() {
                return placed;
            }
            next.sort_unstable();
            next.dedup();
            level = next;
        }
        wanted.len()
    }
}

struct Search<'a> {
    table: &'a Table,
    wanted: &'a [ProfileIndex],
    /// How many were placed, and the states in which the rest found no places.
    hopeless: HashSet<(usize, Vec<StateIndex>)>,
    places: Vec<(usize, Placement)>,
}

impl Search<'_> {
    fn place(&mut self, states: &mut [StateIndex]) -> bool {
        let placed = self.places.len();
        let Some(&profile) = self.wanted.get(placed) else {
            return true;
        };
        let mut sorted = states.to_vec();
        sorted.sort_unstable();
        if self.hopeless.contains(&(placed, sorted.clone())) {
            return false;
        }
        let table = self.table;
        for gpu in 0..states.len() {
            let before = states[gpu];
            if states[..gpu].contains(&before) {
                continue;
            }
            // What leaves most in reach first: it seldom has to be taken back.
            let mut edges: Vec<_> = table.edges_of(before, profile).collect();
            edges.sort_by_key(|edge| std::cmp::Reverse(table.reachable(StateIndex(edge.to))));
            for edge in edges {
                states[gpu] = StateIndex(edge.to);
                self.places.push((gpu, table.slot(edge.slot).1));
                if self.place(states) {
                    return true;
                }
                self.places.pop();
            }
            states[gpu] = before;
        }
        self.hopeless.insert((placed, sorted));
        false
    }
}
