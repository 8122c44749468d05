//! Programs over points and particles: `kmeans.cu`, `nearest.cu`, `boxes.cu`, `particles.cu`.

use super::Arguments;
use super::device::{Buffer, Device, Shape, narrow, product};
use super::driver::PlayError;
use std::mem;

/// Bytes of a float.
const FLOAT: u64 = 4;

pub(super) fn kmeans(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    const DIMENSIONS: u64 = 8;
    const CLUSTERS: u64 = 16;
    let n = narrow(given.size)?;
    let points = device.allocate(product(&[given.size, DIMENSIONS, FLOAT])?)?;
    let labels = device.allocate(product(&[given.size, 4])?)?;
    let centres = device.allocate(CLUSTERS * DIMENSIONS * FLOAT)?;
    let sums = device.allocate(CLUSTERS * DIMENSIONS * FLOAT)?;
    let counts = device.allocate(CLUSTERS * 4)?;
    let (all, centre) = (
        Shape::cover(given.size)?,
        Shape::row(1, narrow(CLUSTERS * DIMENSIONS)?),
    );
    device.launch(c"kmeans_fill", all, &[points.into(), n.into()])?;
    let arguments = [
        points.into(),
        centres.into(),
        sums.into(),
        counts.into(),
        n.into(),
    ];
    device.launch(c"kmeans_seed", centre, &arguments)?;
    for _ in 0..given.iterations {
        let arguments = [
            points.into(),
            centres.into(),
            labels.into(),
            sums.into(),
            counts.into(),
            n.into(),
        ];
        device.launch(c"kmeans_assign", all, &arguments)?;
        device.launch(
            c"kmeans_move",
            centre,
            &[centres.into(), sums.into(), counts.into()],
        )?;
        device.synchronize()?;
    }
    [points, labels, centres, sums, counts]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}

pub(super) fn nearest(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let n = narrow(given.size)?;
    let places = device.allocate(product(&[given.size, 2 * FLOAT])?)?;
    let distances = device.allocate(product(&[given.size, FLOAT])?)?;
    let best = device.allocate(8)?;
    upload_places(device, places, n)?;
    let shape = Shape::cover(given.size)?;
    for step in 0..given.iterations {
        let latitude = degrees(step % 180) - 90.0;
        let longitude = degrees(step % 360) - 180.0;
        let arguments = [
            places.into(),
            distances.into(),
            best.into(),
            n.into(),
            latitude.into(),
            longitude.into(),
        ];
        device.launch(c"nearest_distance", shape, &arguments)?;
        device.launch(
            c"nearest_reduce",
            shape,
            &[distances.into(), best.into(), n.into()],
        )?;
        device.synchronize()?;
        device.download(best, &mut [0; 8])?;
    }
    [places, distances, best]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}

/// A number below 360 as a float.
fn degrees(step: u64) -> f32 {
    f32::from(u16::try_from(step).unwrap_or(0))
}

/// Makes up the places and copies them over, 2^20 at a time.
fn upload_places(device: &mut dyn Device, places: Buffer, n: u32) -> Result<(), PlayError> {
    const PIECE: usize = 1 << 20;
    if !device.copies() {
        return Ok(());
    }
    let mut piece = Vec::with_capacity(PIECE * 8);
    for start in (0..n).step_by(PIECE) {
        piece.clear();
        for place in start..n.min(start.saturating_add(1 << 20)) {
            let (north, east) = (
                unit(2_u32.wrapping_mul(place)),
                unit(2_u32.wrapping_mul(place) + 1),
            );
            piece.extend_from_slice(&(180.0 * north - 90.0).to_le_bytes());
            piece.extend_from_slice(&(360.0 * east - 180.0).to_le_bytes());
        }
        device.upload(places, u64::from(start) * 8, &piece)?;
    }
    Ok(())
}

/// `unit` of `common.cuh`: a well mixed function of its argument, in [0, 1).
fn unit(mut x: u32) -> f32 {
    x ^= x >> 16;
    x = x.wrapping_mul(0x7feb_352d);
    x ^= x >> 15;
    x = x.wrapping_mul(0x846c_a68b);
    x ^= x >> 16;
    #[expect(clippy::cast_precision_loss, reason = "24 bits fit a float")]
    let high = (x >> 8) as f32;
    high / 16_777_216.0
}

pub(super) fn boxes(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    const PER_BOX: u32 = 64;
    let side = narrow(given.size)?;
    let boxes = product(&[given.size, given.size, given.size])?;
    let bytes = product(&[boxes, PER_BOX.into(), 4 * FLOAT])?;
    let position = device.allocate(bytes)?;
    let force = device.allocate(bytes)?;
    let shape = Shape::row(narrow(boxes)?, PER_BOX);
    device.launch(c"boxes_fill", shape, &[position.into(), side.into()])?;
    for _ in 0..given.iterations {
        device.launch(
            c"boxes_force",
            shape,
            &[position.into(), force.into(), side.into()],
        )?;
        device.synchronize()?;
    }
    [position, force]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}

pub(super) fn particles(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let n = narrow(given.size)?;
    let bytes = product(&[given.size, FLOAT])?;
    let mut x = device.allocate(bytes)?;
    let mut y = device.allocate(bytes)?;
    let weight = device.allocate(bytes)?;
    let sum = device.allocate(bytes)?;
    let mut next_x = device.allocate(bytes)?;
    let mut next_y = device.allocate(bytes)?;
    let blocks = n.div_ceil(256);
    let total = device.allocate(u64::from(blocks) * FLOAT)?;
    let shape = Shape::row(blocks, 256);
    device.launch(c"particles_fill", shape, &[x.into(), y.into(), n.into()])?;
    for step in 0..given.iterations {
        let number = narrow(step & u64::from(u32::MAX))?;
        let seen = 0.3 + 0.4 * degrees(step % 100) / 100.0;
        let arguments = [
            x.into(),
            y.into(),
            weight.into(),
            n.into(),
            number.into(),
            seen.into(),
            0.5_f32.into(),
        ];
        device.launch(c"particles_weigh", shape, &arguments)?;
        device.launch(
            c"particles_scan",
            shape,
            &[weight.into(), sum.into(), total.into(), n.into()],
        )?;
        device.launch(
            c"particles_totals",
            Shape::row(1, 1),
            &[total.into(), blocks.into()],
        )?;
        let arguments = [
            x.into(),
            y.into(),
            sum.into(),
            total.into(),
            next_x.into(),
            next_y.into(),
            n.into(),
            blocks.into(),
        ];
        device.launch(c"particles_draw", shape, &arguments)?;
        device.synchronize()?;
        mem::swap(&mut x, &mut next_x);
        mem::swap(&mut y, &mut next_y);
    }
    [x, y, weight, sum, next_x, next_y, total]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}
