//! What jobs that share a GPU may have of it, from NVML alone.
//!
//! Three figures, read together: what the GPU has besides what the driver keeps for itself, what is in use, and what
//! each process uses. What our jobs use is theirs already; the rest in use is others', or what the driver keeps besides.
//! An allocation between two of the calls would count for nobody or twice, so the sum is read before and after.

use super::{Memory, Node, NodeError, Process};

/// How often it is read again when memory came and went meanwhile.
const TRIES: usize = 5;

pub use crate::schedule::soft::Room;

/// Whose memory is leased.
#[derive(Clone, Debug, Default, Eq, PartialEq)]
pub struct Ours {
    /// Processes of our jobs on the GPU.
    pub pids: Vec<u32>,
    /// Bytes that these jobs have counted themselves: used where NVML lists none of their processes, as in a container,
    /// whose processes have other numbers outside.
    pub charged: u64,
}

/// What leases on a GPU may have together.
///
/// # Errors
/// The driver refused.
pub fn room(node: &dyn Node, gpu: u32, ours: &Ours) -> Result<Room, NodeError> {
    let mut before = node.memory(gpu)?;
    let mut listed = node.processes(gpu)?;
    for _ in 1..TRIES {
        let after = node.memory(gpu)?;
        if after.used == before.used {
            break;
        }
        before = after;
        listed = node.processes(gpu)?;
    }
    Ok(room_of(before, &listed, ours))
}

fn room_of(memory: Memory, listed: &[Process], ours: &Ours) -> Room {
    let is_ours = |process: &&Process| ours.pids.contains(&process.pid);
    let sum = |of: &dyn Fn(&&Process) -> bool| -> Option<u64> {
        listed.iter().filter(of).map(|process| process.used).sum()
    };
    let mine = match sum(&is_ours) {
        Some(bytes) if listed.iter().any(|process| is_ours(&process)) => bytes,
        _ => ours.charged,
    };
    let held = memory.used.saturating_sub(mine);
    let others = sum(&|process| !is_ours(process)).unwrap_or(0).min(held);
    let usable = memory.total.saturating_sub(memory.reserved);
    Room {
        now: usable.saturating_sub(held),
        most: usable.saturating_sub(held - others),
    }
}

/// Bytes that these processes use, contexts included; `None` where NVML does not tell for each, or lists none.
///
/// # Errors
/// The driver refused.
pub fn used_by(node: &dyn Node, gpu: u32, pids: &[u32]) -> Result<Option<u64>, NodeError> {
    let listed = node.processes(gpu)?;
    let mut mine = listed
        .iter()
        .filter(|process| pids.contains(&process.pid))
        .peekable();
    if mine.peek().is_none() {
        return Ok(None);
    }
    Ok(mine.map(|process| process.used).sum())
}

#[cfg(test)]
mod tests {
    use super::*;

    const fn process(pid: u32, used: Option<u64>) -> Process {
        Process { pid, used, gi: None }
    }

    const MEMORY: Memory = Memory {
        used: 30,
        total: 110,
        reserved: 10,
    };

    fn ours(pids: &[u32], charged: u64) -> Ours {
        Ours {
            pids: pids.to_vec(),
            charged,
        }
    }

    #[test]
    fn others_and_what_the_driver_keeps_are_taken_off() {
        let listed = [process(1, Some(12)), process(2, Some(8)), process(3, Some(6))];
        let room = room_of(MEMORY, &listed, &ours(&[1, 2], 0));
        // 6 are another's, and 4 nobody's.
        assert_eq!(room, Room { now: 90, most: 96 });
    }

    #[test]
    fn a_process_that_is_counted_and_not_listed_is_still_ours() {
        let room = room_of(MEMORY, &[process(77, Some(30))], &ours(&[1], 20));
        assert_eq!(room, Room { now: 90, most: 100 });
    }

    #[test]
    fn a_process_without_a_figure_leaves_the_jobs_own_count() {
        let listed = [process(1, None), process(3, Some(6))];
        let room = room_of(MEMORY, &listed, &ours(&[1], 20));
        assert_eq!(room, Room { now: 90, most: 96 });
    }

    #[test]
    fn a_full_gpu_has_no_room_and_no_figure_wraps() {
        let full = Memory {
            used: 100,
            total: 110,
            reserved: 10,
        };
        let room = room_of(full, &[], &ours(&[], 0));
        assert_eq!(room, Room { now: 0, most: 0 });
        let room = room_of(
            MEMORY,
            &[process(1, Some(50)), process(2, Some(90))],
            &ours(&[1], 0),
        );
        assert_eq!(room.now, 100);
    }
}
