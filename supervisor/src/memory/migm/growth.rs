//! One figure of a job: the stretch it is in, the trend of that, and what that comes to at the horizon.

use super::super::Law;
use super::super::constants::{
    BASE_SHARE, DRIFT_SHARE, FAINT, FRAGMENTS_SHARE, GLANCE, HASTE, JUMP_SHARE, MIGM_FIRST, NEWS_SHARE,
    QUARTERS_FROM, REACH, REGIME_SHARE, STEADY_REACH, STEEP_REACH,
};
use super::super::line::Line;
use super::super::shape::Shape;
use super::super::stretch::Stretch;
use super::Margins;

/// One figure of a job: its peak, the stretch it is in, and the trend of that.
#[derive(Clone, Debug, Default)]
pub(super) struct Growth {
    pub(super) stretch: Stretch,
    /// Where the regime began, and the level there; restarts during start-up do not move it.
    origin: (f64, f64),
    /// The first x.
    began: f64,
    pub(super) peak: f64,
    /// A value far from the fit, until the next one says what it was.
    held: Option<(f64, f64)>,
    /// CUSUM of what lies above the fit, and below it.
    over: f64,
    under: f64,
    trend: Option<Trend>,
}

/// What goes on in the longest part of a stretch that shows it.
#[derive(Clone, Copy, Debug)]
struct Trend {
    shape: Shape,
    since: f64,
    fit: Line,
    later: Line,
    latest: Line,
    /// What the growth began with.
    base: f64,
}

/// A figure at the horizon.
#[derive(Clone, Copy, Debug)]
pub(super) struct Outlook {
    pub(super) law: Law,
    pub(super) likely: f64,
    pub(super) low: f64,
    pub(super) high: f64,
    pub(super) level: f64,
    pub(super) trusted_to: f64,
}

impl Outlook {
    pub(super) fn grows(&self) -> bool {
        matches!(self.law, Law::Line | Law::Convex)
    }
}

impl Growth {
    pub(super) fn observe(&mut self, x: f64, y: f64) {
        if self.peak == 0.0 {
            (self.began, self.origin) = (x, (x, y));
        }
        self.peak = self.peak.max(y);
        self.place(x, y);
        self.trend = self.find_trend(x);
    }

    /// Puts a value into the stretch it belongs to.
    fn place(&mut self, x: f64, y: f64) {
        let Some((_, last)) = self.stretch.last() else {
            self.stretch.push(x, y);
            return;
        };
        if self.stretch.seen() < 3 {
            // No scatter is known yet.
            if (y - last).abs() > JUMP_SHARE * last {
                self.restart();
            }
            self.stretch.push(x, y);
            return;
        }
        let fit = self.stretch.fit();
        let off = y - fit.at(x);
        let tolerance = JUMP_SHARE * last + 3.0 * fit.sigma();
        if let Some((held_x, held_y)) = self.held.take() {
            let same_side = (held_y > fit.at(held_x)) == (off > 0.0);
            if same_side && off.abs() > tolerance {
                self.start_regime(held_x, held_y);
                self.stretch.push(held_x, held_y);
                if (y - held_y).abs() > JUMP_SHARE * held_y {
                    self.restart();
                }
                self.stretch.push(x, y);
                return;
            }
        } else if off.abs() > tolerance {
            self.held = Some((x, y));
            return;
        }
        let drift = DRIFT_SHARE * last + 3.0 * fit.sigma();
        self.over = (self.over + off - drift).max(0.0);
        self.under = (self.under - off - drift).max(0.0);
        if self.over.max(self.under) > JUMP_SHARE * last {
            self.start_regime(x, y);
        }
        self.stretch.push(x, y);
    }

    fn restart(&mut self) {
        self.stretch.clear();
        (self.over, self.under) = (0.0, 0.0);
    }

    fn start_regime(&mut self, x: f64, y: f64) {
        self.origin = (x, y);
        self.restart();
    }

    fn find_trend(&self, now: f64) -> Option<Trend> {
        let whole = self.stretch.part(1);
        let near = whole.fit.at(now) + 2.0 * whole.fit.sigma();
        if whole.points.len() < MIGM_FIRST || near < NEWS_SHARE * self.peak {
            return None;
        }
        for share in [1, 2, 4] {
            let part = self.stretch.part(share);
            let (fit, since) = (part.fit, part.since());
            if share > 1 && part.points.len() < QUARTERS_FROM {
                break;
            }
            let stands_out = fit.slope() > 0.0 && fit.slope() > GLANCE * fit.slope_error();
            let before = since - self.began;
            if !stands_out || part.covered() < REGIME_SHARE * before {
                continue;
            }
            let start = if share == 1 { self.origin.0 } else { since };
            // Growth that steepens lies above its line at the start: what was seen there counts as well.
            let base = fit.at(start).min(whole.fit.at(self.origin.0)).max(self.origin.1);
            if base < BASE_SHARE * self.peak || fit.slope() * part.step() > HASTE * base {
                return None;
            }
            let shape = part.shape();
            // The longer it is seen, the more a rise that has no law has to stand out to be worth a likely figure.
            let faint = part.points.len() >= 2 * QUARTERS_FROM && fit.slope() < FAINT * fit.slope_error();
            if shape == Shape::Level || (shape == Shape::Unclear && (share > 1 || faint)) {
                continue;
            }
            return Some(Trend {
                shape,
                since,
                fit,
                later: part.last_line(2),
                latest: part.last_line(4),
                base,
            });
        }
        None
    }

