//! What a new state is made of, as a user writes it.

use super::FileError;
use crate::driver::{self, DriverError};
use crate::faults::{self, Fault};
use crate::guest::Guest;
use crate::model::{self, MODELS};
use crate::state::GPUS;

/// What a new state is made of.
#[derive(Clone, Debug)]
pub struct Plan {
    /// One model index per GPU.
    pub(super) models: Vec<usize>,
    /// MIG mode at the start.
    pub mig: bool,
    /// Wall seconds per simulated second.
    pub time_scale: f64,
    /// Driver version.
    pub driver: String,
    pub(super) faults: Vec<Fault>,
    pub(super) guest: Guest,
}

impl Plan {
    /// Reads `a100-40gb`, `a100-40gb:2` or a list of such with commas. The driver is a version or a branch alone.
    pub fn parse(gpus: &str, mig: bool, time_scale: f64, driver: &str) -> Result<Self, FileError> {
        let mut models = Vec::new();
        for part in gpus.split(',') {
            let (key, count) = part.trim().split_once(':').unwrap_or((part.trim(), "1"));
            let index = model::find(key)?;
            let number = count.parse().ok().filter(|number| (1..=GPUS).contains(number));
            let number = number.ok_or_else(|| FileError::Count {
                given: gpus.to_owned(),
                count: count.to_owned(),
            })?;
            models.extend(std::iter::repeat_n(index, number));
        }
        if models.len() > GPUS {
            return Err(FileError::TooMany(models.len()));
        }
        if !(time_scale.is_finite() && time_scale > 0.0) {
            return Err(FileError::Scale(time_scale.to_string()));
        }
        let driver = driver::version(driver)?;
        for model in models.iter().map(|&index| &MODELS[index]) {
            if let Some(needs) = model.min_driver.filter(|needs| !driver::reaches(&driver, needs)) {
                let gpu = model.key;
                return Err(DriverError::TooOld {
                    gpu,
                    needs,
                    version: driver,
                }
                .into());
            }
        }
        Ok(Self {
            models,
            mig,
            time_scale,
            driver,
            faults: Vec::new(),
            guest: Guest::No,
        })
    }

    /// As a virtual machine.
    #[must_use]
    pub fn as_guest(self, guest: Guest) -> Self {
        Self { guest, ..self }
    }

    /// With faults that it plays from the start; see [`crate::faults`].
    pub fn with_faults(self, text: &str) -> Result<Self, FileError> {
        let gpus = u32::try_from(self.models.len()).unwrap_or(u32::MAX);
        let faults = faults::parse(text, gpus)?;
        Ok(Self { faults, ..self })
    }
}

#[cfg(test)]
mod tests {
    use super::super::DEFAULT_DRIVER;
    use super::*;

    fn plan(gpus: &str) -> Result<Plan, FileError> {
        Plan::parse(gpus, true, 1.0, DEFAULT_DRIVER)
    }

    #[test]
    fn gpus_as_a_list_with_counts() {
        assert_eq!(plan("a100-40gb:2,h100-80gb").unwrap().models, [0, 0, 2]);
    }

    #[test]
    fn a_bad_specification_is_named() {
        let text = |gpus| plan(gpus).unwrap_err().to_string();
        assert_eq!(
            text("a100-40gb:0"),
            "`a100-40gb:0`: `0` is not a number of GPUs (1 to 64)"
        );
        assert_eq!(
            text("a100-40gb:60,a100-40gb:5"),
            "65 GPUs asked, a simulated machine has at most 64"
        );
        assert!(text("").starts_with("unknown GPU ``"));
        assert!(Plan::parse("a100-40gb", true, f64::NAN, DEFAULT_DRIVER).is_err());
        assert!(Plan::parse("a100-40gb", true, 1.0, "new").is_err());
        let old = Plan::parse("a100-40gb,h100-80gb", true, 1.0, "510").unwrap_err();
        assert_eq!(
            old.to_string(),
            "`h100-80gb` needs driver 525.85.12 or later, not 510.47.03"
        );
    }
}
