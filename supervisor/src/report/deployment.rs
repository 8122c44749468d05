//! Deployments as a picture: GPUs with their slices to scale, each service in a colour of its own, and the steps of a
//! transition as bars over time. One HTML file with SVG inside, which loads nothing and runs nothing.

use std::collections::BTreeMap;
use std::fmt::Write;

/// A slice in use.
#[derive(Clone, Debug, PartialEq)]
pub struct Cell {
    /// First unit.
    pub start: u32,
    /// Units.
    pub size: u32,
    /// Profile name.
    pub profile: String,
    /// What runs there.
    pub service: String,
}

/// A GPU.
#[derive(Clone, Debug, PartialEq)]
pub struct Board {
    /// Beside it; empty where it is the one on the left again.
    pub title: String,
    /// Units of its grid.
    pub units: u32,
    /// Slices in use.
    pub cells: Vec<Cell>,
}

/// A step of a transition.
#[derive(Clone, Debug, PartialEq)]
pub struct Bar {
    /// In words.
    pub label: String,
    /// `create`, `delete`, `migrate` or `repartition`.
    pub action: String,
    /// When it starts, seconds.
    pub start_s: f64,
    /// When it ends, seconds.
    pub end_s: f64,
}

/// Pixels of a GPU's slices, across.
const WIDE: f64 = 420.0;
/// Pixels before them, for the title.
const TITLE: f64 = 170.0;
const HIGH: f64 = 34.0;
/// Pixels of a letter.
const LETTER: f64 = 6.5;

fn escape(text: &str) -> String {
    text.replace('&', "&amp;")
        .replace('<', "&lt;")
        .replace('>', "&gt;")
        .replace('"', "&quot;")
}

