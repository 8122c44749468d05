//! Simulated time: kernels, streams, events, and what processes do to each other.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, MutexGuard, PoisonError};

use tempfile::NamedTempFile;

use crate::bench::{Bench, MIB, ONE_G, TWO_G, role, tell, wait_for_go};
use crate::calls::*;
use crate::{call, good};

/// Tests that measure take turns.
fn turn() -> MutexGuard<'static, ()> {
    static TURN: Mutex<()> = Mutex::new(());
    TURN.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A table of kernel times.
pub fn costs(rows: &str) -> NamedTempFile {
    let file = NamedTempFile::new().unwrap();
    std::fs::write(
        &file,
        format!("[kernels]\nhold = {{ seconds = 2, sms = 1 }}\n{rows}\n"),
    )
    .unwrap();
    file
}

fn near(found: f64, expected: f64, tolerance: f64) {
    assert!(
        (found - expected).abs() <= tolerance,
        "{found} is not {expected} +- {tolerance}"
    );
}

/// Runs this test's program on a whole GPU with a table of costs.
fn run_alone(time_scale: f64, rows: &str) {
    let _turn = turn();
    let bench = Bench::of("a100-40gb", false, time_scale);
    let costs = costs(rows);
    bench
        .program("program")
        .set("SIMGPU_COSTS", costs.path().to_str().unwrap())
        .succeeds();
}

#[test]
fn a_thousand_short_kernels_take_their_sum_on_a_busy_machine() {
    if role().is_none() {
        return run_alone(0.1, "axpy = 0.001");
    }
    let stop = AtomicBool::new(false);
    std::thread::scope(|scope| {
        for _ in 0..3 {
            scope.spawn(|| {
                while !stop.load(Ordering::Relaxed) {
                    std::hint::spin_loop();
                }
            });
        }
        let driver = Driver::with_context();
        let (axpy, stream) = (driver.function(c"axpy"), driver.stream(0));
        let machine = simgpu::Machine::open().unwrap();
        let began = machine.sim_now();
        let start = driver.hold(&[stream]);
        (0..1000).for_each(|_| driver.launch(axpy, stream));
        let end = driver.record(stream);
        good!(driver, cuStreamSynchronize, stream);
        let seen = machine.sim_now() - began - 2.0;
        stop.store(true, Ordering::Relaxed);
        near(driver.seconds(start, end), 1.0, 0.001);
        // The thread that waits is woken when the busy machine comes to it; that may take some ticks of wall time.
        assert!((0.98..3.0).contains(&seen), "{seen}");
    });
}

#[test]
fn a_launch_returns_at_once_and_queries_say_when_it_is_done() {
    if role().is_none() {
        return run_alone(0.1, "slow = 10");
    }
    let driver = Driver::with_context();
    let (slow, stream) = (driver.function(c"slow"), driver.stream(1));
    let wall = std::time::Instant::now();
    let start = driver.record(stream);
    driver.launch(slow, stream);
    let end = driver.record(stream);
    assert_eq!(call!(driver, cuStreamQuery, stream), NOT_READY);
    assert_eq!(call!(driver, cuEventQuery, end), NOT_READY);
    let mut milliseconds = 0_f32;
    assert_eq!(
        call!(driver, cuEventElapsedTime, &mut milliseconds, start, end),
        NOT_READY
    );
    good!(driver, cuEventQuery, start);
    good!(driver, cuStreamQuery, 0_u64);
    good!(driver, cuCtxSynchronize);
    good!(driver, cuEventQuery, end);
    // The time between the two calls counts as well.
    near(driver.seconds(start, end), 10.0, 0.5);
    assert!(wall.elapsed().as_millis() >= 999);
    let never = driver.event();
    assert_eq!(
        call!(driver, cuEventElapsedTime, &mut milliseconds, start, never),
        INVALID_HANDLE
    );
    good!(driver, cuEventSynchronize, never);
    good!(driver, cuStreamDestroy_v2, stream);
    assert_eq!(call!(driver, cuStreamDestroy_v2, stream), INVALID_HANDLE);
}