    /// Whether growth that goes on is recognised at the last observation.
    pub(super) fn is_recognised(&self) -> bool {
        let shape = self.trend.map(|trend| trend.shape);
        matches!(shape, Some(Shape::Line { .. } | Shape::Steepening { .. }))
    }

    /// Whether it rises, and by [`FRAGMENTS_SHARE`] of the pace of `other` at least.
    pub(super) fn rises_with(&self, other: &Self) -> bool {
        let fit = self.stretch.fit();
        let enough = FRAGMENTS_SHARE * other.stretch.fit().slope();
        fit.slope() > fit.certain() * fit.slope_error() && fit.slope() >= enough
    }

    /// What has been seen is what will be.
    fn flat(&self, law: Law, now: f64, horizon: f64) -> Outlook {
        let fit = self.stretch.fit();
        let level = fit.at(now);
        Outlook {
            law,
            likely: self.peak,
            low: self.peak,
            high: self.peak.max(level + fit.confident() * fit.error_at(now)),
            level,
            trusted_to: horizon,
        }
    }

    /// `fragments` says that nothing but chance makes an unsteady rise.
    pub(super) fn outlook(&self, now: f64, horizon: f64, fragments: bool, margins: Margins) -> Outlook {
        let Some(trend) = self.trend else {
            return self.flat(Law::Flat, now, horizon);
        };
        let (coarse, reach) = match trend.shape {
            Shape::Level => return self.flat(Law::Flat, now, horizon),
            Shape::Unclear => return self.unclear(&trend, now, horizon),
            Shape::Settling { pace } => return self.settling(pace, &trend, now, horizon),
            Shape::Line { steady: false, .. } | Shape::Steepening { .. } if fragments => {
                return self.flat(Law::Settling, now, horizon);
            }
            Shape::Line { coarse, steady: true } => (coarse, STEADY_REACH),
            Shape::Line {
                coarse,
                steady: false,
            } => (coarse, REACH),
            Shape::Steepening { coarse } => (coarse, STEEP_REACH),
        };
        let steepens = matches!(trend.shape, Shape::Steepening { .. });
        let trusted_to = now + reach * (now - trend.since);
        trend.outlook(steepens, (now, horizon, trusted_to), coarse, margins)
    }

    /// The likely figure by the line, and nothing to act on.
    fn unclear(&self, trend: &Trend, now: f64, horizon: f64) -> Outlook {
        let flat = self.flat(Law::Unclear, now, horizon);
        let likely = trend.fit.at(horizon).min(trend.base / BASE_SHARE);
        Outlook {
            likely: likely.max(self.peak),
            high: flat.high.max(likely + trend.margin(&trend.fit, horizon)),
            ..flat
        }
    }

    /// The record law: as much again each time that the stretch has lasted e times as long.
    fn settling(&self, pace: f64, trend: &Trend, now: f64, horizon: f64) -> Outlook {
        let flat = self.flat(Law::Settling, now, horizon);
        let span = now - trend.since;
        let further = pace * span * ((horizon - trend.since) / span).ln();
        Outlook {
            likely: self.peak + further / 2.0,
            high: flat.high.max(self.peak + further),
            ..flat
        }
    }
}

impl Trend {
    fn margin(&self, line: &Line, horizon: f64) -> f64 {
        line.above() * line.line_error_at(horizon) + self.fit.sigma()
    }

    fn outlook(
        &self,
        steepens: bool,
        (now, horizon, trusted_to): (f64, f64, f64),
        coarse: f64,
        margins: Margins,
    ) -> Outlook {
        let sure = |line: &Line| line.slope() - margins.lower * line.certain() * line.slope_error();
        let pace = if steepens {
            // Each line so far is a lower bound of what is to come; the latest ones are the best.
            sure(&self.later).max(sure(&self.latest))
        } else {
            sure(&self.fit).min(self.later.slope() - self.later.slope_error() / 2.0)
        };
        let ahead = horizon.min(trusted_to) - now;
        let level = self.fit.at(now);
        let low = level - self.fit.sigma() + pace.max(0.0) * (1.0 - coarse) * ahead;
        let straight = if steepens { &self.later } else { &self.fit };
        // The pace gained from the middle of the whole to the middle of the later half goes on from there.
        let bend = if steepens {
            let quarter = (now - self.since) / 4.0;
            let gained = (self.later.slope() - self.fit.slope()).max(0.0) / quarter;
            gained * (horizon - (now - quarter)).powi(2) / 2.0
        } else {
            0.0
        };
        let likely = straight.at(horizon) + bend / 2.0;
        Outlook {
            law: if steepens { Law::Convex } else { Law::Line },
            likely,
            low: low.min(self.base / BASE_SHARE),
            high: likely + bend / 2.0 + margins.upper * self.margin(straight, horizon),
            level,
            trusted_to,
        }
    }
}