/// The page. `columns` are the headings over the boards of a row.
#[must_use]
pub fn page(title: &str, line: &str, columns: &[&str], rows: &[Vec<Board>], bars: &[Bar]) -> String {
    let all = rows.iter().flatten().flat_map(|board| &board.cells);
    let mut colours: BTreeMap<&str, String> =
        all.map(|cell| (cell.service.as_str(), String::new())).collect();
    for (index, colour) in (0_u32..).zip(colours.values_mut()) {
        // The golden angle keeps neighbours in the list far apart.
        *colour = format!("hsl({} 60% {}%)", index * 137 % 360, 72 + index % 3 * 6);
    }
    let mut html = format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><title>{0}</title>\n<style>body{{font:14px \
         sans-serif;margin:24px}}svg text{{font:11px sans-serif}}li{{display:inline-block;padding:2px \
         8px;margin:2px;border:1px solid #888}}</style></head><body>\n<h1>{0}</h1>\n<p>{1}</p>\n<ul>\n",
        escape(title),
        escape(line)
    );
    for (service, colour) in &colours {
        let _ = writeln!(html, "<li style=\"background:{colour}\">{}</li>", escape(service));
    }
    html.push_str("</ul>\n");
    boards(&mut html, columns, rows, &colours);
    steps(&mut html, bars);
    html.push_str("</body></html>\n");
    html
}

fn boards(html: &mut String, columns: &[&str], rows: &[Vec<Board>], colours: &BTreeMap<&str, String>) {
    let width = TITLE + columns.len() as f64 * (WIDE + 20.0);
    let height = 24.0 + rows.len() as f64 * (HIGH + 6.0);
    let _ = writeln!(html, "<svg width=\"{width}\" height=\"{height}\" role=\"img\">");
    for (column, heading) in columns.iter().enumerate() {
        let x = TITLE + column as f64 * (WIDE + 20.0);
        let _ = writeln!(html, "<text x=\"{x}\" y=\"14\">{}</text>", escape(heading));
    }
    for (row, across) in rows.iter().enumerate() {
        let y = 24.0 + row as f64 * (HIGH + 6.0);
        for (column, board) in across.iter().enumerate() {
            let x = TITLE + column as f64 * (WIDE + 20.0);
            let unit = WIDE / f64::from(board.units.max(1));
            let _ = writeln!(
                html,
                "<text x=\"0\" y=\"{:.1}\">{}</text>",
                y + HIGH / 2.0,
                escape(&board.title)
            );
            let _ = writeln!(
                html,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{WIDE}\" height=\"{HIGH}\" fill=\"#eee\" stroke=\"#aaa\"/>"
            );
            for cell in &board.cells {
                let (left, wide) = (x + f64::from(cell.start) * unit, f64::from(cell.size) * unit);
                let colour = colours.get(cell.service.as_str()).map_or("#ccc", String::as_str);
                let (service, profile) = (escape(&cell.service), escape(&cell.profile));
                // What is wider than its slice is cut off; the title shows it whole.
                let fits = |(index, _): &(u32, char)| f64::from(*index + 1) * LETTER <= wide;
                let letters = (0_u32..).zip(cell.service.chars()).take_while(fits);
                let fitting: String = letters.map(|letter| letter.1).collect();
                let _ = writeln!(
                    html,
                    "<g><title>{profile}@{} {service}</title><rect x=\"{left:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" \
                     height=\"{HIGH}\" fill=\"{colour}\" stroke=\"#555\"/><text x=\"{:.1}\" y=\"{:.1}\">{profile}</text>\
                     <text x=\"{:.1}\" y=\"{:.1}\">{}</text></g>",
                    cell.start,
                    left + 3.0,
                    y + 13.0,
                    left + 3.0,
                    y + 27.0,
                    escape(&fitting)
                );
            }
        }
    }
    html.push_str("</svg>\n");
}

fn steps(html: &mut String, bars: &[Bar]) {
    let end = bars.iter().map(|bar| bar.end_s).fold(0.0, f64::max);
    if end <= 0.0 {
        return;
    }
    let width = 700.0;
    let height = bars.len() as f64 * 18.0 + 20.0;
    let _ = writeln!(
        html,
        "<h2>Steps over {end:.1} s</h2>\n<svg width=\"{}\" height=\"{height}\" role=\"img\">",
        width + 500.0
    );
    for (row, bar) in bars.iter().enumerate() {
        let (x, y) = (bar.start_s / end * width, row as f64 * 18.0);
        let wide = ((bar.end_s - bar.start_s) / end * width).max(1.0);
        let colour = match bar.action.as_str() {
            "create" => "#7bbf6a",
            "delete" => "#d97b6c",
            "migrate" => "#6c9bd9",
            _ => "#b0a050",
        };
        let _ = writeln!(
            html,
            "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{wide:.1}\" height=\"14\" fill=\"{colour}\"/><text x=\"{:.1}\" \
             y=\"{:.1}\">{}</text>",
            x + wide + 4.0,
            y + 11.0,
            escape(&bar.label)
        );
    }
    html.push_str("</svg>\n");
}

#[cfg(test)]
mod tests {
    use super::*;

    fn board(service: &str) -> Board {
        Board {
            title: "GPU 0".into(),
            units: 8,
            cells: vec![Cell {
                start: 4,
                size: 4,
                profile: "3g.20gb".into(),
                service: service.into(),
            }],
        }
    }

    #[test]
    fn slices_are_drawn_to_scale_and_names_cannot_break_the_page() {
        let html = page(
            "Plan",
            "1 GPU",
            &["plan"],
            &[vec![board("<script>x</script>")]],
            &[],
        );
        assert!(html.contains("x=\"380.0\" y=\"24.0\" width=\"210.0\""), "{html}");
        assert!(!html.contains("<script"), "{html}");
        assert!(!html.contains("http"), "{html}");
    }

    #[test]
    fn a_step_of_half_the_time_is_half_as_wide() {
        let bar = |start_s, end_s| Bar {
            label: "a".into(),
            action: "create".into(),
            start_s,
            end_s,
        };
        let html = page("T", "", &[], &[], &[bar(0.0, 10.0), bar(10.0, 20.0)]);
        assert!(html.contains("x=\"350.0\" y=\"18.0\" width=\"350.0\""), "{html}");
    }
}
