//! What a kernel costs: a modelled time, never a measurement.
//!
//! Without a table, a kernel of `B` blocks runs in waves: a slice of `s` multiprocessors holds `s * r` blocks at a
//! time, where `r` is how many blocks of that size one multiprocessor holds (at most 2048 threads and 32 blocks), so
//!
//! ```text
//! seconds = ceil(B / (s * r)) * WAVE_SECONDS
//! ```
//!
//! A grid that fits on the 14 multiprocessors of a 1g slice is as fast there as on the whole GPU. The table named by
//! `SIMGPU_COSTS` overrides that by kernel name:
//!
//! ```toml
//! [kernels]
//! axpy = 0.002                               # simulated seconds on all multiprocessors of the GPU
//! stencil = { seconds = 0.5, sms = 20 }      # it can use 20 at most
//! ```
//!
//! Names are those in the image: of a C++ kernel the mangled one, `_Z4axpyPf`. Such a kernel, able to use `d = min(all, sms)` multiprocessors, takes `seconds * max(1, d / s)` on a slice of `s`.

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use toml::de::{DeTable, DeValue};

/// Modelled simulated seconds of one wave of blocks.
pub(crate) const WAVE_SECONDS: f64 = 20e-6;
/// Threads that one multiprocessor holds at a time.
pub(crate) const THREADS_PER_SM: u32 = 2048;
/// Blocks that one multiprocessor holds at a time.
pub(crate) const BLOCKS_PER_SM: u32 = 32;

/// What one launch costs on the slice it runs on, if it is alone there.
#[derive(Clone, Copy, Debug, PartialEq)]
pub(crate) struct Cost {
    /// Simulated seconds.
    pub(crate) seconds: f64,
    /// Multiprocessors that it keeps busy.
    pub(crate) sms: u32,
}

/// One row of the table.
#[derive(Clone, Copy, Debug, PartialEq)]
struct Row {
    seconds: f64,
    sms: Option<u32>,
}

/// The table of `SIMGPU_COSTS`; empty if the variable is not set.
#[derive(Debug, Default)]
pub(crate) struct Costs {
    kernels: HashMap<String, Row>,
}

/// Why the table was refused.
#[derive(Debug, thiserror::Error)]
pub(crate) enum CostsError {
    #[error("SIMGPU_COSTS: {path}: {source}")]
    Read { path: PathBuf, source: std::io::Error },
    #[error("SIMGPU_COSTS: {path}:{line}: {message}")]
    Syntax {
        path: PathBuf,
        line: usize,
        message: String,
    },
    #[error("SIMGPU_COSTS: {path}:{line}: {key}: {message}")]
    Key {
        path: PathBuf,
        line: usize,
        key: String,
        message: String,
    },
}

impl Costs {
    /// Reads a table.
    pub(crate) fn read(path: &Path) -> Result<Self, CostsError> {
        let text = std::fs::read_to_string(path).map_err(|source| CostsError::Read {
            path: path.to_owned(),
            source,
        })?;
        Self::parse(path, &text)
    }

    fn parse(path: &Path, text: &str) -> Result<Self, CostsError> {
        let line = |offset: usize| 1 + text.bytes().take(offset).filter(|&byte| byte == b'\n').count();
        let table = DeTable::parse(text).map_err(|error| CostsError::Syntax {
            path: path.to_owned(),
            line: line(error.span().map_or(0, |span| span.start)),
            message: error.message().to_owned(),
        })?;
        let wrong = |offset: usize, key: &str, message: &str| CostsError::Key {
            path: path.to_owned(),
            line: line(offset),
            key: key.to_owned(),
            message: message.to_owned(),
        };
        let mut kernels = HashMap::new();
        for (key, value) in table.get_ref() {
            let (at, key) = (key.span().start, key.get_ref().as_ref());
            if key != "kernels" {
                return Err(wrong(at, key, "unknown key; the only table is [kernels]"));
            }
            let DeValue::Table(rows) = value.get_ref() else {
                return Err(wrong(at, key, "must be a table of kernel names"));
            };
            for (kernel, value) in rows {
                let (at, kernel) = (kernel.span().start, kernel.get_ref().as_ref());
                let row = match value.get_ref() {
                    DeValue::Table(fields) => row_of_fields(fields, at, kernel, &wrong)?,
                    value => {
                        let seconds = seconds_of(value).ok_or_else(|| {
                            wrong(at, kernel, "must be seconds, a number that is not negative")
                        })?;
                        Row { seconds, sms: None }
                    }
                };
                kernels.insert(kernel.to_owned(), row);
            }
        }
        Ok(Self { kernels })
    }

    /// What a launch of `blocks` blocks of `threads` threads costs on a slice of `slice_sms` of the GPU's `all_sms`
    /// multiprocessors.
    pub(crate) fn of(&self, kernel: &str, blocks: u64, threads: u32, slice_sms: u32, all_sms: u32) -> Cost {
        let slice_sms = slice_sms.max(1);
        if let Some(row) = self.kernels.get(kernel) {
            let usable = row.sms.map_or(all_sms, |sms| sms.min(all_sms)).max(1);
            let slower = (f64::from(usable) / f64::from(slice_sms)).max(1.0);
            return Cost {
                seconds: row.seconds * slower,
                sms: usable.min(slice_sms),
            };
        }
        let resident = u64::from(blocks_per_sm(threads));
        let waves = blocks.div_ceil(u64::from(slice_sms) * resident);
        #[expect(
            clippy::cast_precision_loss,
            reason = "a count of waves above 2^53 would take years"
        )]
        let seconds = waves as f64 * WAVE_SECONDS;
        // A multiprocessor works as soon as it holds one block: blocks spread out before they stack up.
        let sms = u32::try_from(blocks).unwrap_or(u32::MAX).clamp(1, slice_sms);
        Cost { seconds, sms }
    }
}

