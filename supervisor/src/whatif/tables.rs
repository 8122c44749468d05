//! Speeds, memory and job traces from CSV text.
//!
//! | file | columns |
//! |---|---|
//! | speeds | `model,batch,profile,median_seconds_per_batch,samples` |
//! | memory | `model,batch,nvidia_smi_mib` |
//! | trace | `job,arrival_s,duration_on_full_gpu_s,workload`, a workload being `MODEL_trainBATCH` |
//!
//! A speed row proves that the workload fits that slice, a missing one that it does not; memory decides only
//! where no speed row covers the workload. Names of profiles belong to one kind of GPU; on another kind the
//! law of the shares fitted to the rows is used.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use migm_shared::units::MIB;

use super::{Gpu, Job, Memory, parameters};
use crate::layout::{ProfileIndex, Table};
use crate::schedule::Terms;

/// What is wrong with a table.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum TableError {
    /// The first line is not the heading.
    #[error("line 1: the columns must be `{wanted}`, and are `{found}`")]
    Heading {
        /// What the columns must be.
        wanted: &'static str,
        /// What they are.
        found: String,
    },
    /// A field is not what its column says.
    #[error("line {line}: {column} `{found}` is no {wanted}")]
    Field {
        /// From 1.
        line: usize,
        /// The column.
        column: &'static str,
        /// What stands there.
        found: String,
        /// What should.
        wanted: &'static str,
    },
    /// A line has too few or too many fields.
    #[error("line {line}: {found} fields instead of {wanted}")]
    Fields {
        /// From 1.
        line: usize,
        /// How many there are.
        found: usize,
        /// How many there should be.
        wanted: usize,
    },
    /// A job names a workload that nothing is known of.
    #[error("line {line}: nothing is known of workload `{workload}`: no speeds, no memory")]
    Unknown {
        /// From 1.
        line: usize,
        /// The workload.
        workload: String,
    },
    /// There is no row.
    #[error("there is no row below the heading")]
    Empty,
}

const SPEEDS: &str = "model,batch,profile,median_seconds_per_batch,samples";
const MEMORY: &str = "model,batch,nvidia_smi_mib";
const TRACE: &str = "job,arrival_s,duration_on_full_gpu_s,workload";

/// Rows of a CSV file without quotes, with their line numbers.
fn rows<'a>(text: &'a str, heading: &'static str) -> Result<Vec<(usize, Vec<&'a str>)>, TableError> {
    let mut lines = text.lines().enumerate();
    let found = lines.next().map_or("", |(_, line)| line.trim());
    if found != heading {
        return Err(TableError::Heading {
            wanted: heading,
            found: found.to_owned(),
        });
    }
    let wanted = heading.split(',').count();
    let mut all = Vec::new();
    for (index, line) in lines.filter(|(_, line)| !line.trim().is_empty()) {
        let fields: Vec<&str> = line.split(',').map(str::trim).collect();
        if fields.len() != wanted {
            return Err(TableError::Fields {
                line: index + 1,
                found: fields.len(),
                wanted,
            });
        }
        all.push((index + 1, fields));
    }
    if all.is_empty() {
        return Err(TableError::Empty);
    }
    Ok(all)
}

/// A number of at least zero.
fn number(line: usize, column: &'static str, text: &str) -> Result<f64, TableError> {
    let value = text.parse::<f64>().ok();
    value
        .filter(|v| v.is_finite() && *v >= 0.0)
        .ok_or_else(|| TableError::Field {
            line,
            column,
            found: text.to_owned(),
            wanted: "number of at least 0",
        })
}

/// The same, above zero.
fn positive(line: usize, column: &'static str, text: &str) -> Result<f64, TableError> {
    let value = number(line, column, text)?;
    if value > 0.0 {
        return Ok(value);
    }
    Err(TableError::Field {
        line,
        column,
        found: text.to_owned(),
        wanted: "number above 0",
    })
}

/// Seconds per batch by workload and profile.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Speeds {
    seconds: HashMap<String, BTreeMap<String, f64>>,
}

