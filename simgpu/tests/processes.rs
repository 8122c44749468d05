//! Real processes on one simulated machine.
#![expect(clippy::unwrap_used, reason = "the helpers of tests are tests")]

use std::io::{BufRead, BufReader, Write};
use std::process::{Child, ChildStdin, ChildStdout, Command, Stdio};
use std::time::{Duration, Instant};

use simgpu::files::{DEFAULT_DRIVER, Plan, remove};
use simgpu::mig::{Activation, Refusal};
use simgpu::{AttachError, DeviceRef, Machine, MemoryInfo};

const GIB: u64 = 1 << 30;

/// A machine that goes with the test.
struct Bench(Machine);

impl Bench {
    fn new(gpus: &str, mig: bool, time_scale: f64) -> Self {
        Self(Machine::create(&Plan::parse(gpus, mig, time_scale, DEFAULT_DRIVER).unwrap()).unwrap())
    }

    fn slice(&self, profile: u32, compute: u32) -> DeviceRef {
        let instance = self.0.create_gpu_instance(0, profile, None).unwrap();
        self.0
            .create_compute_instance(instance.reference, compute, None)
            .unwrap()
            .device
    }

    fn worker(&self) -> Worker {
        self.worker_on("0")
    }

    fn worker_on(&self, gpu: &str) -> Worker {
        let mut command = Command::new(std::env::current_exe().unwrap());
        command
            .args(["--exact", "worker", "--nocapture"])
            .env("SIMGPU_ID", self.0.id())
            .env("TEST_WORKER", gpu);
        let mut child = command
            .stdin(Stdio::piped())
            .stdout(Stdio::piped())
            .spawn()
            .unwrap();
        let (stdin, stdout) = (child.stdin.take().unwrap(), child.stdout.take().unwrap());
        let mut worker = Worker {
            child,
            stdin,
            stdout: BufReader::new(stdout),
        };
        assert_eq!(worker.answer(), "attached");
        worker
    }
}

impl Drop for Bench {
    fn drop(&mut self) {
        remove(self.0.id()).unwrap();
    }
}

/// A process with a place on a GPU's first device, told what to do line by line.
struct Worker {
    child: Child,
    stdin: ChildStdin,
    stdout: BufReader<ChildStdout>,
}

impl Worker {
    fn answer(&mut self) -> String {
        let mut line = String::new();
        loop {
            line.clear();
            assert_ne!(self.stdout.read_line(&mut line).unwrap(), 0, "the worker ended");
            // The test harness writes on the same stream.
            if let Some((_, answer)) = line.split_once("answer: ") {
                return answer.trim().to_owned();
            }
        }
    }

    fn tell(&mut self, line: &str) -> String {
        writeln!(self.stdin, "{line}").unwrap();
        self.answer()
    }

    /// By SIGKILL.
    fn kill(self) {
        drop(self);
    }
}

impl Drop for Worker {
    fn drop(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }
}

/// Not a test by itself: what [`Bench::worker`] runs.
#[test]
fn worker() {
    let Ok(gpu) = std::env::var("TEST_WORKER") else {
        return;
    };
    let machine = Machine::open().unwrap();
    let tenant = machine.attach(machine.visible(Some(&gpu))[0], 0).unwrap();
    println!("answer: attached");
    for line in std::io::stdin().lines() {
        let line = line.unwrap();
        match line.split_once(' ').unwrap_or((&line, "0")) {
            ("charge", bytes) => match tenant.charge(bytes.parse().unwrap()) {
                Ok(()) => println!("answer: charged"),
                Err(refused) => println!("answer: {refused}"),
            },
            ("kernel", sms) => {
                let _running = tenant.kernel_begin(sms.parse().unwrap());
                println!("answer: running");
            }
            ("copy", _) => {
                let _running = tenant.copy_begin();
                println!("answer: copying");
            }
            ("churn", seed) => {
                println!("answer: churning");
                churn(&machine, seed.parse().unwrap());
            }
            _ => panic!("{line}"),
        }
    }
}

