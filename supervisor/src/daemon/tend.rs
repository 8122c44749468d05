//! One GPU's thread: it makes and removes its instances, and looks after it.
//!
//! A GPU that the driver calls lost, or that cannot be read several times in a row, is put aside: that is
//! told once, and from then on it is only looked at, at growing intervals, until it answers again. Then it
//! is read anew from the ground, since a reset has taken all instances, and told as [`Answer::Back`]. A MIG
//! mode that somebody has changed goes the same way.

use std::sync::Arc;
use std::time::{Duration, Instant};

use crossbeam::channel::{Receiver, RecvTimeoutError};

use super::gpus::{GpuError, PlacedGpu};
use super::machine::{Answer, Order, Trouble};
use crate::node::{Node, NodeError, soft};

/// How often it is looked whether instances came or went.
const SURVEY: Duration = Duration::from_secs(2);
/// So many looks in a row fail before a GPU that is not lost is put aside.
const PATIENCE: u32 = 3;
/// The longest pause between two looks at a GPU that is put aside. The first is [`SURVEY`], each next one
/// twice as long, until it has made or removed an instance again: one that answers and does nothing would be
/// put aside and taken back without end.
const LONGEST: Duration = Duration::from_secs(64);

/// A GPU to be tended.
#[derive(Clone, Debug)]
pub struct Tended {
    /// NVML's index.
    pub index: u32,
    /// It is cut into instances.
    pub cut: bool,
    /// It could not be read at the start.
    pub aside: bool,
    /// The driver's version.
    pub driver: String,
    /// Jobs share it while it is not cut.
    pub shared: bool,
}

/// See the [module](self).
pub(super) struct Tender {
    node: Arc<dyn Node>,
    gpu: Tended,
    /// Looks that failed in a row.
    failures: u32,
    pause: Duration,
    /// The next pause while it is put aside.
    penalty: Duration,
    looked: Instant,
}

impl Tender {
    pub(super) fn new(node: Arc<dyn Node>, gpu: Tended) -> Self {
        Self {
            node,
            gpu,
            failures: 0,
            pause: SURVEY,
            penalty: SURVEY,
            looked: Instant::now(),
        }
    }

    pub(super) fn run(mut self, orders: &Receiver<Order>, mut answer: impl FnMut(Answer)) {
        loop {
            let rest = self.pause.saturating_sub(self.looked.elapsed());
            match orders.recv_timeout(rest) {
                Ok(order) => self.carry_out(order, &mut answer),
                Err(RecvTimeoutError::Disconnected) => return,
                Err(RecvTimeoutError::Timeout) => {}
            }
            if self.looked.elapsed() >= self.pause {
                self.look(&mut answer);
            }
        }
    }

    pub(super) fn carry_out(&mut self, order: Order, answer: &mut impl FnMut(Answer)) {
        let index = self.gpu.index;
        let mut trouble = None;
        let mut note = |error: &NodeError| trouble = Trouble::of(error);
        let mut done = false;
        match order {
            Order::Create {
                slice,
                profile,
                placement,
                ..
            } => {
                let result = self
                    .node
                    .create(index, &profile, placement)
                    .inspect_err(&mut note);
                done = result.is_ok();
                answer(Answer::Created { slice, result });
            }
            Order::Destroy { slice, gi, .. } => {
                let result = self.node.destroy(index, gi).inspect_err(&mut note);
                done = result.is_ok();
                answer(Answer::Destroyed { slice, result });
            }
            Order::Occupants { job, gi, .. } => {
                let list = self.node.processes(index).inspect_err(&mut note);
                let pids = list.map(|list| {
                    let on_it = list.iter().filter(|process| gi.is_none() || process.gi == gi);
                    on_it.map(|process| process.pid).collect()
                });
                answer(Answer::Occupants { job, pids });
            }
            Order::Room { ours, .. } => {
                let room = soft::room(self.node.as_ref(), index, &ours).inspect_err(&mut note);
                answer(Answer::Room { gpu: index, room });
            }
            Order::Survey => self.look(answer),
            Order::Watch(_) | Order::Energy { .. } => {}
        }
        if done {
            self.penalty = SURVEY;
        }
        if let Some(trouble) = trouble {
            self.put_aside(trouble, answer);
        }
    }

