//! Profiles and demand as people write them: two CSV files.
//!
//! A profile row says how a model runs on a size of slice with one batch and number of processes; the columns
//! are those of ParvaGPU's published profiles, with three more that may be left out (`gpu`, `profile`,
//! `memory_bytes`) and latencies of several percentiles. A demand row says what must be served.

use std::collections::HashMap;

use super::problem::Rate;
use super::rows::{InputError, Row, Sheet};

/// What a profile row was measured on.
#[derive(Clone, Debug, Eq, Hash, PartialEq)]
pub enum On {
    /// Any slice with so many compute slices.
    Compute(u32),
    /// The slice of this profile name.
    Profile(String),
}

/// One measured operating point.
#[derive(Clone, Debug)]
pub struct ProfileRow {
    /// The only model of GPU it holds for; every one where it is `None`.
    pub gpu: Option<String>,
    /// The slice.
    pub on: On,
    /// Requests in a batch.
    pub batch: u32,
    /// Processes that share the slice under MPS.
    pub processes: u32,
    /// What all of them serve.
    pub rate: Rate,
    /// Latency, microseconds.
    pub latency_us: u64,
    /// Device memory of all of them, if it was measured.
    pub memory: Option<u64>,
}

/// The operating points of all models.
#[derive(Clone, Debug, Default)]
pub struct Profiles {
    models: HashMap<String, Vec<ProfileRow>>,
}

/// One service of the demand.
#[derive(Clone, Debug, Eq, PartialEq)]
pub struct DemandRow {
    /// Its name: the model's, unless a column `service` says otherwise.
    pub service: String,
    /// The model.
    pub model: String,
    /// What must be served.
    pub required: Rate,
    /// Latency limit in whole milliseconds; a fraction is cut off.
    pub limit_ms: u32,
    /// Where it stands.
    pub line: u64,
}

/// Longest latency or limit that is understood: 11 days.
const MOST_SECONDS: f64 = 1e6;

fn is_latency(column: &str) -> bool {
    column.strip_prefix("latency_").is_some_and(|rest| {
        rest == "s"
            || rest
                .strip_suffix("_s")
                .is_some_and(|percentile| percentile.starts_with('p'))
    })
}

impl Profiles {
    /// Reads the text of a profiles file. `percentile` chooses a column `latency_pNN_s`; without it there must
    /// be a column `latency_s`, or only one of the others.
    ///
    /// # Errors
    /// A column is missing or unknown, a field is no number above 0, or two rows are for the same point.
    pub fn parse(file: &str, text: &str, percentile: Option<&str>) -> Result<Self, InputError> {
        let known = |column: &str| {
            let fixed = [
                "model",
                "gpu",
                "compute_slices",
                "profile",
                "batch",
                "mps_processes",
                "throughput_per_process_rps",
                "memory_bytes",
            ];
            fixed.contains(&column) || is_latency(column)
        };
        let sheet = Sheet::read(file, text, known)?;
        let latency = latency_column(&sheet, percentile)?;
        let (model, batch) = (sheet.need("model")?, sheet.need("batch")?);
        let throughput = sheet.need("throughput_per_process_rps")?;
        let processes = sheet.need("mps_processes")?;
        let (compute, profile) = (sheet.column("compute_slices"), sheet.column("profile"));
        if profile.is_none() {
            sheet.need("compute_slices")?;
        }
        let (gpu, memory) = (sheet.column("gpu"), sheet.column("memory_bytes"));
        let mut profiles = Self::default();
        let mut seen = HashMap::new();
        for row in sheet.rows() {
            let name = row.word(model)?;
            let on = match (row.text(profile), compute) {
                (Some(profile), _) => On::Profile(profile.to_owned()),
                (None, Some(compute)) => On::Compute(row.count(compute)?),
                (None, None) => return Err(row.fault("`profile` is blank")),
            };
            let processes = row.count(processes)?;
            let each = rate(row, throughput)?;
            let all = each
                .0
                .checked_mul(i64::from(processes))
                .map(|all| all as f64 / 1e6);
            let point = ProfileRow {
                gpu: row.text(gpu).map(str::to_lowercase),
                on,
                batch: row.count(batch)?,
                processes,
                rate: all.and_then(Rate::from_rps).ok_or_else(|| {
                    row.fault("all processes together serve more than 10^9 requests a second")
                })?,
                latency_us: latency_us(row, latency)?,
                memory: match (memory, row.text(memory)) {
                    (Some(column), Some(text)) => Some(
                        text.parse()
                            .map_err(|_| row.wrong(column, text, "a whole number of bytes"))?,
                    ),
                    _ => None,
                },
            };
            let key = (
                name,
                point.gpu.clone(),
                point.on.clone(),
                point.batch,
                point.processes,
            );
            if let Some(line) = seen.insert(key, row.line()) {
                return Err(row.fault(format_args!("the same point as in line {line}")));
            }
            profiles.models.entry(name.to_owned()).or_default().push(point);
        }
        Ok(profiles)
    }