/// Makes and unmakes slices and uses them, for ever, in an order drawn from `seed`.
fn churn(machine: &Machine, mut seed: u64) {
    let mut draw = move |below: u64| {
        seed = seed
            .wrapping_mul(6_364_136_223_846_793_005)
            .wrapping_add(1_442_695_040_888_963_407);
        (seed >> 33) % below
    };
    loop {
        let profile = [19, 14, 9, 5, 15, 20][usize::try_from(draw(6)).unwrap()];
        if let Ok(instance) = machine.create_gpu_instance(0, profile, None) {
            let compute = if profile == 15 { 7 } else { 0 };
            let _ = machine.create_compute_instance(instance.reference, compute, None);
        }
        for device in machine.mig_devices(0).into_iter().flatten() {
            if let Ok(tenant) = machine.attach(device.device, draw(1000)) {
                let _ = tenant.charge(draw(1 << 33));
                let kernel = tenant.kernel_begin(14);
                let copy = tenant.copy_begin();
                tenant.copy_end(copy);
                tenant.kernel_end(kernel);
            }
            if draw(2) == 0 {
                let _ = machine.destroy_compute_instance(device.device);
                let _ = machine.destroy_gpu_instance(device.parent.reference);
            }
        }
    }
}

#[test]
fn killed_at_any_instant_the_state_stays_right() {
    let bench = Bench::new("a100-40gb:2", true, 0.0001);
    let machine = &bench.0;
    // The workers' own place, on the other GPU.
    let instance = machine.create_gpu_instance(1, 0, None).unwrap();
    machine
        .create_compute_instance(instance.reference, 4, None)
        .unwrap();
    let mut joules = 0.0;
    for round in 0..60 {
        let mut workers = [bench.worker_on("1"), bench.worker_on("1")];
        for (worker, seed) in workers.iter_mut().zip([round, round + 1000]) {
            worker.tell(&format!("churn {seed}"));
        }
        std::thread::sleep(Duration::from_micros(300 * (round % 20)));
        drop(workers);
        assert_eq!(machine.processes(0), []);
        assert_eq!(machine.memory(0, None).used, 0);
        let mut taken = 0_u32;
        for info in machine.gpu_instances(0).unwrap() {
            let units = ((1 << info.profile.size) - 1) << info.start;
            assert_eq!(taken & units, 0, "round {round}: two instances in one place");
            taken |= units;
        }
        let later = machine.energy_joules(0);
        assert!(
            later >= joules,
            "round {round}: energy went back from {joules} to {later}"
        );
        joules = later;
    }
    for info in machine.gpu_instances(0).unwrap() {
        for compute in machine.compute_instances(info.reference).unwrap() {
            machine.destroy_compute_instance(compute.device).unwrap();
        }
        machine.destroy_gpu_instance(info.reference).unwrap();
    }
    assert!(machine.create_gpu_instance(0, 0, None).is_ok());
}

fn memory(machine: &Machine, gi: u32) -> MemoryInfo {
    machine.memory(0, Some(gi))
}

#[test]
fn sigkill_gives_memory_kernels_and_copies_back() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let device = bench.slice(9, 2);
    let gi = device.slice.unwrap().gi;
    let idle = bench.0.watts(0);
    let mut worker = bench.worker();
    worker.tell("charge 1000000000");
    worker.tell("kernel 42");
    worker.tell("copy");
    assert_eq!(memory(&bench.0, gi).used, 1_000_000_000);
    assert!(bench.0.watts(0) > idle + 100.0);
    worker.kill();
    assert_eq!(memory(&bench.0, gi).used, 0);
    assert!((bench.0.watts(0) - idle).abs() < 1e-9);
    assert_eq!(bench.0.processes(0), []);
}

#[test]
fn a_refusal_looks_for_the_dead_first() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let device = bench.slice(19, 0);
    let tenant = bench.0.attach(device, 0).unwrap();
    let total = tenant.memory().total;
    let mut worker = bench.worker();
    assert_eq!(worker.tell(&format!("charge {total}")), "charged");
    assert!(tenant.charge(1).is_err());
    worker.kill();
    assert_eq!(tenant.charge(total), Ok(()));
}

#[test]
fn two_processes_share_one_budget() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let device = bench.slice(14, 1);
    let (mut one, mut two) = (bench.worker(), bench.worker());
    let total = 9_984 << 20;
    assert_eq!(one.tell(&format!("charge {}", 6 * GIB)), "charged");
    let free = total - 6 * GIB;
    let asked = free + 1;
    assert_eq!(
        two.tell(&format!("charge {asked}")),
        format!("{asked} bytes asked, {free} of {total} free")
    );
    assert_eq!(two.tell(&format!("charge {free}")), "charged");
    assert_eq!(
        memory(&bench.0, device.slice.unwrap().gi),
        MemoryInfo {
            total,
            used: total,
            free: 0
        }
    );
    let mut pids = [one.child.id(), two.child.id()];
    pids.sort_unstable();
    assert_eq!(
        bench
            .0
            .processes(0)
            .iter()
            .map(|using| using.pid)
            .collect::<Vec<_>>(),
        pids
    );
}

