//! Growth shapes for tests: what programs do to memory, one level an iteration.

/// Reserved bytes of each iteration.
pub(super) struct Shape {
    pub(super) levels: Vec<u64>,
}

impl Shape {
    pub(super) fn peak(&self) -> u64 {
        self.levels.iter().copied().max().unwrap()
    }

    fn new(steps: usize, level: impl FnMut(usize) -> u64) -> Self {
        Self {
            levels: (0..steps).map(level).collect(),
        }
    }
}

#[expect(clippy::cast_precision_loss, reason = "a few thousand iterations")]
pub(super) fn x(index: usize) -> f64 {
    index as f64
}

/// Roughly normal noise of standard deviation 1, the same for the same seed: the sum of twelve uniform draws
/// of a 64-bit linear congruential generator.
struct Noise(u64);

impl Noise {
    fn next(&mut self) -> f64 {
        let mut sum = -6.0;
        for _ in 0..12 {
            self.0 = self
                .0
                .wrapping_mul(6_364_136_223_846_793_005)
                .wrapping_add(1_442_695_040_888_963_407);
            #[expect(clippy::cast_precision_loss, reason = "53 bits are kept")]
            let draw = (self.0 >> 11) as f64 / (1_u64 << 53) as f64;
            sum += draw;
        }
        sum
    }
}

fn jittered(level: u64, sigma: u64, noise: &mut Noise) -> u64 {
    super::to_bytes(super::to_float(level) + super::to_float(sigma) * noise.next())
}

/// A KV cache or a leak.
pub(super) fn line(start: u64, step: u64, steps: usize, sigma: u64, seed: u64) -> Shape {
    let mut noise = Noise(seed);
    Shape::new(steps, |t| jittered(start + step * t as u64, sigma, &mut noise))
}

pub(super) fn flat(level: u64, steps: usize, sigma: u64, seed: u64) -> Shape {
    line(level, 0, steps, sigma, seed)
}

pub(super) fn jump(before: u64, after: u64, at: usize, steps: usize) -> Shape {
    Shape::new(steps, |t| if t < at { before } else { after })
}

pub(super) fn convex(start: u64, factor: u64, steps: usize) -> Shape {
    Shape::new(steps, |t| start + factor * (t * t) as u64)
}

/// Up by `height` over `period` iterations, and down at once.
pub(super) fn teeth(base: u64, height: u64, period: usize, steps: usize) -> Shape {
    Shape::new(steps, |t| base + height * (t % period) as u64 / period as u64)
}

/// Up from nothing in equal steps, then level.
pub(super) fn ramp(top: u64, rise: usize, steps: usize) -> Shape {
    Shape::new(steps, |t| top * (t + 1).min(rise) as u64 / rise as u64)
}

/// Up towards `top`, each time by less.
pub(super) fn saturating(top: u64, scale: f64, steps: usize) -> Shape {
    Shape::new(steps, |t| {
        super::to_bytes(super::to_float(top) * (1.0 - (-(x(t) + 1.0) / scale).exp()))
    })
}
