//! The example programs of `examples/cuda`, played over the driver API by `migm` itself, for machines
//! without a CUDA compiler.
//!
//! The story of `migm play stencil --size 8192`:
//!
//! 1. [`play`] finds the program in [`programs`] and puts the given arguments over its defaults.
//! 2. The program's function is given a `Device`. On a `Driver` each call becomes a driver call:
//!    `libcuda.so.1` is opened and its functions are looked up by `dlsym`, so an interposer sees them, and
//!    the PTX committed beside the `.cu` is loaded. It runs on a real GPU as on a simulated one.
//! 3. It allocates what the `.cu` allocates, in the same order, and in each iteration launches the same
//!    kernels with the same grids and arguments, then waits for the device.
//! 4. One line on standard output ends it, as it ends the `.cu`. A failure is a [`PlayError`] instead.
//!
//! [`peak_bytes`] runs the same function on a device that only counts.

mod device;
mod driver;
mod growers;
mod plates;
mod points;
mod sequences;

pub use driver::PlayError;

use device::{Counter, Device};
use migm_shared::units::Bytes;
use std::ffi::CStr;

/// Arguments of a program; what is not given is the program's own default.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, clap::Args)]
pub struct PlayArgs {
    /// Size of the problem, in the program's own unit: cells a side, nodes, keys, points
    #[arg(long, value_parser = count)]
    pub size: Option<u64>,
    /// How many iterations to run
    #[arg(long, value_parser = count)]
    pub iterations: Option<u64>,
    /// Bytes that a grower holds at its start
    #[arg(long, value_parser = count)]
    pub start: Option<u64>,
    /// Bytes that a grower adds in an iteration
    #[arg(long, value_parser = count)]
    pub growth: Option<u64>,
    /// Bytes that the jumper holds after its jump
    #[arg(long, value_parser = count)]
    pub jump: Option<u64>,
    /// The iteration, from 0, in which the jumper jumps
    #[arg(long, value_parser = count)]
    pub at: Option<u64>,
}

/// Reads a count with the suffixes of sizes, as the `.cu` programs do.
fn count(given: &str) -> Result<u64, migm_shared::units::UnitError> {
    given.parse::<Bytes>().map(|bytes| bytes.0)
}

/// A program's arguments, complete.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
struct Arguments {
    size: u64,
    iterations: u64,
    start: u64,
    growth: u64,
    jump: u64,
    at: u64,
}

impl Arguments {
    /// For programs whose memory does not grow.
    const fn steady(size: u64, iterations: u64) -> Self {
        Self {
            size,
            iterations,
            start: 0,
            growth: 0,
            jump: 0,
            at: 0,
        }
    }

    /// For programs whose memory grows.
    const fn growing(start: u64, growth: u64, iterations: u64) -> Self {
        Self {
            size: 0,
            iterations,
            start,
            growth,
            jump: 0,
            at: 0,
        }
    }

    /// These with what was given over them. A program that has a size takes none of 0.
    fn with(self, given: PlayArgs) -> Result<Self, PlayError> {
        if self.size > 0 && given.size == Some(0) {
            return Err(PlayError::Argument("--size 0 is below 1".to_owned()));
        }
        Ok(Self {
            size: given.size.unwrap_or(self.size),
            iterations: given.iterations.unwrap_or(self.iterations),
            start: given.start.unwrap_or(self.start),
            growth: given.growth.unwrap_or(self.growth),
            jump: given.jump.unwrap_or(self.jump),
            at: given.at.unwrap_or(self.at),
        })
    }
}

/// One program.
#[derive(Debug)]
pub struct Program {
    /// Its name: that of the `.cu`, without the suffix.
    pub name: &'static str,
    /// The class of problem.
    pub class: &'static str,
    /// What it does, in one line.
    pub about: &'static str,
    ptx: &'static CStr,
    defaults: Arguments,
    run: fn(&mut dyn Device, Arguments) -> Result<(), PlayError>,
}

/// The PTX of `examples/cuda/NAME.ptx`, ended with a zero as the driver wants it.
macro_rules! ptx {
    ($name:literal) => {{
        const TEXT: &str = concat!(
            include_str!(concat!("../../../examples/cuda/", $name, ".ptx")),
            "\0"
        );
        match CStr::from_bytes_with_nul(TEXT.as_bytes()) {
            Ok(text) => text,
            Err(_) => panic!("the PTX holds a zero"),
        }
    }};
}