    /// The points of a model, in the order of the file.
    #[must_use]
    pub fn of(&self, model: &str) -> Option<&[ProfileRow]> {
        self.models.get(model).map(Vec::as_slice)
    }
}

fn latency_column(sheet: &Sheet<'_>, percentile: Option<&str>) -> Result<usize, InputError> {
    if let Some(percentile) = percentile {
        return sheet.need(&format!("latency_{percentile}_s"));
    }
    if let Some(column) = sheet.column("latency_s") {
        return Ok(column);
    }
    let named: Vec<&str> = sheet.columns().filter(|column| is_latency(column)).collect();
    match named[..] {
        [only] => sheet.need(only),
        [] => sheet.need("latency_s"),
        _ => Err(sheet.fault(
            1,
            format_args!("several latencies ({}): choose a percentile", named.join(", ")),
        )),
    }
}

fn rate(row: Row<'_>, column: usize) -> Result<Rate, InputError> {
    let rps = row.number(column)?;
    Rate::from_rps(rps).ok_or_else(|| row.wrong(column, &rps.to_string(), "between 10^-6 and 10^9"))
}

fn latency_us(row: Row<'_>, column: usize) -> Result<u64, InputError> {
    let seconds = row.number(column)?;
    if seconds > MOST_SECONDS {
        return Err(row.wrong(column, &seconds.to_string(), "a latency of at most 10^6 s"));
    }
    #[expect(
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "between 0 and 10^12"
    )]
    Ok((seconds * 1e6).round() as u64)
}

/// Reads the text of a demand file.
///
/// # Errors
/// A column is missing or unknown, a field is no number above 0, or two rows have the same service.
pub fn parse_demand(file: &str, text: &str) -> Result<Vec<DemandRow>, InputError> {
    let known = |column: &str| ["service", "model", "required_rps", "slo_latency_ms"].contains(&column);
    let sheet = Sheet::read(file, text, known)?;
    let (model, service) = (sheet.need("model")?, sheet.column("service"));
    let (required, limit) = (sheet.need("required_rps")?, sheet.need("slo_latency_ms")?);
    let mut seen = HashMap::new();
    let mut rows = Vec::new();
    for row in sheet.rows() {
        let model = row.word(model)?;
        let service = row.text(service).unwrap_or(model);
        if let Some(line) = seen.insert(service, row.line()) {
            return Err(row.fault(format_args!("service {service} is in line {line} already")));
        }
        let ms = row.number(limit)?;
        if !(1.0..=MOST_SECONDS * 1e3).contains(&ms) {
            return Err(row.wrong(limit, &ms.to_string(), "between 1 and 10^9 ms"));
        }
        rows.push(DemandRow {
            service: service.to_owned(),
            model: model.to_owned(),
            required: rate(row, required)?,
            #[expect(
                clippy::cast_possible_truncation,
                clippy::cast_sign_loss,
                reason = "between 1 and 10^9"
            )]
            limit_ms: ms as u32,
            line: row.line(),
        });
    }
    Ok(rows)
}

#[cfg(test)]
mod tests {
    use super::*;

