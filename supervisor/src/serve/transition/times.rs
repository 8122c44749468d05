//! How long the steps of a transition take.

use serde::Deserialize;

/// Milliseconds of each step.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub struct Times {
    /// To start an instance until it serves.
    pub create_ms: u64,
    /// To stop an instance until its slice is free.
    pub delete_ms: u64,
    /// To move an instance within its GPU.
    pub migrate_local_ms: u64,
    /// To move an instance to another GPU.
    pub migrate_remote_ms: u64,
    /// To recut a GPU.
    pub repartition_ms: u64,
}

/// Means that MIG-serving measured on Kubernetes with A100s (arXiv 2109.11067, figure 13).
impl Default for Times {
    fn default() -> Self {
        Self {
            create_ms: 47_500,
            delete_ms: 38_000,
            migrate_local_ms: 30_400,
            migrate_remote_ms: 48_000,
            repartition_ms: 50_000,
        }
    }
}

#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct Document {
    create_s: Option<f64>,
    delete_s: Option<f64>,
    migrate_local_s: Option<f64>,
    migrate_remote_s: Option<f64>,
    repartition_s: Option<f64>,
}

/// Longest step: a day.
const MOST_S: f64 = 86_400.0;

impl Times {
    /// Reads TOML with `create_s`, `delete_s`, `migrate_local_s`, `migrate_remote_s` and `repartition_s`; what is not
    /// given keeps its default.
    ///
    /// # Errors
    /// It is no such file, or a time is no number from 0 to a day; in words.
    pub fn parse(text: &str) -> Result<Self, String> {
        let document: Document = toml::from_str(text).map_err(|error| {
            let line = error
                .span()
                .map_or(1, |span| 1 + text[..span.start].matches('\n').count());
            format!("line {line}: {}", error.message())
        })?;
        let mut times = Self::default();
        for (name, given, time) in [
            ("create_s", document.create_s, &mut times.create_ms),
            ("delete_s", document.delete_s, &mut times.delete_ms),
            (
                "migrate_local_s",
                document.migrate_local_s,
                &mut times.migrate_local_ms,
            ),
            (
                "migrate_remote_s",
                document.migrate_remote_s,
                &mut times.migrate_remote_ms,
            ),
            ("repartition_s", document.repartition_s, &mut times.repartition_ms),
        ] {
            match given {
                None => {}
                #[expect(
                    clippy::cast_possible_truncation,
                    clippy::cast_sign_loss,
                    reason = "from 0 to a day"
                )]
                Some(seconds) if (0.0..=MOST_S).contains(&seconds) => *time = (seconds * 1e3).round() as u64,
                Some(seconds) => {
                    return Err(format!(
                        "`{name}` is {seconds}, which is no number of seconds up to a day"
                    ));
                }
            }
        }
        Ok(times)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn times_are_seconds_and_each_may_be_left_out() {
        let times = Times::parse("create_s = 4.487\n").unwrap();
        assert_eq!((times.create_ms, times.delete_ms), (4487, 38_000));
        for (text, said) in [
            (
                "create_s = -1",
                "`create_s` is -1, which is no number of seconds up to a day",
            ),
            ("create_s = nan", "`create_s` is NaN"),
            ("\ncreate = 1", "line 2: unknown field `create`"),
        ] {
            let error = Times::parse(text).unwrap_err();
            assert!(error.starts_with(said), "{error}");
        }
    }
}
