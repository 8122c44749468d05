//! Bytes and seconds as people write them.

use std::fmt;
use std::str::FromStr;

use bincode::{Decode, Encode};
use serde::{Deserialize, Serialize};

/// A number of bytes. On the command line K, M, G, T are powers of 1000, Ki, Mi, Gi, Ti powers of 1024,
/// a trailing `B` is allowed, and a bare number is bytes.
#[derive(
    Clone, Copy, Debug, Default, Eq, PartialEq, Ord, PartialOrd, Hash, Encode, Decode, Serialize, Deserialize,
)]
#[serde(transparent)]
pub struct Bytes(pub u64);

/// One mebibyte.
pub const MIB: u64 = 1 << 20;
/// One gibibyte.
pub const GIB: u64 = 1 << 30;

/// Why a size or a duration could not be read; each carries what was given.
#[derive(Clone, Debug, Eq, PartialEq, thiserror::Error)]
pub enum UnitError {
    /// No number at the start.
    #[error("`{0}` does not start with a number")]
    NoNumber(String),
    /// The letters after the number are no unit.
    #[error("`{given}` ends in `{suffix}`; sizes end in K, M, G, T (1000), Ki, Mi, Gi, Ti (1024) or nothing")]
    BytesSuffix {
        /// All that was given.
        given: String,
        /// The letters not understood.
        suffix: String,
    },
    /// The letters after the number are no unit of time.
    #[error("`{given}` ends in `{suffix}`; durations end in ms, s, m, h or nothing (seconds)")]
    SecondsSuffix {
        /// All that was given.
        given: String,
        /// The letters not understood.
        suffix: String,
    },
    /// More than 2^64 - 1 bytes, or not a finite number.
    #[error("`{0}` is out of range")]
    Range(String),
}

fn split(given: &str) -> Result<(f64, &str), UnitError> {
    let text = given.trim();
    let end = text
        .find(|c: char| !(c.is_ascii_digit() || c == '.'))
        .unwrap_or(text.len());
    let (number, suffix) = text.split_at(end);
    let value = number
        .parse::<f64>()
        .map_err(|_| UnitError::NoNumber(given.to_owned()))?;
    Ok((value, suffix.trim()))
}

impl FromStr for Bytes {
    type Err = UnitError;

    fn from_str(given: &str) -> Result<Self, UnitError> {
        let (value, suffix) = split(given)?;
        let unit = suffix.strip_suffix(['B', 'b']).unwrap_or(suffix);
        let factor: u64 = match unit {
            "" => 1,
            "K" | "k" => 1_000,
            "M" => 1_000_000,
            "G" => 1_000_000_000,
            "T" => 1_000_000_000_000,
            "Ki" => 1 << 10,
            "Mi" => MIB,
            "Gi" => GIB,
            "Ti" => 1 << 40,
            _ => {
                return Err(UnitError::BytesSuffix {
                    given: given.to_owned(),
                    suffix: suffix.to_owned(),
                });
            }
        };
        // A whole number stays exact: a float holds only 53 bits of it.
        let digits = given
            .trim()
            .split(|c: char| !c.is_ascii_digit())
            .next()
            .unwrap_or("");
        if value.fract() == 0.0 && !given.contains('.') {
            let whole = digits
                .parse::<u64>()
                .map_err(|_| UnitError::Range(given.to_owned()))?;
            return whole
                .checked_mul(factor)
                .map(Bytes)
                .ok_or_else(|| UnitError::Range(given.to_owned()));
        }
        #[expect(clippy::cast_precision_loss, reason = "a factor is at most 2^40")]
        let bytes = value * factor as f64;
        if !(0.0..18e18).contains(&bytes) {
            return Err(UnitError::Range(given.to_owned()));
        }
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            reason = "checked just above"
        )]
        Ok(Bytes(bytes.round() as u64))
    }
}

impl fmt::Display for Bytes {
    /// Binary units with two decimals, as NVIDIA's tools print memory: `9.75 GiB`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        #[expect(clippy::cast_precision_loss, reason = "two decimals are shown")]
        let value = self.0 as f64;
        match self.0 {
            0..1_024 => write!(f, "{} B", self.0),
            1_024..MIB => write!(f, "{:.2} KiB", value / 1024.0),
            MIB..GIB => write!(f, "{:.2} MiB", value / 1_048_576.0),
            _ => write!(f, "{:.2} GiB", value / 1_073_741_824.0),
        }
    }
}

/// A duration in seconds, read from `10`, `1.5s`, `200ms`, `2m` or `1h`.
#[derive(Clone, Copy, Debug, Default, PartialEq, PartialOrd, Encode, Decode, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Seconds(pub f64);

impl FromStr for Seconds {
    type Err = UnitError;

    fn from_str(given: &str) -> Result<Self, UnitError> {
        let (value, suffix) = split(given)?;
        let factor = match suffix {
            "" | "s" => 1.0,
            "ms" => 1e-3,
            "m" | "min" => 60.0,
            "h" => 3600.0,
            _ => {
                return Err(UnitError::SecondsSuffix {
                    given: given.to_owned(),
                    suffix: suffix.to_owned(),
                });
            }
        };
        let seconds = value * factor;
        if seconds.is_finite() {
            Ok(Self(seconds))
        } else {
            Err(UnitError::Range(given.to_owned()))
        }
    }
}

impl fmt::Display for Seconds {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:.2} s", self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_as_on_the_command_line() {
        for (given, bytes) in [
            ("0", 0),
            ("1024", 1024),
            ("1K", 1_000),
            ("1Ki", 1_024),
            ("4.5G", 4_500_000_000),
            ("4.5Gi", 4_831_838_208),
            ("1.5 MiB", 1_572_864),
            ("18446744073709551615", u64::MAX),
        ] {
            assert_eq!(given.parse::<Bytes>(), Ok(Bytes(bytes)), "{given}");
        }
    }

    #[test]
    fn a_wrong_size_is_named() {
        assert_eq!(
            "5X".parse::<Bytes>().unwrap_err().to_string(),
            "`5X` ends in `X`; sizes end in K, M, G, T (1000), Ki, Mi, Gi, Ti (1024) or nothing"
        );
        assert_eq!(
            "G".parse::<Bytes>().unwrap_err().to_string(),
            "`G` does not start with a number"
        );
        assert!(matches!(
            "99999999999999999999".parse::<Bytes>(),
            Err(UnitError::Range(_))
        ));
        assert!(matches!("20000000T".parse::<Bytes>(), Err(UnitError::Range(_))));
        assert!("-3".parse::<Bytes>().is_err());
    }

    #[test]
    fn durations() {
        assert_eq!("200ms".parse::<Seconds>(), Ok(Seconds(0.2)));
        assert_eq!("2m".parse::<Seconds>(), Ok(Seconds(120.0)));
        assert!("2 parsecs".parse::<Seconds>().is_err());
    }

    #[test]
    fn bytes_are_shown_in_binary_units() {
        assert_eq!(Bytes(4_980_736_000).to_string(), "4.64 GiB");
        assert_eq!(Bytes(20_096 * MIB).to_string(), "19.62 GiB");
        assert_eq!(Bytes(512).to_string(), "512 B");
    }
}