    fn look(&mut self, answer: &mut impl FnMut(Answer)) {
        self.looked = Instant::now();
        if self.gpu.aside {
            match self.read() {
                Ok(gpu) => {
                    self.gpu.aside = false;
                    self.gpu.cut = gpu.gpu.mode.is_on();
                    self.pause = SURVEY;
                    self.failures = 0;
                    answer(Answer::Back(Box::new(gpu)));
                }
                Err(error) => {
                    tracing::debug!(gpu = self.gpu.index, %error, "still put aside");
                    self.pause = self.next_penalty();
                }
            }
            return;
        }
        match self.see() {
            Ok((true, _)) => self.put_aside(Trouble::ModeChanged, answer),
            Ok((false, seen)) => {
                self.failures = 0;
                seen.into_iter().for_each(answer);
            }
            Err(error) => {
                self.failures += 1;
                tracing::warn!(gpu = self.gpu.index, %error, failures = self.failures, "cannot be read");
                if let Some(trouble) = Trouble::of(&error) {
                    self.put_aside(trouble, answer);
                } else if self.failures >= PATIENCE {
                    self.put_aside(Trouble::Failing(error), answer);
                }
            }
        }
    }

    /// Whether the mode has changed, and the instances where there are any.
    fn see(&self) -> Result<(bool, Option<Answer>), NodeError> {
        let index = self.gpu.index;
        if self.node.gpu(index)?.mode.is_on() != self.gpu.cut {
            return Ok((true, None));
        }
        if !self.gpu.cut {
            return Ok((false, None));
        }
        let instances = self.node.instances(index)?;
        let processes = self.node.processes(index)?;
        let seen = Answer::Seen {
            gpu: index,
            instances,
            occupied: processes.iter().filter_map(|process| process.gi).collect(),
        };
        Ok((false, Some(seen)))
    }

    fn read(&self) -> Result<PlacedGpu, GpuError> {
        let gpu = self.node.gpu(self.gpu.index)?;
        PlacedGpu::read(self.node.as_ref(), gpu, &self.gpu.driver, self.gpu.shared)
    }

    fn next_penalty(&mut self) -> Duration {
        let pause = self.penalty;
        self.penalty = (pause * 2).min(LONGEST);
        pause
    }

