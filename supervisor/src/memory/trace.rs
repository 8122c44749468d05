//! Runs whose end is known, read from a log: what replays and scores are made of.

use migm_shared::units::MIB;

use super::Observation;

/// The first line of a trace.
pub const HEADER: &str = "x,allocated_bytes,reserved_bytes,requested_bytes";

/// A device without a job holds less than this, and less than a tenth of what the log ever shows.
const IDLE: u64 = 500 * MIB;

/// Observations that a job in a log must have to be one: with fewer nothing can be said of it.
const LEAST_ROWS: usize = 3;

/// What is wrong with a trace, and in which line of it, counted from 1.
#[derive(Debug, PartialEq, thiserror::Error)]
pub enum TraceError {
    /// The header is another.
    #[error("1: the header is `{0}`, not `{HEADER}`")]
    Header(String),
    /// A row has too few or too many fields.
    #[error("{line}: {fields} fields, not 4")]
    Fields {
        /// Line number.
        line: usize,
        /// How many there are.
        fields: usize,
    },
    /// A field is no number.
    #[error("{line}: {column} `{value}` is no {wanted}")]
    Value {
        /// Line number.
        line: usize,
        /// Name of the column.
        column: &'static str,
        /// What stands there.
        value: String,
        /// What should.
        wanted: &'static str,
    },
    /// x goes back.
    #[error("{line}: x goes back from {before} to {x}")]
    Back {
        /// Line number.
        line: usize,
        /// x of the row before.
        before: f64,
        /// x of this row.
        x: f64,
    },
    /// There is no memory figure in it.
    #[error("1: no row has a memory figure")]
    Empty,
}

/// The jobs of a log.
///
/// Its reserved bytes count, or its allocated bytes where it has no reserved ones; a row without that figure is
/// skipped. A device's log (reserved bytes alone) is split where the device falls idle.
///
/// # Errors
/// [`TraceError`], with the line.
pub fn runs(name: &str, text: &str) -> Result<Vec<Run>, TraceError> {
    let rows = rows(text)?;
    let has = |figure: fn(&Row) -> Option<u64>| rows.iter().any(|row| figure(row).is_some());
    let (reserved, allocated) = (has(|row| row.reserved), has(|row| row.allocated));
    let seen: Vec<Observation> = rows
        .iter()
        .filter_map(|row| {
            let level = if reserved { row.reserved } else { row.allocated }?;
            Some(Observation {
                x: row.x,
                requested: row.requested.or(row.allocated).unwrap_or(level),
                reserved: level,
                allocated: row.allocated,
            })
        })
        .collect();
    if seen.is_empty() {
        return Err(TraceError::Empty);
    }
    let top = seen.iter().map(|seen| seen.reserved).max().unwrap_or(0);
    let idle = IDLE.min(top / 10);
    let jobs: Vec<Vec<Observation>> = if allocated {
        vec![seen]
    } else {
        seen.split(|seen| seen.reserved < idle)
            .filter(|job| job.len() >= LEAST_ROWS)
            .map(<[Observation]>::to_vec)
            .collect()
    };
    let several = jobs.len() > 1;
    let named = |(index, seen)| Run {
        name: if several {
            format!("{name} job {}", index + 1)
        } else {
            name.to_owned()
        },
        seen,
    };
    Ok(jobs.into_iter().enumerate().map(named).collect())
}

struct Row {
    x: f64,
    allocated: Option<u64>,
    reserved: Option<u64>,
    requested: Option<u64>,
}

fn rows(text: &str) -> Result<Vec<Row>, TraceError> {
    let mut lines = text.lines();
    let header = lines.next().unwrap_or("").trim_end();
    if header != HEADER {
        return Err(TraceError::Header(header.chars().take(100).collect()));
    }
    let mut rows: Vec<Row> = Vec::new();
    for (index, text) in lines.enumerate() {
        let line = index + 2;
        if text.trim().is_empty() {
            continue;
        }
        let fields: Vec<&str> = text.split(',').map(str::trim).collect();
        let [x, allocated, reserved, requested] = fields[..] else {
            return Err(TraceError::Fields {
                line,
                fields: fields.len(),
            });
        };
        let value = |column, value: &str, wanted| TraceError::Value {
            line,
            column,
            value: value.to_owned(),
            wanted,
        };
        let bytes = |column, text: &str| match text {
            "" => Ok(None),
            text => text
                .parse()
                .map(Some)
                .map_err(|_| value(column, text, "whole number of bytes")),
        };
        let row = Row {
            x: x.parse()
                .ok()
                .filter(|x: &f64| x.is_finite())
                .ok_or_else(|| value("x", x, "number"))?,
            allocated: bytes("allocated_bytes", allocated)?,
            reserved: bytes("reserved_bytes", reserved)?,
            requested: bytes("requested_bytes", requested)?,
        };
        if let Some(before) = rows.last().map(|row| row.x).filter(|&before| before > row.x) {
            return Err(TraceError::Back {
                line,
                before,
                x: row.x,
            });
        }
        rows.push(row);
    }
    Ok(rows)
}

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
                    // Hours between two rows are not filled with samples that nobody took.
                    const MOST_REPEATS: f64 = 8.0;
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

