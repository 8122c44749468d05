//! How often the driver is asked.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use migm_shared::ids::Incarnation;
use migm_supervisor::daemon::machine::{Answer, Machine, Order};
use migm_supervisor::daemon::tend::Tended;
use migm_supervisor::layout::{Placement, Profile};
use migm_supervisor::node::{Gpu, Instance, Memory, MigMode, Node, NodeError, Nvml, Process};

use crate::daemon::{Daemon, PATIENCE};
use crate::support::eventually;

/// Counts what is asked of the machine.
struct Counting {
    node: Nvml,
    steps: AtomicUsize,
    reads: AtomicUsize,
}

impl Counting {
    fn read<T>(&self, answer: T) -> T {
        self.reads.fetch_add(1, Ordering::SeqCst);
        answer
    }
}

impl Node for Counting {
    fn gpus(&self) -> Result<Vec<Gpu>, NodeError> {
        self.read(self.node.gpus())
    }
    fn gpu(&self, index: u32) -> Result<Gpu, NodeError> {
        self.read(self.node.gpu(index))
    }
    fn driver(&self) -> Result<String, NodeError> {
        self.read(self.node.driver())
    }
    fn profiles(&self, gpu: u32) -> Result<Vec<Profile>, NodeError> {
        self.read(self.node.profiles(gpu))
    }
    fn instances(&self, gpu: u32) -> Result<Vec<Instance>, NodeError> {
        self.read(self.node.instances(gpu))
    }
    fn create(&self, gpu: u32, profile: &Profile, placement: Placement) -> Result<Instance, NodeError> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.node.create(gpu, profile, placement)
    }
    fn destroy(&self, gpu: u32, gi: u32) -> Result<(), NodeError> {
        self.steps.fetch_add(1, Ordering::SeqCst);
        self.node.destroy(gpu, gi)
    }
    fn energy_mj(&self, gpu: u32) -> Result<Option<u64>, NodeError> {
        self.read(self.node.energy_mj(gpu))
    }
    fn memory(&self, gpu: u32) -> Result<Memory, NodeError> {
        self.read(self.node.memory(gpu))
    }
    fn slice_memory(&self, uuid: &str) -> Result<Memory, NodeError> {
        self.read(self.node.slice_memory(uuid))
    }
    fn processes(&self, gpu: u32) -> Result<Vec<Process>, NodeError> {
        self.read(self.node.processes(gpu))
    }
}

/// Beside its two changes a step reads back, and looks up what it has no handle of.
#[test]
fn a_step_asks_the_driver_for_its_two_changes_and_what_it_reads_back() {
    let daemon = Daemon::tightest("a100-40gb");
    let driver = daemon.driver();
    let calls = || (driver.node.calls().changes(), driver.node.calls().reads());
    let since = |before: (u64, u64)| (calls().0 - before.0, calls().1 - before.1);
    // The kinds of compute instance are asked for once.
    let (kind, place) = driver.slot(0, "2g.10gb", 4);
    let made = driver.node.create(0, &kind, place).unwrap();
    driver.node.destroy(0, made.gi).unwrap();
    for others in 0..4_u32 {
        let before = calls();
        let made = driver.node.create(0, &kind, place).unwrap();
        let created = since(before);
        assert!(made.uuid.is_some() && made.memory.is_some(), "{made:?}");
        // Both instances made and read back; the GPU, the number of MIG devices, the UUID and memory of this one,
        // and three for each that stands before it and for itself.
        let walked = 3 * u64::from(others + 1);
        assert_eq!(created.0, 2);
        assert!(created.1 <= 2 + 4 + walked, "{created:?} beside {others}");
        let before = calls();
        driver.node.destroy(0, made.gi).unwrap();
        // The GPU and both instances looked up, and one look that it is gone.
        assert_eq!(since(before), (2, 4), "beside {others}");
        driver.make(0, "1g.5gb", others);
    }
}

/// Three steps are three calls, each with its own reading back inside, and nothing else is asked meanwhile.
#[test]
fn a_reshape_asks_no_more_of_the_driver_than_its_steps() {
    let daemon = Daemon::tightest("a100-40gb");
    let driver = daemon.driver();
    let (mode, small) = (
        driver.node.gpu(0).unwrap().mode,
        [4, 5].map(|at| driver.make(0, "1g.5gb", at)),
    );
    assert_eq!(mode, MigMode::On);
    let (kind, place) = driver.slot(0, "2g.10gb", 4);
    let counting = Arc::new(Counting {
        node: driver.gpu.node().unwrap(),
        steps: AtomicUsize::new(0),
        reads: AtomicUsize::new(0),
    });
    let tended = Tended {
        index: 0,
        cut: true,
        aside: false,
        driver: "580.82.07".into(),
        shared: false,
    };
    let node: Arc<dyn Node> = Arc::clone(&counting) as _;
    let machine = Machine::start(node, vec![tended], Duration::from_secs(600), || {}).unwrap();
    for (number, one) in (1..).zip(&small) {
        let slice = Incarnation(number);
        machine.order(Order::Destroy {
            slice,
            gpu: 0,
            gi: one.gi,
        });
    }
    machine.order(Order::Create {
        slice: Incarnation(3),
        gpu: 0,
        profile: kind,
        placement: place,
    });
    let mut answers = Vec::new();
    eventually("three answers", PATIENCE, || {
        answers.extend(
            machine
                .answers()
                .filter(|answer| !matches!(answer, Answer::Seen { .. })),
        );
        (answers.len() == 3).then_some(())
    });
    let steps = counting.steps.load(Ordering::SeqCst);
    let reads = counting.reads.load(Ordering::SeqCst);
    assert_eq!(steps, 3);
    assert!(reads <= steps, "{reads} readings for {steps} steps");
    assert!(matches!(&answers[2], Answer::Created { result: Ok(made), .. } if made.placement == place));
    drop(machine);
    assert_eq!(driver.node.instances(0).unwrap().len(), 1);
}
