//! Each program against its PTX and its source, on a device that only counts.

use super::device::{Argument, Buffer, Counter, Device, Shape};
use super::*;
use std::collections::{HashMap, HashSet};

/// Names of the PTX type of each parameter, by kernel.
fn signatures(ptx: &CStr) -> HashMap<String, Vec<String>> {
    let text = ptx.to_str().unwrap();
    let mut kernels = HashMap::new();
    for entry in text.split(".visible .entry ").skip(1) {
        let (name, rest) = entry.split_once('(').unwrap();
        let (parameters, _) = rest.split_once(')').unwrap();
        let kinds = parameters
            .lines()
            .filter_map(|line| line.trim().strip_prefix(".param ."))
            .map(|line| line.split_whitespace().next().unwrap().to_owned())
            .collect();
        kernels.insert(name.to_owned(), kinds);
    }
    kernels
}

/// Counts, and holds every launch against the PTX.
struct Strict {
    counter: Counter,
    kernels: HashMap<String, Vec<String>>,
    launched: HashSet<String>,
    synchronized: u64,
}

impl Device for Strict {
    fn allocate(&mut self, bytes: u64) -> Result<Buffer, PlayError> {
        self.counter.allocate(bytes)
    }

    fn release(&mut self, buffer: Buffer) -> Result<(), PlayError> {
        self.counter.release(buffer)
    }

    fn launch(
        &mut self,
        kernel: &'static CStr,
        shape: Shape,
        arguments: &[Argument],
    ) -> Result<(), PlayError> {
        let name = kernel.to_str().unwrap();
        let given: Vec<_> = arguments
            .iter()
            .map(|argument| match argument {
                Argument::Buffer(_) | Argument::U64(_) => "u64",
                Argument::U32(_) => "u32",
                Argument::F32(_) => "f32",
            })
            .collect();
        assert_eq!(given, self.kernels[name], "arguments of {name}");
        assert!(
            shape.grid.iter().chain(&shape.block).all(|&extent| extent > 0),
            "{name}: {shape:?}"
        );
        assert!(shape.block.iter().product::<u32>() <= 1024, "{name}: {shape:?}");
        self.launched.insert(name.to_owned());
        Ok(())
    }

    fn upload(&mut self, _: Buffer, _: u64, _: &[u8]) -> Result<(), PlayError> {
        Ok(())
    }

    fn download(&mut self, _: Buffer, _: &mut [u8]) -> Result<(), PlayError> {
        Ok(())
    }

    fn clear(&mut self, _: Buffer, _: u64) -> Result<(), PlayError> {
        Ok(())
    }

    fn synchronize(&mut self) -> Result<(), PlayError> {
        self.synchronized += 1;
        Ok(())
    }
}

fn strict(program: &Program, given: PlayArgs) -> Strict {
    let kernels = signatures(program.ptx);
    let mut device = Strict {
        counter: Counter::default(),
        kernels,
        launched: HashSet::new(),
        synchronized: 0,
    };
    (program.run)(&mut device, program.defaults.with(given).unwrap()).unwrap();
    device
}

#[test]
fn every_launch_has_the_arguments_that_the_ptx_declares() {
    for program in programs() {
        let device = strict(program, PlayArgs::default());
        let declared: HashSet<_> = device.kernels.keys().cloned().collect();
        assert_eq!(device.launched, declared, "kernels of {}", program.name);
        assert_eq!(
            device.synchronized, program.defaults.iterations,
            "{}",
            program.name
        );
    }
}

#[test]
fn all_is_released_but_what_the_leak_forgets() {
    for program in programs() {
        let given = PlayArgs {
            iterations: Some(3),
            growth: Some(1000),
            ..PlayArgs::default()
        };
        let left = if program.name == "leak" { 3 * 1000 } else { 0 };
        assert_eq!(strict(program, given).counter.live(), left, "{}", program.name);
    }
}

