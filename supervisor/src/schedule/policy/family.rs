//! A family of allotments, each scheduled with the large and long first, and its refinement: the steps of FAR (see
//! `far.rs`).

use super::picture::{Kind, number};
use super::shop::{List, STAY, Shop, Task};

fn share_of(kinds: &[Kind], task: &Task, way: u8) -> f64 {
    let way = task.ways[usize::from(way)];
    kinds[usize::from(way.kind)].shares[usize::from(way.profile)]
}

/// The best of the family and its cost. `first` is the number of the first task that waits.
pub(super) fn family(shop: &mut Shop<'_>, kinds: &[Kind], first: usize) -> (f64, List) {
    let least = |task: &Task| {
        let area = |way: usize| task.ways[way].seconds * share_of(kinds, task, small(way));
        (0..task.ways.len())
            .min_by(|&a, &b| area(a).total_cmp(&area(b)))
            .map_or(0, small)
    };
    let tasks = shop.tasks.iter().enumerate();
    let mut way: Vec<u8> = tasks
        .map(|(index, task)| if index < first { STAY } else { least(task) })
        .collect();
    let mut best: Option<(f64, List)> = None;
    loop {
        let seconds = |index: usize, way: &[u8]| shop.tasks[index].ways[usize::from(way[index])].seconds;
        let mut order: Vec<usize> = (first..way.len()).collect();
        let share = |index: usize| share_of(kinds, &shop.tasks[index], way[index]);
        order.sort_by(|&a, &b| {
            let weight = shop.tasks[b].weight.total_cmp(&shop.tasks[a].weight);
            let larger = || share(b).total_cmp(&share(a));
            let longer = || seconds(b, &way).total_cmp(&seconds(a, &way));
            weight.then_with(larger).then_with(longer).then(a.cmp(&b))
        });
        let grows =
            (first..way.len()).filter(|&index| usize::from(way[index]) + 1 < shop.tasks[index].ways.len());
        let longest = (first..way.len()).max_by(|&a, &b| seconds(a, &way).total_cmp(&seconds(b, &way)));
        let grows = grows.max_by(|&a, &b| seconds(a, &way).total_cmp(&seconds(b, &way)));
        let list = List {
            order: order.into_iter().map(number).collect(),
            way: way.clone(),
        };
        let cost = shop.cost(&list, f64::INFINITY);
        if best.as_ref().is_none_or(|(least, _)| cost < *least) {
            best = Some((cost, list));
        }
        // When the longest can grow no more, a larger allotment of others only adds work.
        match (grows, longest) {
            (Some(grows), Some(longest)) if grows == longest => way[grows] += 1,
            _ => break,
        }
    }
    best.unwrap_or_default()
}

/// Moves one task to the front or to a neighbouring slice while that helps: step 3. Gives the cost and the list.
pub(super) fn refine(shop: &mut Shop<'_>, cost: f64, list: List, evaluations: u32) -> (f64, List) {
    let (mut least, mut best) = (cost, list);
    let mut left = evaluations;
    loop {
        let before = least;
        for place in 0..best.order.len() {
            let task = usize::from(best.order[place]);
            let mut front = best.clone();
            front.order[..=place].rotate_right(1);
            let mut tries = vec![front];
            for to in [best.way[task].checked_sub(1), best.way[task].checked_add(1)] {
                if let Some(to) = to.filter(|&to| usize::from(to) < shop.tasks[task].ways.len()) {
                    let mut other = best.clone();
                    other.way[task] = to;
                    tries.push(other);
                }
            }
            for list in tries {
                if left == 0 {
                    return (least, best);
                }
                left -= 1;
                let cost = shop.cost(&list, least);
                if cost < least {
                    (least, best) = (cost, list);
                }
            }
        }
        if least >= before {
            return (least, best);
        }
    }
}

fn small(value: usize) -> u8 {
    u8::try_from(value).unwrap_or(u8::MAX)
}
