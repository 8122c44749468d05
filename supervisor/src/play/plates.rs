//! Programs over square plates of floats: `stencil.cu`, `lu.cu`, `diffusion.cu`.

use super::Arguments;
use super::device::{Device, Shape, narrow, product};
use super::driver::PlayError;
use std::mem;

/// Bytes of a float.
const FLOAT: u64 = 4;

pub(super) fn stencil(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let n = narrow(given.size)?;
    let bytes = product(&[given.size, given.size, FLOAT])?;
    let mut heat = device.allocate(bytes)?;
    let mut next = device.allocate(bytes)?;
    let power = device.allocate(bytes)?;
    let plate = Shape::square(n);
    device.launch(c"stencil_fill", plate, &[heat.into(), power.into(), n.into()])?;
    for _ in 0..given.iterations {
        device.launch(
            c"stencil_step",
            plate,
            &[heat.into(), next.into(), power.into(), n.into()],
        )?;
        device.synchronize()?;
        mem::swap(&mut heat, &mut next);
    }
    [heat, next, power]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}

pub(super) fn lu(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let n = narrow(given.size)?;
    if n < 2 {
        return Err(PlayError::Argument(format!("--size {n} is below 2")));
    }
    let matrix = device.allocate(product(&[given.size, given.size, FLOAT])?)?;
    for step in 0..given.iterations {
        let k = narrow(step % u64::from(n - 1))?;
        let rest = n - 1 - k;
        if k == 0 {
            device.launch(c"lu_fill", Shape::square(n), &[matrix.into(), n.into()])?;
        }
        let arguments = [matrix.into(), n.into(), k.into()];
        device.launch(c"lu_scale", Shape::cover(rest.into())?, &arguments)?;
        device.launch(c"lu_update", Shape::square(rest), &arguments)?;
        device.synchronize()?;
    }
    device.release(matrix)
}

pub(super) fn diffusion(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    let n = narrow(given.size)?;
    let bytes = product(&[given.size, given.size, FLOAT])?;
    let mut image = device.allocate(bytes)?;
    let open = device.allocate(bytes)?;
    let mut next = device.allocate(bytes)?;
    let plate = Shape::square(n);
    device.launch(c"diffusion_fill", plate, &[image.into(), n.into()])?;
    for _ in 0..given.iterations {
        device.launch(
            c"diffusion_coefficient",
            plate,
            &[image.into(), open.into(), n.into()],
        )?;
        let arguments = [image.into(), open.into(), next.into(), n.into(), 0.2_f32.into()];
        device.launch(c"diffusion_update", plate, &arguments)?;
        device.synchronize()?;
        mem::swap(&mut image, &mut next);
    }
    [image, open, next]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}