#[test]
fn kernel_names_are_unique_and_carry_the_program_s() {
    let mut all = HashSet::new();
    for program in programs() {
        for kernel in signatures(program.ptx).into_keys() {
            assert!(kernel.starts_with(&format!("{}_", program.name)), "{kernel}");
            assert!(all.insert(kernel));
        }
    }
}

#[test]
fn the_ptx_is_for_drivers_from_cuda_11_on() {
    for program in programs() {
        let text = program.ptx.to_str().unwrap();
        assert!(
            text.contains(".version 7.0\n") && text.contains(".target sm_80\n"),
            "{}",
            program.name
        );
    }
}

#[test]
fn the_peak_is_what_the_source_allocates() {
    let peak = |name, given| peak_bytes(name, given).unwrap();
    let size = |size| PlayArgs {
        size: Some(size),
        ..PlayArgs::default()
    };
    assert_eq!(peak("stencil", size(1000)), 3 * 4 * 1_000_000);
    assert_eq!(peak("lu", size(1000)), 4 * 1_000_000);
    assert_eq!(peak("bfs", size(1000)), 4 * 1001 + 4 * 8000 + 4 * 1000 + 2 * 1000);
    assert_eq!(peak("align", size(1000)), 4 * 1001 * 1001 + 2 * 1000);
    assert_eq!(peak("kmeans", size(1000)), 36 * 1000 + 2 * 512 + 64);
    assert_eq!(peak("nearest", size(1000)), 12 * 1000 + 8);
    assert_eq!(peak("boxes", size(10)), 2 * 16 * 64 * 1000);
    assert_eq!(peak("diffusion", size(1000)), 3 * 4 * 1_000_000);
    assert_eq!(peak("sort", size(1000)), 4 * 1024);
    assert_eq!(peak("particles", size(1000)), 6 * 4 * 1000 + 4 * 4);
    let grow = PlayArgs {
        start: Some(1000),
        growth: Some(100),
        iterations: Some(10),
        jump: Some(5000),
        at: Some(3),
        size: None,
    };
    assert_eq!(peak("decoder", grow), 1000 + 10 * 100 + 8 * 11 + 2 * 1024);
    assert_eq!(peak("jumper", grow), 5000);
    assert_eq!(
        peak(
            "jumper",
            PlayArgs {
                iterations: Some(3),
                ..grow
            }
        ),
        1000
    );
    assert_eq!(peak("convex", grow), 1000 + 100 * 55 + 8);
    assert_eq!(peak("leak", grow), 1000 + 10 * 100 + 2 * 100);
}

#[test]
fn an_argument_that_does_not_fit_is_refused_by_value() {
    let too_many = PlayArgs {
        size: Some(1 << 33),
        ..PlayArgs::default()
    };
    assert_eq!(
        peak_bytes("bfs", too_many).unwrap_err().to_string(),
        "8589934592 is above 4294967295"
    );
    let down = PlayArgs {
        start: Some(10),
        jump: Some(9),
        ..PlayArgs::default()
    };
    let error = peak_bytes("jumper", down).unwrap_err();
    assert_eq!(
        (error.to_string().as_str(), error.exit_code()),
        ("--jump 9 is below --start 10", 2)
    );
    let none = PlayArgs {
        size: Some(0),
        ..PlayArgs::default()
    };
    assert_eq!(
        peak_bytes("bfs", none).unwrap_err().to_string(),
        "--size 0 is below 1"
    );
    let unknown = peak_bytes("tetris", PlayArgs::default()).unwrap_err();
    assert_eq!(
        (unknown.to_string().as_str(), unknown.exit_code()),
        ("no program `tetris`", 2)
    );
}

#[test]
fn a_failed_allocation_is_told_in_one_line() {
    let error = PlayError::Driver {
        program: "jumper",
        call: "cuMemAlloc of 5000000000 bytes".to_owned(),
        code: "CUDA_ERROR_OUT_OF_MEMORY".to_owned(),
    };
    let line = "jumper: cuMemAlloc of 5000000000 bytes: CUDA_ERROR_OUT_OF_MEMORY";
    assert_eq!((error.to_string().as_str(), error.exit_code()), (line, 1));
}