impl Speeds {
    /// Reads the table.
    ///
    /// # Errors
    /// [`TableError`] with the line.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut seconds: HashMap<String, BTreeMap<String, f64>> = HashMap::new();
        for (line, fields) in rows(text, SPEEDS)? {
            let value = positive(line, "median_seconds_per_batch", fields[3])?;
            positive(line, "batch", fields[1])?;
            let workload = format!("{}_train{}", fields[0], fields[1]);
            seconds
                .entry(workload)
                .or_default()
                .insert(fields[2].to_owned(), value);
        }
        Ok(Self { seconds })
    }

    /// The workloads that it covers, in order.
    #[must_use]
    pub fn workloads(&self) -> Vec<&str> {
        let mut names: Vec<&str> = self.seconds.keys().map(String::as_str).collect();
        names.sort_unstable();
        names
    }

    /// Speeds of a workload on the profiles of a GPU against its whole; `None` where no row names them.
    #[must_use]
    pub fn on(&self, workload: &str, table: &Table) -> Option<Arc<[f64]>> {
        let known = self.seconds.get(workload)?;
        let whole = *known.get(&table.profile(table.full()).name)?;
        let speeds = table.profiles().iter();
        Some(
            speeds
                .map(|profile| known.get(&profile.name).map_or(0.0, |seconds| whole / seconds))
                .collect(),
        )
    }
}

/// Device bytes by workload.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct MemoryTable {
    bytes: HashMap<String, u64>,
}

impl MemoryTable {
    /// Reads the table.
    ///
    /// # Errors
    /// [`TableError`] with the line.
    pub fn parse(text: &str) -> Result<Self, TableError> {
        let mut bytes = HashMap::new();
        for (line, fields) in rows(text, MEMORY)? {
            let mib = fields[2].parse::<u32>().map_err(|_| TableError::Field {
                line,
                column: "nvidia_smi_mib",
                found: fields[2].to_owned(),
                wanted: "whole number of MiB",
            })?;
            bytes.insert(format!("{}_train{}", fields[0], fields[1]), u64::from(mib) * MIB);
        }
        Ok(Self { bytes })
    }
}

/// One row of a trace.
#[derive(Clone, Debug, PartialEq)]
pub struct Row {
    /// Line in the file, from 1.
    pub line: usize,
    /// Name.
    pub job: String,
    /// Seconds.
    pub arrival: f64,
    /// Seconds alone on the whole GPU.
    pub work: f64,
    /// What it runs.
    pub workload: String,
}

/// Reads a trace; rows in order of arrival.
///
/// # Errors
/// [`TableError`] with the line.
pub fn trace(text: &str) -> Result<Vec<Row>, TableError> {
    let mut found = Vec::new();
    for (line, fields) in rows(text, TRACE)? {
        found.push(Row {
            line,
            job: fields[0].to_owned(),
            arrival: number(line, "arrival_s", fields[1])?,
            work: positive(line, "duration_on_full_gpu_s", fields[2])?,
            workload: fields[3].to_owned(),
        });
    }
    found.sort_by(|a: &Row, b: &Row| a.arrival.total_cmp(&b.arrival));
    Ok(found)
}

