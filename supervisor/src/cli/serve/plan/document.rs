//! What `migm serve plan` prints of a plan: the JSON document, its CSV and its text.

use serde::Serialize;

use super::super::super::{Failure, exit};
use crate::report::table::Table as Text;
use crate::serve::methods::Solution;
use crate::serve::{Deployment, Problem, price};

/// The JSON document of a demand that changes.
#[derive(Debug, Serialize)]
pub(super) struct Series {
    pub(super) periods: Vec<Period>,
}

#[derive(Debug, Serialize)]
pub(super) struct Period {
    pub(super) time: String,
    #[serde(flatten)]
    pub(super) plan: Document,
}

/// What it takes to get from the running plan to this one.
#[derive(Debug, Serialize)]
pub(super) struct Way {
    pub(super) steps: usize,
    pub(super) extra_gpus: usize,
    pub(super) makespan_s: f64,
    pub(super) min_satisfaction: Option<f64>,
    /// GPUs taken over as they are.
    pub(super) kept_gpus: usize,
}

/// The JSON document.
#[derive(Debug, Serialize)]
pub(super) struct Document {
    method: &'static str,
    /// GPUs of the plan.
    gpus: usize,
    /// What all of them cost: the number of GPUs where each costs 1.
    price: f64,
    /// No plan is cheaper; GPUs where each costs 1.
    lower_bound: f64,
    /// Whether the price is the lower bound.
    optimal: bool,
    /// Wall time of the method, milliseconds.
    solve_ms: f64,
    /// Whether each service gets what it requires.
    satisfied: bool,
    #[serde(skip_serializing_if = "Option::is_none")]
    transition: Option<Way>,
    kinds: Vec<KindUsed>,
    services: Vec<Served>,
    slices: Vec<Slice>,
}

#[derive(Debug, Serialize)]
struct KindUsed {
    gpu: String,
    used: usize,
    price: f64,
}

#[derive(Debug, Serialize)]
struct Served {
    name: String,
    model: String,
    required_rps: f64,
    planned_rps: f64,
    limit_ms: u32,
    /// Of the slowest slice.
    latency_s: f64,
    slices: usize,
}

#[derive(Debug, Serialize)]
struct Slice {
    /// Index of the GPU in the plan.
    gpu: usize,
    kind: String,
    profile: String,
    start: u32,
    size: u32,
    service: String,
    batch: u32,
    processes: u32,
    throughput_rps: f64,
    latency_s: f64,
}

pub(super) fn document(
    problem: &Problem,
    method: &'static str,
    solution: &Solution,
    deployment: &Deployment,
    solve_ms: f64,
    transition: Option<Way>,
) -> Document {
    let plan = &solution.plan;
    let mut slices = Vec::new();
    for (index, gpu) in deployment.gpus.iter().enumerate() {
        slices.extend(gpu.slices.iter().map(|slice| {
            let service = problem
                .services
                .iter()
                .find(|service| service.name == slice.service);
            let at = |size: &crate::serve::Size| {
                size.profile == slice.profile && problem.fleet.kinds[size.kind].name == gpu.kind
            };
            let size = problem.fleet.sizes.iter().position(at);
            let point = service.zip(size).and_then(|(service, size)| service.points[size]);
            Slice {
                gpu: index,
                kind: gpu.kind.clone(),
                profile: slice.profile.clone(),
                start: slice.placement.start,
                size: slice.placement.size,
                service: slice.service.clone(),
                batch: slice.batch,
                processes: slice.processes,
                throughput_rps: slice.rate.rps(),
                latency_s: point.map_or(0.0, |point| point.latency_s),
            }
        }));
    }
    let served = plan.served(problem);
    let services = problem.services.iter().zip(served).map(|(service, rate)| {
        let own = || slices.iter().filter(|slice| slice.service == service.name);
        Served {
            name: service.name.clone(),
            model: service.model.clone(),
            required_rps: service.required.rps(),
            planned_rps: rate.rps(),
            limit_ms: service.limit_ms,
            latency_s: own().map(|slice| slice.latency_s).fold(0.0, f64::max),
            slices: own().count(),
        }
    });
    let services = services.collect();
    let kinds = problem
        .fleet
        .kinds
        .iter()
        .enumerate()
        .map(|(index, kind)| KindUsed {
            gpu: kind.name.clone(),
            used: plan.gpus.iter().filter(|gpu| gpu.kind == index).count(),
            price: price(kind.price),
        });
    Document {
        method,
        gpus: deployment.gpus.len(),
        price: price(plan.price(problem)),
        lower_bound: price(solution.lower_bound),
        optimal: plan.price(problem) <= solution.lower_bound,
        solve_ms,
        satisfied: plan.satisfies(problem),
        transition,
        kinds: kinds.collect(),
        services,
        slices,
    }
}