macro_rules! program {
    ($name:literal, $class:literal, $about:literal, $defaults:expr, $run:path) => {
        Program {
            name: $name,
            class: $class,
            about: $about,
            ptx: ptx!($name),
            defaults: $defaults,
            run: $run,
        }
    };
}

const MIB: u64 = 1 << 20;

static PROGRAMS: [Program; 14] = [
    program!(
        "stencil",
        "stencil",
        "heat spreads over a plate",
        Arguments::steady(4096, 100),
        plates::stencil
    ),
    program!(
        "lu",
        "lu",
        "a matrix is factored in place, a column an iteration",
        Arguments::steady(4096, 100),
        plates::lu
    ),
    program!(
        "bfs",
        "graph traversal",
        "breadth-first search, a level an iteration",
        Arguments::steady(4_000_000, 100),
        sequences::bfs
    ),
    program!(
        "align",
        "sequence alignment",
        "two sequences are aligned end to end",
        Arguments::steady(4096, 20),
        sequences::align
    ),
    program!(
        "kmeans",
        "k-means",
        "points in 8 dimensions, 16 clusters",
        Arguments::steady(4_000_000, 100),
        points::kmeans
    ),
    program!(
        "nearest",
        "nearest neighbour",
        "the place nearest to a moving target",
        Arguments::steady(8_000_000, 100),
        points::nearest
    ),
    program!(
        "boxes",
        "n-body in boxes",
        "charged particles feel their 27 boxes",
        Arguments::steady(40, 50),
        points::boxes
    ),
    program!(
        "diffusion",
        "image diffusion",
        "an image is smoothed, less across edges",
        Arguments::steady(4096, 100),
        plates::diffusion
    ),
    program!(
        "sort",
        "sort",
        "a bitonic sort of a power of two of keys",
        Arguments::steady(1 << 24, 20),
        sequences::sort
    ),
    program!(
        "particles",
        "particle filter",
        "guesses are moved, weighed and drawn again",
        Arguments::steady(4_000_000, 100),
        points::particles
    ),
    program!(
        "decoder",
        "linear grower",
        "a decoder keeps keys and values for every token",
        Arguments::growing(256 * MIB, 16 * MIB, 50),
        growers::decoder
    ),
    program!(
        "jumper",
        "sudden grower",
        "flat, then one large allocation",
        Arguments {
            jump: 9_000_000_000,
            at: 50,
            ..Arguments::growing(4_000_000_000, 0, 100)
        },
        growers::jumper
    ),
    program!(
        "convex",
        "convex grower",
        "each iteration allocates more than the one before",
        Arguments::growing(256 * MIB, MIB, 50),
        growers::convex
    ),
    program!(
        "leak",
        "leak",
        "an answer is forgotten in every iteration",
        Arguments::growing(256 * MIB, 8 * MIB, 50),
        growers::leak
    ),
];

/// All programs: ten whose memory is steady, then four whose memory grows.
pub fn programs() -> &'static [Program] {
    &PROGRAMS
}

fn find(name: &str) -> Result<&'static Program, PlayError> {
    PROGRAMS
        .iter()
        .find(|program| program.name == name)
        .ok_or_else(|| PlayError::UnknownProgram(name.to_owned()))
}

/// The most bytes that a program holds of the device at once, in its own allocations.
///
/// # Errors
/// [`PlayError::UnknownProgram`], or [`PlayError::Argument`] for arguments the program refuses.
pub fn peak_bytes(name: &str, given: PlayArgs) -> Result<u64, PlayError> {
    let program = find(name)?;
    let mut counter = Counter::default();
    (program.run)(&mut counter, program.defaults.with(given)?)?;
    Ok(counter.peak())
}

/// Plays a program to its end on the first device that the driver shows, and prints one line.
///
/// # Errors
/// What stopped it. The caller prints `play: {error}` and exits with [`PlayError::exit_code`].
pub fn play(name: &str, given: PlayArgs) -> Result<(), PlayError> {
    let program = find(name)?;
    let arguments = program.defaults.with(given)?;
    let mut driver = driver::Driver::open(program.name, program.ptx)?;
    (program.run)(&mut driver, arguments)?;
    println!(
        "{name}: {} iterations, peak {} bytes",
        arguments.iterations,
        driver.peak()
    );
    Ok(())
}

#[cfg(test)]
mod tests;