#[test]
fn another_slice_is_another_budget() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let (one, two) = (bench.slice(19, 0), bench.slice(19, 0));
    let one = bench.0.attach(one, 0).unwrap();
    let two = bench.0.attach(two, 0).unwrap();
    one.charge(one.memory().total).unwrap();
    assert_eq!(two.memory().used, 0);
    two.charge(two.memory().total).unwrap();
}

#[test]
fn compute_instances_of_one_gpu_instance_share_its_memory() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let instance = bench.0.create_gpu_instance(0, 9, None).unwrap().reference;
    let one = bench.0.create_compute_instance(instance, 0, None).unwrap().device;
    let two = bench.0.create_compute_instance(instance, 0, None).unwrap().device;
    let (one, two) = (
        bench.0.attach(one, GIB).unwrap(),
        bench.0.attach(two, GIB).unwrap(),
    );
    assert_eq!(one.memory().used, 2 * GIB);
    assert_eq!(
        two.charge(one.memory().free + 1).unwrap_err().free,
        (20_096 << 20) - 2 * GIB
    );
}

#[test]
fn leaving_gives_everything_back() {
    let bench = Bench::new("a30-24gb", false, 1.0);
    let device = bench.0.visible(None)[0];
    let tenant = bench.0.attach(device, GIB).unwrap();
    tenant.charge(GIB).unwrap();
    tenant.release(GIB / 2);
    assert_eq!(bench.0.memory(0, None).used, GIB + GIB / 2);
    drop(tenant);
    assert_eq!(bench.0.memory(0, None).used, 0);
}

#[test]
fn a_forked_child_owns_nothing_of_its_parent() {
    let bench = Bench::new("a30-24gb", false, 1.0);
    let tenant = bench.0.attach(bench.0.visible(None)[0], GIB).unwrap();
    tenant.charge(GIB).unwrap();
    // SAFETY: the child only makes the calls below, none of which another thread's lock can hold up, and exits.
    let child = unsafe { libc::fork() };
    if child == 0 {
        tenant.release(GIB);
        let refused = tenant.charge(1).is_err();
        drop(tenant);
        // SAFETY: ends the child at once.
        unsafe { libc::_exit(if refused { 0 } else { 1 }) };
    }
    let mut status = 1;
    // SAFETY: `child` is ours and `status` is writable.
    unsafe { libc::waitpid(child, &raw mut status, 0) };
    assert_eq!(status, 0, "the child could charge its parent's place");
    assert_eq!(bench.0.memory(0, None).used, 2 * GIB);
}

#[test]
fn a_context_that_does_not_fit_is_out_of_memory() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let device = bench.slice(19, 0);
    let total = bench.0.device(device).memory_total;
    match bench.0.attach(device, total + 1) {
        Err(AttachError::OutOfMemory(refused)) => assert_eq!((refused.free, refused.total), (total, total)),
        other => panic!("{other:?}"),
    }
    assert_eq!(bench.0.processes(0), []);
}

#[test]
fn a_reference_to_a_destroyed_slice_stays_dead() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let device = bench.slice(9, 2);
    bench.0.destroy_compute_instance(device).unwrap();
    let parent = bench.0.gpu_instances(0).unwrap()[0].reference;
    let again = bench.0.create_compute_instance(parent, 2, None).unwrap();
    assert_ne!(again.device, device);
    assert!(matches!(bench.0.attach(device, 0), Err(AttachError::DeviceGone)));
    assert!(bench.0.attach(again.device, 0).is_ok());
    let whole = DeviceRef { gpu: 0, slice: None };
    assert!(matches!(bench.0.attach(whole, 0), Err(AttachError::DeviceGone)));
}

#[test]
fn a_mode_change_waits_for_processes() {
    let bench = Bench::new("h100-80gb", false, 0.01);
    let worker = bench.worker();
    assert_eq!(bench.0.set_mig_mode(0, true), Ok(Activation::InUse));
    assert_eq!(bench.0.mig_mode(0), Ok((false, true)));
    assert_eq!(bench.0.reset(0), Err(Refusal::InUse));
    worker.kill();
    assert_eq!(bench.0.reset(0), Ok(()));
    assert_eq!(bench.0.mig_mode(0), Ok((true, true)));
}

