use migm_supervisor::layout::{Placement, Profile, Rules, Table};
use migm_supervisor::serve::methods::{Effort, Method};
use migm_supervisor::serve::*;
use std::time::Instant;
type Row = (&'static str, u32, u64, [u32; 5], &'static [u32], u32);
const A100: [Row; 6] = [
    ("1g.5gb", 1, 4864, [1, 0, 0, 0, 0], &[0, 1, 2, 3, 4, 5, 6], 1),
    ("1g.10gb", 1, 9984, [1, 1, 0, 0, 0], &[0, 2, 4, 6], 2),
    ("2g.10gb", 2, 9984, [2, 1, 0, 0, 0], &[0, 2, 4], 2),
    ("3g.20gb", 3, 20096, [3, 2, 0, 0, 0], &[0, 4], 4),
    ("4g.20gb", 4, 20096, [4, 2, 0, 0, 0], &[0], 4),
    ("7g.40gb", 7, 40448, [7, 5, 0, 1, 1], &[0], 8),
];
fn main() {
    let profiles: Vec<Profile> = A100
        .iter()
        .map(|&(name, compute, mib, engines, starts, size)| Profile {
            id: 0,
            name: name.to_owned(),
            compute,
            sms: 0,
            memory: mib << 20,
            count: 0,
            engines,
            placements: starts.iter().map(|&start| Placement { start, size }).collect(),
        })
        .collect();
    let table = Table::build(profiles, Rules::default()).unwrap();
    let text = std::fs::read_to_string("examples/serving/parvagpu_profiles.csv").unwrap();
    let profiles = Profiles::parse("p", &text, None).unwrap();
    for processes in [3, 1] {
        for k in 1..=6 {
            let text = std::fs::read_to_string(format!("examples/serving/parvagpu_{k}.csv")).unwrap();
            let demand = parse_demand("d", &text).unwrap();
            let mut fleet = Fleet::default();
            fleet.add("a100", &table, 1.0, None).unwrap();
            let usable = Usable {
                latency_share_ppm: 450_000,
                max_processes: Some(processes),
                ..Usable::default()
            };
            let problem = Problem::new(fleet, &profiles, "d", &demand, &usable).unwrap();
            let began = Instant::now();
            let solution = Exact
                .solve(
                    &problem,
                    &Effort {
                        seed: 0,
                        late: &|| began.elapsed().as_secs() > 20,
                    },
                )
                .unwrap();
            println!(
                "{processes} {k}: {} gpus, bound {} ok {} {:?}",
                solution.plan.gpus.len(),
                price(solution.lower_bound),
                solution.plan.satisfies(&problem),
                began.elapsed()
            );
        }
    }
}
