//! A GPU's layout as a picture in text: its memory slices from left to right, each slice as wide as it is.
//!
//! ```text
//!   0        1        2        3        4        5        6        7
//!   |1g.5gb  |1g.5gb  |2g.10gb          |........|........|........|........|
//!   |busy    |idle    |busy             |        |        |        |        |
//!   |4 bfs   |        |5 grow           |        |        |        |        |
//! ```
//!
//! Eighty columns hold every grid. Plain ASCII goes into pipes and to those who set `NO_COLOR`; a terminal
//! gets lines and colours.

use std::io::IsTerminal;

use migm_shared::ids::JobId;

use crate::control::{GpuStatus, SliceStatus};

/// Columns for the units of a grid, their left borders included.
const WIDTH: usize = 74;
/// A unit is no wider than this, so that small grids do not stretch.
const WIDEST: usize = 18;
const INDENT: &str = "  ";

/// What a picture is drawn with.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
pub enum Style {
    /// ASCII, no colours.
    Plain,
    /// Box lines and colours.
    Terminal,
}

impl Style {
    /// By what standard output is, and by `NO_COLOR` (<https://no-color.org>: set and not empty).
    #[must_use]
    pub fn of_stdout() -> Self {
        let no_color = std::env::var_os("NO_COLOR").is_some_and(|value| !value.is_empty());
        if std::io::stdout().is_terminal() && !no_color {
            Self::Terminal
        } else {
            Self::Plain
        }
    }

    const fn line(self) -> &'static str {
        match self {
            Self::Plain => "|",
            Self::Terminal => "\u{2502}",
        }
    }

    const fn free(self) -> &'static str {
        match self {
            Self::Plain => ".",
            Self::Terminal => "\u{00b7}",
        }
    }

    fn paint(self, state: &str, text: &str) -> String {
        let colour = match state {
            _ if self == Self::Plain => return text.to_owned(),
            "busy" => 32,
            "foreign" => 33,
            "stuck" => 31,
            "creating" | "destroying" => 36,
            _ => 2,
        };
        format!("\u{1b}[{colour}m{text}\u{1b}[0m")
    }
}

/// One part of the picture: a slice, or a free unit.
enum Part<'a> {
    Slice(&'a SliceStatus),
    Free,
}

/// The picture of a GPU whose grid has `units` memory slices. `name` gives a job's name.
#[must_use]
pub fn picture(gpu: &GpuStatus, units: u32, style: Style, name: impl Fn(JobId) -> String) -> String {
    let ends = gpu.slices.iter().map(|slice| slice.start + slice.size);
    let units = ends.max().unwrap_or(0).max(units).max(1);
    let unit = (WIDTH / units as usize).clamp(3, WIDEST);
    let mut parts: Vec<(usize, Part<'_>)> = Vec::new();
    let mut at = 0;
    let mut slices: Vec<&SliceStatus> = gpu.slices.iter().collect();
    slices.sort_by_key(|slice| (slice.start, slice.size));
    for slice in slices {
        // One that is going may stand where another is coming.
        if slice.start < at {
            continue;
        }
        parts.extend((at..slice.start).map(|_| (unit - 1, Part::Free)));
        parts.push((unit * slice.size as usize - 1, Part::Slice(slice)));
        at = slice.start + slice.size;
    }
    parts.extend((at..units).map(|_| (unit - 1, Part::Free)));

    let mut text = String::from(INDENT);
    for number in 0..units {
        text.push_str(&format!("{number:<unit$}"));
    }
    let mut lines = vec![text.trim_end().to_owned()];
    let rows: [&dyn Fn(&SliceStatus) -> String; 3] = [
        &|slice| slice.profile.clone(),
        &|slice| match slice.state.as_str() {
            "destroying" => "removing".to_owned(),
            state => state.to_owned(),
        },
        &|slice| {
            slice
                .job
                .map_or_else(String::new, |job| format!("{job} {}", name(job)))
        },
    ];
    for (row, cell) in rows.iter().enumerate() {
        let mut line = String::from(INDENT);
        for (width, part) in &parts {
            line.push_str(style.line());
            match part {
                Part::Slice(slice) => {
                    line.push_str(&style.paint(&slice.state, &fit(&cell(slice), *width)));
                }
                Part::Free if row == 0 => line.push_str(&style.free().repeat(*width)),
                Part::Free => line.push_str(&" ".repeat(*width)),
            }
        }
        line.push_str(style.line());
        lines.push(line);
    }
    lines.iter().map(|line| format!("{line}\n")).collect()
}

/// Cut or filled up to a width; `~` shows the cut.
fn fit(text: &str, width: usize) -> String {
    if text.chars().count() <= width {
        return format!("{text:<width$}");
    }
    let kept: String = text.chars().take(width.saturating_sub(1)).collect();
    format!("{kept}~")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn slice(profile: &str, start: u32, size: u32, state: &str, job: Option<u64>) -> SliceStatus {
        SliceStatus {
            profile: profile.into(),
            start,
            size,
            state: state.into(),
            incarnation: None,
            uuid: None,
            memory: 0,
            job: job.map(JobId),
        }
    }

    fn gpu(slices: Vec<SliceStatus>) -> GpuStatus {
        GpuStatus {
            name: "GPU".into(),
            uuid: "GPU-1".into(),
            mode: "mig".into(),
            slices,
        }
    }

    fn name(job: JobId) -> String {
        format!("training-{job}")
    }

    #[test]
    fn slices_are_as_wide_as_their_memory() {
        let there = gpu(vec![
            slice("1g.5gb+me", 0, 1, "busy", Some(4)),
            slice("1g.5gb", 1, 1, "idle", None),
            slice("2g.10gb", 2, 2, "busy", Some(15)),
            slice("1g.5gb", 5, 1, "destroying", None),
            slice("1g.5gb", 6, 1, "foreign", None),
        ]);
        insta::assert_snapshot!(picture(&there, 8, Style::Plain, name));
    }

    #[test]
    fn every_grid_fits_into_eighty_columns() {
        for units in [1, 4, 8, 12, 16] {
            let full = gpu((0..units)
                .map(|at| slice("1g.24gb-me", at, 1, "busy", Some(123)))
                .collect());
            for line in picture(&full, units, Style::Plain, name).lines() {
                assert!(line.chars().count() <= 80, "{units}: {line}");
                assert!(line.is_ascii());
            }
            assert!(
                picture(&gpu(Vec::new()), units, Style::Plain, name)
                    .lines()
                    .count()
                    == 4
            );
        }
    }

    #[test]
    fn a_terminal_gets_the_same_cells_in_colour() {
        let there = gpu(vec![slice("1g.5gb", 0, 1, "busy", Some(4))]);
        let colours = picture(&there, 8, Style::Terminal, name);
        assert!(colours.contains("\u{1b}[32m1g.5gb  \u{1b}[0m"), "{colours}");
        let plain = colours.replace('\u{2502}', "|").replace('\u{00b7}', ".");
        let plain = plain.replace("\u{1b}[32m", "").replace("\u{1b}[0m", "");
        assert_eq!(plain, picture(&there, 8, Style::Plain, name));
    }
}
