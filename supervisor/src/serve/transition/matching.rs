//! Which GPU becomes which: an assignment of the new plan's GPUs to those of the old one that keeps the most in place.
//!
//! GPUs with the same content are paired first. That costs nothing: for sets A, B and C,
//! |A ∩ B| + |A ∩ C| <= |A| + |B ∩ C|, so an assignment that splits two equal GPUs keeps no more than one that pairs them.
//! The rest is the assignment problem, solved by the Hungarian method with potentials (Kuhn 1955; O(n³)).

use std::collections::BTreeMap;

/// Left over GPUs are assigned in blocks of this many, so that thousands stay a matter of seconds.
const BLOCK: usize = 400;

/// For each of `new` the index of its `old`, if it has one: no old one twice, as many pairs as there can be, and the
/// sum of `kept` as high as can be (within blocks of 400 where more than that differ). `Content` decides equality;
/// `kept` must count things that both have.
pub(in crate::serve) fn match_up<Content: Ord>(
    old: &[Content],
    new: &[Content],
    kept: impl Fn(usize, usize) -> i64,
) -> Vec<Option<usize>> {
    let mut found = vec![None; new.len()];
    let mut equal: BTreeMap<&Content, Vec<usize>> = BTreeMap::new();
    for (index, content) in old.iter().enumerate().rev() {
        equal.entry(content).or_default().push(index);
    }
    for (slot, content) in found.iter_mut().zip(new) {
        *slot = equal.get_mut(content).and_then(Vec::pop);
    }
    let mut taken = vec![false; old.len()];
    found.iter().flatten().for_each(|&index| taken[index] = true);
    // Neighbours in this order resemble each other, should there be several blocks.
    let mut left: Vec<usize> = (0..old.len()).filter(|&index| !taken[index]).collect();
    let mut open: Vec<usize> = (0..new.len()).filter(|&index| found[index].is_none()).collect();
    left.sort_by(|&a, &b| old[a].cmp(&old[b]));
    open.sort_by(|&a, &b| new[a].cmp(&new[b]));
    let blocks = left.len().max(open.len()).div_ceil(BLOCK).max(1);
    let part = |all: &[usize], block: usize| -> Vec<usize> {
        all[all.len() * block / blocks..all.len() * (block + 1) / blocks].to_vec()
    };
    for block in 0..blocks {
        let (rows, columns) = (part(&open, block), part(&left, block));
        let side = rows.len().max(columns.len());
        let cost = |row: usize, column: usize| match (rows.get(row), columns.get(column)) {
            (Some(&new), Some(&old)) => -kept(old, new),
            _ => 0,
        };
        for (row, column) in assign(side, cost).into_iter().enumerate() {
            if let (Some(&new), Some(&old)) = (rows.get(row), columns.get(column)) {
                found[new] = Some(old);
            }
        }
    }
    // Uneven blocks may leave some of both.
    let mut taken = vec![false; old.len()];
    found.iter().flatten().for_each(|&index| taken[index] = true);
    let mut spare = (0..old.len()).filter(|&index| !taken[index]);
    for slot in found.iter_mut().filter(|slot| slot.is_none()) {
        *slot = spare.next();
    }
    found
}

/// The cheapest assignment of `side` rows to as many columns: a column for each row.
fn assign(side: usize, cost: impl Fn(usize, usize) -> i64) -> Vec<usize> {
    // Row and column 0 are a sentinel.
    let (mut row_price, mut column_price) = (vec![0_i64; side + 1], vec![0_i64; side + 1]);
    let mut owner = vec![0_usize; side + 1];
    for row in 1..=side {
        let mut least = vec![i64::MAX; side + 1];
        let mut back = vec![0_usize; side + 1];
        let mut done = vec![false; side + 1];
        let mut at = 0;
        owner[0] = row;
        while owner[at] != 0 {
            done[at] = true;
            let (mut step, mut next) = (i64::MAX, 0);
            for column in (1..=side).filter(|&column| !done[column]) {
                let reduced = cost(owner[at] - 1, column - 1) - row_price[owner[at]] - column_price[column];
                if reduced < least[column] {
                    (least[column], back[column]) = (reduced, at);
                }
                if least[column] < step {
                    (step, next) = (least[column], column);
                }
            }
            for column in 0..=side {
                if done[column] {
                    row_price[owner[column]] += step;
                    column_price[column] -= step;
                } else if column > 0 {
                    least[column] -= step;
                }
            }
            at = next;
        }
        while at != 0 {
            owner[at] = owner[back[at]];
            at = back[at];
        }
    }
    let mut columns = vec![0; side];
    for column in 1..=side {
        columns[owner[column] - 1] = column - 1;
    }
    columns
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn best(kept: &dyn Fn(usize, usize) -> i64, old: &mut Vec<usize>, new: usize, count: usize) -> i64 {
        if new == count {
            return 0;
        }
        (0..old.len())
            .map(|index| {
                let taken = old.remove(index);
                let sum = kept(taken, new) + best(kept, old, new + 1, count);
                old.insert(index, taken);
                sum
            })
            .max()
            .unwrap_or(0)
    }

    proptest! {
        #[test]
        fn no_assignment_keeps_more(
            old in prop::collection::vec(0_u32..64, 5),
            new in prop::collection::vec(0_u32..64, 4),
        ) {
            let kept = |a: usize, b: usize| i64::from((old[a] & new[b]).count_ones());
            let found = match_up(&old, &new, kept);
            let sum: i64 = found.iter().enumerate().map(|(b, a)| kept(a.unwrap(), b)).sum();
            let mut used: Vec<usize> = found.iter().flatten().copied().collect();
            used.sort_unstable();
            used.dedup();
            prop_assert_eq!(used.len(), 4);
            prop_assert_eq!(sum, best(&kept, &mut (0..5).collect(), 0, 4));
        }
    }

    #[test]
    fn what_exceeds_a_block_is_still_paired() {
        let old: Vec<u32> = (0..1000).collect();
        let new: Vec<u32> = (2000..2900).collect();
        let found = match_up(&old, &new, |_, _| 0);
        assert!(found.iter().all(Option::is_some));
    }
}
