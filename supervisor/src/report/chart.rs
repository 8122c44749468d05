//! A job's memory as a picture: the series, what was forecast on the way, and the decision. SVG, drawn by hand: a few
//! lines and labels need no library.

use std::fmt::Write;

use migm_shared::units::Bytes;

/// A forecast that was made when a share of the run had passed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Band {
    /// That share.
    pub share: f64,
    /// x and bytes then.
    pub from: (f64, u64),
    /// The horizon.
    pub to: f64,
    /// Lower bound, likely figure and upper bound of the peak, bytes.
    pub low: u64,
    /// The likely one.
    pub likely: u64,
    /// The upper one.
    pub high: u64,
}

/// One picture.
#[derive(Clone, Debug, PartialEq)]
pub struct Chart {
    /// Over the picture.
    pub title: String,
    /// x and bytes.
    pub series: Vec<(f64, u64)>,
    /// Bytes of the slice.
    pub slice: u64,
    /// Forecasts, in order of time.
    pub bands: Vec<Band>,
    /// Where the job is moved.
    pub warning: Option<f64>,
    /// Where it runs out.
    pub oom: Option<f64>,
}

const WIDTH: f64 = 900.0;
const HEIGHT: f64 = 420.0;
const LEFT: f64 = 90.0;
const RIGHT: f64 = 20.0;
const TOP: f64 = 40.0;
const BOTTOM: f64 = 40.0;
/// A blue for each forecast, the later the darker.
const BLUES: [&str; 3] = ["#9ecae1", "#4292c6", "#084594"];

/// From figures to places in the picture.
struct Scale {
    x: (f64, f64),
    top: f64,
}

impl Scale {
    fn x(&self, x: f64) -> f64 {
        let (first, last) = self.x;
        LEFT + (x - first) / (last - first).max(f64::MIN_POSITIVE) * (WIDTH - LEFT - RIGHT)
    }

    /// What is above the picture is cut off at its edge.
    fn y(&self, bytes: u64) -> f64 {
        let share = (float(bytes) / self.top).min(1.0);
        HEIGHT - BOTTOM - share * (HEIGHT - TOP - BOTTOM)
    }
}

#[expect(clippy::cast_precision_loss, reason = "places in a picture")]
fn float(bytes: u64) -> f64 {
    bytes as f64
}