#[test]
fn streams_run_side_by_side_and_the_default_stream_between_them() {
    if role().is_none() {
        return run_alone(0.05, "slow = { seconds = 1, sms = 30 }");
    }
    let driver = Driver::with_context();
    let slow = driver.function(c"slow");
    let (one, two, free) = (driver.stream(0), driver.stream(0), driver.stream(1));
    let start = driver.hold(&[one, two, free]);
    for stream in [one, two, free] {
        driver.launch(slow, stream);
    }
    let side_by_side = driver.record(two);
    driver.launch(slow, 0);
    let default = driver.record(0);
    driver.launch(slow, two);
    let after_default = driver.record(two);
    driver.launch(slow, free);
    let beside = driver.record(free);
    near(driver.seconds(start, side_by_side), 1.0, 0.001);
    near(driver.seconds(start, default), 2.0, 0.001);
    near(driver.seconds(start, after_default), 3.0, 0.001);
    near(driver.seconds(start, beside), 2.0, 0.001);
    // A wait for an event of another stream holds what follows.
    let start = driver.hold(&[one]);
    driver.launch(slow, one);
    let done = driver.record(one);
    good!(driver, cuStreamWaitEvent, free, done, 0);
    driver.launch(slow, free);
    let end = driver.record(free);
    near(driver.seconds(start, end), 2.0, 0.001);
    // Kernels that want more than the slice has share it: 4 x 30 of 108.
    let streams = [one, two, free, driver.stream(1)];
    let start = driver.hold(&streams);
    streams.iter().for_each(|&stream| driver.launch(slow, stream));
    near(driver.seconds(start, driver.record(one)), 120.0 / 108.0, 0.001);
}

#[test]
fn host_functions_run_in_stream_order_and_hold_their_stream() {
    if role().is_none() {
        return run_alone(0.1, "slow = 5");
    }
    static CALLED: AtomicBool = AtomicBool::new(false);
    extern "C" fn function(data: *mut std::ffi::c_void) {
        assert_eq!(data.addr(), 77);
        std::thread::sleep(std::time::Duration::from_millis(50));
        CALLED.store(true, Ordering::Relaxed);
    }
    extern "C" fn callback(stream: u64, status: i32, data: *mut std::ffi::c_void) {
        assert!(stream != 0 && status == 0 && data.addr() == 77);
    }
    let driver = Driver::with_context();
    let (slow, stream) = (driver.function(c"slow"), driver.stream(0));
    driver.launch(slow, stream);
    good!(
        driver,
        cuLaunchHostFunc,
        stream,
        function as *const () as usize,
        77_u64
    );
    good!(
        driver,
        cuStreamAddCallback,
        stream,
        callback as *const () as usize,
        77_u64,
        0
    );
    assert!(!CALLED.load(Ordering::Relaxed));
    good!(driver, cuStreamSynchronize, stream);
    assert!(CALLED.load(Ordering::Relaxed));
    assert_eq!(
        call!(driver, cuLaunchHostFunc, stream, 0_u64, 0_u64),
        INVALID_VALUE
    );
}

#[test]
fn a_table_row_with_few_multiprocessors_is_as_fast_on_a_slice_that_has_them() {
    if role().is_none() {
        let _turn = turn();
        let bench = Bench::new(0.05);
        let (one, two) = (bench.slice(ONE_G), bench.slice(TWO_G));
        let costs = costs("slow = { seconds = 1, sms = 20 }");
        for (slice, expected) in [(&two, 1.0), (&one, 20.0 / 14.0)] {
            let program = bench.program("program").on(slice);
            let mut program = program
                .set("SIMGPU_COSTS", costs.path().to_str().unwrap())
                .start();
            near(program.hears().unwrap().parse().unwrap(), expected, 0.001);
            program.ends_well();
        }
        return;
    }
    let driver = Driver::with_context();
    let slow = driver.function(c"slow");
    let start = driver.hold(&[0]);
    driver.launch(slow, 0);
    tell(&driver.seconds(start, driver.record(0)).to_string());
}

/// Two programs, each told to go once both are ready; what they say in the end.
fn both(bench: &Bench, slices: [&simgpu::mig::ComputeInstanceInfo; 2], costs: &NamedTempFile) -> [f64; 2] {
    let path = costs.path().to_str().unwrap();
    let mut programs = slices.map(|slice| {
        bench
            .program("program")
            .on(slice)
            .set("SIMGPU_COSTS", path)
            .start()
    });
    programs
        .iter_mut()
        .for_each(|program| assert_eq!(program.hears().unwrap(), "ready"));
    programs.iter_mut().for_each(|program| program.go());
    let said = programs
        .each_mut()
        .map(|program| program.hears().unwrap().parse().unwrap());
    programs.into_iter().for_each(|program| _ = program.ends_well());
    said
}

