//! From profiles, demand and fleet to a [`Problem`]: the best operating point of each service on each size.

use super::explain::Verdict;
use super::fleet::{Fleet, Size};
use super::input::{DemandRow, On, ProfileRow, Profiles};
use super::problem::{Point, Problem, Service};
use super::rows::InputError;

/// Which points may be used.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Usable {
    /// Share of the latency limit, in millionths: a point must be faster than that share.
    pub latency_share_ppm: u32,
    /// Most processes under MPS.
    pub max_processes: Option<u32>,
    /// Share of a slice's memory that stays free, in millionths.
    pub memory_headroom_ppm: u32,
}

/// All of the limit, any number of processes, no headroom.
impl Default for Usable {
    fn default() -> Self {
        Self {
            latency_share_ppm: 1_000_000,
            max_processes: None,
            memory_headroom_ppm: 0,
        }
    }
}

impl Usable {
    fn fits(&self, row: &ProfileRow, size: &Size, kind: &str) -> bool {
        let there = match &row.on {
            On::Compute(compute) => *compute == size.compute,
            On::Profile(profile) => *profile == size.profile,
        };
        let room =
            u128::from(size.memory) * u128::from(1_000_000_u32.saturating_sub(self.memory_headroom_ppm));
        let holds = |memory: u64| u128::from(memory) * 1_000_000 <= room;
        there
            && row.gpu.as_deref().is_none_or(|gpu| gpu == kind)
            && self.max_processes.is_none_or(|most| row.processes <= most)
            && row.memory.is_none_or(holds)
    }

    /// Whether a point counts on a size; `None` where it is no point of that size.
    pub(super) fn verdict(
        &self,
        row: &ProfileRow,
        size: &Size,
        kind: &str,
        limit_ms: u32,
    ) -> Option<Verdict> {
        let anything = Self {
            max_processes: None,
            memory_headroom_ppm: 0,
            ..*self
        };
        let measured = ProfileRow {
            memory: None,
            ..row.clone()
        };
        if !anything.fits(&measured, size, kind) {
            return None;
        }
        Some(if self.max_processes.is_some_and(|most| row.processes > most) {
            Verdict::Processes
        } else if !self.fits(row, size, kind) {
            Verdict::Memory
        } else if !self.is_fast(row, limit_ms) {
            Verdict::Slow
        } else {
            Verdict::Worse
        })
    }

    /// Compares whole numbers: 0.45 x 420 ms is 189 ms, and not a little more.
    fn is_fast(&self, row: &ProfileRow, limit_ms: u32) -> bool {
        let allowed = u64::from(self.latency_share_ppm) * u64::from(limit_ms);
        row.latency_us.saturating_mul(1_000) < allowed
    }
}

impl Problem {
    /// Finds each service's best point on each size of slice: most requests per second, then least latency.
    /// `file` is the demand's name, for the error.
    ///
    /// # Errors
    /// A service has no profile, no slice of the fleet holds it, or it is too slow on each; all such services
    /// are named, with their best latency.
    pub fn new(
        fleet: Fleet,
        profiles: &Profiles,
        file: &str,
        demand: &[DemandRow],
        usable: &Usable,
    ) -> Result<Self, InputError> {
        let mut services = Vec::with_capacity(demand.len());
        let mut faults: Vec<(u64, String)> = Vec::new();
        for row in demand {
            match service(&fleet, profiles, row, usable) {
                Ok(service) => services.push(service),
                Err(fault) => faults.push((row.line, fault)),
            }
        }
        match faults.first() {
            None => Ok(Self { fleet, services }),
            Some(&(line, _)) => {
                let words: Vec<&str> = faults.iter().map(|(_, fault)| fault.as_str()).collect();
                Err(InputError {
                    file: file.to_owned(),
                    line,
                    fault: words.join("; "),
                })
            }
        }
    }
}

