//! The gate that each hook passes: nested calls are forwarded unseen, the real call always happens exactly
//! once, and a fault of ours never reaches the program.

use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{OUT_OF_MEMORY, SUCCESS, Status};
use crate::attach::Attachment;
use crate::cap;
use crate::ledger::{self, Grant, Key};
use crate::thread::Thread;

/// The outermost hook on this thread. A driver that calls its own exported functions, and another hooker
/// that calls us from within our real call, count once.
struct Outermost<'a>(&'a Thread);

impl<'a> Outermost<'a> {
    #[inline]
    fn enter(thread: &'a Thread) -> Option<Self> {
        (!thread.inside.replace(true)).then_some(Self(thread))
    }
}

impl Drop for Outermost<'_> {
    #[inline]
    fn drop(&mut self) {
        self.0.inside.set(false);
    }
}

/// Runs our own part. What it panics with is dropped: the program goes on without that count.
#[inline]
pub fn ours<T>(part: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(part)).ok()
}

/// An allocation: the real call first, then its record. `asked` tells how much is wanted, for a refusal or a
/// [cap]; `granted` reads what the driver has handed out, `None` where there is nothing to count.
#[inline]
pub fn allocate(
    real: impl FnOnce() -> Status,
    asked: impl Fn() -> u64,
    granted: impl FnOnce() -> Option<Grant>,
) -> Status {
    allocate_at_most(real, &asked, &asked, granted)
}

/// An allocation that may turn out larger than what is asked for, up to `most`: a cap must have room for that.
#[inline]
pub fn allocate_at_most(
    real: impl FnOnce() -> Status,
    asked: impl FnOnce() -> u64,
    most: impl FnOnce() -> u64,
    granted: impl FnOnce() -> Option<Grant>,
) -> Status {
    let claim = match claim(Attachment::current_device, most) {
        Ok(claim) => claim,
        Err(cap::Refused) => return OUT_OF_MEMORY,
    };
    let status = allocate_uncapped(real, asked, granted);
    drop(claim);
    status
}

/// An allocation of memory that no cap is on.
#[inline]
pub fn allocate_uncapped(
    real: impl FnOnce() -> Status,
    asked: impl FnOnce() -> u64,
    granted: impl FnOnce() -> Option<Grant>,
) -> Status {
    Thread::with(|thread| {
        let Some(_outermost) = Outermost::enter(thread) else {
            return real();
        };
        let status = real();
        if status == SUCCESS {
            ours(|| granted().map(|grant| ledger::record(thread, grant)));
        } else if status == OUT_OF_MEMORY {
            ours(|| ledger::refused(asked()));
        }
        status
    })
}

/// Physical memory on the device that `device` names: as an allocation, but that `then` looks at the answer.
pub fn create<T>(
    device: impl FnOnce(&Attachment) -> Option<usize>,
    asked: u64,
    real: impl FnOnce() -> Status,
    then: impl FnOnce(Status) -> T,
) -> Status {
    let claim = match claim(device, || asked) {
        Ok(claim) => claim,
        Err(cap::Refused) => return OUT_OF_MEMORY,
    };
    let status = answered(real, then);
    drop(claim);
    status
}

/// What the job's cap, if there is one, sets aside for a call that asks for device memory; to be dropped when the
/// call is made and recorded. A call from within another hook does not ask again.
#[inline(always)]
fn claim(
    device: impl FnOnce(&Attachment) -> Option<usize>,
    asked: impl FnOnce() -> u64,
) -> Result<Option<cap::Claim>, cap::Refused> {
    if cap::is_set() {
        claim_capped(device, asked())
    } else {
        Ok(None)
    }
}

#[cold]
fn claim_capped(
    device: impl FnOnce(&Attachment) -> Option<usize>,
    asked: u64,
) -> Result<Option<cap::Claim>, cap::Refused> {
    if Thread::with(|thread| thread.inside.get()) {
        return Ok(None);
    }
    unseen(|| ours(|| cap::claim(device, asked))).unwrap_or(Ok(None))
}

