//! The one door between C and this crate: argument wrappers and the macro that declares an entry point.
//!
//! Every pointer that a program hands to the driver is wrapped at the ABI in [`Out`], [`In`] or [`Text`], so that
//! the entry points themselves are ordinary safe code.

use std::ffi::{CStr, c_char, c_int, c_void};
use std::io::Write;
use std::ptr::NonNull;

use crate::code::{Answer, Code};

/// Turns what an entry point found into the `CUresult` that the program sees.
pub(crate) fn answer(found: Answer) -> c_int {
    match found {
        Ok(()) => 0,
        Err(Code(number)) => number,
    }
}

/// Says something to the person who runs the program, in one line on stderr. Nothing is wrong if nobody listens.
pub(crate) fn say(what: std::fmt::Arguments<'_>) {
    let _ = writeln!(std::io::stderr(), "simgpu: {what}");
}

/// Declares exported entry points. The body is an expression of type [`Answer`].
macro_rules! entries {
    ($($(#[$note:meta])* fn $name:ident($($argument:ident: $kind:ty),* $(,)?) $body:block)*) => {$(
        $(#[$note])*
        #[unsafe(no_mangle)]
        pub(crate) extern "C" fn $name($($argument: $kind),*) -> std::ffi::c_int {
            let found = move || -> $crate::code::Answer { $body };
            $crate::gate::answer(found())
        }
    )*};
}
pub(crate) use entries;

/// A pointer through which the driver returns something; the program may pass NULL.
#[derive(Debug)]
#[repr(transparent)]
pub(crate) struct Out<T>(Option<NonNull<T>>);

impl<T> Clone for Out<T> {
    fn clone(&self) -> Self {
        *self
    }
}

impl<T> Copy for Out<T> {}

impl<T> Out<T> {
    /// Nowhere.
    pub(crate) const NULL: Self = Self(None);

    pub(crate) fn is_null(self) -> bool {
        self.0.is_none()
    }

    /// Writes the value; NULL is `INVALID_VALUE`.
    pub(crate) fn put(self, value: T) -> Answer {
        let place = self.0.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the driver API demands that a non-NULL out argument points to room for one T; the caller owns it.
        unsafe { place.as_ptr().write_unaligned(value) };
        Ok(())
    }

    /// Writes the value unless the program passed NULL.
    pub(crate) fn put_if(self, value: T) {
        if self.0.is_some() {
            // A non-NULL place cannot fail.
            let _ = self.put(value);
        }
    }

    /// The `index`th element of an array that the program passed.
    pub(crate) fn at(self, index: usize) -> Self {
        Self(self.0.map(|base| {
            // SAFETY: the caller indexes below the length that the program passed with this array.
            unsafe { base.add(index) }
        }))
    }

    /// The same place, seen as room for another type: attribute calls return whatever the attribute is.
    pub(crate) fn cast<U>(self) -> Out<U> {
        Out(self.0.map(NonNull::cast))
    }
}

impl<T: Copy> Out<T> {
    /// The same place for reading: some arguments go both ways.
    pub(crate) fn as_in(self) -> In<T> {
        In(self.0)
    }
}

impl Out<u8> {
    /// Fills `room` bytes with a text, cut to fit and always ended by a zero byte.
    pub(crate) fn put_text(self, text: &str, room: usize) -> Answer {
        let last = room.checked_sub(1).ok_or(Code::INVALID_VALUE)?;
        for (index, byte) in text.bytes().take(last).chain(std::iter::once(0)).enumerate() {
            self.at(index).put(byte)?;
        }
        Ok(())
    }
}

/// A pointer to something that the program passes in; NULL is allowed.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct In<T>(Option<NonNull<T>>);

impl<T: Copy> In<T> {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_none()
    }

    /// Reads the value; NULL is `INVALID_VALUE`.
    pub(crate) fn get(self) -> Answer<T> {
        self.at(0)
    }

    /// The same place, seen as another type: attribute calls take whatever the attribute is.
    pub(crate) fn cast<U>(self) -> In<U> {
        In(self.0.map(NonNull::cast))
    }

    /// Reads the `index`th element of an array that the program passed.
    pub(crate) fn at(self, index: usize) -> Answer<T> {
        let base = self.0.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the caller indexes below the length that the program passed with this array.
        let place = unsafe { base.add(index) };
        // SAFETY: the driver API demands that a non-NULL in argument points to a valid T.
        Ok(unsafe { place.as_ptr().read_unaligned() })
    }
}

/// A C string that the program passes in; NULL is allowed.
#[derive(Clone, Copy, Debug)]
#[repr(transparent)]
pub(crate) struct Text(Option<NonNull<c_char>>);

impl Text {
    pub(crate) fn is_null(self) -> bool {
        self.0.is_none()
    }

    /// The characters; NULL and bytes that are not UTF-8 are `INVALID_VALUE`.
    pub(crate) fn get<'a>(self) -> Answer<&'a str> {
        let start = self.0.ok_or(Code::INVALID_VALUE)?;
        // SAFETY: the driver API demands a zero-terminated string that lives at least as long as the call.
        let text = unsafe { CStr::from_ptr(start.as_ptr()) };
        text.to_str().map_err(|_| Code::INVALID_VALUE)
    }
}

/// A region of the program's own memory that a copy reads or writes.
#[derive(Clone, Copy, Debug, Eq, PartialEq)]
#[repr(transparent)]
pub(crate) struct Host(pub(crate) *mut c_void);

impl Host {
    pub(crate) fn from_address(address: u64) -> Self {
        Self(std::ptr::with_exposed_provenance_mut(
            usize::try_from(address).unwrap_or(0),
        ))
    }

    pub(crate) fn address(self) -> u64 {
        self.0.expose_provenance() as u64
    }

    /// Fills the region with one byte value.
    pub(crate) fn fill(self, value: u8, bytes: usize) {
        // SAFETY: the driver API demands that the destination of a copy has room for what is copied.
        unsafe { std::ptr::write_bytes(self.0.cast::<u8>(), value, bytes) };
    }

    /// Copies from another region of the program's memory; they may overlap.
    pub(crate) fn copy_from(self, source: Host, bytes: usize) {
        // SAFETY: the driver API demands that both regions of a copy are as long as what is copied.
        unsafe { std::ptr::copy(source.0.cast::<u8>(), self.0.cast::<u8>(), bytes) };
    }
}

// SAFETY: a Host is an address; whoever dereferences it answers for the region, on whatever thread.
unsafe impl Send for Host {}
// SAFETY: as above.
unsafe impl Sync for Host {}

impl<T> In<T> {
    /// A place in the program's memory that it described otherwise than by a typed argument.
    pub(crate) fn of(place: Host) -> Self {
        Self(NonNull::new(place.0.cast()))
    }
}

impl Text {
    /// A string in the program's memory.
    pub(crate) fn of(place: Host) -> Self {
        Self(NonNull::new(place.0.cast()))
    }
}
