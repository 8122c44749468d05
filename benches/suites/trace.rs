//! Suite b: the trace of MISO.

use migm_supervisor::whatif::tables::{self, MemoryTable, Row};
use migm_supervisor::whatif::{Settings, Workload};

use super::common::{Numbers, Options, a100s, compare, goal, run};

/// The trace, or for a seed above 0 a resample: the same arrivals with jobs drawn with replacement.
fn load(rows: &[Row], options: &Options, gpus: usize, seed: u64) -> Workload {
    let gpus = a100s(gpus);
    let speeds = options.speeds();
    let mut numbers = Numbers::new(seed);
    let jobs = rows.iter().map(|row| {
        let drawn = if seed == 0 {
            row
        } else {
            &rows[numbers.below(rows.len())]
        };
        let row = Row {
            arrival: row.arrival,
            ..drawn.clone()
        };
        tables::job(&row, &speeds, &MemoryTable::default(), &gpus).unwrap()
    });
    Workload {
        jobs: jobs.collect(),
        gpus,
        batch: false,
    }
}

pub fn miso(options: &Options) {
    let Some(folder) = &options.data else {
        println!("\n(b) left out: --data DIR names no folder with miso_trace_100.csv");
        return;
    };
    let rows = tables::trace(&std::fs::read_to_string(folder.join("miso_trace_100.csv")).unwrap()).unwrap();
    goals(&rows, options);
    let one = Options {
        data: options.data.clone(),
        seeds: 1,
        settings: options.settings,
    };
    let policies = [
        "sequential",
        "best-static",
        "scheme-a",
        "scheme-b",
        "mfi",
        "miso",
        "migm",
    ];
    for gpus in [2, 4, 8, 16, 24, 32] {
        compare(
            &format!("(b) trace of MISO, {gpus} GPUs"),
            &one,
            &policies,
            |_| load(&rows, options, gpus, 0),
        );
    }
    let title = "(b) bootstrap resamples of the trace, 8 GPUs";
    compare(title, options, &policies, |seed| load(&rows, options, 8, seed));
}

fn goals(rows: &[Row], options: &Options) {
    println!(
        "\n(b) goals: mean completion time over unpartitioned / over best static; makespan over unpartitioned"
    );
    let eight = load(rows, options, 8, 0);
    let base = run("sequential", &eight, &options.settings);
    let fixed = run("best-static", &eight, &options.settings);
    let told = options.settings;
    let cases: [(&str, Settings, f64, f64, f64); 5] = [
        (
            "moves with work kept, 4 s",
            Settings {
                move_cost: 4.0,
                ..told
            },
            0.48,
            0.74,
            0.58,
        ),
        (
            "moves with work kept, 30 s",
            Settings {
                move_cost: 30.0,
                ..told
            },
            0.50,
            0.77,
            0.58,
        ),
        ("no moves", Settings { moves: false, ..told }, 0.54, 0.83, 0.70),
        (
            "order of arrival",
            Settings { fifo: true, ..told },
            0.51,
            0.80,
            f64::INFINITY,
        ),
        (
            "remaining work unknown",
            Settings {
                remaining_known: false,
                ..told
            },
            0.62,
            f64::INFINITY,
            f64::INFINITY,
        ),
    ];
    for (what, settings, whole, mix, end) in cases {
        let ours = run("migm", &eight, &settings);
        let ratios = (
            ours.mean_completion / base.mean_completion,
            ours.mean_completion / fixed.mean_completion,
            ours.makespan / base.makespan,
        );
        let reached = ratios.0 <= whole && ratios.1 <= mix && ratios.2 <= end;
        let figure = format!(
            "{:.3} / {:.3}, makespan {:.3} (goal {whole} / {mix}, {end}); moves {}",
            ratios.0, ratios.1, ratios.2, ours.moves
        );
        goal(what, reached, &figure);
    }
    for gpus in [16, 24, 32] {
        let many = load(rows, options, gpus, 0);
        let base = run("sequential", &many, &told).mean_completion;
        let fixed = run("best-static", &many, &told).mean_completion;
        for (what, settings) in [("moves", told), ("no moves", Settings { moves: false, ..told })] {
            let ours = run("migm", &many, &settings).mean_completion;
            let reached = ours <= base && ours <= fixed;
            let figure = format!("{:.3} / {:.3}", ours / base, ours / fixed);
            goal(
                &format!("{gpus} GPUs, {what}, never above either"),
                reached,
                &figure,
            );
        }
    }
}