#[test]
fn a_configuration_change_does_not_hold_up_accounting() {
    let bench = Bench::new("a100-40gb", true, 10.0);
    let start = Instant::now();
    let created = std::thread::scope(|scope| {
        let creation = scope.spawn(|| bench.0.create_gpu_instance(0, 19, None).map(|_| start.elapsed()));
        std::thread::sleep(Duration::from_millis(50));
        // The creation takes 40 ms of simulated time, 400 ms here.
        assert_eq!(bench.0.memory(0, None).used, 0);
        assert!(
            start.elapsed() < Duration::from_millis(300),
            "{:?}",
            start.elapsed()
        );
        assert_eq!(bench.0.gpu_instances(0).unwrap().len(), 0);
        creation.join().unwrap().unwrap()
    });
    assert!(created >= Duration::from_millis(400), "{created:?}");
}

#[test]
fn creations_on_one_gpu_are_serialised_and_all_succeed() {
    let bench = Bench::new("a100-40gb", true, 0.1);
    let start = Instant::now();
    std::thread::scope(|scope| {
        for _ in 0..7 {
            scope.spawn(|| bench.0.create_gpu_instance(0, 19, None).unwrap());
        }
    });
    assert!(
        start.elapsed() >= Duration::from_millis(28),
        "{:?}",
        start.elapsed()
    );
    let ids: Vec<u32> = bench
        .0
        .gpu_instances(0)
        .unwrap()
        .iter()
        .map(|info| info.reference.gi)
        .collect();
    assert_eq!(ids, [7, 8, 9, 10, 11, 12, 13]);
}

#[test]
fn copies_of_all_slices_share_the_bus() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let (one, two) = (bench.slice(19, 0), bench.slice(19, 0));
    let (one, two) = (bench.0.attach(one, 0).unwrap(), bench.0.attach(two, 0).unwrap());
    let first = one.copy_begin();
    assert_eq!(one.copy_bandwidth(), 25e9);
    let second = two.copy_begin();
    assert_eq!(one.copy_bandwidth(), 12.5e9);
    one.copy_end(first);
    assert_eq!(two.copy_bandwidth(), 25e9);
    two.copy_end(second);
}

#[test]
fn kernels_share_the_multiprocessors_of_their_slice_only() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let (one, other) = (bench.slice(14, 1), bench.slice(14, 1));
    let tenant = bench.0.attach(one, 0).unwrap();
    let elsewhere = bench.0.attach(other, 0).unwrap();
    let _far = elsewhere.kernel_begin(1000);
    let first = tenant.kernel_begin(14);
    assert_eq!(tenant.sm_share(14), 1.0);
    let second = tenant.kernel_begin(42);
    assert_eq!(tenant.sm_share(14), 0.5);
    tenant.kernel_end(second);
    assert_eq!(tenant.sm_share(14), 1.0);
    // A second context of the same process runs beside the first.
    let second_context = bench.0.attach(one, 0).unwrap();
    let third = second_context.kernel_begin(42);
    assert_eq!(tenant.sm_share(14), 0.5);
    second_context.kernel_end(third);
    tenant.kernel_end(first);
}

#[test]
fn processes_on_one_slice_take_turns() {
    let bench = Bench::new("a100-40gb", true, 0.01);
    let device = bench.slice(14, 1);
    let tenant = bench.0.attach(device, 0).unwrap();
    let mut worker = bench.worker();
    worker.tell("kernel 1");
    let mark = tenant.kernel_begin(14);
    assert_eq!(tenant.sm_share(14), 0.5);
    tenant.kernel_end(mark);
    worker.kill();
}

#[test]
fn energy_grows_with_simulated_time() {
    let bench = Bench::new("a100-40gb", true, 0.001);
    let at = bench.0.sim_now();
    let before = bench.0.energy_joules(0);
    std::thread::sleep(Duration::from_millis(50));
    let joules = bench.0.energy_joules(0) - before;
    let seconds = bench.0.sim_now() - at;
    assert!(seconds >= 50.0, "{seconds}");
    assert!(
        joules >= 50.0 * 55.0 && joules <= seconds * 55.0 * 1.000_001,
        "{joules} J in {seconds} s"
    );
}
