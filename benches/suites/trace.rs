//! Suite b: the trace of MISO.

use migm_supervisor::whatif::Settings;
use migm_supervisor::whatif::tables::{self, Row};

use super::common::{ALL, Options, compare, compare_once, goal, run};
use super::loads::{Case, traced};

fn rows(options: &Options) -> Option<Vec<Row>> {
    let file = options.data.as_ref()?.join("miso_trace_100.csv");
    Some(tables::trace(&std::fs::read_to_string(file).unwrap()).unwrap())
}

/// Resamples of the trace, where there is one.
pub fn resamples(options: &Options) -> Option<Case> {
    let title = "(b) bootstrap resamples of the trace, 8 GPUs";
    Some(traced(options, &rows(options)?, 8, title))
}

pub fn miso(options: &Options) {
    let (Some(rows), Some(resampled)) = (rows(options), resamples(options)) else {
        println!("\n(b) left out: --data DIR names no folder with miso_trace_100.csv");
        return;
    };
    goals(&rows, options);
    for gpus in [2, 4, 8, 16, 24, 32] {
        let case = traced(options, &rows, gpus, format!("(b) trace of MISO, {gpus} GPUs"));
        compare_once(&case, options, &ALL);
    }
    compare(&resampled, options, &ALL);
}

fn goals(rows: &[Row], options: &Options) {
    println!(
        "\n(b) goals: mean completion time over unpartitioned / over best static; makespan over unpartitioned"
    );
    let eight = (traced(options, rows, 8, "").load)(0);
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
        let many = (traced(options, rows, gpus, "").load)(0);
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