/// A job of a workload on these GPUs.
///
/// # Errors
/// [`TableError::Unknown`].
pub fn job(row: &Row, speeds: &Speeds, memory: &MemoryTable, gpus: &[Gpu]) -> Result<Job, TableError> {
    let kinds = gpus.iter().map(|gpu| gpu.kind).max().map_or(0, |most| most + 1);
    let tables: Vec<&Table> = (0..kinds)
        .filter_map(|kind| gpus.iter().find(|gpu| gpu.kind == kind))
        .map(|gpu| &*gpu.table)
        .collect();
    let bytes = memory.bytes.get(&row.workload).copied();
    let mut all = Vec::new();
    let mut told = 0;
    let measured = tables
        .iter()
        .find_map(|table| speeds.on(&row.workload, table).map(|found| (*table, found)));
    for table in &tables {
        let of = match (speeds.on(&row.workload, table), &measured) {
            (Some(found), _) => {
                // The need is what the tightest slice with a row has, so that every slice said to hold it does.
                let tightest = fitting(table, &found).map(|p| table.profile(p).memory).min();
                told = told.max(tightest.unwrap_or(0));
                found
            }
            (None, Some((other, found))) => carried(other, found, table, told),
            (None, None) => {
                let bytes = bytes.ok_or_else(|| TableError::Unknown {
                    line: row.line,
                    workload: row.workload.clone(),
                })?;
                told = bytes;
                let serial = parameters::SERIAL;
                let profiles = table.profiles().iter();
                let whole = table.profile(table.full()).compute;
                profiles
                    .map(|p| {
                        if p.memory < bytes {
                            0.0
                        } else {
                            law(serial, f64::from(p.compute) / f64::from(whole))
                        }
                    })
                    .collect()
            }
        };
        all.push(of);
    }
    let first = tables.first().copied();
    let active = first
        .zip(all.first())
        .map_or(1.0, |(table, speeds): (&Table, &Arc<[f64]>)| {
            let smallest = fitting(table, speeds).min_by_key(|&p| table.profile(p).compute);
            smallest.map_or(1.0, |p| parameters::active(compute_share(table, p), speeds[p.0]))
        });
    Ok(Job {
        name: row.job.clone(),
        program: row.workload.clone(),
        arrival: row.arrival,
        work: row.work,
        speeds: all,
        told,
        memory: Memory::flat(told),
        bus: 0.0,
        active,
        weight: 1.0,
        checkpoints: true,
        after: Vec::new(),
        terms: Terms::default(),
    })
}

/// A job of which nothing is known but its memory: speeds by the prior.
#[must_use]
pub fn unknown(row: &Row, bytes: u64, gpus: &[Gpu]) -> Job {
    let only = MemoryTable {
        bytes: HashMap::from([(row.workload.clone(), bytes)]),
    };
    let known = job(row, &Speeds::default(), &only, gpus);
    known.unwrap_or_else(|_| Job {
        name: row.job.clone(),
        program: row.workload.clone(),
        arrival: row.arrival,
        work: row.work,
        speeds: Vec::new(),
        told: bytes,
        memory: Memory::default(),
        bus: 0.0,
        active: 1.0,
        weight: 1.0,
        checkpoints: true,
        after: Vec::new(),
        terms: Terms::default(),
    })
}

const MEMORY_TRACE: &str = "x,allocated_bytes,reserved_bytes,requested_bytes";

/// A memory trace as the steps of [`Memory`]: part of the run and the largest reserved bytes so far (allocated
/// where there is no reserved figure).
///
/// # Errors
/// [`TableError`] with the line.
pub fn memory_trace(text: &str) -> Result<Vec<(f64, u64)>, TableError> {
    let mut points: Vec<(f64, u64)> = Vec::new();
    let mut most = 0;
    for (line, fields) in rows(text, MEMORY_TRACE)? {
        let x = number(line, "x", fields[0])?;
        let text = if fields[2].is_empty() {
            fields[1]
        } else {
            fields[2]
        };
        if text.is_empty() {
            continue;
        }
        let bytes = text.parse::<u64>().map_err(|_| TableError::Field {
            line,
            column: "reserved_bytes",
            found: text.to_owned(),
            wanted: "whole number of bytes",
        })?;
        most = bytes.max(most);
        points.push((x, most));
    }
    let (Some(&(first, _)), Some(&(last, _))) = (points.first(), points.last()) else {
        return Err(TableError::Empty);
    };
    let span = (last - first).max(f64::MIN_POSITIVE);
    for point in &mut points {
        point.0 = (point.0 - first) / span;
    }
    // What stands at the very start stands from the start on.
    points[0].0 = 0.0;
    Ok(points)
}

fn fitting<'a>(table: &'a Table, speeds: &'a [f64]) -> impl Iterator<Item = ProfileIndex> + 'a {
    let profiles = 0..table.profiles().len();
    profiles.filter(|&p| speeds[p] > 0.0).map(ProfileIndex)
}

/// The part of the compute slices that a profile has.
#[must_use]
pub fn compute_share(table: &Table, profile: ProfileIndex) -> f64 {
    f64::from(table.profile(profile).compute) / f64::from(table.profile(table.full()).compute.max(1))
}

/// Speed on a share of the GPU for a job of which `serial` gains nothing from more.
fn law(serial: f64, share: f64) -> f64 {
    1.0 / (serial + (1.0 - serial) / share)
}

