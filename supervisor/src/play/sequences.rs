//! Programs over graphs, letters and keys: `bfs.cu`, `align.cu`, `sort.cu`.

use super::Arguments;
use super::device::{Device, Shape, narrow, product};
use super::driver::PlayError;

pub(super) fn bfs(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    /// Edges of a node, and levels of one search.
    const DEGREE: u64 = 8;
    const LEVELS: u64 = 32;
    let size = given.size;
    let n = narrow(size)?;
    let shape = Shape::cover(size + 1)?;
    let offsets = device.allocate(product(&[size + 1, 4])?)?;
    let edges = device.allocate(product(&[size, DEGREE, 4])?)?;
    let levels = device.allocate(product(&[size, 4])?)?;
    let frontier = device.allocate(size)?;
    let next = device.allocate(size)?;
    device.launch(c"bfs_build", shape, &[offsets.into(), edges.into(), n.into()])?;
    for step in 0..given.iterations {
        let level = narrow(step % LEVELS)?;
        if level == 0 {
            let source = narrow(step / LEVELS % size)?;
            let arguments = [
                levels.into(),
                frontier.into(),
                next.into(),
                n.into(),
                source.into(),
            ];
            device.launch(c"bfs_seed", shape, &arguments)?;
        }
        let arguments = [
            offsets.into(),
            edges.into(),
            levels.into(),
            frontier.into(),
            next.into(),
            n.into(),
            level.into(),
        ];
        device.launch(c"bfs_expand", shape, &arguments)?;
        device.launch(c"bfs_advance", shape, &[frontier.into(), next.into(), n.into()])?;
        device.synchronize()?;
    }
    [offsets, edges, levels, frontier, next]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}

pub(super) fn align(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    /// Letters a side of a tile.
    const TILE: u32 = 16;
    let size = given.size;
    let n = narrow(size)?;
    let tiles = n.div_ceil(TILE);
    let score = device.allocate(product(&[size + 1, size + 1, 4])?)?;
    let first = device.allocate(size)?;
    let second = device.allocate(size)?;
    device.launch(
        c"align_fill",
        Shape::cover(size)?,
        &[first.into(), second.into(), n.into()],
    )?;
    device.launch(
        c"align_border",
        Shape::cover(size + 1)?,
        &[score.into(), n.into()],
    )?;
    for _ in 0..given.iterations {
        for diagonal in 0..2 * tiles - 1 {
            let lowest = (diagonal + 1).saturating_sub(tiles);
            let highest = diagonal.min(tiles - 1);
            let arguments = [
                score.into(),
                first.into(),
                second.into(),
                n.into(),
                diagonal.into(),
                lowest.into(),
            ];
            device.launch(c"align_tile", Shape::row(highest - lowest + 1, TILE), &arguments)?;
        }
        device.synchronize()?;
    }
    [score, first, second]
        .into_iter()
        .try_for_each(|buffer| device.release(buffer))
}

pub(super) fn sort(device: &mut dyn Device, given: Arguments) -> Result<(), PlayError> {
    /// The largest power of two in 32 bits.
    const MOST: u64 = 1 << 31;
    if given.size > MOST {
        return Err(PlayError::Argument(format!(
            "--size {} is above {MOST}",
            given.size
        )));
    }
    let count = given.size.next_power_of_two();
    let n = narrow(count)?;
    let shape = Shape::cover(count)?;
    let keys = device.allocate(product(&[count, 4])?)?;
    for step in 0..given.iterations {
        let seed = narrow(step & u64::from(u32::MAX))?;
        device.launch(c"sort_fill", shape, &[keys.into(), n.into(), seed.into()])?;
        for order in 1..=n.trailing_zeros() {
            let span = 1_u32 << order;
            for stride in (0..order).rev().map(|power| 1_u32 << power) {
                let arguments = [keys.into(), n.into(), stride.into(), span.into()];
                device.launch(c"sort_exchange", shape, &arguments)?;
            }
        }
        device.synchronize()?;
    }
    device.release(keys)
}
