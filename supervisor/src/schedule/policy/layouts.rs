//! Layouts by the profiles in them, as people write them, and all that a GPU can have.

use std::collections::BTreeSet;

use crate::layout::{Profile, ProfileIndex, Slot, StateIndex, Table};

/// How often each profile is wanted by a layout such as `4g+3g`, `7x1g` or `3g.20gb+3g.20gb`.
///
/// # Errors
/// What is wrong with it, one line.
pub(super) fn parts(layout: &str) -> Result<Vec<(usize, &str)>, String> {
    let part = |part| match str::split_once(part, 'x') {
        Some((count, name)) => {
            let count = count.parse::<usize>();
            (count.map_err(|_| part), name)
        }
        None => (Ok(1), part),
    };
    let read = layout.split('+').map(part).map(|(count, name)| match count {
        _ if name.is_empty() => Err("it names no slices".to_owned()),
        Ok(count) => Ok((count, name)),
        Err(part) => {
            let number = part.split('x').next().unwrap_or(part);
            Err(format!("`{number}` is no number"))
        }
    });
    read.collect()
}

/// The slots of such a layout on an empty GPU.
///
/// # Errors
/// What is wrong with it there, one line.
pub fn static_layout(table: &Table, layout: &str) -> Result<Vec<Slot>, String> {
    let mut wanted = Vec::new();
    for (count, name) in parts(layout)? {
        let named = |profile: &Profile| profile.name == name || profile.name.starts_with(&format!("{name}."));
        let profile = table.profiles().iter().position(named);
        let profile = profile.ok_or_else(|| format!("`{name}` is no profile of this GPU"))?;
        // More than that many stand on no GPU.
        let most = table.profiles()[profile].placements.len() + 1;
        wanted.extend(std::iter::repeat_n(ProfileIndex(profile), count.min(most)));
    }
    place(table, &wanted).ok_or_else(|| "its slices cannot stand together".to_owned())
}

/// Places profiles together on an empty GPU, largest first.
#[must_use]
pub fn place(table: &Table, profiles: &[ProfileIndex]) -> Option<Vec<Slot>> {
    let mut wanted: Vec<usize> = profiles.iter().map(|profile| profile.0).collect();
    wanted.sort_unstable();
    let layouts = full_layouts(table);
    let mut subset = layouts.into_iter().filter_map(|layout| {
        // The wanted ones out of a full layout.
        let mut left = wanted.clone();
        let mut kept = Vec::new();
        for slot in layout {
            if let Some(at) = left.iter().position(|&profile| profile == slot.0.0) {
                left.swap_remove(at);
                kept.push(slot);
            }
        }
        left.is_empty().then_some(kept)
    });
    subset.next()
}

/// One full layout for each multiset of profiles, in a fixed order.
#[must_use]
pub fn full_layouts(table: &Table) -> Vec<Vec<Slot>> {
    let mut seen: BTreeSet<Vec<usize>> = BTreeSet::new();
    let mut found = Vec::new();
    let mut stack = vec![Table::EMPTY];
    let mut met: BTreeSet<StateIndex> = BTreeSet::new();
    while let Some(state) = stack.pop() {
        if !met.insert(state) {
            continue;
        }
        if table.is_full(state) {
            let slots = table.taken(state);
            let mut profiles: Vec<usize> = slots.iter().map(|slot| slot.0.0).collect();
            profiles.sort_unstable();
            if seen.insert(profiles) {
                found.push(slots);
            }
        }
        stack.extend(table.steps(state).map(|(_, after)| after));
    }
    found.sort_by_key(|slots| {
        let mut profiles: Vec<usize> = slots.iter().map(|slot| slot.0.0).collect();
        profiles.sort_unstable();
        (slots.len(), profiles)
    });
    found
}