#[test]
fn copies_of_two_slices_share_the_bus() {
    if role().is_none() {
        let _turn = turn();
        let bench = Bench::new(1.0);
        let slices = [&bench.slice(ONE_G), &bench.slice(TWO_G)];
        let costs = costs("");
        let mut alone = bench.program("program").on(slices[0]).start();
        alone.hears().unwrap();
        alone.go();
        let alone_seconds: f64 = alone.hears().unwrap().parse().unwrap();
        alone.ends_well();
        for seconds in both(&bench, slices, &costs) {
            near(seconds / alone_seconds, 2.0, 0.3);
        }
        return;
    }
    let driver = Driver::with_context();
    let (address, host) = (driver.allocate(512 * MIB), vec![0_u8; 512 << 20]);
    let stream = driver.stream(1);
    tell("ready");
    wait_for_go();
    let start = driver.record(stream);
    for _ in 0..48 {
        good!(
            driver,
            cuMemcpyHtoDAsync_v2,
            address,
            &host[0],
            host.len(),
            stream
        );
    }
    tell(&driver.seconds(start, driver.record(stream)).to_string());
}

#[test]
fn processes_on_one_slice_take_turns_and_on_two_do_not_disturb_each_other() {
    if role().is_none() {
        let _turn = turn();
        let bench = Bench::new(0.2);
        let slices = [&bench.slice(ONE_G), &bench.slice(ONE_G)];
        let costs = costs("slow = { seconds = 2, sms = 14 }");
        for seconds in both(&bench, slices, &costs) {
            near(seconds, 2.0, 0.001);
        }
        let together = both(&bench, [slices[0], slices[0]], &costs);
        // The later one starts a little after the other, and has the slice to itself at the end.
        assert!(
            together.iter().all(|&seconds| (3.2..4.2).contains(&seconds)),
            "{together:?}"
        );
        return;
    }
    let driver = Driver::with_context();
    let slow = driver.function(c"slow");
    tell("ready");
    wait_for_go();
    let start = driver.hold(&[0]);
    driver.launch(slow, 0);
    tell(&driver.seconds(start, driver.record(0)).to_string());
}

#[test]
fn a_process_killed_in_a_kernel_leaves_the_slice_idle() {
    if role().is_none() {
        let _turn = turn();
        let bench = Bench::new(1.0);
        let slice = bench.slice(ONE_G);
        let idle = bench.machine.watts(0);
        let costs = costs("slow = 1000");
        let program = bench
            .program("program")
            .on(&slice)
            .set("SIMGPU_COSTS", costs.path().to_str().unwrap());
        let mut program = program.start();
        program.hears().unwrap();
        assert!(bench.machine.watts(0) > idle);
        program.kill();
        assert_eq!(bench.used(&slice), 0);
        near(bench.machine.watts(0), idle, 1e-9);
        return;
    }
    let driver = Driver::with_context();
    driver.launch(driver.function(c"slow"), 0);
    tell("runs");
    wait_for_go();
}

#[test]
fn many_short_kernels_use_the_energy_of_one_long_one() {
    let Some(role) = role() else {
        let _turn = turn();
        let bench = Bench::of("a100-40gb", false, 0.2);
        let costs = costs("axpy = 0.001\nslow = 1");
        let busy_joules = ["one", "many"].map(|role| {
            let program = bench
                .program(role)
                .set("SIMGPU_COSTS", costs.path().to_str().unwrap());
            let mut program = program.start();
            program.hears().unwrap();
            let (machine, idle) = (&bench.machine, bench.machine.watts(0));
            let start = (machine.energy_joules(0), machine.sim_now());
            program.go();
            program.hears().unwrap();
            let joules = machine.energy_joules(0) - start.0 - idle * (machine.sim_now() - start.1);
            program.ends_well();
            joules
        });
        assert!(busy_joules[0] > 50.0, "{busy_joules:?}");
        near(busy_joules[1] / busy_joules[0], 1.0, 0.1);
        return;
    };
    let driver = Driver::with_context();
    let (name, times) = if role == "one" {
        (c"slow", 1)
    } else {
        (c"axpy", 1000)
    };
    let function = driver.function(name);
    tell("ready");
    wait_for_go();
    (0..times).for_each(|_| driver.launch(function, 0));
    good!(driver, cuCtxSynchronize);
    tell("done");
}
