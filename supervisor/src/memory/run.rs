//! One run of one job, whole: what scoring replays.

use super::Observation;

/// The observations of a job from its start to its end.
#[derive(Clone, Debug, PartialEq)]
pub struct Run {
    /// A file and the number of the job in it, or a class and a seed.
    pub name: String,
    /// In order of x; not empty.
    pub seen: Vec<Observation>,
}

impl Run {
    /// First and last x.
    #[must_use]
    pub fn span(&self) -> (f64, f64) {
        let x = |at: Option<&Observation>| at.map_or(0.0, |seen| seen.x);
        (x(self.seen.first()), x(self.seen.last()))
    }

    /// Largest reserved bytes.
    #[must_use]
    pub fn peak(&self) -> u64 {
        self.seen.iter().map(|seen| seen.reserved).max().unwrap_or(0)
    }

    /// Share of the run that has passed at `x`; 0 for a run of one instant.
    #[must_use]
    pub fn share(&self, x: f64) -> f64 {
        let (first, last) = self.span();
        if last > first {
            (x - first) / (last - first)
        } else {
            0.0
        }
    }

    /// The same run as a sampler of this step sees it, in seconds, when one unit of x takes `unit` seconds. A sample is
    /// the largest figure since the sample before, and the last one where nothing was new.
    #[must_use]
    pub fn sampled(&self, unit: f64, step: f64) -> Self {
        let (first, _) = self.span();
        let mut seen: Vec<Observation> = Vec::new();
        let mut tick = 0.0;
        for next in &self.seen {
            let at = ((next.x - first) * unit / step).floor();
            match seen.last_mut() {
                Some(last) if at <= tick => super::series::merge(last, Observation { x: last.x, ..*next }),
                Some(&mut last) => {
                    // A job is not sampled more often than this between two of its iterations.
                    const MOST_REPEATS: f64 = 64.0;
                    let from = (tick + 1.0).max(at - MOST_REPEATS);
                    let mut repeat = from;
                    while repeat < at {
                        seen.push(Observation {
                            x: repeat * step,
                            ..last
                        });
                        repeat += 1.0;
                    }
                    seen.push(Observation {
                        x: at * step,
                        ..*next
                    });
                }
                None => seen.push(Observation { x: 0.0, ..*next }),
            }
            tick = at;
        }
        Self {
            name: self.name.clone(),
            seen,
        }
    }
}
