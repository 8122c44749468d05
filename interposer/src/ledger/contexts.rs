//! What the end of a context frees.
//!
//! 1. `cuMemAlloc`, managed and page-locked memory, arrays and opened memory of other processes belong to the
//!    context that was current; the driver frees them when it ends. Physical memory and pools belong to a
//!    device, and stay.
//! 2. No allocation is slowed down for this: the driver itself tells which context an address belongs to, when
//!    a context is about to end. Arrays have no address, so theirs is noted when they are made.
//! 3. `cuCtxDestroy` and a reset take the records out before the real call, as a free does, and put them back
//!    if the driver refuses.
//! 4. A release ends the primary context only if it is the last, and how many there are is not known: the
//!    runtime takes holds by a way that nobody sees. So the driver is asked after it whether the context is still active,
//!    and if not, the addresses that it knows no longer are taken out.
//! 5. A context is primary if no `cuCtxCreate` has made it.

use std::ffi::{c_int, c_uint, c_void};

use migm_shared::page::Class;

use super::table::AddressTable;
use super::{Key, RECORDS, Record};
use crate::abi::{Opaque, Ordinal, SUCCESS, Status};
use crate::attach;
use crate::driver::Real;
use crate::errno;
use crate::ledger;
use crate::thread::Thread;

/// Contexts made by `cuCtxCreate`.
static CREATED: AddressTable<4> = AddressTable::new();
/// Green contexts and the ordinal of their device.
static GREEN: AddressTable<4> = AddressTable::new();
/// Arrays and external memory, and the context that was current when each was made.
static OBJECTS: AddressTable<32> = AddressTable::new();

type Attribute = unsafe extern "C-unwind" fn(*mut c_void, c_int, u64) -> Status;
// SAFETY: `cuda.h` declares the function with this type.
static ATTRIBUTE: Real<Attribute> = unsafe { Real::new(c"cuPointerGetAttribute") };
// SAFETY: `cuda.h` declares the function with this type.
static CURRENT: Real<unsafe extern "C-unwind" fn(*mut Opaque) -> Status> =
    unsafe { Real::new(c"cuCtxGetCurrent") };
type State = unsafe extern "C-unwind" fn(Ordinal, *mut c_uint, *mut c_int) -> Status;
// SAFETY: `cuda.h` declares the function with this type.
static STATE: Real<State> = unsafe { Real::new(c"cuDevicePrimaryCtxGetState") };

/// `CU_POINTER_ATTRIBUTE_CONTEXT`.
const CONTEXT: c_int = 1;

/// A context's handle; never 0.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
struct Context(u64);

impl Context {
    fn of(handle: Opaque) -> Option<Self> {
        (!handle.is_null()).then_some(Self(handle as u64))
    }

    fn is_primary(self) -> bool {
        CREATED.value(self.0).is_none()
    }
}

/// The context that an address belongs to, in the driver's words; `None` if it knows no such address, or none
/// that belongs to a context.
fn of_address(address: u64) -> Option<Context> {
    let ask = ATTRIBUTE.get()?;
    let mut context: Opaque = std::ptr::null_mut();
    // SAFETY: this attribute is a pointer, and `context` a place for one; any address may be asked for.
    let status = unsafe { ask((&raw mut context).cast(), CONTEXT, address) };
    Context::of(context).filter(|_| status == SUCCESS)
}

fn current() -> Option<Context> {
    let ask = CURRENT.get()?;
    let mut context: Opaque = std::ptr::null_mut();
    // SAFETY: `context` is a place to write to.
    let status = unsafe { ask(&raw mut context) };
    Context::of(context).filter(|_| status == SUCCESS)
}

fn of_object(key: Key) -> Option<Context> {
    let context = OBJECTS.value(key.0)?.load(std::sync::atomic::Ordering::Relaxed);
    (context != 0).then_some(Context(context))
}

/// Notes which context a fresh object, which has no address, belongs to.
pub fn note_object(key: Key) {
    if let Some(context) = current() {
        // A full table: the object is counted, and stays when its context ends.
        let _ = OBJECTS.insert(key.0, context.0);
    }
}

/// An object taken out before its real destruction.
#[derive(Debug)]
pub struct Object {
    key: Key,
    record: Option<Record>,
    context: Option<u64>,
}

/// Takes an object out, before the driver does.
#[must_use]
pub fn take_object(key: Key) -> Object {
    Object {
        key,
        context: OBJECTS.take(key.0),
        record: Thread::with(|thread| ledger::take(thread, key)),
    }
}

/// Undoes [`take_object`].
#[cold]
pub fn put_object_back(object: Object) {
    if let Some(context) = object.context {
        let _ = OBJECTS.insert(object.key.0, context);
    }
    if let Some(record) = object.record {
        Thread::with(|thread| ledger::put_back(thread, object.key, record));
    }
}