    fn put_aside(&mut self, why: Trouble, answer: &mut impl FnMut(Answer)) {
        if std::mem::replace(&mut self.gpu.aside, true) {
            return;
        }
        self.pause = match why {
            // It is there: one look tells what it has become.
            Trouble::ModeChanged => Duration::ZERO,
            Trouble::Lost(_) | Trouble::NeedsReset(_) | Trouble::Failing(_) => self.next_penalty(),
        };
        self.looked = Instant::now();
        let gpu = self.gpu.index;
        answer(Answer::Aside { gpu, why });
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Mutex;

    use migm_shared::ids::Incarnation;

    use super::*;
    use crate::layout::{Placement, Profile};
    use crate::node::{Code, Gpu, Instance, Memory, MigMode, Process};

    /// GPUs that do what the test says; each of another kind.
    #[derive(Default)]
    struct Scripted {
        refuses: Mutex<Vec<(u32, Code)>>,
        off: Mutex<Vec<u32>>,
    }

    impl Scripted {
        fn check(&self, gpu: u32) -> Result<(), NodeError> {
            match self.refuses.lock().unwrap().iter().find(|one| one.0 == gpu) {
                Some(&(_, code)) => Err(NodeError::Nvml {
                    tried: format!("asking GPU {gpu}"),
                    code,
                }),
                None => Ok(()),
            }
        }

        fn set(&self, gpu: u32, code: Option<Code>) {
            let mut refuses = self.refuses.lock().unwrap();
            refuses.retain(|one| one.0 != gpu);
            refuses.extend(code.map(|code| (gpu, code)));
        }
    }

    impl Node for Scripted {
        fn gpus(&self) -> Result<Vec<Gpu>, NodeError> {
            (0..2).map(|index| self.gpu(index)).collect()
        }
        fn count(&self) -> Result<u32, NodeError> {
            Ok(2)
        }
        fn gpu(&self, index: u32) -> Result<Gpu, NodeError> {
            self.check(index)?;
            let is_off = self.off.lock().unwrap().contains(&index);
            Ok(Gpu {
                index,
                name: ["A100", "A30"][index as usize].into(),
                uuid: format!("GPU-{index}"),
                memory: 40 << 30,
                mode: if is_off { MigMode::Off } else { MigMode::On },
            })
        }
        fn driver(&self) -> Result<String, NodeError> {
            Ok("580.1".into())
        }
        fn profiles(&self, gpu: u32) -> Result<Vec<Profile>, NodeError> {
            use crate::layout::samples;
            Ok([samples::a100_40gb, samples::a30_24gb][gpu as usize]())
        }
        fn instances(&self, gpu: u32) -> Result<Vec<Instance>, NodeError> {
            self.check(gpu).map(|()| Vec::new())
        }
        fn create(&self, gpu: u32, profile: &Profile, placement: Placement) -> Result<Instance, NodeError> {
            self.check(gpu)?;
            Ok(Instance {
                gi: 7,
                profile: profile.id,
                placement,
                cis: vec![0],
                uuid: Some("MIG-7".into()),
                memory: None,
            })
        }
        fn destroy(&self, gpu: u32, _: u32) -> Result<(), NodeError> {
            self.check(gpu)
        }
        fn energy_mj(&self, _: u32) -> Result<Option<u64>, NodeError> {
            Ok(None)
        }
        fn memory(&self, _: u32) -> Result<Memory, NodeError> {
            Ok(Memory::default())
        }
        fn slice_memory(&self, _: &str) -> Result<Memory, NodeError> {
            Ok(Memory::default())
        }
        fn processes(&self, _: u32) -> Result<Vec<Process>, NodeError> {
            Ok(Vec::new())
        }
    }

    fn tender(node: &Arc<Scripted>, index: u32) -> Tender {
        let tended = Tended {
            index,
            cut: true,
            aside: false,
            driver: "580.1".into(),
            shared: false,
        };
        Tender::new(Arc::clone(node) as Arc<dyn Node>, tended)
    }

    /// What a look answers, in words.
    fn look(tender: &mut Tender) -> String {
        let mut said = Vec::new();
        tender.look(&mut |answer| {
            said.push(match answer {
                Answer::Seen { .. } => "seen".to_owned(),
                Answer::Back(gpu) => format!("back: {} of {} states", gpu.gpu.name, gpu.table.states()),
                Answer::Aside { gpu, why } => {
                    let why = format!("{why:?}");
                    format!("GPU {gpu}: {}", why.split('(').next().unwrap())
                }
                other => format!("{other:?}"),
            });
        });
        said.join(", ")
    }

    #[test]
    fn a_lost_gpu_is_put_aside_at_once_and_read_anew_when_it_answers() {
        let node = Arc::new(Scripted::default());
        let (mut lost, mut other) = (tender(&node, 1), tender(&node, 0));
        node.set(1, Some(Code::GPU_IS_LOST));
        assert_eq!(look(&mut lost), "GPU 1: Lost");
        assert_eq!(look(&mut lost), "");
        assert_eq!(look(&mut other), "seen");
        node.set(1, None);
        // Each GPU by its own kind.
        assert_eq!(look(&mut lost), "back: A30 of 26 states");
        assert_eq!(look(&mut lost), "seen");
    }

    #[test]
    fn a_gpu_that_cannot_be_read_once_is_not_put_aside() {
        let node = Arc::new(Scripted::default());
        let mut tender = tender(&node, 0);
        node.set(0, Some(Code::UNKNOWN));
        assert_eq!(
            (look(&mut tender), look(&mut tender)),
            (String::new(), String::new())
        );
        node.set(0, None);
        assert_eq!(look(&mut tender), "seen");
        node.set(0, Some(Code::UNKNOWN));
        assert_eq!(look(&mut tender), "");
        assert_eq!(look(&mut tender), "");
        assert_eq!(look(&mut tender), "GPU 0: Failing");
    }

    #[test]
    fn a_mode_that_somebody_changed_is_seen() {
        let node = Arc::new(Scripted::default());
        let mut tender = tender(&node, 0);
        node.off.lock().unwrap().push(0);
        assert_eq!(look(&mut tender), "GPU 0: ModeChanged");
        assert_eq!(tender.pause, Duration::ZERO);
        assert_eq!(look(&mut tender), "back: A100 of 1 states");
        assert_eq!(look(&mut tender), "");
        node.off.lock().unwrap().clear();
        assert_eq!(look(&mut tender), "GPU 0: ModeChanged");
        assert_eq!(look(&mut tender), "back: A100 of 298 states");
    }

    /// It answers every question, and refuses each change: without growing pauses it would come and go for ever.
    #[test]
    fn a_gpu_that_needs_a_reset_comes_back_at_growing_intervals() {
        let node = Arc::new(Scripted::default());
        let mut tender = tender(&node, 0);
        let mut pauses = Vec::new();
        for _ in 0..3 {
            node.set(0, Some(Code::RESET_REQUIRED));
            let mut said = Vec::new();
            let destroy = Order::Destroy {
                slice: Incarnation(1),
                gpu: 0,
                gi: 7,
            };
            tender.carry_out(destroy, &mut |answer| said.push(answer));
            assert!(matches!(
                said[..],
                [
                    Answer::Destroyed { result: Err(_), .. },
                    Answer::Aside {
                        why: Trouble::NeedsReset(_),
                        ..
                    }
                ]
            ));
            pauses.push(tender.pause);
            node.set(0, None);
            assert!(look(&mut tender).starts_with("back"));
        }
        assert_eq!(pauses, [SURVEY, SURVEY * 2, SURVEY * 4]);
    }
}