/// How many blocks of `threads` threads one multiprocessor holds at a time.
pub(crate) fn blocks_per_sm(threads: u32) -> u32 {
    let threads = threads.max(1).next_multiple_of(32);
    (THREADS_PER_SM / threads).clamp(1, BLOCKS_PER_SM)
}

fn row_of_fields(
    fields: &DeTable<'_>,
    at: usize,
    kernel: &str,
    wrong: &dyn Fn(usize, &str, &str) -> CostsError,
) -> Result<Row, CostsError> {
    let (mut seconds, mut sms) = (None, None);
    for (field, value) in fields {
        let (at, name) = (field.span().start, field.get_ref().as_ref());
        let full = format!("{kernel}.{name}");
        match name {
            "seconds" => {
                let found = seconds_of(value.get_ref());
                seconds =
                    Some(found.ok_or_else(|| wrong(at, &full, "must be a number that is not negative"))?);
            }
            "sms" => {
                let found = match value.get_ref() {
                    DeValue::Integer(number) => u32::from_str_radix(number.as_str(), number.radix()).ok(),
                    _ => None,
                };
                let found = found.filter(|&sms| sms > 0);
                sms = Some(found.ok_or_else(|| wrong(at, &full, "must be a whole number of 1 or more"))?);
            }
            _ => return Err(wrong(at, &full, "unknown key; known are seconds and sms")),
        }
    }
    let seconds = seconds.ok_or_else(|| wrong(at, kernel, "seconds is missing"))?;
    Ok(Row { seconds, sms })
}

fn seconds_of(value: &DeValue<'_>) -> Option<f64> {
    let number: f64 = match value {
        DeValue::Float(number) => number.as_str().parse().ok()?,
        DeValue::Integer(number) if number.radix() == 10 => number.as_str().parse().ok()?,
        _ => return None,
    };
    (number.is_finite() && number >= 0.0).then_some(number)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn refusal(text: &str) -> String {
        Costs::parse(Path::new("c.toml"), text).unwrap_err().to_string()
    }

    #[test]
    fn a_small_grid_is_as_fast_on_a_small_slice() {
        let costs = Costs::default();
        let small = costs.of("k", 14 * 8, 256, 14, 108);
        assert_eq!(small.seconds, costs.of("k", 14 * 8, 256, 108, 108).seconds);
        assert_eq!(
            small,
            Cost {
                seconds: WAVE_SECONDS,
                sms: 14
            }
        );
        assert_eq!(
            costs.of("k", 14 * 8 + 1, 256, 14, 108).seconds,
            2.0 * WAVE_SECONDS
        );
        assert_eq!(costs.of("k", 3, 256, 14, 108).sms, 3);
    }

    #[test]
    fn a_row_with_sms_is_slowed_only_by_a_slice_with_fewer() {
        let costs = Costs::parse(
            Path::new("c.toml"),
            "[kernels]\na = { seconds = 0.5, sms = 20 }\nb = 1",
        )
        .unwrap();
        assert_eq!(
            costs.of("a", 1, 32, 28, 108),
            Cost {
                seconds: 0.5,
                sms: 20
            }
        );
        assert_eq!(
            costs.of("a", 1, 32, 14, 108),
            Cost {
                seconds: 0.5 * 20.0 / 14.0,
                sms: 14
            }
        );
        assert_eq!(
            costs.of("b", 1, 32, 108, 108),
            Cost {
                seconds: 1.0,
                sms: 108
            }
        );
        assert_eq!(
            costs.of("b", 1, 32, 14, 108),
            Cost {
                seconds: 108.0 / 14.0,
                sms: 14
            }
        );
    }

    #[test]
    fn a_bad_table_names_the_file_the_line_and_the_key() {
        assert_eq!(
            refusal("[kernels]\na = 1\nb = -2.5"),
            "SIMGPU_COSTS: c.toml:3: b: must be seconds, a number that is not negative"
        );
        assert_eq!(
            refusal("[kernels]\na = { seconds = 1, sm = 2 }"),
            "SIMGPU_COSTS: c.toml:2: a.sm: unknown key; known are seconds and sms"
        );
        assert_eq!(
            refusal("[kernels]\na = { seconds = 1, sms = 0 }"),
            "SIMGPU_COSTS: c.toml:2: a.sms: must be a whole number of 1 or more"
        );
        assert_eq!(
            refusal("[kernels]\na = { sms = 3 }"),
            "SIMGPU_COSTS: c.toml:2: a: seconds is missing"
        );
        assert!(refusal("[kernels]\n\na = = 3").starts_with("SIMGPU_COSTS: c.toml:3: "));
        assert!(refusal("[kernel]\n").starts_with("SIMGPU_COSTS: c.toml:1: kernel: unknown key"));
        assert!(refusal("[kernels]\na = nan").starts_with("SIMGPU_COSTS: c.toml:2: a: "));
    }

    #[test]
    fn blocks_per_sm_is_limited_by_threads_and_by_blocks() {
        assert_eq!(blocks_per_sm(1), 32);
        assert_eq!(blocks_per_sm(256), 8);
        assert_eq!(blocks_per_sm(1024), 2);
        assert_eq!(blocks_per_sm(33), 32);
    }
}