/// Speeds measured on one kind of GPU, on another: linear between the shares measured, against its whole.
fn carried(from: &Table, speeds: &[f64], to: &Table, told: u64) -> Arc<[f64]> {
    let mut points: Vec<(f64, f64)> = fitting(from, speeds)
        .map(|p| (compute_share(from, p), speeds[p.0]))
        .collect();
    points.sort_by(|a, b| a.0.total_cmp(&b.0));
    let at = |share: f64| {
        let above = points
            .iter()
            .position(|point| point.0 >= share)
            .unwrap_or(points.len());
        match (
            above.checked_sub(1).and_then(|below| points.get(below)),
            points.get(above),
        ) {
            (Some(a), Some(b)) => a.1 + (b.1 - a.1) * (share - a.0) / (b.0 - a.0).max(1e-9),
            // Below the smallest measured: in proportion to the share.
            (None, Some(b)) => b.1 * share / b.0,
            (Some(a), None) => a.1,
            (None, None) => share,
        }
    };
    let profiles = (0..to.profiles().len()).map(ProfileIndex);
    profiles
        .map(|p| {
            if to.profile(p).memory < told {
                0.0
            } else {
                at(compute_share(to, p))
            }
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use super::super::parameters::Power;
    use super::*;
    use crate::layout::samples;

    const TEXT: &str = "model,batch,profile,median_seconds_per_batch,samples\n\
        a,8,2g.10gb,0.5,9\na,8,3g.20gb,0.4,9\na,8,4g.20gb,0.3,9\na,8,7g.40gb,0.25,9\n";

    fn gpus() -> Vec<Gpu> {
        vec![Gpu {
            table: Arc::new(samples::a100_base()),
            kind: 0,
            power: Power::A100,
        }]
    }

    fn row(workload: &str) -> Row {
        Row {
            line: 7,
            job: "j".into(),
            arrival: 0.0,
            work: 10.0,
            workload: workload.into(),
        }
    }

    #[test]
    fn a_missing_row_is_a_slice_that_does_not_hold_the_job() {
        let speeds = Speeds::parse(TEXT).unwrap();
        // The table of memory would let it on 1g: the rows decide.
        let memory = MemoryTable::parse("model,batch,nvidia_smi_mib\na,8,2000\n").unwrap();
        let job = job(&row("a_train8"), &speeds, &memory, &gpus()).unwrap();
        assert_eq!(job.speeds[0][..2], [0.0, 0.5]);
        assert_eq!(job.told, 9984 * MIB);
    }

    #[test]
    fn memory_decides_where_there_are_no_rows() {
        let memory = MemoryTable::parse("model,batch,nvidia_smi_mib\nb,4,6000\n").unwrap();
        let job = job(&row("b_train4"), &Speeds::default(), &memory, &gpus()).unwrap();
        assert_eq!(job.speeds[0][0], 0.0);
        assert!(job.speeds[0][1] > 0.0 && job.speeds[0][4] == 1.0);
    }

    #[test]
    fn errors_name_the_line() {
        let said = |text: &str| Speeds::parse(text).unwrap_err().to_string();
        assert!(said("a,b\n").starts_with("line 1: the columns must be"));
        let bad = format!("{TEXT}a,8,1g.5gb,none,9\n");
        assert_eq!(
            said(&bad),
            "line 6: median_seconds_per_batch `none` is no number of at least 0"
        );
        assert_eq!(said(&format!("{TEXT}a,8\n")), "line 6: 2 fields instead of 5");
        let unknown = job(
            &row("c_train1"),
            &Speeds::default(),
            &MemoryTable::default(),
            &gpus(),
        )
        .unwrap_err();
        assert!(
            unknown
                .to_string()
                .starts_with("line 7: nothing is known of workload `c_train1`")
        );
    }

    #[test]
    fn a_memory_trace_becomes_a_peak_over_the_run() {
        let text = "x,allocated_bytes,reserved_bytes,requested_bytes\n10,,5,\n20,7,,\n30,,6,\n";
        assert_eq!(memory_trace(text).unwrap(), [(0.0, 5), (0.5, 7), (1.0, 7)]);
    }
}
