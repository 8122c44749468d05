//! A picture of a simulated run: one HTML file with one SVG, nothing loaded from elsewhere.
//!
//! Time runs to the right. Each GPU is a band, from its first memory unit at the top to its last; an attempt is a
//! box as high as its slice. A move is a line from the box that ended to the one that follows. Below each band
//! stands the GPU's power.

use std::collections::HashMap;
use std::fmt::Write;

use crate::whatif::{End, Outcome, Workload};

const WIDTH: f64 = 1400.0;
const LEFT: f64 = 70.0;
const UNIT: f64 = 14.0;
const POWER: f64 = 40.0;
const GAP: f64 = 18.0;

/// The page.
#[must_use]
pub fn page(title: &str, load: &Workload, outcome: &Outcome) -> String {
    let start = load.start();
    let span = outcome.makespan.max(1e-9);
    let x = |time: f64| LEFT + (time - start) / span * (WIDTH - LEFT - 10.0);
    let mut svg = String::new();
    let mut tops = Vec::new();
    let mut y = 30.0;
    for (index, gpu) in load.gpus.iter().enumerate() {
        let places = gpu
            .table
            .profiles()
            .iter()
            .flat_map(|profile| &profile.placements);
        let units = places.map(|place| place.start + place.size).max().unwrap_or(1);
        let height = f64::from(units) * UNIT;
        tops.push(y);
        let _ = writeln!(
            svg,
            "<text x='4' y='{:.1}'>GPU {index}</text><rect x='{LEFT}' y='{y:.1}' width='{:.1}' height='{height:.1}' class='gpu'/>",
            y + 14.0,
            WIDTH - LEFT - 10.0,
        );
        y += height + 4.0;
        power(
            &mut svg,
            outcome.watts.get(index).map_or(&[], Vec::as_slice),
            gpu.power,
            y,
            &x,
            start + span,
        );
        y += POWER + GAP;
    }
    boxes(&mut svg, load, outcome, &tops, &x);
    axis(&mut svg, span, y, &x, start);
    format!(
        "<!doctype html>\n<html lang='en'><meta charset='utf-8'><title>{title}</title>\n<style>\n\
         body {{ font: 13px sans-serif; margin: 16px; color: #222; background: #fff }}\n\
         text {{ font: 11px sans-serif; fill: #333 }} .gpu {{ fill: #f3f3f3; stroke: #bbb }}\n\
         .job {{ stroke: #fff; stroke-width: .6 }} .oom {{ stroke: #c00; stroke-width: 2 }}\n\
         .move {{ stroke: #444; stroke-width: .7; fill: none; opacity: .6 }} .power {{ fill: #d9a441; opacity: .6 }}\n\
         </style>\n<h1>{title}</h1>\n<p>{} jobs, makespan {:.1} s, mean completion {:.1} s, {} moves, {} reconfigurations, \
         {:.1} kJ. Simulated; energy modelled. Hover a box for its job.</p>\n\
         <svg xmlns='http://www.w3.org/2000/svg' viewBox='0 0 {WIDTH} {:.0}' width='100%'>\n{svg}</svg></html>\n",
        load.jobs.len(),
        outcome.makespan,
        outcome.mean_completion,
        outcome.moves,
        outcome.reconfigurations,
        outcome.energy / 1e3,
        y + 30.0,
        title = escape(title),
    )
}

fn boxes(svg: &mut String, load: &Workload, outcome: &Outcome, tops: &[f64], x: &impl Fn(f64) -> f64) {
    let mut last: HashMap<usize, (f64, f64)> = HashMap::new();
    for attempt in &outcome.attempts {
        let job = &load.jobs[attempt.job];
        let place = attempt.slot.1;
        let top = tops[attempt.gpu] + f64::from(place.start) * UNIT;
        let height = f64::from(place.size) * UNIT;
        let (from, to) = (x(attempt.start), x(attempt.end));
        let hue = hue(&job.program);
        let class = if attempt.how == End::Oom { "job oom" } else { "job" };
        let how = match attempt.how {
            End::Done => "done",
            End::Moved => "moved",
            End::Outgrowing => "moved on a forecast",
            End::Oom => "out of memory",
        };
        let _ = writeln!(
            svg,
            "<rect class='{class}' x='{from:.2}' y='{top:.1}' width='{:.2}' height='{height:.1}' fill='hsl({hue} 55% 65%)'>\
             <title>{} ({}) on {}, {:.1} to {:.1} s, {how}</title></rect>",
            (to - from).max(0.3),
            escape(&job.name),
            escape(&job.program),
            escape(&load.gpus[attempt.gpu].table.named(attempt.slot)),
            attempt.start,
            attempt.end,
        );
        let middle = top + height / 2.0;
        if let Some((end, before)) = last.insert(attempt.job, (to, middle)) {
            let _ = writeln!(
                svg,
                "<path class='move' d='M{end:.2} {before:.1}L{from:.2} {middle:.1}'/>"
            );
        }
    }
}

fn power(
    svg: &mut String,
    watts: &[(f64, f64)],
    limit: crate::whatif::parameters::Power,
    top: f64,
    x: &impl Fn(f64) -> f64,
    end: f64,
) {
    let bottom = top + POWER;
    let most = limit.idle + limit.busy;
    let _ = writeln!(svg, "<text x='4' y='{:.1}'>{most:.0} W</text>", top + 10.0);
    if watts.is_empty() {
        return;
    }
    let mut path = format!("M{:.2} {bottom:.1}", x(watts[0].0));
    let mut level = bottom;
    for &(time, watts) in watts {
        let _ = write!(path, "L{:.2} {level:.1}", x(time));
        level = bottom - POWER * (watts / most).min(1.0);
        let _ = write!(path, "L{:.2} {level:.1}", x(time));
    }
    let _ = writeln!(
        svg,
        "<path class='power' d='{path}L{:.2} {level:.1}L{:.2} {bottom:.1}Z'/>",
        x(end),
        x(end)
    );
}

fn axis(svg: &mut String, span: f64, y: f64, x: &impl Fn(f64) -> f64, start: f64) {
    for tick in 0..=10 {
        let time = span * f64::from(tick) / 10.0;
        let _ = writeln!(
            svg,
            "<text x='{:.1}' y='{:.1}' text-anchor='middle'>{time:.0} s</text>",
            x(start + time),
            y + 14.0
        );
    }
}

/// One colour for each program.
fn hue(program: &str) -> u32 {
    let sum = program
        .bytes()
        .fold(5381_u32, |sum, byte| sum.wrapping_mul(33) ^ u32::from(byte));
    sum % 360
}

fn escape(text: &str) -> String {
    let mut safe = String::with_capacity(text.len());
    for letter in text.chars() {
        match letter {
            '<' => safe.push_str("&lt;"),
            '>' => safe.push_str("&gt;"),
            '&' => safe.push_str("&amp;"),
            '\'' => safe.push_str("&#39;"),
            '"' => safe.push_str("&quot;"),
            other => safe.push(other),
        }
    }
    safe
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_cannot_break_out_of_the_page() {
        assert_eq!(escape("<b> & 'x\""), "&lt;b&gt; &amp; &#39;x&quot;");
    }
}