/// Runs `body`, which makes the `real` call, with nested hooks forwarded unseen; within another hook the real call
/// alone.
pub fn outermost<R: FnOnce() -> Status>(real: R, body: impl FnOnce(R) -> Status) -> Status {
    Thread::with(|thread| match Outermost::enter(thread) {
        Some(_outermost) => body(real),
        None => real(),
    })
}

/// A free: the record is taken out before the real call, because another thread may be given the same
/// address as soon as the driver has it back, and put back if the driver refuses.
#[inline]
pub fn free(key: Key, real: impl FnOnce() -> Status) -> Status {
    Thread::with(|thread| {
        let Some(_outermost) = Outermost::enter(thread) else {
            return real();
        };
        let record = ours(|| ledger::take(thread, key)).flatten();
        let status = real();
        if status != SUCCESS
            && let Some(record) = record
        {
            ours(|| ledger::put_back(thread, key, record));
        }
        status
    })
}

/// Does `before`, makes the real call, and then `finish`es what was done, or undoes it if the driver refuses.
pub fn around<T>(
    before: impl FnOnce() -> Option<T>,
    real: impl FnOnce() -> Status,
    finish: impl FnOnce(T),
    undo: impl FnOnce(T),
) -> Status {
    Thread::with(|thread| {
        let Some(_outermost) = Outermost::enter(thread) else {
            return real();
        };
        let done = ours(before).flatten();
        let status = real();
        if let Some(done) = done {
            ours(|| {
                if status == SUCCESS {
                    finish(done)
                } else {
                    undo(done)
                }
            });
        }
        status
    })
}

/// Makes the real call and looks at its answer if that is success or out of memory.
pub fn answered<T>(real: impl FnOnce() -> Status, then: impl FnOnce(Status) -> T) -> Status {
    Thread::with(|thread| {
        let Some(_outermost) = Outermost::enter(thread) else {
            return real();
        };
        let status = real();
        if matches!(status, SUCCESS | OUT_OF_MEMORY) {
            ours(|| then(status));
        }
        status
    })
}

/// Makes the real call and, once it has succeeded, does `then`.
#[inline]
pub fn after<T>(real: impl FnOnce() -> Status, then: impl FnOnce() -> T) -> Status {
    Thread::with(|thread| {
        let Some(_outermost) = Outermost::enter(thread) else {
            return real();
        };
        let status = real();
        if status == SUCCESS {
            ours(then);
        }
        status
    })
}

/// An allocation that is no part of the reserved bytes: no refusal of it tells of a device out of memory.
pub fn allocate_apart(real: impl FnOnce() -> Status, granted: impl FnOnce() -> Option<Grant>) -> Status {
    let granted = || granted().map(|grant| Thread::with(|thread| ledger::record(thread, grant)));
    after(real, granted)
}

/// Runs `body` with nested hooks forwarded unseen: for our own calls of the driver.
pub fn unseen<T>(body: impl FnOnce() -> T) -> T {
    Thread::with(|thread| {
        let _outermost = Outermost::enter(thread);
        body()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_nested_call_is_forwarded_unseen() {
        let (mut outer, mut inner) = (0, 0);
        after(
            || {
                after(|| SUCCESS, || inner += 1);
                SUCCESS
            },
            || outer += 1,
        );
        assert_eq!((outer, inner), (1, 0));
        after(|| SUCCESS, || inner += 1);
        assert_eq!(inner, 1, "the gate is open again");
    }

    #[test]
    fn a_fault_of_ours_forwards_the_call() {
        assert_eq!(after(|| SUCCESS, || -> () { panic!("a fault") }), SUCCESS);
        let status = around(|| -> Option<()> { panic!("a fault") }, || 7, drop, drop);
        assert_eq!(status, 7);
        assert_eq!(after(|| SUCCESS, || ()), SUCCESS, "the gate is open again");
    }

    #[test]
    fn a_refused_call_is_undone() {
        let mut undone = None;
        assert_eq!(around(|| Some(5), || 700, drop, |n| undone = Some(n)), 700);
        assert_eq!(undone, Some(5));
    }
}
