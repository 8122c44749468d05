//! What a plan is handed on as: a picture, a mig-parted configuration, a list of deployments, and an explanation.

use std::collections::BTreeMap;
use std::fmt::Write;

use super::super::{Failure, exit};
use crate::report::deployment::{Board, Cell, page};
use crate::report::table::Table as Text;
use crate::serve::{Deployment, Explanation, Problem, Tables, Verdict};

/// The picture of a deployment.
pub(super) fn picture(title: &str, line: &str, deployment: &Deployment, tables: &Tables) -> String {
    let rows = deployment.gpus.iter().enumerate().map(|(index, gpu)| {
        let full = tables.get(&gpu.kind).map(|table| table.profile(table.full()));
        let units = full.and_then(|full| full.placements.iter().map(|place| place.size).max());
        let cells = gpu.slices.iter().map(|slice| Cell {
            start: slice.placement.start,
            size: slice.placement.size,
            profile: slice.profile.clone(),
            service: slice.service.clone(),
        });
        vec![Board {
            title: format!("GPU {index} {}", gpu.kind),
            units: units.unwrap_or(1),
            cells: cells.collect(),
        }]
    });
    page(title, line, &["plan"], &rows.collect::<Vec<_>>(), &[])
}

/// The GPUs of each node: kinds do not share a node.
fn nodes(deployment: &Deployment, per_node: usize) -> Vec<Vec<usize>> {
    let mut nodes: Vec<Vec<usize>> = Vec::new();
    for (index, gpu) in deployment.gpus.iter().enumerate() {
        let kind = |node: &Vec<usize>| deployment.gpus[node[0]].kind == gpu.kind && node.len() < per_node;
        match nodes.last_mut().filter(|node| kind(node)) {
            Some(node) => node.push(index),
            None => nodes.push(vec![index]),
        }
    }
    nodes
}

/// A configuration for mig-parted: one entry a node, GPUs that are cut alike together.
pub(super) fn mig_parted(deployment: &Deployment, per_node: usize) -> String {
    let mut text = String::from("version: v1\nmig-configs:\n");
    for (number, node) in nodes(deployment, per_node).iter().enumerate() {
        let _ = writeln!(text, "  node-{number}: # {}", deployment.gpus[node[0]].kind);
        let mut cuts: Vec<(BTreeMap<&str, usize>, Vec<usize>)> = Vec::new();
        for (device, &gpu) in node.iter().enumerate() {
            let mut counts: BTreeMap<&str, usize> = BTreeMap::new();
            for slice in &deployment.gpus[gpu].slices {
                *counts.entry(&slice.profile).or_default() += 1;
            }
            match cuts.iter_mut().find(|(known, _)| *known == counts) {
                Some((_, devices)) => devices.push(device),
                None => cuts.push((counts, vec![device])),
            }
        }
        for (counts, devices) in cuts {
            let devices: Vec<String> = devices.iter().map(ToString::to_string).collect();
            let _ = writeln!(
                text,
                "    - devices: [{}]\n      mig-enabled: true\n      mig-devices:",
                devices.join(", ")
            );
            for (profile, count) in counts {
                let _ = writeln!(text, "        \"{profile}\": {count}");
            }
        }
    }
    text
}

/// One CSV row an instance, in the order in which a first-fit placer must be given them.
pub(super) fn list(deployment: &Deployment, per_node: usize) -> Result<String, Failure> {
    let failed = |error: csv::Error| Failure::new(exit::FAILED, error);
    let mut writer = csv::Writer::from_writer(Vec::new());
    writer
        .write_record([
            "node",
            "device",
            "kind",
            "profile",
            "start",
            "service",
            "batch",
            "processes",
        ])
        .map_err(failed)?;
    for (number, node) in nodes(deployment, per_node).iter().enumerate() {
        for (device, &gpu) in node.iter().enumerate() {
            let own = &deployment.gpus[gpu];
            for slice in &own.slices {
                let row = [
                    format!("node-{number}"),
                    device.to_string(),
                    own.kind.clone(),
                    slice.profile.clone(),
                    slice.placement.start.to_string(),
                    slice.service.clone(),
                    slice.batch.to_string(),
                    slice.processes.to_string(),
                ];
                writer.write_record(row).map_err(failed)?;
            }
        }
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| Failure::new(exit::FAILED, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

/// Why a service has its slices, in words.
pub(super) fn explanation(problem: &Problem, service: usize, found: &Explanation) -> String {
    let own = &problem.services[service];
    let mut table = Text::new(&[
        "gpu",
        "profile",
        ">batch",
        ">processes",
        ">rps",
        ">latency ms",
        ">rps/compute",
        ">slices",
        "verdict",
    ]);
    for point in &found.considered {
        let size = &problem.fleet.sizes[point.size];
        let verdict = match point.verdict {
            Verdict::Best => "best here",
            Verdict::Worse => "serves less",
            Verdict::Slow => "too slow",
            Verdict::Memory => "memory too small",
            Verdict::Processes => "too many processes",
        };
        table.row([
            problem.fleet.kinds[size.kind].name.clone(),
            size.profile.clone(),
            point.row.batch.to_string(),
            point.row.processes.to_string(),
            point.row.rate.to_string(),
            format!("{:.1}", point.row.latency_us as f64 / 1e3),
            format!("{:.1}", point.row.rate.rps() / f64::from(size.compute)),
            if point.slices > 0 {
                point.slices.to_string()
            } else {
                String::new()
            },
            verdict.to_owned(),
        ]);
    }
    let faster = |verdict: Verdict| {
        // Points that would serve more than the best of their size.
        found.considered.iter().any(|point| {
            let best = own.points[point.size].map_or(0, |best| best.rate.0);
            point.verdict == verdict && point.row.rate.0 > best
        })
    };
    let mut binding = Vec::new();
    if found.without_least < found.required {
        binding.push(format!(
            "throughput: without its least slice {} of {} requests/s",
            found.without_least, found.required
        ));
    } else {
        binding.push("none of its own: a slice less would do, on a GPU that others need as well".to_owned());
    }
    for (verdict, what) in [
        (
            Verdict::Slow,
            format!(
                "latency: a point that serves more takes too long for {} ms",
                own.limit_ms
            ),
        ),
        (
            Verdict::Memory,
            "memory: a point that serves more does not fit in its slice".to_owned(),
        ),
        (
            Verdict::Processes,
            "processes: more of them on a slice would serve more".to_owned(),
        ),
    ] {
        if faster(verdict) {
            binding.push(what);
        }
    }
    format!(
        "{}: {} of {} requests/s required, within {} ms\n{}\nbinding: {}\n",
        own.name,
        found.planned,
        found.required,
        own.limit_ms,
        table.render(),
        binding.join("; ")
    )
}