impl Chart {
    /// The picture as an SVG document.
    #[must_use]
    pub fn svg(&self) -> String {
        let peak = self.series.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        let last = self.series.last().map_or(0.0, |&(x, _)| x);
        let scale = Scale {
            x: (
                self.series.first().map_or(0.0, |&(x, _)| x),
                self.bands.iter().fold(last, |last, band| last.max(band.to)),
            ),
            // A bound far above both is cut, or the series would be a line at the bottom.
            top: 1.5 * float(peak.max(self.slice)).max(1.0),
        };
        let mut svg = format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{WIDTH}\" height=\"{HEIGHT}\" \
             viewBox=\"0 0 {WIDTH} {HEIGHT}\" font-family=\"sans-serif\" font-size=\"12\">\n\
             <rect width=\"100%\" height=\"100%\" fill=\"white\"/>\n"
        );
        let title = escaped(&self.title);
        let _ = writeln!(svg, "<text x=\"{LEFT}\" y=\"20\" font-size=\"14\">{title}</text>");
        self.axes(&mut svg, &scale);
        for (band, colour) in self.bands.iter().zip(BLUES) {
            draw_band(&mut svg, &scale, band, colour);
        }
        let points: Vec<String> = self
            .series
            .iter()
            .map(|&(x, bytes)| format!("{:.1},{:.1}", scale.x(x), scale.y(bytes)))
            .collect();
        let points = points.join(" ");
        let _ = writeln!(
            svg,
            "<polyline points=\"{points}\" fill=\"none\" stroke=\"black\" stroke-width=\"1.5\"/>"
        );
        let marks = [
            ("moved", self.warning, "#2ca02c"),
            ("runs out", self.oom, "#d62728"),
        ];
        for (said, at, colour) in marks {
            let Some(x) = at else { continue };
            let place = scale.x(x);
            let (top, bottom) = (TOP, HEIGHT - BOTTOM);
            let _ = writeln!(
                svg,
                "<line x1=\"{place:.1}\" y1=\"{top}\" x2=\"{place:.1}\" y2=\"{bottom}\" stroke=\"{colour}\" \
                 stroke-width=\"2\"/>\n<text x=\"{:.1}\" y=\"{}\" fill=\"{colour}\">{said} at {x}</text>",
                place + 4.0,
                if said == "moved" { TOP + 12.0 } else { TOP + 28.0 }
            );
        }
        svg + "</svg>\n"
    }

    fn axes(&self, svg: &mut String, scale: &Scale) {
        let (left, right, bottom) = (LEFT, WIDTH - RIGHT, HEIGHT - BOTTOM);
        let _ = writeln!(
            svg,
            "<line x1=\"{left}\" y1=\"{bottom}\" x2=\"{right}\" y2=\"{bottom}\" stroke=\"gray\"/>\n\
             <line x1=\"{left}\" y1=\"{TOP}\" x2=\"{left}\" y2=\"{bottom}\" stroke=\"gray\"/>"
        );
        for x in [scale.x.0, f64::midpoint(scale.x.0, scale.x.1), scale.x.1] {
            let _ = writeln!(
                svg,
                "<text x=\"{:.1}\" y=\"{}\" text-anchor=\"middle\">{x:.6}</text>",
                scale.x(x),
                bottom + 18.0
            );
        }
        let peak = self.series.iter().map(|&(_, bytes)| bytes).max().unwrap_or(0);
        for (bytes, dashes, said) in [(self.slice, "6 4", "slice"), (peak, "1 3", "peak")] {
            let y = scale.y(bytes);
            let figure = escaped(&Bytes(bytes).to_string());
            let _ = writeln!(
                svg,
                "<line x1=\"{left}\" y1=\"{y:.1}\" x2=\"{right}\" y2=\"{y:.1}\" stroke=\"gray\" \
                 stroke-dasharray=\"{dashes}\"/>\n<text x=\"{right}\" y=\"{:.1}\" text-anchor=\"end\">{said}</text>\n\
                 <text x=\"{}\" y=\"{:.1}\" text-anchor=\"end\">{figure}</text>",
                y - 4.0,
                left - 6.0,
                y + 4.0
            );
        }
    }
}

/// A wedge from where the forecast was made to its bounds at the horizon.
fn draw_band(svg: &mut String, scale: &Scale, band: &Band, colour: &str) {
    let (x, y) = (scale.x(band.from.0), scale.y(band.from.1));
    let end = scale.x(band.to);
    let (low, likely, high) = (scale.y(band.low), scale.y(band.likely), scale.y(band.high));
    let _ = writeln!(
        svg,
        "<polygon points=\"{x:.1},{y:.1} {end:.1},{low:.1} {end:.1},{high:.1}\" fill=\"{colour}\" \
         fill-opacity=\"0.25\"/>\n\
         <line x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{end:.1}\" y2=\"{likely:.1}\" stroke=\"{colour}\"/>\n\
         <text x=\"{:.1}\" y=\"{:.1}\" fill=\"{colour}\">{:.0} %</text>",
        x + 3.0,
        y - 6.0,
        band.share * 100.0
    );
}

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_picture_has_the_series_the_forecasts_and_the_decision() {
        let chart = Chart {
            title: "a <job>".into(),
            series: vec![(0.0, 100), (10.0, 200)],
            slice: 150,
            bands: vec![Band {
                share: 0.05,
                from: (1.0, 110),
                to: 10.0,
                low: 180,
                likely: 200,
                // Far above the picture, and cut at its edge.
                high: 9_000,
            }],
            warning: Some(2.0),
            oom: Some(6.0),
        };
        let svg = chart.svg();
        assert!(svg.starts_with("<svg ") && svg.ends_with("</svg>\n"));
        for part in [
            "a &lt;job&gt;",
            "points=\"90.0,266.7 880.0,153.3\"",
            ">5 %<",
            "880.0,40.0\" fill",
            "moved at 2<",
            "runs out at 6<",
        ] {
            assert!(svg.contains(part), "{part} is not in {svg}");
        }
    }

    #[test]
    fn a_run_of_one_instant_is_drawn_too() {
        let chart = Chart {
            title: String::new(),
            series: vec![(3.0, 0)],
            slice: 1,
            bands: Vec::new(),
            warning: None,
            oom: None,
        };
        assert!(!chart.svg().contains("NaN"), "{}", chart.svg());
    }
}
