//! Which jobs of a batch come after which.

use std::collections::HashMap;
use std::ops::Range;

use super::spec::{Before, JobSpec};

/// The jobs that one table of the file has made, and those that it names as before them.
pub(super) struct Named {
    /// The table's name.
    pub name: String,
    /// Its jobs.
    pub jobs: Range<usize>,
    /// Names, with their place in the file, and whether any end will do.
    pub after: Vec<(String, Range<usize>, bool)>,
}

/// Puts into each job which ones come before it, and lets none arrive before those.
///
/// # Errors
/// A name is nobody's, or a job would wait for itself: the place in the file, and one line.
pub(super) fn settle(tables: &[Named], jobs: &mut [JobSpec]) -> Result<(), (usize, String)> {
    let mut of_name: HashMap<&str, Vec<usize>> = HashMap::new();
    for table in tables {
        of_name.entry(&table.name).or_default().extend(table.jobs.clone());
    }
    // One of several may be named by itself.
    let single: HashMap<String, usize> = jobs
        .iter()
        .enumerate()
        .map(|(at, job)| (job.name.clone(), at))
        .collect();
    for table in tables {
        for (name, place, any) in &table.after {
            let alone = || single.get(name).map(std::slice::from_ref);
            let before = of_name.get(name.as_str()).map(Vec::as_slice).or_else(alone);
            let before = before.ok_or_else(|| (place.start, format!("no job is named `{name}`")))?;
            for job in table.jobs.clone() {
                let new = before.iter().map(|&job| Before { job, any: *any });
                jobs[job].after.extend(new);
            }
        }
    }
    for table in tables {
        for (name, place, _) in &table.after {
            if let Some(way) = way_back(name, table, tables, jobs) {
                return Err((
                    place.start,
                    format!("`{}` would wait for itself: {way}", table.name),
                ));
            }
        }
    }
    for job in in_order(jobs) {
        let before = jobs[job].after.iter().map(|before| jobs[before.job].arrival);
        jobs[job].arrival = before.fold(jobs[job].arrival, f64::max);
    }
    Ok(())
}

/// The way by which `table`, which waits for `name`, comes to wait for itself.
fn way_back(name: &str, table: &Named, tables: &[Named], jobs: &[JobSpec]) -> Option<String> {
    let mut came: HashMap<usize, usize> = HashMap::new();
    let starts = |job: usize| jobs[job].after.iter().map(|before| before.job);
    let first = table.jobs.start;
    let mut next: Vec<usize> = Vec::new();
    for job in starts(first) {
        let of = tables.iter().find(|table| table.jobs.contains(&job));
        if of.is_some_and(|of| of.name == name) || jobs[job].name == name {
            came.insert(job, first);
            next.push(job);
        }
    }
    while let Some(job) = next.pop() {
        if table.jobs.contains(&job) {
            let mut names = vec![jobs[job].name.clone()];
            let mut at = job;
            while let Some(&before) = came.get(&at) {
                names.push(jobs[before].name.clone());
                at = before;
                if at == first || names.len() > jobs.len() {
                    break;
                }
            }
            names.reverse();
            return Some(names.join(" after "));
        }
        for before in starts(job) {
            if let std::collections::hash_map::Entry::Vacant(entry) = came.entry(before) {
                entry.insert(job);
                next.push(before);
            }
        }
    }
    None
}

/// The jobs in the order of the file, but each behind those that come before it.
#[must_use]
pub fn in_order(jobs: &[JobSpec]) -> Vec<usize> {
    let mut order = Vec::with_capacity(jobs.len());
    let mut seen = vec![false; jobs.len()];
    for first in 0..jobs.len() {
        // A stack of jobs with how many of those before them have been looked at: a chain may be as long as the file.
        let mut open = vec![(first, 0)];
        if std::mem::replace(&mut seen[first], true) {
            continue;
        }
        while let Some((job, looked)) = open.last_mut() {
            match jobs[*job].after.get(*looked) {
                Some(before) => {
                    *looked += 1;
                    if !std::mem::replace(&mut seen[before.job], true) {
                        open.push((before.job, 0));
                    }
                }
                None => {
                    order.push(*job);
                    open.pop();
                }
            }
        }
    }
    order
}