pub(super) fn csv(document: &Document) -> Result<String, Failure> {
    let mut writer = csv::Writer::from_writer(Vec::new());
    for slice in &document.slices {
        writer
            .serialize(slice)
            .map_err(|error| Failure::new(exit::FAILED, error))?;
    }
    let bytes = writer
        .into_inner()
        .map_err(|error| Failure::new(exit::FAILED, error))?;
    Ok(String::from_utf8_lossy(&bytes).into_owned())
}

pub(super) fn headline(document: &Document) -> String {
    let used = document
        .kinds
        .iter()
        .map(|kind| format!("{} {}", kind.used, kind.gpu));
    let proof = if document.optimal {
        "proven fewest"
    } else {
        "not proven fewest"
    };
    format!(
        "{} by {}: price {}, lower bound {}, {proof} (solved in {:.1} ms, measured)",
        used.collect::<Vec<_>>().join(", "),
        document.method,
        document.price,
        document.lower_bound,
        document.solve_ms
    )
}

pub(super) fn text(document: &Document) -> String {
    let mut text = headline(document) + "\n";
    if let Some(way) = &document.transition {
        text.push_str(&format!(
            "from the running plan: {} steps, {} extra GPUs, {:.1} s (modelled); {} GPUs kept as they are\n",
            way.steps, way.extra_gpus, way.makespan_s, way.kept_gpus
        ));
    }
    text.push('\n');
    let mut services = Text::new(&[
        "service",
        ">required/s",
        ">planned/s",
        ">latency ms",
        ">limit ms",
        ">slices",
    ]);
    for service in &document.services {
        services.row([
            service.name.clone(),
            format!("{:.1}", service.required_rps),
            format!("{:.1}", service.planned_rps),
            format!("{:.1}", service.latency_s * 1e3),
            service.limit_ms.to_string(),
            service.slices.to_string(),
        ]);
    }
    text.push_str(&services.render());
    text.push('\n');
    let mut gpus = Text::new(&[">gpu", "kind", "slices"]);
    for gpu in 0..document.gpus {
        let own: Vec<&Slice> = document.slices.iter().filter(|slice| slice.gpu == gpu).collect();
        let names = own
            .iter()
            .map(|slice| format!("{}@{} {}", slice.profile, slice.start, slice.service));
        gpus.row([
            gpu.to_string(),
            own.first().map_or_else(String::new, |slice| slice.kind.clone()),
            names.collect::<Vec<_>>().join(", "),
        ]);
    }
    text.push_str(&gpus.render());
    text
}

/// One row a time.
pub(super) fn series_text(series: Series) -> String {
    let mut table = Text::new(&[
        "time",
        ">gpus",
        ">price",
        ">lower bound",
        ">steps",
        ">extra",
        ">makespan s",
        ">kept",
    ]);
    for period in series.periods {
        let plan = period.plan;
        let of = |number: &dyn Fn(&Way) -> String| plan.transition.as_ref().map_or_else(String::new, number);
        table.row([
            period.time,
            plan.gpus.to_string(),
            plan.price.to_string(),
            plan.lower_bound.to_string(),
            of(&|way| way.steps.to_string()),
            of(&|way| way.extra_gpus.to_string()),
            of(&|way| format!("{:.1}", way.makespan_s)),
            of(&|way| way.kept_gpus.to_string()),
        ]);
    }
    table.render()
}