#[cfg(test)]
mod tests {
    use super::*;
    use migm_shared::units::GIB;

    fn trace(rows: &str) -> Result<Vec<Run>, TraceError> {
        runs("t", &format!("{HEADER}\n{rows}"))
    }

    #[test]
    fn reserved_bytes_count_and_allocated_ones_where_there_are_none() {
        let run = &trace("0,5,9,20\n0,,,7\n1,6,,\n2,7,10,\n").unwrap()[0];
        let levels: Vec<(f64, u64, u64)> = run.seen.iter().map(|o| (o.x, o.reserved, o.requested)).collect();
        assert_eq!(levels, [(0.0, 9, 20), (2.0, 10, 7)]);
        let run = &trace("0,5,,\n1,6,,\n").unwrap()[0];
        assert_eq!((run.peak(), run.seen[1].requested), (6, 6));
    }

    #[test]
    fn the_jobs_of_a_device_are_told_apart_where_it_falls_idle() {
        let level = |levels: &[u64]| {
            let row = |(x, level): (usize, &u64)| format!("{x},,{},\n", level * MIB);
            levels.iter().enumerate().map(row).collect::<String>()
        };
        let jobs = trace(&level(&[3, 9000, 9000, 9000, 3, 3, 8000, 3, 7000, 7100, 7200])).unwrap();
        let named: Vec<(&str, u64)> = jobs
            .iter()
            .map(|run| (run.name.as_str(), run.peak() / MIB))
            .collect();
        assert_eq!(named, [("t job 1", 9000), ("t job 2", 7200)]);
        // A fall to a twentieth within 100 MiB is a tooth of a small program seen from inside.
        let teeth = "0,1000,2000,\n1,900000,1000000,\n2,1000,2000,\n3,900000,1000000,\n";
        assert_eq!(trace(teeth).unwrap().len(), 1);
    }

    #[test]
    fn bad_rows_are_named() {
        for (rows, said) in [
            ("0,1,2\n", "2: 3 fields, not 4"),
            ("0,1,2,3\n\nx,1,2,3\n", "4: x `x` is no number"),
            (
                "0,1.5,2,\n",
                "2: allocated_bytes `1.5` is no whole number of bytes",
            ),
            ("0,,-2,\n", "2: reserved_bytes `-2` is no whole number of bytes"),
            ("inf,,2,\n", "2: x `inf` is no number"),
            ("3,,2,\n1,,2,\n", "3: x goes back from 3 to 1"),
            ("0,,,\n", "1: no row has a memory figure"),
        ] {
            assert_eq!(trace(rows).unwrap_err().to_string(), said);
        }
        let other = runs("t", "t,mib\n").unwrap_err().to_string();
        assert!(other.starts_with("1: the header is `t,mib`, not `x,"), "{other}");
    }

    #[test]
    fn a_sampler_sees_the_largest_since_its_last_look_and_the_same_again() {
        let seen = [1, 5, 2, 9]
            .iter()
            .zip(0..)
            .map(|(&level, x)| Observation::reserved_only(f64::from(x), level * GIB));
        let run = Run {
            name: String::new(),
            seen: seen.collect(),
        };
        let levels = |run: &Run| {
            run.seen
                .iter()
                .map(|o| (o.x, o.reserved / GIB))
                .collect::<Vec<_>>()
        };
        assert_eq!(levels(&run.sampled(0.5, 1.0)), [(0.0, 5), (1.0, 9)]);
        let slow = run.sampled(0.2, 0.1);
        assert_eq!(
            levels(&slow).iter().map(|&(_, level)| level).collect::<Vec<_>>(),
            [1, 1, 5, 5, 2, 2, 9]
        );
    }
}