/// A context that is nobody's primary one.
pub fn created(context: Opaque) {
    if let Some(context) = Context::of(context) {
        let _ = CREATED.insert(context.0, 1);
    }
}

/// A green context of a device.
pub fn green(context: Opaque, device: Ordinal) {
    if let Ok(device) = u64::try_from(device) {
        let _ = GREEN.insert(context as u64, device);
    }
}

/// Takes a green context out, before the driver does; tells its device.
#[must_use]
pub fn take_green(context: Opaque) -> Option<Ordinal> {
    GREEN
        .take(context as u64)
        .and_then(|device| Ordinal::try_from(device).ok())
}

/// What the end of a context took out.
#[derive(Debug)]
pub struct Ended {
    /// The context, if `cuCtxCreate` had made it.
    created: Option<Context>,
    objects: Vec<Object>,
}

/// Takes out what lives in `context`, which is about to be destroyed.
#[must_use]
pub fn destroy(context: Opaque) -> Option<Ended> {
    let context = Context::of(context)?;
    errno::kept(|| {
        // While the context is known as a created one, so that what is told apart by that still is.
        let objects = take_where(|key, _| owner(key) == Some(context));
        let created = CREATED.take(context.0).map(|_| context);
        Some(Ended { created, objects })
    })
}

/// Takes out what lives in the primary context of a device, which is about to be reset.
#[must_use]
pub fn reset_primary(device: Ordinal) -> Option<Ended> {
    let index = attach::already()?.device_of(device)?;
    let of_primary =
        |key, record: Record| record.device() == index && owner(key).is_some_and(Context::is_primary);
    Some(Ended {
        created: None,
        objects: errno::kept(|| take_where(of_primary)),
    })
}

/// Undoes [`destroy`] and [`reset_primary`] after the driver has refused.
#[cold]
pub fn put_back(ended: Ended) {
    if let Some(context) = ended.created {
        let _ = CREATED.insert(context.0, 1);
    }
    ended.objects.into_iter().for_each(put_object_back);
}

/// A hold on the primary context of a device was given back. If it was the last, what the driver knows no
/// longer is taken out.
pub fn released_primary(device: Ordinal) {
    let Some(index) = attach::already().and_then(|attached| attached.device_of(device)) else {
        return;
    };
    if is_active(device) {
        return;
    }
    let is_gone = |key: Key, record: Record| {
        record.device() == index
            && match key.as_address() {
                Some(address) => of_address(address).is_none(),
                None => of_object(key).is_some_and(Context::is_primary),
            }
    };
    errno::kept(|| take_where(is_gone));
}

/// Whether a device's primary context lives. A driver that does not say leaves all as it is.
fn is_active(device: Ordinal) -> bool {
    let (mut flags, mut active) = (0, 1);
    let asked = STATE.get().is_some_and(|ask| {
        // SAFETY: both are places to write to.
        unsafe { ask(device, &raw mut flags, &raw mut active) == SUCCESS }
    });
    !asked || active != 0
}

fn owner(key: Key) -> Option<Context> {
    match key.as_address() {
        Some(address) => of_address(address),
        None => of_object(key),
    }
}

/// Whether a context's end frees such memory.
fn ends_with_context(class: Class) -> bool {
    matches!(
        class,
        Class::Device | Class::Managed | Class::Array | Class::Imported | Class::Host
    )
}

fn take_where(goes: impl Fn(Key, Record) -> bool) -> Vec<Object> {
    let wanted = RECORDS.entries().filter_map(|(key, record)| {
        let (key, record) = (Key(key), Record(record));
        (ends_with_context(record.class()) && goes(key, record)).then_some(key)
    });
    wanted.map(take_object).collect()
}

/// Forgets all, in a forked child.
pub fn clear() {
    CREATED.clear();
    GREEN.clear();
    OBJECTS.clear();
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn physical_memory_and_pools_outlive_a_context() {
        for class in [Class::Vmm, Class::Pool, Class::Graph] {
            assert!(!ends_with_context(class));
        }
    }

    #[test]
    fn a_context_that_was_not_created_is_primary() {
        let handle = 0x5a5a_0000_usize as Opaque;
        let context = Context::of(handle).unwrap();
        assert!(context.is_primary());
        created(handle);
        assert!(!context.is_primary());
        assert_eq!(Context::of(std::ptr::null_mut()), None);
    }

    #[test]
    fn a_green_context_knows_its_device_once() {
        let handle = 0x6b6b_0000_usize as Opaque;
        green(handle, 3);
        assert_eq!(take_green(handle), Some(3));
        assert_eq!(take_green(handle), None);
    }
}