    const HEADER: &str = "model,compute_slices,batch,mps_processes,throughput_per_process_rps,latency_s\n";

    fn fault(rows: &str) -> String {
        Profiles::parse("p.csv", &format!("{HEADER}{rows}"), None)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn throughput_is_of_one_process() {
        let profiles = Profiles::parse("p.csv", &format!("{HEADER}bert,1,1,3,39.917,0.025\n"), None).unwrap();
        let row = &profiles.of("bert").unwrap()[0];
        assert_eq!((row.rate, row.latency_us), (Rate(119_751_000), 25_000));
        assert!(profiles.of("gpt2").is_none());
    }

    #[test]
    fn what_is_no_measurement_is_refused_with_file_and_line() {
        for (rows, said) in [
            (
                "bert,1,1,1,NaN,0.1",
                "p.csv:2: `throughput_per_process_rps` is `NaN`, which is not a number above 0",
            ),
            (
                "bert,1,1,1,5,0.1\nbert,1,2,1,-5,0.1",
                "p.csv:3: `throughput_per_process_rps` is `-5`, which is not a number above 0",
            ),
            (
                "bert,1,1,1,0,0.1",
                "p.csv:2: `throughput_per_process_rps` is `0`, which is not a number above 0",
            ),
            (
                "bert,1,1,1,inf,0.1",
                "p.csv:2: `throughput_per_process_rps` is `inf`, which is not a number above 0",
            ),
            ("bert,1,1,1,5,", "p.csv:2: `latency_s` is blank"),
            ("bert,1,1,1,5", "p.csv:2: 5 fields, and the header has 6"),
            (
                "bert,1.5,1,1,5,0.1",
                "p.csv:2: `compute_slices` is `1.5`, which is not a whole number above 0",
            ),
            (
                "bert,1,1,1,5,0.1\n\nbert,1,1,1,6,0.1",
                "p.csv:4: the same point as in line 2",
            ),
            ("", "p.csv:1: no rows"),
        ] {
            assert_eq!(fault(rows), said);
        }
    }

    #[test]
    fn a_misspelt_column_is_refused() {
        let text = "model,slices,batch\nbert,1,1\n";
        let error = Profiles::parse("p.csv", text, None).unwrap_err();
        assert_eq!(error.to_string(), "p.csv:1: unknown column `slices`");
    }

    #[test]
    fn a_percentile_is_chosen_where_there_are_several() {
        let text = "model,compute_slices,batch,mps_processes,throughput_per_process_rps,latency_p50_s,latency_p99_s\n\
                    bert,1,1,1,5,0.1,0.3\n";
        let us = |percentile| {
            Profiles::parse("p.csv", text, percentile).map(|p| p.of("bert").unwrap()[0].latency_us)
        };
        assert_eq!(us(Some("p99")), Ok(300_000));
        assert!(us(None).unwrap_err().fault.contains("choose a percentile"));
        assert!(
            us(Some("p90"))
                .unwrap_err()
                .fault
                .contains("`latency_p90_s` is missing")
        );
    }

    #[test]
    fn a_service_is_named_once() {
        let demand =
            |rows: &str| parse_demand("d.csv", &format!("model,required_rps,slo_latency_ms\n{rows}"));
        assert_eq!(demand("bert,19,418.5").unwrap()[0].limit_ms, 418);
        for (rows, said) in [
            (
                "bert,19,100\nbert,20,100",
                "d.csv:3: service bert is in line 2 already",
            ),
            (
                "bert,19,0.5",
                "d.csv:2: `slo_latency_ms` is `0.5`, which is not between 1 and 10^9 ms",
            ),
            (
                "bert,-1,100",
                "d.csv:2: `required_rps` is `-1`, which is not a number above 0",
            ),
        ] {
            assert_eq!(demand(rows).unwrap_err().to_string(), said);
        }
        let text = "service,model,required_rps,slo_latency_ms\na,bert,1,10\nb,bert,2,20\n";
        let rows = parse_demand("d.csv", text).unwrap();
        assert_eq!(rows[1].service, "b");
    }
}
