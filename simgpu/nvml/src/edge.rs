//! The C side: types that stand in the signatures of exported functions.
//!
//! Each is what C passes, and its methods are the only places that follow a pointer. None can be made outside
//! this module, so one exists only where C passed it; nvml.h then promises that it is null or points to
//! what its type says.

use std::ffi::{CStr, c_char, c_uint};

use nvml_wrapper_sys::bindings::nvmlDevice_t;

use crate::code::Code;

type Answer<T = ()> = Result<T, Code>;

/// Where a result goes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Out<T>(*mut T);

impl<T> Out<T> {
    /// Whether the caller does not want it.
    pub(crate) fn is_null(&self) -> bool {
        self.0.is_null()
    }

    /// Hands the result over.
    pub(crate) fn put(&self, value: T) -> Answer {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by nvml.h writable for one `T`.
        unsafe { self.0.write(value) };
        Ok(())
    }
}

impl<T: Copy> Out<T> {
    /// What the caller put there, where nvml.h makes it an input too.
    pub(crate) fn get(&self) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, and an input by nvml.h, so initialised.
        Ok(unsafe { self.0.read() })
    }

    /// Fills an array that has room for all of `values`: the callers check its length, or nvml.h demands it.
    pub(crate) fn put_all(&self, values: &[T]) -> Answer {
        if values.is_empty() {
            return Ok(());
        }
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: by nvml.h the array has room for as many; it is the caller's, so it does not overlap ours.
        unsafe { std::ptr::copy_nonoverlapping(values.as_ptr(), self.0, values.len()) };
        Ok(())
    }

    /// Element `index` of an array of inputs and outputs.
    pub(crate) fn at(&self, index: usize) -> Self {
        Self(self.0.wrapping_add(index))
    }

    /// Fills a list whose `count` is its room before and its length after.
    pub(crate) fn put_list(&self, count: &Out<c_uint>, values: &[T]) -> Answer {
        let room = count.get()? as usize;
        count.put(c_uint::try_from(values.len()).unwrap_or(c_uint::MAX))?;
        if room < values.len() {
            Err(Code::InsufficientSize)
        } else {
            self.put_all(values)
        }
    }
}

/// A structure that the caller passes.
#[derive(Debug)]
#[repr(transparent)]
pub struct In<T>(*const T);

impl<T: Copy> In<T> {
    /// What it is.
    pub(crate) fn get(&self) -> Answer<T> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by nvml.h one readable `T`.
        Ok(unsafe { self.0.read() })
    }
}

/// A structure that begins with its version: the caller says which it has, and has room for that one.
#[derive(Debug)]
#[repr(transparent)]
pub struct Versioned(*mut c_uint);

/// What a caller writes into `version` for revision `revision` of `T`: size and revision.
pub(crate) fn version_of<T>(revision: c_uint) -> c_uint {
    c_uint::try_from(size_of::<T>()).unwrap_or(0) | (revision << 24)
}

impl Versioned {
    /// Hands `value` over if the caller has revision `revision` of it; else says that it does not.
    pub(crate) fn put_if<T>(&self, revision: c_uint, value: impl FnOnce(c_uint) -> T) -> Answer {
        let version = Out(self.0).get()?;
        if version != version_of::<T>(revision) {
            return Err(Code::ArgumentVersionMismatch);
        }
        Out(self.0.cast::<T>()).put(value(version))
    }
}

/// Text that the caller passes.
#[derive(Debug)]
#[repr(transparent)]
pub struct Text(*const c_char);

impl Text {
    /// The text; `None` for null.
    pub(crate) fn read_if_given(&self) -> Answer<Option<&str>> {
        if self.0.is_null() {
            return Ok(None);
        }
        self.read().map(Some)
    }

    /// The text; not UTF-8 is as invalid as null.
    pub(crate) fn read(&self) -> Answer<&str> {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        // SAFETY: not null, so by nvml.h text that ends in NUL and stays during the call.
        let text = unsafe { CStr::from_ptr(self.0) };
        text.to_str().map_err(|_| Code::InvalidArgument)
    }
}

/// Room for text.
#[derive(Debug)]
#[repr(transparent)]
pub struct Buffer(*mut c_char);

impl Buffer {
    /// Writes `text` with its NUL into `room` bytes.
    pub(crate) fn put(&self, room: usize, text: &str) -> Answer {
        if self.0.is_null() {
            return Err(Code::InvalidArgument);
        }
        if text.len() >= room {
            return Err(Code::InsufficientSize);
        }
        let bytes = self.0.cast::<u8>();
        // SAFETY: the caller says that there are `room` bytes, more than these.
        unsafe { std::ptr::copy_nonoverlapping(text.as_ptr(), bytes, text.len()) };
        let end = bytes.wrapping_add(text.len());
        // SAFETY: as above; the index is below `room`.
        unsafe { end.write(0) };
        Ok(())
    }
}

/// Text as an array within a structure, cut to fit.
pub(crate) fn text_array<const N: usize>(text: &str) -> [c_char; N] {
    let mut array = [0; N];
    for (to, from) in array.iter_mut().zip(text.bytes()).take(N - 1) {
        *to = c_char::from_ne_bytes([from]);
    }
    array
}

/// A handle as a C pointer. It is a number in pointer's clothes: nothing is ever read through it.
pub(crate) fn device_pointer(number: usize) -> nvmlDevice_t {
    std::ptr::without_provenance_mut(number)
}

/// As [`device_pointer`], for a GPU instance.
pub(crate) fn instance_pointer<T>(number: usize) -> *mut T {
    std::ptr::without_provenance_mut(number)
}
