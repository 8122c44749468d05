//! The default against sequential and best static on every kind of GPU whose placements are known.

use migm_supervisor::report::table::Table as Text;

use super::common::{Compared, Options, goal, least, makespan, mean, mean_completion};
use super::loads::{self, Case};
use super::{online, trace};

/// Keys of the simulator's models.
const MODELS: [&str; 7] = [
    "a100-40gb",
    "a100-80gb",
    "h100-80gb",
    "h200-141gb",
    "gh200-96gb",
    "a30-24gb",
    "rtx-pro-6000-blackwell-96gb",
];

fn cases(options: &Options) -> Vec<Case> {
    let mut cases = vec![
        loads::homogeneous(options, 0.9, 0.05),
        loads::heterogeneous(options),
    ];
    cases.extend(loads::learning(options));
    cases.push(loads::decoders(options));
    cases.extend(trace::resamples(options));
    cases.extend(loads::laws(options));
    cases.extend(online::LOADS.map(|part| loads::online(options, part)));
    cases.extend(loads::adversarial(options));
    cases
}

/// What counts is the makespan of a batch and the mean completion time of jobs that come one by one.
pub fn all(options: &Options) {
    println!(
        "\n(types) sequential and best static over the default: makespan of batches, mean completion time of the others; \
         least of {} seeds, and means",
        options.seeds
    );
    let mut text = Text::new(&[
        "GPU",
        "workload",
        ">least x seq",
        ">x seq",
        ">least x static",
        ">x static",
    ]);
    let mut worst = (f64::INFINITY, String::new());
    for model in MODELS {
        let options = Options {
            gpu: model.to_owned(),
            ..options.clone()
        };
        for case in cases(&options) {
            let policies = ["sequential", "best-static", "migm"];
            let compared = Compared::run(&case, &options, &policies, 1..=options.seeds);
            let sequential = compared.gains("sequential");
            let figure = if compared.batch { makespan } else { mean_completion };
            let fixed = compared.ratios("best-static", "migm", figure);
            if least(&sequential) < worst.0 {
                worst = (least(&sequential), format!("{model}, {}", case.title));
            }
            text.row([
                model.to_owned(),
                case.title.clone(),
                format!("{:.3}", least(&sequential)),
                format!("{:.2}", mean(sequential)),
                format!("{:.3}", least(&fixed)),
                format!("{:.2}", mean(fixed)),
            ]);
        }
    }
    print!("{}", text.render());
    goal(
        "never below sequential on any GPU, workload and seed",
        worst.0 >= 0.999,
        &format!("{:.3}: {}", worst.0, worst.1),
    );
}
