//! Programs whose memory grows: `decoder.cu`, `jumper.cu`, `convex.cu`, `leak.cu`.

use super::Arguments;
use super::device::{Device, Shape, narrow, product};
use super::driver::PlayError;

/// Bytes of a float.
const FLOAT: u64 = 4;

pub(super) fn decoder(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    /// Cells of a token's state.
    const WIDTH: u32 = 256;
    let (weight_count, chunk_count) = (given.start / FLOAT, given.growth / FLOAT);
    let weights = device.allocate(given.start)?;
    let chunks = device.allocate(product(&[given.iterations.saturating_add(1), 8])?)?;
    let state = device.allocate(u64::from(WIDTH) * FLOAT)?;
    let answer = device.allocate(u64::from(WIDTH) * FLOAT)?;
    let mut kept = Vec::new();
    device.launch(
        c"decoder_fill",
        Shape::stride(weight_count)?,
        &[weights.into(), weight_count.into()],
    )?;
    device.clear(answer, u64::from(WIDTH) * FLOAT)?;
    for token in 0..given.iterations {
        let chunk = device.allocate(given.growth)?;
        kept.push(chunk);
        device.upload(chunks, token * 8, &chunk.0.to_le_bytes())?;
        let arguments = [weights.into(), weight_count.into(), state.into(), token.into()];
        device.launch(c"decoder_mix", Shape::row(1, WIDTH), &arguments)?;
        let arguments = [chunk.into(), chunk_count.into(), state.into()];
        device.launch(c"decoder_append", Shape::stride(chunk_count)?, &arguments)?;
        let arguments = [chunks.into(), chunk_count.into(), answer.into(), state.into()];
        device.launch(
            c"decoder_attend",
            Shape::row(narrow(token + 1)?, WIDTH),
            &arguments,
        )?;
        device.synchronize()?;
    }
    kept.extend([weights, chunks, state, answer]);
    kept.into_iter().try_for_each(|buffer| device.release(buffer))
}

pub(super) fn jumper(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let Some(more_bytes) = given.jump.checked_sub(given.start) else {
        let (jump, start) = (given.jump, given.start);
        return Err(PlayError::Argument(format!(
            "--jump {jump} is below --start {start}"
        )));
    };
    let (count, more_count) = (given.start / FLOAT, more_bytes / FLOAT);
    let (shape, more_shape) = (Shape::stride(count)?, Shape::stride(more_count)?);
    let values = device.allocate(given.start)?;
    device.launch(
        c"jumper_fill",
        shape,
        &[values.into(), count.into(), 0.0_f32.into()],
    )?;
    let mut more = None;
    for step in 0..given.iterations {
        if step == given.at && more_bytes > 0 {
            let buffer = device.allocate(more_bytes)?;
            let arguments = [buffer.into(), more_count.into(), 0.0_f32.into()];
            device.launch(c"jumper_fill", more_shape, &arguments)?;
            more = Some(buffer);
        }
        device.launch(
            c"jumper_sweep",
            shape,
            &[values.into(), count.into(), 1.0_f32.into()],
        )?;
        if let Some(more) = more {
            let arguments = [more.into(), more_count.into(), 1.0_f32.into()];
            device.launch(c"jumper_sweep", more_shape, &arguments)?;
        }
        device.synchronize()?;
    }
    more.into_iter()
        .chain([values])
        .try_for_each(|buffer| device.release(buffer))
}

pub(super) fn convex(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let count = given.start / FLOAT;
    let values = device.allocate(given.start)?;
    let sum = device.allocate(8)?;
    let mut kept = Vec::new();
    let arguments = [values.into(), count.into(), 0_u32.into()];
    device.launch(c"convex_extend", Shape::stride(count)?, &arguments)?;
    device.clear(sum, 8)?;
    for step in 1..=given.iterations {
        let bytes = product(&[step, given.growth])?;
        let more = bytes / FLOAT;
        let buffer = device.allocate(bytes)?;
        kept.push(buffer);
        let seed = narrow(step & u64::from(u32::MAX))?;
        let shape = Shape::stride(more)?;
        device.launch(
            c"convex_extend",
            shape,
            &[buffer.into(), more.into(), seed.into()],
        )?;
        device.launch(c"convex_sum", shape, &[buffer.into(), more.into(), sum.into()])?;
        device.synchronize()?;
    }
    kept.extend([values, sum]);
    kept.into_iter().try_for_each(|buffer| device.release(buffer))
}

pub(super) fn leak(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let (base_count, count) = (given.start / FLOAT, given.growth / FLOAT);
    let scratch_bytes = product(&[2, given.growth])?;
    let base = device.allocate(given.start)?;
    let arguments = [base.into(), base_count.into(), 0_u32.into()];
    device.launch(c"leak_scratch", Shape::stride(base_count)?, &arguments)?;
    for step in 0..given.iterations {
        let scratch = device.allocate(scratch_bytes)?;
        let answer = device.allocate(given.growth)?;
        let seed = narrow(step & u64::from(u32::MAX))?;
        let arguments = [scratch.into(), (2 * count).into(), seed.into()];
        device.launch(c"leak_scratch", Shape::stride(2 * count)?, &arguments)?;
        let arguments = [scratch.into(), answer.into(), count.into()];
        device.launch(c"leak_answer", Shape::stride(count)?, &arguments)?;
        device.synchronize()?;
        device.release(scratch)?;
    }
    device.release(base)
}
