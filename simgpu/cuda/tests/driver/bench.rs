//! Machines and the child processes on them.

use std::io::{BufRead, BufReader, Read, Write};
use std::path::PathBuf;
use std::process::{Child, Command, Stdio};

use simgpu::Machine;
use simgpu::files::Plan;
use simgpu::mig::ComputeInstanceInfo;

/// Profile ids of an A100-40GB.
pub const ONE_G: u32 = 19;
pub const TWO_G: u32 = 14;

pub const MIB: u64 = 1 << 20;
/// What a context costs unless told otherwise.
pub const CONTEXT: u64 = 434 * MIB;

/// Which part this process plays; `None` in the test itself.
pub fn role() -> Option<String> {
    std::env::var("SIMGPU_TEST_ROLE").ok()
}

/// The library as cargo built it for this test.
pub fn library() -> PathBuf {
    let test = std::env::current_exe().unwrap();
    test.parent().unwrap().join("libsimgpu_cuda.so")
}

/// A simulated machine that goes with the test.
pub struct Bench {
    pub machine: Machine,
}

impl Drop for Bench {
    fn drop(&mut self) {
        let _ = simgpu::files::remove(self.machine.id());
    }
}

impl Bench {
    /// One A100-40GB with MIG on; a simulated second takes `time_scale` seconds.
    pub fn new(time_scale: f64) -> Self {
        Self::of("a100-40gb", true, time_scale)
    }

    pub fn of(gpus: &str, mig: bool, time_scale: f64) -> Self {
        let plan = Plan::parse(gpus, mig, time_scale, simgpu::files::DEFAULT_DRIVER).unwrap();
        Self {
            machine: Machine::create(&plan).unwrap(),
        }
    }

    /// A slice with all its multiprocessors in one compute instance.
    pub fn slice(&self, profile: u32) -> ComputeInstanceInfo {
        let instance = self.machine.create_gpu_instance(0, profile, None).unwrap();
        let compute = match profile {
            ONE_G => 0,
            TWO_G => 1,
            other => panic!("profile {other}"),
        };
        self.machine
            .create_compute_instance(instance.reference, compute, None)
            .unwrap()
    }

    /// Bytes in use on a slice.
    pub fn used(&self, slice: &ComputeInstanceInfo) -> u64 {
        self.machine.memory(0, Some(slice.device.slice.unwrap().gi)).used
    }

    /// The calling test again, as a program on this machine.
    pub fn program(&self, role: &str) -> Program {
        let mut program = program(role);
        program.command.env("SIMGPU_ID", self.machine.id());
        program
    }
}

/// The calling test again, to its good end, on the smallest slice of a machine of its own.
pub fn on_slice(time_scale: f64) {
    let bench = Bench::new(time_scale);
    let slice = bench.slice(ONE_G);
    bench.program("program").on(&slice).succeeds();
}

/// The calling test again, without a machine.
pub fn program(role: &str) -> Program {
    let thread = std::thread::current();
    let mut command = Command::new(std::env::current_exe().unwrap());
    command.args([
        "--exact",
        thread.name().unwrap(),
        "--nocapture",
        "--test-threads=1",
    ]);
    command
        .env("SIMGPU_TEST_ROLE", role)
        .env_remove("CUDA_VISIBLE_DEVICES")
        .env_remove("SIMGPU_ID");
    command
        .env_remove("SIMGPU_COSTS")
        .env("SIMGPU_CONTEXT_SECONDS", "0");
    command
        .stdin(Stdio::piped())
        .stdout(Stdio::piped())
        .stderr(Stdio::piped());
    Program { command }
}

/// A program that has not started.
pub struct Program {
    command: Command,
}

impl Program {
    pub fn set(mut self, name: &str, value: &str) -> Self {
        self.command.env(name, value);
        self
    }

    pub fn on(self, slice: &ComputeInstanceInfo) -> Self {
        let uuid = simgpu::identity::uuid_text(slice.uuid);
        self.set("CUDA_VISIBLE_DEVICES", &format!("MIG-{uuid}"))
    }

    /// Runs it to its end, which must be good; answers its standard error.
    pub fn succeeds(self) -> String {
        let running = self.start();
        running.ends_well()
    }

    pub fn start(mut self) -> Running {
        let mut child = self.command.spawn().unwrap();
        let lines = BufReader::new(child.stdout.take().unwrap());
        Running { child, lines }
    }
}

/// A program that runs. It is killed if the test ends before it.
pub struct Running {
    child: Child,
    lines: BufReader<std::process::ChildStdout>,
}

impl Drop for Running {
    fn drop(&mut self) {
        let _ = self.child.kill();
        let _ = self.child.wait();
    }
}

impl Running {
    /// What the program said by [`tell`]; `None` if it ended first.
    pub fn hears(&mut self) -> Option<String> {
        loop {
            let mut line = String::new();
            if self.lines.read_line(&mut line).unwrap() == 0 {
                return None;
            }
            if let Some((_, said)) = line.split_once("told: ") {
                return Some(said.trim_end().to_owned());
            }
        }
    }

    /// Lets the program go on from its [`wait_for_go`].
    pub fn go(&mut self) {
        self.child.stdin.as_mut().unwrap().write_all(b"go\n").unwrap();
    }

    pub fn pid(&self) -> u32 {
        self.child.id()
    }

    pub fn kill(&mut self) {
        self.child.kill().unwrap();
        self.child.wait().unwrap();
    }

    pub fn ends_well(mut self) -> String {
        drop(self.child.stdin.take());
        let (mut out, mut err) = (String::new(), String::new());
        self.lines.read_to_string(&mut out).unwrap();
        self.child
            .stderr
            .take()
            .unwrap()
            .read_to_string(&mut err)
            .unwrap();
        let status = self.child.wait().unwrap();
        // A program that found no test to play would succeed as well.
        assert!(
            status.success() && out.contains("1 passed"),
            "{status}\n{out}\n{err}"
        );
        err
    }
}

/// Says something to the test.
pub fn tell(what: &str) {
    println!("told: {what}");
}

/// Waits until the test says go.
pub fn wait_for_go() {
    let mut line = String::new();
    std::io::stdin().read_line(&mut line).unwrap();
}
