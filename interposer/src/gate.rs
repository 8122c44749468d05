//! The gate that each hook passes: nested calls are forwarded unseen, the real call always happens exactly
//! once, and a fault of ours never reaches the program.

use std::cell::Cell;
use std::panic::{AssertUnwindSafe, catch_unwind};

use crate::abi::{OUT_OF_MEMORY, SUCCESS, Status};
use crate::ledger::{self, Grant, Key};

thread_local! {
    // Without a destructor, so that it also works from the destructors of the program's own thread-locals.
    static INSIDE: Cell<bool> = const { Cell::new(false) };
}

/// The outermost hook on this thread. A driver that calls its own exported functions, and another hooker
/// that calls us from within our real call, count once.
struct Outermost;

impl Outermost {
    #[inline]
    fn enter() -> Option<Self> {
        INSIDE.with(|inside| (!inside.replace(true)).then_some(Self))
    }
}

impl Drop for Outermost {
    #[inline]
    fn drop(&mut self) {
        INSIDE.with(|inside| inside.set(false));
    }
}

/// Runs our own part. What it panics with is dropped: the program goes on without that count.
#[inline]
fn ours<T>(part: impl FnOnce() -> T) -> Option<T> {
    catch_unwind(AssertUnwindSafe(part)).ok()
}

/// An allocation of `asked` bytes: the real call first, then its record. `granted` reads what the driver
/// has handed out; `None` where there is nothing to count.
#[inline]
pub fn allocate(
    real: impl FnOnce() -> Status,
    asked: impl FnOnce() -> u64,
    granted: impl FnOnce() -> Option<Grant>,
) -> Status {
    let Some(_outermost) = Outermost::enter() else {
        return real();
    };
    let status = real();
    match status {
        SUCCESS => drop(ours(|| granted().map(ledger::record))),
        OUT_OF_MEMORY => drop(ours(|| ledger::refused(asked()))),
        _ => {}
    }
    status
}

/// A free: the record is taken out before the real call, because another thread may be given the same
/// address as soon as the driver has it back, and put back if the driver refuses.
#[inline]
pub fn free(key: Key, real: impl FnOnce() -> Status) -> Status {
    around(|| ledger::take(key), real, |record| ledger::put_back(key, record))
}

/// Does `before`, makes the real call, and undoes `before` if the driver refuses.
#[inline]
pub fn around<T>(
    before: impl FnOnce() -> Option<T>,
    real: impl FnOnce() -> Status,
    undo: impl FnOnce(T),
) -> Status {
    let Some(_outermost) = Outermost::enter() else {
        return real();
    };
    let done = ours(before).flatten();
    let status = real();
    if let (true, Some(done)) = (status != SUCCESS, done) {
        ours(|| undo(done));
    }
    status
}

/// As [`around`], with something to finish once the driver has agreed.
#[inline]
pub fn replaced<T>(
    before: impl FnOnce() -> T,
    real: impl FnOnce() -> Status,
    finish: impl FnOnce(&T),
    undo: impl FnOnce(&T),
) -> Status {
    let Some(_outermost) = Outermost::enter() else {
        return real();
    };
    let done = ours(before);
    let status = real();
    if let Some(done) = done {
        ours(|| {
            if status == SUCCESS {
                finish(&done)
            } else {
                undo(&done)
            }
        });
    }
    status
}

/// Makes the real call and looks at its answer if that is success or out of memory.
#[inline]
pub fn answered<T>(real: impl FnOnce() -> Status, then: impl FnOnce(Status) -> T) -> Status {
    let Some(_outermost) = Outermost::enter() else {
        return real();
    };
    let status = real();
    if matches!(status, SUCCESS | OUT_OF_MEMORY) {
        ours(|| then(status));
    }
    status
}

/// Makes the real call and, once it has succeeded, does `then`.
#[inline]
pub fn after<T>(real: impl FnOnce() -> Status, then: impl FnOnce() -> T) -> Status {
    let Some(_outermost) = Outermost::enter() else {
        return real();
    };
    let status = real();
    if status == SUCCESS {
        ours(then);
    }
    status
}

/// Runs `body` with nested hooks forwarded unseen: for our own calls of the driver.
pub fn unseen<T>(body: impl FnOnce() -> T) -> T {
    let _outermost = Outermost::enter();
    body()
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
        let status = around(|| -> Option<()> { panic!("a fault") }, || 7, |()| ());
        assert_eq!(status, 7);
        assert_eq!(after(|| SUCCESS, || ()), SUCCESS, "the gate is open again");
    }

    #[test]
    fn a_refused_call_is_undone() {
        let mut undone = None;
        assert_eq!(around(|| Some(5), || 700, |n| undone = Some(n)), 700);
        assert_eq!(undone, Some(5));
    }
}