fn service(
    fleet: &Fleet,
    profiles: &Profiles,
    demand: &DemandRow,
    usable: &Usable,
) -> Result<Service, String> {
    let name = &demand.service;
    let rows = profiles
        .of(&demand.model)
        .ok_or_else(|| format!("service {name}: model {} has no profile", demand.model))?;
    let fitting = |size: &Size| {
        let kind = &fleet.kinds[size.kind].name;
        let size = size.clone();
        rows.iter().filter(move |row| usable.fits(row, &size, kind))
    };
    let points: Vec<Option<Point>> = fleet
        .sizes
        .iter()
        .map(|size| {
            let fast = fitting(size).filter(|row| usable.is_fast(row, demand.limit_ms));
            let key = |row: &&ProfileRow| {
                let less = std::cmp::Reverse((row.latency_us, row.processes, row.batch));
                (row.rate, less)
            };
            fast.max_by_key(key).map(|row| Point {
                batch: row.batch,
                processes: row.processes,
                rate: row.rate,
                latency_s: row.latency_us as f64 / 1e6,
            })
        })
        .collect();
    if points.iter().any(Option::is_some) {
        return Ok(Service {
            name: name.clone(),
            model: demand.model.clone(),
            required: demand.required,
            limit_ms: demand.limit_ms,
            points,
        });
    }
    let fastest = fleet
        .sizes
        .iter()
        .flat_map(|size| fitting(size).map(move |row| (row, size)));
    Err(match fastest.min_by_key(|(row, _)| row.latency_us) {
        None => format!("service {name}: no slice of the fleet holds a point of its profile"),
        Some((row, size)) => format!(
            "service {name}: its best latency is {} ms (on {}, batch {}), not below {} ms",
            row.latency_us as f64 / 1e3,
            size.profile,
            row.batch,
            u64::from(usable.latency_share_ppm) as f64 * f64::from(demand.limit_ms) / 1e6
        ),
    })
}

#[cfg(test)]
mod tests {
    use super::super::input::parse_demand;
    use super::*;
    use crate::layout::samples;

    const PROFILES: &str = "model,compute_slices,batch,mps_processes,throughput_per_process_rps,latency_s,memory_bytes\n\
        a,1,1,1,100,0.005,1000000000\n\
        a,1,8,1,300,0.189,1000000000\n\
        a,1,8,2,200,0.020,9000000000\n\
        a,7,8,1,900,0.010,\n\
        slow,1,1,1,5,0.5,\n\
        big,1,1,1,5,0.5,50000000000\n";

    fn problem(demand: &str, usable: Usable) -> Result<Problem, String> {
        let table = samples::plain(samples::a100_40gb());
        let mut fleet = Fleet::default();
        fleet.add("a100-40gb", &table, 1.0, None).unwrap();
        let profiles = Profiles::parse("p.csv", PROFILES, None).unwrap();
        let demand = format!("model,required_rps,slo_latency_ms\n{demand}\n");
        let rows = parse_demand("d.csv", &demand).unwrap();
        Problem::new(fleet, &profiles, "d.csv", &rows, &usable).map_err(|error| error.to_string())
    }

    fn point(problem: &Problem, profile: &str) -> Option<Point> {
        let size = problem
            .fleet
            .sizes
            .iter()
            .position(|size| size.profile == profile)
            .unwrap();
        problem.services[0].points[size]
    }

    #[test]
    fn a_point_that_is_exactly_at_the_limit_is_too_slow() {
        let usable = Usable {
            latency_share_ppm: 450_000,
            max_processes: Some(1),
            ..Usable::default()
        };
        let at = |limit: &str| {
            point(&problem(&format!("a,1,{limit}"), usable).unwrap(), "1g.5gb")
                .unwrap()
                .batch
        };
        assert_eq!(at("420"), 1);
        assert_eq!(at("420.9"), 1);
        assert_eq!(at("421"), 8);
    }

    #[test]
    fn memory_decides_which_slice_of_a_compute_count_holds_a_point() {
        let problem = problem("a,1,1000", Usable::default()).unwrap();
        assert_eq!(point(&problem, "1g.5gb").unwrap().processes, 1);
        // 9 GB fit the double-memory slice, for two processes and 400 requests a second.
        assert_eq!(point(&problem, "1g.10gb").unwrap().rate.rps(), 400.0);
        assert_eq!(point(&problem, "3g.20gb"), None);
    }

    #[test]
    fn impossible_services_are_all_named_with_their_best_latency() {
        let error = problem("a,1,1000\nslow,1,500\nbig,1,9000\nnone,1,100", Usable::default()).unwrap_err();
        assert_eq!(
            error,
            "d.csv:3: service slow: its best latency is 500 ms (on 1g.5gb, batch 1), not below 500 ms; \
             service big: no slice of the fleet holds a point of its profile; \
             service none: model none has no profile"
        );
    }
}
